//! A lock inside one process: turns, and holds that are handed over, lost and kept. The server is
//! replaced: it gives each node the lock at once.

use std::convert::Infallible;
use std::sync::{Arc, Mutex}; // notes
use std::time::Duration;

use zk_session::clock::BootTime;
use crate::local::lock::LocalLock;
use zk_session::limit::Limit;
use crate::queue::name::Kind;
use crate::queue::Settings;
use crate::queue::{EndBy, HeldNode, Queue, Request};
use crate::session::ZkSession;
use zk_session::generation::{Folder, Generation, SPAN};
use crate::queue::HoldBounds;
use crate::queue::request::{Call, Mode};
use zk_session::world::{HashSet, JoinHandle, advance, explore_up_to, spawn};

const HOUR: Duration = Duration::from_secs(3600);

/// For how long a hold may be handed over, and be kept.
type Stays = (Duration, Duration);
const HAND_OVER: Stays = (HOUR, Duration::ZERO);
const KEEP: Stays = (Duration::ZERO, HOUR);

/// How often a thread that could continue loses the processor.
const BOUND: Option<usize> = Some(2);

struct Stage {
    session: ZkSession,
    local: LocalLock<Infallible>,
    /// The holds that threads have guards on.
    guards: Mutex<Vec<Arc<HeldNode>>>,
}

impl Stage {
    fn new() -> Arc<Self> {
        let local = LocalLock::new(Queue::new("/l"));
        Arc::new(Stage { session: ZkSession::new(), local, guards: Mutex::default() })
    }

    fn generation(&self) -> Arc<Generation> {
        self.session.core().current()
    }

    fn hold(&self) -> Arc<HeldNode> {
        self.hold_for(None)
    }

    /// Takes the lock, for so long at most. No other guard is valid while this one is.
    fn hold_for(&self, max: Option<Duration>) -> Arc<HeldNode> {
        let (call, settings) = (&Call::new("lock"), &self.settings(HAND_OVER));
        let request = Request { call, settings, mode: Mode::Wait, limit: Limit::NONE };
        let node = self
            .local
            .hold(&request, Kind::Lock)
            .unwrap()
            .expect("this wait cannot end in another way");
        node.bind(&HoldBounds { max, ..HoldBounds::default() });
        let others = {
            let mut guards = self.guards.lock().unwrap();
            let others = guards.clone();
            guards.push(node.clone());
            others
        };
        for other in others {
            // This hold may be lost already, and another thread may have the lock: it is read last.
            assert!(!(other.is_held() && node.is_held()), "two guards are valid");
        }
        node
    }

    fn settings(&self, (hand_over, keep): Stays) -> Settings {
        Settings { session: self.session.clone(), path: "/l".to_owned(), hand_over, keep }
    }

    fn release(&self, node: &Arc<HeldNode>, stays: Stays) {
        self.guards.lock().unwrap().retain(|other| !Arc::ptr_eq(other, node));
        let (hand_over, keep) = stays;
        let _ = self.local.release(node, hand_over, keep, node.loss(), EndBy::Drop);
    }

    fn cycle(&self, stays: Stays) {
        let node = self.hold();
        self.release(&node, stays);
    }

    /// Checks that each node that was made was deleted exactly once.
    fn is_clean(&self, generation: &Generation) {
        let mut deleted = generation.deleted.lock().unwrap().clone();
        deleted.sort();
        let made: Vec<String> = (0..self.session.core().nodes()).map(|n| format!("/l/{n}")).collect();
        assert_eq!(deleted, made, "the nodes that were deleted, and those that were made");
        assert_eq!(self.local.describe(), "<unlocked here>", "no thread has the turn, and it is not free");
    }

    /// Another client deletes the first node.
    fn node_is_deleted(self: &Arc<Self>) -> JoinHandle<()> {
        let generation = self.generation();
        spawn(move || generation.deletion_seen("/l/0"))
    }

    /// Ends the lease; the timer notices it.
    fn lease_ends(self: &Arc<Self>) -> JoinHandle<()> {
        let generation = self.generation();
        spawn(move || {
            advance(SPAN);
            generation.lease.end_if_due(BootTime::now());
        })
    }
}

pub fn threads_hold_the_lock_one_at_a_time_and_hand_it_over() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let others = [(); 2].map(|()| {
            let stage = stage.clone();
            spawn(move || stage.cycle(HAND_OVER))
        });
        stage.cycle(HAND_OVER);
        others.into_iter().for_each(|other| other.join().unwrap());
        stage.is_clean(&stage.generation());
    });
}

/// The hold is lost while one thread leaves the lock to another one, whose guard is leaked. A valid
/// hold has the turn, and a lost hold has none: otherwise no thread would ever get the lock again.
fn a_release_and_a_loss(stays: Stays, lose: fn(&Arc<Stage>) -> JoinHandle<()>) {
    explore_up_to(BOUND, move || {
        let stage = Stage::new();
        let first = stage.hold();
        let next = {
            let stage = stage.clone();
            spawn(move || stage.hold())
        };
        let loss = lose(&stage);
        stage.release(&first, stays);
        loss.join().unwrap();
        let node = next.join().unwrap();
        let expected = if node.is_held() { "<locked here>" } else { "<unlocked here>" };
        assert_eq!(stage.local.describe(), expected, "a lost hold blocks the next thread");
    });
}

pub fn a_hold_that_is_lost_while_it_is_handed_over_keeps_no_turn() {
    a_release_and_a_loss(HAND_OVER, Stage::lease_ends);
}

/// No clock shows the loss to the thread that takes over.
pub fn a_hold_whose_node_is_deleted_while_it_is_handed_over_keeps_no_turn() {
    a_release_and_a_loss(HAND_OVER, Stage::node_is_deleted);
}

/// The loss, the thread that leaves the node to the keeper, and the thread that takes it from there
/// may all end a turn by the name of that node.
pub fn a_hold_whose_node_is_deleted_while_it_is_kept_keeps_no_turn() {
    a_release_and_a_loss(KEEP, Stage::node_is_deleted);
}

/// The first thread's time ends while it hands the lock over. Its hold is lost before that, and the
/// next thread has another; or the next thread has it, and a time of its own.
pub fn a_hold_whose_time_ends_while_it_is_handed_over_is_lost_or_begins_anew() {
    const TIME: Option<Duration> = Some(Duration::from_secs(2));
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let first = stage.hold_for(TIME);
        let next = {
            let stage = stage.clone();
            spawn(move || stage.hold_for(TIME.map(|time| time * 2)))
        };
        let timer = {
            let generation = stage.generation();
            spawn(move || {
                advance(Duration::from_secs(2));
                generation.lease.end_if_due(BootTime::now());
            })
        };
        stage.release(&first, HAND_OVER);
        timer.join().unwrap();
        let node = next.join().unwrap();
        assert!(node.is_held(), "lost by the time of another thread");
        assert_eq!(stage.local.describe(), "<locked here>", "a hold that stands has no turn");
    });
}

pub fn a_hold_that_is_lost_while_it_is_released_keeps_no_turn() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let first = stage.hold();
        let timer = stage.lease_ends();
        let next = {
            let stage = stage.clone();
            spawn(move || stage.cycle(HAND_OVER))
        };
        stage.release(&first, HAND_OVER);
        [timer, next].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(stage.local.describe(), "<unlocked here>", "no thread has the turn, and it is not free");
    });
}

/// The thread that ends the lease may be slow: a thread that has dropped its lost guard, and tries
/// for the lock again, must not find its own turn.
pub fn a_thread_that_drops_a_lost_guard_has_no_turn_any_more() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let first = stage.hold();
        let timer = stage.lease_ends();
        stage.release(&first, HAND_OVER);
        assert_eq!(stage.local.describe(), "<unlocked here>", "the turn outlives the guard");
        timer.join().unwrap();
    });
}

/// One guard stays on a lost hold, and the next thread gets the lock in a new session.
pub fn a_lost_hold_is_not_valid_beside_the_next() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let lost = stage.hold();
        let timer = stage.lease_ends();
        let next = {
            let stage = stage.clone();
            spawn(move || stage.hold())
        };
        timer.join().unwrap();
        let node = next.join().unwrap();
        assert!(!lost.is_held(), "its lease has ended");
        stage.release(&lost, HAND_OVER);
        let expected = if node.is_held() { "<locked here>" } else { "<unlocked here>" };
        assert_eq!(stage.local.describe(), expected, "the release of a lost hold ended another turn");
    });
}

/// A lock that is kept between two holds is taken again, released, and kept again, while another
/// contender appears. At the end nothing is kept.
pub fn a_kept_lock_is_released_when_another_contender_comes() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        stage.cycle(KEEP);
        let generation = stage.generation();
        let folder = generation.folders.lock().unwrap().first().cloned().expect("the lock watches its folder");
        assert!(
            (folder.notify)(Folder::Listed { names: vec!["0"], pending: &HashSet::default() }),
            "the contender is alone"
        );
        let node = stage.hold();
        let event = spawn(move || (folder.notify)(Folder::Changed));
        let other = {
            let stage = stage.clone();
            spawn(move || stage.cycle(KEEP))
        };
        stage.release(&node, KEEP);
        assert!(!event.join().unwrap(), "the kept lock wants no more events");
        other.join().unwrap();
        // A folder that was made after the event has a listing of its own.
        let folders = generation.folders.lock().unwrap().clone();
        folders.iter().skip(1).for_each(|folder| {
            (folder.notify)(Folder::Changed);
        });
        stage.is_clean(&generation);
    });
}

/// Six threads take and hand over the lock while lease after lease ends. The thread that lost the
/// first hold keeps its guard meanwhile, so only the loss can end the turn of that hold.
pub fn crowd_of_holders_whose_lease_ends() {
    explore_up_to(BOUND, || {
        let stage = Stage::new();
        let lost = stage.hold();
        let users: Vec<_> = (0..6)
            .map(|i: u32| {
                let stage = stage.clone();
                spawn(move || (0..2).for_each(|_| stage.cycle(if i < 4 { HAND_OVER } else { KEEP })))
            })
            .collect();
        for _ in 0..3 {
            let generation = stage.generation();
            advance(SPAN);
            generation.lease.end_if_due(BootTime::now());
        }
        users.into_iter().for_each(|thread| thread.join().unwrap());
        stage.release(&lost, HAND_OVER);
        assert_eq!(stage.local.describe(), "<unlocked here>", "no thread has the turn, and it is not free");
    });
}
