//! A Java process that ends with its owner: when it is dropped, and when the owning process ends
//! for any reason.
use super::residue;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Names the directory of ZooKeeper's jars: either Debian's layout (the default, /usr/share/java)
/// or the `lib` of a release.
pub const JARS_VAR: &str = "ZK_JARS";
const DEBIAN_JARS: &str = "/usr/share/java";
const INSTALL: &str =
    "apt-get install -y --no-install-recommends zookeeper openjdk-17-jre-headless";
/// What ZooKeeper needs of Debian's hundreds of jars.
const JARS: [&str; 13] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "netty-codec",
    "netty-handler",
    "snappy-java",
    "metrics-core",
    "commons-io",
    "commons-cli",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
];

/// Waits for the end of stdin, whose other end the owner has, and then kills Java.
const WRAPPER: &str = r#"
"$@" </dev/null >>"$JAVA_LOG" 2>&1 &
echo $!
exec >/dev/null 2>&1
read -r _
kill -KILL $!
wait
"#;

pub struct Java {
    wrapper: Child,
    pid: u32,
}

impl Java {
    /// Starts `java arguments..` and appends its output to `log`.
    pub fn start(arguments: &[OsString], log: &Path) -> Result<Java, String> {
        let mut wrapper = Command::new("sh")
            .args(["-c", WRAPPER, "sh"])
            .arg(java()?)
            .args(arguments)
            .env("JAVA_LOG", log)
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
        let pid = line
            .trim()
            .parse()
            .map_err(|_| format!("sh said {line:?} where Java's process id was due"))?;
        Ok(Java { wrapper, pid })
    }

    pub fn alive(&self) -> bool {
        residue::state(self.pid).is_some_and(|state| state != 'Z')
    }

    /// SIGSTOP; returns when the process has stopped.
    pub fn pause(&self) {
        self.signal("STOP");
        super::until("Java stops", Duration::from_secs(5), || {
            (residue::state(self.pid) == Some('T')).then_some(())
        });
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Makes each write to a file beyond its first `limit` bytes fail from now on, as on a full
    /// disk.
    pub fn limit_files(&self, limit: u64) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // Java ignores the signal that comes with the error. A process that has just ended has no
        // limits.
        let _ = prlimit(pid, Resource::Fsize, Rlimit { current: Some(limit), maximum: None });
    }

    fn signal(&self, name: &str) {
        let done =
            Command::new("sh").args(["-c", "kill -$0 $1", name, &self.pid.to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "SIG{name} could not be sent to Java");
    }
}

impl Drop for Java {
    /// SIGKILL; returns when Java is gone.
    fn drop(&mut self) {
        drop(self.wrapper.stdin.take());
        let _ = self.wrapper.wait();
    }
}

fn java() -> Result<PathBuf, String> {
    let home = env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.exists());
    let on_path = || {
        env::split_paths(&env::var_os("PATH")?)
            .map(|dir| dir.join("java"))
            .find(|java| java.exists())
    };
    home.or_else(on_path)
        .ok_or_else(|| format!("the tests need Java; install it with\n    {INSTALL}"))
}

/// The class path of ZooKeeper.
pub fn class_path() -> Result<OsString, String> {
    let dir = env::var_os(JARS_VAR).map_or_else(|| PathBuf::from(DEBIAN_JARS), PathBuf::from);
    let jars = JARS.map(|name| dir.join(format!("{name}.jar")));
    if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
        // The jars of a release have versions in their names, and the release has no others.
        if env::var_os(JARS_VAR).is_some() && dir.is_dir() && !jars[0].exists() {
            return Ok(dir.join("*").into_os_string());
        }
        let missing = missing.display();
        return Err(format!(
            "the tests need ZooKeeper, and {missing} is missing; install it with\n    {INSTALL}\nor name a directory of its jars in {JARS_VAR}"
        ));
    }
    env::join_paths(jars).map_err(|e| format!("{JARS_VAR}: {e}"))
}
