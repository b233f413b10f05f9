//! Plain reads and deletes, by the client on the session.

use zk_mutex::zookeeper::{Acl, Stat, ZkError};
use zk_mutex::{ZkMutex, ZkSession};

use crate::exit::{DENIED, Failure, SOFTWARE, UNREACHABLE};

/// The part of a node's metadata that this program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The number of its creation.
    pub czxid: i64,
    /// When it was made, in milliseconds since 1970 by the server's clock.
    pub ctime: i64,
    pub version: i32,
    /// The session with which the node ends; 0 if it belongs to none.
    pub owner: i64,
}

impl From<Stat> for Meta {
    fn from(stat: Stat) -> Meta {
        let Stat { czxid, ctime, version, ephemeral_owner, .. } = stat;
        Meta { czxid, ctime, version, owner: ephemeral_owner }
    }
}

/// Lets the session's server catch up with the leader. What is read after this on the session is not
/// of the time before.
pub fn catch_up(session: &ZkSession, path: &str) -> Result<(), Failure> {
    // The client of the session has no `sync`. The library lists a lock's holders behind one; there
    // is no such lock, so nothing else is read.
    ZkMutex::new(session, &join(path, "catch-up"))?.holders()?;
    Ok(())
}

/// A node's data; `None` if there is no node.
pub fn data(session: &ZkSession, path: &str) -> Result<Option<(Vec<u8>, Meta)>, Failure> {
    let read = found("read", path, session.client()?.get_data(path, false))?;
    Ok(read.map(|(data, stat)| (data, stat.into())))
}

/// The names of a node's children; `None` if there is no node.
pub fn children(session: &ZkSession, path: &str) -> Result<Option<Vec<String>>, Failure> {
    found("list", path, session.client()?.get_children(path, false))
}

pub fn acl(session: &ZkSession, path: &str) -> Result<Option<Vec<Acl>>, Failure> {
    Ok(found("read the ACL of", path, session.client()?.get_acl(path))?.map(|(acl, _)| acl))
}

/// Deletes a node of this version; false if there is no node, or a node of another version.
pub fn delete(session: &ZkSession, path: &str, version: i32) -> Result<bool, Failure> {
    match session.client()?.delete(path, Some(version)) {
        Err(ZkError::BadVersion) => Ok(false),
        deleted => Ok(found("delete", path, deleted)?.is_some()),
    }
}

/// The failure of the program after a failed request.
pub fn failure(op: &str, path: &str, error: ZkError) -> Failure {
    let (code, kind, advice) = match error {
        ZkError::NoAuth | ZkError::AuthFailed => {
            (DENIED, "denied", "give credentials that its ACL names with --auth")
        }
        ZkError::ConnectionLoss | ZkError::OperationTimeout | ZkError::SessionExpired => {
            (UNREACHABLE, "unreachable", "try again")
        }
        _ => (SOFTWARE, "server", "see the server's log"),
    };
    Failure::new(code, kind, format!("{op} {path}: the server says {error:?}; {advice}"))
}

fn found<T>(op: &str, path: &str, answer: Result<T, ZkError>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(failure(op, path, error)),
    }
}

/// The path of a child.
pub fn join(parent: &str, child: &str) -> String {
    if parent == "/" { format!("/{child}") } else { format!("{parent}/{child}") }
}
