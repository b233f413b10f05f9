//! The cost of a release, by the nodes that the waiters watch:
//!
//!     cargo run -p zk-mutex-bench --bin herd
//!
//! One session holds a lock and many sessions wait for it. The holder releases the lock: how many
//! watch events does the server send? With `WaitStrategy::Predecessor` it sends as many for a
//! thousand waiters as for one. With `WaitStrategy::Parent` it sends one event to each waiter. Then
//! all waiters list the whole queue, and only one of them gets the lock. That is the herd.

mod counted;
mod crowd;

use counted::Counter;
use crossbeam_channel::{Receiver, Sender, bounded};
use crowd::Crowd;
use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use zk_mutex::{CancelToken, Wait, WaitStrategy, ZkMutex, ZkMutexGuard, ZkSession};
use zk_mutex_bench::{Servers, failure, path, positive, say, text};

const HELP: &str = "\
watch events at a release, for 1, 10, 100 and 1,000 waiters under each wait strategy

Flags:
  --connect STR  the server, as in h1:2181/chroot
                 (default: $ZK_CONNECT, or else an embedded test server)
  --path P       where the locks are (default /zk-mutex/herd)
  --most N       go up to so many waiters (default 1000)
  --sessions N   waiters that are whole sessions, five threads each (default 100)
  --help         this text";

/// How many waiters of a longer queue are whole sessions: those in front.
const FRONT: usize = 10;
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let (mut connect, mut locks) = (None, "/zk-mutex/herd".to_owned());
    let (mut most, mut most_sessions) = (1000, 100);
    zk_mutex_bench::flags("herd", HELP, |flag, parser| {
        match flag {
            "connect" => connect = Some(text(parser)?),
            "path" => locks = path(parser)?,
            "most" => most = positive(parser)?,
            "sessions" => most_sessions = positive(parser)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    let servers = Servers::find("herd", connect);
    zk_mutex_bench::show_log();
    let connect = servers.connect_string();
    let (host, chroot) = connect.find('/').map_or((connect, ""), |at| connect.split_at(at));
    if host.contains(',') {
        zk_mutex_bench::refuse("herd", "each server counts its own watches: name one");
    }
    allow_many_files();
    let counter =
        servers.embedded().map_or_else(|| Counter::Real(host.to_owned()), Counter::Embedded);
    let mut herd =
        Herd { connect, host, chroot, path: locks, most_sessions, counter, sessions: Vec::new() };
    match herd.run(most) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref() {
            Some(error) => failure("herd", error),
            None => {
                eprintln!("herd: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

struct Herd<'a> {
    connect: &'a str,
    host: &'a str,
    chroot: &'a str,
    path: String,
    most_sessions: usize,
    counter: Counter<'a>,
    sessions: Vec<ZkSession>,
}

impl Herd<'_> {
    fn run(&mut self, most: usize) -> Result<(), Box<dyn Error>> {
        say!(
            "{:>7}  {:<11}  {:>12}  {:>14}",
            "waiters",
            "strategy",
            "watch events",
            "next had it in"
        );
        for waiters in [1, 10, 100, 1000].into_iter().filter(|waiters| *waiters <= most) {
            for strategy in [WaitStrategy::Predecessor, WaitStrategy::Parent] {
                let (events, took) = self.measure(waiters, strategy)?;
                let strategy = format!("{strategy:?}");
                say!(
                    "{waiters:>7}  {strategy:<11}  {events:>12}  {:>11.1} ms",
                    took.as_secs_f64() * 1e3
                );
            }
        }
        say!("\nCounted by: {}.", self.counter.describe());
        say!("One of the events goes to the session that releases, which watches its own node.");
        say!(
            "Up to {} waiters are ZkMutexes, each in a session of its own. In a longer queue only the \
             first\n{FRONT} are; the others are bare connections, each with a node behind those and \
             the watch\nthat a ZkMutex would have.",
            self.most_sessions
        );
        self.sessions.drain(..).try_for_each(|session| session.close())?;
        Ok(())
    }

    /// Measures one release with so many waiters: the number of its events, and the time until the
    /// next waiter holds the lock.
    fn measure(
        &mut self,
        waiters: usize,
        strategy: WaitStrategy,
    ) -> Result<(u64, Duration), Box<dyn Error>> {
        let whole =
            if waiters <= self.most_sessions { waiters } else { FRONT.min(self.most_sessions) };
        while self.sessions.len() <= whole {
            self.sessions.push(ZkSession::connect(self.connect)?);
        }
        let path = format!("{}/{strategy:?}-{waiters}", self.path);
        let make =
            |session: &ZkSession| ZkMutex::builder(session, &path).wait_strategy(strategy).build();
        let mutexes = self.sessions.iter().map(make).collect::<Result<Vec<_>, _>>()?;
        let (holder, waiting) = mutexes.split_first().ok_or("no session")?;
        let held = holder.lock()?;
        let dir = format!("{}{path}", self.chroot);
        let mut crowd = Crowd::queue(self.host, &dir, waiters - whole)?;
        let (cancel, (tell, granted), (end, over)) =
            (CancelToken::new(), bounded(1), bounded::<()>(0));
        thread::scope(|scope| {
            for mutex in &waiting[..whole] {
                let (cancel, tell, over) = (cancel.clone(), tell.clone(), over.clone());
                scope.spawn(move || wait(mutex, &cancel, &tell, &over));
            }
            let outcome = nth_of(waiters + 1, holder, whole).and_then(|last| {
                crowd.watch(strategy, &format!("{}{last}", self.chroot))?;
                self.release(held, &granted)
            });
            cancel.cancel();
            drop(end);
            outcome
        })
        .and_then(|measured| {
            crowd.leave()?;
            Ok(measured)
        })
    }

    fn release(
        &self,
        held: ZkMutexGuard,
        granted: &Receiver<Instant>,
    ) -> Result<(u64, Duration), Box<dyn Error>> {
        let _asks_for_its_watch = held.lost();
        self.counter.settled()?; // every watch is set before the release
        self.counter.clear();
        let (_, before) = self.counter.settled()?;
        let start = Instant::now();
        held.unlock()?;
        let took = granted.recv_timeout(LIMIT)?.saturating_duration_since(start);
        let (_, after) = self.counter.settled()?;
        Ok((after.saturating_sub(before), took))
    }
}

/// The path of the node at this place in the queue, once the queue has so many nodes.
fn nth_of(queue: usize, mutex: &ZkMutex, place: usize) -> Result<String, Box<dyn Error>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut all = mutex.contenders()?;
        if all.len() == queue && place < queue {
            return Ok(all.swap_remove(place).path);
        }
        if Instant::now() >= deadline {
            return Err(format!("{} of {queue} queued in time", all.len()).into());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for the lock, reports when it was granted, and keeps it until the end.
fn wait(mutex: &ZkMutex, cancel: &CancelToken, tell: &Sender<Instant>, over: &Receiver<()>) {
    match mutex.lock_with(Wait::forever().cancelled_by(cancel)) {
        Ok(_guard) => {
            let _ = (tell.try_send(Instant::now()), over.recv());
        }
        Err(zk_mutex::Error::Cancelled { .. }) => {}
        Err(error) => eprintln!("herd: {error}"),
    }
}

/// Raises the limit of open files. A thousand connections to a server in the same process need two
/// thousand, which many systems allow only on request.
fn allow_many_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        // If the limit stays too low, a connection will fail.
        let _ = setrlimit(
            Resource::Nofile,
            rustix::process::Rlimit { current: limit.maximum, ..limit },
        );
    }
}
