//! Servers that can be reached but do not answer some requests: a call ends by its policy, but a
//! waiter in the queue does not.
use crate::support::{
    On, Recipe, Server, Test, Variant,
    contend::spawn_waiting,
    recipe::{over_recipes, rows},
    scene::{SOON, config, until_empty, until_event},
};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{Cause, Error, OptionalExt, RetryPolicy, SessionEvent, ZkSession};
use zk_test_server::{Matcher, Op};

const PATH: &str = "/locks/orders";
/// The policy lets a call continue without progress for this time.
const MAX_ELAPSED: Duration = Duration::from_secs(2);

fn start() -> (Server, ZkSession) {
    let server = Server::embedded().start();
    let session = ZkSession::connect(
        config(server.connect_string())
            .session_timeout(Duration::from_secs(6))
            .retry_policy(RetryPolicy { max_elapsed: MAX_ELAPSED, ..RetryPolicy::default() }),
    )
    .unwrap();
    (server, session)
}

/// All other requests are answered, so there is no outage: the connection is cut and made again.
fn gives_up_where_nothing_answers(recipe: Recipe, unanswered: Matcher) {
    let (server, session) = start();
    let lock = recipe.make(&session, PATH);
    lock.lock().unwrap().unlock().unwrap(); // makes the parents
    let events = session.subscribe();
    let held = server.embedded_server().hold_requests(unanswered);
    let said = lock.lock().map(drop);
    assert!(
        matches!(said, Err(Error::Unavailable { cause: Cause::NoProgress(spent), .. }) if spent >= MAX_ELAPSED),
        "{said:?}"
    );
    drop(held);
    let reconnected = |event: &SessionEvent| *event == SessionEvent::Reconnected;
    assert!(
        until_event(&events, reconnected)
            .iter()
            .all(|event| !matches!(event, SessionEvent::Lost(_)))
    );
    until_empty(&server.connect_string(), PATH);
    lock.lock_timeout(SOON).optional().unwrap().expect("the lock is free").unlock().unwrap();
}

fn lock_gives_up_where_creates_are_never_answered(recipe: Recipe) {
    gives_up_where_nothing_answers(recipe, Op::Create.on(recipe.mark()));
}

fn lock_gives_up_where_its_listings_are_never_answered(recipe: Recipe) {
    let asks = if recipe == Recipe::Exclusive {
        Op::GetData.on("/lock")
    } else {
        Op::GetChildren.on(recipe.folder(PATH))
    };
    gives_up_where_nothing_answers(recipe, asks);
}

/// The wait is longer than the policy, and so are the outages together; each single outage is
/// shorter.
fn waiter_in_its_place_waits_on_beyond_the_policy(recipe: Recipe) {
    let (server, session) = start();
    let at = server.connect_string();
    let others = ZkSession::connect(config(&at).session_timeout(SOON * 2)).unwrap();
    let (lock, theirs) = (recipe.make(&session, PATH), recipe.rival().make(&others, PATH));
    let guard = theirs.lock().unwrap();
    let events = session.subscribe();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || lock.lock().unwrap().unlock().unwrap());
        for _ in 0..3 {
            server.embedded_server().cut_connections();
            until_event(&events, |event| *event == SessionEvent::Reconnected);
            // The policy's time passes during the wait.
            thread::sleep(MAX_ELAPSED * 6 / 10);
        }
        assert!(!waiter.is_finished());
        drop(guard);
        waiter.join().unwrap();
    });
    until_empty(&at, PATH);
}

/// An outage that does not end begins while the call waits for its turn. A waiter that slept on
/// until its safety poll would hear of it a minute later.
fn waiter_whose_servers_go_away_for_good_ends_by_the_policy(recipe: Recipe) {
    let (server, session) = start();
    let at = server.connect_string();
    let others = ZkSession::connect(config(&at).session_timeout(SOON * 2)).unwrap();
    let (lock, theirs) = (recipe.make(&session, PATH), recipe.rival().make(&others, PATH));
    let guard = theirs.lock().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || lock.lock().map(drop));
        let embedded = server.embedded_server();
        embedded.refuse(true);
        embedded.cut_connections();
        let begun = Instant::now();
        let said = waiter.join().unwrap();
        assert!(
            matches!(said, Err(Error::Unavailable { cause: Cause::Outage(_), .. })),
            "{said:?}"
        );
        assert!(begun.elapsed() < SOON * 2, "{:?}", begun.elapsed());
        embedded.refuse(false);
    });
    drop(guard);
    until_empty(&at, PATH);
}

pub fn tests() -> Vec<Test> {
    let rows = rows![
        Recipe::any =>
        lock_gives_up_where_creates_are_never_answered,
        lock_gives_up_where_its_listings_are_never_answered,
        waiter_in_its_place_waits_on_beyond_the_policy,
        waiter_whose_servers_go_away_for_good_ends_by_the_policy
    ];
    // Only the embedded server can leave single requests unanswered.
    over_recipes(module_path!(), On::Only(Variant::Embedded), rows)
}
