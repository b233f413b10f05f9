//! The access control list of a node.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use zk_wire::Malformed;
use zk_wire::record::{Reader, Writer};

/// The access control list of a node that is created, and of the parents that are made for it.
///
/// See ZooKeeper's programmer's guide, "ZooKeeper access control using ACLs". Parents that exist
/// already keep their ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody may do everything, as Curator and kazoo have it (`OPEN_ACL_UNSAFE`).
    #[default]
    Open,
    /// Only clients with the credentials of this session may do anything (`CREATOR_ALL_ACL`). The
    /// session needs credentials ([`Builder::auth`](crate::Builder::auth)) or a certificate.
    CreatorAll,
    /// These entries.
    ///
    /// The server refuses a list that is empty, or has an entry of an unknown scheme, or has an
    /// entry of the scheme `auth` if the session has no [`auth`](crate::Builder::auth).
    ///
    /// ```
    /// use zk_session::{Acl, AclEntry, Permissions};
    ///
    /// let acl = Acl::Custom(vec![
    ///     AclEntry::new(Permissions::ALL, "auth", ""),
    ///     AclEntry::new(Permissions::READ, "ip", "10.0.0.0/8"), // operators may read
    /// ]);
    /// ```
    Custom(Vec<AclEntry>),
}

/// One entry of an access control list: the clients with this identity may do this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AclEntry {
    /// What the clients may do.
    pub permissions: Permissions,
    /// How a client proves its identity: `world`, `auth`, `digest`, `ip`, `x509`, or a scheme that a
    /// plug-in of the servers adds.
    pub scheme: String,
    /// The identity, in the form that the scheme has for it.
    pub id: String,
}

impl AclEntry {
    /// The clients with this identity may do this. See [`Acl::Custom`] for an example.
    pub fn new(permissions: Permissions, scheme: impl Into<String>, id: impl Into<String>) -> Self {
        AclEntry { permissions, scheme: scheme.into(), id: id.into() }
    }
}

/// What an [`AclEntry`] allows. `|` puts permissions together:
/// `Permissions::READ | Permissions::CREATE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// To read the node's data, and the list of its children.
    pub const READ: Permissions = Permissions(1);
    /// To set the node's data.
    pub const WRITE: Permissions = Permissions(2);
    /// To create children of the node.
    pub const CREATE: Permissions = Permissions(4);
    /// To delete children of the node.
    pub const DELETE: Permissions = Permissions(8);
    /// To set the node's access control list.
    pub const ADMIN: Permissions = Permissions(16);
    /// All of these.
    pub const ALL: Permissions = Permissions(31);

    /// Whether all of `other` are among these.
    ///
    /// ```
    /// use zk_session::Permissions;
    ///
    /// let some = Permissions::READ | Permissions::WRITE;
    /// assert!(some.contains(Permissions::READ) && !some.contains(Permissions::ALL));
    /// ```
    pub fn contains(self, other: Permissions) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Permissions {
    type Output = Permissions;

    fn bitor(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }
}

impl BitOrAssign for Permissions {
    fn bitor_assign(&mut self, other: Permissions) {
        *self = *self | other;
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["READ", "WRITE", "CREATE", "DELETE", "ADMIN"];
        let own = names.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        f.write_str(&own.map(|(_, name)| *name).collect::<Vec<_>>().join(" | "))
    }
}

impl Acl {
    /// Appends the list to a request.
    pub(super) fn encode(&self, w: Writer) -> Writer {
        let entry = |w: Writer, permissions: Permissions, scheme: &str, id: &str| {
            w.i32(permissions.0.into()).buffer(scheme.as_bytes()).buffer(id.as_bytes())
        };
        match self {
            Acl::Open => entry(w.i32(1), Permissions::ALL, "world", "anyone"),
            Acl::CreatorAll => entry(w.i32(1), Permissions::ALL, "auth", ""),
            Acl::Custom(entries) => {
                let w = w.i32(i32::try_from(entries.len()).unwrap_or(i32::MAX));
                entries.iter().fold(w, |w, e| entry(w, e.permissions, &e.scheme, &e.id))
            }
        }
    }

    /// Reads the list from an answer. Permissions that this crate does not know are left out.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        // Four bytes for the permissions, and four for the length of each string.
        let entries = (0..r.count(12)?).map(|_| {
            let permissions = Permissions(r.i32()?.to_be_bytes()[3] & Permissions::ALL.0);
            Ok(AclEntry::new(permissions, r.string()?, r.string()?))
        });
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        Ok(if entries == Acl::Open.entries() { Acl::Open } else { Acl::Custom(entries) })
    }

    /// The entries of the list, as the server gets them.
    ///
    /// ```
    /// use zk_session::{Acl, Permissions};
    ///
    /// let entries = Acl::Open.entries();
    /// assert_eq!(entries[0].permissions, Permissions::ALL);
    /// assert_eq!((entries[0].scheme.as_str(), entries[0].id.as_str()), ("world", "anyone"));
    /// ```
    pub fn entries(&self) -> Vec<AclEntry> {
        match self {
            Acl::Open => vec![AclEntry::new(Permissions::ALL, "world", "anyone")],
            Acl::CreatorAll => vec![AclEntry::new(Permissions::ALL, "auth", "")],
            Acl::Custom(entries) => entries.clone(),
        }
    }

    /// How many bytes of a request the list takes.
    #[doc(hidden)]
    pub fn encoded_len(&self) -> usize {
        self.encode(Writer::bare()).frame().len() - Writer::bare().frame().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zk_wire::record::Reader;

    #[test]
    fn custom_entries_go_out_as_they_are() {
        let all = [
            Permissions::READ,
            Permissions::WRITE,
            Permissions::CREATE,
            Permissions::DELETE,
            Permissions::ADMIN,
        ];
        for number in 1..=31 {
            let mut chosen = (0..5).filter(|bit| number >> bit & 1 == 1).map(|bit| all[bit]);
            let mut permissions = chosen.next().unwrap();
            chosen.for_each(|one| permissions |= one);
            assert_eq!(permissions == Permissions::ALL, number == 31);
            let acl = Acl::Custom(vec![AclEntry::new(permissions, "ip", "10.0.0.1")]);
            let frame = acl.encode(Writer::bare()).frame();
            let mut r = Reader::new(&frame[4..]);
            let entry = (r.i32(), r.i32(), r.string(), r.string());
            assert_eq!(entry, (Ok(1), Ok(number), Ok("ip"), Ok("10.0.0.1")));
            assert_eq!(acl.encoded_len(), frame.len() - 4);
        }
        assert_eq!(Acl::Custom(Vec::new()).encoded_len(), 4);
    }

    #[test]
    fn a_list_of_an_answer_is_read_as_it_was_written() {
        let some = Permissions::CREATE | Permissions::READ;
        let two = vec![AclEntry::new(some, "ip", "10.0.0.1"), AclEntry::new(some, "digest", "a:b")];
        let open = Acl::Custom(Acl::Open.entries());
        for (acl, wanted) in [
            (Acl::Open, Acl::Open),
            (open, Acl::Open),
            (Acl::Custom(two.clone()), Acl::Custom(two)),
            (Acl::CreatorAll, Acl::Custom(Acl::CreatorAll.entries())),
            (Acl::Custom(Vec::new()), Acl::Custom(Vec::new())),
        ] {
            let bytes = acl.encode(Writer::bare()).body();
            assert_eq!(Acl::decode(&mut Reader::new(&bytes)), Ok(wanted));
            assert!(Acl::decode(&mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
        }
        // A later server may know more permissions.
        let bytes = Writer::bare().i32(1).i32(-1).buffer(b"world").buffer(b"anyone").body();
        assert_eq!(Acl::decode(&mut Reader::new(&bytes)), Ok(Acl::Open));
        let many = Writer::bare().i32(i32::MAX).body();
        assert!(Acl::decode(&mut Reader::new(&many)).is_err());
    }

    #[test]
    fn permissions_are_shown_by_their_names() {
        let some = Permissions::CREATE | Permissions::READ;
        assert_eq!(format!("{some:?}"), "READ | CREATE");
        let all = format!("{:?}", Permissions::ALL);
        assert_eq!(all, "READ | WRITE | CREATE | DELETE | ADMIN");
    }
}
