//! A login by Kerberos, with a KDC of the scenario's own.

use crate::client::{Client, TIMEOUT, WITHIN};
use crate::{SOON, assert_says};
use std::path::Path;
use std::time::{Duration, Instant};
use zk_test_support::{Kdc, Proxy, Raw, Server, at_best, control, server::Builder, until};

zk_test_support::scenarios![on real;
    a_ticket_lets_the_session_in_as_its_principal,
    a_keytab_gets_the_tickets_by_itself_and_new_ones_when_they_expire,
    an_expired_ticket_is_named_and_a_new_one_lets_the_session_go_on,
    a_session_without_a_ticket_says_how_to_get_one,
    a_server_whose_principal_is_unknown_to_the_kdc_is_named,
    a_clock_that_differs_from_the_kdcs_is_named,
    a_server_with_another_clock_refuses_the_login,
    a_server_with_an_old_key_refuses_the_login,
    servers_with_the_old_and_the_new_key_take_tickets_of_both,
    a_new_key_in_a_clients_keytab_costs_no_hold,
    an_old_key_in_a_clients_keytab_is_named,
    a_kdc_that_does_not_answer_is_named_and_delays_nothing,
    a_kdc_that_does_not_answer_delays_the_loss_of_no_hold,
    a_session_that_cannot_log_in_any_more_keeps_its_node_for_no_longer_than_an_outage,
    a_server_that_requires_a_login_takes_the_close_of_a_session_that_has_one,
];

fn server(kdc: &Kdc) -> Builder {
    Server::builder().sasl_kerberos(kdc)
}

type Environment = Vec<(&'static str, std::ffi::OsString)>;

/// The file with the tickets of this environment.
fn cache(environment: &Environment) -> &Path {
    let cache = environment.iter().find(|(name, _)| *name == "KRB5CCNAME");
    Path::new(&cache.expect("a cache").1)
}

/// Waits until the cache of this environment has no valid ticket.
#[track_caller]
fn await_expiry(kdc: &Kdc, environment: &Environment) {
    until("the ticket has expired", SOON, || kdc.klist(cache(environment)).is_none().then_some(()));
}

const LONG: Duration = Duration::from_secs(3600);
/// Long enough for the start of a client on a busy machine, and soon over.
const SHORT: Duration = Duration::from_secs(10);

/// A client, with its environment, that gets tickets by a keytab, and whose tickets end soon.
#[track_caller]
fn with_short_tickets(kdc: &Kdc, proxy: &Proxy) -> (Client, Environment) {
    kdc.add("alice");
    kdc.limit_life("alice", SHORT);
    let environment = kdc.environment_with_keytab("alice");
    (Client::start(&proxy.connect_string(), environment.clone()), environment)
}

fn a_ticket_lets_the_session_in_as_its_principal() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let mut alice =
        Client::start(&server.connect_string(), kdc.environment_with_ticket("alice", LONG));
    assert_eq!(alice.does("make /a"), "made");
    assert_eq!(alice.does("owners /a"), "sasl:alice@ZK.TEST");
    let mut bob = Client::start(&server.connect_string(), kdc.environment_with_ticket("bob", LONG));
    assert_says(&bob.fails("read /a"), &["the ACL of this node", "READ"]);
    assert_eq!(alice.does("close"), "closed");
}

fn a_keytab_gets_the_tickets_by_itself_and_new_ones_when_they_expire() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    let (mut alice, environment) = with_short_tickets(&kdc, &proxy);
    assert_eq!(alice.does("make /a"), "made");
    await_expiry(&kdc, &environment);
    proxy.cut();
    alice.hear("reconnected");
    assert_eq!(alice.does("read /a"), "read own");
}

fn an_expired_ticket_is_named_and_a_new_one_lets_the_session_go_on() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    let environment = kdc.environment_with_ticket("alice", SHORT);
    let mut alice = Client::start(&proxy.connect_string(), environment.clone());
    assert_eq!(alice.does("make /a"), "made");
    await_expiry(&kdc, &environment);
    // A connection that is logged in needs no ticket any more.
    assert_eq!(alice.does("read /a"), "read own");
    // (In the second of its end the library may take a ticket that klist calls expired.)
    let said = until("a connection needs a ticket", SOON, || {
        proxy.cut();
        alice.tries("read /a").err().filter(|said| said.contains("SASL"))
    });
    assert_says(&said, &["SASL GSSAPI", "Ticket expired", "kinit", "KRB5_CLIENT_KTNAME"]);
    kdc.kinit("alice", cache(&environment), LONG);
    until("the session goes on", SOON, || {
        (alice.tries("read /a").as_deref() == Ok("read own")).then_some(())
    });
}

/// What a client says that cannot connect.
#[track_caller]
fn outage(client: &mut Client) -> String {
    until("the host's answer", SOON, || {
        client.tries("read /a").err().filter(|said| said.contains("SASL"))
    })
}

fn a_session_without_a_ticket_says_how_to_get_one() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let mut nobody = Client::start(&server.connect_string(), kdc.environment());
    let said = outage(&mut nobody);
    assert_says(&said, &["SASL GSSAPI", "No Kerberos credentials", "kinit", "KRB5_CLIENT_KTNAME"]);
}

fn a_server_whose_principal_is_unknown_to_the_kdc_is_named() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::with_host(&server.connect_string(), "elsewhere.test", environment);
    let said = outage(&mut alice);
    assert_says(&said, &["zookeeper@elsewhere.test", "not found in Kerberos database"]);
    assert_says(&said, &["Gssapi::server_host"]);
}

fn a_clock_that_differs_from_the_kdcs_is_named() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let environment = kdc.environment_with_ticket("alice", LONG);
    kdc.shift_clock(600);
    let mut alice = Client::start(&server.connect_string(), environment);
    assert_says(&outage(&mut alice), &["SASL GSSAPI", "Clock skew too great", "set the clocks"]);
}

fn a_server_with_another_clock_refuses_the_login() {
    let kdc = Kdc::start();
    let server = server(&kdc).shifted_clock(600).start();
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::start(&server.connect_string(), environment);
    let said = outage(&mut alice);
    assert_says(&said, &["the server refused SASL GSSAPI", "AuthFailed", "clocks", "log"]);
}

fn a_server_with_an_old_key_refuses_the_login() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    kdc.rekey(zk_test_support::sasl::SERVICE);
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::start(&server.connect_string(), environment);
    let said = outage(&mut alice);
    assert_says(&said, &["the server refused SASL GSSAPI", "AuthFailed", "keytab"]);
}

/// A server reads its keytab at each login, so it needs no restart.
fn servers_with_the_old_and_the_new_key_take_tickets_of_both() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::start(&proxy.connect_string(), environment);
    assert_eq!(alice.does("make /a"), "made");
    kdc.rekey_with_keytab(zk_test_support::sasl::SERVICE);
    proxy.cut(); // alice's ticket for the servers is of the old key
    alice.hear("reconnected");
    assert_eq!(alice.does("read /a"), "read own");
    let mut bob = Client::start(&server.connect_string(), kdc.environment_with_ticket("bob", LONG));
    assert_says(&bob.fails("read /a"), &["the ACL of this node", "READ"]);
}

fn a_new_key_in_a_clients_keytab_costs_no_hold() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    let (mut alice, environment) = with_short_tickets(&kdc, &proxy);
    assert_eq!(alice.does("hold /held-"), "held");
    kdc.rekey_with_keytab("alice");
    await_expiry(&kdc, &environment);
    proxy.cut();
    alice.hear("reconnected");
    assert_eq!(alice.does("held?"), "true");
}

fn an_old_key_in_a_clients_keytab_is_named() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let said_of = |principal: &str| {
        let environment = kdc.environment_with_keytab(principal);
        kdc.rekey(principal);
        outage(&mut Client::start(&server.connect_string(), environment))
    };
    assert_says(&said_of("alice"), &["Decrypt integrity check failed", "has an old key"]);
    kdc.add("bob");
    kdc.require_preauthentication("bob");
    assert_says(&said_of("bob"), &["Preauthentication failed", "has an old key"]);
}

/// The library of Kerberos waits for half a minute, and no call of the client does.
fn a_kdc_that_does_not_answer_is_named_and_delays_nothing() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    control::start();
    let environment = kdc.environment_with_keytab("alice");
    kdc.pause();
    let mut alice = Client::start(&server.connect_string(), environment);
    let said = until("the host's answer", SOON, || {
        let begun = Instant::now();
        let said = alice.fails("read /a");
        let (took, bound) = (at_best(begun), WITHIN + Duration::from_secs(1));
        assert!(took < bound, "a call waits for the KDC: {took:?}");
        said.contains("KDC").then_some(said)
    });
    assert_says(&said, &["SASL GSSAPI", "does the KDC answer?"]);
    kdc.resume();
    alice.hear("connected");
    assert_says(&alice.fails("read /a"), &["there is no such node"]);
}

fn a_kdc_that_does_not_answer_delays_the_loss_of_no_hold() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    control::start();
    let (mut alice, environment) = with_short_tickets(&kdc, &proxy);
    assert_eq!(alice.does("hold /held-"), "held");
    await_expiry(&kdc, &environment);
    assert_eq!(alice.does("held?"), "true");
    kdc.pause();
    let begun = Instant::now();
    proxy.cut();
    alice.hear("hold lost");
    let took = at_best(begun);
    assert!(took < TIMEOUT, "the holder learns of its loss after {took:?}");
    kdc.resume();
}

/// Each handshake is a sign of life for the servers, so they never expire such a session.
fn a_session_that_cannot_log_in_any_more_keeps_its_node_for_no_longer_than_an_outage() {
    let kdc = Kdc::start();
    let server = server(&kdc).start();
    let proxy = Proxy::start(server.address());
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::start(&proxy.connect_string(), environment.clone());
    assert_eq!(alice.does("hold /held-"), "held");
    std::fs::remove_file(cache(&environment)).expect("the tickets are there");
    proxy.cut();
    let mut them = Raw::connect_timeout(&server.connect_string(), LONG).unwrap();
    until("nobody finds the node any more", TIMEOUT * 4, || {
        them.children("/").unwrap().iter().all(|name| !name.starts_with("held-")).then_some(())
    });
}

fn a_server_that_requires_a_login_takes_the_close_of_a_session_that_has_one() {
    let kdc = Kdc::start();
    let server = server(&kdc).requires_sasl().start();
    let environment = kdc.environment_with_ticket("alice", LONG);
    let mut alice = Client::start(&server.connect_string(), environment.clone());
    assert_eq!(alice.does("hold /held-"), "held");
    assert_eq!(alice.does("close"), "closed");
    // The close has reached the server, so the node is gone before the session could expire.
    let mut other = Client::start(&server.connect_string(), environment);
    assert_eq!(other.does("children /"), "zookeeper");
}
