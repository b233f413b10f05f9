//! SASL DIGEST-MD5 at a real server.
use super::assert_says;
use zk_test_support::{
    Raw, Server,
    java_client::JavaClient,
    raw::{self, NO_AUTH},
    server::Builder,
};

/// The server's code for a session that it ends because the client is not authenticated.
const SESSION_CLOSED_REQUIRE_AUTH: i32 = -124;

/// The scenarios of this module.
pub fn tests() -> Vec<zk_test_support::Test> {
    #[allow(unused_mut, reason = "without TLS there is no more")]
    let mut all = zk_test_support::scenarios![@list
        a_node_of_alice_is_hers_alone on real,
        a_server_that_requires_sasl_ends_other_sessions on real,
        a_server_that_enforces_the_scheme_ends_other_sessions on real,
        a_server_may_keep_a_client_whose_sasl_fails on real,
    ];
    #[cfg(feature = "tls")]
    all.extend(zk_test_support::scenarios![@list sasl_works_over_tls on real]);
    all
}

fn server() -> Builder {
    Server::real().sasl_digest(&[("alice", "secret"), ("bob", "s3cret")])
}

fn a_node_of_alice_is_hers_alone() {
    let server = server().start();
    let java = JavaClient::new(&server.connect_string());
    let said = java.clone().digest("alice", "secret").run(&[
        "whoami",
        "create /a data-of-alice sasl:alice:cdrwa",
        "getAcl /a",
    ]);
    for part in ["sasl: alice", "Created /a", "'sasl,'alice\n: cdrwa"] {
        assert_says(&said, part);
    }
    let said = java.clone().digest("bob", "s3cret").run(&["whoami", "get /a"]);
    assert_says(&said, "sasl: bob");
    assert_says(&said, "Insufficient permission : /a");
    let said = java.digest("alice", "wrong").run(&["get /a"]);
    assert_says(&said, "AuthFailed for /a");
    let nobody = Raw::connect(&server.connect_string()).unwrap().get_data("/a");
    assert_eq!(nobody.err().and_then(|e| e.code()), Some(NO_AUTH));
}

fn a_server_that_requires_sasl_ends_other_sessions() {
    refuses_others(server().requires_sasl());
}

fn a_server_that_enforces_the_scheme_ends_other_sessions() {
    refuses_others(server().enforces_auth("sasl"));
}

#[track_caller]
fn refuses_others(builder: Builder) {
    let server = builder.start();
    let said = JavaClient::new(&server.connect_string()).digest("alice", "secret").run(&["ls /"]);
    assert_says(&said, "[zookeeper]");
    let mut other = Raw::connect(&server.connect_string()).unwrap();
    let refused = other.children("/").err().and_then(|e| e.code());
    assert_eq!(refused, Some(SESSION_CLOSED_REQUIRE_AUTH));
    assert!(matches!(other.children("/"), Err(raw::Failed::Io(_))), "the session has ended");
}

fn a_server_may_keep_a_client_whose_sasl_fails() {
    for (builder, does) in [
        (server(), "Closing client connection due to SASL authentication failure."),
        (
            server().allows_failed_sasl(),
            "Maintaining client connection despite SASL authentication",
        ),
    ] {
        let server = builder.start();
        let java = JavaClient::new(&server.connect_string()).digest("alice", "wrong");
        // The Java client gives up in both cases.
        assert_says(&java.run(&["ls /"]), "WatchedEvent state:AuthFailed");
        assert_says(&server.log(), does);
    }
}

#[cfg(feature = "tls")]
fn sasl_works_over_tls() {
    use zk_test_support::{Scratch, pki::Pki, tls::ServerSide};
    let dir = Scratch::new("pki");
    let pki = Pki::new(dir.path(), "sasl");
    let side = ServerSide { pki: pki.clone(), leaf: None, wants_clients: false };
    let server = server().tls(side).requires_sasl().start();
    let java = JavaClient::new(&server.secure()).tls(&pki);
    let said = java.clone().digest("alice", "secret").run(&["whoami", "ls /"]);
    assert_says(&said, "sasl: alice");
    assert_says(&said, "[zookeeper]");
    let said = java.digest("alice", "wrong").run(&["ls /"]);
    assert_says(&said, "AuthFailed for /");
}
