//! Watches (`WatchManager`, `WatcherModeManager`): which client gets which event. ZooKeeper 3.8.0
//! has the odd cases here too.

use super::ConnId;
use super::acl::Acl;
use super::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use zk_wire::code::event;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    OneShot,
    Persistent,
    Recursive,
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
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_path: HashMap<Arc<str>, BTreeSet<ConnId>>,
    by_conn: HashMap<ConnId, HashSet<Arc<str>>>,
    /// The modes of watches that are not one-shot.
    modes: HashMap<ConnId, HashMap<Arc<str>, Mode>>,
    recursive: usize,
}

impl Table {
    pub(crate) fn add(&mut self, path: &str, conn: ConnId, mode: Mode) {
        let path = self
            .by_path
            .get_key_value(path)
            .map_or_else(|| path.into(), |(key, _)| Arc::clone(key));
        self.by_path.entry(Arc::clone(&path)).or_default().insert(conn);
        self.by_conn.entry(conn).or_default().insert(Arc::clone(&path));
        self.set_mode(conn, path, mode);
    }

    /// Sets the mode of a watch. A one-shot watch replaces a persistent one on the same path.
    fn set_mode(&mut self, conn: ConnId, path: Arc<str>, mode: Mode) {
        let modes = self.modes.entry(conn).or_default();
        let old = match mode {
            Mode::OneShot => modes.remove(&path),
            mode => modes.insert(path, mode),
        };
        if modes.is_empty() {
            self.modes.remove(&conn);
        }
        self.recursive += usize::from(mode == Mode::Recursive);
        self.recursive -= usize::from(old == Some(Mode::Recursive));
    }

    fn mode(&self, conn: ConnId, path: &str) -> Mode {
        self.modes.get(&conn).and_then(|modes| modes.get(path)).copied().unwrap_or(Mode::OneShot)
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
            for conn in watching.clone() {
                match self.mode(conn, path) {
                    Mode::Recursive if kind == event::CHILDREN_CHANGED => continue,
                    Mode::OneShot => self.forget(path, conn),
                    Mode::Persistent | Mode::Recursive => {}
                }
                meant.insert(conn);
            }
        }
        if self.recursive > 0 && kind != event::CHILDREN_CHANGED {
            for above in parents(path) {
                let watching = self.by_path.get(above).into_iter().flatten();
                meant.extend(watching.filter(|conn| self.mode(**conn, above) == Mode::Recursive));
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

    fn forget(&mut self, path: &str, conn: ConnId) {
        if let Some(watching) = self.by_path.get_mut(path) {
            watching.remove(&conn);
            if watching.is_empty() {
                self.by_path.remove(path);
            }
        }
        if let Some(paths) = self.by_conn.get_mut(&conn) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
    }

    /// Whether this connection watches `path`. As in the real server, a watch of another connection
    /// counts too. `None`: the real server fails at a path that does not begin at the root.
    fn contains(&self, path: &str, conn: ConnId) -> Option<bool> {
        if path.is_empty() {
            return Some(false);
        }
        if !path.contains('/') {
            return None;
        }
        if self.by_path.contains_key(path) || self.mode(conn, path) == Mode::Recursive {
            return Some(true);
        }
        (path.starts_with('/') || self.recursive == 0).then_some(false)
    }

    fn remove(&mut self, path: &str, conn: ConnId) -> bool {
        let Some((path, _)) =
            self.by_path.get_key_value(path).filter(|(_, conns)| conns.contains(&conn))
        else {
            return false;
        };
        let path = Arc::clone(path);
        self.forget(&path, conn);
        self.set_mode(conn, path, Mode::OneShot);
        true
    }

    fn hang_up(&mut self, conn: ConnId) {
        for path in self.by_conn.remove(&conn).into_iter().flatten() {
            if let Some(watching) = self.by_path.get_mut(&path) {
                watching.remove(&conn);
                if watching.is_empty() {
                    self.by_path.remove(&path);
                }
            }
        }
        let modes = self.modes.remove(&conn).into_iter().flatten();
        self.recursive -= modes.filter(|(_, mode)| *mode == Mode::Recursive).count();
    }

    /// Panics if the parts do not fit together.
    #[cfg(any(test, fuzzing))]
    fn check(&self, is_here: impl Fn(ConnId) -> bool) {
        let mut watches = 0;
        for (path, conns) in &self.by_path {
            assert!(!conns.is_empty());
            watches += conns.len();
            for conn in conns {
                assert!(is_here(*conn), "{path}: a watch of a connection that is gone");
                assert!(self.by_conn.get(conn).is_some_and(|paths| paths.contains(path)), "{path}");
            }
        }
        assert_eq!(watches, self.by_conn.values().map(HashSet::len).sum());
        let modes = || {
            self.modes.iter().flat_map(|(conn, modes)| modes.iter().map(move |mode| (conn, mode)))
        };
        let is_watch =
            |conn, path| self.by_conn.get(conn).is_some_and(|paths| paths.contains(path));
        assert!(
            modes().all(|(conn, (path, _))| is_watch(conn, path)),
            "there is a mode without a watch"
        );
        assert_eq!(
            modes().filter(|(_, (_, mode))| **mode == Mode::Recursive).count(),
            self.recursive
        );
    }

    pub(crate) fn by_path(&self) -> &HashMap<Arc<str>, BTreeSet<ConnId>> {
        &self.by_path
    }

    pub(crate) fn by_conn(&self) -> &HashMap<ConnId, HashSet<Arc<str>>> {
        &self.by_conn
    }

    pub(crate) fn len(&self) -> usize {
        self.by_path.values().map(BTreeSet::len).sum()
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
}

impl Which {
    pub(crate) fn of(code: i32) -> Option<Which> {
        match code {
            1 => Some(Which::Children),
            2 => Some(Which::Data),
            3 => Some(Which::Any),
            _ => None,
        }
    }
}

/// The two tables with all watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    pub(crate) data: Table,
    pub(crate) children: Table,
}

impl Watches {
    pub(crate) fn add(&mut self, path: &str, conn: ConnId, mode: Mode) {
        self.data.add(path, conn, mode);
        self.children.add(path, conn, mode);
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

    /// `None` if the real server fails.
    pub(crate) fn contains(&self, path: &str, which: Which, conn: ConnId) -> Option<bool> {
        match which {
            Which::Children => self.children.contains(path, conn),
            Which::Data => self.data.contains(path, conn),
            Which::Any => {
                Some(self.children.contains(path, conn)? | self.data.contains(path, conn)?)
            }
        }
    }

    pub(crate) fn remove(&mut self, path: &str, which: Which, conn: ConnId) -> bool {
        match which {
            Which::Children => self.children.remove(path, conn),
            Which::Data => self.data.remove(path, conn),
            Which::Any => self.children.remove(path, conn) | self.data.remove(path, conn),
        }
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
        let mut watches = Watches::default();
        watches.add("/a", 1, Mode::Recursive);
        watches.add("/a", 2, Mode::Persistent);
        watches.data.add("/b", 1, Mode::OneShot);
        watches.hang_up(1);
        watches.hang_up(2);
        for table in [&watches.data, &watches.children] {
            assert!(table.by_path.is_empty() && table.by_conn.is_empty() && table.modes.is_empty());
            assert_eq!(table.recursive, 0);
        }
    }
}
