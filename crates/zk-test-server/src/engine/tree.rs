//! The tree of znodes (`DataTree`), without its watches.

use super::HashMap;
use super::acl::{self, Acl};
use super::node::{Kind, Names, Node, Stat};
use std::collections::BTreeSet;
use std::sync::Arc;
use zk_wire::code::err;

const ROOT: &str = "/";

/// Whether a node is one of the server's own, which cannot be deleted.
pub(crate) fn is_special(path: &str) -> bool {
    matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config")
}

/// A node that a checked transaction creates.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) path: String,
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) owner: i64,
    pub(crate) parent_cversion: i32,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: HashMap<Arc<str>, Node>,
    /// The ephemeral nodes of each session that has any.
    ephemerals: HashMap<i64, BTreeSet<Arc<str>>>,
    /// Containers and nodes with a time to live.
    reapable: BTreeSet<Arc<str>>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let node = |acl: Arc<[Acl]>, aversion, children: &[&str]| {
            let children = children.iter().map(|name| Box::from(*name)).collect();
            Node {
                data: Some([].into()),
                acl,
                stat: Stat { aversion, ..Stat::default() },
                children,
            }
        };
        let nodes = HashMap::from_iter([
            (ROOT.into(), node(acl::open(), 0, &["zookeeper"])),
            ("/zookeeper".into(), node(acl::open(), 0, &["quota", "config"])),
            ("/zookeeper/quota".into(), node(acl::open(), 0, &[])),
            ("/zookeeper/config".into(), node(acl::read_only(), -1, &[])),
        ]);
        Tree { nodes, ephemerals: HashMap::default(), reapable: BTreeSet::new() }
    }

    /// The node at `path`; "" is the root too.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(alias(path))
    }

    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(alias(path))
    }

    pub(crate) fn create(&mut self, new: NewNode, zxid: i64, time: i64) -> Result<(), i32> {
        let NewNode { path, data, acl, owner, parent_cversion } = new;
        let (parent, name) = split(&path).ok_or(err::BAD_ARGUMENTS)?;
        let parent = self.get_mut(parent).ok_or(err::NO_NODE)?;
        if parent.children.contains(name) {
            return Err(err::NODE_EXISTS);
        }
        let cversion = match parent_cversion {
            -1 => parent.stat.cversion.wrapping_add(1),
            counted => counted,
        };
        // For this reason the counter stops at its end, and wraps where requests overlap: the
        // transaction has the next number, but the node takes it only if it is higher.
        if cversion > parent.stat.cversion {
            parent.stat.cversion = cversion;
            parent.stat.pzxid = zxid;
        }
        parent.children.insert(name.into());
        let path: Arc<str> = path.into();
        match Kind::of(owner) {
            Kind::Persistent => {}
            Kind::Ephemeral => {
                self.ephemerals.entry(owner).or_default().insert(Arc::clone(&path));
            }
            Kind::Container | Kind::Ttl { .. } => {
                self.reapable.insert(Arc::clone(&path));
            }
        }
        let stat = Stat::new(zxid, time, owner);
        self.nodes.insert(path, Node { data, acl, stat, children: Names::default() });
        Ok(())
    }

    /// Removes the node and returns it.
    pub(crate) fn delete(&mut self, path: &str, zxid: i64) -> Result<Node, i32> {
        let (parent, name) = split(path).ok_or(err::BAD_ARGUMENTS)?;
        let parent = self.get_mut(parent).ok_or(err::NO_NODE)?;
        parent.children.remove(name);
        parent.stat.pzxid = parent.stat.pzxid.max(zxid);
        let node = self.nodes.remove(path).ok_or(err::NO_NODE)?;
        let owner = node.stat.owner;
        if let Some(owned) = self.ephemerals.get_mut(&owner) {
            owned.remove(path);
            if owned.is_empty() {
                self.ephemerals.remove(&owner);
            }
        }
        self.reapable.remove(path);
        Ok(node)
    }

    /// The ephemeral nodes of a session.
    pub(crate) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// The sessions that have ephemeral nodes, with these nodes.
    pub(crate) fn all_ephemerals(&self) -> impl Iterator<Item = (i64, &BTreeSet<Arc<str>>)> {
        self.ephemerals.iter().map(|(session, paths)| (*session, paths))
    }

    /// Whether there is a container or a node with a time to live.
    pub(crate) fn has_reapable(&self) -> bool {
        !self.reapable.is_empty()
    }

    /// The time in milliseconds since 1970 from which there is something to delete, if nothing
    /// changes.
    pub(crate) fn next_reapable(&self) -> Option<i64> {
        self.reapable.iter().filter_map(|path| self.nodes.get(path)?.reapable_from()).min()
    }

    /// The containers that were used and are empty, and the empty nodes whose time to live is over
    /// (`ContainerManager`).
    pub(crate) fn due_for_reaping(&self, now: i64) -> Vec<Arc<str>> {
        let from = |path: &Arc<str>| self.nodes.get(path)?.reapable_from();
        self.reapable
            .iter()
            .filter(|path| from(path).is_some_and(|from| from <= now))
            .cloned()
            .collect()
    }

    /// Lets the next sequential child of `parent` have the number `next`; false if there is no such
    /// node.
    pub(crate) fn set_sequence(&mut self, parent: &str, next: i32) -> bool {
        self.get_mut(parent).map(|node| node.stat.cversion = next).is_some()
    }

    /// All nodes, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (&**path, node))
    }

    /// All nodes, the server's own included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The bytes of all paths and data, roughly what the tree holds.
    pub(crate) fn size(&self) -> usize {
        self.nodes
            .iter()
            .map(|(path, node)| path.len() + node.data.as_ref().map_or(0, |d| d.len()))
            .sum()
    }

    /// Panics if the parts of the tree do not fit together.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check(&self) {
        let mut children = 0;
        for (path, node) in &self.nodes {
            children += node.children.len();
            if &**path == ROOT {
                continue;
            }
            let (parent, name) = split(path).expect("a path has a parent");
            assert!(
                self.get(parent).is_some_and(|parent| parent.children.contains(name)),
                "{path}: the parent does not exist"
            );
            let owner = node.stat.owner;
            let is_owned = self.ephemerals.get(&owner).is_some_and(|paths| paths.contains(path));
            assert_eq!(
                is_owned,
                Kind::of(owner) == Kind::Ephemeral,
                "{path}: the index of ephemeral nodes is wrong"
            );
            let is_reapable = matches!(Kind::of(owner), Kind::Container | Kind::Ttl { .. });
            assert_eq!(self.reapable.contains(path), is_reapable, "{path}");
        }
        assert_eq!(children + 1, self.nodes.len(), "a child list names a node that does not exist");
        let indexed = self.ephemerals.values().flatten().chain(&self.reapable);
        assert!(
            indexed.into_iter().all(|path| self.nodes.contains_key(path)),
            "an index has nodes that are gone"
        );
    }

    /// How many nodes are below `path`, at any depth.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        if path == ROOT {
            return self.nodes.len() - 1;
        }
        let below =
            |key: &&Arc<str>| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        self.nodes.keys().filter(below).count()
    }
}

/// The root's name as the parent of its children is "".
fn alias(path: &str) -> &str {
    if path.is_empty() { ROOT } else { path }
}

/// The parent's path ("" for the root) and the node's own name.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    path.rsplit_once('/')
}
