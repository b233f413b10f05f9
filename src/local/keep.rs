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
    timer: Option<Timer>,
}

/// The timer that checks whether the kept hold's time is over. It may fire earlier, and is set again
/// then: so there is one, however often the hold is taken and kept.
struct Timer {
    /// The session in which it is set. It ends with the session.
    of: Weak<Generation>,
    key: (BootTime, u64),
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
        let replaced = self.set_timer(&mut state, generation, until);
        drop(state);
        drop(before); // outside the mutex: a node that is dropped asks for its delete
        drop(replaced); // a timer asks its session
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

    /// Sets the timer for `until`, unless it is set for an earlier time. Gives the timer that this
    /// replaces, which the caller drops outside the mutex.
    fn set_timer(
        self: &Arc<Self>,
        state: &mut KeepState,
        generation: &Arc<Generation>,
        until: BootTime,
    ) -> Option<Timer> {
        let of = Arc::downgrade(generation);
        let is_earlier = |timer: &Timer| timer.of.ptr_eq(&of) && timer.key.0 <= until;
        if state.timer.as_ref().is_some_and(is_earlier) {
            return None;
        }
        let (this, session) = (Arc::downgrade(self), of.clone());
        let key =
            generation.at(until, Box::new(move || Keeper::timer_fired(&this, &session, until)));
        state.timer.replace(Timer { of, key })
    }

    /// Runs when the timer for `at` fires. Lets the kept hold go if its time is over. If not, the
    /// timer is set again for the end of that time.
    fn timer_fired(this: &Weak<Self>, generation: &Weak<Generation>, at: BootTime) {
        let (Some(this), Some(generation)) = (this.upgrade(), generation.upgrade()) else { return };
        let mut state = this.state.lock();
        let is_this =
            |timer: &mut Timer| timer.of.as_ptr() == Arc::as_ptr(&generation) && timer.key.0 == at;
        let fired = state.timer.take_if(is_this);
        let until = state.kept.as_ref().map(|(_, until)| *until);
        let is_over = until.is_some_and(|until| BootTime::now() >= until);
        let replaced = match until {
            Some(until) if !is_over => this.set_timer(&mut state, &generation, until),
            _ => None,
        };
        drop(state);
        drop((fired, replaced));
        if is_over {
            this.let_go();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(generation) = self.of.upgrade() {
            generation.forget_timer(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{ZkMutex, ZkSession};
    use zk_session::unstable::BootTime;
    use zk_test_server::TestServer;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Waits until so many timers of the session are due more than half an hour from now. The event
    /// loop may be the last to drop a lock whose children it has just listed.
    #[track_caller]
    fn until_timers(session: &ZkSession, count: usize) {
        let late = BootTime::now() + HOUR / 2;
        let begun = std::time::Instant::now();
        let timers = || session.core().generation().unwrap().timers_after(late);
        while timers() != count {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} in place of {count}", timers());
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_timer_goes_with_the_last_lock_of_the_path() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let mutex = |i: u32| {
            let path = format!("/locks/{}", i % 3);
            ZkMutex::builder(&session, &path).keep(HOUR).build().unwrap()
        };
        for i in 0..30 {
            drop(mutex(i).lock().unwrap());
        }
        until_timers(&session, 0); // a lock object for each call
        let all = [0, 1, 2].map(mutex);
        for _ in 0..10 {
            all.iter().for_each(|mutex| drop(mutex.lock().unwrap()));
        }
        // A user of the same path who keeps it for less needs an earlier look.
        let shorter = ZkMutex::builder(&session, "/locks/0").keep(HOUR - HOUR / 8).build().unwrap();
        drop(shorter.lock().unwrap());
        until_timers(&session, 3); // one for each path
        drop((all, shorter));
        until_timers(&session, 0);
    }
}
