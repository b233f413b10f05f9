//! The information that a guard has about its hold, and which types may be used on which threads.
use crate::support::{
    OpKind, Proxy, Raw, Server, Shared,
    contend::{session, spawn_waiting, stat, until_queue},
    scenarios,
    scene::{SOON, full_path, session_of, until_empty, until_watched},
};
use crossbeam_channel::{TryRecvError, select};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Acl, CancelToken, Cause, Contender, Error, FencingToken, Held, HostFailure, Layout,
    LockBuilder, LossReason, LostSignal, OptionalExt, RetryPolicy, RevokeSignal, SessionBuilder,
    SessionEvent, SessionState, Wait, WaitStrategy, ZkMutex, ZkMutexGuard, ZkReadGuard, ZkSession,
    ZkWriteGuard,
};

const LOCK: &str = "/locks/orders";

fn what_debug_shows() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let shows = |mutex: &ZkMutex, state: &str| {
        let text = format!("{mutex:?}");
        assert!(text.contains(LOCK) && text.contains(state), "{text} and not {state}");
    };
    shows(&mutex, "<unlocked here>");
    let guard = mutex.lock().unwrap();
    shows(&mutex, "<locked here>");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(other.lock().unwrap()));
        until_queue(&at, LOCK, 2);
        shows(&other, "<waiting>");
        let text = format!("{guard:?}");
        assert!(text.starts_with(&format!("ZkMutexGuard {{ path: {:?}", guard.path())), "{text}");
        assert!(text.contains("<held>"), "{text}");
        drop(guard);
        waiter.join().unwrap();
    });
    until_empty(&at, LOCK);
    shows(&mutex, "<unlocked here>");
    shows(&other, "<unlocked here>");
}

fn state_of_a_guard_of_a_closed_session() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mutex = ZkMutex::new(&ours, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let (lost, token) = (guard.lost(), guard.fencing_token());
    ours.close().unwrap();
    assert!(lost.receiver().recv().is_err());
    let reason = LossReason::SessionClosed;
    assert_eq!(
        (guard.is_held(), guard.lost_reason(), guard.valid_for()),
        (false, Some(reason), Duration::ZERO)
    );
    let loss = Error::Lost { path: guard.path().to_owned(), reason };
    assert_eq!(guard.check(), Err(loss.clone()));
    assert_eq!(guard.fencing_token(), token, "a lost guard keeps its token");
    assert!(format!("{guard:?}").contains("<lost>"));
    assert!(!mutex.is_owned_by_current_thread());
    assert_eq!(mutex.lock().map(drop), Err(loss.clone()), "the lost guard still exists");
    assert_eq!(guard.unlock(), Err(loss));
    for refused in [mutex.lock().map(drop), mutex.try_lock().optional().map(drop)] {
        assert!(matches!(&refused, Err(Error::Closed { path, .. }) if path == LOCK), "{refused:?}");
    }
    until_empty(&at, LOCK);
}

fn fencing_tokens_grow_from_holder_to_holder() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let mutexes = [ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap()];
    let mut tokens: Vec<FencingToken> = Vec::new();
    for round in 0..8 {
        let guard = mutexes[round % 2].lock().unwrap();
        let token = guard.fencing_token();
        assert_eq!(token.zxid(), stat(&at, guard.path()).unwrap().czxid);
        assert_eq!(token, guard.fencing_token());
        assert_eq!(token, mutexes[round % 2].lock().unwrap().fencing_token(), "re-entry keeps it");
        assert_eq!(token.to_string(), format!("0x{:x}.0", token.zxid()));
        tokens.push(token);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    until_empty(&at, LOCK);
}

fn fencing_tokens_grow_at_hand_overs_within_the_process() {
    let at = Shared::chroot();
    let mutex = ZkMutex::builder(&session(&at), LOCK).hand_over(SOON).build().unwrap();
    let token = |guard: &ZkMutexGuard| (guard.fencing_token(), guard.path().to_owned());
    let tokens: Vec<_> = thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        let threads = [(); 4].map(|()| spawn_waiting(scope, || token(&mutex.lock().unwrap())));
        let first = token(&guard);
        drop(guard);
        [first].into_iter().chain(threads.map(|thread| thread.join().unwrap())).collect()
    });
    assert!(
        tokens
            .iter()
            .all(|(token, path)| *path == tokens[0].1 && token.zxid() == tokens[0].0.zxid())
    );
    assert_eq!(
        tokens.iter().map(|(token, _)| token.hand_overs()).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    assert!(tokens.is_sorted_by(|a, b| a.0 < b.0), "{tokens:?}");
    until_empty(&at, LOCK);
}

fn valid_for_stays_below_the_session_timeout_by_a_twelfth() {
    let at = Shared::chroot();
    let session = session_of(&at, Duration::from_secs(6));
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let whole = session.status().timeout;
    let end = Instant::now() + whole * 3 / 2;
    while Instant::now() < end {
        let left = guard.valid_for();
        assert!(left > Duration::ZERO && left <= whole - whole / 12, "{left:?} of {whole:?}");
        assert!(guard.is_held() && session.status().lease_remaining > Duration::ZERO);
        thread::sleep(Duration::from_millis(20));
    }
    drop(guard);
    until_empty(&at, LOCK);
}

fn lost_is_not_ready_after_a_normal_release() {
    let at = Shared::chroot();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let (lost, clone) = (guard.lost(), guard.lost().clone());
    guard.unlock().unwrap();
    let later = mutex.lock().unwrap(); // this is another hold
    session.close().unwrap();
    assert_eq!(later.lost().wait(SOON), Some(LossReason::SessionClosed));
    for signal in [lost, clone] {
        assert_eq!(signal.receiver().try_recv(), Err(TryRecvError::Empty));
        assert_eq!(signal.reason(), None);
        select! {
            recv(signal.receiver()) -> _ => panic!("the signal of a released hold was set"),
            default => {}
        }
    }
    drop(later);
    until_empty(&at, LOCK);
}

fn a_node_that_a_third_party_deletes_is_a_loss() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    until_watched(&at, &guard);
    let mut raw = Raw::connect(&at).unwrap();
    raw.delete(&full_path(&at, guard.path())).unwrap();
    assert!(lost.wait(SOON).is_some());
    assert_eq!((lost.reason(), guard.is_held()), (Some(LossReason::NodeDeleted), false));
    drop(guard);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&at, LOCK);
}

/// With a session timeout of an hour the event loop sleeps for minutes, unless it is notified of a
/// new hold. The watch must not wait for this: neither if the hold is granted while the loop
/// sleeps, nor if it is granted while the loop handles events and is about to sleep.
fn a_held_node_is_watched_soon_however_long_the_session_timeout_is() {
    const HOUR: Duration = Duration::from_secs(3600);
    let server = Server::builder().max_session(HOUR).start();
    let at = server.connect_string();
    let proxy = Proxy::start(server.address());
    let session = session_of(&proxy.connect_string(), HOUR);
    assert_eq!(session.status().timeout, HOUR);
    proxy.delay(Duration::from_millis(20));
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    for _ in 0..5 {
        let watch = proxy.on_request(OpKind::GetData, SOON);
        let guard = mutex.lock().unwrap();
        assert_eq!(watch.wait().path.as_deref(), Some(guard.path()));
        guard.unlock().unwrap();
    }
    until_empty(&at, LOCK);
}

/// Compiles only if `T` does not implement `Send`: otherwise two impls fit and the type of `_` is
/// ambiguous.
macro_rules! assert_not_send {
    ($($type:ty),+) => {$({
        trait Fits<A> { fn fits() {} }
        struct IfSend;
        impl<T: ?Sized> Fits<()> for T {}
        impl<T: ?Sized + Send> Fits<IfSend> for T {}
        <$type as Fits<_>>::fits();
    })+};
}
pub(crate) use assert_not_send;

fn which_types_may_go_to_other_threads() {
    fn send<T: Send>() {}
    fn both<T: Send + Sync + 'static>() {}
    fn shared<T: Sync>() {}
    both::<ZkSession>();
    both::<ZkMutex>();
    both::<(CancelToken, Wait)>();
    both::<(LostSignal, RevokeSignal)>();
    both::<FencingToken>();
    both::<Contender>();
    both::<(Error, Cause, HostFailure, LossReason)>();
    both::<(SessionEvent, SessionState)>();
    both::<(Acl, Layout, WaitStrategy, RetryPolicy, LockBuilder<ZkMutex>)>();
    send::<SessionBuilder>();
    shared::<Held>();
    shared::<ZkMutexGuard>();
    shared::<(ZkReadGuard, ZkWriteGuard)>();
    assert_not_send!(ZkMutexGuard, ZkReadGuard, ZkWriteGuard);
}

scenarios![
    what_debug_shows,
    state_of_a_guard_of_a_closed_session,
    fencing_tokens_grow_from_holder_to_holder,
    fencing_tokens_grow_at_hand_overs_within_the_process,
    valid_for_stays_below_the_session_timeout_by_a_twelfth,
    lost_is_not_ready_after_a_normal_release,
    a_node_that_a_third_party_deletes_is_a_loss,
    a_held_node_is_watched_soon_however_long_the_session_timeout_is,
    which_types_may_go_to_other_threads,
];
