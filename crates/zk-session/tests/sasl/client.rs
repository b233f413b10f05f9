//! A client in a process of its own: the library of Kerberos takes its settings from the
//! environment of the process, and a test may not change its own.
//!
//! The process connects in the background, prints each event of its session and the answer to each
//! line that it reads, and ends with its input.

use crate::SOON;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use zk_session::{Acl, Config, CreateMode, Ephemeral, Gssapi, Session, SessionEvent};

/// Set in the client's process: the servers to connect to.
pub const SERVERS: &str = "ZK_SASL_SERVERS";
/// Set in the client's process, perhaps: the host in the servers' principal, and the own principal.
const SERVER_HOST: &str = "ZK_SASL_HOST";
const PRINCIPAL: &str = "ZK_SASL_PRINCIPAL";

/// The session timeout that it asks for.
pub const TIMEOUT: Duration = Duration::from_secs(6);
/// How long a request waits.
pub const WITHIN: Duration = Duration::from_secs(3);

pub fn main(servers: &str) -> ExitCode {
    let mut gssapi = Gssapi::new();
    if let Ok(host) = std::env::var(SERVER_HOST) {
        gssapi = gssapi.server_host(host);
    }
    if let Ok(principal) = std::env::var(PRINCIPAL) {
        gssapi = gssapi.principal(principal);
    }
    let config = Config::new(servers).session_timeout(TIMEOUT).sasl_gssapi(gssapi);
    let session = Session::connect_in_background(config).expect("a session");
    let events = session.subscribe();
    thread::spawn(move || {
        for event in events {
            match event {
                SessionEvent::Lost(reason) => println!("lost {reason}"),
                SessionEvent::Connected { .. } => println!("connected"),
                SessionEvent::Reconnected => println!("reconnected"),
                SessionEvent::Suspended => println!("suspended"),
                other => println!("{other:?}"),
            }
        }
    });
    let mut held: Option<Ephemeral> = None;
    for line in std::io::stdin().lines() {
        let line = line.expect("a line of text");
        let zk = session.requests().within(WITHIN);
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("make", path) => zk
                .create(path, b"own", CreateMode::Persistent, &Acl::CreatorAll)
                .map(|_| "made".to_owned()),
            ("read", path) => {
                zk.get(path).map(|node| format!("read {}", String::from_utf8_lossy(&node.data)))
            }
            ("children", path) => zk.children(path).map(|names| names.join(",")),
            ("owners", path) => {
                let owner = |entry: &zk_session::AclEntry| format!("{}:{}", entry.scheme, entry.id);
                zk.acl(path).map(|(acl, _)| acl.iter().map(owner).collect::<Vec<_>>().join(","))
            }
            ("hold", path) => zk.hold(path, b"", &Acl::CreatorAll).map(|node| {
                let lost = node.lost();
                thread::spawn(move || {
                    let reason = lost.wait(Duration::MAX);
                    println!("hold lost {reason:?}");
                });
                held = Some(node);
                "held".to_owned()
            }),
            ("held?", _) => Ok(format!("{}", held.as_ref().is_some_and(Ephemeral::is_held))),
            ("close", _) => session.close().map(|()| "closed".to_owned()),
            _ => Ok(format!("what is {line}?")),
        };
        match answer {
            Ok(text) => println!("answer {text}"),
            Err(e) => println!("error {e}"),
        }
    }
    ExitCode::SUCCESS
}

/// The client's process, as its scenario sees it.
pub struct Client {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    pub fn start(servers: &str, environment: Vec<(&'static str, OsString)>) -> Client {
        Client::with_host(servers, "localhost", environment)
    }

    /// `host`: that in the servers' principal.
    #[track_caller]
    pub fn with_host(
        servers: &str,
        host: &str,
        environment: Vec<(&'static str, OsString)>,
    ) -> Client {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .envs(environment)
            .env(SERVERS, servers)
            .env(SERVER_HOST, host)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program, again");
        let output = child.stdout.take().expect("stdout is a pipe");
        let input = child.stdin.take().expect("stdin is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Client { child, input, lines }
    }

    /// Waits for a line that begins so; gives the rest of it. Other lines before it are dropped.
    #[track_caller]
    pub fn hear(&self, beginning: &str) -> String {
        let end = Instant::now() + SOON;
        let mut heard = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("the client does not say {beginning:?}, but {heard:?}");
            };
            match line.strip_prefix(beginning) {
                Some(rest) => return rest.trim().to_owned(),
                None => heard.push(line),
            }
        }
    }

    fn ask(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the client reads");
    }

    /// Has the client do this; gives its answer.
    #[track_caller]
    pub fn does(&mut self, line: &str) -> String {
        self.ask(line);
        self.hear("answer")
    }

    /// Has the client do this; gives its answer, or the error.
    #[track_caller]
    pub fn tries(&mut self, line: &str) -> Result<String, String> {
        self.ask(line);
        loop {
            let said = self.hear("");
            if let Some(answer) = said.strip_prefix("answer ") {
                return Ok(answer.to_owned());
            }
            if let Some(e) = said.strip_prefix("error ") {
                return Err(e.to_owned());
            }
        }
    }

    /// Has the client do this, in vain; gives the error.
    #[track_caller]
    pub fn fails(&mut self, line: &str) -> String {
        self.ask(line);
        self.hear("error")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
