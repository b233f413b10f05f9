//! Real ZooKeeper servers on loopback, each with an address of its own.
use super::{
    Scratch,
    java::{self, Java},
    own_loopback, snapshot,
};
use parking_lot::Mutex;
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

pub const CLIENT_PORT: u16 = 2181;
const START_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 5;

/// How a server is to be set up.
#[derive(Clone)]
pub struct Builder {
    tick: Duration,
    min_session: Duration,
    max_session: Duration,
    settings: Vec<(String, String)>,
    properties: Vec<(String, String)>,
    counter: Option<(String, i32)>,
}

impl Builder {
    /// The tick, in which sessions expire and members of an ensemble measure time. Default 250 ms.
    pub fn tick(mut self, tick: Duration) -> Builder {
        self.tick = tick;
        self
    }

    /// The shortest session timeout granted. Default 500 ms.
    pub fn min_session(mut self, timeout: Duration) -> Builder {
        self.min_session = timeout;
        self
    }

    /// The longest session timeout granted. Default 60 s.
    pub fn max_session(mut self, timeout: Duration) -> Builder {
        self.max_session = timeout;
        self
    }

    /// A line of zoo.cfg.
    pub fn set(mut self, key: &str, value: impl ToString) -> Builder {
        self.settings.push((key.to_owned(), value.to_string()));
        self
    }

    /// The same, unless it is set already.
    pub fn or_set(self, key: &str, value: impl ToString) -> Builder {
        if self.settings.iter().any(|(set, _)| set == key) { self } else { self.set(key, value) }
    }

    /// A Java system property.
    pub fn property(mut self, key: &str, value: impl ToString) -> Builder {
        self.properties.push((key.to_owned(), value.to_string()));
        self
    }

    /// Lets the server begin with the container `path`, whose next sequential child gets the number `next`.
    pub fn counter(mut self, path: &str, next: i32) -> Builder {
        self.counter = Some((path.to_owned(), next));
        self
    }

    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start(Scratch::new("server")).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a standalone server with its data in `dir`, or says why not.
    pub fn try_start(self, dir: Scratch) -> Result<Server, String> {
        let server = self.prepare(dir, own_loopback())?;
        server.run()?;
        server.await_serving()?;
        Ok(server)
    }

    /// A server that is not running yet.
    pub(super) fn prepare(self, dir: Scratch, host: Ipv4Addr) -> Result<Server, String> {
        let address = SocketAddr::from((host, CLIENT_PORT));
        let server =
            Server { address, dir, class_path: java::class_path()?, builder: self, java: Mutex::new(None) };
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
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            tick: Duration::from_millis(250),
            min_session: Duration::from_millis(500),
            max_session: Duration::from_secs(60),
            settings: Vec::new(),
            properties: Vec::new(),
            counter: None,
        }
    }
}

/// A ZooKeeper server; killed, and its data removed, on drop.
pub struct Server {
    address: SocketAddr,
    builder: Builder,
    class_path: OsString,
    java: Mutex<Option<Java>>,
    dir: Scratch, // the last field: removed after Java is gone
}

impl Server {
    /// A standalone server that serves.
    #[track_caller]
    pub fn start() -> Server {
        Server::builder().start()
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// SIGKILL; returns when the process is gone. The data stays.
    pub fn kill(&self) {
        drop(self.java.lock().take());
    }

    /// Kills the server if it runs, starts it on the same address with the same data, and returns when it serves.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.run().and_then(|()| self.await_serving()).unwrap_or_else(|why| panic!("{why}"));
    }

    /// SIGSTOP: the port takes connections, nothing answers.
    pub fn pause(&self) {
        self.java.lock().as_ref().expect("the server runs").pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.java.lock().as_ref().expect("the server runs").resume();
    }

    /// The answer to a four-letter word.
    pub fn four_letter(&self, word: &str) -> io::Result<String> {
        self.ask(word, ANSWER_LIMIT)
    }

    fn ask(&self, word: &str, limit: Duration) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A number of `mntr`, such as `zk_znode_count`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> i64 {
        let answer = self.four_letter("mntr").expect("the server answers mntr");
        let find =
            |line: &str| line.split_once('\t').filter(|(key, _)| *key == name)?.1.trim().parse::<f64>().ok();
        answer.lines().find_map(find).map_or_else(|| panic!("no {name} in\n{answer}"), |value| value as i64)
    }

    /// Packets (received, sent) since the start, those of the asking included.
    pub fn packets(&self) -> (i64, i64) {
        (self.metric("zk_packets_received"), self.metric("zk_packets_sent"))
    }

    /// Watches set at this server.
    pub fn watches(&self) -> i64 {
        self.metric("zk_watch_count")
    }

    /// `standalone`, `leader`, `follower`; None while it does not serve.
    pub fn mode(&self) -> Option<String> {
        self.mode_within(ANSWER_LIMIT)
    }

    fn mode_within(&self, limit: Duration) -> Option<String> {
        let answer = self.ask("srvr", limit).ok()?;
        Some(answer.lines().find_map(|line| line.strip_prefix("Mode: "))?.trim().to_owned())
    }

    /// What the server has logged (warnings and worse).
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(super) fn dir(&self) -> &Scratch {
        &self.dir
    }

    /// Starts the process.
    pub(super) fn run(&self) -> Result<(), String> {
        let mut arguments: Vec<OsString> = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:-UsePerfData",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=256",
            "-Dzookeeper.extendedTypesEnabled=true",
        ]
        .map(OsString::from)
        .into();
        arguments
            .extend(self.builder.properties.iter().map(|(key, value)| format!("-D{key}={value}").into()));
        arguments.extend(["-cp".into(), self.class_path.clone()]);
        arguments.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".into());
        arguments.push(self.dir.path().join("zoo.cfg").into());
        *self.java.lock() = Some(Java::start(&arguments, &self.dir.path().join("log"))?);
        Ok(())
    }

    /// Waits until the server serves. One that could not bind its address is started again: its own former connections,
    /// or a test's, may still be closing.
    pub(super) fn await_serving(&self) -> Result<(), String> {
        let end = Instant::now() + START_LIMIT;
        let mut attempts = 1;
        // A starting server now and then takes a question and never answers it.
        let mut patience = Duration::from_millis(200);
        loop {
            if self.mode_within(patience).is_some() {
                return Ok(());
            }
            patience = (patience + Duration::from_millis(20)).min(ANSWER_LIMIT);
            if !self.java.lock().as_ref().is_some_and(Java::alive) {
                if attempts == ATTEMPTS || !self.log().contains("Address already in use") {
                    return Err(format!("ZooKeeper ended at its start:\n{}", self.log()));
                }
                attempts += 1;
                self.run()?;
            }
            if Instant::now() >= end {
                return Err(format!("ZooKeeper does not serve after {START_LIMIT:?}:\n{}", self.log()));
            }
            thread::sleep(Duration::from_millis(20));
        }
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
        for (key, value) in settings {
            let _ = writeln!(text, "{key}={value}");
        }
        text
    }
}
