//! Questions to a follower that is behind: a change is acknowledged to another client, and the
//! follower has not heard of it when the question comes. Its answer must show the change.
use crate::support::{
    Direction, Ensemble, OpKind, Proxy, Raw, Server, Which,
    contend::until_queue,
    raw, scenarios,
    scene::{SOON, config, name, session, until_empty, until_state},
};
use std::{thread, time::Duration};
use zk_mutex::{
    Error, OptionalExt, SessionState, ZkElection, ZkExclusiveLock, ZkMultiLock, ZkMutex, ZkRwLock,
    ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

const LOCK: &str = "/locks/orders";
const LIMIT: &str = "/limits/downloads";
const LEASES: &str = "/limits/downloads/leases";
/// Long enough for an answer that does not wait for the leader.
const A_WHILE: Duration = Duration::from_millis(200);

/// One client at the leader, and one at a follower whose stream from the leader can be held.
struct Behind {
    // Fields are dropped in this order: sessions before their servers.
    ours: ZkSession,
    theirs: ZkSession,
    to_follower: Proxy,
    /// An address of the leader.
    at: String,
    leader: usize,
    follower: usize,
    ensemble: Ensemble,
}

impl Behind {
    fn start() -> Behind {
        // The follower gives its leader up after four ticks without a word.
        let tick = Duration::from_secs(2);
        let ensemble = Ensemble::start_with(3, Server::real().tick(tick));
        let (leader, follower) = (ensemble.leader(), ensemble.followers()[0]);
        let at = ensemble.member(leader).connect_string();
        let to_follower = Proxy::start(ensemble.member(follower).address());
        let (ours, theirs) = (session(&at), session(&to_follower.connect_string()));
        Behind { ours, theirs, to_follower, at, leader, follower, ensemble }
    }

    /// Makes a change that is acknowledged, and then asks the follower, which does not hear of the
    /// change until the request `which` has been there for a while.
    #[track_caller]
    fn ask<C: Sync, T: Send>(
        &self,
        which: Which,
        change: impl FnOnce() -> C,
        question: impl FnOnce(&C) -> T + Send,
    ) -> T {
        let [quorum, _] = self.ensemble.way(self.follower, self.leader);
        quorum.hold(Direction::ToClient, true);
        let changed = change();
        thread::scope(|scope| {
            let asked = self.to_follower.on_request(which, SOON);
            let asking = scope.spawn(|| question(&changed));
            asked.wait();
            thread::sleep(A_WHILE);
            quorum.hold(Direction::ToClient, false);
            asking.join().unwrap()
        })
    }

    /// As `ask`, with a question that lists the lock's folder or reads its node.
    #[track_caller]
    fn listing<T: Send>(&self, change: impl FnOnce(), question: impl FnOnce() -> T + Send) -> T {
        self.ask(OpKind::GetChildren.on(LOCK), change, |()| question())
    }

    #[track_caller]
    fn until_free(&self) {
        until_empty(&self.at, LOCK);
    }
}

fn a_lock_that_was_released_can_be_taken_at_once() {
    let behind = Behind::start();
    let mutex = |session| ZkMutex::new(session, LOCK).unwrap();
    let (ours, theirs) = (mutex(&behind.ours), mutex(&behind.theirs));

    let guard = ours.lock().unwrap();
    assert!(theirs.try_lock().optional().unwrap().is_none());
    let release = || guard.unlock().unwrap();
    assert!(behind.listing(release, || theirs.try_lock().optional().unwrap().is_some()), "a mutex");
    behind.until_free();

    // As long as the follower hears nothing, there is no answer.
    let guard = ours.lock().unwrap();
    assert!(theirs.try_lock().optional().unwrap().is_none());
    let [quorum, _] = behind.ensemble.way(behind.follower, behind.leader);
    quorum.hold(Direction::ToClient, true);
    guard.unlock().unwrap();
    let said = theirs.try_lock().optional();
    quorum.hold(Direction::ToClient, false);
    assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    behind.until_free();

    let multi = ZkMultiLock::new([&theirs]).unwrap();
    let guard = ours.lock().unwrap();
    assert!(multi.try_lock().optional().unwrap().is_none());
    let release = || guard.unlock().unwrap();
    assert!(
        behind.listing(release, || multi.try_lock().optional().unwrap().is_some()),
        "a multi-lock"
    );
    behind.until_free();
    drop((ours, theirs, multi));

    let lock = |session| ZkRwLock::new(session, LOCK).unwrap();
    let (ours, theirs) = (lock(&behind.ours), lock(&behind.theirs));
    let guard = ours.write().unwrap();
    assert!(theirs.try_read().optional().unwrap().is_none());
    let release = || guard.unlock().unwrap();
    assert!(
        behind.listing(release, || theirs.try_read().optional().unwrap().is_some()),
        "a read lock"
    );
    behind.until_free();
    drop((ours, theirs));

    let lock = |session| ZkExclusiveLock::new(session, LOCK).unwrap();
    let (ours, theirs) = (lock(&behind.ours), lock(&behind.theirs));
    let guard = ours.lock().unwrap();
    assert_eq!(theirs.holders().unwrap().len(), 1);
    let release = || guard.unlock().unwrap();
    let taken = behind.ask(OpKind::Create.on(LOCK), release, |()| {
        theirs.try_lock().optional().unwrap().is_some()
    });
    assert!(taken, "an exclusive lock");
}

fn permits_that_were_given_back_can_be_taken_at_once() {
    let behind = Behind::start();
    let listing = || OpKind::GetChildren.on(LEASES);
    let semaphore = |session| ZkSemaphore::new(session, LIMIT, 2).unwrap();
    let (ours, theirs) = (semaphore(&behind.ours), semaphore(&behind.theirs));
    let permits = ours.acquire_many(2).unwrap();
    assert!(theirs.try_acquire().optional().unwrap().is_none());
    let give_back = || permits.release().unwrap();
    let taken =
        behind.ask(listing(), give_back, |()| theirs.try_acquire().optional().unwrap().is_some());
    assert!(taken, "a semaphore");
    until_empty(&behind.at, LEASES);

    let path = "/limits/one";
    let mutex = |session| ZkSemaphoreMutex::new(session, path).unwrap();
    let (ours, theirs) = (mutex(&behind.ours), mutex(&behind.theirs));
    let guard = ours.lock().unwrap();
    assert!(theirs.try_lock().optional().unwrap().is_none());
    let release = || guard.unlock().unwrap();
    let which = OpKind::GetChildren.on(path);
    let taken = behind.ask(which, release, |()| theirs.try_lock().optional().unwrap().is_some());
    assert!(taken, "a mutex of a semaphore");
}

fn a_number_of_permits_that_was_set_counts_at_once() {
    let behind = Behind::start();
    let number = || OpKind::GetData.on(LIMIT);
    let ours = &ZkSemaphore::new(&behind.ours, LIMIT, 5).unwrap();
    drop(ours.acquire().unwrap());
    until_queue(&behind.at, LEASES, 0);
    let theirs = ZkSemaphore::new(&behind.theirs, LIMIT, 10).unwrap();
    let refused = theirs.permits().unwrap_err();
    assert!(matches!(refused, Error::InconsistentPermits { ours: 10, theirs: 5, .. }));

    // Not `InconsistentPermits`, though this client was made for the new number.
    let set = |number| move || ours.set_permits(number).unwrap();
    let taken = behind
        .ask(number(), set(10), |()| theirs.try_acquire().optional().map(|got| got.is_some()));
    assert!(matches!(taken, Ok(true)), "{taken:?}");
    assert_eq!(behind.ask(number(), set(7), |()| theirs.permits().unwrap()), 7);
    let many = behind.ask(number(), set(9), |()| theirs.acquire_many(8).map(drop));
    assert!(many.is_ok(), "{many:?}");
    // The follower still shows 9, and that is not what is set any more.
    behind.ask(number(), set(3), |()| theirs.set_permits(9).unwrap());
    assert_eq!(ours.permits().unwrap(), 9);
}

fn holders_and_contenders_are_those_of_now() {
    let behind = Behind::start();
    let mutex = |session| ZkMutex::new(session, LOCK).unwrap();
    let (ours, theirs) = (mutex(&behind.ours), mutex(&behind.theirs));
    ours.lock().unwrap().unlock().unwrap();
    let mut held = None;
    let holders = behind.listing(|| held = Some(ours.lock().unwrap()), || theirs.holders());
    assert_eq!(holders.unwrap().len(), 1, "of a mutex that was taken");
    let release = || held.take().unwrap().unlock().unwrap();
    let contenders = behind.listing(release, || theirs.contenders());
    assert!(contenders.unwrap().is_empty(), "of a mutex that was released");

    // A contender that the follower does not have yet can be asked to let go.
    let take = || {
        let guard = held.insert(ours.lock().unwrap());
        guard.path().to_owned()
    };
    let asked = behind.ask(OpKind::GetData.on(LOCK), take, |node| {
        behind.theirs.attempt_revoke(node).unwrap().is_some()
    });
    assert!(asked);
    drop(held);
    behind.until_free();
    drop((ours, theirs));

    let lock = |session| ZkExclusiveLock::new(session, LOCK).unwrap();
    let (ours, theirs) = (lock(&behind.ours), lock(&behind.theirs));
    let guard = ours.lock().unwrap();
    assert_eq!(theirs.holders().unwrap().len(), 1);
    let release = || guard.unlock().unwrap();
    let holders = behind.ask(OpKind::GetData.on(LOCK), release, |()| theirs.holders().unwrap());
    assert!(holders.is_empty(), "{holders:?}");
    drop((ours, theirs));

    let election = |session| ZkElection::new(session, "/elections/billing").unwrap();
    let (ours, theirs) = (election(&behind.ours), election(&behind.theirs));
    let mut candidate = None;
    let join = || {
        let joined = candidate.insert(ours.join().unwrap());
        joined.wait_leader().unwrap().path().to_owned()
    };
    let (leader, of) = behind.ask(OpKind::GetChildren.on("/elections"), join, |leads| {
        (theirs.holders().unwrap(), name(leads).to_owned())
    });
    assert_eq!(leader.iter().map(|leader| name(&leader.path)).collect::<Vec<_>>(), [of]);

    let semaphore = |session| ZkSemaphore::new(session, LIMIT, 2).unwrap();
    let (ours, theirs) = (semaphore(&behind.ours), semaphore(&behind.theirs));
    let permits = ours.acquire_many(2).unwrap();
    assert_eq!(theirs.contenders().unwrap().len(), 2);
    let which = OpKind::GetChildren.on(LEASES);
    let give_back = || permits.release().unwrap();
    let contenders = behind.ask(which, give_back, |()| theirs.contenders().unwrap());
    assert!(contenders.is_empty(), "{contenders:?}");
}

fn a_candidate_is_not_told_of_a_leader_that_has_left() {
    let behind = Behind::start();
    let path = "/elections/billing";
    let join = |session| ZkElection::new(session, path).unwrap().join().unwrap();
    for wait in [Duration::ZERO, Duration::from_secs(2)] {
        let ours = join(&behind.ours);
        ours.wait_leader().unwrap();
        let theirs = join(&behind.theirs);
        assert!(theirs.wait_leader_timeout(Duration::ZERO).optional().unwrap().is_none());
        let leave = || ours.leave().unwrap();
        let which = OpKind::GetChildren.on(path);
        let said = behind.ask(which, leave, |()| theirs.wait_leader_timeout(wait).optional());
        // On a busy computer the time may end before the follower has told the candidate.
        assert!(!matches!(said, Ok(None)), "nobody was ahead");
        theirs.wait_leader().unwrap();
        theirs.leave().unwrap();
    }
}

/// The session is there, and its chroot is made at last.
fn a_chroot_that_was_made_counts_at_once() {
    let behind = Behind::start();
    let below = config(format!("{}/app", behind.to_follower.connect_string()));
    let theirs = ZkSession::builder(below).connect_in_background().unwrap();
    until_state(&theirs, SessionState::Connected);
    let mutex = ZkMutex::new(&theirs, LOCK).unwrap();
    let said = mutex.lock().map(drop);
    assert!(matches!(said, Err(Error::InvalidConfig { what: "chroot", .. })), "{said:?}");
    let make = || {
        let mut raw = Raw::connect(&behind.at).unwrap();
        raw.create("/app", b"", raw::PERSISTENT).unwrap();
    };
    let said = behind.ask(OpKind::Exists.on("/app"), make, |()| mutex.lock().map(drop));
    assert_eq!(said, Ok(()));
}

scenarios![
    a_candidate_is_not_told_of_a_leader_that_has_left on real,
    a_chroot_that_was_made_counts_at_once on real,
    a_lock_that_was_released_can_be_taken_at_once on real,
    a_number_of_permits_that_was_set_counts_at_once on real,
    holders_and_contenders_are_those_of_now on real,
    permits_that_were_given_back_can_be_taken_at_once on real,
];
