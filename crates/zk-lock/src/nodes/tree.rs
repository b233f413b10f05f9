//! The locks in use below a path.

use std::ops::ControlFlow;

use zk_mutex::ZkSession;

use super::queue::{Queue, Standing};
use super::record::TOP;
use crate::exit::Failure;
use crate::zk;

/// What one look at all nodes below a path has found.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// In the order of their paths.
    pub queues: Vec<Queue>,
    /// The nodes that an ACL hides from this client, each with the reason. What is below them is
    /// not known.
    pub hidden: Vec<(String, String)>,
    /// Whether the path itself exists.
    pub exists: bool,
}

/// What a walk finds at a path.
pub enum At {
    /// The node has gone, or has never been.
    Nothing,
    /// Its ACL hides it from this client; why.
    Hidden(String),
    Standing(Standing),
}

/// Calls `visit` with this path and with each path below it that is no part of a lock, until
/// `visit` breaks off. It looks behind a `sync`. The tree is not ours and may be deep, so there is
/// no recursion.
pub fn walk(
    session: &ZkSession,
    path: &str,
    mut visit: impl FnMut(&str, At) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    zk::catch_up(session)?;
    let mut todo = vec![path.to_owned()];
    while let Some(path) = todo.pop() {
        let read = zk::children(session, &path).and_then(|children| match children {
            Some(children) => Standing::of(session, &path, &children),
            None => Ok(None),
        });
        let at = match read {
            Ok(None) => At::Nothing,
            Ok(Some(standing)) => {
                // Below a lock there may be others: /locks can be a lock and a folder.
                let others = standing.others.iter().filter(|child| !is_foreign(&path, child));
                todo.extend(others.map(|child| zk::join(&path, child)));
                At::Standing(standing)
            }
            Err(e) if e.kind == "denied" => At::Hidden(e.message),
            Err(e) => return Err(e),
        };
        if visit(&path, at)?.is_break() {
            break;
        }
    }
    Ok(())
}

impl Tree {
    pub fn read(session: &ZkSession, path: &str) -> Result<Tree, Failure> {
        let mut tree = Tree { exists: true, ..Tree::default() };
        walk(session, path, |at, found| {
            match found {
                At::Nothing => tree.exists &= at != path,
                At::Hidden(why) => tree.hidden.push((at.to_owned(), why)),
                At::Standing(standing) => tree.queues.extend(standing.in_use().cloned()),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        tree.queues.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }
}

/// The nodes of ZooKeeper itself, and the records of zk-lock.
fn is_foreign(path: &str, child: &str) -> bool {
    path == "/" && ["zookeeper", TOP].contains(&child)
}
