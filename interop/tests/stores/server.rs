//! A database server of a test: in a directory of its own, with a socket there and no port.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to begin or to end.
const LIMIT: Duration = Duration::from_secs(120);

/// The user and the group of a server if the tests run as root, whom servers refuse: nobody.
const NOBODY: u32 = 65534;

pub struct Server {
    child: Child,
    /// The signal that ends it in an orderly way.
    end: &'static str,
    directory: Directory,
}

/// A directory that nobody else can enter (but root). Its path is short, as a socket's has to be.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of a process of this id that was killed
        fs::create_dir(&path).expect("a directory");
        let directory = Directory(path);
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o700)).expect("its mode");
        if is_root() {
            chown(&directory.0, Some(NOBODY), Some(NOBODY)).expect("its owner");
        }
        directory
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().expect("UTF-8")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().expect("id").stdout.trim_ascii() == b"0"
}

/// A program of the server: not as root, and ended by this signal when the thread that starts it
/// has ended, however that came.
fn command(program: &str, end: &str, directory: &Directory) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", end]);
    if is_root() {
        let id = NOBODY.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command.arg(program).current_dir(directory.path()).stdin(Stdio::null());
    command
}

/// Runs a program that prepares the server's directory.
#[track_caller]
pub fn prepare(program: &str, arguments: &[&str], directory: &Directory) {
    let output = command(program, "KILL", directory).args(arguments).output().expect("setpriv");
    assert!(output.status.success(), "{program}: {output:?}");
}

impl Server {
    /// Starts this program, and waits until it answers. Its log is the file `log`.
    #[track_caller]
    pub fn start(
        program: &str,
        arguments: &[&str],
        end: &'static str,
        directory: Directory,
        answers: impl Fn(&Directory) -> bool,
    ) -> Self {
        let log = fs::File::create(directory.file("log")).expect("a log");
        let child = command(program, end, &directory)
            .args(arguments)
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("setpriv");
        let (mut server, until) = (Server { child, end, directory }, Instant::now() + LIMIT);
        while !answers(&server.directory) {
            let log = || fs::read_to_string(server.directory.file("log"));
            let has_ended = server.child.try_wait().expect("its state").is_some();
            assert!(!has_ended && Instant::now() < until, "{program}: {:?}", log());
            thread::sleep(Duration::from_millis(100));
        }
        server
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", self.end, &pid]).status();
        let until = Instant::now() + LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                eprintln!("a server did not end by {} and was killed", self.end);
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
