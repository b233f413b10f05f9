//! The demonstration: candidates as child processes; the leader resigns, the next is killed, and
//! somebody leads each time.

use crate::common::{self, say};
use crossbeam_channel::{Receiver, Sender, unbounded};
use log::warn;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use zk_mutex::{Error, ZkElection, ZkSession};

/// How long to wait for the next leader: after a kill it comes when the killed one's session has
/// expired.
const PATIENCE: Duration = Duration::from_secs(30);
/// From one count of the candidates to the next.
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(connect: &str, path: &str, candidates: u32) -> ExitCode {
    // A path of our own, so that nobody else, of another demonstration perhaps, can lead.
    let path = format!("{path}-{}", process::id());
    // Who looks on need not stand.
    let session = ZkSession::connect(connect);
    let election = match session.and_then(|session| ZkElection::new(&session, &path)) {
        Ok(election) => election,
        Err(error) => return common::failure("election", &error),
    };
    match show(connect, &election, candidates) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("election: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(connect: &str, election: &ZkElection, candidates: u32) -> io::Result<()> {
    let scratch = Scratch::new()?;
    let (tell, news) = unbounded();
    let mut members = Members(Vec::new());
    for _ in 0..candidates {
        members.start(connect, election.path(), &scratch.0, &tell)?;
    }
    drop(tell); // The listeners have the rest: when all candidates are gone, so is the channel.

    until_all_stand(election, candidates)?;
    let first = next_leader(&news, None)?;
    say!("demo: lets the leader, pid {}, resign", first.pid);
    members.tell(first.pid, "resign")?;
    let second = next_leader(&news, Some(&first))?;

    say!("demo: kills the leader, pid {}", second.pid);
    members.kill(second.pid)?;
    fs::remove_file(scratch.0.join("leader"))?; // it cannot do that itself any more
    let killed = Instant::now();
    let third = next_leader(&news, Some(&second))?;
    say!("demo: pid {} took over {:.1} s later", third.pid, killed.elapsed().as_secs_f64());

    // The others leave one after the other, and lead in between if it is their turn; each marks its
    // term.
    members.end()
}

fn until_all_stand(election: &ZkElection, candidates: u32) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let standing = match election.contenders() {
            Ok(standing) => standing,
            // It passes, as a rule. The candidates wait for it too.
            Err(error @ Error::Unavailable { .. }) if begun.elapsed() < PATIENCE => {
                warn!("{error}; asking again");
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        if standing.len() >= candidates as usize {
            let ids: Vec<_> =
                standing.iter().map(|one| String::from_utf8_lossy(&one.data)).collect();
            say!("demo: they stand in this order: {}", ids.join(", "));
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!(
                "{} of {candidates} candidates stand",
                standing.len()
            )));
        }
        thread::sleep(PAUSE);
    }
}

/// Somebody leads.
struct Leads {
    pid: u32,
    zxid: u64,
}

/// The next one to lead, who must be another, under a higher token.
fn next_leader(news: &Receiver<Leads>, last: Option<&Leads>) -> io::Result<Leads> {
    let next = news.recv_timeout(PATIENCE).map_err(|error| {
        io::Error::other(format!("nobody took over within {PATIENCE:?}: {error}"))
    })?;
    match last {
        Some(last) if next.pid == last.pid || next.zxid <= last.zxid => {
            Err(io::Error::other(format!(
                "pid {} leads under 0x{:x} after pid {} under 0x{:x}",
                next.pid, next.zxid, last.pid, last.zxid
            )))
        }
        _ => Ok(next),
    }
}

/// Passes a candidate's lines on, and tells who leads.
fn listen(pid: u32, output: ChildStdout, tell: &Sender<Leads>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        say!("{line}");
        let zxid = line
            .split_once("leads, token 0x")
            .and_then(|(_, token)| token.split('.').next())
            .and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
        if let Some(zxid) = zxid
            && tell.send(Leads { pid, zxid }).is_err()
        {
            return;
        }
    }
}

/// The child processes; they end with this value.
struct Members(Vec<Child>);

impl Members {
    fn start(
        &mut self,
        connect: &str,
        path: &str,
        dir: &Path,
        tell: &Sender<Leads>,
    ) -> io::Result<()> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--connect", connect, "--path", path]).arg("--stand").arg(dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (pid, output, tell) = (child.id(), child.stdout.take(), tell.clone());
        self.0.push(child);
        if let Some(output) = output {
            thread::Builder::new().spawn(move || listen(pid, output, &tell))?;
        }
        Ok(())
    }

    fn tell(&mut self, pid: u32, line: &str) -> io::Result<()> {
        let child = self.0.iter_mut().find(|child| child.id() == pid);
        match child.and_then(|child| child.stdin.as_mut()) {
            Some(input) => writeln!(input, "{line}"),
            None => Err(io::Error::other(format!("pid {pid} cannot be told anything"))),
        }
    }

    fn kill(&mut self, pid: u32) -> io::Result<()> {
        for child in self.0.iter_mut().filter(|child| child.id() == pid) {
            child.kill()?;
            child.wait()?;
        }
        self.0.retain(|child| child.id() != pid);
        Ok(())
    }

    /// Lets all leave, and looks how they ended.
    fn end(&mut self) -> io::Result<()> {
        for child in &mut self.0 {
            drop(child.stdin.take()); // the end of their input
        }
        for child in &mut self.0 {
            let ended = child.wait()?;
            if !ended.success() {
                return Err(io::Error::other(format!("pid {}: {ended}", child.id())));
            }
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

/// A directory for the mark of the leader.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Scratch> {
        let dir = env::temp_dir().join(format!("zk-mutex-election-{}", process::id()));
        fs::create_dir(&dir)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // what is left of it is in the system's temporary directory
        let _ = fs::remove_dir_all(&self.0);
    }
}
