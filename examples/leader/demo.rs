//! The demonstration: three members as child processes, the leader killed, the next one seen to
//! take over.

use crate::common::say;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader};
use std::process::{self, Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
/// How long to wait for news: a takeover comes when the killed one's session has expired.
const PATIENCE: Duration = Duration::from_secs(30);
/// The members end by themselves after this long, should we not live to end them.
const LIFE_SECONDS: &str = "90";

pub fn run(connect: &str, path: &str, interval: u32) -> ExitCode {
    // A path of our own, so that no other member, of another demo perhaps, can lead.
    let path = format!("{path}-demo-{}", process::id());
    match show(connect, &path, interval) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(connect: &str, path: &str, interval: u32) -> io::Result<()> {
    let interval = interval.to_string();
    let (tell, news) = unbounded();
    let mut members = Members(Vec::new());
    for _ in 0..MEMBERS {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--connect", connect, "--path", path]);
        command.args(["--interval", &interval, "--for", LIFE_SECONDS]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let (pid, output) = (child.id(), child.stdout.take());
        members.0.push(child);
        if let Some(output) = output {
            let tell = tell.clone();
            thread::Builder::new().spawn(move || listen(pid, output, &tell))?;
        }
    }
    drop(tell); // The members' listeners have the rest: when all are gone, so is the channel.

    let (mut first, mut following) = (None, HashSet::new());
    let first = loop {
        match first {
            Some(pid) if following.len() == MEMBERS - 1 => break pid,
            _ => {}
        }
        match next(&news)? {
            News::Leads(pid) => first = Some(pid),
            News::Follows(pid) => {
                following.insert(pid);
            }
        }
    };
    say!("demo: kills the leader, pid {first}");
    members.kill(first)?;
    let killed = Instant::now();
    let heir = loop {
        match next(&news)? {
            News::Leads(pid) if pid != first => break pid,
            _ => {}
        }
    };
    say!("demo: pid {heir} took over {:.1} s later", killed.elapsed().as_secs_f64());
    Ok(())
}

/// What a member said.
enum News {
    Leads(u32),
    Follows(u32),
}

/// Passes a member's lines on, and tells the news in them.
fn listen(pid: u32, output: ChildStdout, tell: &Sender<News>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        say!("{line}");
        let news = match line.split(' ').nth(2) {
            Some("leads,") => News::Leads(pid),
            Some("follows") => News::Follows(pid),
            _ => continue,
        };
        if tell.send(news).is_err() {
            return;
        }
    }
}

fn next(news: &Receiver<News>) -> io::Result<News> {
    news.recv_timeout(PATIENCE).map_err(|error| {
        io::Error::other(match error {
            RecvTimeoutError::Timeout => format!("no news within {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => "the members ended".to_owned(),
        })
    })
}

/// The child processes; they end with this value.
struct Members(Vec<Child>);

impl Members {
    fn kill(&mut self, pid: u32) -> io::Result<()> {
        for child in self.0.iter_mut().filter(|child| child.id() == pid) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already needs no killing.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
