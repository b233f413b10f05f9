//! One server, real or embedded, on a loopback address of its own. The scenario's variant decides
//! which, unless the scenario itself does.
use super::{
    Scratch, ask, embedded::Embedded, own_loopback, real::Real, sasl, sasl::Sasl, variant::Variant,
};
#[cfg(feature = "tls")]
use super::{
    pki::{Leaf, Pki},
    tls::ServerSide,
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use zk_test_server::TestServer;

pub const CLIENT_PORT: u16 = 2181;
/// The property of a server that says whether it serves clients while it leads.
const LEADER_SERVES: &str = "zookeeper.leaderServes";
/// Where a real server serves over TLS.
#[cfg(feature = "tls")]
pub const SECURE_PORT: u16 = 2281;

/// The settings of a server.
#[derive(Clone)]
pub struct Builder {
    variant: Variant,
    pub(super) tick: Duration,
    pub(super) min_session: Duration,
    pub(super) max_session: Duration,
    pub(super) settings: Vec<(String, String)>,
    pub(super) properties: Vec<(String, String)>,
    pub(super) counter: Option<(String, i32)>,
    pub(super) container_check: Duration,
    pub(super) heap: u32,
    pub(super) super_digest: Option<String>,
    pub(super) sasl: Option<Sasl>,
    pub(super) shifted_clock: i64,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<ServerSide>,
}

impl Builder {
    pub(super) fn new(variant: Variant) -> Builder {
        let builder = Builder {
            variant,
            tick: Duration::from_millis(250),
            min_session: Duration::from_millis(500),
            max_session: Duration::from_secs(60),
            settings: Vec::new(),
            properties: Vec::new(),
            counter: None,
            container_check: Duration::from_secs(86_400),
            heap: 128,
            super_digest: None,
            sasl: None,
            shifted_clock: 0,
            #[cfg(feature = "tls")]
            tls: ServerSide::of_run(),
        };
        if sasl::is_on() { builder.sasl_digest(&[sasl::USER]) } else { builder }
    }

    /// Serves over TLS too: an embedded server on its port, a real one at the secure address.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerSide) -> Builder {
        self.tls = Some(tls);
        self
    }

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

    /// Adds a line of zoo.cfg; only a real server has this.
    pub fn set(mut self, key: &str, value: impl ToString) -> Builder {
        self.settings.push((key.to_owned(), value.to_string()));
        self
    }

    /// The same, unless the key is set already.
    pub fn or_set(self, key: &str, value: impl ToString) -> Builder {
        if self.settings.iter().any(|(set, _)| set == key) { self } else { self.set(key, value) }
    }

    /// Sets a Java system property; only a real server has this.
    pub fn property(mut self, key: &str, value: impl ToString) -> Builder {
        self.properties.push((key.to_owned(), value.to_string()));
        self
    }

    /// The member of an ensemble that leads serves no clients.
    pub fn leader_serves_nobody(self) -> Builder {
        self.property(LEADER_SERVES, "no")
    }

    pub(super) fn leader_serves(&self) -> bool {
        self.properties.iter().all(|(key, _)| key != LEADER_SERVES)
    }

    /// The pause between two checks for empty containers and expired nodes. Default: a day, so that
    /// no server deletes a lock's empty folder in the middle of a scenario that does not test this.
    pub fn container_check(mut self, interval: Duration) -> Builder {
        self.container_check = interval;
        self
    }

    /// The size of a real server's heap in megabytes. Default 128.
    pub fn heap(mut self, megabytes: u32) -> Builder {
        self.heap = megabytes;
        self
    }

    /// The superuser's digest.
    pub fn super_digest(mut self, digest: &str) -> Builder {
        self.super_digest = Some(digest.to_owned());
        self
    }

    /// Makes the server begin with the container `path`, whose next sequential child gets the
    /// number `next`.
    pub fn counter(mut self, path: &str, next: i32) -> Builder {
        self.counter = Some((path.to_owned(), next));
        self
    }

    /// A standalone server that serves.
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start(Scratch::new).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, but returns an error instead of a panic. `dir` makes the directory for data on
    /// disk.
    pub fn try_start(self, dir: impl FnOnce(&str) -> Scratch) -> Result<Server, String> {
        let address = SocketAddr::from((own_loopback(), CLIENT_PORT));
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        let kind = match self.variant {
            Variant::Real => {
                let server = Real::prepare(self, dir("server"), address)?;
                server.run()?;
                server.await_serving()?;
                Kind::Real(Box::new(server))
            }
            Variant::Embedded => Kind::Embedded(Embedded::start(&self, address)?),
            Variant::None => return Err("a scenario `on none` starts no server".to_owned()),
        };
        Ok(Server {
            address,
            kind,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// A real server that does not run yet.
    pub(super) fn prepare(self, dir: Scratch, host: Ipv4Addr) -> Result<Server, String> {
        let address = SocketAddr::from((host, CLIENT_PORT));
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        let kind = Kind::Real(Box::new(Real::prepare(self, dir, address)?));
        Ok(Server {
            address,
            kind,
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

enum Kind {
    Real(Box<Real>),
    Embedded(Embedded),
}

/// A ZooKeeper server. On drop it ends, and its data is deleted.
pub struct Server {
    address: SocketAddr,
    kind: Kind,
    #[cfg(feature = "tls")]
    tls: Option<ServerSide>,
}

impl Server {
    /// A standalone server of the scenario's variant.
    #[track_caller]
    pub fn start() -> Server {
        Server::builder().start()
    }

    /// The settings of a server of the scenario's variant.
    #[track_caller]
    pub fn builder() -> Builder {
        Builder::new(Variant::current())
    }

    /// The settings of a real server, whatever the variant.
    pub fn real() -> Builder {
        Builder::new(Variant::Real)
    }

    /// The settings of an embedded server, whatever the variant.
    pub fn embedded() -> Builder {
        Builder::new(Variant::Embedded)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// `host:port` for connections over TLS.
    #[cfg(feature = "tls")]
    pub fn secure(&self) -> String {
        let port = match self.kind {
            Kind::Real(_) => SECURE_PORT,
            Kind::Embedded(_) => self.address.port(),
        };
        SocketAddr::new(self.address.ip(), port).to_string()
    }

    /// Gives the server a new certificate, which it has after a restart.
    #[cfg(feature = "tls")]
    pub fn renew(&self, pki: Pki, leaf: Option<Leaf>) {
        let wants_clients = self.tls.as_ref().expect("a server with TLS").wants_clients;
        ServerSide { pki, leaf, wants_clients }.issue(self.address.ip());
    }

    /// The embedded server, for exact faults.
    #[track_caller]
    pub fn embedded_server(&self) -> &TestServer {
        match &self.kind {
            Kind::Embedded(server) => server.test_server(),
            Kind::Real(_) => {
                panic!("a real server cannot inject exact faults: the scenario is `on embedded`")
            }
        }
    }

    /// Kills the server process, or does what looks the same from outside. The data and the
    /// sessions stay.
    pub fn kill(&self) {
        match &self.kind {
            Kind::Real(server) => server.kill(),
            Kind::Embedded(server) => server.kill(),
        }
    }

    /// Kills the server if it runs, starts it on the same address with the same data, and returns
    /// when it serves.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        match &self.kind {
            Kind::Real(server) => {
                server
                    .run()
                    .and_then(|()| server.await_serving())
                    .unwrap_or_else(|why| panic!("{why}"));
            }
            Kind::Embedded(server) => server.restart(),
        }
    }

    /// Kills the server, and starts it on the same address without its data.
    #[track_caller]
    pub fn wipe(&self) {
        match &self.kind {
            Kind::Real(server) => {
                server.kill();
                let data = server.dir().path().join("data/version-2");
                std::fs::remove_dir_all(&data).unwrap_or_else(|e| panic!("{data:?}: {e}"));
                self.restart();
            }
            Kind::Embedded(server) => server.test_server().wipe(),
        }
    }

    /// SIGSTOP: the port takes connections, nothing answers.
    pub fn pause(&self) {
        match &self.kind {
            Kind::Real(server) => server.pause(),
            Kind::Embedded(server) => server.test_server().black_hole(true),
        }
    }

    /// SIGCONT.
    pub fn resume(&self) {
        match &self.kind {
            Kind::Real(server) => server.resume(),
            Kind::Embedded(server) => server.test_server().black_hole(false),
        }
    }

    /// The answer to a four-letter word.
    pub fn four_letter(&self, word: &str) -> io::Result<String> {
        ask::four_letter(self.address, word, ask::LIMIT)
    }

    /// A number of the answer to `mntr`, such as `zk_znode_count`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> i64 {
        ask::metric(self.address, name)
    }

    /// The packets (received, sent) since the start, including those of this query.
    pub fn packets(&self) -> (i64, i64) {
        (self.metric("zk_packets_received"), self.metric("zk_packets_sent"))
    }

    /// Watches set at this server.
    pub fn watches(&self) -> i64 {
        self.metric("zk_watch_count")
    }

    /// `standalone`, `leader` or `follower`; None while it does not serve.
    pub fn mode(&self) -> Option<String> {
        ask::mode(self.address, ask::LIMIT)
    }

    /// The warnings and errors that the server has logged.
    pub fn log(&self) -> String {
        match &self.kind {
            Kind::Real(server) => server.log(),
            Kind::Embedded(server) => server.log(),
        }
    }

    /// The real server, for an ensemble.
    pub(super) fn member(&self) -> &Real {
        match &self.kind {
            Kind::Real(server) => server,
            Kind::Embedded(_) => unreachable!("an ensemble has real members"),
        }
    }
}
