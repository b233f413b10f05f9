//! A client certificate is an identity of the scheme x509.
use super::Stage;
use crate::support::{
    Raw, scenarios,
    scene::{SOON, next},
};
use zk_mutex::{Acl, AclEntry, Error, OptionalExt, Permissions, SessionEvent, ZkMutex};

const LOCK: &str = "/locks/orders";
const SUBJECT: &str = "CN=orders,O=Example";

/// An entry for the subject lets it in, and keeps another certificate out.
fn an_acl_for_a_subject_keeps_another_certificate_out() {
    let stage = Stage::wants_clients();
    let (ours, theirs) =
        (stage.session(stage.named("orders")), stage.session(stage.named("other")));
    let acl = Acl::Custom(vec![AclEntry {
        permissions: Permissions::ALL,
        scheme: "x509".into(),
        id: SUBJECT.into(),
    }]);
    let mutex = ZkMutex::builder(&ours, LOCK).acl(acl.clone()).build().unwrap();
    let guard = mutex.lock().unwrap();
    let shut_out = ZkMutex::new(&theirs, LOCK).unwrap();
    assert!(matches!(shut_out.try_lock().optional().map(drop), Err(Error::NoAuth { .. })));
    assert!(matches!(shut_out.lock().map(drop), Err(Error::NoAuth { .. })));
    #[cfg(feature = "client")]
    assert!(theirs.client().unwrap().delete(guard.path(), None).is_err());
    assert!(guard.is_held());
    let colleague = stage.session(stage.named("orders"));
    let other = ZkMutex::builder(&colleague, LOCK).acl(acl).build().unwrap();
    assert!(other.try_lock().optional().unwrap().is_none());
    guard.unlock().unwrap();
    other.lock().unwrap().unlock().unwrap();
}

/// `Acl::CreatorAll` needs no credentials but the certificate. A new certificate is a new identity
/// from the next connection on.
fn the_creator_is_known_by_its_certificate() {
    let stage = Stage::wants_clients();
    let session = stage.session(stage.named("orders"));
    let mutex = ZkMutex::builder(&session, LOCK).acl(Acl::CreatorAll).build().unwrap();
    let guard = mutex.lock().unwrap();
    let mut raw = Raw::connect(&stage.server.connect_string()).unwrap();
    assert!(raw.delete(guard.path()).is_err(), "without a certificate nobody may");
    drop(guard);

    // The same files, another subject.
    let new = stage.pki.issue("orders", &crate::support::pki::Leaf::client("billing"));
    let events = session.subscribe();
    stage.server.restart();
    assert_eq!(next(&events), SessionEvent::Suspended);
    assert_eq!(next(&events), SessionEvent::Reconnected);
    assert!(matches!(mutex.lock().map(drop), Err(Error::NoAuth { .. })), "{new:?}");
    let own = ZkMutex::builder(&session, "/own").acl(Acl::CreatorAll).build().unwrap();
    assert!(own.lock_timeout(SOON).optional().unwrap().is_some());
}

scenarios![
    an_acl_for_a_subject_keeps_another_certificate_out,
    the_creator_is_known_by_its_certificate,
];
