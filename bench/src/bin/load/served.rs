//! An embedded server in a process of its own, and the system's figures about that process.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use zk_mutex_bench::say;
use zk_test_server::TestServer;

/// Serves until the parent process closes its end of the pipe.
pub fn serve() -> ExitCode {
    match TestServer::start() {
        Ok(server) => {
            say!("{}", server.connect_string());
            let _ = io::stdin().read_to_end(&mut Vec::new());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: the server does not start: {error}");
            ExitCode::FAILURE
        }
    }
}

pub struct Served {
    child: Child,
    address: String,
}

impl Served {
    pub fn start() -> io::Result<Served> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut address)?;
        Ok(Served { child, address: address.trim().to_owned() })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The bytes of memory in use.
    pub fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// The processor time used.
    pub fn busy(&self) -> Option<Duration> {
        // The scheduler's own count for each thread, in nanoseconds.
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let of_thread = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Some(Duration::from_nanos(threads.flatten().filter_map(of_thread).sum()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
