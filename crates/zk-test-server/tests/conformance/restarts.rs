//! A server that is killed and started again has kept everything but its connections and their
//! state.
use super::{
    answers::{Body, Heard},
    checks::*,
    client::{Client, Hello},
    requests::{mode::*, *},
};
use std::time::Duration;
use zk_test_support::{Server, scenarios, until};

scenarios![nodes_sessions_and_counters_are_kept, containers_are_still_reaped_after_a_restart];

const SOON: Duration = Duration::from_secs(20);

fn nodes_sessions_and_counters_are_kept() {
    let server = Server::start();
    let address = &server.connect_string();
    let mut client = Client::connect(address);
    let mut closed = Client::connect(address);
    client.good(&auth("digest", "alice:wonder"));
    client.good(&create("/p").data(b"data"));
    client.good(&set_data("/p", b"more data"));
    client.good(&create("/null").null_data());
    client.good(&create("/locked").acl(&[acl(31, "auth", "")]));
    client.good(&set_acl("/p", &[acl(31, "world", "anyone"), acl(1, "ip", "10.0.0.0/8")]));
    client.good(&ephemeral("/p/e"));
    for number in 0..3 {
        assert_eq!(made(&mut client, &sequential("/p/n-")).0, format!("/p/n-{:010}", number + 1));
    }
    client.good(&delete("/p/n-0000000003"));
    client.good(&Req::Multi(vec![create("/m"), set_data("/m", b"1"), create("/m/1")]));
    assert_eq!(client.code(&create("/nothing/there")), NO_NODE);
    closed.good(&ephemeral("/gone"));
    closed.close();
    client.good(&watch_data("/p"));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    let paths = [
        "/",
        "/zookeeper",
        "/p",
        "/null",
        "/locked",
        "/p/e",
        "/p/n-0000000001",
        "/m",
        "/m/1",
        "/gone",
    ];
    let look = |client: &mut Client| {
        let reads = |path: &&str| [get_data(path), get_acl(path), get_children2(path)];
        let bodies = paths.iter().flat_map(reads).map(|read| client.call(&read).body);
        Vec::from_iter(bodies)
    };
    let before = look(&mut client);
    let last = client.good(&Req::Ping).zxid;
    server.restart();
    assert_eq!(client.rest(), []);
    let mut again = Hello { seen: last, ..Hello::again(&client) }.say(address).unwrap();
    assert_eq!(again.welcome, client.welcome);
    // The credentials have to be sent again, and the watches are gone.
    assert_eq!(again.code(&get_data("/locked")), NO_AUTH);
    again.good(&auth("digest", "alice:wonder"));
    assert_eq!(look(&mut again), before);
    assert_eq!(again.good(&Req::Ping).zxid, last);
    assert_eq!(zxid(&mut again, &set_data("/p", b"")), last + 1);
    heard(&mut again, &[]);
    assert_eq!(made(&mut again, &sequential("/p/n-")).0, "/p/n-0000000004");
    let ephemerals = again.body(&Req::GetEphemerals { prefix: String::new() });
    assert_eq!(ephemerals, Body::Names(vec!["/p/e".into()]));
    assert_eq!(Hello::again(&closed).say(address).unwrap().id(), 0);
    // New sessions get new ids.
    assert_ne!(Client::connect(address).id(), again.id());
    again.close();
    assert_eq!(Client::connect(address).code(&exists("/p/e")), NO_NODE);
}

fn containers_are_still_reaped_after_a_restart() {
    let server = Server::builder().container_check(Duration::from_millis(50)).start();
    let address = &server.connect_string();
    let mut client = Client::connect(address);
    client.good(&container("/c"));
    client.good(&create("/c/1"));
    client.good(&create_ttl("/t-", 1000).flags(SEQUENTIAL_TTL));
    client.good(&create("/t-0000000001/1"));
    let mut short = Hello::new().timeout(1000).say(address).unwrap();
    short.good(&ephemeral("/e"));
    server.restart();
    let mut client = Hello::again(&client).say(address).unwrap();
    codes(&mut client, &[(exists("/c"), 0), (exists("/t-0000000001"), 0)]);
    client.good(&delete("/c/1"));
    client.good(&delete("/t-0000000001/1"));
    for path in ["/c", "/t-0000000001", "/e"] {
        until(&format!("{path} goes"), SOON, || {
            (client.code(&exists(path)) == NO_NODE).then_some(())
        });
    }
    assert_eq!(short.next(), Heard::Closed);
    assert_eq!(Hello::again(&short).say(address).unwrap().id(), 0);
}
