//! Each answer of the library is true: it was true of the newest tree at some moment between the
//! question and the answer, whichever server was asked.
//!
//! So a client that was told of a release, or of a change, and asks then, gets no answer from
//! before. A server that follows the leader late must not make an exception. One thing is
//! ZooKeeper's own limit: a leader that has been replaced and does not know it yet answers a `sync`
//! too. Where the caller's process was connected to such a leader, or to one of its followers, in
//! this time, the answer is not judged.

use std::collections::BTreeSet;

use zk_mutex_simulated::{Contender, Error};
use zk_sim_runtime::{ProcessId, now, process_name, this_process};

use super::history::{Life, Moment, Number};
use super::names::{self, Mode};
use super::{Broken, Observer, Seen, report};
use crate::workload::{Place, Recipe};

/// A way to ask for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// For nobody else at the same time.
    Alone,
    /// To read.
    Shared,
    /// For so many permits.
    Permits(u32),
}

/// Which contenders a call lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// All contenders.
    Contenders,
    /// Those that hold the lock.
    Holders,
}

/// What a list puts before the names of leases.
const LEASES: &str = "leases/";

/// The names of contenders, with their sessions.
type Names = BTreeSet<(String, i64)>;

impl Observer {
    /// Now. A call that begins now asks its question now.
    pub fn moment(&self) -> Moment {
        self.seen(|seen| seen.history.moment())
    }

    /// The calling thread begins to use the locks at these paths; or it ends that, if there are
    /// none.
    pub fn uses(&self, thread: usize, paths: &[&str]) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| {
            if let Some(used) = seen.using.remove(&(process, thread)) {
                seen.used.extend(used.into_iter().map(|path| ((process, thread, path), now())));
                seen.slow_lines.rests(process);
            }
            if !paths.is_empty() {
                let paths = paths.iter().map(|path| (*path).to_owned()).collect();
                seen.using.insert((process, thread), paths);
            }
        });
    }

    /// A call was told that others have one of these locks. `since`: what `has_asked` gave.
    pub fn is_refused(
        &self,
        thread: usize,
        wanted: &[(&Place, Wish)],
        asked: Moment,
        since: &[Moment],
    ) {
        let Some(process) = this_process() else { return };
        report(self.seen(|seen| {
            let unproven = seen.unproven(process, thread, wanted, asked, since);
            seen.refused(process, thread, wanted, asked).or(unproven)
        }));
    }

    /// Whether a contender of another kind stood at the path of one of these locks at some moment
    /// since then.
    pub fn had_others(&self, wanted: &[(&Place, Wish)], asked: Moment) -> bool {
        self.seen(|seen| wanted.iter().any(|(place, _)| seen.had_others(place, asked)))
    }

    /// A call has listed these contenders.
    pub fn lists(&self, place: &Place, which: Listed, told: &[Contender], asked: Moment) {
        let Some(process) = this_process() else { return };
        report(self.seen(|seen| seen.listed(process, place, which, told, asked)));
    }

    /// A call was told this number of permits, or has set it.
    pub fn has_permits(&self, place: &Place, number: u32, asked: Moment) {
        let is_so = |permits| permits == Some(number);
        self.permits(place, is_so, || format!("it has {number} permits"), asked);
    }

    /// A call for so many permits, or for their number, has given this error.
    pub fn refuses_permits(&self, place: &Place, wanted: u32, e: &Error, asked: Moment) {
        match e {
            Error::InconsistentPermits { theirs, .. } => self.has_permits(place, *theirs, asked),
            Error::InvalidConfig { .. } => {
                let is_so = |permits: Option<u32>| permits.is_some_and(|permits| permits < wanted);
                self.permits(place, is_so, || format!("{wanted} are more than it has"), asked);
            }
            _ => {}
        }
    }

    fn permits(
        &self,
        place: &Place,
        is_so: impl Fn(Option<u32>) -> bool,
        told: impl FnOnce() -> String,
        asked: Moment,
    ) {
        let Some(process) = this_process() else { return };
        report(self.seen(|seen| {
            if !seen.may_judge(process, asked) {
                return None;
            }
            seen.counts.note("number of the past");
            let numbers = seen.history.numbers(&place.path, asked);
            if numbers.iter().any(|number| is_so(number.is)) {
                return None;
            }
            let (told, who) = (told(), process_name(process));
            let text = format!(
                "{who} asked at {asked:?} and was told of {} that {told}; since then: {numbers:?}",
                place.path
            );
            Some(("number of the past", text))
        }));
    }
}

impl Seen {
    /// False if the process was connected to a leader that was replaced, or to its follower.
    pub(super) fn may_judge(&mut self, process: ProcessId, asked: Moment) -> bool {
        let was_deposed = self.deposed.get(&process).is_some_and(|last| *last >= asked.time);
        self.counts.of_deposed_leaders += u64::from(was_deposed);
        !was_deposed
    }

    fn refused(
        &mut self,
        process: ProcessId,
        thread: usize,
        wanted: &[(&Place, Wish)],
        asked: Moment,
    ) -> Option<Broken> {
        let is_here = |place: &Place| self.is_used_here(process, thread, &place.path, asked);
        if wanted.is_empty() || wanted.iter().any(|(place, _)| is_here(place)) {
            return None;
        }
        if !self.may_judge(process, asked) {
            return None;
        }
        self.counts.note("taken, and free");
        let is_taken = |(place, wish): &(&Place, Wish)| self.is_taken(process, place, *wish, asked);
        if wanted.iter().any(is_taken) {
            return None;
        }
        let what = Vec::from_iter(wanted.iter().map(|(place, wish)| (&place.path, wish)));
        let who = process_name(process);
        let text = format!(
            "thread {thread} of {who} asked for {what:?} at {asked:?} and was told that others \
             have it; nobody has had it since then"
        );
        Some(("taken, and free", text))
    }

    /// Whether another thread of this process has used the lock at this path since then. It may
    /// have been the next in the process's own queue, without a node.
    pub(super) fn is_used_here(
        &self,
        process: ProcessId,
        thread: usize,
        path: &str,
        then: Moment,
    ) -> bool {
        let is_other = |(of, other): (ProcessId, usize)| of == process && other != thread;
        let mut using = self.using.iter().filter(|(of, _)| is_other(**of));
        using.any(|(_, paths)| paths.iter().any(|used| used == path))
            || self.used.iter().any(|((of, other, used), until)| {
                is_other((*of, *other)) && used == path && *until >= then.time
            })
    }

    /// Whether others have had the lock, or stood in its queue, at some moment since `asked`.
    pub(super) fn is_taken(
        &self,
        process: ProcessId,
        place: &Place,
        wish: Wish,
        asked: Moment,
    ) -> bool {
        let is_others = |life: &&Life| !self.is_own(process, life, asked);
        let mut queue = self.history.lives(&place.queue(), asked).filter(is_others);
        match (&place.recipe, wish) {
            (Recipe::Semaphore { permits, .. }, Wish::Permits(wanted)) => {
                queue.next().is_some() || self.is_full(process, place, *permits, wanted, asked)
            }
            (Recipe::SemaphoreMutex, _) => {
                queue.next().is_some() || self.is_full(process, place, 1, 1, asked)
            }
            (_, Wish::Shared) => queue
                .any(|life| life.node.as_ref().is_some_and(|node| node.mode == Mode::Exclusive)),
            _ => queue.next().is_some(),
        }
    }

    /// Whether there were fewer free permits than wanted at some moment since `asked`. `given` is
    /// their number if the semaphore's node has none.
    fn is_full(
        &self,
        process: ProcessId,
        place: &Place,
        given: u32,
        wanted: u32,
        asked: Moment,
    ) -> bool {
        // The nodes that this call has made are not counted.
        let is_of_the_call =
            |life: &&Life| life.born > asked.version && self.is_own(process, life, asked);
        let leases = self.history.lives(&leases(place), asked);
        let leases: Vec<&Life> = leases.filter(|life| !is_of_the_call(life)).collect();
        let numbers = match &place.recipe {
            Recipe::Semaphore { .. } => self.history.numbers(&place.path, asked),
            _ => vec![Number { since: 0, is: Some(given) }],
        };
        self.history.since(asked).any(|version| {
            let used = leases.iter().filter(|life| life.is_in(version)).count();
            let last = numbers.iter().rfind(|number| number.since <= version);
            let number = last.and_then(|number| number.is).unwrap_or(given);
            used + wanted as usize > number as usize
        })
    }

    /// Whether the node is one of this call, or of an earlier call of this session, which the
    /// library is about to delete. A node of an earlier session of the process keeps all out.
    fn is_own(&self, process: ProcessId, life: &Life, asked: Moment) -> bool {
        let session = self.sessions.get(&life.owner);
        session.is_some_and(|session| session.process == process)
            && (life.born > asked.version || self.newest_session.get(&process) == Some(&life.owner))
    }

    // ---- lists ----

    fn had_others(&self, place: &Place, asked: Moment) -> bool {
        self.history
            .lives(&place.queue(), asked)
            .any(|life| is_of_another_kind(&place.recipe, life))
    }

    /// A list as a whole must be that of one version.
    fn listed(
        &mut self,
        process: ProcessId,
        place: &Place,
        which: Listed,
        told: &[Contender],
        asked: Moment,
    ) -> Option<Broken> {
        // Nothing is said of which contenders of another kind are listed.
        if self.had_others(place, asked) || !self.may_judge(process, asked) {
            return None;
        }
        self.counts.note("list of the past");
        let name = |path: &str| match path.strip_prefix(place.path.as_str()) {
            Some(below) => below.trim_start_matches('/').to_owned(),
            None => path.to_owned(),
        };
        let told: Names = told.iter().map(|told| (name(&told.path), told.session_id)).collect();
        let lists = |version| list(place, which, &self.folders(place, which, asked), version);
        if self.history.since(asked).any(|version| lists(version) == told) {
            return None;
        }
        let (who, since) = (process_name(process), self.history.since(asked));
        let mut true_ones: Vec<_> = since.map(lists).collect();
        true_ones.dedup();
        let text = format!(
            "{who} asked for {which:?} of {} at {asked:?} and was told {told:x?}; since then they \
             were, one after the other, {true_ones:x?}",
            place.path
        );
        Some(("list of the past", text))
    }

    /// The nodes of each folder that a list names, and what is put before their names.
    fn folders(
        &self,
        place: &Place,
        which: Listed,
        asked: Moment,
    ) -> Vec<(&'static str, Vec<&Life>)> {
        let lives = |folder: &str| self.history.lives(folder, asked).collect();
        match (&place.recipe, which) {
            (Recipe::Semaphore { .. } | Recipe::SemaphoreMutex, Listed::Holders) => {
                vec![(LEASES, lives(&leases(place)))]
            }
            (Recipe::Semaphore { .. } | Recipe::SemaphoreMutex, Listed::Contenders) => {
                vec![(LEASES, lives(&leases(place))), ("locks/", lives(&place.queue()))]
            }
            _ => vec![("", lives(&place.queue()))],
        }
    }
}

pub(super) fn leases(place: &Place) -> String {
    format!("{}/leases", place.path)
}

/// Whether the node is that of a contender that belongs to another kind of lock.
fn is_of_another_kind(recipe: &Recipe, life: &Life) -> bool {
    let own: &[&str] = match recipe {
        Recipe::Mutex { .. } => &["-lock-", "__lock__"],
        // kazoo's `Lock` and its writers have nodes of one name.
        Recipe::ReadWrite => &["-__READ__", "-__WRIT__", "__rlock__", "__lock__"],
        Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => &["-lock-", "__lock__"],
        Recipe::Election => &["-latch-"],
        Recipe::Exclusive => return false,
    };
    life.node.is_some() && !own.iter().any(|mark| life.name.contains(mark))
}

/// The list that is true of this version.
fn list(
    place: &Place,
    which: Listed,
    folders: &[(&'static str, Vec<&Life>)],
    version: u64,
) -> Names {
    let mut names = Names::new();
    for (prefix, lives) in folders {
        let standing: Vec<&Life> =
            lives.iter().copied().filter(|life| life.is_in(version)).collect();
        // The first in a mutex's queue makes its lease before it holds the mutex: it is listed once,
        // as a contender that waits.
        let has_waiters = which == Listed::Contenders && *prefix != LEASES;
        let is_named = |life: &&&Life| {
            has_waiters || !standing.iter().any(|other| is_ahead(&place.recipe, other, life))
        };
        let named = standing.iter().filter(is_named);
        names.extend(named.map(|life| (format!("{prefix}{}", life.name), life.owner)));
    }
    names
}

/// Whether `life` does not hold the lock as long as `other` stands.
fn is_ahead(recipe: &Recipe, other: &Life, life: &Life) -> bool {
    let (node, own) = match (recipe, &other.node, &life.node) {
        (Recipe::Semaphore { .. } | Recipe::Exclusive, ..) => return false,
        (Recipe::SemaphoreMutex, ..) => return other.czxid < life.czxid,
        (_, Some(node), Some(own)) => (node, own),
        _ => return false,
    };
    // The read of a downgrade has the number of its write, and is listed behind it.
    let is_its_write = own.mode == Mode::Shared
        && (node.number, other.owner) == (own.number, life.owner)
        && other.czxid < life.czxid;
    own.waits_for(node.mode)
        && (is_its_write || names::is_ahead((node.number, other.czxid), (own.number, life.czxid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(path: &str, owner: i64, czxid: i64, versions: std::ops::Range<u64>) -> Life {
        let name = path.rsplit_once('/').unwrap().1.to_owned();
        let node = names::Node::numbered(path);
        Life { name, node, owner, czxid, born: versions.start, died: versions.end }
    }

    fn named(recipe: Recipe, which: Listed, lives: &[Life], version: u64) -> Vec<i64> {
        let place = Place { path: "/l".to_owned(), recipe, longest: None };
        let names = list(&place, which, &[("", lives.iter().collect())], version);
        let mut owners: Vec<i64> = names.into_iter().map(|(_, owner)| owner).collect();
        owners.sort_unstable();
        owners
    }

    #[test]
    fn a_mutex_of_leases_lists_its_next_holder_as_a_waiter() {
        let leases = [
            life("/l/leases/a-lease-0000000007", 1, 10, 1..9),
            life("/l/leases/b-lease-0000000008", 2, 13, 2..9),
        ];
        let queue = [life("/l/locks/c-lock-0000000004", 2, 12, 1..9)];
        let named = |recipe, which| {
            let place = Place { path: "/l".to_owned(), recipe, longest: None };
            let folders =
                [(LEASES, leases.iter().collect()), ("locks/", queue.iter().collect::<Vec<_>>())];
            Vec::from_iter(list(&place, which, &folders, 3).into_iter().map(|(name, _)| name))
        };
        let (holder, next) = ("leases/a-lease-0000000007", "leases/b-lease-0000000008");
        let waiter = "locks/c-lock-0000000004";
        assert_eq!(named(Recipe::SemaphoreMutex, Listed::Contenders), [holder, waiter]);
        let two = Recipe::Semaphore { permits: 2, most: 2 };
        assert_eq!(named(two, Listed::Contenders), [holder, next, waiter]);
    }

    #[test]
    fn a_list_names_the_nodes_of_one_version() {
        let queue = [
            life("/l/a-__WRIT__0000000007", 1, 10, 1..4),
            life("/l/b-__READ__0000000007", 1, 13, 3..6),
            life("/l/c-__READ__0000000008", 2, 11, 2..6),
            life("/l/d-__WRIT__0000000009", 3, 12, 2..9),
        ];
        let named = |which, version| named(Recipe::ReadWrite, which, &queue, version);
        assert!(named(Listed::Contenders, 0).is_empty());
        assert_eq!(named(Listed::Contenders, 3), [1, 1, 2, 3]);
        assert_eq!(named(Listed::Holders, 2), [1]);
        assert_eq!(named(Listed::Holders, 3), [1], "the write, and not yet its read");
        assert_eq!(named(Listed::Holders, 4), [1, 2]);
        assert_eq!(named(Listed::Holders, 6), [3]);
        assert!(named(Listed::Holders, 9).is_empty());
    }
}
