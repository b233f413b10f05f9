//! What a watch tells, and how that follows from two looks at a node.

use crate::error::{Error, LossReason};
use crate::machine::Watched;
use zk_wire::record::Stat;

/// What a [`Watch`](crate::Watch) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The node did not exist, and exists now.
    Created,
    /// The data of the node was written, once or several times. Only for [`Watched::Node`].
    Changed,
    /// Children were created or deleted. Only for [`Watched::Children`].
    ChildrenChanged,
    /// The node was deleted. If another node was made at its path meanwhile, [`Created`] follows.
    ///
    /// [`Created`]: Self::Created
    Deleted,
    /// A server refused to read the node, so changes may not be noticed for now. The session tries
    /// again once in a session timeout (once in eight, if the answer was too long to be read), and
    /// on each new connection. When that succeeds, the changes since the last event are told; if
    /// there were none, nothing is told.
    Refused(Error),
    /// The session is lost or closed. This is the last event: watch again in the next session.
    Lost(LossReason),
}

/// How a node was seen, as far as a watch tells of it; `None`: it did not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sight(Option<Seen>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The transaction that made the node.
    czxid: i64,
    /// The last transaction that changed what is watched of it.
    zxid: i64,
}

impl Sight {
    pub(crate) fn new(what: Watched, stat: Option<&Stat>) -> Self {
        Sight(stat.map(|stat| {
            let zxid = match what {
                Watched::Node => stat.mzxid,
                Watched::Children => stat.pzxid,
            };
            Seen { czxid: stat.czxid, zxid }
        }))
    }

    /// The events that lead from this sight, which was told last, to `now`.
    pub(crate) fn events_until(self, now: Sight, what: Watched) -> &'static [WatchEvent] {
        match (self.0, now.0) {
            (before, now) if before == now => &[],
            (None, None) => &[],
            (None, Some(_)) => &[WatchEvent::Created],
            (Some(_), None) => &[WatchEvent::Deleted],
            (Some(before), Some(now)) if before.czxid != now.czxid => {
                &[WatchEvent::Deleted, WatchEvent::Created]
            }
            (Some(_), Some(_)) => match what {
                Watched::Node => &[WatchEvent::Changed],
                Watched::Children => &[WatchEvent::ChildrenChanged],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WatchEvent::{Changed, ChildrenChanged, Created, Deleted};

    fn stat(czxid: i64, mzxid: i64, pzxid: i64) -> Stat {
        Stat { czxid, mzxid, pzxid, ..Stat::default() }
    }

    /// All pairs of sights of a small world.
    #[test]
    fn events_follow_from_any_two_sights() {
        let mut sights = vec![None];
        for czxid in 1..4 {
            for mzxid in czxid..6 {
                sights.extend((czxid..6).map(|pzxid| Some(stat(czxid, mzxid, pzxid))));
            }
        }
        for what in [Watched::Node, Watched::Children] {
            let zxid = |stat: Stat| if what == Watched::Node { stat.mzxid } else { stat.pzxid };
            for before in &sights {
                for now in &sights {
                    let told = Sight::new(what, before.as_ref())
                        .events_until(Sight::new(what, now.as_ref()), what);
                    let wanted: &[WatchEvent] = match (before, now) {
                        (None, None) => &[],
                        (None, Some(_)) => &[Created],
                        (Some(_), None) => &[Deleted],
                        (Some(a), Some(b)) if a.czxid != b.czxid => &[Deleted, Created],
                        (Some(a), Some(b)) if zxid(*a) == zxid(*b) => &[],
                        (Some(_), Some(_)) if what == Watched::Node => &[Changed],
                        (Some(_), Some(_)) => &[ChildrenChanged],
                    };
                    assert_eq!(told, wanted, "{what:?}: {before:?}, then {now:?}");
                }
            }
        }
    }

    #[test]
    fn a_change_of_the_children_is_none_of_the_node_and_the_other_way_round() {
        let (before, written, with_child) = (stat(1, 1, 1), stat(1, 2, 1), stat(1, 1, 2));
        for (what, now, wanted) in [
            (Watched::Node, written, &[Changed][..]),
            (Watched::Node, with_child, &[]),
            (Watched::Children, written, &[]),
            (Watched::Children, with_child, &[ChildrenChanged]),
        ] {
            let [before, now] = [before, now].map(|stat| Sight::new(what, Some(&stat)));
            assert_eq!(before.events_until(now, what), wanted, "{what:?}");
        }
    }

    /// A program that reads the node at each event, and believes what the last event says, knows
    /// whether the node exists.
    #[test]
    fn the_last_event_says_whether_the_node_exists() {
        let sights = [None, Some(stat(1, 1, 1)), Some(stat(1, 2, 2)), Some(stat(3, 3, 3))];
        for (before, now) in sights.iter().flat_map(|a| sights.iter().map(move |b| (a, b))) {
            let [a, b] = [before, now].map(|stat| Sight::new(Watched::Node, stat.as_ref()));
            match a.events_until(b, Watched::Node).last() {
                Some(Created | Changed) => assert!(now.is_some()),
                Some(Deleted) => assert!(now.is_none()),
                None => assert_eq!(a, b),
                other => panic!("{other:?}"),
            }
        }
    }
}
