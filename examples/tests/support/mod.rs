//! What the tests of the examples stand on: an example as a process, its server, and a small
//! runner. The runner has fourteen threads unless RUST_TEST_THREADS says otherwise, because the
//! tests mostly wait. It uses the standard library only: whatever this package depends on is compiled
//! before the first example runs.
#![allow(dead_code)] // Not every test binary uses everything.

mod list;

pub use list::{Back, Example, tests};
use std::io::Read;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io};
use zk_test_server::{Matcher, TestServer};

/// A process that runs for so long hangs. By their own clocks the examples end within 75 seconds; a
/// machine that is ten times too busy makes that longer by less than the rest.
pub const LIMIT: Duration = Duration::from_secs(300);

/// An example that runs. It is killed if the test ends before it.
pub struct Running {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
}

/// How an example has ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Running {
    /// Starts an example on these servers; without any, it starts a server of its own.
    pub fn start(example: &str, servers: Option<&str>, arguments: &[&str]) -> Running {
        let mut command = Command::new(program(example));
        command.env_remove("ZK_CONNECT").env_remove("RUST_LOG").args(arguments);
        command.envs(servers.map(|servers| ("ZK_CONNECT", servers)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| {
            let path = program(example);
            panic!("{}: {e}; `cargo build --examples` makes it", path.display())
        });
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Running { child, out: out.map(reader), err: err.map(reader) }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_some()
    }

    pub fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status().expect("kill");
        assert!(status.success(), "kill ended with {status}");
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(20));
        }
        let has_ended = self.has_ended();
        let _ = self.child.kill();
        let code = self.child.wait().expect("its status").code();
        let said = |text: &mut Option<JoinHandle<String>>| {
            text.take().map(|reader| reader.join().expect("its words")).unwrap_or_default()
        };
        let ended = Ended { code, out: said(&mut self.out), err: said(&mut self.err) };
        assert!(has_ended, "it hangs: not ended after {LIMIT:?}: {ended:?}");
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The examples are beside the folder of this test.
fn program(example: &str) -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let build = test.parent().and_then(|folder| folder.parent()).expect("the folder of the build");
    build.join("examples").join(example)
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

impl Ended {
    #[track_caller]
    pub fn succeeded(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It has ended with an error, and has said so in words.
    #[track_caller]
    pub fn failed(self) -> Ended {
        assert_eq!(self.code, Some(1), "{self:?}");
        let said = self.err.lines().find_map(|line| line.strip_prefix("this example has failed: "));
        let is_clear = said.is_some_and(|why| why.len() > 10 && !why.contains(['{', '}']));
        assert!(is_clear && !self.err.contains("panicked"), "{self:?}");
        self
    }
}

/// Starts an example, and returns in the middle of its work: its server has such a request before
/// it, and does not serve it.
#[track_caller]
pub fn in_the_middle(example: &Example) -> (TestServer, Running) {
    let server = server().expect("a server");
    let (op, path, before) = example.middle;
    let held = server.hold_requests(Matcher::from(op).path_contains(path).skip(before));
    let mut running = Running::start(example.name, Some(&server.connect_string()), &[]);
    while !held.wait(Duration::from_millis(100)) {
        if running.has_ended() {
            panic!("it has ended before the middle: {:?}", running.end());
        }
    }
    // From outside it looks as if the server had died.
    server.refuse(true);
    server.cut_connections();
    drop(held);
    (server, running)
}

/// A server on an address of its own (on Linux all of 127/8 is loopback): when it has died, nobody
/// else is found at its port.
fn server() -> io::Result<TestServer> {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = process::id().to_be_bytes();
    let last = LAST.fetch_add(1, Relaxed) % 250 + 1;
    TestServer::builder().host(Ipv4Addr::new(127, high | 1, low, last).into()).start()
}

pub struct Test {
    name: String,
    run: Box<dyn Fn() + Send + Sync>,
}

pub fn test(name: impl Into<String>, run: impl Fn() + Send + Sync + 'static) -> Test {
    Test { name: name.into(), run: Box::new(run) }
}

/// Runs the tests whose names contain a word of the command line, or all.
pub fn run(mut all: Vec<Test>) -> ExitCode {
    let (mut parts, mut is_exact, mut is_list) = (Vec::new(), false, false);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--exact" => is_exact = true,
            "--list" => is_list = true,
            "--test-threads" | "--skip" | "--format" | "--color" => drop(words.next()),
            flag if flag.starts_with('-') => {} // it says how other runners print
            _ => parts.push(word),
        }
    }
    let is_meant = |name: &str, part: &String| {
        if is_exact { name == part } else { name.contains(part.as_str()) }
    };
    all.retain(|one| parts.is_empty() || parts.iter().any(|part| is_meant(&one.name, part)));
    if is_list {
        all.iter().for_each(|one| println!("{}: test", one.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", all.len());
    let threads = env::var("RUST_TEST_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(14);
    let (next, failed, line) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(()));
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Relaxed)) {
            let begun = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(&one.run));
            let _line = line.lock();
            let (name, took) = (&one.name, begun.elapsed().as_secs());
            match result {
                Ok(()) => println!("test {name} ... ok ({took} s)"),
                Err(_) => println!("test {name} ... FAILED ({took} s)"), // the reason is above
            }
            failed.fetch_add(result.is_err().into(), Relaxed);
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner();
    println!("\n{} tests have passed, {failed} have failed", all.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
