//! The watches that the application's client has set. `machine` adds them, fires them, and sets
//! them again on another connection.
//!
//! A server keeps watches for one connection only. When another connection carries the session, the
//! watches that have not fired are sent again in `setWatches` requests. Each request contains a
//! zxid: if a node has changed after it, the server fires the watch at once, so that no change is
//! missed.

use std::collections::BTreeMap;

use zk_wire::code::{err, event, op};
use zk_wire::record::Writer;

/// The most bytes that the paths of one `setWatches` request have, unless it has only one path. A
/// server refuses a request beyond 1 MiB and cuts the connection. ZooKeeper's own clients split
/// requests in the same way.
const MAX_REQUEST_PATHS: usize = 128 << 10;

/// The events for which a watch waits. The order is that of the lists in a `setWatches` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchKind {
    /// A change or the deletion of a node that exists.
    Data,
    /// The creation of a node that does not exist.
    Created,
    /// A change of the list of children, or the deletion of the node.
    Children,
}

const KINDS: [WatchKind; 3] = [WatchKind::Data, WatchKind::Created, WatchKind::Children];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    #[default]
    None,
    /// The server has it, on the present connection.
    Armed,
    /// Its connection is gone. The client may have missed changes after this zxid.
    Lost(i64),
}

#[derive(Default)]
pub(super) struct Watches {
    nodes: BTreeMap<String, [Watch; 3]>,
    /// The largest zxid of an answer to the client. If a node with an armed watch had changed up to
    /// this zxid, its event would have come before that answer: a server sends events and answers
    /// in order.
    seen: i64,
}

impl WatchKind {
    /// The kind of watch that the server has set for a request with a watch, by the code of its
    /// answer.
    pub(super) fn left_by(op: i32, code: i32) -> Option<WatchKind> {
        match (op, code) {
            (op::EXISTS | op::GET_DATA, err::OK) => Some(WatchKind::Data),
            (op::EXISTS, err::NO_NODE) => Some(WatchKind::Created),
            (op::GET_CHILDREN, err::OK) => Some(WatchKind::Children),
            _ => None,
        }
    }

    fn is_fired_by(self, kind: i32) -> bool {
        match kind {
            event::CREATED | event::DATA_CHANGED => self != WatchKind::Children,
            event::CHILDREN_CHANGED => self == WatchKind::Children,
            event::DELETED => true,
            _ => false,
        }
    }
}

impl Watches {
    pub(super) fn saw(&mut self, zxid: i64) {
        self.seen = self.seen.max(zxid);
    }

    pub(super) fn add(&mut self, kind: WatchKind, path: String) {
        self.nodes.entry(path).or_default()[kind as usize] = Watch::Armed;
    }

    /// Removes the watches that this event fires. `false`: it fires none, so the event is not for
    /// the client.
    pub(super) fn fire(&mut self, kind: i32, path: &str) -> bool {
        let Some(watches) = self.nodes.get_mut(path) else { return false };
        let mut has_fired = false;
        for (watch, of) in watches.iter_mut().zip(KINDS) {
            if of.is_fired_by(kind) && *watch != Watch::None {
                *watch = Watch::None;
                has_fired = true;
            }
        }
        if *watches == [Watch::None; 3] {
            self.nodes.remove(path);
        }
        has_fired
    }

    /// Another connection carries the session, so the watches are gone at the server. Gives the
    /// bodies of the `setWatches` requests that set all of them again.
    pub(super) fn set_watches(&mut self) -> Vec<Vec<u8>> {
        let seen = self.seen;
        let mut by_zxid: BTreeMap<i64, Vec<(WatchKind, &str)>> = BTreeMap::new();
        for (path, watches) in &mut self.nodes {
            for (watch, kind) in watches.iter_mut().zip(KINDS) {
                // If an earlier `setWatches` request was lost with its connection, its zxid still
                // counts.
                let since = match *watch {
                    Watch::None => continue,
                    Watch::Armed => seen,
                    Watch::Lost(since) => since,
                };
                *watch = Watch::Lost(since);
                by_zxid.entry(since).or_default().push((kind, path));
            }
        }
        let mut requests = Vec::new();
        for (since, watches) in &by_zxid {
            let (mut from, mut bytes) = (0, 0);
            for (i, (_, path)) in watches.iter().enumerate() {
                if i > from && bytes + path.len() > MAX_REQUEST_PATHS {
                    requests.push(body(*since, &watches[from..i]));
                    (from, bytes) = (i, 0);
                }
                bytes += path.len() + 4;
            }
            requests.push(body(*since, &watches[from..]));
        }
        requests
    }

    /// The server has answered all requests of `set_watches`.
    pub(super) fn all_armed(&mut self) {
        for watch in self.nodes.values_mut().flatten().filter(|watch| **watch != Watch::None) {
            *watch = Watch::Armed;
        }
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }
}

/// The body of a `setWatches` request: the zxid, and the paths of each kind.
fn body(since: i64, watches: &[(WatchKind, &str)]) -> Vec<u8> {
    let mut body = Writer::bare().i64(since);
    for kind in KINDS {
        let paths = || watches.iter().filter(|(of, _)| *of == kind).map(|(_, path)| path);
        body = body.i32(paths().count() as i32);
        for path in paths() {
            body = body.buffer(path.as_bytes());
        }
    }
    body.body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zk_wire::record::Reader;

    fn read(body: &[u8]) -> (i64, [Vec<String>; 3]) {
        let mut r = Reader::new(body);
        let since = r.i64().unwrap();
        let list = |r: &mut Reader<'_>| {
            (0..r.count(4).unwrap()).map(|_| r.string().unwrap().to_owned()).collect::<Vec<_>>()
        };
        (since, [list(&mut r), list(&mut r), list(&mut r)])
    }

    #[test]
    fn an_event_uses_up_the_watches_that_it_fires_and_no_others() {
        for (kind, fires) in [
            (event::CREATED, [true, true, false]),
            (event::DATA_CHANGED, [true, true, false]),
            (event::CHILDREN_CHANGED, [false, false, true]),
            (event::DELETED, [true, true, true]),
        ] {
            for of in KINDS {
                let mut watches = Watches::default();
                watches.add(of, "/a".into());
                assert!(!watches.fire(kind, "/b"));
                assert_eq!(watches.fire(kind, "/a"), fires[of as usize], "{of:?} {kind}");
                assert!(!watches.fire(kind, "/a"), "it fires once");
                assert_eq!(watches.nodes.is_empty(), fires[of as usize]);
            }
        }
    }

    #[test]
    fn watches_are_set_again_from_the_zxid_seen_before_the_cut() {
        let mut watches = Watches::default();
        assert!(watches.set_watches().is_empty());
        watches.saw(7);
        watches.add(WatchKind::Data, "/a".into());
        watches.add(WatchKind::Children, "/a".into());
        watches.add(WatchKind::Created, "/b".into());
        let [request] = &watches.set_watches()[..] else { panic!("one request") };
        assert_eq!(read(request), (7, [vec!["/a".into()], vec!["/b".into()], vec!["/a".into()]]));
    }

    /// A change before the first cut must fire, however many connections fail before one answers.
    #[test]
    fn a_second_cut_before_the_answer_hides_no_change() {
        let mut watches = Watches::default();
        watches.saw(7);
        watches.add(WatchKind::Data, "/a".into());
        watches.set_watches();
        watches.saw(12);
        watches.add(WatchKind::Data, "/b".into());
        let requests: Vec<_> = watches.set_watches().iter().map(|body| read(body)).collect();
        let only = |path: &str| [vec![path.to_owned()], vec![], vec![]];
        assert_eq!(requests, [(7, only("/a")), (12, only("/b"))]);
        watches.all_armed();
        watches.saw(20);
        assert_eq!(read(&watches.set_watches()[0]).0, 20);
    }

    #[test]
    fn many_watches_go_in_several_requests_and_each_in_one() {
        let mut watches = Watches::default();
        let paths: Vec<String> = (0..500).map(|i| format!("/{i:0>1000}")).collect();
        for path in &paths {
            watches.add(WatchKind::Children, path.clone());
        }
        watches.add(WatchKind::Data, format!("/{}", "x".repeat(MAX_REQUEST_PATHS * 2)));
        let requests = watches.set_watches();
        let mut seen: Vec<String> =
            requests.iter().flat_map(|body| read(body).1[2].clone()).collect();
        seen.sort();
        assert_eq!(seen, paths);
        assert!(requests.len() > 3);
        let data = |body: &Vec<u8>| !read(body).1[0].is_empty();
        assert!(requests.iter().all(|body| body.len() < MAX_REQUEST_PATHS + 64 || data(body)));
        assert_eq!(requests.iter().filter(|body| data(body)).count(), 1);
    }
}
