//! A server of the scenario's own, always embedded, and what scenarios do with it.
use super::{Raw, contend::stat, raw, scene::SOON, until};
use std::{thread, time::Duration};
use zk_mutex::{LossReason, SessionEvent, ZkMutexGuard};
use zk_test_server::{Matcher, TestServer};

/// A server on a port of its own, which serves over TLS too where the run's switch says so.
pub fn start() -> (TestServer, String) {
    let server = TestServer::builder();
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

/// Whether the server has the node, asked by a client of its own.
pub fn exists(at: &str, path: &str) -> bool {
    stat(at, path).is_some()
}

pub fn attach(at: &str, old: &Raw) -> raw::Result<Raw> {
    Raw::with_session(at, old.session_id(), old.password())
}

/// The server may tell of the node's end before it hangs up, as the real one does.
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

/// A request or its answer is lost.
pub const LOSE: [Lose; 2] =
    [|server, which| server.drop_request(which), |server, which| server.drop_reply(which)];

/// Cuts all connections as soon as somebody is connected again, `least` times at least and until
/// `done` says `enough`; gives how often.
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
        until("somebody is back", SOON, || (server.connection_count() > 0).then_some(()));
        thread::sleep(Duration::from_millis(random.u64(1..30)));
        // On a busy machine nothing may ever be done between two cuts: so some of them wait until
        // something was.
        if cuts % 4 == 3 {
            let before = done();
            until("it goes on", SOON * 3, || (done() > before || done() >= enough).then_some(()));
        }
        server.cut_connections();
        cuts += 1;
    }
    cuts
}
