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
    /// session needs credentials ([`Config::auth`](crate::Config::auth)) or a certificate.
    CreatorAll,
    /// These entries.
    ///
    /// The server refuses a list that is empty, or has an entry of an unknown scheme, or has an
    /// entry of the scheme `auth` if the session has no [`auth`](crate::Config::auth).
    ///
    /// ```
    /// use zk_session::{Acl, AclEntry, Permissions};
    ///
    /// let ours = AclEntry { permissions: Permissions::ALL, scheme: "auth".into(), id: "".into() };
    /// let operators = AclEntry {
    ///     permissions: Permissions::READ,
    ///     scheme: "ip".into(),
    ///     id: "10.0.0.0/8".into(),
    /// };
    /// let acl = Acl::Custom(vec![ours, operators]);
    /// ```
    Custom(Vec<AclEntry>),
}

/// One entry of an access control list: the clients with this identity may do this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// What the clients may do.
    pub permissions: Permissions,
    /// How a client proves its identity: `world`, `auth`, `digest`, `ip`, `x509`, or a scheme that a
    /// plug-in of the servers adds.
    pub scheme: String,
    /// The identity, in the form that the scheme has for it.
    pub id: String,
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

    /// How many bytes of a request the list takes.
    #[doc(hidden)]
    pub fn encoded_len(&self) -> usize {
        self.encode(Writer::bare()).frame().len() - Writer::bare().frame().len()
    }
}

impl AclEntry {
    /// Reads a list from an answer. Permissions that this crate does not know are left out.
    pub(super) fn decode_list(r: &mut Reader<'_>) -> Result<Vec<Self>, Malformed> {
        // Four bytes for the permissions, and four for the length of each string.
        let entries = (0..r.count(12)?).map(|_| {
            let permissions = Permissions(r.i32()?.to_be_bytes()[3] & Permissions::ALL.0);
            let (scheme, id) = (r.string()?.to_owned(), r.string()?.to_owned());
            Ok(AclEntry { permissions, scheme, id })
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let acl = Acl::Custom(vec![AclEntry {
                permissions,
                scheme: "ip".into(),
                id: "10.0.0.1".into(),
            }]);
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
        let entry = |permissions, scheme: &str, id: &str| AclEntry {
            permissions,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        };
        let some = Permissions::CREATE | Permissions::READ;
        let two = vec![entry(some, "ip", "10.0.0.1"), entry(some, "digest", "a:b")];
        for (acl, wanted) in [
            (Acl::Open, vec![entry(Permissions::ALL, "world", "anyone")]),
            (Acl::Custom(two.clone()), two),
            (Acl::CreatorAll, vec![entry(Permissions::ALL, "auth", "")]),
            (Acl::Custom(Vec::new()), Vec::new()),
        ] {
            let bytes = acl.encode(Writer::bare()).body();
            assert_eq!(AclEntry::decode_list(&mut Reader::new(&bytes)), Ok(wanted));
            assert!(AclEntry::decode_list(&mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
        }
        // A later server may know more permissions.
        let bytes = Writer::bare().i32(1).i32(-1).buffer(b"world").buffer(b"anyone").body();
        let all = vec![entry(Permissions::ALL, "world", "anyone")];
        assert_eq!(AclEntry::decode_list(&mut Reader::new(&bytes)), Ok(all));
        let many = Writer::bare().i32(i32::MAX).body();
        assert!(AclEntry::decode_list(&mut Reader::new(&many)).is_err());
    }

    #[test]
    fn permissions_are_shown_by_their_names() {
        let some = Permissions::CREATE | Permissions::READ;
        assert_eq!(format!("{some:?}"), "READ | CREATE");
        let all = format!("{:?}", Permissions::ALL);
        assert_eq!(all, "READ | WRITE | CREATE | DELETE | ADMIN");
    }
}
