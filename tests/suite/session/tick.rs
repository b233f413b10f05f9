//! The servers' tick as the application states it: the length of leases, and the warnings if it
//! does not fit the timeouts that the servers grant.
use crate::support::{
    Server,
    logged::logged,
    scenarios,
    scene::{SOON, until_empty, until_renewed},
    until,
};
use log::Level;
use std::time::Duration;
use zk_mutex::{Config, ZkMutex, ZkSession};

const PATH: &str = "/locks/orders";
const T: Duration = Duration::from_secs(6);

fn connect(at: &str, settings: impl FnOnce(Config) -> Config) -> ZkSession {
    ZkSession::connect(settings(Config::new(at).session_timeout(T))).unwrap()
}

/// Waits until so many warnings have this part; there must never be more.
#[track_caller]
fn until_warned(part: &str, count: usize) {
    until("the warning", SOON, || (logged(Level::Warn, part).len() >= count).then_some(()));
    assert_eq!(logged(Level::Warn, part).len(), count);
}

/// A renewal leaves 19/24 T less its answer's time, and up to T/8 that the library waits before it
/// asks: 0.664 T on an idle machine. With a tick of T/2 it leaves 7/12 T at most. The timeout is
/// long, so that even a busy machine looks between the two.
fn lease_of_a_stated_tick_is_longer() {
    const T: Duration = Duration::from_secs(18);
    let server = Server::builder().tick(T / 12).start();
    let at = server.connect_string();
    let stated = connect(&at, |config| config.session_timeout(T).server_tick(T / 12));
    let mutex = ZkMutex::new(&stated, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    until_renewed(&stated);
    until("a longer lease", T * 2, || (guard.valid_for() > T * 7 / 12).then_some(()));
    assert!(guard.is_held());
    drop(guard);
    until_empty(&at, PATH);
    stated.close().unwrap(); // the log has all lines
    assert_eq!(logged(Level::Warn, "tick"), Vec::<String>::new());
}

fn tick_that_does_not_fit_what_the_servers_grant_is_warned_of() {
    let second = Duration::from_secs(1);
    let server =
        Server::builder().tick(second * 2).min_session(second * 4).max_session(second * 40).start();
    let at = server.connect_string();
    // Four seconds are granted instead of two: the least that a server with a tick of 2 s grants.
    let session =
        ZkSession::connect(Config::new(&at).session_timeout(second * 2).server_tick(second))
            .unwrap();
    assert_eq!(session.status().timeout, second * 4);
    until_warned("looks like a tick of 2000 ms", 1);
    // Forty seconds are granted instead of sixty: the most that such a server grants.
    let session =
        ZkSession::connect(Config::new(&at).session_timeout(second * 60).server_tick(second))
            .unwrap();
    assert_eq!(session.status().timeout, second * 40);
    until_warned("looks like a tick of 2000 ms", 2);
    // A server that grants less than two ticks.
    let session =
        ZkSession::connect(Config::new(&at).session_timeout(T).server_tick(second * 4)).unwrap();
    assert_eq!(session.status().timeout, T);
    until_warned("less than two of the servers' ticks", 1);
    // The stated tick is right.
    for timeout in [second * 2, second * 6, second * 60] {
        drop(
            ZkSession::connect(Config::new(&at).session_timeout(timeout).server_tick(second * 2))
                .unwrap(),
        );
    }
    assert_eq!(logged(Level::Warn, "tick").len(), 3);
}

scenarios![
    lease_of_a_stated_tick_is_longer,
    tick_that_does_not_fit_what_the_servers_grant_is_warned_of,
];
