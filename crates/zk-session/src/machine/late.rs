//! The late creates. The answer to such a create was lost, a sweep has found no node of it, and a
//! server may still do it.
//!
//! `removal` says how such a create can be done late, and that the next write of the session is
//! then refused, so that the session gets a new connection. While there are such creates, `timing`
//! sends a write every T/4, and `background` looks for their nodes on each new connection and
//! removes what it finds. When the time of a create is over, `background` looks once more, behind a
//! write of its own, and only then is the create forgotten.

use super::*;
use zk_wire::path;

#[derive(Default)]
pub(super) struct LateCreates {
    all: Vec<LateCreate>,
}

struct LateCreate {
    removal: Removal,
    /// When the create cannot be done any more.
    until: BootTime,
}

impl LateCreates {
    pub(super) fn add(&mut self, removal: Removal, until: BootTime) {
        self.all.push(LateCreate { removal, until });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn ids(&self) -> HashSet<&str> {
        self.all.iter().map(|late| late.removal.id.as_str()).collect()
    }

    /// The directories of their nodes, each once.
    pub(super) fn dirs(&self) -> Vec<String> {
        self.dirs_of(|_| true)
    }

    /// The directories of those that cannot be done any more at `now`, each once.
    pub(super) fn past_dirs(&self, now: BootTime) -> Vec<String> {
        self.dirs_of(|late| late.until <= now)
    }

    fn dirs_of(&self, is_meant: impl Fn(&&LateCreate) -> bool) -> Vec<String> {
        let meant = self.all.iter().filter(is_meant);
        let dirs = meant.map(|late| path::parent(&late.removal.path));
        dirs.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
    }

    /// Takes the removals of the creates in `dir` that may have made one of these nodes.
    pub(super) fn take_made(&mut self, dir: &str, names: &[&str]) -> Vec<Removal> {
        self.take(|late| {
            path::parent(&late.removal.path) == dir && late.removal.may_have_made(names)
        })
    }

    /// Takes the removals of all creates in `dir`.
    pub(super) fn take_all(&mut self, dir: &str) -> Vec<Removal> {
        self.take(|late| path::parent(&late.removal.path) == dir)
    }

    /// Takes the ids of those in `dir` that could not be done any more at `since`.
    pub(super) fn take_past(&mut self, dir: &str, since: BootTime) -> Vec<String> {
        let past = self.take(|late| late.until <= since && path::parent(&late.removal.path) == dir);
        past.into_iter().map(|removal| removal.id).collect()
    }

    fn take(&mut self, is_meant: impl Fn(&LateCreate) -> bool) -> Vec<Removal> {
        let (meant, others) = std::mem::take(&mut self.all).into_iter().partition(is_meant);
        self.all = others;
        let meant: Vec<LateCreate> = meant;
        meant.into_iter().map(|late| late.removal).collect()
    }

    #[cfg(any(feature = "test", zk_sim))]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
