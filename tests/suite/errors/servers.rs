//! Servers that cannot be reached, do not answer, or refuse.
use super::{
    page::{Failures, LOCK, all, failed, hosts},
    program,
};
use crate::session::long_answers::swell;
use crate::support::{
    Proxy, Stub,
    embedded::{raw, start},
    raw::EPHEMERAL,
    scenarios,
    scene::{SOON, config, session, session_of, until_state},
    stub::Then,
};
use std::{thread, time::Duration};
use zk_mutex::{
    Acl, Cause, Error, RetryPolicy, SessionState, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession,
};
use zk_test_server::{Brand, Op, TestServer};
use zk_wire::record::ReplyHeader;

pub const VARIANTS: &[&str] = &["Connect", "Auth", "NoAuth", "Unavailable", "Server"];

const PERMITS: &str = "/permits/api";
const ALL: i32 = 31;
/// Too short for an answer that does not come.
const A_WHILE: Duration = Duration::from_millis(300);

fn servers_out_of_reach_print_what_the_page_says() {
    let (_server, at) = start();
    let mut failures = Failures::of(&["Connect", "Auth"]);
    let proxy = Proxy::start(at.parse().unwrap());
    proxy.refuse(true);
    let error = failed(ZkSession::connect(config(proxy.connect_string()).connect_timeout(A_WHILE)));
    let Error::Connect { waited, .. } = &error else { panic!("{error:?}") };
    let mut hidden = hosts(&error);
    hidden.push((format!("{:.1} s", waited.as_secs_f64()), "N s"));
    failures.add(&error, &all(&hidden));
    // As a server does with too many connections from this address.
    let stub = Stub::start("", Then::Close);
    let error = failed(ZkSession::connect(config(stub.connect_string()).connect_timeout(A_WHILE)));
    let Error::Connect { waited, .. } = &error else { panic!("{error:?}") };
    let (waited, host) = (format!("{:.1} s", waited.as_secs_f64()), stub.connect_string());
    failures.add(&error, &[(&waited, "N s"), (&host, "HOST")]);
    let refused = config(&at).auth("nonsense", "orders:secret").connect_timeout(SOON);
    failures.add(&failed(ZkSession::connect(refused)), &[("nonsense", "SCHEME")]);
    failures.check();
}

fn each_permission_that_is_missing_prints_what_the_page_says() {
    let (_server, at) = start();
    let session = session(&at);
    let mut failures = Failures::of(&["NoAuth"]);
    let mut admin = raw(&at);
    let lock = ZkMutex::new(&session, LOCK).unwrap();
    lock.lock().unwrap().unlock().unwrap(); // makes the parents
    let semaphore = ZkSemaphore::new(&session, PERMITS, 2).unwrap();
    semaphore.permits().unwrap();
    admin.set_acl(LOCK, ALL & !1).unwrap();
    failures.add(&failed(lock.lock()), &[]); // READ
    admin.set_acl(LOCK, ALL & !4).unwrap();
    failures.add(&failed(lock.lock()), &[]); // CREATE
    admin.set_acl(LOCK, ALL & !8).unwrap();
    let guard = lock.lock().unwrap();
    let node = guard.path().to_owned();
    failures.add(&failed(guard.unlock()), &[(&node, "NODE")]); // DELETE
    failures.add(&failed(lock.lock()), &[(&node, "NODE")]);
    admin.set_acl(PERMITS, ALL & !2).unwrap();
    failures.add(&failed(semaphore.set_permits(3)), &[]); // WRITE
    // No call of a lock needs ADMIN; the application's own may.
    admin.set_acl(PERMITS, ALL & !16).unwrap();
    let requests = session.zookeeper().requests().within(SOON);
    let refused = requests.set_acl(PERMITS, &Acl::Open, None).map_err(Error::from);
    failures.add(&failed(refused), &[]);
    failures.check();
}

fn each_missing_answer_prints_what_the_page_says() {
    let (server, at) = start();
    let mut failures = Failures::of(&["Unavailable"]);
    let lock_of = |session: &ZkSession| {
        let lock = ZkMutex::new(session, LOCK).unwrap();
        lock.lock().unwrap().unlock().unwrap(); // makes the parents
        lock
    };

    // The time of a call ends.
    let first = session(&at);
    let lock = lock_of(&first);
    let held = server.hold_requests(Op::Create.on("-lock-"));
    failures.add(&failed(lock.lock_timeout(A_WHILE)), &[]);
    drop(held);
    // The same without a connection.
    server.refuse(true);
    server.cut_connections();
    until_state(&first, SessionState::Suspended);
    let error = failed(lock.lock_timeout(A_WHILE));
    failures.add(&error, &all(&hosts(&error)));
    server.refuse(false);
    until_state(&first, SessionState::Connected);

    // Creates are never answered: each time the connection is cut and made again.
    let six = Duration::from_secs(6);
    let policy = RetryPolicy { max_elapsed: Duration::from_secs(2), ..RetryPolicy::default() };
    let config = config(&at).session_timeout(six).retry_policy(policy);
    let second = ZkSession::connect(config).unwrap();
    let lock = lock_of(&second);
    let held = server.hold_requests(Op::Create.on("-lock-"));
    let error = failed(lock.lock());
    let Error::Unavailable { cause: Cause::NoProgress(lasted), .. } = &error else {
        panic!("{error:?}")
    };
    failures.add(&error, &[(&format!("{:.1} s", lasted.as_secs_f64()), "N s")]);
    drop(held);

    // Calls that may have done their work.
    let third = session_of(&at, six);
    let (lock, semaphore) = (lock_of(&third), ZkSemaphore::new(&third, PERMITS, 2).unwrap());
    semaphore.permits().unwrap();
    let guard = lock.lock().unwrap();
    let node = guard.path().to_owned();
    server.black_hole(true);
    for error in [failed(guard.unlock()), failed(semaphore.set_permits(3))] {
        let Error::Unavailable { cause, .. } = &error else { panic!("{error:?}") };
        let cause = format!("{}{cause}", cause.of_zookeeper());
        failures.add(&error, &[(&node, "NODE"), (&cause, "CAUSE")]);
    }
    let error = failed(third.close());
    let Error::Unavailable { cause, .. } = &error else { panic!("{error:?}") };
    failures.add(&error, &[(&format!("{}{cause}", cause.of_zookeeper()), "CAUSE")]);
    server.black_hole(false);

    failures.add_line(&program::without_a_thread(&at));
    failures.check();
}

fn each_answer_of_a_server_that_is_no_use_prints_what_the_page_says() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(60));
    let mut failures = Failures::of(&["Server"]);

    // The lock's folder cannot be made below a node that ends with a session.
    raw(&at).mkdirs("/locks").unwrap();
    let mut owner = raw(&at);
    owner.create("/locks/mine", b"", EPHEMERAL).unwrap();
    let below = "/locks/mine/orders";
    let error = failed(ZkMutex::new(&session, below).unwrap().lock());
    let Error::Server { code, .. } = &error else { panic!("{error:?}") };
    failures.add(&error, &[(below, LOCK), (code, "CODE")]);

    // No entry at all.
    let nobody = ZkMutex::builder(&session, "/nobodys").acl(Acl::Custom(Vec::new()));
    failures.add(&failed(nobody.build().unwrap().lock()), &[("/nobodys", LOCK)]);

    // A server refuses both requests of a flight: it has too much to do, the request took too long,
    // it is too old, or its sessions are local.
    let proxy = Proxy::start(at.parse().unwrap());
    let through = session_of(&proxy.connect_string(), Duration::from_secs(60));
    let lock = ZkMutex::new(&through, LOCK).unwrap();
    for (code, name) in [
        (-127, "ThrottledOp"),
        (-122, "RequestTimeout"),
        (-6, "Unimplemented"),
        (-120, "EphemeralOnLocalSession"),
    ] {
        lock.lock().unwrap().unlock().unwrap(); // makes the parents
        let held = server.hold_requests(Op::Create.on("-lock-"));
        let error = thread::scope(|scope| {
            let call = scope.spawn(|| failed(lock.lock()));
            assert!(held.wait(SOON));
            // The server notes a request when it serves it, so the last one is that before the
            // create.
            let session = through.status().session_id.unwrap();
            let served = server.requests().into_iter().filter(|request| request.session == session);
            let last = served.map(|request| request.xid).max().expect("the requests before");
            for xid in [last + 1, last + 2] {
                proxy.inject(&ReplyHeader { xid, zxid: 0, err: code }.frame(&[]));
            }
            call.join().unwrap()
        });
        assert!(matches!(&error, Error::Server { code, .. } if code == name), "{error:?}");
        let word = if error.is_transient() { "CODE" } else { name };
        failures.add(&error, &[(name, word)]);
        drop(held);
    }

    // The number behind the name has eleven digits.
    let wide = TestServer::builder().brand(Brand::WideNumbers).start().unwrap();
    let of_wide = ZkSession::connect(wide.connect_string()).unwrap();
    let lock = ZkRwLock::new(&of_wide, LOCK).unwrap();
    let write = lock.write().unwrap();
    failures.add(&failed(lock.read()), &[]);
    drop(write);

    // A listing of more than 16 MiB.
    swell(&at, LOCK);
    failures.add(&failed(ZkMutex::new(&session, LOCK).unwrap().lock()), &[]);
    failures.check();
}

scenarios![
    servers_out_of_reach_print_what_the_page_says on embedded,
    each_permission_that_is_missing_prints_what_the_page_says on embedded,
    each_missing_answer_prints_what_the_page_says on embedded,
    each_answer_of_a_server_that_is_no_use_prints_what_the_page_says on embedded,
];
