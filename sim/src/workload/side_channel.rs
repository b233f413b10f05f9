//! Clients talk to each other beside ZooKeeper: a client tells another at once what it was answered.
//!
//! The message takes no time. So the client that is told asks its own server before that server may
//! have heard of the change from its leader.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use zk_sim_runtime::library::{Sender, bounded};
use zk_sim_runtime::{ProcessId, Rng, as_world, is_alive, this_process};

/// What a client was answered.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// Its release of the lock was acknowledged.
    Released,
    /// It has the lock.
    Acquired,
    /// It has set the number of permits.
    Permits(u32),
}

/// What one client tells another.
#[derive(Clone, Copy, Debug)]
pub struct Tip {
    /// The number of the lock.
    pub place: usize,
    /// What has happened.
    pub news: News,
}

/// The clients that listen, in all processes.
#[derive(Clone, Default)]
pub struct SideChannel(Arc<Mutex<Vec<Listener>>>);

/// A thread of this process, and its ear.
type Listener = (ProcessId, Sender<Tip>);

impl SideChannel {
    /// Tells one of the clients that listen, if there is one in another process.
    pub fn tell(&self, rng: &mut Rng, tip: Tip) {
        let own = this_process();
        as_world(|| {
            let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
            all.retain(|(process, _)| is_alive(*process));
            loop {
                let others: Vec<usize> =
                    (0..all.len()).filter(|at| Some(all[*at].0) != own).collect();
                if others.is_empty() {
                    return;
                }
                let (_, listener) = all.remove(others[rng.usize(..others.len())]);
                // It fails if that client listens no more.
                if listener.try_send(tip).is_ok() {
                    return;
                }
            }
        });
    }

    /// Waits until another client tells something, for this time at most.
    pub fn listen(&self, lasts: Duration) -> Option<Tip> {
        let (sender, receiver) = bounded(1);
        let process = this_process()?;
        as_world(|| {
            let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
            all.push((process, sender));
        });
        receiver.recv_timeout(lasts).ok()
    }
}
