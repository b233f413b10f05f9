//! A kept lock: between two holds of this process its node stays, as long as nobody else requests
//! the lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::queue::{HeldNode, name};
use zk_session::unstable::{BootTime, Folder, FolderWatch, Generation};
use zk_session::world::Mutex;

/// The kept hold of one lock in this process, if there is one.
pub(super) struct Keeper {
    /// The lock's node, its full path.
    dir: String,
    state: Mutex<KeepState>,
}

#[derive(Default)]
struct KeepState {
    /// The hold that no thread has at present, and until when it is kept.
    kept: Option<(Arc<HeldNode>, BootTime)>,
    watch: Others,
    /// The number of the session in which the timers are set: they end with it.
    timers_of: u64,
    /// When the timers fire, to check whether the kept hold's time is over. The earliest is last.
    timers: Vec<BootTime>,
}

/// What is known of other contenders for the lock.
#[derive(Default)]
enum Others {
    /// Nothing is known. Before a hold is kept, the lock's children are listed, with a watch.
    #[default]
    Unknown,
    /// The listing was requested, for the hold with this node.
    Listing(String),
    /// The hold with this node is alone, and a watch tells when that changes.
    Alone(String),
    /// Another contender is there, beside the hold with this node.
    Contended(String),
}

impl Keeper {
    pub(super) fn new(dir: String) -> Arc<Self> {
        Arc::new(Keeper { dir, state: Mutex::default() })
    }

    /// Whether no other contender for this hold's lock is known. From now on the lock's children
    /// are watched. Without that watch the threads of this process could pass the lock on among
    /// themselves for ever, and no other process would get it.
    pub(super) fn is_alone(self: &Arc<Self>, held_node: &HeldNode) -> bool {
        let node = held_node.path();
        let mut state = self.state.lock();
        match &state.watch {
            Others::Contended(of) if of == node => return false,
            Others::Listing(of) | Others::Alone(of) if of == node => return true,
            _ => {}
        }
        state.watch = Others::Listing(node.to_owned());
        drop(state);
        let this = Arc::downgrade(self);
        let on_folder =
            move |folder: Folder<'_>| this.upgrade().is_some_and(|this| this.changed(&folder));
        held_node
            .generation()
            .watch_folder(FolderWatch::new(self.dir.clone(), Box::new(on_folder)));
        true
    }

    /// Keeps a hold that its last thread has let go and that was alone a moment ago. False: another
    /// contender has appeared since.
    pub(super) fn put(self: &Arc<Self>, held_node: &Arc<HeldNode>, keep: Duration) -> bool {
        let generation = held_node.generation();
        let until = BootTime::now() + keep;
        let mut state = self.state.lock();
        // The watch fires once. If another contender appeared between `is_alone` and here, the
        // watch has fired already. Without this check the node would be kept for its whole time,
        // and the other contender would wait for it.
        if matches!(&state.watch, Others::Contended(of) if of == held_node.path()) {
            return false;
        }
        let before = state.kept.replace((held_node.clone(), until));
        let needs_timer = state.needs_timer(generation.number, until);
        drop(state);
        drop(before); // outside the mutex: a node that is dropped asks for its delete
        if needs_timer {
            self.set_timer(generation, until);
        }
        true
    }

    /// The kept hold, if there is one, for a thread of this process.
    pub(super) fn take(&self) -> Option<Arc<HeldNode>> {
        self.state.lock().kept.take().map(|(held_node, _)| held_node)
    }

    /// Lets a kept hold go.
    pub(super) fn let_go(&self) {
        if let Some(held_node) = self.take() {
            held_node.release();
        }
    }

    /// Handles a listing of the lock's children, or a change of them, on the event loop's thread.
    /// True: it wants the next change too.
    fn changed(&self, folder: &Folder<'_>) -> bool {
        let mut state = self.state.lock();
        let watch = std::mem::take(&mut state.watch);
        let (watch, is_alone) = match (watch, folder) {
            (Others::Listing(node), Folder::Listed { names, pending }) => {
                let own = node.rsplit_once('/').map_or("", |(_, own)| own);
                let is_other = |name: &&str| {
                    **name != *own
                        && name::parse(name).is_some_and(|name| !pending.contains(name.id))
                };
                let is_alone = !names.iter().any(is_other);
                (if is_alone { Others::Alone(node) } else { Others::Contended(node) }, is_alone)
            }
            (Others::Listing(node) | Others::Alone(node) | Others::Contended(node), _) => {
                (Others::Contended(node), false)
            }
            (Others::Unknown, _) => (Others::Unknown, false),
        };
        state.watch = watch;
        drop(state);
        if !is_alone {
            self.let_go();
        }
        is_alone
    }

    fn set_timer(self: &Arc<Self>, generation: &Arc<Generation>, at: BootTime) {
        let (this, of) = (Arc::downgrade(self), Arc::downgrade(generation));
        generation.at(at, Box::new(move || Keeper::timer_fired(&this, &of, at)));
    }

    /// Runs when the timer for `at` fires. Lets the kept hold go if its time is over. If not,
    /// another timer is set for the end of that time, unless one is set already.
    fn timer_fired(this: &Weak<Self>, generation: &Weak<Generation>, at: BootTime) {
        let (Some(this), Some(generation)) = (this.upgrade(), generation.upgrade()) else { return };
        let mut state = this.state.lock();
        if state.timers_of == generation.number {
            state.timers.retain(|timer| *timer != at);
        }
        let Some(until) = state.kept.as_ref().map(|(_, until)| *until) else { return };
        if BootTime::now() < until {
            let needs_timer = state.needs_timer(generation.number, until);
            drop(state);
            if needs_timer {
                this.set_timer(&generation, until);
            }
        } else {
            drop(state);
            this.let_go();
        }
    }
}

impl KeepState {
    /// Whether the caller must set a timer for `until`; if so, notes it as set. No timer is needed
    /// if an earlier one is set: when the earlier timer fires, it sets the next one.
    fn needs_timer(&mut self, generation: u64, until: BootTime) -> bool {
        if self.timers_of != generation {
            (self.timers_of, self.timers) = (generation, Vec::new());
        }
        let needs_timer = self.timers.last().is_none_or(|earliest| until < *earliest);
        if needs_timer {
            self.timers.push(until);
        }
        needs_timer
    }
}
