//! `Brand`: the server that a [`TestServer`](super::TestServer) answers as.
//!
//! Each difference between the brands is a method here, with the name of what is done otherwise.
//! The rest of the server calls these methods, so this file lists all differences.

use std::str::FromStr;
use zk_wire::code::op;

/// The server that a [`TestServer`](super::TestServer) answers as.
/// [`TestServerBuilder::brand`](super::TestServerBuilder::brand) chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Brand {
    /// ZooKeeper 3.8, compared with 3.8.0. The default.
    #[default]
    ZooKeeper38,
    /// ZooKeeper 3.9, compared with 3.9.5:
    ///
    /// * A watch event has the zxid of the change. (An event that `setWatches` finds missed has -1,
    ///   as all have in 3.8.)
    /// * `exists` needs the permission READ.
    /// * Watches of several modes stand on one path and connection; `checkWatches` and
    ///   `removeWatches` know each mode, and see only the connection's own watches.
    /// * A recursive watch counts once in `zk_watch_count`.
    /// * `check` is known in transactions only.
    /// * In a transaction, `create2` is answered with a `Stat`, and `createContainer` makes a
    ///   container whatever its flags are. The whole transaction is refused for wrong flags, for a
    ///   time to live that is missing, and for a null ACL.
    /// * A write that cannot be read takes no zxid.
    /// * A client's `deleteContainer` is refused as unreadable.
    /// * IPv6 addresses are allowed in an ACL.
    ZooKeeper39,
    /// A server of another make that speaks ZooKeeper's protocol, such as ClickHouse Keeper. It was
    /// **compared with no running server**: it has the differences from ZooKeeper 3.8 that matter to
    /// a lock, and a real Keeper may have others:
    ///
    /// * `createContainer` and `createTTL` are not known: the server closes the connection, and
    ///   does not answer.
    /// * No session is resumed. A client that comes back with a session gets a new one, without a
    ///   word. The former session stays until it expires.
    /// * `cversion` counts the children that were created, and not those that were deleted.
    Keeper,
    /// As ZooKeeper 3.8, but the numbers of sequential nodes have eleven digits, as no known server
    /// gives them: to see what a client does that meets such numbers. They begin with 10000000000.
    /// They count creates in 32 bits: after 2147483647 of them they stop, and then begin anew below
    /// 10000000000.
    WideNumbers,
}

/// The first number of a sequential node, where numbers have more than ten digits.
const FIRST_WIDE: i64 = 10_000_000_000;

impl Brand {
    /// All brands.
    pub const ALL: [Brand; 4] =
        [Brand::ZooKeeper38, Brand::ZooKeeper39, Brand::Keeper, Brand::WideNumbers];

    /// The brand's name, as the program's flag `--brand` takes it: `3.8`, `3.9`, `keeper` or
    /// `wide-numbers`.
    pub fn name(self) -> &'static str {
        match self {
            Brand::ZooKeeper38 => "3.8",
            Brand::ZooKeeper39 => "3.9",
            Brand::Keeper => "keeper",
            Brand::WideNumbers => "wide-numbers",
        }
    }

    /// The line that names the server in the answer to `srvr`, up to the colon; and its version.
    pub(crate) fn version(self) -> (&'static str, &'static str) {
        match self {
            Brand::ZooKeeper38 | Brand::WideNumbers => ("Zookeeper version", "3.8.0"),
            Brand::ZooKeeper39 => ("Zookeeper version", "3.9.5"),
            Brand::Keeper => ("ClickHouse Keeper version", "v25.8"),
        }
    }

    fn is_39(self) -> bool {
        self == Brand::ZooKeeper39
    }

    // ---- ZooKeeper 3.9 ----

    pub(crate) fn events_have_a_zxid(self) -> bool {
        self.is_39()
    }

    pub(crate) fn exists_needs_read(self) -> bool {
        self.is_39()
    }

    pub(crate) fn watch_modes_coexist(self) -> bool {
        self.is_39()
    }

    /// Whether `check` stands in transactions only.
    pub(crate) fn refuses_a_single_check(self) -> bool {
        self.is_39()
    }

    /// Whether a create in a transaction is of the kind that its operation code says, and the
    /// transaction is refused if flags or ACL do not fit that.
    pub(crate) fn is_strict_in_multi(self) -> bool {
        self.is_39()
    }

    /// Whether a write that cannot be read is refused before it gets a zxid.
    pub(crate) fn reads_before_numbering(self) -> bool {
        self.is_39()
    }

    pub(crate) fn knows_ipv6(self) -> bool {
        self.is_39()
    }

    // ---- Keeper ----

    /// Whether the server closes the connection of a client that asks for this operation.
    pub(crate) fn hangs_up_at(self, op: i32) -> bool {
        self == Brand::Keeper && matches!(op, op::CREATE_CONTAINER | op::CREATE_TTL)
    }

    /// Whether a client that comes back gets its session back.
    pub(crate) fn resumes_sessions(self) -> bool {
        self != Brand::Keeper
    }

    /// The number of the next sequential node of a parent in which so many were created.
    pub(crate) fn number(self, created: i32) -> String {
        match self {
            Brand::WideNumbers => (FIRST_WIDE + i64::from(created)).to_string(),
            _ => format!("{created:010}"),
        }
    }

    /// What clients are told as `cversion`.
    pub(crate) fn cversion(self, created: i32, children: i32) -> i32 {
        match self {
            Brand::Keeper => created,
            // From the count of creates to that of changes: each child that is not here any more
            // was deleted once.
            _ => created.wrapping_mul(2).wrapping_sub(children),
        }
    }
}

impl FromStr for Brand {
    type Err = String;

    /// Reads a [`name`](Self::name).
    fn from_str(name: &str) -> Result<Brand, String> {
        Brand::ALL.into_iter().find(|brand| brand.name() == name).ok_or_else(|| {
            let names = Brand::ALL.map(Brand::name).join(", ");
            format!("there is no brand {name:?}: the brands are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brands_are_read_by_their_names() {
        for brand in Brand::ALL {
            assert_eq!(brand.name().parse(), Ok(brand));
        }
        assert!("3.7".parse::<Brand>().is_err_and(|why| why.contains("3.8, 3.9, keeper")));
    }
}
