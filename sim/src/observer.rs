//! The checks: what no step of any run may show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use zk_mutex_simulated::observed::{self, Change, Mode, Observed};
use zk_mutex_simulated::{FencingToken, Held};
use zk_sim_runtime::{ProcessId, as_world, clock_of, fail, is_alive, now, process_name, this_process};

use crate::store::{Store, Written};

/// What is checked, by the names under which violations are told. In a run of some length each of them is made.
pub const CHECKS: [&str; 7] =
    ["two holders", "token order", "stale write", "deadline", "lost, and held", "stuck", "no end"];

/// Knows every hold of every process, and what their threads say of what they do. It belongs to no process.
#[derive(Clone)]
pub struct Observer(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Granted and not let go, in the order of their grants. Some are lost.
    holds: Vec<Hold>,
    /// Two may hold a lock at once, because clocks drift beyond the bound: that is counted, and is no violation.
    may_overlap: bool,
    /// The newest token of each lock; of each lock and process, if two may hold it at once.
    newest: BTreeMap<(Option<ProcessId>, String), FencingToken>,
    /// What the locks protect.
    store: Store<FencingToken>,
    counts: Counts,
    /// Sessions that somebody else ended: their holds stand until they hear of it, which nothing can help.
    ended_by_others: BTreeSet<i64>,
    /// Nodes that somebody else deletes: their holds stand until the event arrives.
    deleted_by_others: BTreeSet<String>,
    /// When each thread held a lock last.
    progress: BTreeMap<(ProcessId, usize), Duration>,
}

struct Hold {
    process: ProcessId,
    hold: Observed,
}

/// How often what was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Guards that were given.
    pub acquisitions: u64,
    /// Calls that ended since their time was over, or somebody else had the lock.
    pub refused: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// Guards that were lost before they were released.
    pub lost: u64,
    /// Grants beside a hold that still stood, where that is no violation.
    pub overlaps: u64,
    /// Writes that the store has refused, because a newer holder had written before.
    pub refused_writes: u64,
    /// How often each check was made.
    pub checks: BTreeMap<&'static str, u64>,
}

/// What is wrong: the check that found it, and what it saw.
type Broken = (&'static str, String);

impl Observer {
    /// Two may hold a lock at once or not, depending on how far clocks drift.
    pub fn new(may_overlap: bool) -> Observer {
        let checks = CHECKS.into_iter().map(|check| (check, 0)).collect();
        let counts = Counts { checks, ..Counts::default() };
        Observer(Arc::new(Mutex::new(Seen { may_overlap, counts, ..Seen::default() })))
    }

    /// This check was made; unless all `is_well`, that ends the run.
    pub fn check(&self, check: &'static str, is_well: bool, text: impl FnOnce() -> String) {
        self.seen(|seen| seen.made(check));
        report((!is_well).then(|| (check, text())));
    }

    /// From now on it sees each hold of this run.
    pub fn watch(&self) {
        let observer = self.clone();
        observed::watch(move |change, hold| {
            let Some(process) = this_process() else { return };
            let broken = observer.seen(|seen| match change {
                Change::Granted => seen.granted(Hold { process, hold }),
                Change::Released => {
                    seen.holds.retain(|other| !other.hold.is_same(&hold));
                    None
                }
            });
            report(broken);
        });
    }

    fn seen<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        // No step of a thread may come in between: another one would wait for this lock for ever.
        as_world(|| f(&mut self.0.lock().unwrap_or_else(|e| e.into_inner())))
    }

    /// The calling thread has just been given this guard on a lock that one at a time may hold.
    pub fn acquired(&self, lock: &str, thread: usize, guard: &Held) {
        let (process, token, is_held) = (this_process(), guard.fencing_token(), guard.is_held());
        report(self.seen(|seen| {
            seen.counts.acquisitions += 1;
            seen.made("token order");
            let of = (process.filter(|_| seen.may_overlap), lock.to_owned());
            seen.progress.extend(process.map(|process| ((process, thread), now())));
            // One that is lost already has seen its time: later tokens may have been given.
            let before = seen.newest.get(&of).copied().filter(|before| is_held && *before >= token);
            if before.is_none() {
                let newest = seen.newest.entry(of).or_insert(token);
                *newest = (*newest).max(token);
            }
            let is_excused = seen.holds.iter().any(|hold| {
                Some(hold.process) == process
                    && !seen.counts_for(hold)
                    && hold.hold.path.ends_with(guard.path())
            });
            let text = |before| format!("{lock}: the token {token} is given after {before}");
            before.filter(|_| !is_excused).map(|before| ("token order", text(before)))
        }));
    }

    /// A holder writes to the store that the lock protects, with the token of its guard.
    pub fn writes(&self, lock: &str, guard: &Held) {
        let (node, token) = (guard.path(), guard.fencing_token());
        report(self.seen(|seen| {
            seen.made("stale write");
            match seen.store.write(lock, node, token) {
                Written::Taken => None,
                Written::Refused => {
                    seen.counts.refused_writes += 1;
                    None
                }
                Written::Stale => {
                    Some(("stale write", format!("{lock}: {node} writes with {token} after a newer holder")))
                }
            }
        }));
    }

    /// The holder is about to let go.
    pub fn releases(&self, was_lost: bool) {
        self.seen(|seen| seen.counts.lost += u64::from(was_lost));
    }

    /// A call ended without a guard.
    pub fn not_acquired(&self, is_error: bool) {
        self.seen(|seen| if is_error { seen.counts.errors += 1 } else { seen.counts.refused += 1 });
    }

    /// Somebody else ends this session at the server.
    pub fn is_ended_by_others(&self, session: i64) {
        self.seen(|seen| seen.ended_by_others.insert(session));
    }

    /// Somebody else deletes this node.
    pub fn is_deleted_by_others(&self, path: &str) {
        self.seen(|seen| seen.deleted_by_others.insert(path.to_owned()));
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.seen(|seen| seen.counts.clone())
    }

    /// When this thread held a lock last.
    pub fn last_progress(&self, process: ProcessId, thread: usize) -> Option<Duration> {
        self.seen(|seen| seen.progress.get(&(process, thread)).copied())
    }

    /// Whether no living process holds anything.
    pub fn is_quiet(&self) -> bool {
        self.seen(|seen| !seen.holds.iter().any(|hold| is_alive(hold.process)))
    }
}

fn report(broken: Option<Broken>) {
    if let Some((kind, text)) = broken {
        fail(kind, text);
    }
}

impl Seen {
    fn made(&mut self, check: &'static str) {
        *self.counts.checks.entry(check).or_default() += 1;
    }

    /// Two holds overlap if and only if the earlier one stands when the later one is granted.
    fn granted(&mut self, new: Hold) -> Option<Broken> {
        self.made("two holders");
        self.holds.retain(|hold| is_alive(hold.process));
        let other = self.holds.iter().find(|old| excludes(&old.hold, &new.hold) && self.counts_for(old));
        let broken = other.filter(|_| self.counts_for(&new)).map(|other| {
            let (one, two) = (process_name(new.process), process_name(other.process));
            (
                "two holders",
                format!("{one} holds {}, and {two} still holds {}", new.hold.path, other.hold.path),
            )
        });
        self.holds.push(new);
        self.counts.overlaps += u64::from(broken.is_some() && self.may_overlap);
        broken.filter(|_| !self.may_overlap)
    }

    /// Whether its guards are valid now, and have to be the only ones.
    fn counts_for(&self, hold: &Hold) -> bool {
        is_alive(hold.process)
            && hold.hold.is_held_at(clock_of(hold.process))
            && !self.deleted_by_others.contains(&hold.hold.path)
            && hold.hold.session_id().is_some_and(|session| !self.ended_by_others.contains(&session))
    }
}

/// Whether only one of them may stand at a time.
fn excludes(old: &Observed, new: &Observed) -> bool {
    let ((one, old_mode), (two, new_mode)) = (old.lock(), new.lock());
    if one != two {
        return false;
    }
    match (old_mode, new_mode) {
        (Mode::Shared, Mode::Shared) | (Mode::Permit, Mode::Permit) => false,
        // A writer takes a read lock before it lets go of the write lock.
        (Mode::Exclusive, Mode::Shared) => old.session_id() != new.session_id(),
        _ => true,
    }
}
