//! The settings of a session, and their checks.

use std::fmt;
use std::time::Duration;

use crate::connect_string::{ConnectString, without_login};
use crate::error::{Error, Result};
use crate::retry::RetryPolicy;
use crate::sasl::Sasl;
use crate::tls::TlsConfig;

/// The settings of a session, for [`Session::connect`](crate::Session::connect). A connect string
/// alone stands for the default settings.
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use std::time::Duration;
/// use zk_session::{Config, RetryPolicy, Session};
///
/// let max_elapsed = Duration::from_secs(5);
/// let config = Config::new("zk1:2181,zk2:2181,zk3:2181/app")
///     .session_timeout(Duration::from_secs(10))
///     .auth("digest", "orders:secret")
///     .retry_policy(RetryPolicy { max_elapsed, ..RetryPolicy::default() });
/// let session = Session::connect(config)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens until a session is connected with it"]
pub struct Config {
    pub(crate) connect_string: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    pub(crate) sasl: Option<Sasl>,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) server_tick: Option<Duration>,
    pub(crate) leader_serves: bool,
    pub(crate) after_data_loss: Option<Duration>,
    pub(crate) create_chroot: bool,
}

impl Config {
    /// The default settings.
    ///
    /// The connect string names the servers in ZooKeeper's format: `host[:port]` items, separated
    /// by commas, and an optional chroot: `"zk1:2181,10.0.0.7,[::1]:2182/app"`. The default port is
    /// 2181.
    pub fn new(connect_string: impl Into<String>) -> Self {
        Config {
            connect_string: connect_string.into(),
            session_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            auth: Vec::new(),
            sasl: None,
            tls: None,
            retry_policy: RetryPolicy::default(),
            server_tick: None,
            leader_serves: true,
            after_data_loss: None,
            create_chroot: false,
        }
    }

    /// The session timeout to request; default 30 s. The server grants a timeout within its own
    /// bounds (by default 2 to 20 of its ticks); see
    /// [`SessionStatus::timeout`](crate::SessionStatus::timeout).
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long `connect` tries; default 10 s. One attempt at an address takes only a part of this
    /// time.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Credentials for ACLs, for instance `("digest", "user:password")`; several may be given. They
    /// are presented anew on every connection, before anything else. Credentials of the scheme
    /// `digest` without a colon are refused by `connect`.
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push((scheme.into(), credentials.into()));
        self
    }

    /// Logs in by SASL DIGEST-MD5, as this user, on every connection, before all other credentials.
    /// The session then has the identity `sasl:user`, which ACLs may name, and which
    /// [`Acl::CreatorAll`](crate::Acl::CreatorAll) includes. A later login by SASL replaces an
    /// earlier one.
    ///
    /// The servers have the users in the section `Server` of their JAAS file, with ZooKeeper's
    /// `DigestLoginModule`, and `authProvider.1=`
    /// `org.apache.zookeeper.server.auth.SASLAuthenticationProvider` in their configuration.
    /// (Versions after 3.9.5 also need `zookeeper.fips-mode=false`.) MD5 is weak, and the user's
    /// name can be read on the way: take a long random password, and TLS where the network is not
    /// trusted.
    ///
    /// The login is good only if the server proves that it knows the password too. So a server
    /// that lets clients go on whose login has failed (`zookeeper.allowSaslFailedClients`) does not
    /// let this session go on without its identity.
    ///
    /// # Errors
    ///
    /// None here. [`connect`](crate::Session::connect) says [`Error::Auth`] if the servers refuse
    /// the user or the password; [`Error::Connect`], for a host that does not speak DIGEST-MD5.
    #[cfg(feature = "sasl-digest-md5")]
    pub fn sasl_digest_md5(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl = Some(Sasl::DigestMd5 { user: user.into(), password: password.into() });
        self
    }

    /// Logs in by SASL GSSAPI, that is, Kerberos 5, on every connection, before all other
    /// credentials; see [`Gssapi`](crate::Gssapi). A later login by SASL replaces an earlier one.
    #[cfg(feature = "sasl-gssapi")]
    pub fn sasl_gssapi(mut self, gssapi: crate::Gssapi) -> Self {
        self.sasl = Some(Sasl::Gssapi(gssapi));
        self
    }

    /// Connects over TLS; by default connections are not encrypted. See
    /// [`TlsConfig`](crate::TlsConfig) for what is checked, and for the servers' side.
    ///
    /// If a server does not pass the checks or does not let us in, `connect` says so for each
    /// host, with what to do. If a file cannot be used, it says [`Error::InvalidConfig`] at once.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How the session comes back after an outage and how long calls wait for that; see
    /// [`RetryPolicy`].
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = policy;
        self
    }

    /// The tick of the servers: `tickTime` in their configuration. With servers that are configured
    /// as usual there is no need to state it. By default the library takes half of the granted
    /// session timeout for the tick.
    ///
    /// The length of the lease depends on the tick: every half tick each server reports to its
    /// leader which sessions it has heard. By default servers grant no session timeout below two
    /// ticks, so half of the timeout is never shorter than the tick. State the tick in these cases:
    ///
    /// * **`minSessionTimeout` of the servers is set below two ticks.** If the tick is not stated
    ///   then, two clients may hold the same thing at once.
    /// * What is held should outlive longer outages. If the tick is far below the timeout and is
    ///   stated, a lease lasts up to an eighth of the timeout longer.
    ///
    /// Never state less than the real tick: then two clients can hold the same thing at once. The
    /// library can warn of that in the log only if the servers grant another timeout than was
    /// requested, since only then their tick shows. If the servers' ticks differ, state the
    /// longest.
    ///
    /// Behind an observer master (`observerMasterPort`) no tick is right: hold nothing in sessions
    /// that are connected to observers of such a master.
    ///
    /// Keep the stated tick at or below half of the session timeout. With a longer tick only a new
    /// connection renews the lease, so the session connects anew often. A warning in the log says
    /// so.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.server_tick = Some(tick);
        self
    }

    /// Whether a server that leads the ensemble may serve this session; default true. ZooKeeper
    /// calls it so (`zookeeper.leaderServes` in the servers' configuration), and advises `no` for
    /// ensembles of more than three servers that have much to do.
    ///
    /// The lease needs a write of some client from time to time. If no server that this session can
    /// be connected to ever leads, the writes of all other clients count. So as long as anybody
    /// writes, a holder writes nothing; otherwise few of all holders write, however many there are.
    /// A leader answers its own clients in another way, which shows too little: then each holder
    /// sends a small write of its own, less than two in each session timeout.
    ///
    /// State `false` only if all servers have `leaderServes=no`, or if the connect string names
    /// observers only. If a leader serves the session all the same, two clients can hold the same
    /// thing at once, after a change of the leader. No server can be asked for this, so the library
    /// cannot find a mistake.
    pub fn leader_serves(mut self, serves: bool) -> Self {
        self.leader_serves = serves;
        self
    }

    /// After this time a new session is made if all servers refuse the old one because they have
    /// lost their data; by default never.
    ///
    /// A server refuses a session that has seen a later state than the server itself has. That is
    /// so for a moment when the server lags behind, or has just started and still reads its data.
    /// It is so for good when the ensemble comes back without its data, or with an older copy of
    /// it. Then the old session can never be resumed: what it holds is lost as with an expiry
    /// ([`LossReason`](crate::LossReason) `LeaseExpired` or `SessionExpired`), and calls that wait
    /// begin anew in the new session. The time counts from the first refusal, and begins again
    /// whenever a host answers otherwise or cannot be reached: that host may still have the data.
    ///
    /// By default the session waits until the data is back, because only an operator knows whether
    /// it will come back. Transaction numbers of an ensemble that has lost its data begin anew, and
    /// so do numbers that were made of them: a store that knows one of before refuses the new ones.
    /// A server without a quorum closes connections in the same way. Then the library may give up a
    /// session that the servers could resume when the quorum is back, and its ephemeral nodes are
    /// lost. So give a time that is longer than the outages which a session should survive.
    pub fn after_data_loss(mut self, wait: Duration) -> Self {
        self.after_data_loss = Some(wait);
        self
    }

    /// Makes the chroot of the connect string if it does not exist: the first node that is held
    /// makes it, and the log says so at level `info`. Without a chroot in the connect string this
    /// changes nothing.
    ///
    /// By default the chroot must exist: if it does not, `connect` ends with
    /// [`Error::InvalidConfig`], and so does a call if the chroot is deleted later. A chroot that
    /// does not exist is often a mistake: the connect string is mistyped, or names another ensemble.
    /// If it was made then, no other process would use the same nodes.
    pub fn create_chroot(mut self) -> Self {
        self.create_chroot = true;
        self
    }

    /// Finds what can never work before any server is dialled, and gives the servers.
    pub(crate) fn check(&self) -> Result<ConnectString> {
        let ensemble = ConnectString::parse(&self.connect_string)?;
        check_millis("session_timeout", self.session_timeout)?;
        check_millis("connect_timeout", self.connect_timeout)?;
        self.retry_policy.check()?;
        if let Some(tick) = self.server_tick {
            check_millis("server_tick", tick)?;
            if tick > self.session_timeout {
                let timeout = self.session_timeout;
                return Err(Error::InvalidConfig {
                    what: "server_tick",
                    reason: format!(
                        "{tick:?} is longer than the session_timeout, {timeout:?}; ask for a session_timeout of two ticks or more"
                    ),
                });
            }
        }
        for (scheme, credentials) in &self.auth {
            let refused = |reason| Err(Error::InvalidConfig { what: "auth", reason });
            if scheme.is_empty() || scheme.len() > 1024 || credentials.len() > 64 << 10 {
                return refused(format!(
                    "the scheme {scheme:?} must have 1 to 1024 bytes, the credentials at most 64 KiB"
                ));
            }
            // A server accepts digest credentials without a colon, and then takes the whole secret
            // for the user's name, which it writes into the ACLs.
            if scheme == "digest" && !credentials.contains(&b':') {
                return refused(
                    "credentials of the scheme digest must be user:password, with a colon"
                        .to_owned(),
                );
            }
        }
        if let Some(sasl) = &self.sasl {
            sasl.check()?;
        }
        if let Some(tls) = &self.tls {
            tls.check(&ensemble.hosts)?;
        }
        Ok(ensemble)
    }
}

impl From<&str> for Config {
    fn from(connect_string: &str) -> Self {
        Config::new(connect_string)
    }
}

impl From<&String> for Config {
    fn from(connect_string: &String) -> Self {
        Config::new(connect_string)
    }
}

impl From<String> for Config {
    fn from(connect_string: String) -> Self {
        Config::new(connect_string)
    }
}

/// Credentials are not shown, even where they do not belong: in the connect string.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<&String> = self.auth.iter().map(|(scheme, _)| scheme).collect();
        f.debug_struct("Config")
            .field("connect_string", &without_login(&self.connect_string))
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("auth", &schemes)
            .field("sasl", &self.sasl.as_ref().map(|sasl| sasl.words().login))
            .field("tls", &self.tls.is_some())
            .field("retry_policy", &self.retry_policy)
            .field("server_tick", &self.server_tick)
            .field("leader_serves", &self.leader_serves)
            .field("after_data_loss", &self.after_data_loss)
            .field("create_chroot", &self.create_chroot)
            .finish()
    }
}

/// A duration that ZooKeeper can carry: 1 ms to `i32::MAX` ms.
fn check_millis(what: &'static str, d: Duration) -> Result<()> {
    if d.as_millis() == 0 || d.as_millis() > i32::MAX as u128 {
        return Err(Error::InvalidConfig {
            what,
            reason: format!("{d:?} is not between 1 ms and {} ms", i32::MAX),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation of a method or a field, on one line.
    fn docs(source: &str, item: &str) -> String {
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let is_it = |line: &&str| {
            line.starts_with(&format!("pub fn {item}("))
                || line.starts_with(&format!("pub {item}:"))
        };
        let at = lines.iter().position(is_it).unwrap_or_else(|| panic!("{item}"));
        let above = lines[..at].iter().rev().skip_while(|line| line.starts_with("#["));
        let mut docs: Vec<&str> = above.map_while(|line| line.strip_prefix("///")).collect();
        docs.reverse();
        docs.concat()
    }

    fn shown(time: Duration) -> String {
        match time.subsec_millis() {
            0 => format!("{} s", time.as_secs()),
            _ => format!("{} ms", time.as_millis()),
        }
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_code() {
        // Without `..`: a new setting needs a row.
        let Config {
            connect_string: _,
            session_timeout,
            connect_timeout,
            auth,
            sasl,
            tls,
            retry_policy: RetryPolicy { base, cap, max_elapsed },
            server_tick,
            leader_serves,
            after_data_loss,
            create_chroot,
        } = Config::new("zk");
        let time = |time| format!("; default {}. ", shown(time));
        let (here, retry) = (include_str!("config.rs"), include_str!("retry.rs"));
        let mut wrong = Vec::new();
        for (source, setting, says) in [
            (here, "session_timeout", time(session_timeout)),
            (here, "connect_timeout", time(connect_timeout)),
            (here, "leader_serves", format!("; default {leader_serves}. ")),
            (retry, "base", time(base).trim_end().to_owned()),
            (retry, "cap", time(cap)),
            (retry, "max_elapsed", time(max_elapsed)),
        ] {
            if !docs(source, setting).contains(&says) {
                wrong.push(format!("{setting}{says}"));
            }
        }
        let all = format!(
            "A base of {}, a cap of {}, and {} without progress.",
            shown(base),
            shown(cap),
            shown(max_elapsed)
        );
        if !retry.contains(&all) {
            wrong.push(all);
        }
        for (setting, is_off, says) in [
            ("tls", tls.is_none(), "by default connections are not encrypted."),
            ("server_tick", server_tick.is_none(), "By default the library takes half of the"),
            ("after_data_loss", after_data_loss.is_none(), "; by default never."),
            ("create_chroot", !create_chroot, "By default the chroot must exist:"),
        ] {
            if !(is_off && docs(here, setting).contains(says)) {
                wrong.push(format!("{setting}: {says}"));
            }
        }
        assert_eq!(wrong, Vec::<String>::new(), "the code says this, and its documentation not");
        assert!(auth.is_empty() && sasl.is_none(), "no login");
    }
}
