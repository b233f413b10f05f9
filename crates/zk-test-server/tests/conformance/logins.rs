//! Logins by SASL DIGEST-MD5: what they give, how they fail, and what a server serves without one.
use super::{
    answers::{Body, Heard, Reply},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_test_support::{Server, Shared, raw::Acl, scenarios, server::Builder};
use zk_wire::digest_md5::{self, Step};

scenarios![
    a_login_gives_an_identity,
    names_and_passwords_have_letters_of_all_kinds,
    a_login_that_fails_ends_the_connection_and_not_the_session,
    the_first_token_may_be_any,
    responses_are_read_as_java_reads_them,
    a_connection_has_one_login,
    a_login_belongs_to_its_connection,
    tokens_do_not_keep_a_session,
    entries_of_sasl_are_names_of_kerberos,
    the_user_super_is_meant_by_each_entry,
    where_a_login_is_required_nothing_is_served_before,
    where_a_login_is_required_a_failed_one_is_told_as_a_missing_one,
    failed_logins_are_allowed,
    a_server_without_users_answers_null,
    a_token_that_is_none_closes_the_connection,
];

/// The answer to a request of a connection that must log in first.
const REQUIRES_AUTH: i32 = -124;

/// A server with two users.
fn users() -> Builder {
    Server::builder().sasl_digest(&[("alice", "secret"), ("bob", "hidden")])
}

fn sasl(perms: i32, user: &str) -> Acl {
    acl(perms, "sasl", user)
}

/// Sends a token. The answer must have this error code, no zxid, and a token; and with an error
/// the server must close the connection.
#[track_caller]
fn say(client: &mut Client, token: &[u8], code: i32) -> Option<Vec<u8>> {
    let Reply { zxid, err, body, .. } = client.call(&Req::Sasl(Some(token.to_vec())));
    assert_eq!((zxid, err), (0, code), "{body:?}");
    if code != 0 {
        assert_eq!(body, Body::Token(None));
        assert_eq!(client.next(), Heard::Closed);
    }
    match body {
        Body::Token(token) => token,
        other => panic!("{other:?}"),
    }
}

/// Begins a login, and returns the response to the server's challenge, with the client's side.
#[track_caller]
fn respond(client: &mut Client, user: &str, password: &str) -> (digest_md5::Client, Vec<u8>) {
    let challenge = say(client, b"", 0).expect("a challenge");
    let mut login = digest_md5::Client::new(user, password, "a1b2c3");
    match login.step(&challenge) {
        Ok(Step::Send(response)) => (login, response),
        other => panic!("{other:?}"),
    }
}

/// Logs in. The server must prove that it knows the password too.
#[track_caller]
fn log_in(client: &mut Client, user: &str, password: &str) {
    let (mut login, response) = respond(client, user, password);
    let proof = say(client, &response, 0).expect("a proof");
    assert_eq!(login.step(&proof), Ok(Step::Done));
}

/// The users of SASL that the connection is.
#[track_caller]
fn who(client: &mut Client) -> Vec<String> {
    let Body::Who(who) = client.body(&Req::WhoAmI) else { panic!("no list") };
    assert!(who.iter().any(|(scheme, _)| scheme == "ip"), "{who:?}");
    who.into_iter().filter(|(scheme, _)| scheme == "sasl").map(|(_, user)| user).collect()
}

#[track_caller]
fn list(client: &mut Client, path: &str) -> Vec<Acl> {
    match client.body(&get_acl(path)) {
        Body::Acl(list, _) => list,
        other => panic!("{other:?}"),
    }
}

/// The session still lives: another connection takes it over, and is returned.
#[track_caller]
fn resumed(client: &Client, address: &str) -> Client {
    Hello::again(client).say(address).filter(|again| again.id() == client.id()).expect("a session")
}

fn a_login_gives_an_identity() {
    let server = users().start();
    let address = server.connect_string();
    let (mut alice, mut bob) = (Client::connect(&address), Client::connect(&address));
    let mut stranger = Client::connect(&address);
    assert_eq!(who(&mut alice), [""; 0]);
    log_in(&mut alice, "alice", "secret");
    log_in(&mut bob, "bob", "hidden");
    assert_eq!(who(&mut alice), ["alice"]);
    alice.good(&create("/mine").acl(&[sasl(31, "alice")]));
    alice.good(&create("/shared").acl(&[sasl(31, "alice"), sasl(1, "bob")]));
    for (path, of_bob) in [("/mine", NO_AUTH), ("/shared", 0)] {
        alice.good(&set_data(path, b"1"));
        assert_eq!(bob.code(&get_data(path)), of_bob, "{path}");
        codes(&mut bob, &[(set_data(path, b"2"), NO_AUTH), (create("/mine/b"), NO_AUTH)]);
        codes(&mut stranger, &[(get_data(path), NO_AUTH), (set_data(path, b"2"), NO_AUTH)]);
    }
    // The scheme `auth` stands for the login, and for other credentials.
    assert_eq!(stranger.code(&create("/n").acl(&[acl(31, "auth", "")])), INVALID_ACL);
    alice.good(&create("/auth").acl(&[acl(3, "auth", "")]));
    assert_eq!(list(&mut alice, "/auth"), [sasl(3, "alice")]);
    alice.good(&auth("digest", "alice:wonder"));
    alice.good(&create("/both").acl(&[acl(1, "auth", "")]));
    let mut both = list(&mut alice, "/both");
    both.sort_by(|one, other| one.scheme.cmp(&other.scheme));
    assert_eq!(both.iter().map(|entry| &*entry.scheme).collect::<Vec<_>>(), ["digest", "sasl"]);
    // Names are not masked, and `addAuth` is no way to log in.
    assert_eq!(list(&mut bob, "/shared"), [sasl(31, "alice"), sasl(1, "bob")]);
    assert_eq!(stranger.code(&auth("sasl", "alice:secret")), AUTH_FAILED);
    assert_eq!(stranger.next(), Heard::Closed);
}

fn names_and_passwords_have_letters_of_all_kinds() {
    let users = [
        ("plain", ""),
        ("comma", "a, b=\"c\""),
        ("back", "a\\b\\"),
        ("latin", "käse"),
        ("wide", "ключ"),
        ("zoë", "secret"),
    ];
    let server = Server::builder().sasl_digest(&users).start();
    for (name, password) in users {
        let mut client = Client::connect(&server.connect_string());
        log_in(&mut client, name, password);
        assert_eq!(who(&mut client), [name]);
    }
}

fn a_login_that_fails_ends_the_connection_and_not_the_session() {
    let server = users().start();
    let address = server.connect_string();
    let mut other = Client::connect(&address);
    let foreign = respond(&mut other, "alice", "secret").1;
    for (name, token) in [
        ("a wrong password", None),
        ("an unknown user", None),
        ("another user's password", None),
        ("a response to another challenge", Some(foreign)),
        ("no response", Some(b"".to_vec())),
        ("no directive", Some(b"alice".to_vec())),
        ("no UTF-8", Some(b"username=\"\xff\"".to_vec())),
        ("a long token", Some(vec![b'a'; 4097])),
    ] {
        let mut client = Client::connect(&address);
        client.good(&ephemeral("/e"));
        let (user, password) = match name {
            "an unknown user" => ("nobody", "unknown"),
            "another user's password" => ("alice", "hidden"),
            _ => ("alice", "wrong"),
        };
        let (_, response) = respond(&mut client, user, password);
        println!("{name}");
        say(&mut client, &token.unwrap_or(response), AUTH_FAILED);
        let mut again = resumed(&client, &address);
        assert_eq!(stat(&mut again, "/e").ephemeral_owner, client.id(), "{name}");
        again.close();
    }
    // A response is good once, and for one connection.
    let (_, response) = respond(&mut Client::connect(&address), "alice", "secret");
    let mut client = Client::connect(&address);
    say(&mut client, b"", 0);
    say(&mut client, &response, AUTH_FAILED);
}

fn the_first_token_may_be_any() {
    let server = users().start();
    for token in [&b"x"[..], b"username=\"alice\"", &[b'a'; 4096]] {
        let mut client = Client::connect(&server.connect_string());
        let challenge = say(&mut client, token, 0).expect("a challenge");
        let mut login = digest_md5::Client::new("alice", "secret", "a1b2c3");
        let Ok(Step::Send(response)) = login.step(&challenge) else { panic!("no response") };
        say(&mut client, &response, 0);
        assert_eq!(who(&mut client), ["alice"]);
    }
    let mut client = Client::connect(&server.connect_string());
    say(&mut client, &[b'a'; 4097], AUTH_FAILED);
}

fn responses_are_read_as_java_reads_them() {
    let server = users().start();
    for (part, other, code) in [
        ("nc=00000001,", "", 0),
        ("nc=00000001", "nc=2", 0),
        ("nc=00000001", "nc=zz", 0),
        (",maxbuf=65536", "", 0),
        ("charset=utf-8,", "", 0),
        ("charset=utf-8", "charset=UTF-8", AUTH_FAILED),
        (",qop=auth", "", 0),
        ("qop=auth", "QOP=\"auth\"", 0),
        ("qop=auth", "qop = auth , ,", 0),
        ("qop=auth", "qop=AUTH", AUTH_FAILED),
        ("qop=auth", "qop=auth-int", AUTH_FAILED),
        ("qop=auth", "qop=auth qop=auth", AUTH_FAILED),
        ("qop=auth", "qop=auth,qop=auth", AUTH_FAILED),
        ("qop=auth", "qop=auth,other=\"a, b\"", 0),
        ("qop=auth", "qop=auth,other=", AUTH_FAILED),
        ("qop=auth", "qop=auth,=other", AUTH_FAILED),
        ("qop=auth", "qop=auth,authzid=\"\"", AUTH_FAILED),
        ("qop=auth", "qop=auth,authzid=\"bob\"", AUTH_FAILED),
        ("username=\"alice\"", "username=alice", 0),
        ("username=\"alice\"", "username=\"\\alice\"", 0),
        ("username=\"alice\"", "username=\"alice", AUTH_FAILED),
        ("username=\"alice\"", "username=\"Alice\"", AUTH_FAILED),
        ("username=\"alice\",", "", AUTH_FAILED),
        ("realm=\"zk-sasl-md5\",", "", AUTH_FAILED),
        ("realm=\"zk-sasl-md5\"", "realm=\"other\"", AUTH_FAILED),
        ("digest-uri=\"zookeeper/zk-sasl-md5\",", "", AUTH_FAILED),
        ("digest-uri=\"zookeeper", "digest-uri=\"other", AUTH_FAILED),
        ("cnonce=\"a1b2c3\",", "", AUTH_FAILED),
        ("cnonce=\"a1b2c3\"", "cnonce=\"other\"", AUTH_FAILED),
    ] {
        let mut client = Client::connect(&server.connect_string());
        let (_, response) = respond(&mut client, "alice", "secret");
        let response = String::from_utf8(response).expect("UTF-8");
        assert!(response.contains(part), "{response}");
        println!("{other:?} in the place of {part:?}");
        say(&mut client, response.replacen(part, other, 1).as_bytes(), code);
    }
}

fn a_connection_has_one_login() {
    let server = users().start();
    for token in [&b""[..], b"again"] {
        let mut client = Client::connect(&server.connect_string());
        log_in(&mut client, "alice", "secret");
        say(&mut client, token, AUTH_FAILED);
    }
}

fn a_login_belongs_to_its_connection() {
    let server = users().start();
    let address = server.connect_string();
    let mut first = Client::connect(&address);
    log_in(&mut first, "alice", "secret");
    first.good(&ephemeral("/mine").acl(&[sasl(31, "alice")]));
    let mut second = resumed(&first, &address);
    assert_eq!(first.next(), Heard::Closed);
    assert_eq!(second.code(&get_data("/mine")), NO_AUTH);
    assert_eq!(who(&mut second), [""; 0]);
    log_in(&mut second, "alice", "secret");
    second.good(&get_data("/mine"));
    // The session may have another user on its next connection.
    let mut third = resumed(&second, &address);
    log_in(&mut third, "bob", "hidden");
    assert_eq!(who(&mut third), ["bob"]);
    assert_eq!(third.code(&get_data("/mine")), NO_AUTH);
    third.close();
}

fn tokens_do_not_keep_a_session() {
    let server = users().allows_failed_sasl().start();
    let address = server.connect_string();
    let mut client = Hello::new().timeout(2_000).say(&address).expect("a welcome");
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        client.send(&[Req::Sasl(Some(Vec::new()))]);
        match client.next() {
            Heard::Closed => break,
            heard => assert!(Instant::now() < limit, "{heard:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
    let again = Hello::again(&client).say(&address).expect("an answer");
    assert_eq!(again.id(), 0, "the session has ended");
}

fn entries_of_sasl_are_names_of_kerberos() {
    let server = users().start();
    let mut client = Client::connect(&server.connect_string());
    for (number, (name, code)) in [
        ("alice", 0),
        ("", 0),
        ("nobody", 0),
        ("alice/host", 0),
        ("a/b/c", 0),
        ("alice@EXAMPLE.COM", 0),
        ("alice/host@EXAMPLE.COM", 0),
        ("@", 0),
        ("a/b/c@EXAMPLE.COM", INVALID_ACL),
        ("alice@EXAMPLE/COM", INVALID_ACL),
        ("alice@EXAMPLE@COM", INVALID_ACL),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        assert_eq!(client.code(&create(&path).acl(&[sasl(31, name)])), code, "{name}");
    }
}

fn the_user_super_is_meant_by_each_entry() {
    let users = [("alice", "secret"), ("super", "man")];
    let server = Server::builder().sasl_digest(&users).start();
    let address = server.connect_string();
    let (mut alice, mut chief) = (Client::connect(&address), Client::connect(&address));
    log_in(&mut alice, "alice", "secret");
    log_in(&mut chief, "super", "man");
    alice.good(&create("/sasl").acl(&[sasl(1, "alice")]));
    alice.good(&auth("digest", "alice:wonder"));
    alice.good(&create("/digest").acl(&[acl(31, "digest", ALICE)]));
    codes(
        &mut chief,
        &[
            (get_data("/sasl"), 0),
            (set_data("/sasl", b""), NO_AUTH),
            (get_data("/digest"), NO_AUTH),
        ],
    );
    assert_eq!(who(&mut chief), ["super"]);
}

fn where_a_login_is_required_nothing_is_served_before() {
    let server = users().requires_sasl().start();
    let address = server.connect_string();
    let mut owner = Client::connect(&address);
    log_in(&mut owner, "alice", "secret");
    owner.good(&ephemeral("/e"));
    let watches = Watches { seen: 0, ..Watches::default() };
    let unknown = Req::Other { op: 4242, body: vec![1, 2, 3] };
    for request in [
        get_data("/e"),
        create("/n"),
        Req::Ping,
        Req::WhoAmI,
        Req::SetWatches(watches),
        unknown,
        Req::CloseSession,
    ] {
        let mut client = resumed(&owner, &address);
        // Credentials are taken before a login, and stand for none.
        client.good(&auth("digest", "alice:wonder"));
        let reply = client.call(&request);
        let told = (reply.zxid, reply.err, reply.body);
        assert_eq!(told, (0, REQUIRES_AUTH, Body::Empty), "{request:?}");
        assert_eq!(client.next(), Heard::Closed, "{request:?}");
    }
    // The session lives on, also after the client has tried to close it.
    let mut again = resumed(&owner, &address);
    log_in(&mut again, "bob", "hidden");
    assert_eq!(stat(&mut again, "/e").ephemeral_owner, owner.id());
    assert_eq!(again.code(&get_data("/n")), NO_NODE);
    again.close();
}

fn where_a_login_is_required_a_failed_one_is_told_as_a_missing_one() {
    // It makes no difference that failed logins are allowed.
    let server = users().requires_sasl().allows_failed_sasl().start();
    let address = server.connect_string();
    let mut client = Client::connect(&address);
    let (_, response) = respond(&mut client, "alice", "wrong");
    say(&mut client, &response, REQUIRES_AUTH);
    let mut client = resumed(&client, &address);
    assert_eq!(client.code(&auth("sasl", "alice:secret")), AUTH_FAILED);
    let mut client = resumed(&client, &address);
    log_in(&mut client, "alice", "secret");
    client.close();
}

fn failed_logins_are_allowed() {
    let server = users().allows_failed_sasl().start();
    let address = server.connect_string();
    let mut client = Client::connect(&address);
    let (_, response) = respond(&mut client, "alice", "wrong");
    assert_eq!(say(&mut client, &response, 0), None);
    client.good(&create("/n"));
    // There is no second login.
    assert_eq!(say(&mut client, b"", 0), None);
    assert_eq!(who(&mut client), [""; 0]);
    // A token that is too long does not end the login.
    let mut client = Client::connect(&address);
    assert_eq!(say(&mut client, &[b'a'; 4097], 0), None);
    let (mut login, response) = respond(&mut client, "alice", "secret");
    assert_eq!(say(&mut client, &[b'a'; 4097], 0), None);
    let proof = say(&mut client, &response, 0).expect("a proof");
    assert_eq!(login.step(&proof), Ok(Step::Done));
    assert_eq!(who(&mut client), ["alice"]);
    assert_eq!(say(&mut client, b"again", 0), None);
    assert_eq!(who(&mut client), ["alice"]);
}

fn a_server_without_users_answers_null() {
    let mut client = Client::connect(&Shared::chroot());
    for token in [&b""[..], b"username=\"alice\"", &[b'a'; 5000]] {
        assert_eq!(say(&mut client, token, 0), None);
    }
    assert_eq!(who(&mut client), [""; 0]);
    assert_eq!(client.code(&create("/n").acl(&[sasl(31, "alice")])), INVALID_ACL);
}

fn a_token_that_is_none_closes_the_connection() {
    let with = users().start();
    for address in [Shared::chroot(), with.connect_string()] {
        for body in [&b"\xff\xff\xff\xff"[..], b"", b"\0\0\0\x08ab", b"\x80\0\0\0"] {
            let mut client = Client::connect(&address);
            client.good(&ephemeral("/e"));
            client.send(&[Req::Other { op: op::SASL, body: body.to_vec() }]);
            assert_eq!(client.next(), Heard::Closed, "{body:?}");
            let mut again = resumed(&client, &address);
            assert_eq!(stat(&mut again, "/e").ephemeral_owner, client.id());
            again.close();
        }
    }
}
