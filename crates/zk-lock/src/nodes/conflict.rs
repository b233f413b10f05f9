//! Which clients at a path would not exclude a lock of ours.
//!
//! Locks of different kinds do not wait for each other, and neither do clients that do not know
//! each other's names. `run` and `elect` ask before they queue, and see the clients of that moment.
//! A client that comes later is not seen. (If it is zk-mutex, and the two are mutexes, read/write
//! locks or elections, the library refuses the later one.)

use zk_mutex::{Layout, ZkSession};

use super::names::{self, Client, Kind, Name};
use super::queue::{LockKind, Queue, Standing};
use crate::exit::Failure;
use crate::zk;

/// A client that is in the way.
pub struct Conflict {
    /// What stands there.
    pub what: String,
    /// What the user can do instead.
    pub advice: String,
    /// The two may exclude each other after all: that depends on an option of the other client,
    /// which its nodes do not show.
    pub may_be_well: bool,
}

/// The client at this path that would not exclude a lock of this kind, with names of this layout.
pub fn find(
    session: &ZkSession,
    path: &str,
    kind: LockKind,
    layout: Layout,
) -> Result<Option<Conflict>, Failure> {
    zk::catch_up(session)?;
    let Some(children) = zk::children(session, path)? else { return Ok(None) };
    // Only the nodes that are in the way are read: a queue may be long.
    let is_in_the_way = |child: &&String| match names::parse(child) {
        Some(name) => !is_of(name, kind) || name.is_kazoos() != (layout == Layout::Kazoo),
        None => true,
    };
    let children: Vec<String> = children.iter().filter(is_in_the_way).cloned().collect();
    let Some(standing) = Standing::of(session, path, &children)? else { return Ok(None) };
    let is_of_kind = |queue: &Queue| {
        let parts = queue.contenders.iter().map(|one| names::parse(&one.name));
        let is_either = kind == LockKind::ReadWrite && queue.kind == LockKind::Mutex;
        queue.kind == kind || is_either && parts.flatten().all(|name| is_of(name, kind))
    };
    let other = standing.queues.iter().find(|queue| !is_of_kind(queue));
    if let Some(queue) = other {
        let what = match queue.contenders.first() {
            Some(one) => {
                format!(
                    "{path} is used as {}, by {}: {}",
                    queue.kind.with_article(),
                    one.name,
                    one.describe()
                )
            }
            None => format!("{path} has the number of a semaphore, which nobody uses now"),
        };
        let advice = match queue.kind {
            LockKind::Mutex if kind == LockKind::Election => "use `zk-lock run`",
            LockKind::Mutex if kind == LockKind::ReadWrite => "leave --read and --write out",
            LockKind::Mutex => "leave --permits out",
            LockKind::ReadWrite => "take it with --read or --write",
            LockKind::Semaphore if queue.contenders.is_empty() => {
                "take it with --permits, or remove it with `zk-lock forget`"
            }
            LockKind::Semaphore => "take it with --permits",
            LockKind::Election => "use `zk-lock elect`",
            LockKind::Exclusive => "only a program with zk-mutex can share it",
        };
        let advice = format!("{advice}; or give this lock a path of its own");
        return Ok(Some(Conflict { what, advice, may_be_well: false }));
    }
    let stranger = standing.contenders().find(|one| match layout {
        Layout::Kazoo => {
            let is_kazoos = names::parse(&one.name).is_some_and(Name::is_kazoos);
            !is_kazoos && !matches!(one.client, Client::ZkMutex | Client::GoZookeeper)
        }
        _ => one.client == Client::Kazoo || names::parse(&one.name).is_some_and(Name::is_kazoos),
    });
    Ok(stranger.map(|one| {
        let what = format!(
            "{path} is used by {}, which does not wait for our names: {} ({})",
            one.client.name(),
            one.name,
            one.describe()
        );
        let advice = match (kind, layout) {
            (LockKind::Semaphore, _) => {
                "kazoo's semaphores and ours do not exclude each other: give this one a path of \
                 its own"
            }
            (_, Layout::Kazoo) => "leave --layout out, so that it waits for this lock",
            _ => {
                "use --layout kazoo, which kazoo waits for; or give kazoo's lock \
                 extra_lock_patterns=[\"-lock-\"], and run with --force"
            }
        };
        Conflict { what, advice: advice.to_owned(), may_be_well: kind != LockKind::Semaphore }
    }))
}

/// Whether a lock of this kind may have made this node. kazoo's `Lock` and `WriteLock` have one name.
fn is_of(name: Name, kind: LockKind) -> bool {
    let own = match name.kind {
        Kind::Mutex => LockKind::Mutex,
        Kind::Read | Kind::Write => LockKind::ReadWrite,
        Kind::Candidate => LockKind::Election,
        Kind::Permit => LockKind::Semaphore,
        Kind::Exclusive => LockKind::Exclusive,
    };
    let is_either = own == LockKind::Mutex && name.is_kazoos();
    own == kind || is_either && kind == LockKind::ReadWrite
}
