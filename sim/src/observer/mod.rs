//! The checks: rules that no step of any run may break.
//!
//! The observer sees each hold of the library from its grant to its release (`observed.rs` of the
//! library), the reports of the workload's threads about their guards, the newest tree that any
//! server has, and the sessions that the leader expires. RELIABILITY.md ("Simulation") lists the
//! checks.

mod answers;
mod contention;
mod deleted;
mod folders;
mod heard;
mod history;
mod kept;
mod lasting;
mod names;
mod order;
mod queue;
mod reach;
mod requests;
mod served;
mod several;
mod sleepers;
mod slow_lines;
mod terms;
mod times;
mod told;
mod unlock;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use zk_mutex_simulated::observed::{self, News, Observed, SessionNews};
use zk_mutex_simulated::{FencingToken, Held, LossReason, RevokeSignal};
use zk_sim_runtime::library::this_thread;
use zk_sim_runtime::thread::ThreadId;
use zk_sim_runtime::{
    ProcessId, as_world, clock_of, fail, is_alive, note, now, process_name, stopped_for,
    this_process,
};
use zk_test_server::ensemble::NodeInfo;

pub use self::answers::{Listed, Wish};
use self::contention::Asking;
use self::deleted::Gone;
pub use self::deleted::Waiter;
use self::heard::Heard;
use self::history::History;
pub use self::history::Moment;
use self::lasting::{Lasting, Since};
use self::names::Mode;
pub use self::names::{Node, is_shared};
use self::order::Order;
use self::reach::Reaching;
use self::requests::Traffic;
use self::served::Unserved;
use self::several::Several;
use self::slow_lines::SlowLines;
use self::terms::Term;
pub use self::unlock::Ending;
pub use self::waits::End;
use self::waits::{Down, Waiting};
use crate::names::Names;
use crate::servers::Servers;
use crate::store::{Store, Written};
use crate::workload::{Place, Recipe};

/// What is checked, by the names under which violations are told. Each check is counted where it
/// could have failed, and not where the observer only looked. A search of some length makes each of
/// them, but for those that its mode cannot make.
pub const CHECKS: [&str; 54] = [
    "two holders",
    "too many permits",
    "held without a node",
    "queue order",
    "lease outlived",
    "stale guard",
    "term outlived",
    "token order",
    "stale write",
    "notified late",
    "held too long",
    "end told late",
    "lost without trouble",
    "lost on a slow line",
    "long answer",
    "away",
    "lost within reach",
    "gone address",
    "another ensemble",
    "unserved session",
    "lost, and held",
    "signal after the release",
    "deleted and not told",
    "asked and not told",
    "request of no client",
    "handed over though asked for",
    "kept from others",
    "untrue unlock",
    "taken, and free",
    "contention unproven",
    "list of the past",
    "number of the past",
    "asleep",
    "deadline",
    "given up early",
    "waits on",
    "outage blamed",
    "overtaken",
    "place lost",
    "wrong error",
    "error in calm",
    "re-entry",
    "upgrade",
    "downgrade",
    "all or nothing",
    "waits in vain",
    "node left",
    "folder left",
    "memory",
    "too many requests",
    "account",
    "untrue count",
    "stuck",
    "no end",
];

/// The checks that are not made where clocks drift beyond the bound: nothing is promised there of
/// what they check. Where two hold a lock this is counted instead, see [`Counts::overlaps`].
const OF_THE_BOUND: [&str; 10] = [
    "two holders",
    "too many permits",
    "held without a node",
    "queue order",
    "lease outlived",
    "lost without trouble",
    "lost on a slow line",
    "long answer",
    "lost within reach",
    "place lost",
];

/// Knows every hold of every process, and the threads' reports. It belongs to no process.
#[derive(Clone)]
pub struct Observer(Arc<Mutex<Seen>>);

/// The settings of a run that the checks depend on.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The locks.
    pub places: Vec<Place>,
    /// The session timeout that clients ask for.
    pub session_timeout: Duration,
    /// The shortest timeout that a server grants to them.
    pub shortest_timeout: Duration,
    /// The timeout is so short, for the servers' tick or for the network, that a lease may end
    /// before it is renewed although nothing fails.
    pub is_tight: bool,
    /// The servers' tick.
    pub tick: Duration,
    /// Processes close their sessions in use.
    pub closes: bool,
    /// How long a follower may receive nothing from its leader.
    pub sync_time: Duration,
    /// How long a call without a timeout waits in an outage.
    pub max_elapsed: Duration,
    /// That is less than by default.
    pub has_short_policy: bool,
    /// Clocks drift beyond the bound, so two holds may overlap. This is counted, and is not
    /// a violation.
    pub may_overlap: bool,
}

#[derive(Default)]
struct Seen {
    setting: Setting,
    /// The holds that were granted and not released, in the order of their grants. Some of them are
    /// lost.
    holds: Vec<Hold>,
    /// The guards that the workload's threads have.
    guards: Vec<Guard>,
    /// The newest tokens of each lock; if two holds may overlap, of each lock and process.
    newest: BTreeMap<(Option<ProcessId>, String), Newest>,
    /// The data that the locks protect.
    store: Store<FencingToken>,
    counts: Counts,
    /// Sessions that a third party has ended. Their holds stand until the library is notified,
    /// which nothing can avoid.
    ended_by_others: BTreeSet<i64>,
    /// The shortest timeout that the client of each session was told.
    told_timeouts: BTreeMap<i64, Duration>,
    /// Nodes that a third party deletes, with the time of the request. Their holds stand until the
    /// event arrives.
    deleted_by_others: BTreeMap<String, Duration>,
    /// The ends of those of these nodes that have an id in their names.
    gone: BTreeMap<String, Gone>,
    /// The time at which each thread last held a lock.
    progress: BTreeMap<(ProcessId, usize), Duration>,
    sessions: BTreeMap<i64, Session>,
    /// The sessions that have ended for their clients. The leader may still have them.
    over: BTreeSet<i64>,
    /// The threads that wait for one lock.
    waiting: BTreeMap<(ProcessId, usize), Waiting>,
    /// The processes without a connection.
    down: BTreeMap<ProcessId, Down>,
    lasting: Lasting,
    /// The nodes that clients ask for, and whether the request was written to the node.
    asked_for: BTreeMap<String, bool>,
    let_go_as_asked: BTreeSet<String>,
    /// What each thread that ends a guard has released since it began to end it.
    released: BTreeMap<ThreadId, Vec<Observed>>,
    history: History,
    /// The session that each process has had last.
    newest_session: BTreeMap<ProcessId, i64>,
    /// When each process was last connected to a server whose leader had been replaced.
    deposed: BTreeMap<ProcessId, Duration>,
    /// Until when each process had, or has, some trouble of its own, and all of them together.
    trouble: BTreeMap<Option<ProcessId>, Duration>,
    slow_lines: SlowLines,
    /// The calls for several locks, by their threads.
    several: BTreeMap<ThreadId, Several>,
    /// What the clients send.
    traffic: Traffic,
    unserved: Unserved,
    reaching: Reaching,
    /// What was heard about the run's locks.
    heard: Heard,
    /// The calls that ask for them.
    asking: Asking,
    /// The places of processes in queues.
    order: Order,
    /// The locks with paths of their own that are asked for, by their processes.
    passing: BTreeMap<String, folders::Call>,
    /// The nodes of holds that were held for too long.
    held_too_long: BTreeSet<String>,
    /// When each process last let a hold of each lock go.
    held: BTreeMap<(ProcessId, String), Duration>,
    /// The terms that threads were given, for as long as somebody has a view of them.
    terms: Vec<Term>,
    /// The locks that each thread uses now, and when it last used each lock before.
    using: BTreeMap<(ProcessId, usize), Vec<String>>,
    used: BTreeMap<(ProcessId, usize, String), Duration>,
}

/// A node that has the lock.
struct Hold {
    process: ProcessId,
    /// The thread to which it was granted.
    thread: ThreadId,
    node: Node,
    hold: Observed,
    since: Duration,
    /// The time at which it was first seen to bear the mark of a loss.
    lost: Option<Duration>,
    /// It was seen at a time at which it must not be lost.
    was_in_calm: bool,
    /// It was seen at a time at which it must not be lost because servers were within reach.
    was_in_reach: bool,
    /// Of a lock that is kept: since when other clients want it, since when the process has let a
    /// guard of it go, and that no other guard may come.
    wanted: Option<Since>,
    let_go: Option<Since>,
    has_to_go: bool,
}

/// A guard of a thread.
struct Guard {
    process: ProcessId,
    thread: usize,
    node: Node,
    hold: Observed,
    token: FencingToken,
    /// It becomes ready when somebody asks for the lock, if its thread has asked for it.
    signal: Option<RevokeSignal>,
    /// When the call began that gave it, in the world's time; and when its thread got it, by its
    /// process's clock.
    asked: Duration,
    got: Duration,
    /// Since when it is invalid by its process's clock, and nobody was told; and how long the
    /// process had been stopped by then.
    overdue: Option<(Duration, Duration)>,
    /// It was seen after the end of its `max_hold`, or after the end of its hold.
    was_held_too_long: bool,
    was_over: bool,
}

/// The highest tokens of one lock.
#[derive(Default)]
struct Newest {
    alone: Option<FencingToken>,
    shared: Option<FencingToken>,
}

/// A session of a process.
struct Session {
    process: ProcessId,
    /// The connection of the session.
    epoch: Option<u64>,
    /// The time at which it got that, or lost it.
    attached: Duration,
}

impl Session {
    /// It has just got this connection, or lost its last one.
    fn now(process: ProcessId, epoch: Option<u64>) -> Session {
        Session { process, epoch, attached: now() }
    }
}

/// Counts of events.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// The number of guards.
    pub acquisitions: u64,
    /// The number of calls that ended at their deadline or because the lock was held.
    pub refused: u64,
    /// The number of calls that ended with an error.
    pub errors: u64,
    /// The number of guards that were lost before their release, but for those held too long.
    pub lost: u64,
    /// The number of guards that were lost by their lock's `max_hold`.
    pub held_too_long: u64,
    /// The number of grants beside a valid hold in runs where this is not a violation.
    pub overlaps: u64,
    /// The number of writes that the store refused, because a newer holder had written before.
    pub refused_writes: u64,
    /// The number of answers that were not judged, because a leader that had been replaced may have
    /// given them.
    pub of_deposed_leaders: u64,
    /// How often each check was made, of those that the run can make.
    pub checks: BTreeMap<&'static str, u64>,
}

/// A violation: the name of the check, and a description.
type Broken = (&'static str, String);

/// How late after the end of the lease a holder may be notified while its process runs.
const TOLD_LATE: Duration = Duration::from_millis(1_500);

/// How late a thread may be because it had no processor.
pub const LATE: Duration = Duration::from_millis(300);

impl Observer {
    /// An observer of a run with these settings.
    pub fn new(setting: Setting) -> Observer {
        let is_made = |check: &&str| !(setting.may_overlap && OF_THE_BOUND.contains(check));
        let checks = CHECKS.into_iter().filter(is_made).map(|check| (check, 0)).collect();
        let counts = Counts { checks, ..Counts::default() };
        Observer(Arc::new(Mutex::new(Seen { setting, counts, ..Seen::default() })))
    }

    /// Counts this check, and ends the run if `is_well` is false. The caller makes the check only
    /// where it could fail.
    pub fn check(&self, check: &'static str, is_well: bool, text: impl FnOnce() -> String) {
        self.seen(|seen| seen.counts.note(check));
        report((!is_well).then(|| (check, text())));
    }

    /// Begins to observe each hold of this run and each session that the leader expires.
    pub fn watch(&self, servers: &Servers, names: &Names) {
        let dialled = names.clone();
        let (observer, tree) = (self.clone(), servers.clone());
        observed::watch(move |news| {
            let (Some(process), thread) = (this_process(), this_thread()) else { return };
            report(observer.seen(|seen| match news {
                News::Granted(hold) => {
                    let new = Hold {
                        process,
                        thread,
                        node: Node::of(&hold.path),
                        hold,
                        since: now(),
                        lost: None,
                        was_in_calm: false,
                        was_in_reach: false,
                        wanted: None,
                        let_go: None,
                        has_to_go: false,
                    };
                    if !new.is_of_a_queue_for_permits(&seen.setting.places) {
                        seen.is_granted_to(thread);
                    }
                    seen.granted(new, tree.newest().as_deref())
                }
                News::Released(hold) => {
                    seen.count_lost_members(thread, &hold);
                    seen.lets_go(process, &hold);
                    if hold.lost_reason() == Some(LossReason::HeldTooLong) {
                        seen.held_too_long.insert(hold.path.clone());
                    }
                    seen.holds.retain(|other| !other.hold.is_same(&hold));
                    seen.slow_lines.rests(process);
                    seen.released.entry(thread).and_modify(|all| all.push(hold));
                    None
                }
            }));
        });
        let (observer, granted, names) = (self.clone(), servers.clone(), names.clone());
        observed::watch_sessions(move |news| {
            let Some(process) = this_process() else { return };
            if let SessionNews::Attached { session, .. } = news {
                let since = observer.seen(|seen| seen.down.get(&process).and_then(Down::since));
                let reach = names.reach(&granted, process, since.unwrap_or_default());
                let sessions = granted.sessions().into_iter().collect();
                report(observer.seen(|seen| seen.is_back(process, session, reach, &sessions)));
            }
            report(observer.seen(|seen| match news {
                SessionNews::Attached { session, epoch } => {
                    if let Some(timeout) = granted.granted_timeout(session) {
                        let told = seen.told_timeouts.entry(session).or_insert(timeout);
                        *told = timeout.min(*told);
                    }
                    seen.down.remove(&process);
                    seen.newest_session.insert(process, session);
                    seen.sessions.insert(session, Session::now(process, Some(epoch)));
                    None
                }
                SessionNews::Detached { session, is_over } => {
                    seen.tears(process);
                    let before = seen.sessions.get(&session).filter(|of| of.epoch.is_some());
                    let attached = before.map(|of| of.attached);
                    seen.sessions.insert(session, Session::now(process, None));
                    if is_over {
                        seen.over.insert(session);
                    }
                    // A thread of the library may still close the session before this one.
                    if seen.connection_of(process).is_none() {
                        seen.down.entry(process).or_insert_with(|| Down::now(process, attached));
                    }
                    seen.is_lost_on_a_slow_line(process)
                }
            }));
        });
        let observer = self.clone();
        servers.on_expired(move |session, counted| {
            report(observer.seen(|seen| seen.expired(session, counted)));
        });
        let observer = self.clone();
        servers.on_changed(move |changes| {
            observer.seen(|seen| {
                seen.count_deleted(&changes);
                seen.comes(&changes);
                seen.history.changed(changes);
            });
        });
        self.watch_requests();
        self.watch_dialling(&dialled);
        let observer = self.clone();
        servers.on_deposed(move |process| {
            observer.seen(|seen| seen.deposed.insert(process, now()));
        });
    }

    fn seen<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        // A thread must not be interrupted here: another thread would wait for this lock for ever.
        as_world(|| f(&mut self.0.lock().unwrap_or_else(|e| e.into_inner())))
    }

    // ---- reports of threads ----

    /// The calling thread has just got these guards together, by a call that began at `asked`. None
    /// of them is nested.
    pub fn acquired(&self, thread: usize, all: &[&Held], asked: Duration) {
        let Some(process) = this_process() else { return };
        for held in all {
            let (hold, token) = (Observed::of(held), held.fencing_token());
            let node = Node::of(&hold.path);
            let got = clock_of(process);
            let guard = Guard {
                process,
                thread,
                node,
                hold,
                token,
                signal: None,
                asked,
                got,
                overdue: None,
                was_held_too_long: false,
                was_over: false,
            };
            self.will_end(&guard);
            report(self.seen(|seen| seen.acquired(guard, asked)));
        }
        self.seen(|seen| {
            seen.counts.acquisitions += 1;
            seen.progress.insert((process, thread), now());
        });
    }

    /// The calling thread is about to release these guards. `was_asked`: it has seen a revocation
    /// request for them.
    pub fn releases(&self, thread: usize, all: &[&Held], was_asked: bool) {
        let Some(process) = this_process() else { return };
        for held in all {
            let (hold, reason) = (Observed::of(held), held.lost_reason());
            report(self.seen(|seen| {
                let own = |guard: &Guard| {
                    (guard.process, guard.thread) == (process, thread) && guard.hold.is_same(&hold)
                };
                let at = seen.guards.iter().position(own)?;
                let guard = seen.guards.swap_remove(at);
                let broken = seen.ended_too_early(&guard, reason);
                seen.has_to_go(&guard);
                if was_asked && guard.node.mode == Mode::Exclusive {
                    if seen.is_used_by_others(process, thread, &guard.node.lock) {
                        seen.counts.note("handed over though asked for");
                    }
                    seen.let_go_as_asked.insert(guard.hold.path);
                }
                broken
            }));
        }
    }

    /// The released guards were lost before.
    pub fn lost(&self, held: &[&Held]) {
        let is_too_long = |held: &&Held| held.lost_reason() == Some(LossReason::HeldTooLong);
        let is_too_long = held.iter().any(is_too_long);
        self.seen(|seen| match is_too_long {
            true => seen.counts.held_too_long += 1,
            false => seen.counts.lost += 1,
        });
    }

    /// The holder of these guards writes to the protected stores, with the guards' tokens.
    pub fn writes(&self, all: &[&Held]) {
        for held in all {
            let (path, token) = (held.path(), held.fencing_token());
            report(self.seen(|seen| seen.writes(path, token)));
        }
    }

    /// A call ended without a guard.
    pub fn not_acquired(&self, is_error: bool) {
        self.seen(|seen| if is_error { seen.counts.errors += 1 } else { seen.counts.refused += 1 });
    }

    /// The holder of these nodes, which are permits if there are several, has seen a revocation
    /// request: for any of them. Others ask for the first holder, and that is the second node if an
    /// operator has deleted the first.
    pub fn is_asked(&self, nodes: &[String]) {
        let was = self.seen(|seen| nodes.iter().any(|path| seen.asked_for.contains_key(path)));
        let text =
            || format!("{nodes:?}: their holder has a revocation request that no client has made");
        self.check("request of no client", was, text);
    }

    // ---- reports of faults ----

    /// A third party ends this session at the server.
    pub fn is_ended_by_others(&self, session: i64) {
        self.seen(|seen| seen.ended_by_others.insert(session));
    }

    /// A third party deletes this node.
    pub fn is_deleted_by_others(&self, path: &str) {
        self.seen(|seen| seen.deleted_by_others.insert(path.to_owned(), now()));
    }

    /// Whether a call without a timeout may fail although nothing disturbs the world: a session may
    /// have to reconnect, and the retry policy lets a call wait in an outage for a short time only.
    pub fn may_fail_in_calm(&self) -> bool {
        self.seen(|seen| seen.setting.is_tight && seen.setting.has_short_policy)
    }

    /// For so long the process, or each process, is disturbed by a fault.
    pub fn has_trouble(&self, process: Option<ProcessId>, lasts: Duration) {
        self.seen(|seen| {
            let until = seen.trouble.entry(process).or_default();
            *until = (*until).max(now() + lasts);
        });
    }

    // ---- regular checks ----

    /// Checks for states that must not last: holders without a notification, waiters that were not
    /// woken, forgotten nodes.
    pub fn look(&self, servers: &Servers, names: &Names) {
        let tree = servers.newest();
        self.look_at_reach(servers, names);
        let since = servers.quorum_since();
        report(self.seen(|seen| seen.unserved(tree.as_deref(), since)));
        report(self.seen(|seen| seen.lost_without_trouble()));
        report(self.seen(|seen| seen.list_is_late()));
        report(self.seen(|seen| seen.told_late()));
        report(self.seen(|seen| seen.wait_in_vain()));
        report(self.seen(|seen| seen.wait_on()));
        report(self.seen(|seen| seen.lasting(tree.as_deref())));
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.seen(|seen| seen.counts.clone())
    }

    /// Whether this thread has had a lock since that time. A thread that waits for an exclusive
    /// lock may starve, because this lock has no queue.
    pub fn has_progress(&self, process: ProcessId, thread: usize, since: Duration) -> bool {
        self.seen(|seen| {
            let waits_for = seen.waiting.get(&(process, thread)).map(|of| &of.path);
            let is_unfair = |place: &Place| {
                matches!(place.recipe, Recipe::Exclusive) && waits_for == Some(&place.path)
            };
            seen.progress.get(&(process, thread)).is_some_and(|last| *last >= since)
                || seen.setting.places.iter().any(is_unfair)
        })
    }

    /// The processes that hold something, in the order of their grants.
    pub fn holders(&self) -> Vec<ProcessId> {
        self.seen(|seen| seen.valid_holds().map(|hold| hold.process).collect())
    }

    /// The nodes of the run's locks that are held, in the order of their grants.
    pub fn held_nodes(&self) -> Vec<String> {
        self.seen(|seen| {
            let is_ours = |hold: &&Hold| seen.setting.place(&hold.node.lock).is_some();
            seen.valid_holds().filter(is_ours).map(|hold| hold.hold.path.clone()).collect()
        })
    }

    /// Whether no living process holds anything.
    pub fn is_quiet(&self) -> bool {
        self.seen(|seen| !seen.holds.iter().any(|hold| is_alive(hold.process)))
    }
}

impl Counts {
    /// Counts this check, if the run can make it.
    fn note(&mut self, check: &'static str) {
        debug_assert!(CHECKS.contains(&check), "{check}: this name is not in the list");
        if let Some(made) = self.checks.get_mut(check) {
            *made += 1;
        }
    }
}

fn report(broken: Option<Broken>) {
    if let Some((kind, text)) = broken {
        fail(kind, text);
    }
}

impl Seen {
    // ---- exclusion ----

    /// A node was granted the lock. Two holds overlap if and only if the earlier one is valid when
    /// the later one is granted.
    fn granted(&mut self, new: Hold, tree: Option<&[NodeInfo]>) -> Option<Broken> {
        self.forget_dead();
        let mut broken;
        if self.counts_for(new.process, &new.hold, new.since) {
            let may_overlap =
                |old: &Hold| excludes(&old.node, &new.node) && !is_downgrade(old, &new);
            if self.holds.iter().any(may_overlap) {
                self.counts.note("two holders");
            }
            broken = self
                .overlap(&new)
                .or_else(|| self.too_many(&new))
                .or_else(|| self.overlapped_guard(&new))
                .or_else(|| self.outlived_term(&new));
            if let (None, Some(tree)) = (&broken, tree) {
                self.counts.note("held without a node");
                if queue::has_others(tree, &new) {
                    self.counts.note("queue order");
                }
                let too_long =
                    |old: &&Hold| old.hold.lost_reason() == Some(LossReason::HeldTooLong);
                let too_long = self.holds.iter().filter(too_long).map(|old| &old.hold.path);
                let deleted = self.deleted_by_others.keys().chain(&self.held_too_long);
                broken = queue::place(tree, &new, deleted.chain(too_long));
            }
        } else {
            broken = self.granted_without_node(&new);
        }
        let broken = broken.or_else(|| self.is_granted_in_order(&new));
        self.holds.push(new);
        self.unless_it_may_overlap(broken)
    }

    /// Drops a violation of exclusion where clocks drift beyond the bound: nothing is promised
    /// there.
    fn unless_it_may_overlap(&mut self, broken: Option<Broken>) -> Option<Broken> {
        self.counts.overlaps += u64::from(broken.is_some() && self.setting.may_overlap);
        broken.filter(|_| !self.setting.may_overlap)
    }

    /// A valid hold that excludes the new one.
    fn overlap(&self, new: &Hold) -> Option<Broken> {
        let other = self.holds.iter().find(|old| {
            excludes(&old.node, &new.node)
                && !is_downgrade(old, new)
                && self.counts_for(old.process, &old.hold, old.since)
        })?;
        let (one, two) = (process_name(new.process), process_name(other.process));
        let text =
            format!("{one} holds {}, and {two} still holds {}", new.hold.path, other.hold.path);
        Some(("two holders", text))
    }

    /// A guard of another thread that excludes the new hold. Its node may have been deleted too
    /// early.
    fn overlapped_guard(&self, new: &Hold) -> Option<Broken> {
        let other = self.guards.iter().find(|old| {
            excludes(&old.node, &new.node)
                && !old.hold.is_same(&new.hold)
                && !(old.process == new.process && old.node.number == new.node.number)
                && self.counts_for(old.process, &old.hold, self.since(&old.hold))
        })?;
        let (one, two) = (process_name(new.process), process_name(other.process));
        let text = format!(
            "{one} holds {}, and thread {} of {two} has a guard of {}",
            new.hold.path, other.thread, other.hold.path
        );
        Some(("two holders", text))
    }

    /// Checks that there are not more holds than permits.
    fn too_many(&mut self, new: &Hold) -> Option<Broken> {
        if new.node.mode != Mode::Permit {
            return None;
        }
        let most = self.setting.most_permits(&new.node.lock)?;
        let held = self.holds.iter().filter(|old| {
            old.node.mode == Mode::Permit
                && old.node.lock == new.node.lock
                && self.counts_for(old.process, &old.hold, old.since)
        });
        let held = held.count() + 1;
        // One more would be too many.
        if held >= most {
            self.counts.note("too many permits");
        }
        let text = format!("{} is held, and with it {held} of {most} permits", new.hold.path);
        (held > most).then_some(("too many permits", text))
    }

    /// Whether the guards of this hold are valid now and must be the only ones.
    fn counts_for(&self, process: ProcessId, hold: &Observed, since: Duration) -> bool {
        let is_deleted = self.deleted_by_others.get(&hold.path).is_some_and(|asked| {
            // A node with an id in its name is deleted once, and `told.rs` checks that its holder is
            // told soon. The delete of a fixed name may hit any node of this name while it is in
            // progress.
            Node::of(&hold.path).mode != Mode::Name
                || since < *asked + self.setting.session_timeout * 8
        });
        is_alive(process)
            && hold.is_held_at(clock_of(process))
            && !is_deleted
            && hold.session_id().is_some_and(|session| !self.ended_by_others.contains(&session))
    }

    /// The holds that must be the only ones.
    fn valid_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| self.counts_for(hold.process, &hold.hold, hold.since))
    }

    /// The time at which this hold was granted.
    fn since(&self, hold: &Observed) -> Duration {
        self.holds
            .iter()
            .find(|other| other.hold.is_same(hold))
            .map_or(Duration::ZERO, |hold| hold.since)
    }

    /// Whether another thread of this process uses the lock at this path now.
    fn is_used_by_others(&self, process: ProcessId, thread: usize, path: &str) -> bool {
        let is_other = |(of, other): &(ProcessId, usize)| *of == process && *other != thread;
        let mut using = self.using.iter().filter(|(of, _)| is_other(of));
        using.any(|(_, paths)| paths.iter().any(|used| used == path))
    }

    fn forget_dead(&mut self) {
        self.holds.retain(|hold| is_alive(hold.process));
        self.guards.retain(|guard| is_alive(guard.process));
        self.waiting.retain(|(process, _), _| is_alive(*process));
        self.sessions.retain(|_, session| is_alive(session.process));
    }

    // ---- guards ----

    /// A thread has got a guard.
    fn acquired(&mut self, new: Guard, asked: Duration) -> Option<Broken> {
        self.forget_dead();
        let granted = self.holds.iter().find(|hold| hold.hold.is_same(&new.hold));
        // The hold is older than the call: another thread has handed it over, or it was kept.
        if granted.is_some_and(|hold| hold.since < asked) {
            self.counts.note("stale guard");
        }
        let lost = granted.and_then(|hold| hold.lost);
        if lost.is_some_and(|lost| lost < asked) {
            let text = format!(
                "{} was lost at {lost:?}, and granted to a call that began at {asked:?}",
                new.hold.path
            );
            return Some(("stale guard", text));
        }
        let counts = self.counts_for(new.process, &new.hold, self.since(&new.hold));
        let second = if counts { self.second_guard(&new) } else { None };
        let second = self.unless_it_may_overlap(second);
        let broken = if counts {
            let passed_on = || self.passed_on(&new).or_else(|| self.is_kept_from_others(&new));
            second.or_else(passed_on).or_else(|| self.old_token(&new))
        } else {
            None
        };
        let newest = self.newest.entry(self.of(&new)).or_default();
        let newest =
            if new.node.mode == Mode::Shared { &mut newest.shared } else { &mut newest.alone };
        *newest = (*newest).max(Some(new.token));
        self.guards.push(new);
        broken
    }

    /// Another thread has a guard that excludes the new one.
    fn second_guard(&mut self, new: &Guard) -> Option<Broken> {
        let is_other = |old: &&Guard| {
            (old.process, old.thread) != (new.process, new.thread) && excludes(&old.node, &new.node)
        };
        let mut others = self.guards.iter().filter(is_other).peekable();
        if others.peek().is_some() {
            self.counts.note("two holders");
        }
        let other =
            others.find(|old| self.counts_for(old.process, &old.hold, self.since(&old.hold)))?;
        let (one, two) = (new.thread(), other.thread());
        let text = format!(
            "{one} has a guard of {}, and {two} still has one of {}",
            new.hold.path, other.hold.path
        );
        Some(("two holders", text))
    }

    /// The lock was handed over although another client had asked for it, and its holder knew that.
    fn passed_on(&self, new: &Guard) -> Option<Broken> {
        let is_passed_on =
            new.node.mode == Mode::Exclusive && self.let_go_as_asked.contains(&new.hold.path);
        let text = || format!("{} was asked for, and goes on with {}", new.hold.path, new.thread());
        is_passed_on.then(|| ("handed over though asked for", text()))
    }

    /// Checks that the token is above those of all earlier guards that excluded this one.
    fn old_token(&mut self, new: &Guard) -> Option<Broken> {
        let is_alone = match new.node.mode {
            Mode::Shared => false,
            // With several permits there is no newest one.
            Mode::Permit if self.setting.most_permits(&new.node.lock) != Some(1) => return None,
            Mode::Permit | Mode::Exclusive | Mode::Leader | Mode::Name => true,
        };
        let newest = self.newest.get(&self.of(new))?;
        let before = if is_alone { newest.alone.max(newest.shared) } else { newest.alone }?;
        self.counts.note("token order");
        // A thread that reads beside its own write continues with the token of the write.
        let own = |old: &Guard| {
            (old.process, old.thread) == (new.process, new.thread)
                && old.node.lock == new.node.lock
                && old.token == new.token
        };
        let is_in_order = new.token > before || !is_alone && self.guards.iter().any(own);
        let text = format!("{}: the token {} is given after {before}", new.hold.path, new.token);
        (!is_in_order).then_some(("token order", text))
    }

    /// The lock whose tokens have an order, and the process if two holds may overlap.
    fn of(&self, guard: &Guard) -> (Option<ProcessId>, String) {
        (self.setting.may_overlap.then_some(guard.process), guard.node.lock.clone())
    }

    /// A holder writes to the store. Readers do not write, and with several permits there is no
    /// newest token.
    fn writes(&mut self, path: &str, token: FencingToken) -> Option<Broken> {
        let node = Node::of(path);
        let is_alone = match node.mode {
            Mode::Exclusive | Mode::Leader | Mode::Name => true,
            Mode::Permit => self.setting.most_permits(&node.lock) == Some(1),
            Mode::Shared => false,
        };
        if !is_alone {
            return None;
        }
        // All nodes of an exclusive lock have the same name.
        let writer = format!("{path} of {:#x}", token.zxid());
        if self.store.has_earlier(&node.lock, &writer) {
            self.counts.note("stale write");
        }
        match self.store.write(&node.lock, &writer, token) {
            Written::Taken => None,
            Written::Refused => {
                self.counts.refused_writes += 1;
                None
            }
            Written::Stale => {
                Some(("stale write", format!("{path} writes with {token} after a newer holder")))
            }
        }
    }

    // ---- leases ----

    /// The leader expires a session. No guard of this session may be valid, because other sessions
    /// may get the lock from now on. A session that has no hold cannot fail, and is not counted.
    fn expired(&mut self, session: i64, counted: Duration) -> Option<Broken> {
        if self.has_untold_timeout(session, counted) {
            note(&format!("session {session:#x}: its client was not told of its timeout"));
            self.ended_by_others.insert(session);
        }
        let is_its = |hold: &&Hold| {
            hold.hold.session_id() == Some(session)
                && !self.ended_by_others.contains(&session)
                && is_alive(hold.process)
        };
        if self.holds.iter().any(|hold| is_its(&hold)) {
            self.counts.note("lease outlived");
        }
        let mut holds = self.holds.iter().filter(is_its);
        let hold = holds.find(|hold| hold.hold.is_held_at(clock_of(hold.process)))?;
        let text = format!(
            "the leader expires session {session:#x}, and to {} {} is still held",
            process_name(hold.process),
            hold.hold.path
        );
        self.unless_it_may_overlap(Some(("lease outlived", text)))
    }

    /// Whether the leader has counted by a shorter timeout than each that the session's client was
    /// told. A server grants one in its answer to a connect request, and the leader goes by it
    /// before the client can have that answer. If the answer is lost, the session may expire before
    /// its lease ends: the library promises nothing here (all servers are to grant the same
    /// timeout).
    fn has_untold_timeout(&self, session: i64, counted: Duration) -> bool {
        self.told_timeouts.get(&session).is_some_and(|told| counted < *told)
    }

    /// Notes the holds that are lost. A hold is lost only if its own process, or a server, or an
    /// operator has had some trouble since two session timeouts: a lease that was renewed after the
    /// trouble has not ended since. Each hold is counted once, when it is first seen in such a calm.
    fn lost_without_trouble(&mut self) -> Option<Broken> {
        let mut broken = None;
        let may_lose = self.setting.may_overlap || self.setting.is_tight;
        for hold in self.holds.iter_mut().filter(|hold| hold.lost.is_none()) {
            // Only the mark is final. The thread that gives the node to the next holder may be
            // stopped between its reading of the clock and its writing of the next end. Meanwhile
            // the end of the holder before has passed, and no guard exists that could say so.
            if hold.hold.is_told_lost() {
                hold.lost = Some(now());
            }
            let until = trouble_of(&self.trouble, hold.process);
            if now() <= until + self.setting.session_timeout * 2 || may_lose {
                continue;
            }
            if !std::mem::replace(&mut hold.was_in_calm, true) {
                self.counts.note("lost without trouble");
            }
            let reason = hold.hold.lost_reason();
            if reason.is_some_and(|reason| {
                !matches!(
                    reason,
                    LossReason::HeldTooLong | LossReason::Resigned | LossReason::SessionClosed
                )
            }) {
                let text = format!(
                    "{} is lost to {} ({reason:?}), and there was no fault since {until:?}",
                    hold.hold.path,
                    process_name(hold.process)
                );
                broken = broken.or(Some(("lost without trouble", text)));
            }
        }
        broken
    }

    /// Checks that holders are notified in time after the end of their lease, and that no guard
    /// outlives its `max_hold`. Each guard is counted once: when its lease, or its time, is over.
    fn told_late(&mut self) -> Option<Broken> {
        self.forget_dead();
        let late = TOLD_LATE * self.setting.slowness();
        for guard in &mut self.guards {
            let Some(most) = self.setting.max_hold(&guard.node.lock) else { continue };
            let (clock, end) = (clock_of(guard.process), guard.got + most);
            if clock <= end {
                continue;
            }
            if !std::mem::replace(&mut guard.was_held_too_long, true) {
                self.counts.note("held too long");
            }
            if guard.hold.is_held_at(clock) {
                let text =
                    format!("{}: held at {clock:?}, and its time is {end:?}", guard.hold.path);
                return Some(("held too long", text));
            }
        }
        for guard in &mut self.guards {
            if guard.hold.is_held_at(clock_of(guard.process)) {
                guard.overdue = None;
                continue;
            }
            if !std::mem::replace(&mut guard.was_over, true) {
                self.counts.note("notified late");
            }
            if guard.hold.is_told_lost() {
                guard.overdue = None;
                continue;
            }
            let stopped = stopped_for(guard.process);
            let (since, before) = guard.overdue.get_or_insert((now(), stopped));
            if *before != stopped {
                (*since, *before) = (now(), stopped);
            }
            if now() > *since + late {
                let text = format!("{}: the lease is over since {since:?}", guard.hold.path);
                return Some(("notified late", text));
            }
        }
        None
    }

    /// A guard that was lost because it was held too long, before its own time was over: by that of
    /// the thread before, say.
    fn ended_too_early(&mut self, guard: &Guard, reason: Option<LossReason>) -> Option<Broken> {
        reason.filter(|reason| *reason == LossReason::HeldTooLong)?;
        self.counts.note("held too long");
        // The process's clock may be faster than the world's.
        let most = self.setting.max_hold(&guard.node.lock);
        let least = most.map(|most| most.mul_f64(0.8) / self.setting.slowness());
        // Threads that read share a node and its end: for a thread that came in later, the time
        // began when the first of them got the node.
        let granted = self.holds.iter().find(|hold| hold.hold.is_same(&guard.hold));
        let shared_since = granted.filter(|_| guard.node.mode == Mode::Shared);
        let since = shared_since.map_or(guard.asked, |hold| guard.asked.min(hold.since));
        let lasted = now().saturating_sub(since);
        let text = format!("{}: lost by its max_hold, {most:?}, after {lasted:?}", guard.hold.path);
        least.is_none_or(|least| lasted < least).then_some(("held too long", text))
    }
}

impl Setting {
    /// How many times slower than the world's clock a process's clock may be, rounded up.
    fn slowness(&self) -> u32 {
        if self.may_overlap { 4 } else { 1 }
    }

    /// The lock whose nodes are in this folder; or whose node this is, if it has a common name.
    fn place(&self, folder: &str) -> Option<&Place> {
        let above = folder.strip_suffix("/leases").or_else(|| folder.strip_suffix("/lock"));
        let path = above.unwrap_or(folder);
        self.places.iter().find(|place| place.path == path)
    }

    /// How long a guard may hold the lock whose nodes are in this folder.
    fn max_hold(&self, folder: &str) -> Option<Duration> {
        let place = self.place(folder)?;
        place.longest.filter(|_| !matches!(place.recipe, Recipe::Election)).map(|l| l.max_hold)
    }

    /// How many permits there are at most below this folder of leases.
    fn most_permits(&self, folder: &str) -> Option<usize> {
        let path = folder.strip_suffix("/leases")?;
        self.places.iter().find(|place| place.path == path).and_then(|place| match &place.recipe {
            Recipe::Semaphore { most, .. } => Some(*most as usize),
            Recipe::SemaphoreMutex => Some(1),
            _ => None,
        })
    }
}

impl Guard {
    /// The name of its thread.
    fn thread(&self) -> String {
        format!("thread {} of {}", self.thread, process_name(self.process))
    }
}

/// Until when this process, or all of them, had some trouble.
fn trouble_of(trouble: &BTreeMap<Option<ProcessId>, Duration>, process: ProcessId) -> Duration {
    let until = [None, Some(process)].map(|of| trouble.get(&of).copied());
    until.into_iter().flatten().max().unwrap_or_default()
}

/// Whether only one of these two nodes may be held at a time.
fn excludes(old: &Node, new: &Node) -> bool {
    old.lock == new.lock
        && !matches!(
            (old.mode, new.mode),
            (Mode::Shared, Mode::Shared) | (Mode::Permit, Mode::Permit)
        )
}

/// Whether a writer takes a read in the place of its write, before it releases the write.
fn is_downgrade(old: &Hold, new: &Hold) -> bool {
    (old.node.mode, new.node.mode) == (Mode::Exclusive, Mode::Shared)
        && old.node.number == new.node.number
        && old.hold.session_id() == new.hold.session_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_promised_of_is_not_counted_as_checked() {
        for may_overlap in [false, true] {
            let setting = Setting { may_overlap, ..Setting::default() };
            let made = Observer::new(setting).counts().checks;
            assert!(OF_THE_BOUND.iter().all(|check| made.contains_key(check) != may_overlap));
            assert!(made.contains_key("asleep"));
        }
    }
}
