//! Only in the simulation: what its observer sees of a session from outside of all processes: each
//! connection of the session.

use std::cell::RefCell;

/// A change that the observer is notified of.
pub enum News {
    /// A server has accepted the session on a connection.
    Attached {
        /// Which session.
        session: i64,
        /// The number of the connection.
        epoch: u64,
    },
    /// The session has no connection.
    Detached {
        /// Which session.
        session: i64,
        /// It has ended for its client, which does not resume it.
        is_over: bool,
    },
}

type Watcher<N> = Box<dyn Fn(N)>;

/// Where the news of one kind goes: the observer's function, if there is one.
pub struct Hook<N>(RefCell<Option<Watcher<N>>>);

impl<N> Default for Hook<N> {
    fn default() -> Self {
        Hook(RefCell::new(None))
    }
}

impl<N> Hook<N> {
    /// From now on `watcher` is called at each change, on the thread that makes the change. It must
    /// not block.
    pub fn set(&self, watcher: impl Fn(N) + 'static) {
        *self.0.borrow_mut() = Some(Box::new(watcher));
    }

    /// Calls the function with this news.
    pub fn notify(&self, news: impl FnOnce() -> N) {
        if let Some(watcher) = &*self.0.borrow() {
            watcher(news());
        }
    }
}

thread_local! {
    static NEWS: Hook<News> = Hook::default();
}

/// From now on `watcher` is called at each change, as [`Hook::set`] says.
pub fn watch(watcher: impl Fn(News) + 'static) {
    NEWS.with(|hook| hook.set(watcher));
}

pub(crate) fn notify(news: impl FnOnce() -> News) {
    NEWS.with(|hook| hook.notify(news));
}
