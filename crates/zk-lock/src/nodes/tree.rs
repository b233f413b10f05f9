//! The locks in use below a path.

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

impl Tree {
    /// Looks behind a `sync`. The tree is not ours and may be deep, so there is no recursion.
    pub fn read(session: &ZkSession, path: &str) -> Result<Tree, Failure> {
        zk::catch_up(session)?;
        let mut tree = Tree { exists: true, ..Tree::default() };
        let mut todo = vec![path.to_owned()];
        while let Some(next) = todo.pop() {
            let read = zk::children(session, &next).and_then(|children| match children {
                Some(children) => Standing::of(session, &next, &children),
                None => Ok(None),
            });
            match read {
                Ok(None) => tree.exists &= next != path,
                Ok(Some(standing)) => {
                    // Below a lock there may be others: /locks can be a lock and a folder.
                    let others = standing.others.iter().filter(|child| !is_foreign(&next, child));
                    todo.extend(others.map(|child| zk::join(&next, child)));
                    tree.queues.extend(standing.in_use().cloned());
                }
                Err(e) if e.kind == "denied" => tree.hidden.push((next, e.message)),
                Err(e) => return Err(e),
            }
        }
        tree.queues.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }
}

/// The nodes of ZooKeeper itself, and the records of zk-lock.
fn is_foreign(path: &str, child: &str) -> bool {
    path == "/" && ["zookeeper", TOP].contains(&child)
}
