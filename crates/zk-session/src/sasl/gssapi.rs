//! The settings of a login by Kerberos, and the words for what goes wrong.

use std::sync::Arc;

use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::machine::SaslWords;
use crate::world::Mutex;

/// How a session logs in by SASL GSSAPI, that is, Kerberos 5;
/// [`Config::sasl_gssapi`](crate::Config::sasl_gssapi).
///
/// The login is made by the system's library (MIT Kerberos, `libgssapi-krb5-2` on Debian), on each
/// connection anew. It asks the library for mutual authentication, so the server proves who it is
/// too. The session has the identity `sasl:alice@REALM` then, as far as the servers do not shorten
/// it (`zookeeper.kerberos.removeRealmFromPrincipal`), and
/// [`Acl::CreatorAll`](crate::Acl::CreatorAll) includes it.
///
/// # Tickets
///
/// The library finds tickets as all programs with Kerberos do: in the cache that `KRB5CCNAME` or
/// `krb5.conf` names. There are two ways to have a ticket at each reconnection:
///
/// * **A keytab**, named by `KRB5_CLIENT_KTNAME` or by `default_client_keytab_name` in `krb5.conf`.
///   The library then gets the first ticket and each further one itself; no `kinit` and no renewal
///   by another program is needed. This is right for a service.
/// * **Tickets of another program** (`kinit`, `k5start`, `sssd`). The cache is read at each
///   connection, so a renewed ticket counts from the next connection on.
///
/// A connection that is logged in goes on when its ticket ends: only the next connection needs a
/// valid one. A session that can connect and not log in is given up after its timeout, as if it had
/// expired, so that its locks do not stay taken.
///
/// # What goes wrong
///
/// If there is no ticket, if it has expired, if the KDC does not know a principal or does not
/// answer, or if clocks differ, the session has no connection: calls wait as in any outage, and
/// the error and the log name the cause and what to check. When it is mended, for instance by
/// `kinit`, the session goes on by itself. If all *servers* refuse the login, that is
/// [`Error::Auth`](crate::Error::Auth).
///
/// The library may wait for a KDC for half a minute. It does so on a thread of its own
/// (`zkm-sasl`), so no lease, no deadline and no other connection waits for it; while that thread
/// waits, no second one is started.
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::{Config, Gssapi, Session};
///
/// // The service's own keytab: KRB5_CLIENT_KTNAME=/etc/orders.keytab
/// let config = Config::new("zk1.example:2181,zk2.example:2181").sasl_gssapi(Gssapi::new());
/// let session = Session::connect(config)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is given to Config::sasl_gssapi"]
pub struct Gssapi {
    principal: Option<String>,
    service: String,
    server_host: Option<String>,
    pub(crate) asked: Asked,
}

/// Since when a thread of this session asks the library of Kerberos, if one does.
pub(crate) type Asked = Arc<Mutex<Option<BootTime>>>;

impl Default for Gssapi {
    fn default() -> Self {
        Gssapi::new()
    }
}

impl Gssapi {
    /// Logs in as whom the cache or the keytab says, to `zookeeper/HOST` for each host of the
    /// connect string.
    pub fn new() -> Self {
        Gssapi {
            principal: None,
            service: "zookeeper".into(),
            server_host: None,
            asked: Asked::default(),
        }
    }

    /// Logs in as this principal, `alice` or `orders/host.example@REALM`. By default as the
    /// cache's own principal or, with a keytab, as its first. Name it if the keytab has several.
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// The servers' service; default `zookeeper`. It is the part of the servers' principal before
    /// the slash (`zookeeper.sasl.client.username` of Java's client).
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    /// The host in the servers' principal, for all hosts of the connect string. By default it is
    /// each host's own name there. State it if the connect string has addresses or short names, or
    /// if all servers share a principal.
    ///
    /// The library may replace a name by what the DNS says of it (`dns_canonicalize_hostname` and
    /// `rdns` in `krb5.conf`).
    pub fn server_host(mut self, host: impl Into<String>) -> Self {
        self.server_host = Some(host.into());
        self
    }

    pub(crate) fn client(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// The servers' service, at a host of the connect string, which has a port.
    pub(crate) fn target(&self, host: &str) -> String {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = self.server_host.as_deref().unwrap_or(name.trim_matches(['[', ']']));
        format!("{}@{name}", self.service)
    }

    pub(crate) fn words(&self) -> SaslWords {
        SaslWords {
            login: match &self.principal {
                Some(principal) => format!("SASL GSSAPI as {principal:?}"),
                None => "SASL GSSAPI".to_owned(),
            },
            advice: "read the server's log: its keytab may lack the key of its principal, or clocks may differ; if that key was changed, drop the tickets from before (kdestroy), and see that the section Server of its JAAS file is for Kerberos",
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let names = [Some(&self.service), self.server_host.as_ref(), self.principal.as_ref()];
        let is_wrong =
            |name: &&String| name.is_empty() || name.len() > 255 || name.contains(char::is_control);
        match names.into_iter().flatten().find(is_wrong) {
            None => Ok(()),
            Some(name) => Err(Error::InvalidConfig {
                what: "sasl_gssapi",
                reason: format!(
                    "the name {name:?} must have 1 to 255 bytes, without control characters"
                ),
            }),
        }
    }

    /// The same settings for a session of its own: no session waits for another's thread.
    pub(crate) fn for_a_session(&self) -> Self {
        Gssapi { asked: Asked::default(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_principal_follows_from_the_connect_string_or_is_stated() {
        let gssapi = Gssapi::new();
        assert_eq!(gssapi.target("zk1.example:2181"), "zookeeper@zk1.example");
        assert_eq!(gssapi.target("[::1]:2181"), "zookeeper@::1");
        let stated = gssapi.service("zk").server_host("quorum.example");
        assert_eq!(stated.target("10.0.0.7:2181"), "zk@quorum.example");
    }

    #[test]
    fn names_that_no_principal_has_are_refused() {
        for wrong in ["", "a\nb", "\0", &"a".repeat(256)] {
            assert!(Gssapi::new().principal(wrong).check().is_err(), "{wrong:?}");
            assert!(Gssapi::new().service(wrong).check().is_err(), "{wrong:?}");
            assert!(Gssapi::new().server_host(wrong).check().is_err(), "{wrong:?}");
        }
        assert!(Gssapi::new().principal("orders/host.example@REALM").check().is_ok());
    }
}
