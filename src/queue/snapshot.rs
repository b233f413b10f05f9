//! What a lock's folders show at one moment: the names of their children, and the nodes.
//!
//! ZooKeeper gives the names by one request, and each node by another. Nodes come and go meanwhile,
//! so what such requests find one after the other may never have been true: a lock that always has
//! a holder would seem to have none if each holder goes before its node is read. So a snapshot is
//! what one listing shows, and it is given only if all its nodes were read. If one of them has
//! gone, the folder is listed again. A node that was read already is not read again: no two nodes
//! have the same name, so it is the same node.
//!
//! The data of a node may have changed between the listing and the read, because somebody asked its
//! owner to let go. All else that is read never changes.

use crate::error::Result;
use crate::queue::request::{Question, query};
use std::result::Result as StdResult;
use zk_session::unstable::{CallError, Core, Generation, Limit, Node, Operation, Reply};
use zk_session::world::HashMap;
use zk_wire::path;

/// At most so many nodes are read in one flight. All answers of a flight are due within T/6.
const AT_ONCE: usize = 256;

/// So many listings are made even if the time of the call is over.
const TRIES: usize = 2;

/// A folder of a lock.
pub(crate) struct Folder<'a> {
    /// Its full path.
    pub(crate) dir: &'a str,
    /// The children that are wanted, of all that a listing shows.
    pub(crate) choose: &'a dyn Fn(&[&str]) -> Vec<String>,
}

/// The chosen children of one folder, in the order in which they were chosen.
pub(crate) type Children = Vec<(String, Node)>;

/// Reads the folders as they are at one moment after the call. A folder that does not exist has no
/// children. `path` is the lock's full path.
///
/// Where contenders come and go faster than they can be read, this fails when the time is over.
pub(crate) fn snapshot(
    op: &'static str,
    core: &Core,
    path: &str,
    of: &Question<'_>,
    folders: &[Folder<'_>],
) -> Result<Vec<Children>> {
    query(op, core, path, &of.whole, |generation, _, at| {
        let mut seen = HashMap::default();
        for tries in 1.. {
            if let Some(all) = list_and_read(generation, folders, &mut seen, &of.request, at)? {
                return Ok(all);
            }
            if tries >= TRIES && of.whole.is_past() {
                break;
            }
        }
        Err(CallError::Deadline)
    })
}

/// Lists the folders, and reads those of the chosen nodes that are not among the `seen`, by their
/// paths. `None`: something has changed meanwhile. `at` gets the path for which a request failed.
fn list_and_read(
    generation: &Generation,
    folders: &[Folder<'_>],
    seen: &mut HashMap<String, Node>,
    limit: &Limit<'_>,
    at: &mut String,
) -> StdResult<Option<Vec<Children>>, CallError> {
    let Some(listed) = list(generation, folders, limit, at)? else { return Ok(None) };
    let missing = listed.iter().flatten().filter(|child| !seen.contains_key(&child.path));
    let missing: Vec<&str> = missing.map(|child| child.path.as_str()).collect();
    let mut are_there = true;
    for paths in missing.chunks(AT_ONCE) {
        let reads = paths.iter().map(|path| (Operation::GetData { path, watch: false }, None));
        let mut answers = generation.flight(&reads.collect::<Vec<_>>(), limit)?;
        for (number, path) in paths.iter().enumerate() {
            match answers.take(number).and_then(Reply::node) {
                Ok(node) => drop(seen.insert((*path).to_owned(), node)),
                Err(CallError::NoNode) => are_there = false,
                Err(e) => {
                    (*path).clone_into(at);
                    return Err(e);
                }
            }
        }
    }
    if !are_there {
        return Ok(None);
    }
    let mut node = |child: Child| Some((child.name, seen.remove(&child.path)?));
    let children = |all: Vec<Child>| all.into_iter().filter_map(&mut node).collect();
    Ok(Some(listed.into_iter().map(children).collect()))
}

struct Child {
    name: String,
    path: String,
}

/// The chosen children of the folders, as they are at one moment. `None`: a folder has changed
/// meanwhile.
fn list(
    generation: &Generation,
    folders: &[Folder<'_>],
    limit: &Limit<'_>,
    at: &mut String,
) -> StdResult<Option<Vec<Vec<Child>>>, CallError> {
    // Suppose that no folder but the last has changed between the first listing and the end of the
    // last one. Then what the listings show was so together, when the last folder was listed. The
    // zxid of the last change to a folder's children shows whether it has changed. (Names do not
    // show it: a node may have come and gone.)
    let unchanged = folders.get(..folders.len().saturating_sub(1)).unwrap_or_default();
    let exists = || unchanged.iter().map(|folder| Operation::Exists { path: folder.dir });
    let lists =
        folders.iter().map(|folder| Operation::GetChildren { path: folder.dir, watch: false });
    let reads: Vec<_> = exists().chain(lists).chain(exists()).collect();
    let mut answers = generation.synced(&reads, limit)?;
    for number in 0..unchanged.len() {
        let mut last_change = |number| match answers.take(number) {
            Ok(Reply::Stat(stat)) => Ok(Some((stat.czxid, stat.pzxid))),
            Ok(_) | Err(CallError::NoNode) => Ok(None),
            Err(e) => Err(e),
        };
        if last_change(number)? != last_change(unchanged.len() + folders.len() + number)? {
            return Ok(None);
        }
    }
    let mut all = Vec::with_capacity(folders.len());
    for (number, Folder { dir, choose }) in folders.iter().enumerate() {
        let listed = match answers.listed(unchanged.len() + number) {
            Ok(listed) => listed.children,
            Err(CallError::NoNode) => Default::default(),
            Err(e) => {
                (*dir).clone_into(at);
                return Err(e);
            }
        };
        let child = |name: String| Child { path: path::join(dir, &name), name };
        all.push(choose(&listed.names()).into_iter().map(child).collect());
    }
    Ok(Some(all))
}
