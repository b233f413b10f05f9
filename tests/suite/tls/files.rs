//! The files of certificates and keys: what cannot be used is an error at once, and what was
//! replaced is taken at the next connection.
use super::{Stage, assert_says, config};
use crate::support::{
    Scratch, at_best,
    pki::{Leaf, Pki},
    scenarios,
    scene::{SOON, next},
};
use std::{fs, path::Path, time::Instant};
use zk_mutex::{Error, OptionalExt, SessionEvent, TlsConfig, ZkMutex, ZkSession};

/// Nothing listens there; nobody is to dial it.
const NOWHERE: &str = "127.0.0.1:1";

#[track_caller]
fn refused(tls: TlsConfig, words: &[&str]) {
    let begun = Instant::now();
    match ZkSession::connect(config(NOWHERE, tls)) {
        Err(Error::InvalidConfig { what: "tls", reason }) => {
            assert_says(&reason, words);
        }
        other => panic!("{other:?}"),
    }
    assert!(at_best(begun) < SOON / 4, "it comes at once");
}

fn files_that_cannot_be_used_are_named_at_once() {
    let scratch = Scratch::new("tls");
    let pki = Pki::new(scratch.path(), "own");
    let files = pki.issue("orders", &Leaf::client("orders"));
    let other = pki.issue("other", &Leaf::client("other"));
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let shown = |path: &Path| path.to_str().unwrap().to_owned();

    let missing = scratch.path().join("missing.pem");
    refused(TlsConfig::new(&missing), &["CA file", &shown(&missing), "No such file"]);
    refused(TlsConfig::new(scratch.path()), &["CA file", "is no file"]);
    refused(TlsConfig::new("/dev/zero"), &["/dev/zero is no file"]);
    let empty = file("empty.pem", "");
    refused(TlsConfig::new(&empty), &[&shown(&empty), "no certificate in PEM form"]);
    refused(TlsConfig::new(&files.key), &["no certificate in PEM form"]);
    let half = file("half.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    refused(TlsConfig::new(&half), &[&shown(&half), "no end line"]);
    let nonsense =
        file("nonsense.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    refused(TlsConfig::new(&nonsense), &[&shown(&nonsense), "certificate 1 cannot be used"]);

    let trust = || TlsConfig::new(pki.ca_file());
    let with = |certificate: &Path, key: &Path| trust().client_certificate(certificate, key);
    refused(with(&missing, &files.key), &["client certificate file", &shown(&missing)]);
    refused(with(&files.certificate, &missing), &["key file", &shown(&missing)]);
    refused(with(&empty, &files.key), &[&shown(&empty), "no certificate"]);
    refused(with(&files.certificate, &empty), &[&shown(&empty), "no private key"]);
    let locked = file(
        "locked.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    refused(with(&files.certificate, &locked), &["a key with a password is not read"]);
    refused(
        with(&files.certificate, &other.key),
        &[&shown(&files.certificate), &shown(&other.key), "cannot be used together"],
    );
    // A secret shows in no error.
    let key = fs::read_to_string(&files.key).unwrap().replace("-----END", "!!!!\n-----END");
    let spoiled = file("spoiled.key", &key);
    refused(with(&files.certificate, &spoiled), &["a section is not in base64"]);
}

fn a_host_that_no_certificate_can_name_is_refused_at_once() {
    let scratch = Scratch::new("tls");
    let pki = Pki::new(scratch.path(), "own");
    match ZkSession::connect(config("zk..example:2181", TlsConfig::new(pki.ca_file()))) {
        Err(Error::InvalidConfig { reason, .. }) => {
            assert_says(&reason, &["zk..example", "in no certificate"]);
        }
        other => panic!("{other:?}"),
    }
}

/// The servers get certificates of another CA, and the session its file.
fn a_replaced_ca_is_taken_at_the_next_connection() {
    let stage = Stage::new();
    let session = stage.session(stage.trust());
    let (id, events) = (session.status().session_id, session.subscribe());
    let guard = ZkMutex::new(&session, "/lock").unwrap().lock().unwrap();
    let other = stage.stranger();
    stage.server.renew(other.clone(), None);
    // The server's files stay where they were.
    let name = format!("server-{}", stage.server.address().ip());
    for end in ["pem", "key", "both.pem"] {
        let dir = stage.scratch.path();
        fs::rename(
            dir.join(format!("strange-{name}.{end}")),
            dir.join(format!("own-{name}.{end}")),
        )
        .unwrap();
    }
    fs::rename(other.ca_file(), stage.pki.ca_file()).unwrap();
    stage.server.restart();
    assert_eq!(next(&events), SessionEvent::Suspended);
    assert_eq!(next(&events), SessionEvent::Reconnected);
    assert!(guard.is_held() && session.status().session_id == id);
}

/// A file that is missing for a while costs no more than an outage.
fn a_session_resumes_when_its_files_are_right_again() {
    let stage = Stage::new();
    let session = stage.session(stage.trust());
    let (id, events) = (session.status().session_id, session.subscribe());
    let (ca, aside) = (stage.pki.ca_file(), stage.scratch.path().join("aside"));
    fs::rename(&ca, &aside).unwrap();
    stage.server.restart();
    assert_eq!(next(&events), SessionEvent::Suspended);
    let lock = ZkMutex::new(&session, "/lock").unwrap();
    assert!(lock.lock_timeout(std::time::Duration::from_millis(600)).optional().is_err());
    fs::rename(&aside, &ca).unwrap();
    assert_eq!(next(&events), SessionEvent::Reconnected);
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(session.status().session_id, id);
}

pub fn tests() -> Vec<crate::support::Test> {
    scenarios![@list
        files_that_cannot_be_used_are_named_at_once on none,
        a_host_that_no_certificate_can_name_is_refused_at_once on none,
        a_replaced_ca_is_taken_at_the_next_connection,
        a_session_resumes_when_its_files_are_right_again,
    ]
}
