//! Tools for scenarios with contending threads: a checked section, threads that certainly wait, and
//! the queue at the server in its order.
pub use super::scene::session;
use super::{
    Proxy, Raw,
    raw::{self, Stat},
    scene::{SOON, full_path},
    until,
};
use crossbeam_channel::bounded;
use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread::{self, Scope, ScopedJoinHandle},
};

/// The section that a lock protects: panics if two threads are in it at once.
#[derive(Default)]
pub struct Section {
    inside: AtomicBool,
    counter: AtomicUsize,
}

impl Section {
    /// Passes through the section. The counter is read, and written a moment later; only the lock
    /// protects it.
    #[track_caller]
    pub fn pass(&self) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "another thread is in the section");
        let counter = self.counter.load(Ordering::SeqCst);
        thread::yield_now();
        self.counter.store(counter + 1, Ordering::SeqCst);
        assert!(self.inside.swap(false, Ordering::SeqCst), "another thread was in the section");
    }

    pub fn counter(&self) -> usize {
        self.counter.load(Ordering::SeqCst)
    }
}

/// Tells the threads of a scope on drop that they end, also after a panic. Otherwise the scope would
/// wait for them for ever, and the runner would kill the scenario before the panic is told.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Starts a thread, and returns when it waits for something.
#[track_caller]
pub fn spawn_waiting<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    run: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let (tell, told) = bounded(1);
    let thread = scope.spawn(move || {
        let _ = tell.send(fs::read_link("/proc/thread-self").expect("the thread's place in /proc"));
        run()
    });
    let task = told.recv().expect("the thread has begun");
    let task = format!("/proc/{}", task.display());
    // It must stay asleep the whole time, without being awake in between.
    let (mut since, mut looks) = (String::new(), 0);
    until("the thread waits", SOON, || {
        let status =
            fs::read_to_string(format!("{task}/status")).expect("the thread has not ended");
        let kept = |line: &&str| line.starts_with("State:") || line.starts_with("voluntary_ctxt");
        let now: String = status.lines().filter(kept).collect();
        looks = if now == since && now.contains("S (sleeping)") { looks + 1 } else { 0 };
        since = now;
        (looks == 4).then_some(())
    });
    thread
}

/// The nodes in the lock's folder by their sequence number, when there are `count` of them.
#[track_caller]
pub fn until_queue(at: &str, path: &str, count: usize) -> Vec<String> {
    let mut raw = Raw::connect(at).expect("a raw client");
    let full = full_path(at, path);
    until(&format!("{count} nodes in {path}"), SOON, || {
        let mut names = match raw.children(&full) {
            Err(e) if e.code() == Some(raw::NO_NODE) => Vec::new(),
            names => names.expect("the queue is listed"),
        };
        names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
        (names.len() == count).then_some(names)
    })
}

/// The node's stat, or None. `path` is relative to the chroot of the connect string `at`.
#[track_caller]
pub fn stat(at: &str, path: &str) -> Option<Stat> {
    Raw::connect(at)
        .and_then(|mut raw| raw.exists(&full_path(at, path)))
        .expect("the server answers")
}

/// A proxy in front of the shared server, and a connect string through it to the chroot of `at`.
pub fn proxied(at: &str) -> (Proxy, String) {
    let (server, chroot) = at.split_once('/').expect("an address with a chroot");
    let proxy = Proxy::start(server.parse().expect("the server's address"));
    let through = format!("{}/{chroot}", proxy.connect_string());
    (proxy, through)
}
