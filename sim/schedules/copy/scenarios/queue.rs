//! The local queue: turns, hand-overs, shares, deadlines and cancelled waits.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use zk_session::cancel::CancelToken;
use zk_session::limit::Limit;
use crate::local::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants, With};
use crate::queue::name::NodeKey;
use zk_session::world::{Instant, advance, atomic, explore_up_to, spawn};

const SECOND: Duration = Duration::from_secs(1);

/// How often a thread that could continue loses the processor.
const BOUND: Option<usize> = Some(2);

struct Node;
struct Place;
struct Share;

/// The readers' bounds are alike.
const SHARE: Wants<()> = Wants::Share(());

/// A queue with its checks at each step: one thread at a time has the turn, in the order of
/// arrival. Threads get their numbers in that order.
struct Room {
    queue: LocalQueue<Node, Place, Share, ()>,
    inside: atomic::AtomicUsize,
    last: AtomicU64,
    hand_overs: AtomicUsize,
    shares: AtomicUsize,
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Room {
            queue: LocalQueue::default(),
            inside: atomic::AtomicUsize::new(0),
            last: AtomicU64::new(0),
            hand_overs: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
        })
    }

    fn enter(&self, is_try: bool, wants: Wants<()>, limit: &Limit<'_>) -> TurnOutcome<Node, Place, Share> {
        let entry = self.queue.enter(is_try, wants, limit, &|| ControlFlow::Continue(None));
        match &entry {
            TurnOutcome::Turn { number, with, .. } => {
                let others = self.inside.fetch_add(1, Ordering::Relaxed);
                assert_eq!(others, 0, "two threads have the turn");
                let before = self.last.swap(*number, Ordering::Relaxed);
                assert!(before < *number, "a thread that came later was first");
                if let With::Hold(_) = with {
                    self.hand_overs.fetch_sub(1, Ordering::Relaxed);
                }
            }
            TurnOutcome::Share(_) => {
                self.shares.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        entry
    }

    /// Takes a turn; the wait cannot end in another way.
    fn turn(&self, limit: &Limit<'_>) -> u64 {
        match self.enter(false, Wants::All, limit) {
            TurnOutcome::Turn { number, .. } => number,
            _ => panic!("the wait ended without a turn"),
        }
    }

    /// Takes a turn and leaves, unless the wait ends in another way.
    fn visit(&self, limit: &Limit<'_>) {
        if let TurnOutcome::Turn { number, .. } = self.enter(false, Wants::All, limit) {
            self.leave(number);
        }
    }

    /// Ends the part of the thread that only one thread may be in.
    fn is_done(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    fn leave(&self, number: u64) {
        self.is_done();
        self.queue.leave(number, None);
    }

    /// Gives up, with a place in the queue at the server.
    fn give_up(&self, number: u64) {
        self.is_done();
        self.queue.leave(number, Some(Place));
    }

    /// The thread with this turn holds the lock, with this node.
    fn holds(&self, number: u64) -> NodeKey {
        let node = (1, number as i64);
        self.queue.note_node(number, node);
        self.queue.set_phase(number, TurnPhase::Held);
        node
    }

    /// Hands the hold of this node over, or ends it.
    fn pass(&self, node: NodeKey) {
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        if self.queue.pass(node, Node).is_err() {
            self.hand_overs.fetch_sub(1, Ordering::Relaxed);
            self.queue.end_hold(node);
        }
    }

    /// Like a lock and its release: the turn becomes a hold, which is handed over or ends.
    fn hand_over(&self, number: u64) {
        let node = self.holds(number);
        self.is_done();
        self.pass(node);
    }

    fn share(&self, number: u64) {
        self.shares.fetch_add(1, Ordering::Relaxed);
        if self.queue.share(number, (), Share).is_err() {
            self.shares.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Checks, when all threads have left, that the turn is free and nothing was lost on its way.
    fn is_quiet(&self) {
        assert_eq!(self.queue.phase(), None, "no thread has the turn, and it is not free");
        assert_eq!(self.hand_overs.load(Ordering::Relaxed), 0, "a hand-over was lost");
        assert_eq!(self.shares.load(Ordering::Relaxed), 0, "a share was lost");
    }
}

pub fn threads_have_the_turn_one_at_a_time_in_the_order_in_which_they_came() {
    explore_up_to(BOUND, || {
        let room = Room::new();
        let others = [(); 2].map(|()| {
            let room = room.clone();
            spawn(move || room.visit(&Limit::NONE))
        });
        room.visit(&Limit::NONE);
        others.into_iter().for_each(|other| other.join().unwrap());
        room.is_quiet();
    });
}

/// One thread has the turn, a second waits with the limit, and a third waits without one. A fourth
/// thread ends the second's wait while the first ends its turn.
fn a_wait_that_ends(limit: Ending, end_turn: fn(&Room, u64)) {
    explore_up_to(BOUND, move || {
        let (room, token) = (Room::new(), CancelToken::new());
        let deadline = Instant::now() + SECOND;
        let number = room.turn(&Limit::NONE);
        let waiter = {
            let (room, token) = (room.clone(), token.clone());
            spawn(move || match limit {
                Ending::Cancel => room.visit(&Limit::cancelled_by(&token)),
                Ending::Deadline => room.visit(&Limit::NONE.or_at(deadline)),
            })
        };
        let behind = {
            let room = room.clone();
            spawn(move || {
                let number = room.turn(&Limit::NONE);
                room.leave(number);
            })
        };
        let ender = spawn(move || match limit {
            Ending::Cancel => token.cancel(),
            Ending::Deadline => advance(SECOND),
        });
        end_turn(&room, number);
        [waiter, behind, ender].into_iter().for_each(|thread| thread.join().unwrap());
        room.is_quiet();
    });
}

#[derive(Clone, Copy)]
enum Ending {
    Cancel,
    Deadline,
}

pub fn a_waiter_that_is_cancelled_passes_on_a_turn_that_has_come() {
    a_wait_that_ends(Ending::Cancel, Room::leave);
}

pub fn a_waiter_whose_deadline_comes_with_the_turn_passes_it_on() {
    a_wait_that_ends(Ending::Deadline, Room::leave);
}

pub fn a_hand_over_and_a_deadline_at_the_same_instant() {
    a_wait_that_ends(Ending::Deadline, Room::hand_over);
}

pub fn a_hand_over_and_a_cancel_at_the_same_instant() {
    a_wait_that_ends(Ending::Cancel, Room::hand_over);
}

pub fn a_place_that_is_passed_on_and_a_deadline_at_the_same_instant() {
    a_wait_that_ends(Ending::Deadline, Room::give_up);
}

pub fn a_place_that_is_passed_on_and_a_cancel_at_the_same_instant() {
    a_wait_that_ends(Ending::Cancel, Room::give_up);
}

pub fn a_share_and_a_deadline_at_the_same_instant() {
    explore_up_to(BOUND, || {
        let room = Room::new();
        let deadline = Instant::now() + SECOND;
        let number = room.turn(&Limit::NONE);
        let sharer = {
            let room = room.clone();
            spawn(move || {
                if let TurnOutcome::Turn { number, .. } = room.enter(false, SHARE, &Limit::NONE.or_at(deadline)) {
                    room.leave(number);
                }
            })
        };
        let clock = spawn(|| advance(SECOND));
        room.share(number);
        room.leave(number);
        [sharer, clock].into_iter().for_each(|thread| thread.join().unwrap());
        room.is_quiet();
    });
}

pub fn a_thread_that_only_tries_finds_the_lock_held() {
    explore_up_to(BOUND, || {
        let room = Room::new();
        let number = room.turn(&Limit::NONE);
        let tries = [Wants::All, SHARE].map(|wants| {
            let room = room.clone();
            spawn(move || assert!(matches!(room.enter(true, wants, &Limit::NONE), TurnOutcome::Busy), "not busy"))
        });
        room.holds(number);
        tries.into_iter().for_each(|thread| thread.join().unwrap());
        room.leave(number);
        room.is_quiet();
    });
}

pub fn a_thread_that_only_tries_takes_a_turn_that_becomes_free() {
    explore_up_to(BOUND, || {
        let room = Room::new();
        let number = room.turn(&Limit::NONE);
        let tries = [(); 2].map(|()| {
            let room = room.clone();
            spawn(move || match room.enter(true, Wants::All, &Limit::NONE) {
                TurnOutcome::Turn { number, .. } => room.leave(number),
                TurnOutcome::Busy => panic!("busy although no thread held the lock"),
                _ => panic!("nothing ends this wait"),
            })
        });
        room.leave(number);
        tries.into_iter().for_each(|thread| thread.join().unwrap());
        room.is_quiet();
    });
}

/// The loss of a hold ends its turn while its owner ends the turn too.
fn a_turn_is_forfeited(end_turn: fn(&Room, NodeKey)) {
    explore_up_to(BOUND, move || {
        let room = Room::new();
        let node = room.holds(room.turn(&Limit::NONE));
        room.is_done(); // its hold is lost
        let waiters = [(); 2].map(|()| {
            let room = room.clone();
            spawn(move || {
                let number = room.turn(&Limit::NONE);
                room.leave(number);
            })
        });
        let loss = {
            let room = room.clone();
            spawn(move || room.queue.end_hold(node))
        };
        end_turn(&room, node);
        waiters.into_iter().chain([loss]).for_each(|thread| thread.join().unwrap());
        room.is_quiet();
    });
}

pub fn a_turn_that_is_forfeited_while_its_owner_leaves_ends_once() {
    a_turn_is_forfeited(|room, node| room.queue.end_hold(node));
}

pub fn a_turn_that_is_forfeited_while_it_is_handed_over_ends_once() {
    a_turn_is_forfeited(Room::pass);
}

/// Nine threads: some wait without a limit, some until a deadline, some until they are cancelled,
/// some to read, and some only try. One thread moves the clock, and one cancels.
pub fn crowd_of_all_kinds() {
    explore_up_to(BOUND, || {
        let (room, token) = (Room::new(), CancelToken::new());
        let start = Instant::now();
        let users: Vec<_> = (0..7)
            .map(|i: u32| {
                let (room, token) = (room.clone(), token.clone());
                spawn(move || {
                    for round in 0..2 {
                        let limit = match i {
                            2 | 6 => Limit::NONE.or_at(start + SECOND * (1 + round)),
                            3 | 4 if round == 0 => Limit::cancelled_by(&token).or_at(start + SECOND * 2),
                            _ => Limit::NONE,
                        };
                        let wants = if i == 4 || i == 5 { SHARE } else { Wants::All };
                        let TurnOutcome::Turn { number, .. } = room.enter(i == 1 || i == 5, wants, &limit) else {
                            continue;
                        };
                        room.queue.set_phase(number, TurnPhase::Blocked);
                        room.queue.set_phase(number, TurnPhase::Requesting);
                        if wants == SHARE {
                            room.share(number);
                            room.share(number);
                            room.leave(number);
                        } else {
                            room.hand_over(number);
                        }
                    }
                })
            })
            .collect();
        let clock = spawn(|| (0..3).for_each(|_| advance(SECOND)));
        token.cancel();
        users.into_iter().chain([clock]).for_each(|thread| thread.join().unwrap());
        room.is_quiet();
    });
}
