//! What the servers' own tree says of a grant: the node stands, and nobody is ahead of it.

use zk_test_server::ensemble::NodeInfo;

use super::names::{self, Node};
use super::{Broken, Hold};

/// A hold that was granted just now and is valid, by the newest tree that any server has.
///
/// Whoever is granted the lock has listed the queue behind its own create. All nodes with a lower
/// place were made before that, so all that stand now were in the listing: if one of another
/// session still stands, the queue's order is broken. (A node of the same session may be one that
/// this session has given up, and that is about to go. A persistent node of a `persist` that has
/// failed may stand too: it never was a hold, since nobody wrote to the node in whose place it
/// stands, and it is about to go. Those of a `persist` that was well are among the holds.)
pub(super) fn place(tree: &[NodeInfo], new: &Hold) -> Option<Broken> {
    let session = new.hold.session_id()?;
    let path = &new.hold.path;
    let Some(own) = tree.iter().find(|node| node.path == *path && node.owner == session) else {
        return Some((
            "held without a node",
            format!("{path} is held, and no node of its session stands"),
        ));
    };
    let ahead = tree.iter().find(|other| {
        Node::numbered(&other.path).is_some_and(|node| {
            let is_first =
                names::is_ahead((node.number, other.czxid), (new.node.number, own.czxid));
            node.lock == new.node.lock
                && other.owner != session
                && other.owner != 0
                && new.node.waits_for(node.mode)
                && is_first
        })
    })?;
    Some(("queue order", format!("{path} is held, and {} stands ahead of it", ahead.path)))
}
