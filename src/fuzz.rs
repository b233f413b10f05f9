//! The fuzz targets of the locks: see [`zk_wire::fuzz`]. A target takes any bytes, as the names of
//! a listing or as a path, and panics if the library breaks a rule. The tests below replay the
//! corpus on stable Rust.

use crate::path::lock_path;
use crate::queue::name::{self, Family, Kind, Layout, Name};
use crate::queue::rule::{self, Claim, Verdict};
use zk_wire::fuzz::{Script, Target};
use zk_wire::path;

/// Each target by its name.
pub const TARGETS: &[(&str, Target)] = &[("lock_paths", lock_paths), ("names", names)];

/// A listing, a name on each line. Another, slower parser reads each name in the same way. Each
/// queue has one order, and in it exactly one mutex holds.
fn names(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (pending_deletes, czxids) = (script.byte(), script.piece());
    let text = String::from_utf8_lossy(script.rest());
    let mut children: Vec<&str> = text.lines().collect();
    for child in &children {
        assert_eq!(name::parse(child), parse_slowly(child), "{child:?}");
        assert!(child.contains(name::permit_id(child)));
        let joined = path::join("/l", child);
        if path::check(&joined).is_ok() && !child.contains('/') {
            assert_eq!((path::parent(&joined), path::name(&joined)), ("/l", *child));
        }
    }
    // The names of a listing are all different.
    children.sort_unstable();
    children.dedup();
    for family in [Family::Locks, Family::Candidates] {
        queue(&children, family, pending_deletes, czxids);
    }
}

fn queue(children: &[&str], family: Family, pending_deletes: u8, czxids: &[u8]) {
    let (names, junk) = rule::contenders(children, family);
    assert_eq!(names.len() + junk.len(), children.len());
    let is_pending_delete = |id: &str| {
        pending_deletes % 2 == 1
            && id.bytes().next().is_some_and(|b| b % 4 == pending_deletes / 2 % 4)
    };
    let none = |_: &str| false;

    let mut ordered = names.clone();
    rule::in_order(&mut ordered);
    // The order by czxids, where the numbers carry no order. A node without a czxid is gone.
    let czxid = |at: usize| czxids.get(at).map(|czxid| i64::from(*czxid));
    let timed: Vec<_> = names.iter().enumerate().map(|(at, name)| (*name, czxid(at))).collect();
    let reordered = rule::order_by_czxid(timed);
    let (numbered, timed): (Vec<_>, Vec<_>) =
        reordered.into_iter().partition(|name| !rule::is_unordered(name.sequence));
    let is_numbered = |name: &&Name<'_>| !rule::is_unordered(name.sequence);
    assert!(numbered.iter().eq(ordered.iter().filter(is_numbered)));
    let at = |of: &Name<'_>| names.iter().position(|name| name == of).and_then(czxid);
    assert!(timed.iter().all(|name| at(name).is_some()) && timed.is_sorted_by_key(at));
    let going =
        names.iter().enumerate().filter(|(at, name)| !is_numbered(name) && czxid(*at).is_none());
    assert_eq!(numbered.len() + timed.len() + going.count(), names.len());

    let mut holders = 0;
    for (place, mine) in ordered.iter().enumerate() {
        for claim in [Claim::Exclusive, Claim::Shared] {
            for pending_deletes in [&none as &dyn Fn(&str) -> bool, &is_pending_delete] {
                let ahead: Vec<&Name<'_>> = ordered[..place]
                    .iter()
                    .filter(|name| claim.yields_to(name.kind) && !pending_deletes(name.id))
                    .collect();
                let expected = ahead.last().map(|name| name.full);
                for verdict in [
                    rule::verdict(&names, mine.full, claim, pending_deletes),
                    rule::verdict_in_order(&ordered, mine.full, claim, pending_deletes),
                ] {
                    match verdict {
                        Verdict::Held => assert_eq!(expected, None, "{mine:?}"),
                        Verdict::Wait { predecessor, sole } => {
                            assert_eq!(Some(predecessor.full), expected, "{mine:?}");
                            assert!(!sole || ahead.len() == 1);
                        }
                        Verdict::Gone => panic!("{mine:?} is listed"),
                    }
                }
            }
        }
        holders +=
            usize::from(rule::verdict(&names, mine.full, Claim::Exclusive, &none) == Verdict::Held);
    }
    assert_eq!(holders, names.len().min(1));
    let layouts =
        [Layout::Curator, Layout::Kazoo].map(|of| names.iter().any(|name| name.layout == of));
    assert_eq!(rule::mixed(&names), layouts == [true, true]);
    let unordered = |name: &Name<'_>| name.sequence < 0 || name.sequence > rule::UNORDERED_ABOVE;
    assert_eq!(rule::unordered(&names), names.iter().any(unordered));
    let used_up = |name: &Name<'_>| unordered(name) && name.sequence <= u32::MAX.into();
    assert_eq!(rule::used_up(&names), names.iter().any(used_up));
}

/// The same as `name::parse`, but from the end of the name backwards, and each number is formatted
/// again to compare it.
fn parse_slowly(child: &str) -> Option<Name<'_>> {
    const MARKS: [(&str, Layout, Kind); 6] = [
        ("lock-", Layout::Curator, Kind::Lock),
        ("__READ__", Layout::Curator, Kind::Read),
        ("__WRIT__", Layout::Curator, Kind::Write),
        ("latch-", Layout::Curator, Kind::Latch),
        ("__lock__", Layout::Kazoo, Kind::Lock),
        ("__rlock__", Layout::Kazoo, Kind::Read),
    ];
    for length in 10..=19 {
        let Some((head, digits)) =
            child.len().checked_sub(length).and_then(|at| child.split_at_checked(at))
        else {
            continue;
        };
        let Ok(number) = digits.parse::<i64>() else { continue };
        // No server counts below `i32::MIN`.
        if format!("{number:010}") != digits || number < i32::MIN.into() {
            continue;
        }
        for (mark, layout, kind) in MARKS {
            let Some(before) = head.strip_suffix(mark) else { continue };
            if layout == Layout::Curator && !before.is_empty() && !before.ends_with('-') {
                continue;
            }
            let id = before.strip_suffix('-').unwrap_or(before);
            let id = id.strip_prefix("_c_").unwrap_or(id);
            let is_id = match id.len() {
                32 => id.bytes().all(|b| b.is_ascii_hexdigit()),
                36 => id.bytes().enumerate().all(|(at, b)| match at {
                    8 | 13 | 18 | 23 => b == b'-',
                    _ => b.is_ascii_hexdigit(),
                }),
                _ => false,
            };
            let id = if is_id { id } else { "" };
            return Some(Name { full: child, id, kind, sequence: number, layout });
        }
    }
    None
}

/// The path of a lock is a path of a node, and can be taken apart and put together again.
fn lock_paths(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if lock_path("", &text).is_ok() {
        assert!(path::check(&text).is_ok() && text.len() > 1);
        assert_eq!(path::join(path::parent(&text), path::name(&text)), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a test for each target, so that they run in parallel and a failure names its target.
    macro_rules! hostile {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    let (_, target) = TARGETS.iter().find(|(of, _)| *of == stringify!($name)).unwrap();
                    zk_wire::fuzz::replay(stringify!($name), *target);
                }
            )*

            #[test]
            fn each_target_has_a_test() {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, [$(stringify!($name)),*]);
            }
        };
    }

    hostile! { lock_paths names }
}
