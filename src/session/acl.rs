//! Who may touch the nodes that a lock makes.

use crate::wire::record::Writer;

/// The access control list of a lock's nodes and of the parents made for it.
///
/// See ZooKeeper's programmer's guide, "ZooKeeper access control using ACLs". Parents that exist
/// keep the ACL they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody may do everything, as Curator and kazoo have it (`OPEN_ACL_UNSAFE`).
    #[default]
    Open,
    /// Only the identities that this session authenticated with may do anything
    /// (`CREATOR_ALL_ACL`); the session needs
    /// [`SessionBuilder::auth`](crate::SessionBuilder::auth).
    CreatorAll,
}

/// All that ZooKeeper knows to permit: read, write, create, delete, administer.
const ALL: i32 = 31;

impl Acl {
    /// Appends the list to a request.
    pub(super) fn encode(&self, w: Writer) -> Writer {
        let (scheme, id) = match self {
            Acl::Open => ("world", "anyone"),
            Acl::CreatorAll => ("auth", ""),
        };
        w.i32(1).i32(ALL).buffer(scheme.as_bytes()).buffer(id.as_bytes())
    }
}
