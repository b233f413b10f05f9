//! `Observer`: the application's own code, which is called when something happens to a session or
//! its locks.
//!
//! Foreign code may block or panic, so no thread that takes, keeps or releases a lock calls it.
//! Such a thread puts an [`Event`] into the session's [`EventQueue`], which takes some nanoseconds.
//! One more thread of the session takes the events out and calls the observers. Without an observer
//! there is neither a queue nor a thread.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::error::LossReason;
use zk_session::SessionEvent;
use zk_session::unstable::{Notice, Observing, contained};
use zk_session::world::{Instant, Mutex, Receiver, Sender, bounded, holds_no_lock, thread};
use zk_wire::code::op;

/// How many events may wait for the observers. When there are more, what begins is not reported.
const ROOM: usize = 16_384;

/// After the thread of the observers has taken all events, it sleeps for so long. While locks are
/// taken all the time, it is then woken a hundred times in a second, and not once for each lock.
const NAP: Duration = Duration::from_millis(10);

/// How long the observers' thread waits at most, after the session was closed, for the ends of
/// waits and holds. Each of them comes at once: the waits fail, and the holds are lost.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// The application's own code that is called at what happens to a session and its locks: for
/// metrics, for traces, for an alarm. Each method does nothing by default.
///
/// [`SessionBuilder::observer`](crate::SessionBuilder::observer) takes it. `MetricsObserver`, with
/// the feature `metrics`, is an observer. To look at numbers from time to time,
/// [`ZkSession::status`](crate::ZkSession::status) and [`ZkMutex::stats`](crate::ZkMutex::stats)
/// suffice, without an observer.
///
/// # Threads
///
/// The session calls its observers on one thread of its own, one call after the other, up to 10 ms
/// after the event. No thread that takes, keeps or releases a lock waits for an observer. So an
/// observer may block and may call the session's methods, `close` included. An observer cannot
/// end a hold. To stop work when a lock is lost, use [`Held::lost`](crate::Held::lost). A
/// panic in an observer is caught, and the observer is called again at the next event. The first
/// panic of an observer is logged.
///
/// # What is reported
///
/// * **A call for a lock**: [`wait_began`](Self::wait_began), then [`contended`](Self::contended)
///   if somebody else has the lock, then exactly one [`wait_ended`](Self::wait_ended). A call by a
///   thread that holds the lock already (re-entry) does not wait and is not reported. A multi-lock
///   reports a wait of each member that it asks for. A candidate of an election waits until it
///   leads.
/// * **A hold**: it begins with a wait that ends as [`Acquired`](WaitOutcome::Acquired), and ends
///   with exactly one [`released`](Self::released) or [`lost`](Self::lost). All guards of a thread
///   on a re-entrant lock are one hold, which ends with the last of them. Several permits that were
///   taken together are one hold, and so is a term of a leader.
/// * **The session**: [`session_changed`](Self::session_changed) with
///   [`SessionEvent::Closed`] is the last call of all. A call that waits for a lock at that time,
///   and a hold that stands, have been reported to their end before.
///
/// If an observer is so slow that 16,384 events wait for it, the library does not report calls for
/// a lock that begin then, requests, and renewals of the lease. [`missed`](Self::missed) says how
/// many. A call that was reported as begun is reported to its end. If twice as many events wait,
/// changes of the session are left out too, but never its end.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{LockLabel, LossReason, Observer, WaitOutcome, ZkSession};
///
/// struct SlowLocks;
///
/// impl Observer for SlowLocks {
///     fn wait_ended(&mut self, lock: &LockLabel, outcome: WaitOutcome, waited: Duration) {
///         if waited > Duration::from_secs(1) {
///             eprintln!("{}: {outcome:?} after {waited:?}", lock.path);
///         }
///     }
///
///     fn lost(&mut self, lock: &LockLabel, reason: LossReason) {
///         eprintln!("{}: lost, {reason}", lock.path);
///     }
/// }
///
/// let session = ZkSession::builder("zk1:2181").observer(SlowLocks).connect()?;
/// # Ok(())
/// # }
/// ```
#[allow(unused_variables)]
pub trait Observer: Send + 'static {
    /// A call for a lock begins.
    fn wait_began(&mut self, lock: &LockLabel) {}

    /// The call that waits has found that somebody else, of this process or another, has the lock
    /// or is ahead. Called once in a wait at most.
    fn contended(&mut self, lock: &LockLabel) {}

    /// The call gets the lock from another thread of this process, or finds that its process has
    /// kept it, and so needs no round trip. [`wait_ended`](Self::wait_ended) follows.
    fn handed_over(&mut self, lock: &LockLabel) {}

    /// A call for a lock has ended, `waited` after it began.
    fn wait_ended(&mut self, lock: &LockLabel, outcome: WaitOutcome, waited: Duration) {}

    /// A hold has ended by a release, `held_for` after it began.
    fn released(&mut self, lock: &LockLabel, held_for: Duration) {}

    /// A hold has ended by a loss. The guards of this hold may live on.
    fn lost(&mut self, lock: &LockLabel, reason: LossReason) {}

    /// A server has answered a request of this session, `took` after it was sent. `operation` is
    /// one of `create`, `delete`, `exists`, `get_data`, `set_data`, `get_children`, `sync`, `ping`
    /// and `other`.
    fn request_answered(&mut self, operation: &'static str, took: Duration) {}

    /// An answer has renewed the lease while something is held, and `left` was left of it at that
    /// time. If `left` is zero, the renewal came too late. At most one renewal is reported in each
    /// twelfth of the session timeout.
    fn lease_margin(&mut self, left: Duration) {}

    /// The session was made, suspended, resumed, lost or closed. If it is lost, so is every lock
    /// that was held in it. After [`SessionEvent::Closed`] there is no further call.
    fn session_changed(&mut self, event: &SessionEvent) {}

    /// So many calls for a lock, requests, renewals of the lease or changes of the session were not
    /// reported, because the observers are too slow.
    fn missed(&mut self, events: u64) {}
}

/// The lock of which an [`Observer`] is told. All locks of one path in one session share one label;
/// a `ZkRwLock` has two, `read` and `write`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockLabel {
    /// The kind of lock: `mutex`, `read`, `write`, `semaphore`, `semaphore_mutex`, `exclusive` or
    /// `election`.
    pub recipe: &'static str,
    /// The name that the program has given it with [`LockBuilder::name`](crate::LockBuilder::name);
    /// empty if it has given none.
    pub name: String,
    /// The lock's path, as it was given. There may be very many paths, so it is no label for
    /// metrics.
    pub path: String,
}

/// How a call for a lock has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// The call has the lock. A hold begins.
    Acquired,
    /// Others had the lock for as long as the call could wait: it returned
    /// [`Error::TimedOut`](crate::Error::TimedOut) or
    /// [`Error::WouldBlock`](crate::Error::WouldBlock).
    TimedOut,
    /// The call returned [`Error::Cancelled`](crate::Error::Cancelled).
    Cancelled,
    /// The call returned another error, or panicked.
    Failed,
}

impl WaitOutcome {
    /// In one word with small letters, as a label of a metric: `acquired`, `timed_out`, `cancelled`
    /// or `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitOutcome::Acquired => "acquired",
            WaitOutcome::TimedOut => "timed_out",
            WaitOutcome::Cancelled => "cancelled",
            WaitOutcome::Failed => "failed",
        }
    }
}

/// A call of each observer.
#[derive(Debug)]
pub(crate) enum Event {
    Lock(Arc<LockLabel>, LockEvent),
    Session(Notice),
}

#[derive(Debug)]
pub(crate) enum LockEvent {
    WaitBegan,
    Contended,
    WaitEnded(WaitEnd),
    Released(Duration),
    Lost(LossReason),
}

/// The end of a wait, with what was found just before it. One event is cheaper than three, and a
/// hand-over between two threads takes only some microseconds.
#[derive(Debug)]
pub(crate) struct WaitEnd {
    pub(crate) outcome: WaitOutcome,
    pub(crate) waited: Duration,
    pub(crate) is_contended: bool,
    pub(crate) is_handed_over: bool,
}

/// The events of a session on their way to its observers. No call here waits for an observer or
/// runs foreign code, so that any thread may report under any lock.
pub(crate) struct EventQueue {
    backlog: Arc<Mutex<Backlog>>,
    /// Wakes the observers' thread when the first event has come into an empty backlog.
    wake: Sender<()>,
}

#[derive(Default)]
struct Backlog {
    /// The oldest is first.
    events: Vec<Event>,
    /// How many events the observers' thread has taken out and not delivered yet.
    taken: usize,
    /// The waits and the holds that were reported as begun and not yet as ended. (A hold begins
    /// with the end of its wait.)
    owed: u64,
    /// The events that were not reported, and not yet counted in a call of `missed`.
    missed: u64,
    /// From now on no event is added: the observers' thread takes out the last ones, or has ended.
    is_over: bool,
}

impl Backlog {
    fn len(&self) -> usize {
        self.events.len() + self.taken
    }
}

impl EventQueue {
    pub(crate) fn new() -> (Arc<Self>, EventInbox) {
        let (wake, woken) = bounded(1);
        let backlog = Arc::<Mutex<Backlog>>::default();
        let inbox = EventInbox { backlog: backlog.clone(), woken };
        (Arc::new(EventQueue { backlog, wake }), inbox)
    }

    /// Reports that a wait begins. False: it is not reported, so what follows must not be either.
    pub(crate) fn wait_began(&self, lock: &Arc<LockLabel>) -> bool {
        self.add(Event::Lock(lock.clone(), LockEvent::WaitBegan), Some(ROOM))
    }

    /// Reports what follows a wait whose beginning was reported, even if there is no room. There
    /// are at most as many such events as calls that wait and holds that stand.
    pub(crate) fn follows(&self, lock: &Arc<LockLabel>, event: LockEvent) {
        self.add(Event::Lock(lock.clone(), event), None);
    }

    /// Reports what happens to the session. There is room left for changes of its state, so that
    /// they are missed only by observers that have been stuck for very long. The end is never
    /// missed: the observers' thread ends by it. A request, or a renewal of the lease, is reported
    /// if there is room.
    fn session(&self, notice: Notice) {
        let room = match &notice {
            Notice::Session(SessionEvent::Closed) => None,
            Notice::Session(_) => Some(ROOM * 2),
            Notice::Answered(..) | Notice::LeaseMargin(_) => Some(ROOM),
        };
        self.add(Event::Session(notice), room);
    }

    /// What the session needs to report to this queue and to call the observers.
    pub(crate) fn observing(self: Arc<Self>, inbox: EventInbox, of: Observers) -> Observing {
        Observing {
            tell: Box::new(move |notice| self.session(notice)),
            run: Box::new(move || inbox.deliver(of)),
        }
    }

    /// Adds an event, if fewer than `room` wait. False: it is not reported.
    fn add(&self, event: Event, room: Option<usize>) -> bool {
        let mut backlog = self.backlog.lock();
        if backlog.is_over {
            return false;
        }
        if room.is_some_and(|room| backlog.len() >= room) {
            backlog.missed += 1;
            return false;
        }
        match &event {
            Event::Lock(_, LockEvent::WaitBegan) => backlog.owed += 1,
            Event::Lock(_, LockEvent::WaitEnded(WaitEnd { outcome, .. }))
                if *outcome == WaitOutcome::Acquired => {}
            Event::Lock(
                _,
                LockEvent::WaitEnded(_) | LockEvent::Released(_) | LockEvent::Lost(_),
            ) => backlog.owed = backlog.owed.saturating_sub(1),
            _ => {}
        }
        let was_empty = backlog.events.is_empty();
        backlog.events.push(event);
        drop(backlog);
        if was_empty {
            let _ = self.wake.try_send(()); // if it is full, the thread is woken already
        }
        true
    }
}

/// The observers' side of an [`EventQueue`].
pub(crate) struct EventInbox {
    backlog: Arc<Mutex<Backlog>>,
    woken: Receiver<()>,
}

/// An observer, and whether a panic in it was logged.
pub(crate) type Observers = Vec<(Box<dyn Observer>, bool)>;

impl EventInbox {
    /// Calls the observers for each event, until the session is closed.
    pub(crate) fn deliver(&self, mut observers: Observers) {
        while self.woken.recv().is_ok() {
            while let Some(events) = self.take() {
                if let Some(closed) = deliver(&mut observers, events) {
                    return self.last_calls(&mut observers, &closed);
                }
                self.backlog.lock().taken = 0;
                thread::sleep(NAP);
            }
        }
    }

    fn take(&self) -> Option<Events> {
        Events::take(&mut self.backlog.lock())
    }

    /// What was reported of locks since the last call.
    #[cfg(test)]
    pub(crate) fn reported(&self) -> Vec<LockEvent> {
        let events = self.take().map(|all| all.events).unwrap_or_default();
        let of_a_lock = |event| match event {
            Event::Lock(_, event) => Some(event),
            Event::Session(_) => None,
        };
        events.into_iter().filter_map(of_a_lock).collect()
    }

    /// After the close: waits until each wait and each hold that was reported as begun has ended,
    /// delivers all that was reported before, and then the close.
    fn last_calls(&self, observers: &mut Observers, closed: &Event) {
        let until = Instant::now() + LAST_CALLS;
        while !self.backlog.lock().is_over {
            let events = {
                let mut backlog = self.backlog.lock();
                // From then on nothing is added, and these events are the last.
                backlog.is_over = backlog.owed == 0 || Instant::now() >= until;
                Events::take(&mut backlog)
            };
            match events {
                Some(events) => drop(deliver(observers, events)),
                None => drop(self.woken.recv_timeout(NAP)),
            }
        }
        call(observers, closed);
    }
}

/// Events that were taken out of the backlog together.
struct Events {
    events: Vec<Event>,
    /// How many were not reported since the events before.
    missed: u64,
}

impl Events {
    /// Takes out all events that wait; `None` if there is nothing to tell.
    fn take(backlog: &mut Backlog) -> Option<Self> {
        backlog.taken = backlog.events.len();
        let events = std::mem::take(&mut backlog.events);
        let missed = std::mem::take(&mut backlog.missed);
        (!events.is_empty() || missed > 0).then_some(Events { events, missed })
    }
}

/// Calls the observers for these events. Gives the end of the session, if it is among them: it is
/// delivered last of all.
fn deliver(observers: &mut Observers, Events { events, missed }: Events) -> Option<Event> {
    if missed > 0 {
        each(observers, &"missed", |observer| observer.missed(missed));
    }
    let mut closed = None;
    for event in events {
        if matches!(event, Event::Session(Notice::Session(SessionEvent::Closed))) {
            closed = Some(event);
        } else {
            call(observers, &event);
        }
    }
    closed
}

fn call(observers: &mut Observers, event: &Event) {
    if let Event::Lock(lock, LockEvent::WaitEnded(end)) = event {
        if end.is_contended {
            each(observers, &"contended", |observer| observer.contended(lock));
        }
        if end.is_handed_over {
            each(observers, &"handed_over", |observer| observer.handed_over(lock));
        }
    }
    each(observers, event, |observer| dispatch(event, observer));
}

/// Makes this call of each observer; `event` is named in the log if it panics.
fn each(observers: &mut Observers, event: &dyn Debug, call: impl Fn(&mut dyn Observer)) {
    debug_assert!(holds_no_lock(), "an observer would run under a lock");
    for (observer, has_panicked) in observers {
        let called = contained(|| call(observer.as_mut()));
        if called.is_none() && !std::mem::replace(has_panicked, true) {
            error!(
                "an observer panicked at {event:?}; it is called again, and further panics are not logged"
            );
        }
    }
}

fn dispatch(event: &Event, observer: &mut dyn Observer) {
    match event {
        Event::Lock(lock, LockEvent::WaitBegan) => observer.wait_began(lock),
        Event::Lock(lock, LockEvent::Contended) => observer.contended(lock),
        Event::Lock(lock, LockEvent::WaitEnded(WaitEnd { outcome, waited, .. })) => {
            observer.wait_ended(lock, *outcome, *waited);
        }
        Event::Lock(lock, LockEvent::Released(held_for)) => observer.released(lock, *held_for),
        Event::Lock(lock, LockEvent::Lost(reason)) => observer.lost(lock, *reason),
        Event::Session(Notice::Answered(op, took)) => {
            observer.request_answered(operation(*op), *took);
        }
        Event::Session(Notice::LeaseMargin(left)) => observer.lease_margin(*left),
        Event::Session(Notice::Session(event)) => observer.session_changed(event),
    }
}

/// The name of an operation for observers. The operations of the application's client that the
/// library does not send itself have no names of their own.
fn operation(code: i32) -> &'static str {
    match code {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => "create",
        op::DELETE => "delete",
        op::EXISTS => "exists",
        op::GET_DATA => "get_data",
        op::SET_DATA => "set_data",
        op::GET_CHILDREN | op::GET_CHILDREN2 => "get_children",
        op::SYNC => "sync",
        op::PING => "ping",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the calls about locks, and the last one.
    #[derive(Clone, Default)]
    struct Noting(Arc<Mutex<Vec<String>>>);

    impl Observer for Noting {
        fn wait_ended(&mut self, _: &LockLabel, outcome: WaitOutcome, _: Duration) {
            self.0.lock().push(outcome.as_str().to_owned());
        }

        fn lost(&mut self, _: &LockLabel, reason: LossReason) {
            self.0.lock().push(reason.as_str().to_owned());
        }

        fn missed(&mut self, events: u64) {
            self.0.lock().push(format!("missed {events}"));
        }

        fn session_changed(&mut self, event: &SessionEvent) {
            self.0.lock().push(format!("{event:?}"));
        }
    }

    /// The thread that takes the lock may be stopped between the end of its wait and the loss.
    #[test]
    fn the_end_of_a_hold_that_is_told_late_comes_before_the_close() {
        let (queue, inbox) = EventQueue::new();
        let label = LockLabel { recipe: "mutex", name: String::new(), path: "/lock".into() };
        let (label, noting) = (Arc::new(label), Noting::default());
        assert!(queue.wait_began(&label));
        let (outcome, waited) = (WaitOutcome::Acquired, Duration::ZERO);
        let end = WaitEnd { outcome, waited, is_contended: false, is_handed_over: false };
        queue.follows(&label, LockEvent::WaitEnded(end));
        queue.session(Notice::Session(SessionEvent::Closed));
        let observers: Observers = vec![(Box::new(noting.clone()), false)];
        let thread = thread::spawn(move || inbox.deliver(observers));
        while noting.0.lock().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(NAP * 3); // the close is not told meanwhile
        queue.follows(&label, LockEvent::Lost(LossReason::SessionClosed));
        thread.join().unwrap();
        assert_eq!(*noting.0.lock(), ["acquired", "session_closed", "Closed"]);
        assert!(!queue.wait_began(&label), "nobody would be told");
    }

    #[test]
    fn what_was_missed_is_told_also_if_nothing_follows() {
        let (queue, inbox) = EventQueue::new();
        for _ in 0..ROOM + 5 {
            queue.session(Notice::LeaseMargin(Duration::ZERO));
        }
        queue.session(Notice::Session(SessionEvent::Closed));
        let noting = Noting::default();
        inbox.deliver(vec![(Box::new(noting.clone()), false)]);
        assert_eq!(*noting.0.lock(), ["missed 5", "Closed"]);
    }

    #[test]
    fn each_operation_has_the_name_that_the_documentation_lists() {
        let named = [
            (op::CREATE, "create"),
            (op::CREATE2, "create"),
            (op::CREATE_CONTAINER, "create"),
            (op::CREATE_TTL, "create"),
            (op::DELETE, "delete"),
            (op::EXISTS, "exists"),
            (op::GET_DATA, "get_data"),
            (op::SET_DATA, "set_data"),
            (op::GET_CHILDREN, "get_children"),
            (op::GET_CHILDREN2, "get_children"),
            (op::SYNC, "sync"),
            (op::PING, "ping"),
        ];
        for code in -200..=200 {
            let name = named.iter().find(|(of, _)| *of == code).map_or("other", |(_, name)| *name);
            assert_eq!(operation(code), name, "{code}");
        }
        let source = include_str!("observer.rs");
        let docs = source.split_once("`operation` is\n").unwrap().1.split_once("fn ").unwrap().0;
        let mut listed: Vec<&str> = docs.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed.pop(), Some("other"));
        let mut names: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
        names.dedup();
        assert_eq!(listed, names);
    }
}
