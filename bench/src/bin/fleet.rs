//! Many sessions of one process that rest, for `bench/fleet.py` to measure. It prints `begin` and
//! waits for a line. Then it makes its sessions, prints `ready`, and keeps them until its input is
//! closed.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};
use zk_mutex::{CancelToken, Config, Wait, ZkMutex, ZkSession};
use zk_mutex_bench::raw::{EPHEMERAL_SEQUENTIAL, Raw, string};
use zk_mutex_bench::{Servers, millis, path, positive, refuse, text};
use zookeeper::{WatchedEvent, ZooKeeper};

const HELP: &str = "\
sessions of one process that rest, for bench/fleet.py to measure

It prints `begin` and waits for a line. Then it makes its sessions, prints `ready`, and keeps them
until its input is closed.

Flags:
  --connect STR  the servers, as in h1:2181,h2:2181
                 (default: $ZK_CONNECT, or else an embedded test server)
  --kind KIND    what each session does (default idle):
                   idle         nothing
                   held         holds a lock of its own
                   held-false   the same, with leader_serves(false)
                   waiting      waits for a lock that one session more holds, on a thread more
                   crate        nothing; it is a session of the crate `zookeeper`
                   raw          is a bare connection, and sends the requests of an idle session;
                                one thread serves them all
                   writer       is a bare connection, and writes --rate times a second
  --sessions N   how many (default 1)
  --timeout MS   the session timeout (default 10000)
  --rate N       writes a second of each writer (default 10)
  --path P       where the locks are (default /zk-mutex/fleet)
  --help         this text";

/// The size of a waiting thread's stack.
const STACK: usize = 256 * 1024;
/// How long all sessions may take to queue.
const LIMIT: Duration = Duration::from_secs(60);
const SYNC: i32 = 9;
const SET_DATA: i32 = 5;

type Outcome = Result<(), Box<dyn Error>>;

struct Fleet {
    connect: String,
    kind: String,
    sessions: usize,
    timeout: Duration,
    rate: u32,
    path: String,
}

fn main() -> ExitCode {
    let mut connect = None;
    let mut fleet = Fleet {
        connect: String::new(),
        kind: "idle".to_owned(),
        sessions: 1,
        timeout: Duration::from_secs(10),
        rate: 10,
        path: "/zk-mutex/fleet".to_owned(),
    };
    zk_mutex_bench::flags("fleet", HELP, |flag, parser| {
        match flag {
            "connect" => connect = Some(text(parser)?),
            "kind" => fleet.kind = text(parser)?,
            "sessions" => fleet.sessions = positive(parser)?,
            "timeout" => fleet.timeout = millis(parser)?,
            "rate" => fleet.rate = positive(parser)?,
            "path" => fleet.path = path(parser)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    let run = match fleet.kind.as_str() {
        "idle" => Fleet::idle,
        "held" | "held-false" => Fleet::held,
        "waiting" => Fleet::waiting,
        "crate" => Fleet::of_the_crate,
        "raw" => Fleet::raw,
        "writer" => Fleet::writer,
        other => refuse("fleet", &format!("there is no kind {other:?}")),
    };
    let servers = Servers::find("fleet", connect);
    zk_mutex_bench::show_log();
    fleet.connect = servers.connect_string().to_owned();
    let begin_and_run = || {
        tell("begin")?;
        io::stdin().read_line(&mut String::new())?;
        run(&fleet)
    };
    match begin_and_run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref() {
            Some(error) => zk_mutex_bench::failure("fleet", error),
            None => {
                eprintln!("fleet: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

impl Fleet {
    fn idle(&self) -> Outcome {
        let sessions = self.connect_all()?;
        rest()?;
        close(&sessions);
        Ok(())
    }

    fn held(&self) -> Outcome {
        let sessions = self.connect_all()?;
        let lock = |(number, session)| ZkMutex::new(session, self.path_of(number))?.lock();
        let guards = sessions.iter().enumerate().map(lock).collect::<Result<Vec<_>, _>>()?;
        rest()?;
        guards.iter().try_for_each(|guard| guard.check())?;
        drop(guards);
        close(&sessions);
        Ok(())
    }

    fn waiting(&self) -> Outcome {
        let sessions = self.connect_all()?;
        let (holding, path) = (self.connect()?, format!("{}/queue", self.path));
        let guard = ZkMutex::new(&holding, &path)?.lock()?;
        let mutexes = sessions.iter().map(|session| ZkMutex::new(session, &path));
        let mutexes = mutexes.collect::<Result<Vec<_>, _>>()?;
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            let wait = || -> Outcome {
                for mutex in &mutexes {
                    let call = || match mutex.lock_with(Wait::forever().cancelled_by(&cancel)) {
                        Ok(_) => eprintln!("fleet: one that should wait has the lock"),
                        Err(zk_mutex::Error::Cancelled { .. }) => {}
                        Err(error) => eprintln!("fleet: {error}"),
                    };
                    Builder::new().stack_size(STACK).spawn_scoped(scope, call)?;
                }
                let requests = holding.zookeeper().requests().within(LIMIT);
                let deadline = Instant::now() + LIMIT;
                while requests.children(&path)?.len() <= self.sessions {
                    if Instant::now() >= deadline {
                        return Err("not all sessions queued in time".into());
                    }
                    thread::sleep(Duration::from_millis(50));
                }
                Ok(rest()?)
            };
            let outcome = wait();
            cancel.cancel();
            outcome
        })?;
        drop(guard);
        close(&sessions);
        close(&[holding]);
        Ok(())
    }

    fn of_the_crate(&self) -> Outcome {
        let connect = |number| {
            let client =
                ZooKeeper::connect(self.host_of(number), self.timeout, |_: WatchedEvent| ())?;
            client.exists("/", false)?; // it is connected
            Ok(client)
        };
        let _closed_when_dropped =
            (0..self.sessions).map(connect).collect::<Result<Vec<_>, zookeeper::ZkError>>()?;
        Ok(rest()?)
    }

    fn raw(&self) -> Outcome {
        let connections = self.connect_raw()?;
        self.in_turn(connections, self.timeout / 4, |raw| raw.call(SYNC, &string("/")).map(drop))
    }

    fn writer(&self) -> Outcome {
        let mut connections = self.connect_raw()?;
        let node = connections[0].create("/fleet-", EPHEMERAL_SEQUENTIAL)?;
        let (no_data, any_version) = ((-1i32).to_be_bytes(), (-1i32).to_be_bytes());
        let body = [&string(&node)[..], &no_data, &any_version].concat();
        let every = Duration::from_secs(1) / self.rate;
        self.in_turn(connections, every, |raw| raw.call(SET_DATA, &body).map(drop))
    }

    /// Lets one thread call `ask` with each connection in turn, at equal times, until the input is
    /// closed.
    fn in_turn(
        &self,
        mut connections: Vec<Raw>,
        every: Duration,
        ask: impl Fn(&mut Raw) -> io::Result<()>,
    ) -> Outcome {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let resting = scope.spawn(|| {
                let outcome = rest();
                is_over.store(true, Relaxed);
                outcome
            });
            let pause = every.div_f64(self.sessions as f64);
            let mut next = Instant::now();
            while !is_over.load(Relaxed) {
                for raw in &mut connections {
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    ask(raw)?;
                    next += pause;
                }
            }
            resting.join().map_err(|_| "the thread that reads the input panicked")??;
            Ok(connections.into_iter().try_for_each(Raw::close)?)
        })
    }

    fn connect_raw(&self) -> io::Result<Vec<Raw>> {
        (0..self.sessions).map(|number| Raw::connect(self.host_of(number))).collect()
    }

    fn connect_all(&self) -> zk_mutex::Result<Vec<ZkSession>> {
        (0..self.sessions).map(|_| self.connect()).collect()
    }

    fn connect(&self) -> zk_mutex::Result<ZkSession> {
        ZkSession::connect(
            Config::new(&self.connect)
                .session_timeout(self.timeout)
                .leader_serves(self.kind != "held-false"),
        )
    }

    fn path_of(&self, number: usize) -> String {
        format!("{}/{number}", self.path)
    }

    /// One of the servers: each has as many of the sessions that do not choose it themselves.
    fn host_of(&self, number: usize) -> &str {
        let hosts: Vec<_> = self.connect.split(',').collect();
        hosts[number % hosts.len()]
    }
}

/// Ends all sessions. One that cannot be closed ends by itself, after its timeout.
fn close(sessions: &[ZkSession]) {
    for session in sessions {
        let _ = session.close();
    }
}

/// Says that all sessions are there, and waits for the end of the input.
fn rest() -> io::Result<()> {
    tell("ready")?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

fn tell(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}
