//! A server that does not pass the checks, or does not let us in: the error names host and cause,
//! and tells what to do.
use super::{JAVA, Stage, assert_says, config, connected, reason, refused, tries};
use crate::support::{Proxy, Server, pki::Leaf, scenarios, until};
use std::time::Duration;
use zk_mutex::{Config, Error, RetryPolicy, TlsConfig, ZkMutex};

fn a_ca_that_did_not_sign_is_named() {
    let stage = Stage::new();
    let wrong = stage.stranger().ca_file();
    let at = stage.server.secure();
    let error = refused(config(&at, TlsConfig::new(&wrong)));
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert_says(&error.to_string(), &[&at, "signed by no CA of", wrong.to_str().unwrap()]);
    assert!(error.is_transient());
}

/// Another CA of the same name: the one that was there before its key was replaced.
fn a_ca_with_another_key_is_named() {
    let stage = Stage::new();
    let scratch = crate::support::Scratch::new("other");
    let other = crate::support::pki::Pki::new(scratch.path(), "own");
    let said = reason(config(&stage.server.secure(), TlsConfig::new(other.ca_file())));
    assert_says(&said, &["certificate", other.ca_file().to_str().unwrap()]);
}

fn a_name_that_the_certificate_does_not_have_is_named() {
    let stage = Stage::new();
    let proxy = Proxy::start(stage.server.secure().parse().unwrap());
    let ip = proxy.address().ip().to_string();
    let said = reason(config(&proxy.connect_string(), stage.trust()));
    let own = stage.server.address().ip().to_string();
    assert_says(&said, &["is not for", &ip, &own, "localhost", "subject alternative name"]);
}

fn an_expired_certificate_is_named() {
    let stage = Stage::new();
    let ip = stage.server.address().ip().to_string();
    stage.server.renew(stage.pki.clone(), Some(Leaf::server(&[&ip]).expired()));
    stage.server.restart();
    let said = reason(config(&stage.server.secure(), stage.trust()));
    assert_says(&said, &["expired", "ago", "renew it"]);
}

/// A certificate for a client is none for a server.
fn a_certificate_for_another_purpose_is_named() {
    let stage = Stage::new();
    stage.server.renew(stage.pki.clone(), Some(Leaf::client("server")));
    stage.server.restart();
    let said = reason(config(&stage.server.secure(), stage.trust()));
    assert_says(&said, &["certificate", "serverAuth"]);
}

fn a_missing_client_certificate_is_named() {
    let stage = Stage::wants_clients();
    for _ in 0..tries() {
        let said = reason(config(&stage.server.secure(), stage.trust()));
        assert_says(&said, &["give one with TlsConfig::client_certificate()"]);
    }
}

fn a_client_certificate_of_another_ca_is_named() {
    let stage = Stage::wants_clients();
    let strange = stage.stranger().issue("client", &Leaf::client("orders"));
    let tls = stage.trust().client_certificate(&strange.certificate, &strange.key);
    for _ in 0..tries() {
        let said = reason(config(&stage.server.secure(), tls.clone()));
        assert_says(&said, &["trusts the CA of our", strange.certificate.to_str().unwrap()]);
    }
}

fn an_expired_client_certificate_is_named() {
    let stage = Stage::wants_clients();
    let old = stage.pki.issue("client", &Leaf::client("orders").expired());
    let tls = stage.trust().client_certificate(&old.certificate, &old.key);
    let said = reason(config(&stage.server.secure(), tls));
    assert_says(&said, &["expired", old.certificate.to_str().unwrap()]);
}

fn a_server_without_tls_is_named() {
    let stage = Stage::new(); // for its CA
    let server = Server::start();
    for _ in 0..tries() {
        let said = reason(config(&server.connect_string(), stage.trust()));
        assert_says(&said, &["TLS", "secureClientPort"]);
    }
}

/// The port for TLS, and a session that knows nothing of TLS.
fn a_session_without_tls_is_told_that_the_port_wants_it() {
    let scratch = crate::support::Scratch::new("tls");
    let pki = crate::support::pki::Pki::new(scratch.path(), "own");
    let strict = match crate::support::Variant::current() {
        crate::support::Variant::Embedded => {
            let files = pki.issue("server", &Leaf::server(&["127.0.0.1"]));
            let side = zk_test_server::ServerTls::new(files.certificate, files.key);
            Some(zk_test_server::TestServer::builder().tls(side).start().unwrap())
        }
        _ => None,
    };
    let stage = strict.is_none().then(Stage::new);
    let at = strict.as_ref().map_or_else(
        || stage.as_ref().unwrap().server.secure(),
        zk_test_server::TestServer::connect_string,
    );
    for _ in 0..tries() {
        let said = reason(Config::new(&at));
        assert_says(&said, &["TLS", "tls()"]);
    }
}

/// A server without its data ends the connection in order, before its first answer. That says
/// nothing of our certificate.
fn a_server_that_has_lost_its_data_is_not_taken_for_one_that_refuses_us() {
    let stage = Stage::wants_clients();
    let retry = RetryPolicy { max_elapsed: Duration::from_secs(2), ..RetryPolicy::default() };
    let session =
        connected(config(&stage.server.secure(), stage.named("orders")).retry_policy(retry));
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    (0..20).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
    stage.server.wipe();
    let error = until("the server refuses the session", JAVA * 2, || {
        let error = mutex.lock().unwrap_err().to_string();
        error.contains("right after our connect request").then_some(error)
    });
    assert_says(&error, &["did it lose its data"]);
    assert!(!error.contains("certificate"), "{error}");
}

scenarios![
    a_server_that_has_lost_its_data_is_not_taken_for_one_that_refuses_us,
    a_ca_that_did_not_sign_is_named,
    a_ca_with_another_key_is_named,
    a_name_that_the_certificate_does_not_have_is_named,
    an_expired_certificate_is_named,
    a_certificate_for_another_purpose_is_named,
    a_missing_client_certificate_is_named,
    a_client_certificate_of_another_ca_is_named,
    an_expired_client_certificate_is_named,
    a_server_without_tls_is_named,
    a_session_without_tls_is_told_that_the_port_wants_it,
];
