//! Plain reads and deletes, by the requests of the session.

use zk_mutex::ZkSession;
use zk_mutex::zk_session::{AclEntry, Error, Result, Stat};

use crate::exit::Failure;

/// Lets the session's server catch up with the leader. Later reads of the session then show all
/// that was done before this call.
pub fn catch_up(session: &ZkSession) -> Result<(), Failure> {
    Ok(session.zookeeper().requests().sync()?)
}

/// A node's data; `None` if there is no node.
pub fn data(session: &ZkSession, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
    let read = found(session.zookeeper().requests().get(path))?;
    Ok(read.map(|node| (node.data, node.stat)))
}

/// The names of a node's children; `None` if there is no node.
pub fn children(session: &ZkSession, path: &str) -> Result<Option<Vec<String>>, Failure> {
    found(session.zookeeper().requests().children(path))
}

pub fn acl(session: &ZkSession, path: &str) -> Result<Option<Vec<AclEntry>>, Failure> {
    Ok(found(session.zookeeper().requests().acl(path))?.map(|(entries, _)| entries))
}

/// Deletes a node of this version; false if there is no node, or a node of another version.
pub fn delete(session: &ZkSession, path: &str, version: i32) -> Result<bool, Failure> {
    match session.zookeeper().requests().delete(path, Some(version)) {
        Err(Error::BadVersion { .. }) => Ok(false),
        deleted => Ok(found(deleted)?.is_some()),
    }
}

fn found<T>(answer: Result<T>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The path itself, or the nearest node above it that exists.
pub fn nearest(session: &ZkSession, path: &str) -> Result<String, Failure> {
    let mut path = path.trim_end_matches('/');
    while !path.is_empty() {
        if data(session, path)?.is_some() {
            return Ok(path.to_owned());
        }
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    Ok("/".to_owned())
}

/// The path of a child.
pub fn join(parent: &str, child: &str) -> String {
    if parent == "/" { format!("/{child}") } else { format!("{parent}/{child}") }
}
