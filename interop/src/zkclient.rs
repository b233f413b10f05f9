//! The lock of the async crate `zookeeper-client` on tokio: a peer of `bench/compare`
//! (`zk_mutex_bench::protocol`), with the workloads `uncontended`, `contended` and `waiters`. Its
//! threads are tasks. A release is the drop of the guard, which deletes the node in the background.
//!
//! It stands in this package because this is the only one that may have an async runtime.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use zk_mutex_bench::protocol::{self, Args, Counter, Cycle, Outcome, done, mark, now, report};
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockOptions, LockPrefix};

/// How long the tasks may take to queue.
const LIMIT: Duration = Duration::from_secs(60);
/// The time from the last node in the queue until its task waits.
const SETTLE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    let find = |workload: &str| -> Option<fn(&Args) -> Outcome<()>> {
        match workload {
            "uncontended" | "contended" => Some(contended),
            "waiters" => Some(waiters),
            _ => None,
        }
    };
    protocol::run("zkclient", find, |_| false)
}

async fn connect(args: &Args) -> Outcome<Client> {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
    Ok(connector.connect(&args.hosts).await?)
}

async fn lock<'a>(client: &'a Client, folder: &str) -> Outcome<LockClient<'a>> {
    let folders = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(folders)?;
    Ok(client.lock(LockPrefix::new_curator(folder, "lock-")?, b"", options).await?)
}

async fn cycle(client: &Client, folder: &str, counter: &Counter) -> Outcome<Cycle> {
    let acquire = now();
    let guard = lock(client, folder).await?;
    let acquired = now();
    counter.bump();
    let release = now();
    drop(guard);
    Ok(Cycle { acquire, acquired, release, released: now() })
}

async fn warm(args: &Args, client: &Client) -> Outcome<()> {
    for _ in 0..args.number("warm", 500)? {
        cycle(client, &args.warm_path(), &Counter::default()).await?;
    }
    Ok(())
}

fn gather(runtime: &Runtime, tasks: Vec<JoinHandle<Outcome<Vec<Cycle>>>>) -> Outcome<Vec<Cycle>> {
    let mut all = Vec::new();
    for task in tasks {
        all.extend(runtime.block_on(task)??);
    }
    Ok(all)
}

/// Tasks in a loop on one session.
fn contended(args: &Args) -> Outcome<()> {
    let runtime = Builder::new_multi_thread().build()?;
    let client = runtime.block_on(connect(args))?;
    runtime.block_on(warm(args, &client))?;
    mark("ready")?;
    let counter = Arc::new(Counter::default());
    let (start, limit) = (now(), args.limit()?);
    let run = |_| {
        let (client, counter, folder) = (client.clone(), counter.clone(), args.path().to_owned());
        runtime.spawn(async move {
            let mut cycles = Vec::new();
            while !limit.reached(cycles.len()) {
                cycles.push(cycle(&client, &folder, &counter).await?);
            }
            Ok(cycles)
        })
    };
    let tasks = (0..args.threads()?).map(run).collect();
    let cycles = gather(&runtime, tasks)?;
    report(args, &cycles, start, Some(&counter), "")?;
    Ok(done()?)
}

/// A holder and many waiters with one cycle each. The holder has a session of its own.
fn waiters(args: &Args) -> Outcome<()> {
    let runtime = Builder::new_multi_thread().build()?;
    let (threads, count) = (args.threads()?, args.sessions()?);
    let clients =
        (0..count).map(|_| runtime.block_on(connect(args))).collect::<Outcome<Vec<_>>>()?;
    let holding = runtime.block_on(connect(args))?;
    runtime.block_on(warm(args, &holding))?;
    let held = runtime.block_on(lock(&holding, args.path()))?;
    mark("ready")?;
    let counter = Arc::new(Counter::default());
    let wait = |number: usize| {
        let (client, folder) = (clients[number % count].clone(), args.path().to_owned());
        let counter = counter.clone();
        runtime.spawn(async move { Ok(vec![cycle(&client, &folder, &counter).await?]) })
    };
    let tasks = (0..threads).map(wait).collect();
    let deadline = Instant::now() + LIMIT;
    while runtime.block_on(holding.list_children(args.path()))?.len() <= threads {
        if Instant::now() >= deadline {
            return Err("the waiters did not queue in time".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(SETTLE);
    mark("queued")?;
    let start = now();
    let entered = runtime.enter(); // the delete is a task
    drop(held);
    drop(entered);
    let cycles = gather(&runtime, tasks)?;
    report(args, &cycles, start, Some(&counter), &format!(",\"sessions\":{count}"))?;
    Ok(done()?)
}
