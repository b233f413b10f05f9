//! One znode (`DataNode`) and the meaning of its owner field (`EphemeralType`).

use super::acl::Acl;
use crate::Brand;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use zk_wire::record::Writer;

/// The owner of a container (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`).
pub(crate) const CONTAINER_OWNER: i64 = i64::MIN;
const EXTENDED: i64 = 0xff << 56;
/// The longest time to live in milliseconds. It has five bytes, which is 34 years.
pub(crate) const MAX_TTL: i64 = 0xff_ffff_ffff;

/// Names in no order that a client could rely on, as at the real server. The order is the same in
/// each run.
pub(crate) type Names = HashSet<Box<str>, BuildHasherDefault<DefaultHasher>>;

/// The meaning of a node's `ephemeralOwner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    Ephemeral,
    Container,
    Ttl { ms: i64 },
}

impl Kind {
    pub(crate) fn of(owner: i64) -> Kind {
        match owner {
            0 => Kind::Persistent,
            CONTAINER_OWNER => Kind::Container,
            owner if owner & EXTENDED == EXTENDED => Kind::Ttl { ms: owner & MAX_TTL },
            _ => Kind::Ephemeral,
        }
    }
}

/// The owner of a node with this time to live.
pub(crate) fn ttl_owner(ms: i64) -> i64 {
    EXTENDED | ms
}

/// The fields of a node beside its data (`StatPersisted`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// Counts creates only, and numbers sequential children; clients are told [`Brand::cversion`].
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: i64,
    pub(crate) pzxid: i64,
}

impl Stat {
    pub(crate) fn new(zxid: i64, time: i64, owner: i64) -> Stat {
        Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            owner,
            ..Stat::default()
        }
    }
}

/// A `Stat` as clients see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientStat {
    stat: Stat,
    data_length: i32,
    children: i32,
}

impl ClientStat {
    pub(crate) fn write(&self, w: Writer) -> Writer {
        let Stat { czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, pzxid } =
            self.stat;
        let owner = if Kind::of(owner) == Kind::Ephemeral { owner } else { 0 };
        let w =
            w.i64(czxid).i64(mzxid).i64(ctime).i64(mtime).i32(version).i32(cversion).i32(aversion);
        w.i64(owner).i32(self.data_length).i32(self.children).i64(pzxid)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// None is jute's null. A client sees that it is not the same as empty data.
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) stat: Stat,
    pub(crate) children: Names,
}

impl Node {
    /// The time in milliseconds since 1970 after which the node may be deleted, if nothing changes
    /// it.
    pub(crate) fn reapable_from(&self) -> Option<i64> {
        if !self.children.is_empty() {
            return None;
        }
        match Kind::of(self.stat.owner) {
            // A container that was never used stays.
            Kind::Container => (self.stat.cversion > 0).then_some(i64::MIN),
            Kind::Ttl { ms } => {
                (ms != 0).then(|| self.stat.mtime.saturating_add(ms).saturating_add(1))
            }
            Kind::Persistent | Kind::Ephemeral => None,
        }
    }

    /// The session that owns the node; 0 for none.
    pub(crate) fn session(&self) -> i64 {
        if Kind::of(self.stat.owner) == Kind::Ephemeral { self.stat.owner } else { 0 }
    }

    pub(crate) fn client_stat(&self, brand: Brand) -> ClientStat {
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let children = count(self.children.len());
        ClientStat {
            stat: Stat { cversion: brand.cversion(self.stat.cversion, children), ..self.stat },
            data_length: count(self.data.as_ref().map_or(0, |data| data.len())),
            children,
        }
    }
}
