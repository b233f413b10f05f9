//! Requests that fail half-way, over each recipe: what is left at the server, which error the
//! caller gets, and when.
use crate::support::{
    Direction, On, OpKind, Proxy, Raw, Recipe, Shared, Test, assert_lasted, at_best,
    contend::spawn_waiting,
    control::assert_in_time,
    logged::logged,
    recipe::{Lock, Row, over_recipes, rows},
    scene::{
        SOON, config, full_path, nodes, queue, session, session_of, until_empty, until_event,
        until_state,
    },
    until,
};
use log::Level;
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Cause, Error, OptionalExt, RetryPolicy, SessionEvent, SessionState, Wait,
    ZkSession,
};

const PATH: &str = "/locks/orders";
/// For threads that run late on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);
const T: Duration = Duration::from_secs(6);

const ALL: i32 = 31;
const CREATE_DELETE_ADMIN: i32 = 4 + 8 + 16;
const CREATE_ADMIN: i32 = 4 + 16;
const CREATE_READ_ADMIN: i32 = 1 + 4 + 16;

struct Stage {
    recipe: Recipe,
    at: String,
    proxy: Proxy,
    session: ZkSession,
    lock: Lock,
}

impl Stage {
    /// A session through a proxy; the lock's folder exists.
    fn new(recipe: Recipe) -> Stage {
        let at = Shared::chroot();
        let (host, chroot) = at.split_once('/').unwrap();
        let proxy = Proxy::start(host.parse().unwrap());
        let session = session_of(&format!("{}/{chroot}", proxy.connect_string()), T);
        let lock = recipe.make(&session, PATH);
        for folder in recipe.folders(PATH) {
            Raw::connect(&at).unwrap().mkdirs(&full_path(&at, &folder)).unwrap();
        }
        proxy.clear();
        Stage { recipe, at, proxy, session, lock }
    }

    fn raw(&self) -> Raw {
        Raw::connect(&self.at).unwrap()
    }

    fn folder(&self) -> String {
        full_path(&self.at, &self.recipe.folder(PATH))
    }

    /// A lock of another session: it keeps ours waiting, or waits for it.
    fn rival(&self) -> (ZkSession, Lock) {
        let session = session(&self.at);
        let lock = self.recipe.rival().make(&session, PATH);
        (session, lock)
    }

    /// Checks that all requests are executed and nothing is left, while the session lives.
    fn end(self) {
        let id = self.session.status().session_id;
        until_state(&self.session, SessionState::Connected);
        self.lock.lock().unwrap().unlock().unwrap();
        until_empty(&self.at, PATH);
        assert_eq!(self.session.status().session_id, id);
    }
}

// ---- how long to wait ----

/// A timeout of zero does the same as `try_lock`.
fn timeout_of_zero_asks_once(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let (_session, rival) = stage.rival();
    let held = rival.lock().unwrap();
    let before = nodes(&stage.at, PATH);
    stage.proxy.clear();
    let zero = Wait::timeout(Duration::ZERO);
    for wait in [&zero, &zero.clone().cancelled_by(&CancelToken::new())] {
        let said = stage.lock.lock_with(wait.clone()).map(drop);
        assert_eq!(said, Err(Error::WouldBlock { path: PATH.into() }), "{wait:?}");
    }
    let said = [stage.lock.lock_timeout(Duration::ZERO), stage.lock.try_lock()];
    for said in said {
        assert_eq!(said.map(drop), Err(Error::WouldBlock { path: PATH.into() }));
    }
    assert!(held.is_held());
    assert_eq!(nodes(&stage.at, PATH), before, "no node is left");
    if recipe.is_lock() && recipe != Recipe::Exclusive {
        assert_eq!(stage.proxy.count(recipe.own(OpKind::Create)), 0, "and no node was made");
    }
    held.unlock().unwrap();
    assert!(stage.lock.lock_with(zero.clone()).unwrap().is_held());
    until_empty(&stage.at, PATH);
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let said = stage.lock.lock_with(zero.cancelled_by(&cancelled)).optional().map(drop);
    assert_eq!(said, Err(Error::Cancelled { path: PATH.into() }));
    stage.end();
}

/// The wait ends by its timeout or its deadline, or by its token before.
fn wait_ends_by_its_timeout_its_deadline_or_its_token(recipe: Recipe) {
    const LONG: Duration = Duration::from_secs(60);
    let stage = Stage::new(recipe);
    let (_session, rival) = stage.rival();
    let held = rival.lock().unwrap();
    let (wait, token) = (Duration::from_millis(400), CancelToken::new());
    for by_deadline in [false, true] {
        let start = Instant::now();
        let end = if by_deadline { Wait::until(start + wait) } else { Wait::timeout(wait) };
        let said = stage.lock.lock_with(end.cancelled_by(&token)).map(drop);
        assert_eq!(said, Err(Error::TimedOut { path: PATH.into() }));
        assert_lasted(start, wait..wait + SLACK);
    }
    thread::scope(|scope| {
        let wait_long = Wait::timeout(LONG).cancelled_by(&token);
        let waiter = scope.spawn(|| stage.lock.lock_with(wait_long).optional().map(drop));
        thread::sleep(wait);
        token.cancel();
        assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled { path: PATH.into() }));
    });
    assert!(held.is_held());
    held.unlock().unwrap();
    // A token that is not cancelled and a late deadline do not end the wait.
    let late = Wait::until(Instant::now() + LONG).cancelled_by(&CancelToken::new());
    assert!(stage.lock.lock_with(late).unwrap().is_held());
    stage.end();
}

// ---- the call after the create ----

fn may_not_list(recipe: Recipe) -> Error {
    let (op, path) = (recipe.queues_as(), recipe.folder(PATH));
    Error::NoAuth { op, path, permission: "READ" }
}

fn node_is_deleted_cleanly_when_the_call_after_its_create_fails(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let mut raw = stage.raw();
    raw.set_acl(&stage.folder(), CREATE_DELETE_ADMIN).unwrap();
    let deleted = stage.proxy.on_reply(OpKind::Delete.on(recipe.mark()), SOON);
    let said = stage.lock.lock().map(drop);
    assert_eq!(said, Err(may_not_list(recipe)));
    assert!(said.unwrap_err().to_string().contains(PATH));
    deleted.wait();
    raw.set_acl(&stage.folder(), ALL).unwrap();
    assert_eq!(stage.proxy.count(OpKind::Create.on(recipe.mark())), 1);
    assert!(queue(&stage.at, PATH).is_empty(), "the node is deleted while the session is open");
    stage.end();
}

fn original_error_is_kept_when_the_clean_up_fails_too(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let mut raw = stage.raw();
    raw.set_acl(&stage.folder(), CREATE_ADMIN).unwrap();
    let deleted = stage.proxy.on_reply(OpKind::Delete.on(recipe.mark()), SOON);
    assert_eq!(stage.lock.lock().map(drop), Err(may_not_list(recipe)));
    deleted.wait();
    raw.set_acl(&stage.folder(), ALL).unwrap();
    assert_eq!(queue(&stage.at, PATH).len(), 1, "it could not be deleted");
    stage.session.close().unwrap();
    until_empty(&stage.at, PATH);
}

fn close_during_the_call_after_the_create_is_reported_and_leaves_nothing(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let listed = stage.proxy.on_request(OpKind::GetChildren, SOON);
    stage.proxy.silence_reply(OpKind::GetChildren);
    thread::scope(|scope| {
        let locker = scope.spawn(|| stage.lock.lock().map(drop));
        listed.wait();
        let start = Instant::now();
        let _ = stage.session.close();
        assert!(at_best(start) < Duration::from_secs(1) + SLACK);
        let said = locker.join().unwrap();
        assert!(
            matches!(said, Err(Error::Closed { op, .. }) if op == recipe.queues_as()),
            "{said:?}"
        );
    });
    let (_other, theirs) = stage.rival();
    assert!(
        theirs.lock_timeout(T * 2).optional().unwrap().is_some(),
        "at the latest the server ends the session"
    );
    until_empty(&stage.at, PATH);
}

// ---- an ACL that lets nodes be made, and none be deleted ----

impl Stage {
    fn set_acl(&self, permissions: i32) {
        for folder in self.recipe.folders(PATH) {
            self.raw().set_acl(&full_path(&self.at, &folder), permissions).unwrap();
        }
    }

    #[track_caller]
    fn assert_refused<T>(&self, said: Result<T, Error>) {
        match said.map(drop) {
            Err(Error::NoAuth { path, permission: "DELETE", .. }) => {
                assert!(path.starts_with(PATH) && path != PATH, "{path}: the node");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Each call is refused and makes no node, until somebody corrects the ACL.
    fn until_corrected(self) {
        let left = nodes(&self.at, PATH);
        self.assert_refused(self.lock.lock());
        self.assert_refused(self.lock.try_lock());
        self.assert_refused(self.lock.lock_timeout(SOON));
        assert_eq!(nodes(&self.at, PATH), left);
        until("the log says it", SOON, || {
            let lines = logged(Level::Warn, "NoAuth: the ACL of ");
            (lines.first()?).contains("does not give DELETE to this session").then_some(())
        });
        self.set_acl(ALL);
        self.end();
    }
}

fn wait_whose_node_could_not_be_deleted_ends_at_once_and_later_calls_make_none(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let (_session, rival) = stage.rival();
    let held = rival.lock().unwrap();
    stage.set_acl(CREATE_READ_ADMIN);
    stage.assert_refused(stage.lock.lock_timeout(SOON));
    stage.set_acl(ALL);
    held.unlock().unwrap();
    stage.set_acl(CREATE_READ_ADMIN);
    stage.until_corrected();
}

fn lock_that_could_not_be_released_is_refused_until_the_acl_is_corrected(recipe: Recipe) {
    let stage = Stage::new(recipe);
    stage.set_acl(CREATE_READ_ADMIN);
    stage.assert_refused(stage.lock.lock().unwrap().unlock());
    stage.until_corrected();
}

// ---- a create without an answer ----

fn node_of_a_create_without_an_answer_is_swept_and_another_gets_the_lock(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let swallowed = stage.proxy.on_reply(OpKind::Create.on(recipe.mark()), SOON);
    stage.proxy.silence_reply(OpKind::Create.on(recipe.mark()));
    let id = stage.session.status().session_id;
    thread::scope(|scope| {
        let locker = scope.spawn(|| {
            let guard = stage.lock.lock().unwrap();
            let name = recipe.name(guard.path());
            assert!(guard.is_held());
            // The server has executed the create, but its reply is lost.
            until("only the holder's node is left", SOON, || {
                (queue(&stage.at, PATH) == [name.as_str()]).then_some(())
            });
            (name, guard.unlock())
        });
        let asked = swallowed.wait().path.unwrap();
        let orphan = queue(&stage.at, PATH).remove(0);
        let orphan_id = asked.rsplit_once('/').unwrap().1;
        assert!(orphan.contains(orphan_id), "the node exists: {orphan}");
        let (name, unlocked) = locker.join().unwrap();
        assert!(!name.contains(orphan_id));
        unlocked.unwrap();
    });
    assert_eq!(stage.session.status().session_id, id, "the same session has deleted the node");
    stage.end();
}

/// The direction in which nothing passes, when this ends, and the scenario's name.
const ABANDONED: [(Direction, Heals, &str); 4] = [
    (
        Direction::ToServer,
        Heals::AtOnce,
        "create_abandoned_before_it_was_passed_on_leaves_nothing_when_the_hole_closes_at_once",
    ),
    (
        Direction::ToClient,
        Heals::AtOnce,
        "create_abandoned_before_its_reply_leaves_nothing_when_the_hole_closes_at_once",
    ),
    (
        Direction::ToServer,
        Heals::AfterTheConnection,
        "create_abandoned_before_it_was_passed_on_leaves_nothing_when_the_hole_closes_after_the_connection",
    ),
    (
        Direction::ToClient,
        Heals::AfterTheConnection,
        "create_abandoned_before_its_reply_leaves_nothing_when_the_hole_closes_after_the_connection",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heals {
    AtOnce,
    /// The fault ends when the session has given up the connection.
    AfterTheConnection,
}

/// `lock_timeout` gives up while its create is under way in a black hole.
fn abandoned(recipe: Recipe, hold: Direction, heals: Heals) {
    let stage = Stage::new(recipe);
    stage.proxy.hold(hold, true);
    let start = Instant::now();
    let said = stage.lock.lock_timeout(Duration::from_millis(300)).optional().map(drop);
    assert_lasted(start, Duration::from_millis(300)..Duration::from_millis(300) + SLACK);
    let unavailable =
        |cause| Err(Error::Unavailable { op: recipe.ops()[0], path: PATH.into(), cause });
    if said != unavailable(Cause::Deadline) {
        // The thread woke only when the session had given up the connection, T/6 after the create.
        let what = format!("no contender was seen ahead: {said:?}");
        let is_outage = matches!(&said, Err(Error::Unavailable { cause: Cause::Outage(_), .. }));
        assert_in_time(!is_outage, start, Duration::from_millis(500), &what);
        assert!(is_outage, "{what}");
    }
    if heals == Heals::AfterTheConnection {
        until_state(&stage.session, SessionState::Suspended);
    }
    if hold == Direction::ToClient {
        assert_eq!(nodes(&stage.at, PATH).len(), 1, "made");
    }
    stage.proxy.black_hole(false);
    // The requests that were held back arrive before this call's requests.
    let (_other, theirs) = stage.rival();
    stage.end_of_abandoned();
    assert!(theirs.lock_timeout(SOON).optional().unwrap().is_some());
    stage.end();
}

impl Stage {
    fn end_of_abandoned(&self) {
        until_state(&self.session, SessionState::Connected);
        self.lock.lock().unwrap().unlock().unwrap();
        until_empty(&self.at, PATH);
        thread::sleep(Duration::from_millis(300)); // a node that was made late would stay
        until_empty(&self.at, PATH);
    }
}

fn lock_cancelled_in_a_black_hole_returns_at_once_and_leaves_nothing(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let token = CancelToken::new();
    stage.proxy.hold(Direction::ToClient, true);
    let made = stage.proxy.on_request(OpKind::Create.on(recipe.first_mark()), SOON);
    thread::scope(|scope| {
        let locker = scope.spawn(|| {
            stage.lock.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        made.wait();
        let cancelled = Instant::now();
        token.cancel();
        let said = locker.join().unwrap();
        assert!(at_best(cancelled) < SLACK, "{:?}", cancelled.elapsed());
        assert_eq!(said, Err(Error::Cancelled { path: PATH.into() }));
    });
    stage.proxy.black_hole(false);
    stage.end_of_abandoned();
    stage.end();
}

// ---- deadlines ----

fn try_lock_in_a_black_hole_gives_up_in_a_sixth_of_the_timeout(recipe: Recipe) {
    let stage = Stage::new(recipe);
    stage.proxy.black_hole(true);
    for _ in 0..4 {
        let start = Instant::now();
        let said = stage.lock.try_lock().optional().map(drop);
        assert!(at_best(start) < T / 6 + SLACK, "{:?}", start.elapsed());
        assert!(
            matches!(said, Err(Error::Unavailable { op, .. }) if op == recipe.ops()[0]),
            "{said:?}"
        );
    }
    stage.proxy.black_hole(false);
    stage.end();
}

fn lock_timeout_in_a_black_hole_returns_in_time_and_names_the_outage(recipe: Recipe) {
    let stage = Stage::new(recipe);
    stage.proxy.black_hole(true);
    for millis in [0, 50, 700, 1800] {
        let (start, limit) = (Instant::now(), Duration::from_millis(millis));
        let said = stage.lock.lock_timeout(limit).optional().map(drop);
        assert_lasted(start, limit..limit + SLACK);
        assert!(
            matches!(said, Err(Error::Unavailable { op, .. }) if op == recipe.ops()[0]),
            "{said:?}"
        );
    }
    stage.proxy.black_hole(false);
    stage.end();
}

fn none_means_that_another_contender_has_it(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let (_other, theirs) = stage.rival();
    let guard = theirs.lock().unwrap();
    stage.proxy.clear();
    assert!(stage.lock.try_lock().optional().unwrap().is_none());
    // A candidate joins first, which makes its node and lists the queue.
    let joins = usize::from(!recipe.is_lock());
    assert_eq!(
        (stage.proxy.count(OpKind::GetChildren), stage.proxy.count(OpKind::Create)),
        (1 + joins, joins),
        "the call itself: one read, no write"
    );
    // Long enough, even on a busy machine, to see another contender ahead.
    let (start, limit) = (Instant::now(), Duration::from_millis(1500));
    assert!(stage.lock.lock_timeout(limit).optional().unwrap().is_none());
    assert_lasted(start, limit..limit + SLACK);
    until("our node is deleted", SOON, || (queue(&stage.at, PATH).len() == 1).then_some(()));
    guard.unlock().unwrap();
    stage.end();
}

fn deadline_of_a_wait_that_passes_in_an_outage_is_no_contention(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let (_other, theirs) = stage.rival();
    let guard = theirs.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            let said = stage.lock.lock_timeout(Duration::from_secs(3)).optional().map(drop);
            assert!(at_best(start) < Duration::from_secs(3) + SLACK, "{:?}", start.elapsed());
            said
        });
        until("it waits", SOON, || recipe.waits(&stage.proxy).then_some(()));
        stage.proxy.refuse(true);
        stage.proxy.cut();
        let said = waiter.join().unwrap();
        assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    });
    // During the outage nothing is known, also for threads that queue behind each other.
    assert!(matches!(stage.lock.try_lock().optional().map(drop), Err(Error::Unavailable { .. })));
    stage.proxy.refuse(false);
    until_state(&stage.session, SessionState::Connected);
    until("our node is deleted", SOON, || (queue(&stage.at, PATH).len() == 1).then_some(()));
    guard.unlock().unwrap();
    stage.end();
}

fn threads_that_queue_here_in_an_outage_get_the_outage_as_error(recipe: Recipe) {
    let stage = Stage::new(recipe);
    let (_other, theirs) = stage.rival();
    let guard = theirs.lock().unwrap();
    let events = stage.session.subscribe();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            stage.lock.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        until("it waits", SOON, || recipe.waits(&stage.proxy).then_some(()));
        assert!(
            stage.lock.lock_timeout(Duration::from_millis(100)).optional().unwrap().is_none(),
            "the first stands behind another"
        );
        stage.proxy.refuse(true);
        stage.proxy.cut();
        until_event(&events, |event| *event == SessionEvent::Suspended);
        let start = Instant::now();
        let said = stage.lock.lock_timeout(Duration::from_millis(300)).optional().map(drop);
        assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
        assert!(at_best(start) < Duration::from_millis(300) + SLACK);
        let said = stage.lock.try_lock().optional().map(drop);
        assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
        token.cancel();
        assert!(matches!(first.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    stage.proxy.refuse(false);
    until_state(&stage.session, SessionState::Connected);
    guard.unlock().unwrap();
    stage.end();
}

/// Each call waits for its own time. The second and later calls begin when the outage has lasted
/// for longer than the policy's time.
fn lock_in_a_long_outage_is_an_error_after_the_time_of_the_call(recipe: Recipe) {
    const POLICY: Duration = Duration::from_secs(1);
    let at = Shared::chroot();
    let (host, chroot) = at.split_once('/').unwrap();
    let proxy = Proxy::start(host.parse().unwrap());
    let session = ZkSession::connect(
        config(format!("{}/{chroot}", proxy.connect_string()))
            .session_timeout(SOON)
            .retry_policy(RetryPolicy { max_elapsed: POLICY, ..RetryPolicy::default() }),
    )
    .unwrap();
    let lock = recipe.make(&session, PATH);
    lock.lock().unwrap().unlock().unwrap();
    proxy.refuse(true);
    proxy.cut();
    until_state(&session, SessionState::Suspended);
    let ends = |limit: Option<Duration>, times: std::ops::Range<Duration>| {
        let start = Instant::now();
        let said = limit.map_or_else(
            || lock.lock().map(|_| true),
            |limit| lock.lock_timeout(limit).optional().map(|guard| guard.is_some()),
        );
        assert_lasted(start, times);
        assert!(
            matches!(&said, Err(Error::Unavailable { op, cause: Cause::Outage(hosts), .. })
                if *op == recipe.ops()[0] && hosts.len() == 1),
            "{said:?}"
        );
    };
    (0..3).for_each(|_| ends(None, POLICY..POLICY + SLACK));
    // A deadline of the caller counts in place of the policy.
    for limit in [POLICY / 4, POLICY * 2] {
        ends(Some(limit), limit..limit + SLACK);
    }
    ends(Some(Duration::ZERO), Duration::ZERO..SOON / 6); // no T/6
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            lock.lock_timeout(SOON).optional().map(|guard| guard.is_some())
        });
        // These wait behind the other thread, but no longer than they would alone.
        let others = [(); 3].map(|()| scope.spawn(|| ends(None, POLICY..POLICY + SLACK)));
        others.into_iter().for_each(|other| other.join().unwrap());
        proxy.refuse(false);
        assert_eq!(waiter.join().unwrap(), Ok(true), "the server is back in its time");
    });
    until_empty(&at, PATH);
}

pub fn tests() -> Vec<Test> {
    let mut rows = rows![
        Recipe::any =>
        timeout_of_zero_asks_once,
        wait_ends_by_its_timeout_its_deadline_or_its_token,
        lock_cancelled_in_a_black_hole_returns_at_once_and_leaves_nothing,
        try_lock_in_a_black_hole_gives_up_in_a_sixth_of_the_timeout,
        lock_timeout_in_a_black_hole_returns_in_time_and_names_the_outage,
        deadline_of_a_wait_that_passes_in_an_outage_is_no_contention,
        threads_that_queue_here_in_an_outage_get_the_outage_as_error,
        lock_in_a_long_outage_is_an_error_after_the_time_of_the_call;
        Recipe::is_lock_that_queues =>
        wait_whose_node_could_not_be_deleted_ends_at_once_and_later_calls_make_none;
        Recipe::is_lock =>
        lock_that_could_not_be_released_is_refused_until_the_acl_is_corrected;
        Recipe::queues =>
        node_is_deleted_cleanly_when_the_call_after_its_create_fails,
        original_error_is_kept_when_the_clean_up_fails_too,
        close_during_the_call_after_the_create_is_reported_and_leaves_nothing,
        node_of_a_create_without_an_answer_is_swept_and_another_gets_the_lock,
        none_means_that_another_contender_has_it,
    ];
    rows.extend(ABANDONED.map(|(hold, heals, name)| {
        Row::new(name, Recipe::any, move |recipe| abandoned(recipe, hold, heals))
    }));
    over_recipes(module_path!(), On::Both, rows)
}
