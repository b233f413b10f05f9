//! The recipe of ZooKeeper's documentation by hand over the bare crate `zookeeper` 0.8: a peer of
//! `bench/compare` (`zk_mutex_bench::protocol`), with the workloads `uncontended`, `contended` and
//! `waiters`. It has none of the guarantees of a lock that survives faults.

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use zk_mutex_bench::protocol::{self, Args, Bare, Counter, Outcome, drain, in_a_loop, warm};
use zookeeper::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper, ZooKeeperExt};

const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let find = |workload: &str| -> Option<fn(&Args) -> Outcome<()>> {
        match workload {
            "uncontended" | "contended" => Some(contended),
            "waiters" => Some(waiters),
            _ => None,
        }
    };
    protocol::run("textbook", find, |_| false)
}

fn connect(args: &Args) -> Outcome<ZooKeeper> {
    let client = ZooKeeper::connect(&args.hosts, TIMEOUT, |_: WatchedEvent| {})?;
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = client.exists("/", false) {
        if Instant::now() > deadline {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for folder in [args.path(), &args.warm_path()] {
        client.ensure_path(folder)?;
    }
    Ok(client)
}

/// Threads in a loop on one session.
fn contended(args: &Args) -> Outcome<()> {
    let (client, counter) = (connect(args)?, &Counter::default());
    warm(args, ByHand::new(&client, &args.warm_path()))?;
    in_a_loop(args, Some(counter), || {
        let mut lock = ByHand::new(&client, args.path());
        Ok(move || lock.cycle(|| counter.bump()))
    })
}

/// A holder and many waiters with one cycle each. The holder has a session of its own.
fn waiters(args: &Args) -> Outcome<()> {
    let (count, counter) = (args.sessions()?, &Counter::default());
    let clients = (0..count).map(|_| connect(args)).collect::<Outcome<Vec<_>>>()?;
    let holding = connect(args)?;
    warm(args, ByHand::new(&holding, &args.warm_path()))?;
    let mut held = ByHand::new(&holding, args.path());
    held.acquire()?;
    let waiter = |number: usize| {
        let mut lock = ByHand::new(&clients[number % count], args.path());
        Ok(move || lock.cycle(|| counter.bump()))
    };
    let threads = args.threads()?;
    let queued = || Ok(holding.get_children(args.path(), false)?.len() > threads);
    drain(args, counter, waiter, queued, || held.release())
}

struct ByHand<'a> {
    client: &'a ZooKeeper,
    folder: String,
    node: String,
}

impl ByHand<'_> {
    fn new<'a>(client: &'a ZooKeeper, folder: &str) -> ByHand<'a> {
        ByHand { client, folder: folder.to_owned(), node: String::new() }
    }
}

impl Bare for ByHand<'_> {
    fn acquire(&mut self) -> Outcome<()> {
        let (path, acl) = (format!("{}/lock-", self.folder), Acl::open_unsafe().clone());
        self.node = self.client.create(&path, vec![], acl, CreateMode::EphemeralSequential)?;
        let own = &self.node[self.folder.len() + 1..];
        loop {
            let nodes = self.client.get_children(&self.folder, false)?;
            let Some(before) = nodes.iter().filter(|name| name.as_str() < own).max() else {
                return Ok(());
            };
            let (told, wait) = sync_channel(1);
            let watch = move |_: WatchedEvent| {
                let _ = told.try_send(());
            };
            match self.client.get_data_w(&format!("{}/{before}", self.folder), watch) {
                Ok(_) => wait.recv()?,
                Err(ZkError::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn release(&mut self) -> Outcome<()> {
        Ok(self.client.delete(&self.node, None)?)
    }
}
