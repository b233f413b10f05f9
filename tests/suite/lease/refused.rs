//! Folders in which the session may create and not delete, on servers with eager ACL checks: there
//! a server refuses a delete by itself, and that proves nothing about the leader. A lock in such a
//! folder costs no lock of its session its lease.
use crate::support::{Ensemble, Raw, Server, scenarios, scene::session_of, until};
use std::time::{Duration, Instant};
use zk_mutex::{Error, OptionalExt, ZkMutex, ZkSession};

const T: Duration = Duration::from_secs(4);
/// All permissions but DELETE.
const NO_DELETE: i32 = 31 & !8;
const REFUSING: [&str; 5] = ["/locks/a", "/locks/b", "/locks/c", "/locks/d", "/locks/e"];

/// A session on a follower, in a chroot; and another client there.
fn scene() -> (Ensemble, Raw, ZkSession) {
    let server = Server::real()
        .tick(Duration::from_millis(500))
        .min_session(Duration::from_secs(1))
        .property("zookeeper.enableEagerACLCheck", true);
    let ensemble = Ensemble::start_with(3, server);
    let at = ensemble.member(ensemble.followers()[0]).connect_string();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs("/app/locks").unwrap();
    let session = session_of(&format!("{at}/app"), T);
    (ensemble, raw, session)
}

fn mutex(session: &ZkSession, path: &str) -> ZkMutex {
    ZkMutex::new(session, path).unwrap()
}

/// Nobody may delete in these folders, those above them, and the root.
fn deny(raw: &mut Raw, dirs: &[&str]) {
    for dir in dirs.iter().map(|dir| ["/app", dir].concat()) {
        raw.set_acl(&dir, NO_DELETE).unwrap();
    }
    for dir in ["/app/locks", "/app", "/"] {
        raw.set_acl(dir, NO_DELETE).unwrap();
    }
}

/// Waits until the session could not hold anything any more by what was proven until now.
#[track_caller]
fn until_proven_anew(session: &ZkSession) {
    let begun = Instant::now();
    until("the lease is renewed", T * 3, || {
        (Instant::now() + session.status().lease_remaining > begun + T * 2).then_some(())
    });
}

fn one_locks_acl_costs_no_other_lock_its_lease() {
    let (_ensemble, mut raw, session) = scene();
    let good = mutex(&session, "/locks/good").lock().unwrap();
    let refusing: Vec<_> = REFUSING.map(|path| mutex(&session, path)).into();
    let held: Vec<_> = refusing.iter().map(|mutex| mutex.lock().unwrap()).collect();
    until_proven_anew(&session);
    deny(&mut raw, &REFUSING);
    until_proven_anew(&session);
    assert!(good.is_held() && held.iter().all(|guard| guard.is_held()));
}

fn a_lock_that_cannot_be_deleted_waits_for_no_lease_and_costs_the_others_none() {
    let (_ensemble, mut raw, session) = scene();
    REFUSING.iter().for_each(|dir| raw.mkdirs(&["/app", dir].concat()).unwrap());
    deny(&mut raw, &REFUSING);
    for round in 0..2 {
        // While nothing is held, only callers ask for the lease.
        until("the lease is stale", T, || (session.status().lease_remaining < T / 4).then_some(()));
        let held = REFUSING.map(|path| mutex(&session, path).lock_timeout(T).optional());
        // By the second round it is known that the nodes of the first one stay.
        let is_no_auth = |e: &Error| matches!(e, Error::NoAuth { permission: "DELETE", .. });
        for said in &held {
            match said {
                Ok(guard) => assert!(guard.is_some() && round == 0, "round {round}"),
                Err(e) => assert!(is_no_auth(e) && round == 1, "round {round}: {e}"),
            }
        }
        let good = mutex(&session, "/locks/good").lock_timeout(T).optional().unwrap().unwrap();
        until_proven_anew(&session);
        drop(held); // these deletes are refused, and tried again
        until_proven_anew(&session);
        assert!(good.is_held(), "round {round}");
    }
}

scenarios![
    one_locks_acl_costs_no_other_lock_its_lease on real,
    a_lock_that_cannot_be_deleted_waits_for_no_lease_and_costs_the_others_none on real,
];
