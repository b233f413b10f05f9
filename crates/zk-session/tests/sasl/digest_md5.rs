//! A login by a user and a password.

use crate::{SOON, assert_says};
use std::time::Duration;
use zk_session::{Acl, Config, CreateMode, Error, Session};
use zk_test_support::{OpKind, Proxy, Raw, Server, raw::NO_AUTH, server::Builder, until};

/// The scenarios of this module.
pub fn tests() -> Vec<zk_test_support::Test> {
    #[allow(unused_mut, reason = "without TLS there is no more")]
    let mut all = zk_test_support::scenarios![@list
        the_login_gives_the_session_its_identity,
        a_wrong_password_and_an_unknown_user_are_refused_with_what_to_check,
        a_session_that_resumes_logs_in_again,
        a_server_that_requires_a_login_serves_only_sessions_that_log_in,
        a_server_that_enforces_another_scheme_says_so on real,
        credentials_of_another_scheme_go_behind_the_login,
        a_failed_login_is_no_login_where_the_server_lets_it_pass,
        a_server_without_sasl_is_named_and_so_is_what_it_lacks,
        one_server_that_refuses_the_login_costs_nothing_while_another_takes_it,
        an_outage_behind_a_refused_login_is_called_an_outage,
        a_lost_answer_to_the_login_costs_the_connection_and_not_the_session,
        letters_of_other_alphabets_log_in,
    ];
    #[cfg(feature = "tls")]
    all.extend(zk_test_support::scenarios![@list the_login_goes_over_tls]);
    all
}

fn server() -> Builder {
    Server::builder().sasl_digest(&[("alice", "secret"), ("bob", "s3cret")])
}

fn config(servers: &str, user: &str, password: &str) -> Config {
    Config::new(servers).connect_timeout(SOON).sasl_digest_md5(user, password)
}

#[track_caller]
fn alice(servers: &str) -> Session {
    Session::connect(config(servers, "alice", "secret")).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn refused(config: Config) -> Error {
    Session::connect(config).expect_err("the server lets it in")
}

/// Makes a node that only the identities of this session may use.
#[track_caller]
fn make_own(session: &Session, path: &str) {
    let zk = session.requests().within(SOON);
    zk.create(path, b"own", CreateMode::Persistent, &Acl::CreatorAll).unwrap();
}

#[track_caller]
fn identities(session: &Session, path: &str) -> Vec<String> {
    let (acl, _) = session.requests().within(SOON).acl(path).unwrap();
    acl.iter().map(|entry| format!("{}:{}", entry.scheme, entry.id)).collect()
}

fn the_login_gives_the_session_its_identity() {
    let server = server().start();
    let session = alice(&server.connect_string());
    make_own(&session, "/a");
    assert_eq!(identities(&session, "/a"), ["sasl:alice"]);
    let bob = Session::connect(config(&server.connect_string(), "bob", "s3cret")).unwrap();
    let refused = bob.requests().within(SOON).get("/a").unwrap_err();
    assert!(matches!(refused, Error::NoAuth { .. }), "{refused}");
    let nobody = Raw::connect(&server.connect_string()).unwrap().get_data("/a");
    assert_eq!(nobody.err().and_then(|e| e.code()), Some(NO_AUTH));
    session.close().unwrap();
}

fn a_wrong_password_and_an_unknown_user_are_refused_with_what_to_check() {
    let server = server().start();
    // (ZooKeeper 3.8.0 lets an unknown user in with the password of whom it has let in last.)
    for (user, password) in [("alice", "wrong"), ("mallory", "of-nobody")] {
        let e = refused(config(&server.connect_string(), user, password));
        assert!(matches!(e, Error::Auth { .. }), "{e}");
        let user = format!("SASL DIGEST-MD5 as {user:?}");
        assert_says(&e.to_string(), &["connect", &user, "AuthFailed", "password", "JAAS"]);
        assert!(!e.to_string().contains(password), "a message has the password: {e}");
    }
}

fn a_session_that_resumes_logs_in_again() {
    let server = server().start();
    let proxy = Proxy::start(server.address());
    let session = alice(&proxy.connect_string());
    make_own(&session, "/a");
    let id = session.status().session_id;
    for round in 1..=3 {
        proxy.cut();
        // The call waits for the connection and the login.
        let node = session.requests().within(SOON).get("/a").unwrap();
        assert_eq!((node.data, session.status().session_id), (b"own".to_vec(), id));
        until("the session has resumed", SOON, || {
            (session.status().stats.reconnected >= round).then_some(())
        });
    }
}

fn a_server_that_requires_a_login_serves_only_sessions_that_log_in() {
    let server = server().requires_sasl().start();
    let servers = server.connect_string();
    let session = alice(&servers);
    make_own(&session, "/a");
    session.close().expect("the close needs the login too");
    // The server makes the session, and ends it at its first request.
    let nobody = Session::connect(Config::new(&servers).connect_timeout(SOON)).unwrap();
    let e = nobody.requests().within(SOON).get("/a").expect_err("the server serves everybody");
    assert!(matches!(e, Error::Auth { .. }), "{e}");
    assert_says(&e.to_string(), &["read /a", "log in", "SASL", "enforce.auth.schemes"]);
    // Each of two servers takes the session up, which shows nothing, and refuses its first request.
    let proxy = Proxy::start(server.address());
    let both = format!("{servers},{}", proxy.connect_string());
    let nobody = Session::connect(Config::new(both).connect_timeout(SOON)).unwrap();
    let e = nobody.requests().within(SOON).get("/a").expect_err("the servers serve everybody");
    assert!(matches!(e, Error::Auth { .. }), "{e}");
    let e = refused(config(&servers, "alice", "wrong"));
    assert!(matches!(e, Error::Auth { .. }), "{e}");
    assert_says(&e.to_string(), &["SASL DIGEST-MD5 as \"alice\"", "SessionClosedRequireSaslAuth"]);
}

fn a_server_that_enforces_another_scheme_says_so() {
    let server = server().enforces_auth("digest").start();
    let servers = server.connect_string();
    let session = alice(&servers);
    let e = until("the server refuses a request", SOON, || {
        let refused = session.requests().within(SOON).exists("/").err();
        refused.filter(|e| e.to_string().contains("otherwise"))
    });
    assert_says(&e.to_string(), &["SASL DIGEST-MD5 as \"alice\"", "enforce.auth.schemes"]);
    let both = config(&servers, "alice", "secret").auth("digest", "carol:word");
    let session = Session::connect(both).unwrap();
    assert!(session.requests().within(SOON).exists("/").unwrap().is_some());
}

fn credentials_of_another_scheme_go_behind_the_login() {
    let server = server().start();
    let both = config(&server.connect_string(), "alice", "secret").auth("digest", "carol:word");
    let session = Session::connect(both).unwrap();
    make_own(&session, "/a");
    let mut identities = identities(&session, "/a");
    identities.sort();
    let [digest, sasl] = &identities[..] else { panic!("{identities:?}") };
    assert!(digest.starts_with("digest:carol:"), "{digest}");
    assert_eq!(sasl, "sasl:alice");
}

fn a_failed_login_is_no_login_where_the_server_lets_it_pass() {
    let server = server().allows_failed_sasl().start();
    let servers = server.connect_string();
    let e = refused(config(&servers, "alice", "wrong"));
    assert!(matches!(e, Error::Auth { .. }), "{e}");
    assert_says(&e.to_string(), &["SASL DIGEST-MD5", "not proven", "allowSaslFailedClients"]);
    make_own(&alice(&servers), "/a");
    let nobody = Session::connect(Config::new(&servers).connect_timeout(SOON)).unwrap();
    assert!(nobody.requests().within(SOON).exists("/").unwrap().is_some());
}

fn a_server_without_sasl_is_named_and_so_is_what_it_lacks() {
    let server = Server::start();
    let servers = server.connect_string();
    let config = config(&servers, "alice", "secret").connect_timeout(Duration::from_secs(3));
    let e = refused(config);
    let Error::Connect { hosts, .. } = &e else { panic!("{e}") };
    assert_eq!(hosts[0].host, servers);
    assert_says(&e.to_string(), &["SASL DIGEST-MD5", "JAAS", "Server"]);
}

/// One server may have an old password, or an old key.
fn one_server_that_refuses_the_login_costs_nothing_while_another_takes_it() {
    let (server, stale) =
        (server().start(), Server::builder().sasl_digest(&[("bob", "b")]).start());
    let proxy = Proxy::start(stale.address());
    let both = format!("{},{}", proxy.connect_string(), server.connect_string());
    until("a session has dialled the stale server first", SOON, || {
        let session = alice(&both);
        assert!(session.requests().within(SOON).exists("/").unwrap().is_some());
        (proxy.count(OpKind::Sasl) > 0).then_some(())
    });
    // The hosts are of two ensembles. A session that the first has made is unknown to the second,
    // and each host refuses the login.
    let e = refused(config(&both, "mallory", "of-nobody").connect_timeout(Duration::from_secs(3)));
    let Error::Connect { hosts, .. } = &e else { panic!("{e}") };
    let said = |host: &zk_session::HostFailure| host.reason.contains("refused SASL DIGEST-MD5");
    assert!(hosts.iter().any(said), "no host's answer is told: {e}");
    // Two ways to one server are two hosts, and both refuse.
    let hosts = format!("{},{}", proxy.connect_string(), stale.connect_string());
    let e = refused(config(&hosts, "alice", "secret"));
    assert!(matches!(e, Error::Auth { .. }), "all refuse: {e}");
}

/// What the servers would say now is not known, and a call waits for them as in any outage.
fn an_outage_behind_a_refused_login_is_called_an_outage() {
    let server = server().start();
    let proxy = Proxy::start(server.address());
    let wrong = config(&proxy.connect_string(), "alice", "wrong");
    let session = Session::connect_in_background(wrong).unwrap();
    let zk = session.requests().within(Duration::from_secs(1));
    until("the login is refused", SOON, || {
        matches!(zk.exists("/"), Err(Error::Auth { .. })).then_some(())
    });
    proxy.refuse(true);
    until("an outage", SOON, || {
        matches!(zk.exists("/"), Err(Error::Unavailable { .. })).then_some(())
    });
    let begun = std::time::Instant::now();
    assert!(matches!(zk.exists("/"), Err(Error::Unavailable { .. })));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it waits for no deadline");
    proxy.refuse(false);
    until("the login is refused again", SOON, || {
        matches!(zk.exists("/"), Err(Error::Auth { .. })).then_some(())
    });
}

/// The second answer is the server's proof.
fn a_lost_answer_to_the_login_costs_the_connection_and_not_the_session() {
    let server = server().start();
    let proxy = Proxy::start(server.address());
    let session = alice(&proxy.connect_string());
    make_own(&session, "/a");
    let id = session.status().session_id;
    // The first token is empty, the second names the user.
    for which in [OpKind::Sasl.into(), OpKind::Sasl.on("alice")] {
        proxy.drop_reply(which);
        proxy.cut();
        session.requests().within(SOON).get("/a").unwrap();
        assert_eq!(proxy.plans(), 0, "the answer was not lost");
        assert_eq!(session.status().session_id, id);
    }
}

fn letters_of_other_alphabets_log_in() {
    // One password has an encoding in ISO 8859-1, in which Java hashes it, the other has none.
    let server = Server::builder().sasl_digest(&[("zoe", "käse \\ brot"), ("kim", "ключ")]).start();
    for (user, password) in [("zoe", "käse \\ brot"), ("kim", "ключ")] {
        let session = Session::connect(config(&server.connect_string(), user, password)).unwrap();
        make_own(&session, &format!("/{user}"));
    }
}

#[cfg(feature = "tls")]
fn the_login_goes_over_tls() {
    use zk_session::TlsConfig;
    use zk_test_support::{Scratch, pki::Pki, tls::ServerSide};
    let scratch = Scratch::new("login");
    let pki = Pki::new(scratch.path(), "own");
    let side = ServerSide { pki: pki.clone(), leaf: None, wants_clients: false };
    let server = server().requires_sasl().tls(side).start();
    let config =
        |password| config(&server.secure(), "alice", password).tls(TlsConfig::new(pki.ca_file()));
    let session = Session::connect(config("secret")).unwrap_or_else(|e| panic!("{e}"));
    make_own(&session, "/a");
    assert_eq!(identities(&session, "/a"), ["sasl:alice"]);
    session.close().unwrap();
    assert!(matches!(refused(config("wrong")), Error::Auth { .. }));
}
