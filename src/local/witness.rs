//! Warns a thread that is about to wait for itself: one path locked through two sessions.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::thread::ThreadId;

use parking_lot::Mutex;

/// Who holds what, in the whole process: two sessions know nothing of each other.
static HELD: LazyLock<Mutex<HashMap<(ThreadId, u64), u64>>> = LazyLock::new(Mutex::default);

/// `thread` holds the lock `lock` (a hash of ensemble and path) through the session `owner`.
pub(crate) fn holds(thread: ThreadId, lock: u64, owner: u64) {
    HELD.lock().insert((thread, lock), owner);
}

pub(crate) fn released(thread: ThreadId, lock: u64, owner: u64) {
    let mut held = HELD.lock();
    if held.get(&(thread, lock)) == Some(&owner) {
        held.remove(&(thread, lock));
    }
}

/// Whether `thread` holds that lock through another session than `owner`.
pub(crate) fn holds_elsewhere(thread: ThreadId, lock: u64, owner: u64) -> bool {
    HELD.lock().get(&(thread, lock)).is_some_and(|other| *other != owner)
}
