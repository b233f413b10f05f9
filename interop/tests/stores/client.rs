//! A database's command-line client, which is asked one thing after the other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer may take. It comes at once if all is well.
const LIMIT: Duration = Duration::from_secs(60);

/// The last line of each answer.
const END: &str = "the end of the answer";
/// What makes MariaDB's client, and what makes PostgreSQL's, print that line.
pub const BY_SELECT: &str = "SELECT 'the end of the answer';";
pub const BY_ECHO: &str = r"\echo the end of the answer";

pub struct Client {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// What the client prints `END` for, whatever came before.
    mark: &'static str,
}

impl Client {
    /// Starts this program, which has to answer on its standard output, errors among the rest, and
    /// to end with its input.
    pub fn start(program: &str, arguments: &[&str], mark: &'static str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 2>&1", "sh", program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (tell, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|l| tell.send(l)));
        Client { child, input, lines, mark }
    }

    /// Sends statements, without waiting for their answer.
    pub fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql};\n{}", self.mark).expect("the client has ended");
    }

    /// The lines of the answer to what was sent.
    #[track_caller]
    pub fn answer(&mut self) -> Vec<String> {
        let (until, mut answer) = (Instant::now() + LIMIT, Vec::new());
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line == END => return answer,
                Ok(line) => answer.push(line),
                Err(why) => panic!("no answer, {why}, only {answer:?}"),
            }
        }
    }

    #[track_caller]
    pub fn ask(&mut self, sql: &str) -> Vec<String> {
        self.send(sql);
        self.answer()
    }

    /// Asks, and expects an answer without an error. Returns its last line.
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> String {
        let answer = self.ask(sql);
        assert!(!answer.iter().any(|line| line.contains("ERROR")), "{sql}: {answer:?}");
        answer.last().cloned().unwrap_or_default()
    }

    /// Asks until the answer is this line.
    #[track_caller]
    pub fn run_until(&mut self, sql: &str, line: &str) {
        let until = Instant::now() + LIMIT;
        while self.run(sql) != line {
            assert!(Instant::now() < until, "{sql} is not {line}");
            // MariaDB reads INNODB_TRX anew only if nobody has asked for 100 ms.
            thread::sleep(Duration::from_millis(150));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A client that waits in a transaction does not see the end of its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
