//! A server of the scenario's own, always embedded, and what scenarios do with it.
use super::{Raw, brand, contend::stat, raw, sasl, scene::SOON, until};
use std::{thread, time::Duration};
use zk_mutex::{LossReason, SessionEvent, ZkMutexGuard};
use zk_test_server::{Matcher, TestServer};

/// A server on a port of its own, which serves over TLS too where the run's switch says so. (Users
/// who log in by SASL have the servers of `Server`.)
pub fn start() -> (TestServer, String) {
    let server = sasl::with_user(brand::embedded());
    #[cfg(feature = "tls")]
    let server = match super::tls::for_loopback() {
        Some(tls) => server.tls(tls),
        None => server,
    };
    let server = server.start().unwrap();
    let at = server.connect_string();
    (server, at)
}

pub fn raw(at: &str) -> Raw {
    Raw::connect(at).unwrap()
}

/// Whether the node exists, by a client of its own.
pub fn exists(at: &str, path: &str) -> bool {
    stat(at, path).is_some()
}

pub fn attach(at: &str, old: &Raw) -> raw::Result<Raw> {
    Raw::with_session(at, old.session_id(), old.password())
}

/// The server may report the end of the node before it closes the connection, as the real one does.
#[track_caller]
pub fn lost_by_expiry(guard: &ZkMutexGuard) {
    let lost = guard.lost();
    assert!(lost.wait(SOON).is_some());
    assert!(matches!(lost.reason(), Some(LossReason::SessionExpired | LossReason::NodeDeleted)));
    assert!(!guard.is_held());
}

pub fn is_connected(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Connected { .. })
}

pub type Lose = fn(&TestServer, Matcher);

/// The ways to lose a request or its answer.
pub const LOSE: [Lose; 2] =
    [|server, which| server.drop_request(which), |server, which| server.drop_reply(which)];

/// Cuts all connections as soon as a client has reconnected, at least `least` times and until
/// `done` returns `enough`. Returns the number of cuts.
#[track_caller]
pub fn flap(
    server: &TestServer,
    seed: u64,
    least: usize,
    enough: usize,
    done: impl Fn() -> usize,
) -> usize {
    let (mut random, mut cuts) = (fastrand::Rng::with_seed(seed), 0);
    while cuts < least || done() < enough {
        until("a client has reconnected", SOON, || (server.connection_count() > 0).then_some(()));
        thread::sleep(Duration::from_millis(random.u64(1..30)));
        // On a busy machine there might never be progress between two cuts, so some cuts wait for
        // progress.
        if cuts % 4 == 3 {
            let before = done();
            until("progress", SOON * 3, || (done() > before || done() >= enough).then_some(()));
        }
        server.cut_connections();
        cuts += 1;
    }
    cuts
}
