//! Sessions that are made in the background: before a server can be reached, or before it runs.
use crate::support::{
    Proxy, Raw, Server, Shared, assert_lasted, at_best,
    contend::spawn_waiting,
    embedded, scenarios,
    scene::{SOON, config, full_path, next, until_empty, until_state},
    until,
};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Cause, Config, Error, OptionalExt, RetryPolicy, SessionEvent, SessionState, Wait,
    ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

const LOCK: &str = "/locks/orders";
const T: Duration = Duration::from_secs(30);
/// The longest time of a close that no server answers, and some time for a busy machine.
const CLOSE: Duration = Duration::from_millis(2500);

fn background(at: &str) -> Config {
    config(at).session_timeout(T)
}

fn service_that_starts_before_its_server_gets_the_lock_when_the_server_runs() {
    let server = Server::start();
    let at = server.connect_string();
    server.kill();
    let session = ZkSession::builder(background(&at)).connect_in_background().unwrap();
    let events = session.subscribe();
    assert_eq!(
        (session.status().state, session.status().session_id, session.status().timeout),
        (SessionState::Connecting, None, T)
    );
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let start = Instant::now();
    let said = mutex.try_lock().optional().map(drop);
    assert!(
        matches!(&said, Err(Error::Unavailable { cause: Cause::Outage(hosts), .. }) if hosts.len() == 1),
        "{said:?}"
    );
    assert!(at_best(start) < T / 6);
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || mutex.lock().map(|guard| guard.is_held()));
        server.restart();
        assert!(matches!(next(&events), SessionEvent::Connected { .. }));
        assert_eq!(waiter.join().unwrap(), Ok(true));
    });
    assert_eq!(session.status().state, SessionState::Connected);
    until_empty(&at, LOCK);
    session.close().unwrap();
}

fn calls_give_up_by_the_policy_if_no_server_comes() {
    let policy = RetryPolicy { max_elapsed: Duration::from_millis(500), ..RetryPolicy::default() };
    // Nothing listens on this port.
    let session = ZkSession::builder(config("127.0.0.1:1").retry_policy(policy))
        .connect_in_background()
        .unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    for _ in 0..2 {
        let start = Instant::now();
        let Err(Error::Unavailable { op: "lock", cause: Cause::Outage(hosts), .. }) = mutex.lock()
        else {
            panic!("there is no server")
        };
        assert!(start.elapsed() >= Duration::from_millis(500));
        assert!(hosts[0].reason.contains("refused"), "{hosts:?}");
    }
}

type Question = Box<dyn Fn(Option<Wait>) -> Result<(), Error> + Send>;

/// The questions of each recipe, each with its waiting variant.
fn questions(session: &ZkSession) -> Vec<Question> {
    let mut all: Vec<Question> = Vec::new();
    macro_rules! ask {
        ($lock:expr => $($call:ident or $with:ident),+) => {{
            let lock = std::sync::Arc::new($lock.unwrap());
            $(
                let asked = lock.clone();
                all.push(Box::new(move |wait| match wait {
                    None => asked.$call().map(drop),
                    Some(wait) => asked.$with(wait).map(drop),
                }));
            )+
        }};
    }
    ask!(ZkMutex::new(session, "/l/mutex") => contenders or contenders_with, holders or holders_with);
    ask!(ZkRwLock::new(session, "/l/rw") => contenders or contenders_with, holders or holders_with);
    ask!(ZkElection::new(session, "/l/el") => contenders or contenders_with, holders or holders_with);
    ask!(ZkSemaphoreMutex::new(session, "/l/one") => contenders or contenders_with, holders or holders_with);
    ask!(ZkSemaphore::new(session, "/l/sem", 2) => contenders or contenders_with, holders or holders_with,
        permits or permits_with);
    ask!(ZkExclusiveLock::new(session, "/l/ex") => holders or holders_with);
    all
}

/// A health check asks who holds the lock, and must not wait for servers that are away.
fn questions_end_at_once_without_a_connection_and_wait_where_they_are_told_to() {
    let session = ZkSession::builder(background("127.0.0.1:1")).connect_in_background().unwrap();
    let is_outage = |said: &Result<(), Error>| {
        matches!(said, Err(Error::Unavailable { cause: Cause::Outage(_), .. }))
    };
    for (number, ask) in questions(&session).iter().enumerate() {
        let start = Instant::now();
        let said = ask(None);
        assert!(is_outage(&said), "question {number}: {said:?}");
        assert!(at_best(start) < T / 12, "question {number}: {:?}", start.elapsed());
        let (start, wait) = (Instant::now(), Duration::from_millis(100));
        let said = ask(Some(Wait::timeout(wait)));
        assert!(is_outage(&said), "question {number}: {said:?}");
        assert_lasted(start, wait..wait + T / 6);
        let token = CancelToken::new();
        token.cancel();
        let said = ask(Some(Wait::forever().cancelled_by(&token)));
        assert!(matches!(said, Err(Error::Cancelled { .. })), "question {number}: {said:?}");
    }
}

fn questions_that_wait_are_answered_when_a_server_comes() {
    let server = Server::start();
    let at = server.connect_string();
    server.kill();
    let session = ZkSession::builder(background(&at)).connect_in_background().unwrap();
    let questions = questions(&session);
    thread::scope(|scope| {
        let asked: Vec<_> = questions
            .into_iter()
            .map(|ask| spawn_waiting(scope, move || ask(Some(Wait::forever()))))
            .collect();
        server.restart();
        for (number, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.join().unwrap(), Ok(()), "question {number}");
        }
    });
}

fn session_ends_in_time_before_there_was_any_server() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(true);
    // Nothing listens on the one port, and no answer comes from the other.
    for at in ["127.0.0.1:1".to_owned(), proxy.connect_string()] {
        let begin = || ZkSession::builder(background(&at)).connect_in_background().unwrap();
        let session = begin();
        let mutex = ZkMutex::new(&session, LOCK).unwrap();
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || mutex.lock().map(drop));
            let start = Instant::now();
            let _ = session.close(); // perhaps there is a session behind the black hole
            assert!(at_best(start) < CLOSE, "{at}: {:?}", start.elapsed());
            assert!(matches!(waiter.join().unwrap(), Err(Error::Closed { .. })));
        });
        let session = begin();
        let start = Instant::now();
        drop(session);
        assert!(at_best(start) < CLOSE, "{at}: {:?}", start.elapsed());
    }
}

fn wrong_settings_are_refused_at_once() {
    type Set = fn(Config) -> Config;
    let wrong: [(&str, Set); 4] = [
        ("", |config| config),
        ("127.0.0.1:1", |config| config.session_timeout(Duration::ZERO)),
        ("127.0.0.1:1", |config| config.auth("digest", "no colon")),
        ("127.0.0.1:1", |config| {
            config.retry_policy(RetryPolicy { base: Duration::ZERO, ..RetryPolicy::default() })
        }),
    ];
    for (at, set) in wrong {
        let said = ZkSession::builder(set(Config::new(at))).connect_in_background();
        assert!(matches!(said, Err(Error::InvalidConfig { .. })), "{said:?}");
    }
}

fn refused_credentials_are_an_error_of_each_call() {
    let at = Shared::chroot();
    let session = ZkSession::builder(background(&at).auth("nonsense", "user:password"))
        .connect_in_background()
        .unwrap();
    let said = ZkMutex::new(&session, LOCK).unwrap().lock().map(drop);
    assert!(matches!(said, Err(Error::Auth { op: "lock", .. })), "{said:?}");
}

fn chroot_is_asked_for_by_the_first_call() {
    let at = Shared::chroot();
    let session =
        ZkSession::builder(background(&format!("{at}/missing"))).connect_in_background().unwrap();
    until_state(&session, SessionState::Connected);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    for said in
        [mutex.lock().map(drop), mutex.try_lock().optional().map(drop), mutex.holders().map(drop)]
    {
        match said {
            Err(Error::InvalidConfig { what: "chroot", reason }) => {
                assert!(reason.contains("/missing"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    Raw::connect(&at).unwrap().mkdirs(&full_path(&at, "/missing")).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

/// The close comes while the session's threads are about to make its connection, or have just made
/// it.
fn sessions_that_are_closed_as_soon_as_they_are_made_leave_nothing() {
    let (server, at) = embedded::start();
    for round in 0..200 {
        let session = ZkSession::builder(background(&at)).connect_in_background().unwrap();
        let until = Instant::now() + Duration::from_micros(round % 20 * 10);
        while Instant::now() < until {} // to sleep would take too long
        let _ = session.close();
    }
    until("no connection is left", SOON, || (server.connection_count() == 0).then_some(()));
    until("no session is left", SOON, || server.sessions().is_empty().then_some(()));
}

scenarios![
    calls_give_up_by_the_policy_if_no_server_comes on none,
    questions_end_at_once_without_a_connection_and_wait_where_they_are_told_to on none,
    questions_that_wait_are_answered_when_a_server_comes,
    refused_credentials_are_an_error_of_each_call,
    chroot_is_asked_for_by_the_first_call,
    service_that_starts_before_its_server_gets_the_lock_when_the_server_runs,
    session_ends_in_time_before_there_was_any_server,
    sessions_that_are_closed_as_soon_as_they_are_made_leave_nothing on embedded,
    wrong_settings_are_refused_at_once on none,
];
