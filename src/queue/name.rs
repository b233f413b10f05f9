//! The names of contenders' nodes: how this library makes them, and which of a lock's children are
//! contenders.

use zk_session::world::new_uuid;

/// Which client's names the nodes of a lock have. This decides with which other clients the lock
/// can be shared.
///
/// A lock of either layout waits for the nodes of both layouts that are ahead of its own, by
/// ZooKeeper's sequence number. The layout decides which *other* clients wait for ours ("yes"):
///
/// | client | nodes it makes | waits for `Curator` | waits for `Kazoo` |
/// | --- | --- | --- | --- |
/// | this crate, either layout | as the layout says | yes | yes |
/// | Apache Curator's `InterProcessMutex` (Java) | `_c_<uuid>-lock-<n>` | yes | **no** |
/// | go-zookeeper's `zk.Lock` (Go) | `_c_<hex>-lock-<n>` | yes | yes |
/// | zookeeper-client (Rust), `LockPrefix::new_curator(dir, "lock-")` | `_c_<uuid>-lock-<n>` | yes | **no** |
/// | kazoo's `Lock` (Python) | `<hex>__lock__<n>` | only with `extra_lock_patterns=["-lock-"]` | yes |
///
/// So all clients of one lock should use one layout. If a lock finds nodes of both layouts, it logs
/// an error once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// The names of Apache Curator's recipes, which most other clients understand. The default.
    #[default]
    Curator,
    /// The names of Python's kazoo, for locks that are shared with kazoo clients without options.
    Kazoo,
}

/// What a contender wants. Only reads share the lock. Candidates for leadership stand in queues of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A candidate for leadership.
    Latch,
    /// A mutex; also kazoo's write lock, which bears the same name.
    Lock,
    Write,
    Read,
}

/// Which nodes count as contenders in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Locks of all kinds.
    Locks,
    /// The candidates of an election.
    Candidates,
}

impl Kind {
    /// What stands at a path where a contender of this kind is, for the error about it.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Kind::Latch => "a candidate of an election",
            Kind::Lock => "a contender of a mutex",
            Kind::Write | Kind::Read => "a contender of a read/write lock",
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Kind::Lock | Kind::Write | Kind::Read => Family::Locks,
            Kind::Latch => Family::Candidates,
        }
    }
}

/// A contender, as its node's name describes it. It borrows that name, because a listing can have
/// thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The node's whole name.
    pub(crate) full: &'a str,
    /// The UUID or the 32 hex digits by which the client finds its node again; "" if there are
    /// none.
    pub(crate) id: &'a str,
    pub(crate) kind: Kind,
    /// The number that ZooKeeper appended.
    pub(crate) sequence: i64,
    /// The layout whose clients put this name in the right place, whichever client made it.
    pub(crate) layout: Layout,
}

impl Name<'_> {
    /// Whether a lock that makes nodes of this kind may have made it. kazoo's `Lock` and `WriteLock`
    /// bear one name.
    pub(crate) fn may_be_of_a_lock_with(&self, kind: Kind) -> bool {
        match (self.kind, kind) {
            (Kind::Lock, Kind::Read | Kind::Write) => self.layout == Layout::Kazoo,
            (Kind::Read | Kind::Write, Kind::Read | Kind::Write) => true,
            (own, kind) => own == kind,
        }
    }
}

/// The marks between the id and the number. Curator: `InterProcessMutex.LOCK_NAME`,
/// `InterProcessReadWriteLock.READ_LOCK_NAME` and `WRITE_LOCK_NAME`, `LeaderLatch.LOCK_NAME`, after
/// a '-' if there is an id. kazoo: `_NODE_NAME` in `recipe/lock.py`.
const MARKS: [(&str, Layout, Kind); 6] = [
    ("lock-", Layout::Curator, Kind::Lock),
    ("__READ__", Layout::Curator, Kind::Read),
    ("__WRIT__", Layout::Curator, Kind::Write),
    ("latch-", Layout::Curator, Kind::Latch),
    ("__lock__", Layout::Kazoo, Kind::Lock),
    ("__rlock__", Layout::Kazoo, Kind::Read),
];

/// Which node of ours this is: the number of its session (`Generation::number`), and its czxid.
/// Within a session zxids only grow, so no two nodes that were created have the same. The read node
/// of a downgrade has the key of the write that it continues, and no turn (`local/lock.rs`).
pub(crate) type NodeKey = (u64, i64);

/// Curator's `ProtectedUtils.PROTECTED_PREFIX`; go-zookeeper uses it too.
const PROTECTED: &str = "_c_";

/// Parses a child's name. `None`: it is no contender's name, of either family; for example a
/// permit's, or unknown.
///
/// The id may be anything, because the clients named at [`Layout`] read only the mark. A contender
/// that is missed would hold the lock together with us; a contender that is counted wrongly only
/// costs a wait.
pub(crate) fn parse(child: &str) -> Option<Name<'_>> {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let digits = child.bytes().rev().take_while(is_digit).count();
    let (head, digits) = child.split_at(child.len() - digits);
    let (head, layout, kind, is_negative) = match split_mark(head) {
        Some((head, layout, kind)) => (head, layout, kind, false),
        None => {
            let (head, layout, kind) = split_mark(head.strip_suffix('-')?)?;
            (head, layout, kind, true)
        }
    };
    Some(Name { full: child, id: id(head), kind, sequence: sequence(digits, is_negative)?, layout })
}

/// Splits the mark off the end.
fn split_mark(name: &str) -> Option<(&str, Layout, Kind)> {
    // All marks end with one of these, and most names without a mark do not.
    if !name.ends_with(['-', '_']) {
        return None;
    }
    MARKS.iter().find_map(|&(mark, layout, kind)| {
        let head = name.strip_suffix(mark)?;
        match layout {
            Layout::Curator if head.is_empty() || head.ends_with('-') => {}
            Layout::Curator => return None,
            Layout::Kazoo => {}
        }
        Some((head, layout, kind))
    })
}

/// The number, if it is written exactly as ZooKeeper writes it: an `i32` by Java's "%010d"
/// (`PrepRequestProcessor.pRequest2TxnCreate`). That is ten characters with the sign, or eleven
/// from -1000000000 down. More digits are read too, for a server that counts on.
fn sequence(digits: &str, is_negative: bool) -> Option<i64> {
    let well_formed = match digits.len() {
        9 => is_negative,
        10 => !is_negative || !digits.starts_with('0'),
        11.. => !is_negative && !digits.starts_with('0'),
        _ => false,
    };
    if !well_formed {
        return None;
    }
    let size: i64 = digits.parse().ok()?;
    let number = if is_negative { -size } else { size };
    let is_written_so = number >= i32::MIN.into() && (size != 0 || !is_negative);
    is_written_so.then_some(number)
}

/// The id in the text before the mark.
fn id(head: &str) -> &str {
    let id = head.strip_suffix('-').unwrap_or(head);
    let id = id.strip_prefix(PROTECTED).unwrap_or(id);
    let bytes = id.as_bytes();
    let dashes = match bytes.len() {
        32 => 0,
        36 => [8, 13, 18, 23].iter().filter(|&&i| bytes[i] == b'-').count(),
        _ => return "",
    };
    // Counting all digits is three times as fast as a search for the first wrong character: it
    // needs no branches.
    let digits: usize = bytes.iter().map(|b| usize::from(b.is_ascii_hexdigit())).sum();
    let is_id = digits == 32 && digits + dashes == bytes.len();
    if is_id { id } else { "" }
}

/// The name to create; ZooKeeper appends the number.
pub(crate) fn prefix(layout: Layout, kind: Kind, id: &str) -> String {
    match (layout, kind) {
        (Layout::Curator, Kind::Lock) => format!("{PROTECTED}{id}-lock-"),
        (Layout::Curator, Kind::Read) => format!("{PROTECTED}{id}-__READ__"),
        (Layout::Curator, Kind::Write) => format!("{PROTECTED}{id}-__WRIT__"),
        // No other client has elections with names of kazoo's layout, so there is only this form.
        (_, Kind::Latch) => format!("{PROTECTED}{id}-latch-"),
        (Layout::Kazoo, Kind::Lock | Kind::Write) => format!("{id}__lock__"),
        (Layout::Kazoo, Kind::Read) => format!("{id}__rlock__"),
    }
}

/// The mark between the id and the number in the name of a permit's node. Curator:
/// `InterProcessSemaphoreV2.LEASE_BASE_NAME`.
const PERMIT: &str = "-lease-";

/// The name to create for a permit's node; ZooKeeper appends the number.
pub(crate) fn permit_prefix(id: &str) -> String {
    [PROTECTED, id, PERMIT].concat()
}

/// The id in the name of a permit's node; "" if there is none.
pub(crate) fn permit_id(child: &str) -> &str {
    child.split_once(PERMIT).map_or("", |(head, _)| id(head))
}

/// A fresh id, written as this layout's clients write theirs.
pub(crate) fn new_id(layout: Layout) -> String {
    let id = new_uuid();
    match layout {
        Layout::Curator => id.hyphenated().to_string(),
        Layout::Kazoo => id.simple().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
    const HEX: &str = "514e5a831836450cb1a56c741e990fd8";

    #[track_caller]
    fn assert_reads(child: &str, id: &str, kind: Kind, sequence: i64, layout: Layout) {
        assert_eq!(parse(child), Some(Name { full: child, id, kind, sequence, layout }));
    }

    #[test]
    fn the_names_that_each_client_makes_are_contenders() {
        use {Kind::*, Layout::*};
        assert_reads(&format!("_c_{UUID}-lock-0000000031"), UUID, Lock, 31, Curator);
        assert_reads(&format!("_c_{UUID}-__READ__0000000007"), UUID, Read, 7, Curator);
        assert_reads(&format!("_c_{UUID}-__WRIT__0000000008"), UUID, Write, 8, Curator);
        assert_reads(&format!("_c_{HEX}-lock-0000000031"), HEX, Lock, 31, Curator); // go-zookeeper
        assert_reads(&format!("_c_{UUID}-latch-0000000009"), UUID, Latch, 9, Curator);
        assert_reads(&format!("{HEX}__lock__0000000032"), HEX, Lock, 32, Kazoo);
        assert_reads(&format!("{HEX}__rlock__0000000033"), HEX, Read, 33, Kazoo);
    }

    #[test]
    fn the_name_of_a_permit_has_an_id_and_is_no_contender() {
        let child = format!("{}0000000012", permit_prefix(UUID));
        assert_eq!(child, format!("_c_{UUID}-lease-0000000012"));
        assert_eq!((permit_id(&child), parse(&child)), (UUID, None));
        for other in ["lease-0000000001", "_c_x-lease-0000000001", "é", ""] {
            assert_eq!((permit_id(other), parse(other)), ("", None), "{other}");
        }
    }

    #[test]
    fn names_without_a_known_id_are_contenders_too() {
        use {Kind::*, Layout::*};
        assert_reads("lock-0000000000", "", Lock, 0, Curator);
        assert_reads("__READ__0000000001", "", Read, 1, Curator);
        assert_reads("__WRIT__0000000001", "", Write, 1, Curator);
        assert_reads("guid-lock-0000000001", "", Lock, 1, Curator);
        assert_reads("_c_my-lock-0000000001", "", Lock, 1, Curator);
        assert_reads("mine__lock__0000000001", "", Lock, 1, Kazoo);
        // The recipe in ZooKeeper's documentation.
        assert_reads(&format!("{UUID}-lock-0000000001"), UUID, Lock, 1, Curator);
    }

    #[test]
    fn only_a_uuid_or_32_hex_digits_are_an_id() {
        let moved_dash = "5f1c6a2-e9d0b-4c3a-8e7f-0123456789ab";
        for wrong in
            [moved_dash, &"-".repeat(36), &"g".repeat(32), &"a".repeat(36), &"é".repeat(16)]
        {
            let child = format!("_c_{wrong}-lock-0000000001");
            assert_eq!(parse(&child).map(|name| name.id), Some(""), "{child}");
        }
    }

    #[test]
    fn wrapped_numbers_are_parsed_as_the_server_writes_them() {
        for number in [i32::MAX, i32::MIN, -1_000_000_000, -999_999_999, -1, 0] {
            for mark in ["lock-", "__READ__", "__WRIT__", "latch-", "__lock__", "__rlock__"] {
                let child = format!("{mark}{number:010}");
                let sequence = parse(&child).map(|name| name.sequence);
                assert_eq!(sequence, Some(number.into()), "{child}");
            }
        }
    }

    #[test]
    fn numbers_of_more_than_ten_digits_are_parsed() {
        for number in [1 << 31, 9_999_999_999, 10_000_000_000, i64::MAX] {
            for mark in ["lock-", "__READ__", "__WRIT__", "latch-", "__lock__", "__rlock__"] {
                let child = format!("{mark}{number}");
                assert_eq!(parse(&child).map(|name| name.sequence), Some(number), "{child}");
            }
        }
    }

    #[test]
    fn other_nodes_are_not_contenders() {
        for child in [
            "",
            "lock-",
            "lock",
            "locks",
            "leases",
            "0000000001",
            "-0000000001",
            "latch0000000001",
            "block-latch_0000000001",
            "block-0000000001",
            "my_lock-0000000001",
            "lock-000000001",
            "lock-00000000001",
            "lock--10000000000",
            "lock-9223372036854775808",
            "lock-+000000001",
            "lock--2147483649",
            "lock--000000000",
            "lock--0000000001",
            "lock--00000001",
            "lock---000000001",
            "lock-0000000001x",
            "lock-000000000x",
            "lock-000000000٣",
            "lock_0000000001",
            "LOCK-0000000001",
            "__READ0000000001",
            "x__READ__0000000001",
            "__write__0000000001",
        ] {
            assert_eq!(parse(child), None, "{child:?}");
        }
        for mark in ["snatch-", "lease-", "read-"] {
            assert_eq!(parse(&format!("_c_{UUID}-{mark}0000000001")), None);
        }
    }

    #[test]
    fn ids_are_fresh_and_in_the_layouts_own_form() {
        assert_eq!(new_id(Layout::Curator).len(), 36);
        assert_eq!(new_id(Layout::Kazoo).len(), 32);
        assert_ne!(new_id(Layout::Curator), new_id(Layout::Curator));
        assert_eq!(Layout::default(), Layout::Curator);
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        prop_oneof![Just(Layout::Curator), Just(Layout::Kazoo)]
    }

    fn any_kind() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Lock), Just(Kind::Read), Just(Kind::Write), Just(Kind::Latch)]
    }

    proptest! {
        #[test]
        fn a_name_that_we_make_is_parsed_as_it_was_made(
            layout in any_layout(),
            kind in any_kind(),
            number in prop_oneof![any::<i32>(), 0..100i32, -100..0i32],
        ) {
            let id = new_id(layout);
            let child = format!("{}{number:010}", prefix(layout, kind, &id));
            let layout = if kind == Kind::Latch { Layout::Curator } else { layout };
            // kazoo has one name for both.
            let kind = match (layout, kind) {
                (Layout::Kazoo, Kind::Write) => Kind::Lock,
                _ => kind,
            };
            prop_assert_eq!(
                parse(&child),
                Some(Name { full: &child, id: &id, kind, sequence: number.into(), layout })
            );
        }

        #[test]
        fn no_name_makes_it_panic_and_a_number_is_written_one_way(
            junk in any::<String>(),
            near in "(_c_)?([0-9a-f]{32}|é)?-?(lock-|latch-|__READ__|__WRIT__|__r?lock__)-?[0-9٣]{8,12}.?",
        ) {
            for child in [junk, near] {
                if let Some(name) = parse(&child) {
                    let written = format!("{:010}", name.sequence);
                    prop_assert!(child.ends_with(&written), "{:?}", child);
                    prop_assert!(name.sequence >= i32::MIN.into());
                }
            }
        }
    }
}
