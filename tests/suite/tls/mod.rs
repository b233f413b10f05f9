//! Connections over TLS: to the embedded server, and to a real one with Netty.
mod files;
mod hostile;
mod identity;
mod locking;
mod refusals;

crate::support::tables![files, hostile, identity, locking, refusals];

use crate::support::{
    Scratch, Server, Variant,
    pki::{Leaf, Pki},
    scene::SOON,
    tls::ServerSide,
};
use std::time::Duration;
use zk_mutex::{Config, Error, TlsConfig, ZkSession};

/// A CA, and a server with a certificate of it.
struct Stage {
    server: Server,
    pki: Pki,
    scratch: Scratch,
}

impl Stage {
    /// Clients need no certificate.
    fn new() -> Stage {
        Stage::with(false, |config| config)
    }

    /// Clients need a certificate of the same CA.
    fn wants_clients() -> Stage {
        Stage::with(true, |config| config)
    }

    fn with(
        wants_clients: bool,
        set: impl FnOnce(crate::support::server::Builder) -> crate::support::server::Builder,
    ) -> Stage {
        let scratch = Scratch::new("tls");
        let pki = Pki::new(scratch.path(), "own");
        let side = ServerSide { pki: pki.clone(), leaf: None, wants_clients };
        let server = set(Server::builder().tls(side)).start();
        Stage { scratch, pki, server }
    }

    /// Another CA, of which the server knows nothing.
    fn stranger(&self) -> Pki {
        Pki::new(self.scratch.path(), "strange")
    }

    /// Trusts our CA.
    fn trust(&self) -> TlsConfig {
        TlsConfig::new(self.pki.ca_file())
    }

    /// Trusts our CA, and has a certificate of it.
    fn named(&self, subject: &str) -> TlsConfig {
        let files = self.pki.issue(subject, &Leaf::client(subject));
        self.trust().client_certificate(files.certificate, files.key)
    }

    #[track_caller]
    fn session(&self, tls: TlsConfig) -> ZkSession {
        connected(config(&self.server.secure(), tls))
    }
}

fn config(at: &str, tls: TlsConfig) -> Config {
    Config::new(at).session_timeout(Duration::from_secs(30)).connect_timeout(SOON).tls(tls)
}

#[track_caller]
fn connected(config: Config) -> ZkSession {
    ZkSession::connect(config).unwrap_or_else(|e| panic!("{e}"))
}

/// The first handshakes of a Java process take their time, on a busy machine several seconds.
const JAVA: Duration = Duration::from_secs(12);

/// Fewer where each takes long.
fn tries() -> usize {
    if Variant::current() == Variant::Real { 1 } else { 5 }
}

/// Why the only host gives no session.
#[track_caller]
fn reason(config: Config) -> String {
    match refused(config) {
        Error::Connect { hosts, .. } => hosts[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(config: Config) -> Error {
    let within = if Variant::current() == Variant::Real { JAVA } else { Duration::from_secs(2) };
    ZkSession::connect(config.connect_timeout(within)).unwrap_err()
}

#[track_caller]
fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}
