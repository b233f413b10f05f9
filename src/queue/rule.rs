//! The order rule: which contender holds a lock, and which node each other one watches. It decides
//! from a listing of the lock's children alone, and does no I/O.

use super::name::{self, Family, Kind, Layout, Name};

/// Numbers above this use up more than half of all numbers.
const HALF: i64 = 1 << 30;

/// Numbers above this carry no order, up to `LAST_OF_32_BITS`. They may have stopped (creates one
/// by one all get 2147483647) or wrapped (creates in a pipeline go on at -2147483648), or do so
/// while this listing is read.
pub(crate) const UNORDERED_ABOVE: i64 = (1 << 31) - (1 << 20);

/// A greater number is of a server that counts in another way than ZooKeeper, whose last number is
/// 2147483647. Where the numbers of such a server end, and what comes then, nobody has stated. So
/// they carry no order either.
const LAST_OF_32_BITS: i64 = u32::MAX as i64;

/// What a listing says about our contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'n, 'a> {
    /// No contender is ahead of ours: it holds the lock.
    Held,
    /// Ours waits for the end of another node.
    Wait {
        /// The last contender ahead of ours. As long as its node stands, nothing changes for us.
        predecessor: &'n Name<'a>,
        /// No other contender is ahead, and no other node can follow `predecessor` in its place,
        /// unless that is written to first. So when its node goes, we hold the lock without another
        /// listing.
        sole: bool,
    },
    /// Our node is not listed.
    Gone,
}

/// The contenders of this family among the children, in the listing's (arbitrary) order, and the
/// other names.
pub(crate) fn contenders<'a>(
    children: &[&'a str],
    family: Family,
) -> (Vec<Name<'a>>, Vec<&'a str>) {
    let mut names = Vec::with_capacity(children.len());
    let mut junk = Vec::new();
    for child in children {
        match name::parse(child) {
            Some(name) if name.kind.family() == family => names.push(name),
            _ => junk.push(*child),
        }
    }
    (names, junk)
}

/// A contender that is no contender for a lock of our kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranger<'a> {
    pub(crate) name: Name<'a>,
    /// Its kind was here before ours.
    pub(crate) came_first: bool,
}

/// The oldest contender for a lock of another kind than ours, among contenders and `others`. One
/// path, one kind: Curator's readers look for its writers only, and its sort puts unknown names
/// last, so a mutex, a read/write lock and an election at one path do not exclude each other. The
/// later kind is refused.
///
/// `names` are the contenders of our own family, ours among them once it is made. All numbers come
/// from one counter, that of the folder, so the lowest numbers show which kind has the older node: a
/// contender of the earlier kind goes on, also if it came later itself. Where a number carries no
/// order, the other kind counts as the earlier one.
pub(crate) fn stranger<'a>(
    names: &[Name<'a>],
    others: &[&'a str],
    kind: Kind,
    is_pending_delete: &dyn Fn(&str) -> bool,
) -> Option<Stranger<'a>> {
    let others = others.iter().filter_map(|child| name::parse(child));
    let alive = names.iter().copied().chain(others).filter(|name| !is_pending_delete(name.id));
    let (mut ours, mut first) = (None::<i64>, None::<Name<'a>>);
    for name in alive {
        if name.may_be_of_a_lock_with(kind) {
            ours = Some(ours.map_or(name.sequence, |least| least.min(name.sequence)));
        } else if first.is_none_or(|first| name.sequence < first.sequence) {
            first = Some(name);
        }
    }
    let name = first?;
    let is_later =
        |ours: i64| !is_unordered(ours) && !is_unordered(name.sequence) && ours < name.sequence;
    Some(Stranger { name, came_first: !ours.is_some_and(is_later) })
}

/// Whether there are nodes of both layouts. Then clients that know only one of them do not respect
/// all others.
pub(crate) fn mixed(names: &[Name]) -> bool {
    let has = |layout| names.iter().any(|name| name.layout == layout);
    has(Layout::Curator) && has(Layout::Kazoo)
}

/// Which contenders ahead keep a contender out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// All of them.
    Exclusive,
    /// All that do not read.
    Shared,
}

impl Claim {
    pub(crate) fn of(kind: Kind) -> Claim {
        match kind {
            Kind::Lock | Kind::Write | Kind::Latch => Claim::Exclusive,
            Kind::Read => Claim::Shared,
        }
    }

    /// Whether a contender of this kind keeps us out if it is ahead.
    pub(crate) fn yields_to(self, ahead: Kind) -> bool {
        self == Claim::Exclusive || ahead != Kind::Read
    }
}

/// Whether this number carries no order: then the zxid that created the node does.
pub(crate) fn is_unordered(sequence: i64) -> bool {
    !(0..=UNORDERED_ABOVE).contains(&sequence)
}

/// Whether this number says that ZooKeeper's numbers are used up in this folder, or will be soon.
/// Other clients, which go by the numbers, lose the order then.
pub(crate) fn is_used_up(sequence: i64) -> bool {
    is_unordered(sequence) && sequence <= LAST_OF_32_BITS
}

/// Whether more than half of the numbers are used up, so that an operator should know.
pub(crate) fn is_half_used(sequence: i64) -> bool {
    (HALF + 1..=LAST_OF_32_BITS).contains(&sequence)
}

/// Whether some number carries no order. If so, use [`order_by_czxid`] and [`verdict_in_order`].
pub(crate) fn unordered(names: &[Name]) -> bool {
    names.iter().any(|name| is_unordered(name.sequence))
}

/// Whether some number says that ZooKeeper's numbers are used up.
pub(crate) fn used_up(names: &[Name]) -> bool {
    names.iter().any(|name| is_used_up(name.sequence))
}

/// A contender's place in the queue.
///
/// The numbers below one parent are all different, with one exception. A writer of Curator's (5.5
/// and later) that becomes a reader makes a read node with its write's number, and then deletes the
/// write node. The write is ordered before the read, so that the next contender watches the read,
/// which stays longer. All other ties are decided by the name, so that all clients see one order.
/// (A client can make a node of any name by hand.) Without that, two contenders could each see the
/// other ahead, and wait for each other for ever; or each see itself first, and both hold the lock.
fn place<'a>(name: &Name<'a>) -> (i64, Kind, &'a str) {
    // In the order of `Kind` reads come last.
    (name.sequence, name.kind, name.full)
}

/// Sorts contenders into the queue's order.
pub(crate) fn in_order(names: &mut [Name]) {
    names.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
}

/// The names of the contenders that hold the lock: the first, and if that reads, all that read
/// before the first that writes. (Where numbers carry no order, it may be another than the first.)
pub(crate) fn holders<'a>(children: &[&'a str]) -> Vec<&'a str> {
    let (mut all, _) = contenders(children, Family::Locks);
    in_order(&mut all);
    keep_holders(&mut all);
    all.into_iter().map(|name| name.full).collect()
}

/// Drops all contenders but the holders, of contenders in the queue's order.
pub(crate) fn keep_holders(all: &mut Vec<Name<'_>>) {
    let readers = all.iter().take_while(|name| name.kind == Kind::Read).count();
    all.truncate(readers.max(1));
}

/// All names, in the order of their numbers: of a folder in which all nodes are holders'.
pub(crate) fn all_holders<'a>(children: &[&'a str]) -> Vec<&'a str> {
    let mut all = children.to_vec();
    all.sort_by_key(|name| name.rsplit('-').next());
    all
}

/// The queue's order if some numbers carry none. Names whose numbers carry order come first,
/// because those numbers were given out earlier. The others follow by the zxid that created the
/// node, which is `None` if the node has gone since it was listed; nodes of one transaction are
/// ordered by their place. (A downgrade's read is made long after its write, and keeps the write's
/// place by its number. So it can be made only if the number carries order.)
pub(crate) fn order_by_czxid<'a>(mut names: Vec<(Name<'a>, Option<i64>)>) -> Vec<Name<'a>> {
    let ordered = |name: &Name<'_>| !is_unordered(name.sequence);
    names.retain(|(name, czxid)| czxid.is_some() || ordered(name));
    let key = |(name, czxid): &(Name<'a>, Option<i64>)| {
        let czxid = if ordered(name) { None } else { *czxid };
        (czxid, place(name))
    };
    names.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    names.into_iter().map(|(name, _)| name).collect()
}

/// The verdict for the contender whose node is called `mine`. The listing may be in any order.
/// Nodes whose id `is_pending_delete` are our own and will be deleted: they do not count.
pub(crate) fn verdict<'n, 'a>(
    names: &'n [Name<'a>],
    mine: &str,
    claim: Claim,
    is_pending_delete: &dyn Fn(&str) -> bool,
) -> Verdict<'n, 'a> {
    decide(names, mine, claim, is_pending_delete, |_, name| place(name))
}

/// As [`verdict`], for names in the queue's order.
pub(crate) fn verdict_in_order<'n, 'a>(
    ordered: &'n [Name<'a>],
    mine: &str,
    claim: Claim,
    is_pending_delete: &dyn Fn(&str) -> bool,
) -> Verdict<'n, 'a> {
    decide(ordered, mine, claim, is_pending_delete, |index, _| index)
}

/// Whether this contender may leave a read of its number behind that a listing does not show yet. A
/// write may, and in kazoo's layout a write has a mutex's name.
fn may_downgrade(name: &Name<'_>) -> bool {
    match name.kind {
        Kind::Read | Kind::Write => true,
        Kind::Lock => name.layout == Layout::Kazoo,
        Kind::Latch => false,
    }
}

/// Makes one pass to find our node, and one to find the last ahead of it. Every waiter does this at
/// every release, so nothing is sorted.
fn decide<'n, 'a, P: Ord>(
    names: &'n [Name<'a>],
    mine: &str,
    claim: Claim,
    is_pending_delete: &dyn Fn(&str) -> bool,
    place: impl Fn(usize, &Name<'a>) -> P,
) -> Verdict<'n, 'a> {
    let Some((index, own)) = names.iter().enumerate().find(|(_, name)| name.full == mine) else {
        return Verdict::Gone;
    };
    let own = place(index, own);
    let mut last: Option<(P, &'n Name<'a>)> = None;
    let mut ahead = 0_usize;
    for (index, name) in names.iter().enumerate() {
        let place = place(index, name);
        if place >= own || !claim.yields_to(name.kind) || is_pending_delete(name.id) {
            continue;
        }
        ahead += 1;
        if last.as_ref().is_none_or(|(farthest, _)| place > *farthest) {
            last = Some((place, name));
        }
    }
    match last {
        None => Verdict::Held,
        Some((_, predecessor)) => Verdict::Wait {
            predecessor,
            sole: ahead == 1 && (claim == Claim::Shared || !may_downgrade(predecessor)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::name::{new_id, prefix};
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_holders_are_the_first_or_all_readers_before_the_first_writer() {
        let of = |kind: &str, number: u32| format!("_c_{:0>36}-{kind}{number:010}", number);
        let all = [of("__WRIT__", 5), of("__READ__", 2), of("__READ__", 7), of("__READ__", 1)];
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(super::holders(&[]), [""; 0]);
        assert_eq!(super::holders(&names), [names[3], names[1]]);
        assert_eq!(super::holders(&[names[2], names[0], "junk"]), [names[0]]);
        let permits = ["_c_b-lease-0000000003", "_c_a-lease-0000000012", "_c_c-lease-0000000001"];
        assert_eq!(all_holders(&permits), [permits[2], permits[0], permits[1]]);
    }

    #[test]
    fn a_contender_of_another_kind_is_in_the_way_if_its_kind_came_before() {
        let others = ["config", "_c_x-latch-0000000009", "_c_y-latch-0000000007"];
        let number = |ours: &[i64]| {
            let ours: Vec<String> = ours.iter().map(|number| lock(*number)).collect();
            let stranger = stranger(&parsed(&ours), &others, Kind::Lock, &never_pending).unwrap();
            assert_eq!(stranger.name.sequence, 7);
            stranger.came_first
        };
        assert!(!number(&[6]));
        assert!(!number(&[8, 6, 12]), "the first of ours is the oldest of all");
        assert!(number(&[8, 12]));
        assert!(number(&[]), "before our node is made");
        // Numbers that carry no order do not say which came first.
        assert!(number(&[-5]));
        let wrapped = ["_c_x-latch--2147483648"];
        let stranger_to = |ours: &[String], others: &[&'static str]| {
            stranger(&parsed(ours), others, Kind::Lock, &never_pending).map(|seen| seen.came_first)
        };
        assert_eq!(stranger_to(&[lock(3)], &wrapped), Some(true));
        let ours = candidate(1);
        let id = name::parse(&ours).map_or("", |name| name.id).to_owned();
        let is_pending = |seen: &str| seen == id;
        assert_eq!(stranger(&[], &[&ours], Kind::Lock, &is_pending), None, "it is about to go");
    }

    /// kazoo's `Lock` and `WriteLock` have one name, so it is of either kind.
    #[test]
    fn each_kind_of_lock_is_a_stranger_to_the_others() {
        use {Kind::*, Layout::*};
        let is_stranger = |there: (Layout, Kind), kind: Kind| {
            let child = [child(there.0, there.1, 4)];
            let (names, others) = contenders(&listed(&child), kind.family());
            stranger(&names, &others, kind, &never_pending).is_some()
        };
        let mutex = [(Curator, Lock), (Kazoo, Lock)];
        let rwlock = [(Curator, Read), (Curator, Write), (Kazoo, Read), (Kazoo, Write)];
        for (kind, own, strange) in [
            (Lock, &[mutex[0], mutex[1], rwlock[3]][..], &[rwlock[0], rwlock[1], rwlock[2]][..]),
            (Read, &[rwlock[0], rwlock[1], rwlock[2], rwlock[3], mutex[1]], &[mutex[0]]),
            (Write, &[rwlock[0], rwlock[1], rwlock[2], rwlock[3], mutex[1]], &[mutex[0]]),
            (Latch, &[(Curator, Latch)], &[mutex[0], mutex[1], rwlock[0], rwlock[3]]),
        ] {
            assert!(own.iter().all(|there| !is_stranger(*there, kind)), "{kind:?}");
            assert!(strange.iter().all(|there| is_stranger(*there, kind)), "{kind:?}");
            assert_eq!(is_stranger((Curator, Latch), kind), kind != Latch);
        }
    }

    fn child(layout: Layout, kind: Kind, sequence: i64) -> String {
        format!("{}{sequence:010}", prefix(layout, kind, &new_id(layout)))
    }

    fn lock(sequence: i64) -> String {
        child(Layout::Curator, Kind::Lock, sequence)
    }

    fn candidate(sequence: i64) -> String {
        child(Layout::Curator, Kind::Latch, sequence)
    }

    fn listed(children: &[String]) -> Vec<&str> {
        children.iter().map(String::as_str).collect()
    }

    fn parsed(children: &[String]) -> Vec<Name<'_>> {
        let (names, junk) = contenders(&listed(children), Family::Locks);
        assert_eq!(junk, Vec::<&str>::new());
        names
    }

    /// The verdict for a mutex.
    fn mutex<'n, 'a>(
        names: &'n [Name<'a>],
        mine: &str,
        is_pending_delete: &dyn Fn(&str) -> bool,
    ) -> Verdict<'n, 'a> {
        verdict(names, mine, Claim::Exclusive, is_pending_delete)
    }

    fn mutex_in_order<'n, 'a>(
        ordered: &'n [Name<'a>],
        mine: &str,
        is_pending_delete: &dyn Fn(&str) -> bool,
    ) -> Verdict<'n, 'a> {
        verdict_in_order(ordered, mine, Claim::Exclusive, is_pending_delete)
    }

    /// Whether this is certainly a mutex, and not kazoo's write.
    fn is_plain(name: &Name<'_>) -> bool {
        (name.kind, name.layout) == (Kind::Lock, Layout::Curator)
    }

    fn never_pending(_: &str) -> bool {
        false
    }

    /// The names in the queue's order.
    fn queue<'a>(names: &[Name<'a>]) -> Vec<Name<'a>> {
        let mut names = names.to_vec();
        in_order(&mut names);
        names
    }

    #[track_caller]
    fn assert_waits(verdict: Verdict, predecessor: &str, sole: bool) {
        match verdict {
            Verdict::Wait { predecessor: p, sole: s } => {
                assert_eq!((p.full, s), (predecessor, sole));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_lowest_holds_and_each_other_watches_the_next_lower() {
        let children = [lock(12), lock(7), lock(9)];
        let names = parsed(&children);
        assert_eq!(mutex(&names, &children[1], &never_pending), Verdict::Held);
        assert_waits(mutex(&names, &children[2], &never_pending), &children[1], true);
        assert_waits(mutex(&names, &children[0], &never_pending), &children[2], false);
    }

    #[test]
    fn a_node_that_is_not_listed_is_gone() {
        let children = [lock(1)];
        assert_eq!(mutex(&parsed(&children), &lock(2), &never_pending), Verdict::Gone);
        assert_eq!(mutex(&[], &lock(2), &never_pending), Verdict::Gone);
        assert_eq!(mutex_in_order(&[], &lock(2), &never_pending), Verdict::Gone);
    }

    #[test]
    fn our_own_pending_deletes_never_block_us() {
        let children = [lock(1), lock(2), lock(3), lock(4)];
        let names = parsed(&children);
        let going: HashSet<&str> = [names[0].id, names[2].id].into();
        let is_pending_delete = |id: &str| going.contains(id);
        assert_eq!(mutex(&names, &children[1], &is_pending_delete), Verdict::Held);
        assert_waits(mutex(&names, &children[3], &is_pending_delete), &children[1], true);
        assert_waits(mutex_in_order(&names, &children[3], &is_pending_delete), &children[1], true);
    }

    #[test]
    fn readers_and_writers_ahead_exclude_but_need_another_listing() {
        for kind in [Kind::Read, Kind::Write] {
            let children = [child(Layout::Curator, kind, 1), lock(2)];
            assert_waits(
                mutex(&parsed(&children), &children[1], &never_pending),
                &children[0],
                false,
            );
        }
    }

    #[test]
    fn kazoos_nodes_exclude_and_show_as_mixed() {
        let children = [child(Layout::Kazoo, Kind::Lock, 1), lock(2)];
        let names = parsed(&children);
        // A node with kazoo's name of a mutex may be a write, and leave a read behind.
        assert_waits(mutex(&names, &children[1], &never_pending), &children[0], false);
        assert!(mixed(&names));
        assert!(!mixed(&names[..1]) && !mixed(&names[1..]) && !mixed(&[]));
    }

    #[test]
    fn a_downgrade_is_waited_for_at_its_read_which_outlives_the_write() {
        let write = child(Layout::Curator, Kind::Write, 5);
        let read = child(Layout::Curator, Kind::Read, 5);
        let mine = lock(6);
        for children in [
            [write.clone(), read.clone(), mine.clone()],
            [mine.clone(), read.clone(), write.clone()],
        ] {
            let names = parsed(&children);
            assert_waits(mutex(&names, &mine, &never_pending), &read, false);
            assert_eq!(mutex(&names, &write, &never_pending), Verdict::Held);
        }
    }

    #[test]
    fn children_that_are_no_contenders_are_listed_apart() {
        let children = ["leases".to_owned(), lock(1), "lock-7".to_owned()];
        let (names, junk) = contenders(&listed(&children), Family::Locks);
        assert_eq!(names.len(), 1);
        assert_eq!(junk, ["leases", "lock-7"]);
    }

    #[test]
    fn candidates_and_locks_do_not_count_for_each_other() {
        let children =
            [lock(1), candidate(2), candidate(3), child(Layout::Curator, Kind::Write, 4)];
        let (candidates, others) = contenders(&listed(&children), Family::Candidates);
        assert_eq!(others, [&*children[0], &*children[3]]);
        assert_eq!(mutex(&candidates, &children[1], &never_pending), Verdict::Held);
        assert_waits(mutex(&candidates, &children[2], &never_pending), &children[1], true);
        let (locks, others) = contenders(&listed(&children), Family::Locks);
        assert_eq!(others, [&*children[1], &*children[2]]);
        assert_waits(mutex(&locks, &children[3], &never_pending), &children[0], true);
    }

    #[test]
    fn numbers_near_their_end_carry_no_order() {
        for (sequence, expected) in [
            (0, false),
            (HALF + 1, false),
            (UNORDERED_ABOVE, false),
            (UNORDERED_ABOVE + 1, true),
            (i64::from(i32::MAX), true),
            (i64::from(i32::MIN), true),
            (-1, true),
            (i64::from(i32::MAX) + 1, true),
            (i64::from(u32::MAX), true),
            (i64::from(u32::MAX) + 1, true),
            (10_000_000_000, true),
        ] {
            let children = [lock(3), lock(sequence)];
            let names = parsed(&children);
            assert_eq!(unordered(&names), expected, "{sequence}");
            let is_wide = sequence > i64::from(u32::MAX);
            assert_eq!(used_up(&names), expected && !is_wide, "{sequence}");
        }
        assert!(!unordered(&[]) && !used_up(&[]));
        // A number beyond 32 bits may come before one that has wrapped, or after it: only the zxids
        // say which.
        let children =
            [lock(i64::from(u32::MAX) + 1), lock(i64::from(i32::MAX)), lock(-5), lock(3)];
        let names = parsed(&children);
        let ordered =
            order_by_czxid(names.into_iter().zip([Some(13), Some(11), Some(12), None]).collect());
        let ordered: Vec<i64> = ordered.iter().map(|name| name.sequence).collect();
        assert_eq!(ordered, [3, i64::from(i32::MAX), -5, i64::from(u32::MAX) + 1]);
    }

    #[test]
    fn an_operator_hears_of_the_numbers_long_before_they_end() {
        for (sequence, expected) in [(0, false), (HALF, false), (HALF + 1, true)] {
            assert_eq!(is_half_used(sequence), expected, "{sequence}");
        }
        assert!(is_half_used(UNORDERED_ABOVE), "and goes on to");
        assert!(!is_half_used(LAST_OF_32_BITS + 1), "nobody knows where these end");
    }

    #[test]
    fn the_zxid_orders_numbers_that_stuck_or_wrapped() {
        let children = [lock(2147483647), lock(-2147483648), lock(2147483647), lock(2147483646)];
        let names = parsed(&children);
        assert!(unordered(&names));
        let czxids = [Some(11), Some(12), None, Some(10)];
        let ordered = order_by_czxid(names.into_iter().zip(czxids).collect());
        assert_eq!(mutex_in_order(&ordered, &children[3], &never_pending), Verdict::Held);
        assert_waits(mutex_in_order(&ordered, &children[0], &never_pending), &children[3], true);
        assert_waits(mutex_in_order(&ordered, &children[1], &never_pending), &children[0], false);
        assert_eq!(mutex_in_order(&ordered, &children[2], &never_pending), Verdict::Gone);
    }

    #[test]
    fn numbers_that_carry_order_come_before_those_that_do_not() {
        // A downgrade's read keeps the place of its write, although it was made last.
        let read = child(Layout::Curator, Kind::Read, 7);
        let children = [lock(2147483647), read, lock(9), lock(-2147483648)];
        let names = parsed(&children);
        let czxids = [Some(30), Some(90), None, Some(31)];
        let ordered = order_by_czxid(names.iter().copied().zip(czxids).collect());
        let order: Vec<i64> = ordered.iter().map(|name| name.sequence).collect();
        assert_eq!(order, [7, 9, 2147483647, -2147483648]);
    }

    fn any_child() -> impl Strategy<Value = (Layout, Kind, u32)> {
        let layout = prop_oneof![Just(Layout::Curator), Just(Layout::Kazoo)];
        let kind =
            prop_oneof![3 => Just(Kind::Lock), 1 => Just(Kind::Read), 1 => Just(Kind::Write)];
        // From a small range, so that numbers tie.
        (layout, kind, 0..12_u32)
    }

    /// A listing in any order, ties among it.
    fn any_listing(most: usize) -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec(any_child(), 1..=most).prop_map(|children| {
            let child = |(layout, kind, sequence)| child(layout, kind, i64::from(sequence));
            children.into_iter().map(child).collect()
        })
    }

    fn holders<'a>(names: &[Name<'a>]) -> Vec<&'a str> {
        let holds = |name: &&Name| mutex(names, name.full, &never_pending) == Verdict::Held;
        names.iter().filter(holds).map(|name| name.full).collect()
    }

    proptest! {
        #[test]
        fn one_contender_holds_at_a_time_and_grants_follow_the_queue(
            mut children in any_listing(12),
            goes in proptest::collection::vec(any::<proptest::sample::Index>(), 12),
        ) {
            let mut last_grant: Option<(i64, Kind, String)> = None;
            for goes in goes {
                let names = parsed(&children);
                let Some(first) = queue(&names).first().copied() else { break };
                prop_assert_eq!(holders(&names), [first.full]);
                let grant = (first.sequence, first.kind, first.full.to_owned());
                prop_assert!(last_grant.as_ref().is_none_or(|last| *last <= grant));
                last_grant = Some(grant);
                children.remove(goes.index(children.len()));
            }
        }

        #[test]
        fn the_holders_are_the_readers_at_the_head_or_one_contender_alone(
            mut children in any_listing(12),
            goes in proptest::collection::vec(any::<proptest::sample::Index>(), 12),
        ) {
            for goes in goes {
                let names = parsed(&children);
                let queue = queue(&names);
                let own = |name: &Name<'_>| verdict(&names, name.full, Claim::of(name.kind), &never_pending);
                let held: Vec<_> = queue.iter().filter(|name| own(name) == Verdict::Held).copied().collect();
                let readers = queue.iter().take_while(|name| name.kind == Kind::Read).count();
                prop_assert_eq!(&held[..], &queue[..readers.max(1).min(queue.len())]);
                if queue.is_empty() { break }
                children.remove(goes.index(children.len()));
            }
        }

        #[test]
        fn a_reader_watches_the_last_writer_ahead_and_no_contender_watches_one_behind_it(children in any_listing(12)) {
            let names = parsed(&children);
            let queue = queue(&names);
            for (at, name) in queue.iter().enumerate() {
                let claim = Claim::of(name.kind);
                let blocking: Vec<_> = queue[..at].iter().filter(|ahead| claim.yields_to(ahead.kind)).collect();
                let sole = |last: &Name<'_>| blocking.len() == 1 && (is_plain(last) || claim == Claim::Shared);
                match blocking.last() {
                    None => prop_assert_eq!(verdict(&names, name.full, claim, &never_pending), Verdict::Held),
                    Some(last) => prop_assert_eq!(
                        verdict(&names, name.full, claim, &never_pending),
                        Verdict::Wait { predecessor: last, sole: sole(last) }
                    ),
                }
            }
        }

        #[test]
        fn each_contender_watches_the_one_before_it_so_no_watches_form_a_circle(children in any_listing(12)) {
            let names = parsed(&children);
            let queue = queue(&names);
            for (i, name) in queue.iter().enumerate() {
                let verdict = mutex(&names, name.full, &never_pending);
                match i.checked_sub(1).map(|before| queue[before]) {
                    None => prop_assert_eq!(verdict, Verdict::Held),
                    Some(before) => {
                        let sole = i == 1 && is_plain(&before);
                        prop_assert_eq!(verdict, Verdict::Wait { predecessor: &before, sole });
                    }
                }
                prop_assert_eq!(mutex_in_order(&queue, name.full, &never_pending), verdict);
            }
        }

        #[test]
        fn a_waiter_that_leaves_grants_no_other_and_moves_only_the_one_behind(
            children in any_listing(12),
            goes in any::<proptest::sample::Index>(),
        ) {
            let queue = queue(&parsed(&children));
            prop_assume!(queue.len() > 1);
            let goes = 1 + goes.index(queue.len() - 1);
            let mut rest = queue.clone();
            rest.remove(goes);
            prop_assert_eq!(holders(&rest), [queue[0].full]);
            let watched = |names: &[Name], mine: &str| match mutex(names, mine, &never_pending) {
                Verdict::Wait { predecessor, .. } => Some(predecessor.full.to_owned()),
                _ => None,
            };
            for name in &rest {
                let (before, after) = (watched(&queue, name.full), watched(&rest, name.full));
                let watched_it = before.as_deref() == Some(queue[goes].full);
                prop_assert_eq!(before == after, !watched_it);
            }
        }

        #[test]
        fn the_end_of_a_sole_predecessor_is_a_grant(children in any_listing(4)) {
            let names = parsed(&children);
            for name in &names {
                if let Verdict::Wait { predecessor, sole } = mutex(&names, name.full, &never_pending) {
                    let mut rest = names.clone();
                    rest.retain(|other| other != predecessor);
                    let granted = mutex(&rest, name.full, &never_pending) == Verdict::Held;
                    prop_assert_eq!(sole, granted && is_plain(predecessor));
                }
            }
        }

        #[test]
        fn pending_deletes_count_as_gone(
            children in any_listing(12),
            going in proptest::collection::vec(any::<bool>(), 12),
        ) {
            let names = parsed(&children);
            let going: HashSet<&str> =
                names.iter().zip(going).filter(|(_, goes)| *goes).map(|(name, _)| name.id).collect();
            let mut rest = names.clone();
            rest.retain(|name| !going.contains(name.id));
            for name in &rest {
                prop_assert_eq!(
                    mutex(&names, name.full, &|id| going.contains(id)),
                    mutex(&rest, name.full, &never_pending)
                );
            }
        }

        #[test]
        fn the_order_of_the_listing_does_not_matter(
            (children, shuffled) in any_listing(12).prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        ) {
            let (names, shuffled) = (parsed(&children), parsed(&shuffled));
            prop_assert_eq!(queue(&names), queue(&shuffled));
            for name in &names {
                prop_assert_eq!(
                    mutex(&names, name.full, &never_pending),
                    mutex(&shuffled, name.full, &never_pending)
                );
            }
        }

        #[test]
        fn the_order_by_zxid_is_the_order_by_number_where_both_are_defined(
            steps in proptest::collection::vec((1..5_i64, 1..1000_i64), 1..12),
            start in 0..UNORDERED_ABOVE - 60,
        ) {
            // A parent hands out numbers in the order of its transactions.
            let (mut sequence, mut czxid) = (start, 1 << 32);
            let mut created = Vec::new();
            for (numbers, transactions) in steps {
                sequence += numbers;
                czxid += transactions;
                created.push((lock(sequence), czxid));
            }
            created.sort(); // by the random id
            let children: Vec<String> = created.iter().map(|(child, _)| child.clone()).collect();
            let names = parsed(&children);
            prop_assert!(!unordered(&names));
            let with_czxid = names.iter().copied().zip(created.iter().map(|&(_, czxid)| Some(czxid)));
            prop_assert_eq!(order_by_czxid(with_czxid.collect()), queue(&names));
        }

        #[test]
        fn no_listing_makes_it_panic(children in any::<Vec<String>>(), mine in any::<String>()) {
            let (names, junk) = contenders(&listed(&children), Family::Locks);
            prop_assert_eq!(names.len() + junk.len(), children.len());
            let _ = (mutex(&names, &mine, &never_pending), mutex_in_order(&names, &mine, &never_pending));
        }
    }
}
