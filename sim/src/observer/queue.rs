//! What the servers' own tree says of a grant: the node stands, and nobody is ahead of it.

use zk_sim_runtime::note;
use zk_test_server::ensemble::NodeInfo;

use super::names::{self, Mode, Node};
use super::{Broken, Hold};

/// A hold that was granted just now and is valid, by the newest tree that any server has.
/// `deleted` are the paths of all nodes that somebody else deletes.
///
/// The process that is granted the lock has listed the queue behind its own create. A node with a
/// lower place was made before that, so if it stands now, it was in the listing: if it is of
/// another session, the queue's order is broken. (A node of the same session may be one that this
/// session has given up, and that is about to go. A persistent node of a `persist` that has failed
/// may stand too: it never was a hold, since nobody wrote to the node in whose place it stands, and
/// it is about to go. Those of a `persist` that was well are among the holds. For the read of a
/// downgrade, see [`is_without_its_write`].)
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

/// A node that `own`, which is held, had to wait for.
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
                && other.owner != 0
                && place.waits_for(node.mode)
                && names::is_ahead((node.number, other.czxid), (place.number, own.czxid))
                && !is_without_its_write(&node, other, own, deleted.clone())
        })
    })
}

/// Whether `other` is the read of a downgrade that was made too late: an operator had deleted its
/// write.
///
/// The read of a downgrade is the only ephemeral node that does not get its number when it is made:
/// it bears the number of its write. So it may be made behind the listing of the process that is
/// granted the lock now. That happens in this order: an operator deletes the write; this process
/// lists the queue, and nobody is ahead of it; the writer, who has not heard of the deletion, makes
/// the read; this process is granted the lock. It could not know of the read, and the read is no
/// hold: before the writer takes it for one it asks for the write behind the create, hears that
/// there is none, and deletes the read.
///
/// Nothing else is let pass. A read that was made before our own node was in our listing. The read
/// of a write that nobody else deletes was made while that stood, so our listing showed the one or
/// the other. And the reader must not take such a read for a hold: the check "two holders" finds a
/// read that is held beside our hold, whichever of the two is granted last.
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

    /// Whom a writer of session 2, whose node is 10th, had to wait for.
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
