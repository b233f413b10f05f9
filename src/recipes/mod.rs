//! The recipes: what a user takes a lock with. Each folder has the public type (`mod.rs`), the lock
//! as this process sees it (`lock.rs`), and all that this recipe alone needs. A mutex and a
//! read/write lock have one file for that, `thread_lock.rs`.

mod calls;
pub(crate) mod election;
pub(crate) mod exclusive;
pub(crate) mod guard;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod settings;
mod thread_lock;
