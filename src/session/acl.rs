//! The access control list of the nodes that a lock creates.

#[cfg(feature = "client")]
use zookeeper::Permission;

use zk_wire::record::Writer;

/// The access control list of a lock's nodes, and of the parents that are created for it.
///
/// See ZooKeeper's programmer's guide, "ZooKeeper access control using ACLs". Parents that exist
/// already keep their ACL.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody may do everything, as Curator and kazoo have it (`OPEN_ACL_UNSAFE`).
    #[default]
    Open,
    /// Only clients with the credentials of this session may do anything (`CREATOR_ALL_ACL`). The
    /// session needs [`SessionBuilder::auth`](crate::SessionBuilder::auth): without it the lock is
    /// refused when it is built.
    CreatorAll,
    /// These entries, as types of the client crate.
    ///
    /// All sessions that use a lock need `READ`, `CREATE` and `DELETE` on its znodes. If a session
    /// may create and not delete, its lock ends only with the session. A client needs `WRITE` to
    /// ask a holder to release its lock, and a semaphore needs it to set its number of permits.
    /// `ADMIN` is never needed.
    ///
    /// Give the sessions of a [`ZkExclusiveLock`](crate::ZkExclusiveLock) `WRITE`, too: all holders
    /// use one node name, and a release writes to the node before it deletes it, so that the delete
    /// cannot hit the node of the next holder. Without `WRITE` it can, if a server forwards the
    /// delete late, after the session has moved to another server and sent it again: then two
    /// guards are valid until the event of the deletion arrives.
    ///
    /// The server refuses a list that is empty, or has an entry of an unknown scheme, or has an
    /// entry of the scheme `auth` if the session has no [`auth`](crate::SessionBuilder::auth). Then
    /// the call on the lock ends with [`Error::Server`](crate::Error::Server) and creates nothing.
    /// A list of more than 3 KiB is refused when the lock is built.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::zookeeper::{self, Permission};
    /// use zk_mutex::{Acl, ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::builder("zk1:2181").auth("digest", "orders:secret").connect()?;
    /// let acl = Acl::Custom(vec![
    ///     zookeeper::Acl::new(Permission::ALL, "auth", ""),
    ///     zookeeper::Acl::new(Permission::READ, "ip", "10.0.0.0/8"), // operators may read
    /// ]);
    /// let mutex = ZkMutex::builder(&session, "/locks/orders").acl(acl).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "client")]
    Custom(Vec<zookeeper::Acl>),
}

// The entries' own type has no `Eq`; its fields are numbers and strings.
impl Eq for Acl {}

/// All permissions of ZooKeeper: read, write, create, delete, administer.
const ALL: i32 = 31;

impl Acl {
    /// Appends the list to a request.
    pub(super) fn encode(&self, w: Writer) -> Writer {
        let entry = |w: Writer, permissions, scheme: &str, id: &str| {
            w.i32(permissions).buffer(scheme.as_bytes()).buffer(id.as_bytes())
        };
        match self {
            Acl::Open => entry(w.i32(1), ALL, "world", "anyone"),
            Acl::CreatorAll => entry(w.i32(1), ALL, "auth", ""),
            #[cfg(feature = "client")]
            Acl::Custom(entries) => {
                let w = w.i32(i32::try_from(entries.len()).unwrap_or(i32::MAX));
                entries.iter().fold(w, |w, e| entry(w, bits(e.perms), &e.scheme, &e.id))
            }
        }
    }

    /// How many bytes of a request the list takes.
    pub(crate) fn len(&self) -> usize {
        self.encode(Writer::bare()).frame().len() - Writer::bare().frame().len()
    }
}

/// The permissions as the number that ZooKeeper has for them. The client crate has that number too,
/// but does not make it public.
#[cfg(feature = "client")]
fn bits(permissions: Permission) -> i32 {
    let known = [
        Permission::READ,
        Permission::WRITE,
        Permission::CREATE,
        Permission::DELETE,
        Permission::ADMIN,
    ];
    known.iter().enumerate().map(|(i, one)| i32::from(permissions.can(*one)) << i).sum()
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use super::*;
    use zk_wire::record::Reader;

    #[test]
    fn custom_entries_go_out_as_they_are() {
        for permissions in 0..=ALL {
            let all = [Permission::READ, Permission::WRITE, Permission::CREATE, Permission::DELETE];
            let all = all.into_iter().chain([Permission::ADMIN]).enumerate();
            let chosen = all.filter(|(i, _)| permissions >> i & 1 == 1).map(|(_, one)| one);
            let perms = chosen.fold(Permission::NONE, |sum, one| sum | one);
            let acl = Acl::Custom(vec![zookeeper::Acl::new(perms, "ip", "10.0.0.1")]);
            let frame = acl.encode(Writer::bare()).frame();
            let mut r = Reader::new(&frame[4..]);
            let entry = (r.i32(), r.i32(), r.string(), r.string());
            assert_eq!(entry, (Ok(1), Ok(permissions), Ok("ip"), Ok("10.0.0.1")));
            assert_eq!(acl.len(), frame.len() - 4);
        }
        assert_eq!(Acl::Custom(Vec::new()).len(), 4);
    }
}
