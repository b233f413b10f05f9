//! The requests of the library and their answers. Only this file encodes requests and decodes
//! answers; the machine and the fuzz targets call it.
//!
//! Everything that is decoded here comes from outside: [`Reader`] bounds each length and checks the
//! arithmetic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::acl::Acl;
use crate::error::ANSWER_TOO_LONG;
use zk_wire::Malformed;
use zk_wire::code::{err, event, op};
use zk_wire::record::{Reader, Stat, Writer};

/// One request.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Create {
        path: &'a str,
        data: &'a [u8],
        acl: &'a Acl,
        mode: CreateMode,
    },
    /// With a `version` the server refuses the delete if the node has another version.
    Delete {
        path: &'a str,
        version: Option<i32>,
    },
    Exists {
        path: &'a str,
    },
    /// `watch` sets a watch on the node, if it exists.
    GetData {
        path: &'a str,
        watch: bool,
    },
    /// With a `version` the server refuses the write if the node has another version.
    SetData {
        path: &'a str,
        data: &'a [u8],
        version: Option<i32>,
    },
    /// As `Exists`, and sets a watch: on the node, or on its creation.
    WatchNode {
        path: &'a str,
    },
    /// `watch` sets a watch on the list, if the node exists.
    GetChildren {
        path: &'a str,
        watch: bool,
    },
    /// Lists the children and reads the node, and sets a watch on the list, if the node exists.
    WatchChildren {
        path: &'a str,
    },
    Sync,
    Ping,
    /// Ends the session.
    Close,
}

/// The kind of node that a create makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    Persistent = 0,
    Ephemeral = 1,
    /// The server appends the next number of the parent to the name.
    EphemeralSequential = 3,
    /// The server deletes it once its last child is gone.
    Container = 4,
}

/// The result of a successful request.
#[derive(Debug)]
pub enum Reply {
    /// The node's path as the server made it, and its czxid.
    Created(String, i64),
    Node(Node),
    Stat(Stat),
    Children(Listing),
    /// The children of a node, and the node.
    Listed(Listing, Stat),
    /// The answer has no content.
    Done,
}

/// A node as the server sent it.
#[derive(Debug)]
pub struct Node {
    pub data: Vec<u8>,
    pub stat: Stat,
}

impl Node {
    /// The time at which the node was made, by the server's clock.
    pub fn created(&self) -> SystemTime {
        let since = Duration::from_millis(u64::try_from(self.stat.ctime).unwrap_or(0));
        UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
    }
}

/// The names of a node's children, as the server sent them: checked, and not copied one by one.
#[derive(Debug, Default)]
pub struct Listing(Vec<u8>);

impl Listing {
    pub fn names(&self) -> Vec<&str> {
        children(&self.0).unwrap_or_default() // `decode` has checked it
    }
}

/// Why a request gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    NoNode,
    NodeExists,
    /// The node has another version: another client changed it first.
    BadVersion,
    /// It is unknown whether the server has done the request.
    ConnectionLoss,
    /// The session is lost.
    Expired,
    AuthFailed,
    NoAuth,
    Deadline,
    Cancelled,
    Other(String),
}

impl CallError {
    pub fn of_code(code: i32) -> Self {
        match code {
            err::NO_NODE => CallError::NoNode,
            err::NODE_EXISTS => CallError::NodeExists,
            err::BAD_VERSION => CallError::BadVersion,
            err::CONNECTION_LOSS | err::SESSION_MOVED => CallError::ConnectionLoss,
            err::SESSION_EXPIRED => CallError::Expired,
            err::AUTH_FAILED => CallError::AuthFailed,
            err::NO_AUTH => CallError::NoAuth,
            err::TOO_LONG => CallError::Other(ANSWER_TOO_LONG.to_owned()),
            code => CallError::Other(err::name(code)),
        }
    }
}

impl Operation<'_> {
    /// The operation's code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Operation::Create { mode: CreateMode::Container, .. } => op::CREATE_CONTAINER,
            Operation::Create { .. } => op::CREATE2,
            Operation::Delete { .. } => op::DELETE,
            Operation::Exists { .. } | Operation::WatchNode { .. } => op::EXISTS,
            Operation::GetData { .. } => op::GET_DATA,
            Operation::SetData { .. } => op::SET_DATA,
            Operation::GetChildren { .. } => op::GET_CHILDREN,
            Operation::WatchChildren { .. } => op::GET_CHILDREN2,
            Operation::Sync => op::SYNC,
            Operation::Ping => op::PING,
            Operation::Close => op::CLOSE,
        }
    }

    /// Appends its frame to `bytes`, with this xid.
    pub(crate) fn encode(&self, xid: i32, bytes: Vec<u8>) -> Vec<u8> {
        let w = Writer::append_to(bytes).i32(xid).i32(self.code());
        match self {
            Operation::Create { path, data, acl, mode } => {
                acl.encode(w.buffer(path.as_bytes()).buffer(data)).i32(*mode as i32)
            }
            Operation::Delete { path, version } => {
                w.buffer(path.as_bytes()).i32(version.unwrap_or(-1))
            }
            Operation::Exists { path } => w.buffer(path.as_bytes()).bool(false),
            Operation::WatchNode { path } | Operation::WatchChildren { path } => {
                w.buffer(path.as_bytes()).bool(true)
            }
            Operation::GetData { path, watch } | Operation::GetChildren { path, watch } => {
                w.buffer(path.as_bytes()).bool(*watch)
            }
            Operation::SetData { path, data, version } => {
                w.buffer(path.as_bytes()).buffer(data).i32(version.unwrap_or(-1))
            }
            Operation::Sync => w.buffer(b"/"),
            Operation::Ping | Operation::Close => w,
        }
        .frame()
    }
}

/// Decodes the answer to a successful request of this operation. Only the application's client
/// sends some of these operations. Their answers are only checked here: the client crate believes
/// each length, and hangs, panics or aborts on a wrong one.
pub(crate) fn decode(op: i32, body: &[u8]) -> Result<Reply, Malformed> {
    let mut r = Reader::new(body);
    Ok(match op {
        op::CREATE => Reply::Created(r.string()?.to_owned(), 0),
        op::CREATE2 | op::CREATE_CONTAINER => {
            let path = r.string()?.to_owned();
            Reply::Created(path, r.stat()?.czxid)
        }
        op::EXISTS | op::SET_DATA | op::SET_ACL => Reply::Stat(r.stat()?),
        op::GET_DATA => {
            let data = r.buffer()?.to_vec();
            Reply::Node(Node { data, stat: r.stat()? })
        }
        op::GET_CHILDREN => {
            children(body)?;
            Reply::Children(Listing(body.to_vec()))
        }
        op::GET_CHILDREN2 => {
            for _ in 0..r.count(4)? {
                r.string()?;
            }
            Reply::Listed(Listing(body.to_vec()), r.stat()?)
        }
        op::GET_ACL => {
            for _ in 0..r.count(12)? {
                r.i32()?;
                r.string()?;
                r.string()?;
            }
            Reply::Stat(r.stat()?)
        }
        _ => Reply::Done,
    })
}

/// A listing's names.
pub(crate) fn children(body: &[u8]) -> Result<Vec<&str>, Malformed> {
    let mut r = Reader::new(body);
    (0..r.count(4)?).map(|_| r.string()).collect()
}

/// The type and the path of a watch event.
pub(crate) fn watch_event(body: &[u8]) -> Result<(i32, &str), Malformed> {
    let mut r = Reader::new(body);
    let (kind, state) = (r.i32()?, r.i32()?);
    let path = r.string()?;
    if !(event::CREATED..=event::CHILDREN_CHANGED).contains(&kind) || state != event::SYNC_CONNECTED
    {
        return Err(Malformed("a watch event of unknown type"));
    }
    Ok((kind, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_no_answer() {
        let huge_count = [0x7f, 0xff, 0xff, 0xff];
        assert!(decode(op::GET_CHILDREN, &huge_count).is_err());
        assert!(decode(op::GET_CHILDREN, &[0xff; 4]).is_err());
        assert!(decode(op::CREATE, &[0, 0, 0, 1, 0xff]).is_err());
        assert!(decode(op::CREATE2, &[0, 0, 0, 1, b'/']).is_err());
        assert!(decode(op::EXISTS, &[0; 67]).is_err());
        assert!(decode(op::EXISTS, &[0; 68]).is_ok());
        assert!(decode(op::GET_CHILDREN2, &huge_count).is_err());
        assert!(decode(op::GET_CHILDREN2, &[0; 4 + 67]).is_err());
        assert!(decode(op::GET_CHILDREN2, &[0; 4 + 68]).is_ok());
        assert!(decode(op::SET_DATA, &[0; 67]).is_err());
        assert!(decode(op::SET_ACL, &[0; 67]).is_err());
        assert!(decode(op::GET_ACL, &[[0xff; 4].as_slice(), &[0; 68]].concat()).is_err());
        assert!(decode(op::GET_ACL, &[0; 4 + 67]).is_err());
        assert!(decode(op::GET_ACL, &[[0, 0, 0, 1].as_slice(), &[0; 12 + 68]].concat()).is_ok());
        assert!(watch_event(&[0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, b'/']).is_ok());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(
            kind in -20i32..120, bytes in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            let _ = decode(kind, &bytes);
            let _ = watch_event(&bytes);
        }
    }
}
