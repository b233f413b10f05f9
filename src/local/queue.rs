//! The local queue: the threads of one process take turns, first come, first served, and the thread
//! whose turn it is goes on to ZooKeeper.
//!
//! A thread that ends its turn passes it to the thread that has waited longest. It may hand over
//! the lock itself with the turn, without a round trip. A thread that gives up before it has the
//! lock hands over its place in the queue at the server. Each waiter has a channel of its own, so a
//! release wakes one thread. A thread that gets a lock which can be shared also lets in the next
//! waiters, as long as they want the same share.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::queue::name::NodeKey;
use zk_session::unstable::{Ended, Limit};
use zk_session::world::{Instant, Mutex, Sender, bounded};

/// `H` is a hold that one thread hands to the next, `P` a place in the queue at the server, `S` a
/// hold that several threads can share, and `B` the bounds of a share.
pub(crate) struct LocalQueue<H, P, S, B>(Mutex<QueueState<H, P, S, B>>);

struct QueueState<H, P, S, B> {
    /// The number of the thread whose turn it is, and what it wants.
    occupant: Option<(u64, Wants<B>)>,
    phase: TurnPhase,
    /// The node with which that thread takes the lock, or holds it.
    node: Option<NodeKey>,
    /// How often somebody was seen to hold the lock, or to be ahead of us at the server.
    contended: u64,
    next: u64,
    queue: VecDeque<Waiter<H, P, S, B>>,
}

struct Waiter<H, P, S, B> {
    number: u64,
    is_try: bool,
    wants: Wants<B>,
    sender: Sender<Message<H, P, S>>,
}

enum Message<H, P, S> {
    Turn(With<H, P>),
    Share(S),
    Busy,
}

/// What a thread gets together with its turn.
pub(crate) enum With<H, P> {
    Nothing,
    /// The lock.
    Hold(H),
    /// The place of a thread that has given up.
    Place(P),
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants<B> {
    /// The lock for itself: a hold may be handed to it.
    All,
    /// A share of the lock, with these bounds: no hold is handed to it.
    Share(B),
}

impl<B> Wants<B> {
    /// Whether both want the same kind of node at the server.
    fn is_kind_of(&self, other: &Wants<B>) -> bool {
        matches!((self, other), (Wants::All, Wants::All) | (Wants::Share(_), Wants::Share(_)))
    }
}

/// How far the thread is whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnPhase {
    /// It has sent requests to the server, and does not know yet whether somebody is ahead.
    Requesting,
    /// The server has shown somebody ahead.
    Blocked,
    /// It holds the lock.
    Held,
}

impl TurnPhase {
    /// The phase of a thread that has no lock yet. `is_blocked`: the server shows somebody ahead.
    pub(super) fn asking(is_blocked: bool) -> Self {
        if is_blocked { TurnPhase::Blocked } else { TurnPhase::Requesting }
    }
}

/// How a wait for the turn ended. `contended`: during the wait somebody held the lock, or was ahead
/// at the server.
pub(crate) enum TurnOutcome<H, P, S> {
    /// It is this thread's turn.
    Turn {
        number: u64,
        with: With<H, P>,
        contended: bool,
    },
    /// The thread whose turn it is shares its hold with this one.
    Share(S),
    /// Somebody holds the lock, or is ahead at the server, and this thread only tries.
    Busy,
    /// The time is over, or `look` has ended the wait. Without `contended` the threads ahead were
    /// asking the server until now, and had no answer that shows somebody.
    Deadline {
        contended: bool,
    },
    Cancelled,
}

impl<H, P, S, B> Default for LocalQueue<H, P, S, B> {
    fn default() -> Self {
        LocalQueue(Mutex::new(QueueState {
            occupant: None,
            phase: TurnPhase::Requesting,
            node: None,
            contended: 0,
            next: 0,
            queue: VecDeque::new(),
        }))
    }
}

impl<H, P, S, B: Copy + PartialEq> QueueState<H, P, S, B> {
    fn is_turn_of(&self, number: u64) -> bool {
        self.occupant.is_some_and(|(occupant, _)| occupant == number)
    }

    /// Ends the turn, and gives it to the thread that has waited longest.
    fn pass_turn_on(&mut self) {
        self.begin(None);
        let _ = self.give(With::Nothing, |_| true);
    }

    /// A turn begins, or no thread has it.
    fn begin(&mut self, occupant: Option<(u64, Wants<B>)>) {
        (self.occupant, self.phase, self.node) = (occupant, TurnPhase::Requesting, None);
    }

    /// Notes how far the thread is whose turn it is. Waiters that only try get their answer.
    fn set_phase(&mut self, phase: TurnPhase) {
        self.phase = phase;
        if phase != TurnPhase::Requesting {
            self.contended += 1;
            self.queue
                .retain(|waiter| !(waiter.is_try && waiter.sender.try_send(Message::Busy).is_ok()));
        }
    }

    /// Gives the turn to the thread that has waited longest, with this, if it `fits` what that
    /// thread wants. Otherwise this comes back, and the turn stays as it is. The phase stays.
    fn give(
        &mut self,
        mut with: With<H, P>,
        fits: impl Fn(Wants<B>) -> bool,
    ) -> Result<(), With<H, P>> {
        while self.queue.front().is_some_and(|waiter| fits(waiter.wants)) {
            let Some(Waiter { number, wants, sender, .. }) = self.queue.pop_front() else { break };
            match sender.try_send(Message::Turn(with)) {
                Ok(()) => {
                    (self.occupant, self.node) = (Some((number, wants)), None);
                    return Ok(());
                }
                Err(e) => match e.into_inner() {
                    Message::Turn(back) => with = back,
                    _ => return Ok(()), // never: the channel gives back the message that was sent
                },
            }
        }
        Err(with)
    }
}

impl<H, P, S, B: Copy + PartialEq> LocalQueue<H, P, S, B> {
    /// Waits for the turn. A thread that only tries waits too, until it is known whether the thread
    /// whose turn it is gets the lock.
    ///
    /// `look` is called when the wait begins, and again at the time that it gave before, until the
    /// wait ends. It may also end the wait.
    pub(crate) fn enter(
        &self,
        is_try: bool,
        wants: Wants<B>,
        limit: &Limit<'_>,
        look: &dyn Fn() -> ControlFlow<(), Option<Instant>>,
    ) -> TurnOutcome<H, P, S> {
        let (number, seen, receiver) = {
            let mut state = self.0.lock();
            state.next += 1;
            let number = state.next;
            if state.occupant.is_none() {
                state.begin(Some((number, wants)));
                return TurnOutcome::Turn { number, with: With::Nothing, contended: false };
            }
            let is_contended = state.phase != TurnPhase::Requesting;
            if is_try && is_contended {
                return TurnOutcome::Busy;
            }
            let (sender, receiver) = bounded(1);
            state.queue.push_back(Waiter { number, is_try, wants, sender });
            (number, state.contended - u64::from(is_contended), receiver)
        };
        let end = loop {
            let ControlFlow::Continue(look_at) = look() else { break Ended::Deadline };
            match look_at.map_or(*limit, |at| limit.or_at(at)).recv(&receiver) {
                Ended::Got(message) => return self.outcome(message, number, seen),
                Ended::Deadline if look_at.is_some() && !limit.is_past() => {}
                Ended::Deadline | Ended::Disconnected => break Ended::Deadline::<()>,
                Ended::Cancelled => break Ended::Cancelled,
            }
        };
        let mut state = self.0.lock();
        let before = state.queue.len();
        state.queue.retain(|waiter| waiter.number != number);
        if state.queue.len() == before {
            if let Ok(message) = receiver.try_recv() {
                drop(state);
                return self.outcome(message, number, seen); // the turn came first
            }
        }
        match end {
            Ended::Cancelled => TurnOutcome::Cancelled,
            _ => TurnOutcome::Deadline { contended: state.contended > seen },
        }
    }

    fn outcome(&self, message: Message<H, P, S>, number: u64, seen: u64) -> TurnOutcome<H, P, S> {
        match message {
            Message::Turn(with) => {
                TurnOutcome::Turn { number, with, contended: self.0.lock().contended > seen }
            }
            Message::Share(share) => TurnOutcome::Share(share),
            Message::Busy => TurnOutcome::Busy,
        }
    }

    /// Ends the turn of a thread that has no hold, and passes it on. The thread's `place` goes to
    /// the thread that has waited longest, if that wants a node of the same kind: that thread goes
    /// on where this one has stopped. Otherwise the place is dropped before the next turn begins,
    /// so that its delete is sent before the next create. Nothing happens if the turn is over.
    pub(crate) fn leave(&self, number: u64, place: Option<P>) {
        if let Some(place) = place {
            if self.pass_place(number, place).is_ok() {
                return;
            }
        }
        let mut state = self.0.lock();
        if state.is_turn_of(number) {
            state.pass_turn_on();
        }
    }

    /// If the place comes back, it must be dropped without the queue's mutex.
    fn pass_place(&self, number: u64, place: P) -> Result<(), With<H, P>> {
        let mut state = self.0.lock();
        match state.occupant {
            Some((occupant, wants)) if occupant == number => {
                state.give(With::Place(place), |next| next.is_kind_of(&wants))
            }
            _ => Err(With::Place(place)),
        }
    }

    /// Notes with which node the thread with this turn takes the lock. From now on the loss of that
    /// node ends the turn ([`end_hold`](Self::end_hold)). Nothing happens if the turn is over.
    pub(crate) fn note_node(&self, number: u64, node: NodeKey) {
        let mut state = self.0.lock();
        if state.is_turn_of(number) {
            state.node = Some(node);
        }
    }

    /// Ends the turn for which this node is noted, and passes it on. Nothing happens if there is no
    /// such turn.
    pub(crate) fn end_hold(&self, node: NodeKey) {
        let mut state = self.0.lock();
        if state.node == Some(node) {
            state.pass_turn_on();
        }
    }

    /// Ends the turn for which this node is noted, and hands the hold to the thread that has waited
    /// longest. The hold comes back, and the turn stays as it is, if there is no such turn, if no
    /// thread waits, or if the thread that has waited longest wants a share.
    pub(crate) fn pass(&self, node: NodeKey, handed: H) -> Result<(), H> {
        let mut state = self.0.lock();
        if state.node != Some(node) {
            return Err(handed);
        }
        match state.give(With::Hold(handed), |wants| wants == Wants::All) {
            Ok(()) => state.phase = TurnPhase::Requesting,
            Err(With::Hold(back)) => return Err(back),
            Err(_) => {} // never: what was given comes back
        }
        Ok(())
    }

    /// Gives the share to the thread that has waited longest, if it wants a share with these
    /// bounds; the turn stays. The share comes back if no thread waits, or that one wants something
    /// else, or the turn is over.
    pub(crate) fn share(&self, number: u64, bounds: B, share: S) -> Result<(), S> {
        let mut state = self.0.lock();
        let mut share = share;
        let wants = |waiter: &Waiter<H, P, S, B>| waiter.wants == Wants::Share(bounds);
        while state.is_turn_of(number) && state.queue.front().is_some_and(wants) {
            let Some(waiter) = state.queue.pop_front() else { break };
            match waiter.sender.try_send(Message::Share(share)) {
                Ok(()) => return Ok(()),
                Err(e) => match e.into_inner() {
                    Message::Share(back) => share = back,
                    _ => return Ok(()), // never: the channel gives back the message that was sent
                },
            }
        }
        Err(share)
    }

    /// Notes how far the thread is whose turn it is. Nothing happens if the turn is over.
    pub(crate) fn set_phase(&self, number: u64, phase: TurnPhase) {
        let mut state = self.0.lock();
        if state.is_turn_of(number) {
            state.set_phase(phase);
        }
    }

    /// As `set_phase`, for the turn for which this node is noted.
    pub(crate) fn set_phase_of(&self, node: NodeKey, phase: TurnPhase) {
        let mut state = self.0.lock();
        if state.node == Some(node) {
            state.set_phase(phase);
        }
    }

    /// The state of the lock in this process, for `Debug`.
    pub(crate) fn describe(&self) -> &'static str {
        match self.phase() {
            None => "<unlocked here>",
            Some(TurnPhase::Held) => "<locked here>",
            Some(_) => "<waiting>",
        }
    }

    pub(crate) fn phase(&self) -> Option<TurnPhase> {
        let state = self.0.lock();
        state.occupant.map(|_| state.phase)
    }
}

#[cfg(test)]
impl<H, P, S, B: Copy + PartialEq> LocalQueue<H, P, S, B> {
    pub(super) fn has_waiters(&self) -> bool {
        !self.0.lock().queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use zk_session::CancelToken;

    type Queue = LocalQueue<&'static str, &'static str, &'static str, u8>;
    const SHARE: Wants<u8> = Wants::Share(0);

    fn never_looks() -> ControlFlow<(), Option<Instant>> {
        ControlFlow::Continue(None)
    }

    fn hold(with: With<&'static str, &'static str>) -> Option<&'static str> {
        if let With::Hold(hold) = with { Some(hold) } else { None }
    }

    fn turn(t: &Queue, limit: &Limit<'_>) -> (u64, Option<&'static str>) {
        match t.enter(false, Wants::All, limit, &never_looks) {
            TurnOutcome::Turn { number, with, .. } => (number, hold(with)),
            _ => panic!("no turn"),
        }
    }

    /// The thread with this turn holds the lock, with this node.
    fn holds(t: &Queue, number: u64) -> NodeKey {
        let node = (1, number as i64);
        t.note_node(number, node);
        t.set_phase(number, TurnPhase::Held);
        node
    }

    fn wait_for(t: &Queue, waiters: usize) {
        while t.0.lock().queue.len() < waiters {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_get_the_turn_and_the_hold_in_the_order_in_which_they_came() {
        let t = Arc::new(Queue::default());
        let (first, _) = turn(&t, &Limit::NONE);
        let (order, seen) = bounded(8);
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (here, order) = (t.clone(), order.clone());
                let thread = std::thread::spawn(move || {
                    let (number, handed) = turn(&here, &Limit::NONE);
                    order.send((i, handed)).unwrap();
                    assert_eq!(here.pass(holds(&here, number), "handed").is_err(), i == 4);
                    here.leave(number, None);
                });
                wait_for(&t, i + 1);
                thread
            })
            .collect();
        assert_eq!(t.pass(holds(&t, first), "handed"), Ok(()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(
            seen.try_iter().collect::<Vec<_>>(),
            (0..5).map(|i| (i, Some("handed"))).collect::<Vec<_>>()
        );
        assert_eq!(t.phase(), None);
    }

    /// The thread before held the lock. The next one only asks for it, so another thread that only
    /// tries is not told that the lock is taken: it waits until that is known.
    #[test]
    fn a_turn_that_is_passed_on_is_no_hold_yet() {
        let t = Queue::default();
        let (first, _) = turn(&t, &Limit::NONE);
        holds(&t, first);
        std::thread::scope(|s| {
            let next = s.spawn(|| turn(&t, &Limit::NONE));
            wait_for(&t, 1);
            t.leave(first, None);
            let (number, handed) = next.join().unwrap();
            assert_eq!((handed, t.phase()), (None, Some(TurnPhase::Requesting)));
            let limit = Limit::after(Duration::from_millis(5));
            assert!(matches!(
                t.enter(true, Wants::All, &limit, &never_looks),
                TurnOutcome::Deadline { .. }
            ));
            t.leave(number, None);
        });
    }

    #[test]
    fn a_wait_is_looked_at_when_it_wants_and_may_be_ended() {
        let t = Queue::default();
        let _ = turn(&t, &Limit::NONE);
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(Some(Instant::now() + Duration::from_millis(5)))
        };
        let end = t.enter(false, Wants::All, &Limit::NONE, &look);
        assert!(matches!(end, TurnOutcome::Deadline { .. }));
        assert_eq!((looks.get(), t.0.lock().queue.len()), (3, 0));
    }

    #[test]
    fn a_turn_says_whether_anybody_held_the_lock_before() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        holds(&t, number);
        std::thread::scope(|s| {
            let next = s.spawn(|| {
                matches!(
                    t.enter(false, Wants::All, &Limit::NONE, &never_looks),
                    TurnOutcome::Turn { contended: true, .. }
                )
            });
            wait_for(&t, 1);
            t.leave(number, None);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn a_thread_that_only_tries_waits_until_the_attempt_before_it_is_decided() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let one = s.spawn(|| {
                matches!(t.enter(true, Wants::All, &Limit::NONE, &never_looks), TurnOutcome::Busy)
            });
            wait_for(&t, 1);
            holds(&t, number);
            assert!(one.join().unwrap());
        });
        assert!(matches!(t.enter(true, Wants::All, &Limit::NONE, &never_looks), TurnOutcome::Busy));
        t.leave(number, None);
        assert!(matches!(
            t.enter(true, Wants::All, &Limit::NONE, &never_looks),
            TurnOutcome::Turn { .. }
        ));
    }

    /// The waiter's time is over, and the turn comes before the waiter can leave the queue. Then it
    /// has the turn. (It is the same to the waiter if the turn comes a little earlier.)
    #[test]
    fn a_turn_that_comes_while_its_waiter_leaves_is_not_lost() {
        for _ in 0..200 {
            let t = Queue::default();
            let (number, _) = turn(&t, &Limit::NONE);
            std::thread::scope(|s| {
                s.spawn(|| {
                    match t.enter(false, Wants::All, &Limit::after(Duration::ZERO), &never_looks) {
                        TurnOutcome::Turn { number, .. } => t.leave(number, None),
                        TurnOutcome::Deadline { .. } => t.leave(number, None),
                        _ => panic!("neither the turn nor the deadline"),
                    }
                });
                loop {
                    let mut state = t.0.lock();
                    if let Some(next) = state.queue.pop_front() {
                        for _ in 0..5 {
                            // The waiter finds no turn yet, and waits for the mutex of the queue.
                            std::thread::yield_now();
                        }
                        // As `leave` does it.
                        assert!(next.sender.try_send(Message::Turn(With::Nothing)).is_ok());
                        state.occupant = Some((next.number, next.wants));
                        return;
                    }
                    if state.next > number && state.queue.is_empty() {
                        return; // it has left already
                    }
                }
            });
            assert_eq!(t.phase(), None, "nobody has the turn, and nobody can get it");
        }
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_queue() {
        let (t, token) = (Queue::default(), CancelToken::new());
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                matches!(
                    t.enter(false, Wants::All, &Limit::cancelled_by(&token), &never_looks),
                    TurnOutcome::Cancelled
                )
            });
            wait_for(&t, 1);
            token.cancel();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(t.pass(holds(&t, number), "back"), Err("back"));
    }

    #[test]
    fn a_turn_that_a_loss_has_ended_is_not_ended_twice() {
        let t = Queue::default();
        let (old, _) = turn(&t, &Limit::NONE);
        let lost = holds(&t, old);
        t.end_hold(lost);
        let (new, _) = turn(&t, &Limit::NONE);
        holds(&t, new);
        assert_eq!(t.pass(lost, "late"), Err("late"));
        t.end_hold(lost);
        t.leave(old, None);
        assert!(matches!(
            t.enter(false, Wants::All, &Limit::after(Duration::ZERO), &never_looks),
            TurnOutcome::Deadline { .. }
        ));
        t.leave(new, None);
    }

    #[test]
    fn a_hold_is_not_handed_to_a_thread_that_wants_a_share() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let reader = s.spawn(|| match t.enter(false, SHARE, &Limit::NONE, &never_looks) {
                TurnOutcome::Turn { number, with, .. } => {
                    t.leave(number, None);
                    hold(with)
                }
                _ => panic!("no turn"),
            });
            wait_for(&t, 1);
            let writer = s.spawn(|| turn(&t, &Limit::NONE).1);
            wait_for(&t, 2);
            assert_eq!(t.pass(holds(&t, number), "handed"), Err("handed"));
            t.leave(number, None);
            assert_eq!((reader.join().unwrap(), writer.join().unwrap()), (None, None));
        });
    }

    #[test]
    fn a_share_goes_to_each_next_waiter_until_one_wants_the_lock_for_itself() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let sharer = |is_try| match t.enter(is_try, SHARE, &Limit::NONE, &never_looks) {
                TurnOutcome::Share(share) => share,
                TurnOutcome::Turn { number, .. } => {
                    t.leave(number, None);
                    "a turn"
                }
                _ => "nothing",
            };
            let first = s.spawn(move || sharer(true));
            wait_for(&t, 1);
            let second = s.spawn(move || sharer(false));
            wait_for(&t, 2);
            let writer = s.spawn(|| t.leave(turn(&t, &Limit::NONE).0, None));
            wait_for(&t, 3);
            let behind = s.spawn(move || sharer(false));
            wait_for(&t, 4);
            assert_eq!(t.share(number + 9, 0, "no turn"), Err("no turn"));
            assert_eq!([t.share(number, 0, "one"), t.share(number, 0, "two")], [Ok(()), Ok(())]);
            assert_eq!((first.join().unwrap(), second.join().unwrap()), ("one", "two"));
            assert_eq!(t.share(number, 0, "too many"), Err("too many"));
            t.leave(number, None);
            writer.join().unwrap();
            assert_eq!(behind.join().unwrap(), "a turn");
        });
        assert_eq!(t.phase(), None);
    }

    /// The thread at the front gives up. Its place goes to the next thread, and what is known of
    /// others stays known.
    #[test]
    fn the_place_of_a_thread_that_gives_up_goes_to_the_next_thread() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        t.set_phase(number, TurnPhase::Blocked);
        std::thread::scope(|s| {
            let next = s.spawn(|| match t.enter(false, Wants::All, &Limit::NONE, &never_looks) {
                TurnOutcome::Turn { number, with: With::Place(place), contended } => {
                    (number, place, contended)
                }
                _ => panic!("no place"),
            });
            wait_for(&t, 1);
            t.leave(number, Some("place"));
            let (next, place, contended) = next.join().unwrap();
            assert_eq!((place, contended, t.phase()), ("place", true, Some(TurnPhase::Blocked)));
            t.leave(number, Some("of before")); // this turn is over
            assert_eq!(t.phase(), Some(TurnPhase::Blocked));
            t.leave(next, Some(place));
            assert_eq!(t.phase(), None);
        });
    }

    #[test]
    fn a_place_does_not_go_to_a_thread_that_wants_another_kind_of_node() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        t.set_phase(number, TurnPhase::Blocked);
        std::thread::scope(|s| {
            let reader = s.spawn(|| match t.enter(false, SHARE, &Limit::NONE, &never_looks) {
                TurnOutcome::Turn { with: With::Nothing, .. } => t.phase(),
                _ => panic!("no turn of its own"),
            });
            wait_for(&t, 1);
            t.leave(number, Some("of a writer"));
            assert_eq!(reader.join().unwrap(), Some(TurnPhase::Requesting));
        });
    }

    /// A share with other bounds is not what the next reader wants. That reader keeps its turn
    /// before the writer that came later.
    #[test]
    fn a_reader_with_other_bounds_is_not_overtaken() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let reader =
                s.spawn(|| match t.enter(false, Wants::Share(1), &Limit::NONE, &never_looks) {
                    TurnOutcome::Turn { number, .. } => number,
                    _ => panic!("no turn"),
                });
            wait_for(&t, 1);
            let writer = s.spawn(|| t.leave(turn(&t, &Limit::NONE).0, None));
            wait_for(&t, 2);
            assert_eq!(t.share(number, 0, "other"), Err("other"));
            t.leave(number, None);
            let turn_of_reader = reader.join().unwrap();
            assert!(t.has_waiters(), "the writer came later");
            t.leave(turn_of_reader, None);
            writer.join().unwrap();
        });
    }

    /// The thread ahead has asked the server, and has no answer. That is no contention.
    #[test]
    fn a_wait_for_a_thread_that_is_still_asking_shows_no_contention() {
        let t = Queue::default();
        let (number, _) = turn(&t, &Limit::NONE);
        let contended = |t: &Queue| {
            let limit = Limit::after(Duration::from_millis(1));
            match t.enter(false, Wants::All, &limit, &never_looks) {
                TurnOutcome::Deadline { contended } => contended,
                _ => panic!("the turn is not free"),
            }
        };
        assert!(!contended(&t));
        t.set_phase(number, TurnPhase::Blocked);
        assert!(contended(&t));
        t.set_phase(number, TurnPhase::Requesting);
        assert!(!contended(&t));
    }
}
