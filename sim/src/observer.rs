//! The checks: what no step of any run may show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_mutex_simulated::{FencingToken, Held};
use zk_sim_runtime::{ProcessId, clock_of, fail, is_alive, now, process_name, this_process};

/// Knows every guard. It belongs to no process: all of them tell it at once, at no step of their own.
#[derive(Clone, Default)]
pub struct Observer(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    guards: BTreeMap<u64, Guard>,
    next: u64,
    newest: BTreeMap<String, FencingToken>,
    counts: Counts,
    /// Sessions that somebody else ended: their guards stand until they hear of it, which nothing can help.
    ended_by_others: BTreeSet<i64>,
    /// When each thread held a lock last.
    progress: BTreeMap<(ProcessId, usize), Duration>,
}

struct Guard {
    lock: String,
    process: ProcessId,
    hold: Observed,
}

/// How often what was seen.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Guards that were given.
    pub acquisitions: u64,
    /// Calls that ended since their time was over, or somebody else had the lock.
    pub refused: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// Guards that were lost before they were released.
    pub lost: u64,
}

/// A guard, until its holder lets go.
pub struct Ticket(u64);

impl Observer {
    fn seen<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// The calling thread has just been given this guard on the lock of this name, which one at a time may hold.
    pub fn acquired(&self, lock: &str, thread: usize, guard: &Held) -> Ticket {
        let process = this_process().expect("a process's thread");
        let (hold, token) = (Observed::new(guard), guard.fencing_token());
        let ticket = self.seen(|seen| {
            seen.counts.acquisitions += 1;
            seen.progress.insert((process, thread), now());
            let broken = seen.broken_by(lock, process, &hold, token);
            seen.next += 1;
            let newest = seen.newest.entry(lock.to_owned()).or_insert(token);
            *newest = (*newest).max(token);
            seen.guards.insert(seen.next, Guard { lock: lock.to_owned(), process, hold });
            broken.map_or(Ok(Ticket(seen.next)), Err)
        });
        ticket.unwrap_or_else(|(kind, text)| {
            fail(kind, text);
            Ticket(0)
        })
    }

    /// Somebody else ends this session at the server.
    pub fn is_ended_by_others(&self, session: i64) {
        self.seen(|seen| seen.ended_by_others.insert(session));
    }

    /// The holder is about to let go.
    pub fn releases(&self, ticket: Ticket, was_lost: bool) {
        self.seen(|seen| {
            seen.guards.remove(&ticket.0);
            seen.counts.lost += u64::from(was_lost);
        });
    }

    /// A call ended without a guard.
    pub fn not_acquired(&self, is_error: bool) {
        self.seen(|seen| if is_error { seen.counts.errors += 1 } else { seen.counts.refused += 1 });
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.seen(|seen| seen.counts.clone())
    }

    /// When this thread held a lock last.
    pub fn last_progress(&self, process: ProcessId, thread: usize) -> Option<Duration> {
        self.seen(|seen| seen.progress.get(&(process, thread)).copied())
    }

    /// Whether no guard lives in any living process.
    pub fn is_quiet(&self) -> bool {
        self.seen(|seen| !seen.guards.values().any(|guard| is_alive(guard.process)))
    }
}

impl Seen {
    /// What a new guard shows to be wrong, if anything.
    fn broken_by(
        &self,
        lock: &str,
        process: ProcessId,
        hold: &Observed,
        token: FencingToken,
    ) -> Option<(&'static str, String)> {
        let name = process_name(process);
        if !self.stands(process, hold) {
            return None; // lost already: the holder finds out when it asks
        }
        if let Some(newest) = self.newest.get(lock).filter(|newest| **newest >= token) {
            return Some(("token order", format!("{lock}: {name} has {token}, {newest} was given before")));
        }
        let other = self.guards.values().find(|other| {
            other.lock == lock && is_alive(other.process) && self.stands(other.process, &other.hold)
        })?;
        let text = format!("{lock}: {name} holds it, and {} still does", process_name(other.process));
        Some(("two holders", text))
    }

    /// Whether a guard is valid, and has to be.
    fn stands(&self, process: ProcessId, hold: &Observed) -> bool {
        hold.is_held_at(clock_of(process))
            && hold.session_id().is_some_and(|session| !self.ended_by_others.contains(&session))
    }
}
