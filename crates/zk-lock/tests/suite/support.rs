//! What the scenarios share: a server, the program, and other processes as /proc shows them.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use zk_test_server::TestServer;
use zk_test_support::control;
pub use zk_test_support::control::assert_in_time;
pub use zk_test_support::{Raw, Scratch, at_best, until};

use crate::schema;

pub const LIMIT: Duration = Duration::from_secs(30);

/// The session of a command that must end before its lease does, as an argument, and the time
/// between the end of that lease and the moment at which a server may expire the session: T/12. So
/// much the machine may be late before a command can outlive its lock.
pub const SESSION: &str = "6s";
pub const SPARE: Duration = Duration::from_millis(500);

/// A server with a short tick, so that sessions of a second or two are granted.
pub fn server() -> TestServer {
    control::start();
    TestServer::builder().tick(Duration::from_millis(100)).start().expect("a server")
}

/// The program, with the server that it is to use. A shell that runs the tests in the background,
/// and `nohup`, ignore signals; a command inherits that, and could not trap them. So the program
/// starts with the default for each.
pub fn zk_lock(server: &TestServer, arguments: &[&str]) -> Command {
    zk_lock_at(&server.connect_string(), arguments)
}

/// The same, with the servers' addresses.
pub fn zk_lock_at(servers: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_zk-lock")]);
    // The settings of whoever runs the tests are not the scenarios'.
    let all = std::env::vars_os().map(|(name, _)| name);
    let own = all.filter(|name| name.to_str().is_some_and(|name| name.starts_with("ZK_")));
    for name in own.chain(["RUST_LOG".into()]) {
        command.env_remove(name);
    }
    command.env("ZK_LOCK_CONFIG", "/dev/null");
    command.env("ZK_CONNECT", servers).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it said, and its exit status.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let ended = Ended {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        ended.err.lines().chain(ended.out.lines()).for_each(schema::check_if_json);
        ended
    }
}

pub fn run(server: &TestServer, arguments: &[&str]) -> Ended {
    ended(zk_lock(server, arguments))
}

/// Runs it to its end. With --json each line that it writes to stderr is as the schema says.
pub fn ended(mut command: Command) -> Ended {
    let is_json = is_json(&command);
    let ended = command.output().expect("zk-lock runs").into();
    schema::check_all(is_json, &ended);
    ended
}

fn is_json(command: &Command) -> bool {
    command.get_args().take_while(|argument| *argument != "--").any(|one| one == "--json")
}

/// A program that runs; it is killed if the scenario ends before it.
pub struct Running {
    child: Option<Child>,
    is_json: bool,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let is_json = is_json(&command);
        Running { child: Some(command.spawn().expect("zk-lock starts")), is_json }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it can be signalled");
    }

    pub fn end(mut self) -> Ended {
        let child = self.child.take().expect("it runs");
        let ended = child.wait_with_output().expect("it ends").into();
        schema::check_all(self.is_json, &ended);
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A directory for what commands write, each file of which is waited for.
pub struct Notes(Scratch);

impl Notes {
    pub fn new() -> Notes {
        Notes(Scratch::new("zk-lock"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A shell script that can write to `$D/name`.
    pub fn script(&self, script: &str) -> String {
        format!("D='{}'; {script}", self.0.path().display())
    }

    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// The first line of a file, once there is one.
    pub fn wait(&self, name: &str) -> String {
        until(name, LIMIT, || {
            self.read(name).and_then(|text| Some(text.split_once('\n')?.0.to_owned()))
        })
    }

    pub fn wait_pid(&self, name: &str) -> i32 {
        self.wait(name).trim().parse().expect("a process id")
    }
}

/// A scenario that fails leaves no process behind: those of its script that noted their ids go.
impl Drop for Notes {
    fn drop(&mut self) {
        let directory = self.0.path().display().to_string();
        for name in ["child", "grandchild", "left"] {
            let id = self.read(name).and_then(|text| text.lines().next()?.trim().parse().ok());
            let Some(pid) = id.and_then(Pid::from_raw) else { continue };
            let of = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
            if of.is_ok_and(|command| command.contains(&directory)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Whether a process runs: a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim().chars().next(), Some('Z' | 'X')))
}

pub fn until_dead(pid: i32) {
    until("the process ends", LIMIT, || (!is_alive(pid)).then_some(()));
}

/// The processes of this program whose parent this is, by name.
pub fn child_named(parent: Pid, name: &str) -> Option<i32> {
    let all = fs::read_dir("/proc").ok()?;
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((head, rest)) = stat.rsplit_once(')') else { return false };
        let of = rest.split_whitespace().nth(1).and_then(|id| id.parse::<i32>().ok());
        head.ends_with(&format!("({name}")) && of == Some(parent.as_raw_nonzero().get())
    })
}

/// The names of a node's children, as another client sees them.
pub fn children(server: &TestServer, path: &str) -> Vec<String> {
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.children(path).unwrap_or_default()
}

pub fn wait_children(server: &TestServer, path: &str, count: usize) -> Vec<String> {
    until(&format!("{path} has {count} children"), LIMIT, || {
        Some(children(server, path)).filter(|all| all.len() == count)
    })
}

/// Asks the only contender to let go.
pub fn revoke(server: &TestServer, path: &str) {
    let node = wait_children(server, path, 1).remove(0);
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.set_data(&format!("{path}/{node}"), b"__REVOKE__").expect("it is there");
}

pub fn pause(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}
