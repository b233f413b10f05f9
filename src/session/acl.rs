//! Who may touch the nodes that a lock makes.

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

impl Acl {
    pub(super) fn entries(self) -> Vec<zookeeper::Acl> {
        match self {
            Acl::Open => zookeeper::Acl::open_unsafe().clone(),
            Acl::CreatorAll => zookeeper::Acl::creator_all().clone(),
        }
    }
}
