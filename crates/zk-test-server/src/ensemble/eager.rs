//! With `zookeeper.enableEagerACLCheck` a member itself refuses writes that its own tree does not
//! allow (`ZooKeeperServer.authWriteRequest`). It does not forward such a write to the leader, and
//! answers with zxid 0.

use crate::engine::acl::{self, Id, Schemes, perm};
use crate::engine::request::Write;
use crate::engine::tree::{self, Tree};
use zk_wire::code::{err, op};
use zk_wire::record::Reader;

/// The error code, if the member refuses the write.
pub(super) fn refusal(tree: &Tree, op: i32, body: &[u8], who: &[Id]) -> Option<i32> {
    if !matches!(op, op::CREATE | op::CREATE2 | op::DELETE | op::SET_DATA | op::SET_ACL) {
        return None;
    }
    // The leader decides about requests that cannot be read and about nodes that do not exist here.
    let (path, wanted, perms) = match Write::read(op, &mut Reader::new(body)).ok()? {
        Write::Create { path, acl, .. } => (parent(&path)?, Some(acl), perm::CREATE),
        Write::Delete { path, .. } => (parent(&path)?, None, perm::DELETE),
        Write::SetData { path, .. } => (path, None, perm::WRITE),
        Write::SetAcl { path, acl, .. } => (path, Some(acl), perm::ADMIN),
        Write::Check { .. } | Write::Timeless { .. } => return None,
    };
    if wanted
        .is_some_and(|wanted| acl::fix_up(wanted, who, Schemes::default()) == Err(err::INVALID_ACL))
    {
        return Some(err::INVALID_ACL);
    }
    acl::check(&tree.get(&path)?.acl, perms, who).err()
}

fn parent(path: &str) -> Option<String> {
    tree::split(path).map(|(parent, _)| parent.to_owned())
}
