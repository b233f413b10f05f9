//! Watches (`WatchManager`, `WatcherModeManager`): which client gets which event. ZooKeeper 3.8.0
//! has the odd cases here too.

use super::ConnId;
use super::acl::Acl;
use super::{HashMap, HashSet};
use crate::Brand;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zk_wire::code::event;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    OneShot = 1,
    Persistent = 2,
    Recursive = 4,
}

impl Mode {
    pub(crate) fn of(mode: i32) -> Option<Mode> {
        match mode {
            0 => Some(Mode::Persistent),
            1 => Some(Mode::Recursive),
            _ => None,
        }
    }
}

/// The modes in which one connection watches one path, as bits of [`Mode`]. Never empty. In
/// ZooKeeper 3.8 it is one mode.
type Modes = u8;

const ONE_SHOT: Modes = Mode::OneShot as Modes;
const PERSISTENT: Modes = Mode::Persistent as Modes;
const RECURSIVE: Modes = Mode::Recursive as Modes;
const ANY: Modes = ONE_SHOT | PERSISTENT | RECURSIVE;

/// An event for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) conn: ConnId,
    pub(crate) kind: i32,
    pub(crate) path: Arc<str>,
    /// The ACL that the node had: a client gets the event only if it may read the node. With `None`
    /// every client gets it.
    pub(crate) acl: Option<Arc<[Acl]>>,
}

/// A node with an event, and its ACL.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a str,
    pub(crate) acl: &'a Arc<[Acl]>,
}

/// One of the two tables.
#[derive(Debug)]
pub(crate) struct Table {
    by_path: HashMap<Arc<str>, BTreeMap<ConnId, Modes>>,
    by_conn: HashMap<ConnId, HashSet<Arc<str>>>,
    recursive: usize,
    /// Otherwise the later mode takes the place of the former.
    modes_coexist: bool,
}

impl Table {
    fn new(brand: Brand) -> Table {
        Table {
            by_path: HashMap::default(),
            by_conn: HashMap::default(),
            recursive: 0,
            modes_coexist: brand.watch_modes_coexist(),
        }
    }

    pub(crate) fn add(&mut self, path: &str, conn: ConnId, mode: Mode) {
        let path = self
            .by_path
            .get_key_value(path)
            .map_or_else(|| path.into(), |(key, _)| Arc::clone(key));
        self.by_conn.entry(conn).or_default().insert(Arc::clone(&path));
        let modes = self.by_path.entry(path).or_default().entry(conn).or_default();
        let old = *modes;
        *modes = mode as Modes | if self.modes_coexist { old } else { 0 };
        self.recursive += usize::from(*modes & RECURSIVE != 0);
        self.recursive -= usize::from(old & RECURSIVE != 0);
    }

    /// The modes in which this connection watches `path`.
    fn modes(&self, path: &str, conn: ConnId) -> Modes {
        self.by_path.get(path).and_then(|watching| watching.get(&conn)).copied().unwrap_or(0)
    }

    /// Takes these modes away; false if there was none of them.
    fn take(&mut self, path: &str, conn: ConnId, taken: Modes) -> bool {
        let Some(watching) = self.by_path.get_mut(path) else { return false };
        let Some(modes) = watching.get_mut(&conn) else { return false };
        let old = *modes;
        *modes &= !taken;
        self.recursive -= usize::from(old & taken & RECURSIVE != 0);
        if *modes == 0 {
            watching.remove(&conn);
            if watching.is_empty() {
                self.by_path.remove(path);
            }
            if let Some(paths) = self.by_conn.get_mut(&conn) {
                paths.remove(path);
                if paths.is_empty() {
                    self.by_conn.remove(&conn);
                }
            }
        }
        old & taken != 0
    }

    /// Adds events for the connections that watch `path`, except those in `told`. Returns the
    /// connections.
    fn trigger(
        &mut self,
        Place { path, acl }: Place<'_>,
        kind: i32,
        told: &BTreeSet<ConnId>,
        events: &mut Vec<Event>,
    ) -> BTreeSet<ConnId> {
        let mut meant = BTreeSet::new();
        if let Some(watching) = self.by_path.get(path) {
            for (conn, modes) in watching.clone() {
                if modes == RECURSIVE && kind == event::CHILDREN_CHANGED {
                    continue;
                }
                self.take(path, conn, ONE_SHOT);
                meant.insert(conn);
            }
        }
        if self.recursive > 0 && kind != event::CHILDREN_CHANGED {
            for above in parents(path) {
                let watching = self.by_path.get(above).into_iter().flatten();
                let recursive = watching.filter(|(_, modes)| **modes & RECURSIVE != 0);
                meant.extend(recursive.map(|(conn, _)| *conn));
            }
        }
        let path: Arc<str> = path.into();
        let new = meant.iter().filter(|conn| !told.contains(conn));
        events.extend(new.map(|conn| Event {
            conn: *conn,
            kind,
            path: Arc::clone(&path),
            acl: Some(Arc::clone(acl)),
        }));
        meant
    }

    /// Whether this connection watches `path` in one of these modes. As 3.8 has it, somebody else's
    /// watch and any mode will do. `None`: it fails at a path that leads to no root.
    fn contains(&self, path: &str, conn: ConnId, wanted: Modes) -> Option<bool> {
        if self.modes_coexist {
            return Some(self.modes(path, conn) & wanted != 0);
        }
        if path.is_empty() {
            return Some(false);
        }
        if !path.contains('/') {
            return None;
        }
        if self.by_path.contains_key(path) {
            return Some(true);
        }
        (path.starts_with('/') || self.recursive == 0).then_some(false)
    }

    fn hang_up(&mut self, conn: ConnId) {
        for path in self.by_conn.remove(&conn).into_iter().flatten() {
            if let Some(watching) = self.by_path.get_mut(&path) {
                let modes = watching.remove(&conn).unwrap_or(0);
                self.recursive -= usize::from(modes & RECURSIVE != 0);
                if watching.is_empty() {
                    self.by_path.remove(&path);
                }
            }
        }
    }

    /// Panics if the parts do not fit together.
    #[cfg(any(test, fuzzing))]
    fn check(&self, is_here: impl Fn(ConnId) -> bool) {
        let (mut watches, mut recursive) = (0, 0);
        for (path, conns) in &self.by_path {
            assert!(!conns.is_empty());
            watches += conns.len();
            for (conn, modes) in conns {
                assert!(is_here(*conn), "{path}: a watch of a connection that is gone");
                assert!(self.by_conn.get(conn).is_some_and(|paths| paths.contains(path)), "{path}");
                assert!(*modes != 0 && *modes & !ANY == 0, "{path}: a watch of no mode");
                assert!(self.modes_coexist || modes.is_power_of_two(), "{path}: two modes");
                recursive += usize::from(*modes & RECURSIVE != 0);
            }
        }
        assert_eq!(watches, self.by_conn.values().map(HashSet::len).sum());
        assert_eq!(recursive, self.recursive);
    }

    pub(crate) fn by_path(&self) -> &HashMap<Arc<str>, BTreeMap<ConnId, Modes>> {
        &self.by_path
    }

    pub(crate) fn by_conn(&self) -> &HashMap<ConnId, HashSet<Arc<str>>> {
        &self.by_conn
    }

    pub(crate) fn len(&self) -> usize {
        self.by_path.values().map(BTreeMap::len).sum()
    }
}

/// The paths "/a/b", "/a" and "/" for "/a/b/c".
fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        Some(0) if path.len() > 1 => Some("/"),
        Some(end) if end > 0 => Some(&path[..end]),
        _ => None,
    })
    .skip(1)
}

/// The kind of watch that `checkWatches` and `removeWatches` name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Children,
    Data,
    Any,
    Persistent,
    Recursive,
}

impl Which {
    pub(crate) fn of(code: i32, brand: Brand) -> Option<Which> {
        match code {
            1 => Some(Which::Children),
            2 => Some(Which::Data),
            3 => Some(Which::Any),
            4 if brand.watch_modes_coexist() => Some(Which::Persistent),
            5 if brand.watch_modes_coexist() => Some(Which::Recursive),
            _ => None,
        }
    }
}

/// All watches.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) data: Table,
    pub(crate) children: Table,
}

impl Watches {
    pub(crate) fn new(brand: Brand) -> Watches {
        Watches { data: Table::new(brand), children: Table::new(brand) }
    }

    /// Adds a lasting watch. Where modes coexist, a recursive one stands among the data watches
    /// only.
    pub(crate) fn add(&mut self, path: &str, conn: ConnId, mode: Mode) {
        self.data.add(path, conn, mode);
        if !(self.children.modes_coexist && mode == Mode::Recursive) {
            self.children.add(path, conn, mode);
        }
    }

    pub(crate) fn created(&mut self, node: Place<'_>, parent: Place<'_>, events: &mut Vec<Event>) {
        self.data.trigger(node, event::CREATED, &BTreeSet::new(), events);
        self.children_changed(parent, events);
    }

    pub(crate) fn deleted(&mut self, node: Place<'_>, parent: Place<'_>, events: &mut Vec<Event>) {
        let told = self.data.trigger(node, event::DELETED, &BTreeSet::new(), events);
        self.children.trigger(node, event::DELETED, &told, events);
        self.children_changed(parent, events);
    }

    pub(crate) fn data_changed(&mut self, node: Place<'_>, events: &mut Vec<Event>) {
        self.data.trigger(node, event::DATA_CHANGED, &BTreeSet::new(), events);
    }

    fn children_changed(&mut self, parent: Place<'_>, events: &mut Vec<Event>) {
        let path = if parent.path.is_empty() { "/" } else { parent.path };
        self.children.trigger(
            Place { path, ..parent },
            event::CHILDREN_CHANGED,
            &BTreeSet::new(),
            events,
        );
    }

    /// The modes that are meant in the table of the children and in that of the data. `None`: that
    /// table is not looked at.
    fn meant(&self, which: Which) -> (Option<Modes>, Option<Modes>) {
        // In 3.8 any mode will do.
        let one_shot = if self.data.modes_coexist { ONE_SHOT } else { ANY };
        match which {
            Which::Children => (Some(one_shot), None),
            Which::Data => (None, Some(one_shot)),
            Which::Any => (Some(ANY), Some(ANY)),
            Which::Persistent => (Some(PERSISTENT), Some(PERSISTENT)),
            Which::Recursive => (None, Some(RECURSIVE)),
        }
    }

    /// `None` where the real server fails.
    pub(crate) fn contains(&self, path: &str, which: Which, conn: ConnId) -> Option<bool> {
        let (children, data) = self.meant(which);
        let in_children = children.map(|modes| self.children.contains(path, conn, modes));
        let in_data = data.map(|modes| self.data.contains(path, conn, modes));
        Some(in_children.unwrap_or(Some(false))? | in_data.unwrap_or(Some(false))?)
    }

    pub(crate) fn remove(&mut self, path: &str, which: Which, conn: ConnId) -> bool {
        let (children, data) = self.meant(which);
        let in_children = children.is_some_and(|modes| self.children.take(path, conn, modes));
        let in_data = data.is_some_and(|modes| self.data.take(path, conn, modes));
        in_children | in_data
    }

    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.data.hang_up(conn);
        self.children.hang_up(conn);
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn check(&self, is_here: impl Fn(ConnId) -> bool) {
        self.data.check(&is_here);
        self.children.check(&is_here);
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len() + self.children.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_end_at_the_root() {
        assert_eq!(parents("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(parents("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(parents("/").count(), 0);
    }

    #[test]
    fn nothing_is_left_of_a_connection_that_is_gone() {
        for brand in Brand::ALL {
            let mut watches = Watches::new(brand);
            watches.add("/a", 1, Mode::Recursive);
            watches.add("/a", 2, Mode::Persistent);
            watches.add("/a", 2, Mode::Recursive);
            watches.data.add("/b", 1, Mode::OneShot);
            watches.check(|_| true);
            watches.hang_up(1);
            watches.hang_up(2);
            for table in [&watches.data, &watches.children] {
                assert!(table.by_path.is_empty() && table.by_conn.is_empty());
                assert_eq!(table.recursive, 0);
            }
        }
    }
}
