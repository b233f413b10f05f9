//! A lock that stays: between two holds of this process its node is kept, as long as nobody else
//! asks for the lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::lock::LocalHold;
use crate::clock::BootTime;
use crate::queue::name;
use crate::session::generation::{Folder, FolderWatch, Generation};
use crate::world::Mutex;

/// What one process keeps of one lock.
pub(super) struct Keeper {
    /// The lock's node, its full path.
    dir: String,
    state: Mutex<KeepState>,
}

#[derive(Default)]
struct KeepState {
    /// The hold that no thread has now, and until when it is kept.
    kept: Option<(Arc<LocalHold>, BootTime)>,
    watch: Others,
    /// The session that has the timers, by its number: they end with it.
    timers_of: u64,
    /// When they look whether the time of the kept hold is over: the earliest last.
    timers: Vec<BootTime>,
}

/// What is known of others that ask for the lock.
#[derive(Default)]
enum Others {
    /// Nothing: the lock's children are listed, with a watch, when a hold is to be kept.
    #[default]
    None,
    /// The listing is on its way, for the hold of this node.
    Asked(String),
    /// The hold of this node is alone, and a watch tells when that changes.
    Alone(String),
    /// Somebody else is there, beside the hold of this node.
    Contended(String),
}

impl Keeper {
    pub(super) fn new(dir: String) -> Arc<Self> {
        Arc::new(Keeper { dir, state: Mutex::default() })
    }

    /// Whether nobody else asks for the lock that this hold has, as far as is known. From now on
    /// the lock's children are watched. Without that watch threads of this process that wait at
    /// each release would pass the lock on among themselves for ever, and nobody else would get it.
    pub(super) fn is_alone(self: &Arc<Self>, local_hold: &LocalHold) -> bool {
        let node = local_hold.node.path();
        let mut state = self.state.lock();
        match &state.watch {
            Others::Contended(of) if of == node => return false,
            Others::Asked(of) | Others::Alone(of) if of == node => return true,
            _ => {}
        }
        state.watch = Others::Asked(node.to_owned());
        drop(state);
        let this = Arc::downgrade(self);
        let tell =
            move |folder: Folder<'_>| this.upgrade().is_some_and(|this| this.changed(&folder));
        local_hold
            .node
            .generation()
            .watch_folder(FolderWatch::new(self.dir.clone(), Box::new(tell)));
        true
    }

    /// Keeps a hold that its last thread has let go and that was alone a moment ago. False:
    /// somebody else has asked for the lock since.
    pub(super) fn put(self: &Arc<Self>, local_hold: &Arc<LocalHold>, keep: Duration) -> bool {
        let generation = local_hold.node.generation();
        let until = BootTime::now() + keep;
        let mut state = self.state.lock();
        // The watch fires once. If another contender came between `is_alone` and here, the watch
        // has fired already: unless that is seen here, the node would be kept for its whole time.
        if matches!(&state.watch, Others::Contended(of) if of == local_hold.node.path()) {
            return false;
        }
        state.kept = Some((local_hold.clone(), until));
        let needs_timer = state.needs_timer(generation.number, until);
        drop(state);
        if needs_timer {
            self.set_timer(generation, until);
        }
        true
    }

    /// The kept hold, if there is one, for a thread of this process.
    pub(super) fn take(&self) -> Option<Arc<LocalHold>> {
        self.state.lock().kept.take().map(|(local_hold, _)| local_hold)
    }

    /// Lets a kept hold go.
    pub(super) fn let_go(&self) {
        if let Some(local_hold) = self.take() {
            // The delete goes on in the background; no caller waits for its outcome.
            let _ = local_hold.node.begin_release(false);
        }
    }

    /// Takes what the server says of the lock's children, on the event loop's thread. Gives true if
    /// it wants to hear of the next change.
    fn changed(&self, folder: &Folder<'_>) -> bool {
        let mut state = self.state.lock();
        let watch = std::mem::take(&mut state.watch);
        let (watch, is_alone) = match (watch, folder) {
            (Others::Asked(node), Folder::Listed { names, pending }) => {
                let own = node.rsplit_once('/').map_or("", |(_, own)| own);
                let is_other = |name: &&str| {
                    **name != *own
                        && name::parse(name).is_some_and(|name| !pending.contains(name.id))
                };
                let is_alone = !names.iter().any(is_other);
                (if is_alone { Others::Alone(node) } else { Others::Contended(node) }, is_alone)
            }
            (Others::Asked(node) | Others::Alone(node) | Others::Contended(node), _) => {
                (Others::Contended(node), false)
            }
            (Others::None, _) => (Others::None, false),
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
        generation.at(at, Box::new(move || Keeper::look(&this, &of, at)));
    }

    /// Runs when the timer for `at` fires. Lets the kept hold go if its time is over. Otherwise a
    /// timer stands, or is set, for the time when it will be over.
    fn look(this: &Weak<Self>, generation: &Weak<Generation>, at: BootTime) {
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
    /// Whether a timer must be set for `until`, which is then noted as set. None is needed if an
    /// earlier one stands: when that fires, it sets the next.
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
