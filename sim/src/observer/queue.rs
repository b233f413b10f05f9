//! Checks a grant against the servers' own tree: the node exists, and no contender is ahead of it.

use zk_sim_runtime::note;
use zk_test_server::ensemble::NodeInfo;

use super::names::{self, Mode, Node};
use super::{Broken, Hold};

/// Checks a hold that was granted just now and is valid, by the newest tree that any server has.
/// `deleted` has the paths of all nodes that a third party deletes, and of those that their own
/// clients delete while their guards stand, since they are held for too long.
///
/// The process that is granted the lock has listed the queue after its own create. A node with a
/// lower place was made before this listing. If it exists now, it was in the listing, and if it
/// belongs to another session, the queue's order is broken. There are two exceptions. A node of the
/// same session may be one that this session has given up and is about to delete. For the read of a
/// downgrade, see [`is_without_its_write`].
pub(super) fn place<'a>(
    tree: &[NodeInfo],
    new: &Hold,
    deleted: impl Iterator<Item = &'a String> + Clone,
) -> Option<Broken> {
    let session = new.hold.session_id()?;
    let path = &new.hold.path;
    let Some(own) = tree.iter().find(|node| node.path == *path && node.owner == session) else {
        return Some((
            "held without a node",
            format!("{path} is held, and no node of its session stands"),
        ));
    };
    let other = ahead(tree, own, deleted)?;
    Some(("queue order", format!("{path} is held, and {} stands ahead of it", other.path)))
}

/// Whether nodes of other sessions stand in the queue of this hold, so that one of them may be ahead
/// of it.
pub(super) fn has_others(tree: &[NodeInfo], new: &Hold) -> bool {
    let session = new.hold.session_id();
    tree.iter().any(|other| {
        Some(other.owner) != session
            && Node::numbered(&other.path)
                .is_some_and(|node| node.lock == new.node.lock && new.node.waits_for(node.mode))
    })
}

/// A node for which `own`, which is held, had to wait.
fn ahead<'a, 'b>(
    tree: &'a [NodeInfo],
    own: &NodeInfo,
    deleted: impl Iterator<Item = &'b String> + Clone,
) -> Option<&'a NodeInfo> {
    let place = Node::numbered(&own.path)?;
    tree.iter().find(|other| {
        Node::numbered(&other.path).is_some_and(|node| {
            node.lock == place.lock
                && other.owner != own.owner
                && place.waits_for(node.mode)
                && names::is_ahead((node.number, other.czxid), (place.number, own.czxid))
                && !is_without_its_write(&node, other, own, deleted.clone())
        })
    })
}

/// Whether `other` is the read of a downgrade that came too late: an operator, or the end of its
/// `max_hold`, had already deleted its write.
///
/// The read of a downgrade is the only ephemeral node that does not get a number of its own: it has
/// the number of its write. So it may be made after the listing of the process that is granted the
/// lock now. The order of events: an operator deletes the write; this process lists the queue and
/// finds no contender ahead; the writer, which is not yet notified of the deletion, makes the read;
/// this process is granted the lock. It could not know of the read, and the read is no hold: the
/// writer first reads the write after its create, finds that it is deleted, and deletes the read.
///
/// No other node is let pass. A read that was made before our own node was in our listing. The read
/// of any other write was made while the write existed, so our listing showed one of the two. And
/// the writer must not use such a read as a hold: the check "two holders" finds a read that is held
/// at the same time as our hold, whichever of the two is granted last.
fn is_without_its_write<'a>(
    node: &Node,
    other: &NodeInfo,
    own: &NodeInfo,
    mut deleted: impl Iterator<Item = &'a String>,
) -> bool {
    let write = Node { mode: Mode::Exclusive, ..node.clone() };
    let is_late = node.mode == Mode::Shared
        && other.czxid > own.czxid
        && deleted.any(|path| Node::of(path) == write);
    if is_late {
        note(&format!("{}: made behind the deletion of its write", other.path));
    }
    is_late
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str = "/l/a-__WRIT__0000000315";
    const READ: &str = "/l/b-__READ__0000000315";
    const OWN: &str = "/l/c-__WRIT__0000000317";

    fn node(path: &str, owner: i64, czxid: i64) -> NodeInfo {
        NodeInfo { path: path.to_owned(), owner, czxid, data: Vec::new() }
    }

    /// The node that a writer of session 2, whose node has number 10, had to wait for.
    fn found(others: &[NodeInfo], deleted: &[&str]) -> Option<String> {
        let own = node(OWN, 2, 10);
        let tree: Vec<_> = others.iter().cloned().chain([own.clone()]).collect();
        let deleted: Vec<String> = deleted.iter().map(|path| (*path).to_owned()).collect();
        ahead(&tree, &own, deleted.iter()).map(|other| other.path.clone())
    }

    #[test]
    fn a_node_of_another_session_that_excludes_ours_may_not_stand_ahead_of_it() {
        assert_eq!(found(&[], &[]), None);
        assert_eq!(found(&[node(WRITE, 1, 8)], &[]).as_deref(), Some(WRITE));
        assert_eq!(found(&[node(READ, 1, 8)], &[]).as_deref(), Some(READ));
        assert_eq!(found(&[node(WRITE, 2, 8)], &[]), None);
        assert_eq!(found(&[node("/l/a-__WRIT__0000000318", 1, 11)], &[]), None);
        assert_eq!(found(&[node("/other/a-__WRIT__0000000315", 1, 8)], &[]), None);
    }

    #[test]
    fn a_read_that_was_made_after_an_operator_deleted_its_write_may() {
        assert_eq!(found(&[node(READ, 1, 12)], &[WRITE]), None);
    }

    #[test]
    fn no_other_read_of_a_downgrade_may() {
        let late = node(READ, 1, 12);
        for deleted in [
            &[][..],
            &[OWN],
            &[READ],
            &["/l/a-__WRIT__0000000314"],
            &["/l/a-__READ__0000000315"],
            &["/other/a-__WRIT__0000000315"],
        ] {
            assert_eq!(found(std::slice::from_ref(&late), deleted).as_deref(), Some(READ));
        }
        assert_eq!(found(&[node(READ, 1, 9)], &[WRITE]).as_deref(), Some(READ), "it was listed");
        let both = [late, node(WRITE, 1, 8)];
        assert_eq!(found(&both, &[WRITE]).as_deref(), Some(WRITE), "the delete was not done");
    }
}
