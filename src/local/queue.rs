//! First come, first served among the threads of this process: one at a time goes on to ZooKeeper.
//!
//! Whoever leaves passes the turn to the longest waiting, perhaps with a handed: the lock itself,
//! handed over without a round trip. Each waiter has its own wake-up, so a release wakes one
//! thread. Whoever gets what can be shared lets those in who wait next in line for the same.

use std::collections::VecDeque;

use crate::limit::{Ended, Limit};
use crate::world::{Mutex, Sender, bounded};

/// `B` is what goes from one to the next, `S` what several can have.
pub(crate) struct LocalQueue<B, S>(Mutex<QueueState<B, S>>);

struct QueueState<B, S> {
    /// Whose turn it is.
    occupant: Option<u64>,
    phase: TurnPhase,
    /// How often somebody was seen to hold the lock, or to stand ahead of us at the server.
    contended: u64,
    next: u64,
    queue: VecDeque<Waiter<B, S>>,
}

struct Waiter<B, S> {
    number: u64,
    is_try: bool,
    wants: Wants,
    sender: Sender<Message<B, S>>,
}

enum Message<B, S> {
    Turn(Option<B>),
    Share(S),
    Busy,
}

/// What one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// All of it: takes the handed.
    All,
    /// A share: takes no handed.
    Share,
}

/// What the occupant is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnPhase {
    /// It asks the server, which has not answered yet.
    Asking,
    /// The server showed somebody else ahead.
    Blocked,
    /// It holds the lock.
    Holding,
}

/// How an attempt to get the turn ended. `contended`: while we waited somebody held the lock, or
/// stood ahead at the server.
pub(crate) enum TurnOutcome<B, S> {
    /// It is our turn, and perhaps our lock.
    Turn {
        number: u64,
        handed: Option<B>,
        contended: bool,
    },
    /// Whose turn it was has let us in.
    Share(S),
    /// Somebody holds the lock, or is ahead at the server: for those who only try.
    Busy,
    Deadline {
        contended: bool,
    },
    Cancelled,
}

impl<B, S> LocalQueue<B, S> {
    pub(crate) fn new() -> Self {
        LocalQueue(Mutex::new(QueueState {
            occupant: None,
            phase: TurnPhase::Asking,
            contended: 0,
            next: 0,
            queue: VecDeque::new(),
        }))
    }

    /// Waits for the turn. Who only tries waits while the occupant's own attempt is undecided.
    pub(crate) fn enter(&self, is_try: bool, wants: Wants, limit: &Limit<'_>) -> TurnOutcome<B, S> {
        let (number, seen, receiver) = {
            let mut state = self.0.lock();
            state.next += 1;
            let number = state.next;
            if state.occupant.is_none() {
                state.occupant = Some(number);
                state.phase = TurnPhase::Asking;
                return TurnOutcome::Turn { number, handed: None, contended: false };
            }
            let is_contended = state.phase != TurnPhase::Asking;
            if is_try && is_contended {
                return TurnOutcome::Busy;
            }
            let (sender, receiver) = bounded(1);
            state.queue.push_back(Waiter { number, is_try, wants, sender });
            (number, state.contended - u64::from(is_contended), receiver)
        };
        let end = match limit.recv(&receiver) {
            Ended::Got(message) => return self.entry(message, number, seen),
            Ended::Deadline | Ended::Disconnected => Ended::Deadline::<()>,
            Ended::Cancelled => Ended::Cancelled,
        };
        let mut state = self.0.lock();
        let before = state.queue.len();
        state.queue.retain(|waiter| waiter.number != number);
        if state.queue.len() == before {
            if let Ok(message) = receiver.try_recv() {
                drop(state);
                return self.entry(message, number, seen); // the turn came first
            }
        }
        match end {
            Ended::Cancelled => TurnOutcome::Cancelled,
            _ => TurnOutcome::Deadline { contended: state.contended > seen },
        }
    }

    fn entry(&self, message: Message<B, S>, number: u64, seen: u64) -> TurnOutcome<B, S> {
        match message {
            Message::Turn(handed) => {
                TurnOutcome::Turn { number, handed, contended: self.0.lock().contended > seen }
            }
            Message::Share(share) => TurnOutcome::Share(share),
            Message::Busy => TurnOutcome::Busy,
        }
    }

    /// Ends the turn. Nothing happens if it is over.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return;
        }
        state.phase = TurnPhase::Asking;
        while let Some(waiter) = state.queue.pop_front() {
            if waiter.sender.try_send(Message::Turn(None)).is_ok() {
                state.occupant = Some(waiter.number);
                return;
            }
        }
        state.occupant = None;
    }

    /// Ends the turn with the handed going to the longest waiting. Back it comes, and the turn
    /// stays, if nobody waits, or the longest waiting takes none, or the turn is over.
    pub(crate) fn pass(&self, number: u64, handed: B) -> Result<(), B> {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return Err(handed);
        }
        let mut handed = handed;
        while state.queue.front().is_some_and(|waiter| waiter.wants == Wants::All) {
            let Some(waiter) = state.queue.pop_front() else { break };
            match waiter.sender.try_send(Message::Turn(Some(handed))) {
                Ok(()) => {
                    state.occupant = Some(waiter.number);
                    state.phase = TurnPhase::Asking;
                    return Ok(());
                }
                Err(e) => match e.into_inner() {
                    Message::Turn(Some(back)) => handed = back,
                    _ => return Ok(()), // never: it is what was sent
                },
            }
        }
        Err(handed)
    }

    /// Lets in the longest waiting, if it wants a share; the turn stays. Back it comes if nobody
    /// waits, or the longest waiting wants more, or the turn is over.
    pub(crate) fn share(&self, number: u64, share: S) -> Result<(), S> {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return Err(share);
        }
        let mut share = share;
        while state.queue.front().is_some_and(|waiter| waiter.wants == Wants::Share) {
            let Some(waiter) = state.queue.pop_front() else { break };
            match waiter.sender.try_send(Message::Share(share)) {
                Ok(()) => return Ok(()),
                Err(e) => match e.into_inner() {
                    Message::Share(back) => share = back,
                    _ => return Ok(()), // never: it is what was sent
                },
            }
        }
        Err(share)
    }

    /// What the occupant is at now. Nothing happens if the turn is over.
    pub(crate) fn set_phase(&self, number: u64, phase: TurnPhase) {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return;
        }
        state.phase = phase;
        if phase != TurnPhase::Asking {
            state.contended += 1;
            state
                .queue
                .retain(|waiter| !(waiter.is_try && waiter.sender.try_send(Message::Busy).is_ok()));
        }
    }

    pub(crate) fn phase(&self) -> Option<TurnPhase> {
        let state = self.0.lock();
        state.occupant.map(|_| state.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;
    use std::sync::Arc;
    use std::time::Duration;

    fn turn(
        t: &LocalQueue<&'static str, &'static str>,
        limit: &Limit<'_>,
    ) -> (u64, Option<&'static str>) {
        match t.enter(false, Wants::All, limit) {
            TurnOutcome::Turn { number, handed, .. } => (number, handed),
            _ => panic!("no turn"),
        }
    }

    fn wait_for(t: &LocalQueue<&'static str, &'static str>, waiters: usize) {
        while t.0.lock().queue.len() < waiters {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_pass_in_the_order_they_came_and_the_baton_goes_along() {
        let t = Arc::new(LocalQueue::<_, &str>::new());
        let (first, _) = turn(&t, &Limit::NONE);
        let (order, seen) = bounded(8);
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (here, order) = (t.clone(), order.clone());
                let thread = std::thread::spawn(move || {
                    let (number, handed) = turn(&here, &Limit::NONE);
                    order.send((i, handed)).unwrap();
                    assert_eq!(here.pass(number, "handed").is_err(), i == 4);
                    here.leave(number);
                });
                wait_for(&t, i + 1);
                thread
            })
            .collect();
        assert_eq!(t.pass(first, "handed"), Ok(()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(
            seen.try_iter().collect::<Vec<_>>(),
            (0..5).map(|i| (i, Some("handed"))).collect::<Vec<_>>()
        );
        assert_eq!(t.phase(), None);
    }

    #[test]
    fn a_deadline_tells_whether_anybody_held_the_lock() {
        let t = LocalQueue::<&str, &str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        let short = || Limit::after(Duration::from_millis(5));
        assert!(matches!(
            t.enter(false, Wants::All, &short()),
            TurnOutcome::Deadline { contended: false }
        ));
        t.set_phase(number, TurnPhase::Holding);
        assert!(matches!(
            t.enter(false, Wants::All, &short()),
            TurnOutcome::Deadline { contended: true }
        ));
        t.set_phase(number, TurnPhase::Asking);
        assert!(matches!(
            t.enter(false, Wants::All, &short()),
            TurnOutcome::Deadline { contended: false }
        ));
        assert_eq!(t.pass(number, "nobody waits"), Err("nobody waits"));
    }

    #[test]
    fn a_turn_tells_whether_anybody_held_the_lock_before() {
        let t = LocalQueue::<&str, &str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        t.set_phase(number, TurnPhase::Holding);
        std::thread::scope(|s| {
            let next = s.spawn(|| {
                matches!(
                    t.enter(false, Wants::All, &Limit::NONE),
                    TurnOutcome::Turn { contended: true, .. }
                )
            });
            wait_for(&t, 1);
            t.leave(number);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn who_only_tries_waits_for_the_occupants_attempt_and_no_longer() {
        let t = LocalQueue::<&str, &str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let one =
                s.spawn(|| matches!(t.enter(true, Wants::All, &Limit::NONE), TurnOutcome::Busy));
            wait_for(&t, 1);
            t.set_phase(number, TurnPhase::Holding);
            assert!(one.join().unwrap());
        });
        assert!(matches!(t.enter(true, Wants::All, &Limit::NONE), TurnOutcome::Busy));
        t.leave(number);
        assert!(matches!(t.enter(true, Wants::All, &Limit::NONE), TurnOutcome::Turn { .. }));
    }

    /// The waiter's time is over, and the turn comes before the waiter can leave the queue: it has
    /// the turn then. (Where the turn comes a little earlier, that is the same to it.)
    #[test]
    fn a_turn_that_comes_while_its_waiter_leaves_is_not_lost() {
        for _ in 0..200 {
            let t = LocalQueue::<&str, &str>::new();
            let (number, _) = turn(&t, &Limit::NONE);
            std::thread::scope(|s| {
                s.spawn(|| match t.enter(false, Wants::All, &Limit::after(Duration::ZERO)) {
                    TurnOutcome::Turn { number, .. } => t.leave(number),
                    TurnOutcome::Deadline { .. } => t.leave(number),
                    _ => panic!("neither the turn nor the deadline"),
                });
                loop {
                    let mut state = t.0.lock();
                    if let Some(next) = state.queue.pop_front() {
                        for _ in 0..5 {
                            // the waiter finds no turn, and wants the lock
                            std::thread::yield_now();
                        }
                        // as `leave` does it
                        assert!(next.sender.try_send(Message::Turn(None)).is_ok());
                        state.occupant = Some(next.number);
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
        let (t, token) = (LocalQueue::<&str, &str>::new(), CancelToken::new());
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                matches!(
                    t.enter(false, Wants::All, &Limit::cancelled_by(&token)),
                    TurnOutcome::Cancelled
                )
            });
            wait_for(&t, 1);
            token.cancel();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(t.pass(number, "back"), Err("back"));
    }

    #[test]
    fn a_turn_that_was_forfeited_is_not_ended_twice() {
        let t = LocalQueue::<&str, &str>::new();
        let (old, _) = turn(&t, &Limit::NONE);
        t.leave(old);
        let (new, _) = turn(&t, &Limit::NONE);
        assert_eq!(t.pass(old, "late"), Err("late"));
        t.leave(old);
        assert!(matches!(
            t.enter(false, Wants::All, &Limit::after(Duration::ZERO)),
            TurnOutcome::Deadline { .. }
        ));
        t.leave(new);
    }

    #[test]
    fn a_baton_is_not_forced_on_who_takes_none() {
        let t = LocalQueue::<&str, &str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let reader = s.spawn(|| match t.enter(false, Wants::Share, &Limit::NONE) {
                TurnOutcome::Turn { number, handed, .. } => {
                    t.leave(number);
                    handed
                }
                _ => panic!("no turn"),
            });
            wait_for(&t, 1);
            let writer = s.spawn(|| turn(&t, &Limit::NONE).1);
            wait_for(&t, 2);
            assert_eq!(t.pass(number, "handed"), Err("handed"));
            t.leave(number);
            assert_eq!((reader.join().unwrap(), writer.join().unwrap()), (None, None));
        });
    }

    #[test]
    fn a_share_lets_in_who_waits_for_one_up_to_the_first_who_wants_all() {
        let t = LocalQueue::<&str, &str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let sharer = |is_try| match t.enter(is_try, Wants::Share, &Limit::NONE) {
                TurnOutcome::Share(share) => share,
                TurnOutcome::Turn { number, .. } => {
                    t.leave(number);
                    "a turn"
                }
                _ => "nothing",
            };
            let first = s.spawn(move || sharer(true));
            wait_for(&t, 1);
            let second = s.spawn(move || sharer(false));
            wait_for(&t, 2);
            let writer = s.spawn(|| t.leave(turn(&t, &Limit::NONE).0));
            wait_for(&t, 3);
            let behind = s.spawn(move || sharer(false));
            wait_for(&t, 4);
            assert_eq!(t.share(number + 9, "no turn"), Err("no turn"));
            assert_eq!([t.share(number, "one"), t.share(number, "two")], [Ok(()), Ok(())]);
            assert_eq!((first.join().unwrap(), second.join().unwrap()), ("one", "two"));
            assert_eq!(t.share(number, "too many"), Err("too many"));
            t.leave(number);
            writer.join().unwrap();
            assert_eq!(behind.join().unwrap(), "a turn");
        });
        assert_eq!(t.phase(), None);
    }
}
