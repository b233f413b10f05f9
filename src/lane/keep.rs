//! A lock that stays: between two holds of this process its node is kept, as long as nobody else
//! asks for the lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::tenure::Tenure;
use crate::clock::BootTime;
use crate::queue::name;
use crate::session::generation::{Folder, FolderWatch, Generation};

/// What one process keeps of one lock.
pub(super) struct Keeper {
    /// The lock's node, its full path.
    dir: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The hold that no thread has now, and until when it is kept.
    kept: Option<(Arc<Tenure>, BootTime)>,
    watch: Watch,
    /// A timer is set; it looks when the time is over.
    has_timer: bool,
}

/// What is known of others that ask for the lock.
#[derive(Default)]
enum Watch {
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

    /// Whether somebody else asks for the lock, as far as is known.
    pub(super) fn is_contended(&self, tenure: &Tenure) -> bool {
        matches!(&self.state.lock().watch, Watch::Contended(node) if node == tenure.holding.path())
    }

    /// Keeps a hold that its last thread has let go.
    pub(super) fn put(self: &Arc<Self>, tenure: Arc<Tenure>, keep: Duration) {
        let generation = tenure.holding.generation().clone();
        let node = tenure.holding.path();
        let mut state = self.state.lock();
        let needs_watch = match &state.watch {
            Watch::None => true,
            Watch::Asked(of) | Watch::Alone(of) | Watch::Contended(of) => of != node,
        };
        if needs_watch {
            state.watch = Watch::Asked(node.to_owned());
        }
        let until = BootTime::now() + keep;
        state.kept = Some((tenure, until));
        let needs_timer = !std::mem::replace(&mut state.has_timer, true);
        drop(state);
        if needs_watch {
            self.ask(&generation);
        }
        if needs_timer {
            self.set_timer(&generation, until);
        }
    }

    /// The kept hold, if there is one, for a thread of this process.
    pub(super) fn take(&self) -> Option<Arc<Tenure>> {
        self.state.lock().kept.take().map(|(tenure, _)| tenure)
    }

    /// Lets a kept hold go.
    pub(super) fn let_go(&self) {
        if let Some(tenure) = self.take() {
            // What comes of the delete concerns nobody.
            let _ = tenure.holding.begin_release(false);
        }
    }

    fn ask(self: &Arc<Self>, generation: &Arc<Generation>) {
        let this = Arc::downgrade(self);
        let tell = move |folder: Folder<'_>| this.upgrade().is_some_and(|this| this.changed(&folder));
        generation.watch_folder(FolderWatch::new(self.dir.clone(), Box::new(tell)));
    }

    /// Takes what the server says of the lock's children, on the event loop's thread. True: it is to
    /// be told further.
    fn changed(&self, folder: &Folder<'_>) -> bool {
        let mut state = self.state.lock();
        let watch = std::mem::take(&mut state.watch);
        let (watch, is_alone) = match (watch, folder) {
            (Watch::Asked(node), Folder::Listed { names, pending }) => {
                let own = node.rsplit_once('/').map_or("", |(_, own)| own);
                let is_other = |name: &&str| {
                    **name != *own && name::parse(name).is_some_and(|name| !pending.contains(name.id))
                };
                let is_alone = !names.iter().any(is_other);
                (if is_alone { Watch::Alone(node) } else { Watch::Contended(node) }, is_alone)
            }
            (Watch::Asked(node) | Watch::Alone(node) | Watch::Contended(node), _) => {
                (Watch::Contended(node), false)
            }
            (Watch::None, _) => (Watch::None, false),
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
        generation.at(at, Box::new(move || Keeper::time_is_over(&this, &of)));
    }

    /// Lets the hold go if its time is over; otherwise looks again when it is.
    fn time_is_over(this: &Weak<Self>, generation: &Weak<Generation>) {
        let (Some(this), Some(generation)) = (this.upgrade(), generation.upgrade()) else { return };
        let mut state = this.state.lock();
        let until = state.kept.as_ref().map(|(_, until)| *until);
        match until {
            Some(until) if BootTime::now() < until => {
                drop(state);
                this.set_timer(&generation, until);
            }
            _ => {
                state.has_timer = false;
                drop(state);
                this.let_go();
            }
        }
    }
}
