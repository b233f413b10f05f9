//! A child of a scenario: a process that runs the same scenario again and plays another part.
use super::{runner::TEST_VAR, until};
use crossbeam_channel::{Receiver, unbounded};
use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The address for a child. If it is set, a scenario plays the child's part.
const CHILD_VAR: &str = "ZK_MUTEX_TEST_CHILD";

/// The address for this process, if it is a child.
pub fn child() -> Option<String> {
    env::var(CHILD_VAR).ok()
}

/// A process that runs the scenario of this name again, as a child.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub fn start(module: &str, scenario: &str, address: &str, vars: &[(&str, &str)]) -> Process {
        let module = module.split_once("::").map_or(module, |(_, module)| module);
        let mut child = Command::new(env::current_exe().unwrap())
            .env(TEST_VAR, format!("{module}::{scenario}"))
            .env(CHILD_VAR, address)
            .envs(vars.iter().copied())
            .stdin(Stdio::piped()) // the child ends when we end
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, lines) = unbounded();
        let read =
            move || said.map_while(Result::ok).for_each(|line| send.send(line).unwrap_or(()));
        Process { child, lines, reader: Some(thread::spawn(read)) }
    }

    /// The next line of the child's output.
    #[track_caller]
    pub fn says(&mut self) -> String {
        self.lines.recv().expect("the child says something")
    }

    /// The lines of the child's output; closed when the child has ended and all lines were taken.
    pub fn lines(&self) -> &Receiver<String> {
        &self.lines
    }

    /// Kills the child. Its output so far can still be read.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn signal(&self, name: &str) {
        let done =
            Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the end of the child, which must be a success.
    pub fn ends_well(mut self) {
        let ended =
            until("the child ends", Duration::from_secs(60), || self.child.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}
