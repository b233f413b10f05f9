//! Tools for all scenarios: sessions, their events, and the lock's folder at the end.
use super::{Proxy, Raw, ask, brand, raw, sasl, until};
#[cfg(feature = "tls")]
use super::{pki, tls};
use crossbeam_channel::Receiver;
use std::time::Duration;
#[cfg(feature = "tls")]
use zk_mutex::TlsConfig;
use zk_mutex::{Config, Held, SessionEvent, SessionState, ZkMutex, ZkSession};
use zk_test_server::Brand;

/// Long enough for anything that should happen at once, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// What a close has left of its second, on a machine that is punctual. One that is later may let a
/// close end before it has reached the server.
pub const CLOSE_SPARE: Duration = Duration::from_millis(500);

/// A session that does not expire, even on a busy machine.
#[track_caller]
pub fn session(connect_string: &str) -> ZkSession {
    session_of(connect_string, Duration::from_secs(30))
}

/// The settings of a session, which connects over TLS and logs in by SASL where the run's switches
/// say so.
pub fn config(connect_string: impl Into<String>) -> Config {
    #[allow(unused_mut, reason = "without these features there is no more to set")]
    let mut config = Config::new(connect_string);
    #[cfg(feature = "tls")]
    if tls::is_on() {
        config = config.tls(TlsConfig::new(pki::Pki::shared().ca_file()));
    }
    if sasl::is_on() {
        #[cfg(feature = "sasl-digest-md5")]
        return config.sasl_digest_md5(sasl::USER.0, sasl::USER.1);
        #[cfg(not(feature = "sasl-digest-md5"))]
        panic!("{} needs the feature sasl-digest-md5", sasl::SWITCH);
    }
    config
}

#[track_caller]
pub fn session_of(connect_string: &str, timeout: Duration) -> ZkSession {
    match ZkSession::connect(config(connect_string).session_timeout(timeout).connect_timeout(SOON))
    {
        Ok(session) => {
            if brand::current() == Brand::Keeper {
                ask_for_containers(&session);
            }
            session
        }
        Err(e) => panic!("{e}"),
    }
}

/// A session that makes its chroot, where there is none.
pub fn session_that_makes_its_chroot(connect_string: &str) -> ZkSession {
    let config = config(connect_string).connect_timeout(SOON).create_chroot();
    let session = ZkSession::connect(config).unwrap();
    if brand::current() == Brand::Keeper {
        ask_for_containers(&session);
    }
    session
}

/// A Keeper hangs up when a session's first lock asks for containers, twice, and each time the
/// session is lost. That has scenarios of its own (`server/brands.rs`); all others begin after it,
/// and after the answer to the delete, which a scenario could take for one that it waits for.
#[track_caller]
fn ask_for_containers(session: &ZkSession) {
    // The session asks only for a path that nobody has made.
    let path = format!("/asked/{:x}", session.status().session_id.unwrap_or_default());
    if let Err(e) = ZkMutex::new(session, &path).and_then(|mutex| mutex.lock()?.unlock()) {
        panic!("{e}");
    }
}

/// Waits for the next event.
#[track_caller]
pub fn next(events: &Receiver<SessionEvent>) -> SessionEvent {
    match events.recv_timeout(SOON) {
        Ok(event) => event,
        Err(e) => panic!("no event of the session: {e}"),
    }
}

/// Waits for an event, and returns it with all events before it.
#[track_caller]
pub fn until_event(
    events: &Receiver<SessionEvent>,
    meant: impl Fn(&SessionEvent) -> bool,
) -> Vec<SessionEvent> {
    let mut seen = Vec::new();
    loop {
        match events.recv_timeout(SOON) {
            Ok(event) => seen.push(event),
            Err(e) => panic!("not the event that is due ({e}); there were {seen:?}"),
        }
        if seen.last().is_some_and(&meant) {
            return seen;
        }
    }
}

#[track_caller]
pub fn until_state(session: &ZkSession, state: SessionState) {
    until(&format!("the session is {state:?}"), SOON, || {
        (session.status().state == state).then_some(())
    });
}

/// Waits until the session, while it holds something, has a lease that a write has renewed on a
/// connection that was open for a while. Such a lease ends well before the server expires the
/// session. The lease of a new session or connection ends only just before.
#[track_caller]
pub fn until_renewed(session: &ZkSession) {
    let most = session.status().timeout * 3 / 5;
    until("a renewed lease", session.status().timeout, || {
        (session.status().lease_remaining < most).then_some(())
    });
}

/// Asks for the watch on a held node, and waits until the server (or the one at `at`) has it for
/// the session that owns the node. From now on the holder is notified of each event of the node.
#[track_caller]
pub fn until_watched(at: &str, held: &Held) {
    let _asks_for_it = held.lost();
    until_node_watched(at, &full_path(at, held.path()));
}

/// Waits until the session that owns this node watches it; `path` is the server's own.
#[track_caller]
pub fn until_node_watched(at: &str, path: &str) {
    let host = at.split('/').next().unwrap_or_default().parse().expect("one server's address");
    let node = Raw::connect(at).unwrap().exists(path).unwrap();
    let owner = format!("\t0x{:x}", node.expect("the held node").ephemeral_owner);
    until(&format!("{path} is watched"), SOON, || {
        let watches = ask::four_letter(host, "wchp", ask::LIMIT).ok()?;
        let mut lines = watches.lines().skip_while(|line| *line != path).skip(1);
        lines
            .by_ref()
            .take_while(|line| line.starts_with('\t'))
            .any(|line| line == owner)
            .then_some(())
    });
}

/// The server's own path for the `path` of a session with this connect string.
pub fn full_path(connect_string: &str, path: &str) -> String {
    match connect_string.split_once('/') {
        Some((_, chroot)) => format!("/{chroot}{path}"),
        None => path.to_owned(),
    }
}

/// The name of a node.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').unwrap().1
}

/// The names of the nodes in the lock's folder; none if it does not exist. For a semaphore these
/// are the leases, as `leases/..`.
#[track_caller]
pub fn queue(connect_string: &str, path: &str) -> Vec<String> {
    let names = children(connect_string, path);
    if names.is_empty() || names.iter().any(|name| !["leases", "locks"].contains(&name.as_str())) {
        return names;
    }
    let leases = children(connect_string, &format!("{path}/leases"));
    leases.into_iter().map(|name| format!("leases/{name}")).collect()
}

/// As `queue`; for a semaphore also the places at its mutex.
#[track_caller]
pub fn nodes(connect_string: &str, path: &str) -> Vec<String> {
    let mut nodes = queue(connect_string, path);
    nodes.extend(children(connect_string, &format!("{path}/locks")));
    nodes
}

#[track_caller]
fn children(connect_string: &str, path: &str) -> Vec<String> {
    let mut raw = Raw::connect(connect_string).expect("a raw client");
    match raw.children(&full_path(connect_string, path)) {
        Ok(names) => names,
        Err(e) if e.code() == Some(raw::NO_NODE) => Vec::new(),
        Err(e) => panic!("{path}: {e}"),
    }
}

/// Waits until the lock's folder is empty or deleted; for a semaphore with its mutex.
#[track_caller]
pub fn until_empty(connect_string: &str, path: &str) {
    let end = std::time::Instant::now() + SOON;
    loop {
        let is_last = std::time::Instant::now() >= end;
        let left = nodes(connect_string, path);
        if left.is_empty() {
            return;
        }
        assert!(!is_last, "nodes in the folder of {path} after {SOON:?}: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends at the server the session that was granted last through this proxy, without its owner's
/// knowledge. (The owner is cut off by this, and may reconnect in between and take the session
/// over. So this repeats until the server does not know the session any more.)
#[track_caller]
pub fn expire(proxy: &Proxy, server: &str) {
    let (id, password) = proxy.sessions().pop().expect("a session through the proxy");
    until("the session is expired", SOON, || match raw::expire(server, id, &password) {
        Ok(()) => Some(()),
        Err(e) => (e.code() == Some(raw::SESSION_EXPIRED)).then_some(()),
    });
}
