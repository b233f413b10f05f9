//! A process that ends with its owner: when it is dropped, and when the owning process ends for any
//! reason.
use super::residue;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Waits for the end of stdin, whose other end the owner has, and then kills the program.
const WRAPPER: &str = r#"
"$@" </dev/null >>"$PROGRAM_LOG" 2>&1 &
echo $!
exec >/dev/null 2>&1
read -r _
kill -KILL $!
wait
"#;

pub struct Program {
    name: String,
    wrapper: Child,
    pid: u32,
}

impl Program {
    /// Starts `program arguments..` with these variables in its environment, and appends its output
    /// to `log`.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        variables: &[(&str, OsString)],
        log: &Path,
    ) -> Result<Program, String> {
        // `env` gives them to the program, and not to the shell around it.
        let variables = variables.iter().map(|(name, value)| {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            word
        });
        let mut wrapper = Command::new("sh")
            .args(["-c", WRAPPER, "sh", "env"])
            .args(variables)
            .arg(program)
            .args(arguments)
            .env("PROGRAM_LOG", log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start sh: {e}"))?;
        let mut line = String::new();
        if let Some(out) = wrapper.stdout.take() {
            BufReader::new(out)
                .read_line(&mut line)
                .map_err(|e| format!("no word from sh: {e}"))?;
        }
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = line
            .trim()
            .parse()
            .map_err(|_| format!("sh said {line:?} where the process id of {name} was due"))?;
        Ok(Program { name, wrapper, pid })
    }

    pub fn alive(&self) -> bool {
        residue::state(self.pid).is_some_and(|state| state != 'Z')
    }

    /// SIGSTOP; returns when the process has stopped.
    pub fn pause(&self) {
        self.signal("STOP");
        super::until(&format!("{} stops", self.name), Duration::from_secs(5), || {
            (residue::state(self.pid) == Some('T')).then_some(())
        });
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Makes each write to a file beyond its first `limit` bytes fail from now on, as on a full
    /// disk. The program must ignore the signal that comes with the error, as Java does.
    pub fn limit_files(&self, limit: u64) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // A process that has just ended has no limits.
        let _ = prlimit(pid, Resource::Fsize, Rlimit { current: Some(limit), maximum: None });
    }

    fn signal(&self, name: &str) {
        let done =
            Command::new("sh").args(["-c", "kill -$0 $1", name, &self.pid.to_string()]).status();
        let program = &self.name;
        let is_done = done.is_ok_and(|status| status.success());
        assert!(is_done, "SIG{name} could not be sent to {program}");
    }
}

impl Drop for Program {
    /// SIGKILL; returns when the program is gone.
    fn drop(&mut self) {
        drop(self.wrapper.stdin.take());
        let _ = self.wrapper.wait();
    }
}
