//! The end of the numbers of sequential nodes: what follows 2147483647.
use super::{
    answers::{Body, Outcome},
    checks::*,
    client::Client,
    requests::{mode::*, *},
};
use std::collections::HashSet;
use zk_test_support::{Server, raw::Stat, scenarios};

scenarios![
    serial_creates_stick_at_the_end,
    creates_of_one_multi_wrap,
    pipelined_creates_wrap_while_they_overlap,
    a_counter_that_sticks_hides_creates_from_the_stat,
];

const PARENT: &str = "/counted";

/// A server whose node `PARENT` gives the number `next`, and a client.
fn counted(next: i32) -> (Server, Client) {
    let server = Server::builder().counter(PARENT, next).start();
    let client = Client::connect(&server.connect_string());
    (server, client)
}

/// The number in the name of a node that was made below `PARENT` with this prefix.
#[track_caller]
fn number(path: &str, prefix: &str) -> i32 {
    let digits =
        path.strip_prefix(prefix).unwrap_or_else(|| panic!("{path} is not below {prefix}"));
    let number: i32 = digits.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
    // Ten digits, with a minus for a negative number.
    assert_eq!(digits, format!("{number:010}"));
    number
}

fn serial_creates_stick_at_the_end() {
    let (_server, mut client) = counted(i32::MAX - 2);
    let mut next = |prefix: &str, create: &dyn Fn(&str) -> Req| {
        let prefix = format!("{PARENT}/{prefix}");
        let reply = client.call(&create(&prefix));
        match reply.body {
            Body::Path(path) | Body::Created(path, _) => Ok(number(&path, &prefix)),
            _ => Err(reply.err),
        }
    };
    let numbered = |path: &str| sequential(path);
    for expected in [i32::MAX - 2, i32::MAX - 1, i32::MAX] {
        assert_eq!(next("a-", &numbered), Ok(expected));
    }
    // From here on all names with the same prefix are the same name.
    assert_eq!(next("a-", &numbered), Err(NODE_EXISTS));
    for prefix in ["b-", "c-", "d-"] {
        assert_eq!(next(prefix, &numbered), Ok(i32::MAX));
        assert_eq!(next(prefix, &numbered), Err(NODE_EXISTS));
    }
    let others: [&dyn Fn(&str) -> Req; 4] = [
        &|path| ephemeral(path).flags(EPHEMERAL_SEQUENTIAL),
        &|path| create2(path).flags(SEQUENTIAL),
        &|path| container(path).flags(SEQUENTIAL),
        &|path| create_ttl(path, 1_000_000).flags(SEQUENTIAL_TTL),
    ];
    for (kind, create) in others.into_iter().enumerate() {
        assert_eq!(next(&format!("kind-{kind}-"), create), Ok(i32::MAX));
    }
    // Deletes do not set the counter back.
    client.good(&delete(&format!("{PARENT}/a-{}", i32::MAX)));
    assert_eq!(
        made(&mut client, &sequential(&format!("{PARENT}/a-"))).0,
        format!("{PARENT}/a-{}", i32::MAX)
    );
}

fn creates_of_one_multi_wrap() {
    let (_server, mut client) = counted(i32::MAX - 1);
    let prefix = format!("{PARENT}/n-");
    let mut numbers =
        |count: usize| match client.body(&Req::Multi(vec![sequential(&prefix); count])) {
            Body::Results(results) => Vec::from_iter(results.iter().map(|result| match result {
                Outcome::Create(path) => Ok(number(path, &prefix)),
                Outcome::Error(code) => Err(*code),
                other => panic!("{other:?}"),
            })),
            other => panic!("{other:?}"),
        };
    // Within one multi each part sees the parent as the part before it has left it.
    assert_eq!(numbers(4), [Ok(i32::MAX - 1), Ok(i32::MAX), Ok(i32::MIN), Ok(i32::MIN + 1)]);
    // A wrapped number is never stored.
    assert_eq!(numbers(2), [Err(NODE_EXISTS), Err(RUNTIME_INCONSISTENCY)]);
    let prefix = format!("{PARENT}/m-");
    let parts = vec![create(&format!("{PARENT}/x")), sequential(&prefix), sequential(&prefix)];
    let Body::Results(results) = client.body(&Req::Multi(parts)) else { panic!() };
    let expected = [
        format!("{PARENT}/x"),
        format!("{prefix}{}", i32::MIN),
        format!("{prefix}{}", i32::MIN + 1),
    ];
    assert_eq!(results, expected.map(Outcome::Create));
    assert_eq!(made(&mut client, &sequential(&prefix)).0, format!("{prefix}{}", i32::MAX));
}

/// How far two creates overlap is random. If the create before is not stored yet, the next number
/// follows its number. If it is stored, the next number is the highest that exists.
fn pipelined_creates_wrap_while_they_overlap() {
    const BATCH: usize = 50;
    let (_server, mut client) = counted(i32::MAX - 1);
    let mut seen = HashSet::new();
    for batch in 0..200 {
        let prefix = |at: usize| format!("{PARENT}/{batch}-{at}-");
        client.send(&Vec::from_iter((0..BATCH).map(|at| sequential(&prefix(at)))));
        let mut last: Option<i32> = None;
        for at in 0..BATCH {
            let Some(Body::Path(path)) = client.reply().map(|reply| reply.body) else {
                panic!("no path")
            };
            let number = number(&path, &prefix(at));
            let allowed = match last {
                Some(last) => vec![last.wrapping_add(1), i32::MAX],
                // No create is in progress.
                None => vec![if batch == 0 { i32::MAX - 1 } else { i32::MAX }],
            };
            assert!(
                allowed.contains(&number),
                "batch {batch}, number {at}: {number}, not one of {allowed:?}"
            );
            seen.insert(if number < 0 { "wrapped" } else { "stuck" });
            last = Some(number);
        }
        if batch >= 3 && seen.len() == 2 {
            break;
        }
    }
    assert_eq!(seen.len(), 2, "no number has wrapped: {seen:?}");
    assert_eq!(
        made(&mut client, &sequential(&format!("{PARENT}/end-"))).0,
        format!("{PARENT}/end-{}", i32::MAX)
    );
}

fn a_counter_that_sticks_hides_creates_from_the_stat() {
    let (_server, mut client) = counted(i32::MAX);
    // Clients see twice the number of creates less the number of children, in 32 bits.
    let told = |children: i32| i32::MAX.wrapping_mul(2).wrapping_sub(children);
    let before = stat(&mut client, PARENT);
    assert_eq!(before.cversion, told(0));
    let a = format!("{PARENT}/a");
    client.good(&create(&a));
    // Not even the transaction of the create is noted.
    let expected = Stat { cversion: told(1), num_children: 1, ..before };
    assert_eq!(stat(&mut client, PARENT), expected);
    let gone = zxid(&mut client, &delete(&a));
    assert_eq!(stat(&mut client, PARENT), Stat { pzxid: gone, ..before });
    // The watches see it.
    client.good(&watch_children(PARENT));
    client.good(&create(&a));
    heard(&mut client, &[super::answers::children(PARENT)]);
}
