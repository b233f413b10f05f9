//! Contenders of other client libraries, which come to the paths of the run's locks.
//!
//! Such a client makes its node, keeps its session for a while, and closes it. It neither waits for
//! others nor looks who holds the lock: what counts here is what its node does to the library's
//! clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::Rng;

use crate::operator::Request;
use crate::workload::{Place, Recipe};

/// A contender of another library, by the node that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Visitor {
    /// Curator's `InterProcessMutex`; in a semaphore's folder a waiter for its permits.
    CuratorMutex,
    /// A reader of Curator's `InterProcessReadWriteLock`.
    CuratorRead,
    /// A writer of it.
    CuratorWrite,
    /// Curator's `LeaderLatch`.
    CuratorLatch,
    /// A permit of Curator's `InterProcessSemaphoreV2`.
    CuratorPermit,
    /// kazoo's `Lock`, or its `WriteLock`, whose nodes have the same names.
    KazooLock,
    /// kazoo's `ReadLock`.
    KazooRead,
}

impl Visitor {
    /// Those that other clients of a lock of this recipe are.
    fn of(recipe: &Recipe) -> &'static [Visitor] {
        use Visitor::*;
        match recipe {
            Recipe::Mutex { .. } => &[CuratorMutex, KazooLock],
            Recipe::ReadWrite => &[CuratorRead, CuratorWrite, KazooLock, KazooRead],
            Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => &[CuratorMutex, CuratorPermit],
            Recipe::Exclusive => &[],
            Recipe::Election => &[CuratorLatch],
        }
    }

    /// One that comes to this lock: in one of three cases one of another kind, where its nodes stand
    /// in the same folder.
    pub fn random(rng: &mut Rng, recipe: &Recipe) -> Option<Visitor> {
        use Visitor::*;
        let own = Visitor::of(recipe);
        let has_one_folder = matches!(recipe, Recipe::Mutex { .. } | Recipe::ReadWrite)
            || matches!(recipe, Recipe::Election);
        let of_any = [CuratorMutex, CuratorRead, CuratorWrite, CuratorLatch, KazooLock, KazooRead];
        let all = if has_one_folder && rng.u32(..3) == 0 { &of_any[..] } else { own };
        (!all.is_empty()).then(|| all[rng.usize(..all.len())])
    }

    /// What the client asks for at this lock: the folders, as containers, and its node.
    pub fn requests(self, place: &Place, id: u128) -> Vec<Request> {
        let folder = match self {
            Visitor::CuratorPermit => format!("{}/leases", place.path),
            _ => place.queue(),
        };
        let mark = match self {
            Visitor::CuratorMutex => "-lock-",
            Visitor::CuratorRead => "-__READ__",
            Visitor::CuratorWrite => "-__WRIT__",
            Visitor::CuratorLatch => "-latch-",
            Visitor::CuratorPermit => "-lease-",
            Visitor::KazooLock => "__lock__",
            Visitor::KazooRead => "__rlock__",
        };
        let name = match self {
            Visitor::KazooLock | Visitor::KazooRead => format!("{id:032x}{mark}"),
            _ => format!("_c_{}{mark}", with_dashes(id)),
        };
        let above = folder.match_indices('/').skip(1).map(|(end, _)| folder[..end].to_owned());
        // The node of a semaphore has data, which this client leaves to the others: it comes where
        // that node stands.
        let is_semaphore = matches!(place.recipe, Recipe::Semaphore { .. });
        let folders = above
            .chain([folder.clone()])
            .filter(|path| !is_semaphore || path.len() > place.path.len());
        let contains = folders.map(|path| Request::Contain { path });
        contains.chain([Request::Contend { path: format!("{folder}/{name}") }]).collect()
    }
}

/// How long one of them stands.
pub fn stands(rng: &mut Rng, session_timeout: Duration) -> Duration {
    crate::between(rng, session_timeout / 20, session_timeout * 3)
}

/// An id as a UUID is written.
fn with_dashes(id: u128) -> String {
    let digits = format!("{id:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_are_named_as_those_of_the_other_libraries() {
        let place = |recipe| Place { path: "/locks/0".to_owned(), recipe, longest: None };
        let last = |visitor: Visitor, recipe| match visitor.requests(&place(recipe), 0xab).pop() {
            Some(Request::Contend { path }) => path,
            other => panic!("{other:?}"),
        };
        let uuid = "00000000-0000-0000-0000-0000000000ab";
        let hex = "000000000000000000000000000000ab";
        assert_eq!(
            last(Visitor::CuratorWrite, Recipe::ReadWrite),
            format!("/locks/0/_c_{uuid}-__WRIT__")
        );
        assert_eq!(
            last(Visitor::CuratorPermit, Recipe::SemaphoreMutex),
            format!("/locks/0/leases/_c_{uuid}-lease-")
        );
        assert_eq!(
            last(Visitor::CuratorMutex, Recipe::SemaphoreMutex),
            format!("/locks/0/locks/_c_{uuid}-lock-")
        );
        assert_eq!(last(Visitor::KazooRead, Recipe::ReadWrite), format!("/locks/0/{hex}__rlock__"));
    }
}
