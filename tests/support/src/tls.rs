//! TLS in front of servers and proxies, and the switch that lets all sessions of a run use it.
#[cfg(feature = "tls")]
use super::pki::{Files, Leaf, Pki};
use std::env;

/// Set to `yes`: the sessions of the scenarios connect over TLS, to embedded servers and through
/// proxies. (Raw clients do not: they share the port.) Needs the feature `tls`.
pub const SWITCH: &str = "ZK_TEST_TLS";

/// Whether the switch is on.
pub fn is_on() -> bool {
    env::var_os(SWITCH).is_some_and(|word| word == "yes")
}

/// Why the switch cannot be on, if it is.
pub(super) fn refusal(only_embedded: bool) -> Option<&'static str> {
    if !is_on() {
        return None;
    }
    if cfg!(not(feature = "tls")) {
        return Some("ZK_TEST_TLS needs `--features tls`");
    }
    (!only_embedded).then_some("ZK_TEST_TLS is for the embedded server only")
}

/// Where the switch is on: for a server on 127.0.0.1.
#[cfg(feature = "tls")]
pub fn for_loopback() -> Option<zk_test_server::ServerTls> {
    let file = format!("loopback-{}", uuid::Uuid::new_v4().simple());
    is_on().then(|| {
        let files = Pki::shared().issue(&file, &Leaf::server(&["127.0.0.1"]));
        zk_test_server::ServerTls::new(files.certificate, files.key).allow_plain()
    })
}

/// The TLS of a server.
#[cfg(feature = "tls")]
#[derive(Clone)]
pub struct ServerSide {
    pub pki: Pki,
    /// What its certificate says; by default it is for the server's address and for `localhost`.
    pub leaf: Option<Leaf>,
    /// Clients need a certificate.
    pub wants_clients: bool,
}

#[cfg(feature = "tls")]
impl ServerSide {
    /// Of the run, where the switch is on.
    pub(super) fn of_run() -> Option<ServerSide> {
        is_on().then(|| ServerSide { pki: Pki::shared(), leaf: None, wants_clients: false })
    }

    /// Signs the certificate of the server at this address.
    pub(super) fn issue(&self, address: std::net::IpAddr) -> Files {
        let address = address.to_string();
        let leaf = self.leaf.clone();
        let leaf = leaf.unwrap_or_else(|| Leaf::server(&[&address, "localhost"]));
        self.pki.issue(&format!("server-{address}"), &leaf)
    }
}
