//! A member of a mixed group (`tests/clients/mixed`) that is written in Rust: this crate, or the
//! client of the `zookeeper-client` crate.
//!
//!     member CLIENT connect=HOST:PORT path=PATH dir=DIRECTORY name=NAME recipe=RECIPE sessions=N
//!         threads=N sections=N pause=MICROSECONDS
//!
//! Each thread (so many for each session) takes the lock at PATH for so many sections. Each section
//! lasts for the pause and is noted in DIRECTORY. The member prints "ready" when it is connected,
//! and begins when it gets a line. More options: layout=curator or kazoo for this crate, writes=END
//! and reads=END of names that kazoo should respect, leases=N of a semaphore.

mod foreign;
mod ledger;
mod ours;
mod unlocked;

use ledger::Ledger;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Barrier;
use std::thread;

/// An error ends the member with a message.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The task of a member.
struct Task {
    options: HashMap<String, String>,
}

impl Task {
    fn text(&self, name: &str) -> Result<&str, Failure> {
        Ok(self.options.get(name).ok_or_else(|| format!("there is no {name}="))?)
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self.text(name)?;
        Ok(text.parse().map_err(|_| format!("{name}={text} is not a number"))?)
    }

    /// Whether a section of a thread writes, if the recipe has readers: every third one does, and
    /// no two threads write in step.
    fn writes(section: u32, thread: u32) -> bool {
        (section + thread).is_multiple_of(3)
    }
}

/// One session of a member, ready for its threads.
trait Session: Sync {
    /// All sections of one thread.
    fn sections(&self, task: &Task, thread: u32, ledger: &Ledger) -> Result<(), Failure>;

    /// Ends the session, and so all nodes that it has left.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("member: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let mut words = std::env::args().skip(1);
    let client = words.next().ok_or("which client?")?;
    let options = words.map(|word| match word.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("{word} is no NAME=VALUE")),
    });
    let task = Task { options: options.collect::<Result<_, _>>()? };
    let sessions: u32 = task.number("sessions")?;
    let sessions = (0..sessions).map(|_| session(&client, &task)).collect::<Result<Vec<_>, _>>()?;
    let threads: u32 = task.number("threads")?;
    wait_for_the_others()?;
    let start = Barrier::new(sessions.len() * threads as usize);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for session in &sessions {
            for _ in 0..threads {
                let (number, task, start) = (running.len() as u32, &task, &start);
                running.push(scope.spawn(move || {
                    let ledger = Ledger::new(task, number)?;
                    start.wait();
                    session.sections(task, number, &ledger)
                }));
            }
        }
        running
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Err("a thread panicked".into())))
    })?;
    sessions.into_iter().try_for_each(Session::close)
}

fn session(client: &str, task: &Task) -> Result<Box<dyn Session>, Failure> {
    match client {
        "ours" => ours::connect(task),
        "zookeeper-client" => foreign::connect(task),
        "unlocked" => Ok(Box::new(unlocked::Unlocked)),
        _ => Err(format!("there is no client {client}").into()),
    }
}

/// Waits until the whole group may begin.
fn wait_for_the_others() -> Result<(), Failure> {
    println!("ready");
    std::io::stdout().flush()?;
    match std::io::stdin().read_line(&mut String::new())? {
        0 => Err("the group is not to begin".into()),
        _ => Ok(()),
    }
}
