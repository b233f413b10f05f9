//! A real ZooKeeper server: a Java process with a configuration, a log and data of its own.
#[cfg(feature = "tls")]
use super::server::SECURE_PORT;
use super::{Scratch, ask, java, kdc, program::Program, server::Builder, snapshot};
use parking_lot::Mutex;
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

const START_LIMIT: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 5;
const SUPER_DIGEST: &str = "zookeeper.DigestAuthenticationProvider.superDigest";

pub struct Real {
    address: SocketAddr,
    builder: Builder,
    class_path: OsString,
    java: Mutex<Option<Program>>,
    dir: Scratch, // the last field: removed after Java is gone
}

impl Real {
    /// A server that does not run yet, with its data in `dir`.
    pub fn prepare(builder: Builder, dir: Scratch, address: SocketAddr) -> Result<Real, String> {
        let server =
            Real { address, dir, class_path: java::class_path()?, builder, java: Mutex::new(None) };
        let write = |name: &str, text: String| {
            fs::write(server.dir.path().join(name), text).map_err(|e| format!("{name}: {e}"))
        };
        fs::create_dir_all(server.dir.path().join("data")).map_err(|e| format!("data: {e}"))?;
        write("zoo.cfg", server.config())?;
        if let Some((path, next)) = &server.builder.counter {
            let data = server.dir.path().join("data");
            snapshot::write(&data, path, *next).map_err(|e| format!("snapshot: {e}"))?;
        }
        Ok(server)
    }

    /// Starts the process.
    pub fn run(&self) -> Result<(), String> {
        let mut arguments: Vec<OsString> = [
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:-UsePerfData",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dlog4j2.level=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=256",
            "-Dzookeeper.extendedTypesEnabled=true",
        ]
        .map(OsString::from)
        .into();
        arguments.push(format!("-Xmx{}m", self.builder.heap).into());
        arguments.extend(
            self.builder.properties.iter().map(|(key, value)| format!("-D{key}={value}").into()),
        );
        let superuser = self.builder.super_digest.iter();
        arguments.extend(superuser.map(|digest| format!("-D{SUPER_DIGEST}={digest}").into()));
        if let Some(sasl) = &self.builder.sasl {
            arguments.extend(sasl.properties(self.dir.path())?.into_iter().map(OsString::from));
        }
        let interval = self.builder.container_check.as_millis();
        arguments.push(format!("-Dznode.container.checkIntervalMs={interval}").into());
        arguments.extend(["-cp".into(), self.class_path.clone()]);
        arguments.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".into());
        arguments.push(self.dir.path().join("zoo.cfg").into());
        let variables = match self.builder.shifted_clock {
            0 => Vec::new(),
            seconds => kdc::shifted_clock(seconds).into(),
        };
        let log = self.dir.path().join("log");
        let java = Program::start(&java::java()?, &arguments, &variables, &log)?;
        *self.java.lock() = Some(java);
        Ok(())
    }

    /// Waits until the server serves. If it could not bind its address, it is started again:
    /// earlier connections of the server, or of a test, may still be closing.
    pub fn await_serving(&self) -> Result<(), String> {
        let end = Instant::now() + START_LIMIT;
        let mut attempts = 1;
        // A server that is starting may accept a four-letter word and never answer it.
        let mut limit = Duration::from_millis(200);
        loop {
            if ask::mode(self.address, limit).is_some() {
                return Ok(());
            }
            limit = (limit + Duration::from_millis(20)).min(ask::LIMIT);
            if !self.java.lock().as_ref().is_some_and(Program::alive) {
                if attempts == ATTEMPTS || !self.log().contains("Address already in use") {
                    return Err(format!("ZooKeeper ended at its start:\n{}", self.log()));
                }
                attempts += 1;
                self.run()?;
            }
            if Instant::now() >= end {
                return Err(format!(
                    "ZooKeeper does not serve after {START_LIMIT:?}:\n{}",
                    self.log()
                ));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(&self) {
        drop(self.java.lock().take());
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.java.lock().as_ref().expect("the server runs").pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.java.lock().as_ref().expect("the server runs").resume();
    }

    /// Fills the disk, until the next start.
    pub fn fill_disk(&self) {
        if let Some(java) = self.java.lock().as_ref() {
            java.limit_files(0);
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn dir(&self) -> &Scratch {
        &self.dir
    }

    fn config(&self) -> String {
        let Builder { tick, min_session, max_session, settings, .. } = &self.builder;
        let mut text = format!(
            "tickTime={}\nminSessionTimeout={}\nmaxSessionTimeout={}\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
            tick.as_millis(),
            min_session.as_millis(),
            max_session.as_millis(),
            self.dir.path().join("data").display(),
            self.address.port(),
            self.address.ip(),
        );
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.builder.tls {
            let files = tls.issue(self.address.ip());
            let _ = write!(
                text,
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 secureClientPort={SECURE_PORT}\nsecureClientPortAddress={}\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
                 ssl.trustStore.location={}\nssl.trustStore.type=PEM\nssl.clientAuth={}\n",
                self.address.ip(),
                files.both.display(),
                tls.pki.ca_file().display(),
                if tls.wants_clients { "need" } else { "none" },
            );
        }
        for (key, value) in settings {
            let _ = writeln!(text, "{key}={value}");
        }
        text
    }
}
