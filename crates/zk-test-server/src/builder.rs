//! `TestServerBuilder`: the settings of a [`TestServer`].

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use super::clock::Clock;
use super::engine::Settings;
use super::engine::sasl::Sasl;
use super::net::Options;
#[cfg(feature = "tls")]
use super::net::tls::ServerTls;
use super::{Brand, TestServer};

/// ZooKeeper's `jute.maxbuffer`.
const MAX_FRAME: usize = 0xf_ffff;

/// The settings of a [`TestServer`]. [`TestServer::builder`] makes a builder, and
/// [`start`](Self::start) starts the server.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct TestServerBuilder {
    address: SocketAddr,
    brand: Brand,
    tick: Duration,
    min_session: Option<Duration>,
    max_session: Option<Duration>,
    container_check_interval: Duration,
    super_digest: Option<String>,
    sasl: Sasl,
    keep_data: bool,
    is_virtual: bool,
    options: Options,
}

/// A timeout goes over the wire as an `i32` of milliseconds.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);

impl TestServerBuilder {
    pub(super) fn new() -> TestServerBuilder {
        TestServerBuilder {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            brand: Brand::default(),
            tick: Duration::from_millis(250),
            min_session: None,
            max_session: None,
            container_check_interval: Duration::from_secs(60),
            super_digest: None,
            sasl: Sasl::default(),
            keep_data: true,
            is_virtual: false,
            options: Options {
                max_frame: MAX_FRAME,
                log_capacity: 10_000,
                tls: None,
                wall_clock: None,
            },
        }
    }

    /// The port to listen on. Default 0: any that is free.
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// The address to listen on. Default 127.0.0.1, where only this host can connect. The server
    /// does not limit what clients store, and encrypts nothing by default: think twice before you
    /// open it to other hosts.
    pub fn host(mut self, host: IpAddr) -> Self {
        self.address.set_ip(host);
        self
    }

    /// The server to answer as. Default [`Brand::ZooKeeper38`].
    pub fn brand(mut self, brand: Brand) -> Self {
        self.brand = brand;
        self
    }

    /// ZooKeeper's `tickTime`: sessions expire at multiples of it. Default 250 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The shortest session timeout granted. Default: two ticks, as ZooKeeper has it.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session = Some(timeout);
        self
    }

    /// The longest session timeout granted. Default: a minute or twenty ticks, whichever is longer.
    /// (ZooKeeper's is twenty ticks.)
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session = Some(timeout);
        self
    }

    /// How often the server looks for empty containers, and for nodes whose time to live is over
    /// (`znode.container.checkIntervalMs`). Default one minute, as ZooKeeper has it.
    pub fn container_check_interval(mut self, interval: Duration) -> Self {
        self.container_check_interval = interval;
        self
    }

    /// Lets a client with these credentials of the scheme `digest` do everything, whatever the ACLs
    /// say. The value is `"super:"` and the base64 of the SHA-1 of `super:<password>`, as in
    /// ZooKeeper's `zookeeper.DigestAuthenticationProvider.superDigest`. Default: no superuser.
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(digest.into());
        self
    }

    /// Adds a user who may log in by SASL DIGEST-MD5 with this password, as a line of the section
    /// `Server` of a JAAS file does (`user_alice="secret"`). A later password of the same user
    /// replaces the former one. The server then knows ACLs of the scheme `sasl` too. Default: no
    /// user. Then the server answers a client's token with a null one, as ZooKeeper does without a
    /// JAAS file.
    #[cfg(feature = "sasl")]
    pub fn sasl_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl.users.insert(name.into(), password.into());
        self
    }

    /// Serves only connections that have logged in by SASL (`sessionRequireClientSASLAuth=true`, or
    /// `enforce.auth.enabled=true` with `enforce.auth.schemes=sasl`). Any other request, also the
    /// close of the session, is answered with the error -124, and the connection is closed. So is a
    /// login that fails. The session lives on until its timeout.
    #[cfg(feature = "sasl")]
    pub fn requires_sasl(mut self) -> Self {
        self.sasl.is_required = true;
        self
    }

    /// Keeps a connection open whose login by SASL has failed, and serves it without the identity
    /// (`zookeeper.allowSaslFailedClients=true`). By default the server answers with the error -115
    /// and closes the connection. With [`requires_sasl`](Self::requires_sasl) this has no effect.
    #[cfg(feature = "sasl")]
    pub fn allows_failed_sasl(mut self) -> Self {
        self.sasl.allows_failed = true;
        self
    }

    /// Whether nodes and sessions stay at a [`restart`](TestServer::restart). Default true.
    pub fn keep_data(mut self, keep: bool) -> Self {
        self.keep_data = keep;
        self
    }

    /// Gives the server a clock that only [`advance`](TestServer::advance) moves. So sessions
    /// expire, and containers and nodes with a time to live are deleted, only when the test says
    /// so.
    pub fn virtual_clock(mut self) -> Self {
        self.is_virtual = true;
        self
    }

    /// The time of day by the server's clock when the server starts. The `ctime` and the `mtime` of
    /// its nodes follow this clock. Default: the time of day by this host's clock. Another time
    /// makes a server with a wrong clock.
    pub fn wall_clock(mut self, start: SystemTime) -> Self {
        self.options.wall_clock = Some(start);
        self
    }

    /// How many requests, and how many events, the log keeps before it forgets the oldest. Default
    /// 10,000.
    pub fn log_capacity(mut self, entries: usize) -> Self {
        self.options.log_capacity = entries;
        self
    }

    /// The longest request taken, in bytes: ZooKeeper's `jute.maxbuffer`. Default 1,048,575, as
    /// ZooKeeper has it. The server closes the connection of a client that sends a longer one.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.options.max_frame = bytes;
        self
    }

    /// Serves over TLS; by default connections are not encrypted. See [`ServerTls`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.options.tls = Some(tls);
        self
    }

    /// Starts the server. When this returns, clients can connect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a tick or a check interval of zero, for a shortest session
    /// timeout above the longest, for one beyond 2,147,483,647 ms, for files of TLS that cannot be
    /// used, for a user of SASL without a name or with an `@` in it, and for a server that requires
    /// SASL and has no user; otherwise what the system said: the port is taken, or there are too
    /// many open files or threads.
    pub fn start(self) -> io::Result<TestServer> {
        let refuse = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
        if self.tick.is_zero() {
            return refuse("a tick of zero");
        }
        if self.container_check_interval.is_zero() {
            return refuse("a check interval of zero");
        }
        let min_session = self.min_session.unwrap_or(self.tick.saturating_mul(2));
        let longest = self.tick.saturating_mul(20).max(Duration::from_secs(60)).max(min_session);
        let max_session = self.max_session.unwrap_or(longest.min(MAX_SESSION));
        if max_session > MAX_SESSION || min_session > MAX_SESSION {
            return refuse(
                "a session timeout beyond 2147483647 ms, the longest that the protocol has",
            );
        }
        if min_session > max_session {
            return refuse("a shortest session timeout above the longest");
        }
        if self.sasl.users.keys().any(|name| name.is_empty() || name.contains('@')) {
            // ZooKeeper reads such a name as one of Kerberos.
            return refuse("a user of SASL whose name is empty or has an @");
        }
        if self.sasl.is_required && !self.sasl.is_configured() {
            return refuse("a server that requires SASL and has no user for it");
        }
        let reap_interval = self.container_check_interval;
        let (brand, tick) = (self.brand, self.tick);
        let (super_digest, sasl) = (self.super_digest, self.sasl);
        let settings =
            Settings { brand, tick, min_session, max_session, reap_interval, super_digest, sasl };
        let clock = if self.is_virtual { Clock::manual() } else { Clock::real() };
        TestServer::new(self.address, clock, settings, self.options, self.keep_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let second = Duration::from_secs(1);
        for builder in [
            TestServer::builder().tick(Duration::ZERO),
            TestServer::builder().container_check_interval(Duration::ZERO),
            TestServer::builder().min_session_timeout(2 * second).max_session_timeout(second),
            TestServer::builder().max_session_timeout(Duration::from_millis(1)),
            #[cfg(feature = "sasl")]
            TestServer::builder().requires_sasl(),
            #[cfg(feature = "sasl")]
            TestServer::builder().sasl_user("", "secret"),
            #[cfg(feature = "sasl")]
            TestServer::builder().sasl_user("alice@EXAMPLE.COM", "secret"),
        ] {
            assert_eq!(
                builder.start().map(drop).map_err(|e| e.kind()),
                Err(ErrorKind::InvalidInput)
            );
        }
    }
}
