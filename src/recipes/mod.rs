//! The recipes: the kinds of locks that a program can take. Each folder has the public type
//! (`mod.rs`), the lock as this process sees it (`lock.rs`), and all that this recipe alone needs.
//! A mutex and a read/write lock share the file `thread_lock.rs` in the place of a `lock.rs`.

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
pub(crate) mod wait;
