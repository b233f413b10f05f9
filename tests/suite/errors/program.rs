//! The program of failures that need a process of their own: it forks, or has no room for a thread.
use super::page::{LOCK, failed, line};
use crate::support::{scene::SOON, until};
use fork::{Fork, fork, waitpid_nohang};
use std::{
    env,
    process::{self, Command, ExitCode, Stdio},
};
use zk_mutex::{Cause, Error, ZkMutex, ZkSession};

/// The first argument that starts this program instead of the suite.
pub const NAME: &str = "failures";

const FORK: &str = "fork";
const CONNECT: &str = "connect";

pub fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(2).collect();
    let [what, at] = &args[..] else { panic!("what to do and an address, and not {args:?}") };
    match what.as_str() {
        FORK => fork_with_a_guard(at),
        CONNECT => connect(at),
        other => panic!("{other:?}"),
    }
    ExitCode::SUCCESS
}

/// What errors of a lock print in a forked child of its process.
#[track_caller]
pub fn forked(at: &str) -> Vec<String> {
    let lines = run(Command::new(env::current_exe().unwrap()).args([NAME, FORK, at]));
    assert_eq!(lines.len(), 2, "{lines:?}");
    lines
}

fn fork_with_a_guard(at: &str) {
    let session = ZkSession::connect(at).unwrap();
    let lock = ZkMutex::new(&session, LOCK).unwrap();
    let guard = lock.lock().unwrap();
    match fork().expect("a fork") {
        Fork::Parent(child) => {
            let status = until("the child ends", SOON, || waitpid_nohang(child).expect("ours"));
            assert_eq!(status, 0);
        }
        Fork::Child => {
            println!("{}", line(&failed(guard.check()), &[(guard.path(), "NODE")]));
            println!("{}", line(&failed(lock.lock()), &[]));
            process::exit(0);
        }
    }
}

/// What a session's connect prints in a process that has no room for the stack of a thread. How much
/// the program itself needs is found by trying.
#[track_caller]
pub fn without_a_thread(at: &str) -> String {
    let program = env::current_exe().unwrap();
    for kilobytes in (16_000..4_000_000).step_by(1_000) {
        // Most of these processes die at their start.
        let script = format!("ulimit -v {kilobytes} || exit; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        let mut lines = run(shell.args(["-c", &script]).arg(&program).args([NAME, CONNECT, at]));
        if let Some(line) = lines.pop() {
            assert_ne!(line, "connected", "with {kilobytes} kB");
            return line;
        }
    }
    panic!("the program never began");
}

fn connect(at: &str) {
    match ZkSession::connect(at) {
        Ok(_) => println!("connected"),
        Err(e) => {
            let Error::Unavailable { cause: Cause::Resources(what), .. } = &e else {
                panic!("{e:?}")
            };
            let reason = what.split_once(" (").and_then(|(_, reason)| reason.strip_suffix(')'));
            println!("{}", line(&e, &[(reason.unwrap_or_default(), "REASON")]));
        }
    }
}

/// The lines that a process prints.
#[track_caller]
fn run(command: &mut Command) -> Vec<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}
