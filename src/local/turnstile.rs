//! First come, first served among the threads of this process: one at a time goes on to ZooKeeper.
//!
//! Whoever leaves passes the turn to the longest waiting, perhaps with a baton: the lock itself,
//! handed over without a round trip. Each waiter has its own wake-up, so a release wakes one thread.

use std::collections::VecDeque;

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;

use crate::limit::{Ended, Limit};

pub(crate) struct Turnstile<B>(Mutex<State<B>>);

struct State<B> {
    /// Whose turn it is.
    occupant: Option<u64>,
    phase: Phase,
    /// How often somebody was seen to hold the lock, or to stand ahead of us at the server.
    contended: u64,
    next: u64,
    queue: VecDeque<Waiter<B>>,
}

struct Waiter<B> {
    number: u64,
    is_try: bool,
    sender: Sender<Message<B>>,
}

enum Message<B> {
    Turn(Option<B>),
    Busy,
}

/// What the occupant is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It asks the server, which has not answered yet.
    Asking,
    /// The server showed somebody else ahead.
    Blocked,
    /// It holds the lock.
    Holding,
}

/// How an attempt to get the turn ended. `contended`: while we waited somebody held the lock, or
/// stood ahead at the server.
pub(crate) enum Entry<B> {
    /// It is our turn, and perhaps our lock.
    Turn {
        number: u64,
        baton: Option<B>,
        contended: bool,
    },
    /// Somebody holds the lock, or is ahead at the server: for those who only try.
    Busy,
    Deadline {
        contended: bool,
    },
    Cancelled,
}

impl<B> Turnstile<B> {
    pub(crate) fn new() -> Self {
        Turnstile(Mutex::new(State {
            occupant: None,
            phase: Phase::Asking,
            contended: 0,
            next: 0,
            queue: VecDeque::new(),
        }))
    }

    /// Waits for the turn. Who only tries waits while the occupant's own attempt is undecided.
    pub(crate) fn enter(&self, is_try: bool, limit: &Limit<'_>) -> Entry<B> {
        let (number, seen, receiver) = {
            let mut state = self.0.lock();
            state.next += 1;
            let number = state.next;
            if state.occupant.is_none() {
                state.occupant = Some(number);
                state.phase = Phase::Asking;
                return Entry::Turn { number, baton: None, contended: false };
            }
            let is_contended = state.phase != Phase::Asking;
            if is_try && is_contended {
                return Entry::Busy;
            }
            let (sender, receiver) = bounded(1);
            state.queue.push_back(Waiter { number, is_try, sender });
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
        if state.queue.len() == before
            && let Ok(message) = receiver.try_recv()
        {
            drop(state);
            return self.entry(message, number, seen); // the turn came first
        }
        match end {
            Ended::Cancelled => Entry::Cancelled,
            _ => Entry::Deadline { contended: state.contended > seen },
        }
    }

    fn entry(&self, message: Message<B>, number: u64, seen: u64) -> Entry<B> {
        match message {
            Message::Turn(baton) => Entry::Turn { number, baton, contended: self.0.lock().contended > seen },
            Message::Busy => Entry::Busy,
        }
    }

    /// Ends the turn; what could not be passed on comes back. Nothing happens if the turn is over.
    pub(crate) fn leave(&self, number: u64, baton: Option<B>) -> Option<B> {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return baton;
        }
        state.phase = Phase::Asking;
        let mut baton = baton;
        while let Some(waiter) = state.queue.pop_front() {
            match waiter.sender.try_send(Message::Turn(baton)) {
                Ok(()) => {
                    state.occupant = Some(waiter.number);
                    return None;
                }
                Err(e) => match e.into_inner() {
                    Message::Turn(back) => baton = back,
                    Message::Busy => return None,
                },
            }
        }
        state.occupant = None;
        baton
    }

    /// What the occupant is at now. Nothing happens if the turn is over.
    pub(crate) fn set_phase(&self, number: u64, phase: Phase) {
        let mut state = self.0.lock();
        if state.occupant != Some(number) {
            return;
        }
        state.phase = phase;
        if phase != Phase::Asking {
            state.contended += 1;
            state.queue.retain(|waiter| !(waiter.is_try && waiter.sender.try_send(Message::Busy).is_ok()));
        }
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        let state = self.0.lock();
        state.occupant.map(|_| state.phase)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.0.lock().queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;
    use std::sync::Arc;
    use std::time::Duration;

    fn turn(t: &Turnstile<&'static str>, limit: &Limit<'_>) -> (u64, Option<&'static str>) {
        match t.enter(false, limit) {
            Entry::Turn { number, baton, .. } => (number, baton),
            _ => panic!("no turn"),
        }
    }

    fn wait_for(t: &Turnstile<&'static str>, waiters: usize) {
        while t.0.lock().queue.len() < waiters {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_pass_in_the_order_they_came_and_the_baton_goes_along() {
        let t = Arc::new(Turnstile::new());
        let (first, _) = turn(&t, &Limit::NONE);
        let (order, seen) = bounded(8);
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (here, order) = (t.clone(), order.clone());
                let thread = std::thread::spawn(move || {
                    let (number, baton) = turn(&here, &Limit::NONE);
                    order.send((i, baton)).unwrap();
                    assert_eq!(here.leave(number, baton), if i == 4 { baton } else { None });
                });
                wait_for(&t, i + 1);
                thread
            })
            .collect();
        assert_eq!(t.leave(first, Some("baton")), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(
            seen.try_iter().collect::<Vec<_>>(),
            (0..5).map(|i| (i, Some("baton"))).collect::<Vec<_>>()
        );
        assert_eq!(t.phase(), None);
    }

    #[test]
    fn a_deadline_tells_whether_anybody_held_the_lock() {
        let t = Turnstile::<&str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        let short = || Limit::after(Duration::from_millis(5));
        assert!(matches!(t.enter(false, &short()), Entry::Deadline { contended: false }));
        t.set_phase(number, Phase::Holding);
        assert!(matches!(t.enter(false, &short()), Entry::Deadline { contended: true }));
        t.set_phase(number, Phase::Asking);
        assert!(matches!(t.enter(false, &short()), Entry::Deadline { contended: false }));
        assert!(!t.has_waiters());
    }

    #[test]
    fn a_turn_tells_whether_anybody_held_the_lock_before() {
        let t = Turnstile::<&str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        t.set_phase(number, Phase::Holding);
        std::thread::scope(|s| {
            let next =
                s.spawn(|| matches!(t.enter(false, &Limit::NONE), Entry::Turn { contended: true, .. }));
            wait_for(&t, 1);
            t.leave(number, None);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn who_only_tries_waits_for_the_occupants_attempt_and_no_longer() {
        let t = Turnstile::<&str>::new();
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let one = s.spawn(|| matches!(t.enter(true, &Limit::NONE), Entry::Busy));
            wait_for(&t, 1);
            t.set_phase(number, Phase::Holding);
            assert!(one.join().unwrap());
        });
        assert!(matches!(t.enter(true, &Limit::NONE), Entry::Busy));
        t.leave(number, None);
        assert!(matches!(t.enter(true, &Limit::NONE), Entry::Turn { .. }));
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_queue() {
        let (t, token) = (Turnstile::<&str>::new(), CancelToken::new());
        let (number, _) = turn(&t, &Limit::NONE);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| matches!(t.enter(false, &Limit::cancelled_by(&token)), Entry::Cancelled));
            wait_for(&t, 1);
            token.cancel();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(t.leave(number, Some("back")), Some("back"));
    }

    #[test]
    fn a_turn_that_was_forfeited_is_not_ended_twice() {
        let t = Turnstile::<&str>::new();
        let (old, _) = turn(&t, &Limit::NONE);
        t.leave(old, None);
        let (new, _) = turn(&t, &Limit::NONE);
        assert_eq!(t.leave(old, Some("late")), Some("late"));
        assert!(matches!(t.enter(false, &Limit::after(Duration::ZERO)), Entry::Deadline { .. }));
        t.leave(new, None);
    }
}
