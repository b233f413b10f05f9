//! The requests of the library and their answers. Only this file encodes requests and decodes
//! answers; the machine and the fuzz targets call it.
//!
//! Everything that is decoded here comes from outside: [`Reader`] bounds each length and checks the
//! arithmetic.

use std::time::Duration;

use crate::acl::{Acl, AclEntry};
use crate::error::{ANSWER_TOO_LONG, Cause, Error};
use zk_wire::Malformed;
use zk_wire::code::{err, event, op};
use zk_wire::record::{Reader, Stat, Writer};

/// One request.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
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
    GetAcl {
        path: &'a str,
    },
    /// With a `version` the server refuses the write if the ACL has another version.
    SetAcl {
        path: &'a str,
        acl: &'a Acl,
        version: Option<i32>,
    },
    /// The server does all of these, or none. They are creates, deletes, writes of data and checks.
    Multi {
        parts: &'a [Operation<'a>],
    },
    /// The node exists and, with a `version`, has this one. Only a part of a multi can be this.
    Check {
        path: &'a str,
        version: Option<i32>,
    },
    Sync,
    /// Ends the session.
    Close,
}

/// The kind of node that a create makes.
///
/// A *sequential* node gets a number behind its name: ten digits, with zeros in front. The server
/// counts them for each parent, and each number is higher than all before. After 2,147,483,647 they
/// become negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// It stays until somebody deletes it.
    Persistent,
    /// As `Persistent`, with a number.
    PersistentSequential,
    /// The server deletes it when the session ends. It can have no children.
    Ephemeral,
    /// As `Ephemeral`, with a number.
    EphemeralSequential,
    /// The server deletes it once it has had children and the last of them is gone: it looks for
    /// such nodes once a minute, unless it is configured otherwise.
    Container,
    /// The server deletes it when it has had no children and no write for this long. It looks for
    /// such nodes once a minute, unless it is configured otherwise. The time is at least 1 ms and
    /// at most 1,099,511,627,775 ms, which is 34 years; parts of a millisecond do not count. The
    /// servers must allow this kind of node: `zookeeper.extendedTypesEnabled=true`.
    Ttl(Duration),
    /// As `Ttl`, with a number.
    SequentialTtl(Duration),
}

/// The longest time to live, in milliseconds.
const LONGEST_TTL: i64 = 0xff_ffff_ffff;

impl CreateMode {
    pub(crate) fn flags(self) -> i32 {
        match self {
            CreateMode::Persistent => 0,
            CreateMode::Ephemeral => 1,
            CreateMode::PersistentSequential => 2,
            CreateMode::EphemeralSequential => 3,
            CreateMode::Container => 4,
            CreateMode::Ttl(_) => 5,
            CreateMode::SequentialTtl(_) => 6,
        }
    }

    /// The time to live in milliseconds, if the node has one.
    fn ttl(self) -> Option<i64> {
        match self {
            CreateMode::Ttl(ttl) | CreateMode::SequentialTtl(ttl) => {
                Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
            }
            _ => None,
        }
    }

    /// Whether servers can take this mode: a time to live has bounds.
    pub(crate) fn is_possible(self) -> bool {
        self.ttl().is_none_or(|ms| (1..=LONGEST_TTL).contains(&ms))
    }

    pub(crate) fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::SequentialTtl(_)
        )
    }
}

/// The result of a successful request.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Reply {
    /// The node's path as the server made it. Without a `Stat` in the answer all of it is zero.
    Created(String, Stat),
    Node(Node),
    Stat(Stat),
    Children(Listing),
    /// A node whose children were listed.
    Listed(Stat),
    Acl(Vec<AclEntry>, Stat),
    /// The results of the parts of a multi, in their order; errors as ZooKeeper's codes.
    Multi(Vec<Result<Reply, i32>>),
    /// The answer has no content.
    Done,
}

/// A node as a read has shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its data.
    pub data: Vec<u8>,
    /// What else the server says of it.
    pub stat: Stat,
}

/// The names of a node's children, as the server sent them: checked, and not copied one by one.
#[derive(Debug, Default)]
pub struct Listing(Vec<u8>);

#[allow(missing_docs)]
impl Listing {
    pub fn names(&self) -> Vec<&str> {
        children(&self.0).unwrap_or_default() // `decode` has checked it
    }
}

/// Why a request gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallError {
    NoNode,
    NodeExists,
    /// The node has another version: another client changed it first.
    BadVersion,
    /// The node to delete has children.
    NotEmpty,
    /// The parent ends with a session, and so can have no children.
    NoChildrenForEphemerals,
    /// It is unknown whether the server has done the request.
    ConnectionLoss,
    /// The session is lost.
    Expired,
    /// The session is lost because the servers refuse its login, for this reason.
    AuthFailed(String),
    /// An ACL does not give this permission, which the request needs.
    NoAuth(&'static str),
    Deadline,
    Cancelled,
    Other(String),
}

#[allow(missing_docs)]
impl CallError {
    /// The error with this code, in the answer to a request of this operation.
    pub fn of(op: i32, code: i32) -> Self {
        match code {
            err::NO_NODE => CallError::NoNode,
            err::NODE_EXISTS => CallError::NodeExists,
            err::BAD_VERSION => CallError::BadVersion,
            err::NOT_EMPTY => CallError::NotEmpty,
            err::NO_CHILDREN_FOR_EPHEMERALS => CallError::NoChildrenForEphemerals,
            err::CONNECTION_LOSS | err::SESSION_MOVED => CallError::ConnectionLoss,
            err::SESSION_EXPIRED => CallError::Expired,
            err::AUTH_FAILED => {
                CallError::AuthFailed("the server refused the session's login".to_owned())
            }
            err::NO_AUTH => CallError::NoAuth(permission(op)),
            err::TOO_LONG => CallError::Other(ANSWER_TOO_LONG.to_owned()),
            code => CallError::Other(err::name(code)),
        }
    }

    /// The error of a removal, whose last request is a delete.
    pub fn of_removal(code: i32) -> Self {
        CallError::of(op::DELETE, code)
    }
}

/// The permission that a request of this operation needs: on the node itself, but for a create and
/// a delete on its parent.
pub(crate) fn permission(op: i32) -> &'static str {
    match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => "CREATE",
        op::DELETE => "DELETE",
        op::SET_DATA => "WRITE",
        op::SET_ACL => "ADMIN",
        _ => "READ",
    }
}

/// What a failed request means to its caller; `path` is as the caller knows it.
pub fn error(op: &'static str, path: String, e: CallError) -> Error {
    let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
    match e {
        CallError::ConnectionLoss | CallError::Expired => unavailable(Cause::ConnectionLost),
        CallError::Deadline => unavailable(Cause::Deadline),
        CallError::Cancelled => Error::Cancelled { path },
        CallError::NoAuth(permission) => Error::NoAuth { op, path, permission },
        CallError::AuthFailed(reason) => Error::Auth { op, path, reason },
        CallError::NoNode => Error::NoNode { op, path },
        CallError::NodeExists => Error::NodeExists { op, path },
        CallError::NotEmpty => Error::NotEmpty { op, path },
        CallError::BadVersion => Error::BadVersion { op, path },
        CallError::NoChildrenForEphemerals => Error::NoChildrenForEphemerals { op, path },
        CallError::Other(code) => Error::Server { op, path, code },
    }
}

#[allow(missing_docs)]
impl Operation<'_> {
    /// The operation's code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Operation::Create { mode: CreateMode::Container, .. } => op::CREATE_CONTAINER,
            Operation::Create {
                mode: CreateMode::Ttl(_) | CreateMode::SequentialTtl(_), ..
            } => op::CREATE_TTL,
            Operation::Create { .. } => op::CREATE2,
            Operation::Delete { .. } => op::DELETE,
            Operation::Exists { .. } | Operation::WatchNode { .. } => op::EXISTS,
            Operation::GetData { .. } => op::GET_DATA,
            Operation::SetData { .. } => op::SET_DATA,
            Operation::GetChildren { .. } => op::GET_CHILDREN,
            Operation::WatchChildren { .. } => op::GET_CHILDREN2,
            Operation::GetAcl { .. } => op::GET_ACL,
            Operation::SetAcl { .. } => op::SET_ACL,
            Operation::Multi { .. } => op::MULTI,
            Operation::Check { .. } => op::CHECK,
            Operation::Sync => op::SYNC,
            Operation::Close => op::CLOSE,
        }
    }

    /// Appends its frame to `bytes`, with this xid.
    pub(crate) fn encode(&self, xid: i32, bytes: Vec<u8>) -> Vec<u8> {
        self.body(Writer::append_to(bytes).i32(xid).i32(self.code())).frame()
    }

    /// How many bytes its frame has, without the length in front.
    pub(crate) fn encoded_len(&self) -> usize {
        self.body(Writer::bare().i32(0).i32(0)).body().len()
    }

    fn body(&self, w: Writer) -> Writer {
        match self {
            Operation::Create { path, data, acl, mode } => {
                let w = acl.encode(w.buffer(path.as_bytes()).buffer(data)).i32(mode.flags());
                mode.ttl().into_iter().fold(w, Writer::i64)
            }
            Operation::Delete { path, version } | Operation::Check { path, version } => {
                w.buffer(path.as_bytes()).i32(version.unwrap_or(-1))
            }
            Operation::Exists { path } => w.buffer(path.as_bytes()).bool(false),
            Operation::WatchNode { path } | Operation::WatchChildren { path } => {
                w.buffer(path.as_bytes()).bool(true)
            }
            Operation::GetAcl { path } => w.buffer(path.as_bytes()),
            Operation::SetAcl { path, acl, version } => {
                acl.encode(w.buffer(path.as_bytes())).i32(version.unwrap_or(-1))
            }
            Operation::Multi { parts } => {
                let part = |w: Writer, part: &Operation<'_>| {
                    part.body(w.i32(part.code()).bool(false).i32(-1))
                };
                parts.iter().fold(w, part).i32(op::ERROR).bool(true).i32(-1)
            }
            Operation::GetData { path, watch } | Operation::GetChildren { path, watch } => {
                w.buffer(path.as_bytes()).bool(*watch)
            }
            Operation::SetData { path, data, version } => {
                w.buffer(path.as_bytes()).buffer(data).i32(version.unwrap_or(-1))
            }
            Operation::Sync => w.buffer(b"/"),
            Operation::Close => w,
        }
    }
}

/// Decodes the answer to a successful request of this operation. Only the application's client
/// sends some of these operations. Their answers are only checked here: the client crate believes
/// each length, and hangs, panics or aborts on a wrong one.
pub(crate) fn decode(op: i32, body: &[u8]) -> Result<Reply, Malformed> {
    let mut r = Reader::new(body);
    Ok(match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => created(op, &mut r)?,
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
            Reply::Listed(r.stat()?)
        }
        op::GET_ACL => {
            let acl = AclEntry::decode_list(&mut r)?;
            Reply::Acl(acl, r.stat()?)
        }
        op::MULTI => Reply::Multi(multi(&mut r)?),
        _ => Reply::Done,
    })
}

/// The answer to a create. Only the oldest of its operations is answered without a `Stat`.
fn created(op: i32, r: &mut Reader<'_>) -> Result<Reply, Malformed> {
    let path = r.string()?.to_owned();
    Ok(Reply::Created(path, if op == op::CREATE { Stat::default() } else { r.stat()? }))
}

/// No multi has more parts: a part takes 18 bytes at least, and servers take no request of more
/// than 1 MiB unless they are configured otherwise. A result takes more memory than it has bytes.
const MOST_RESULTS: usize = 1 << 16;

/// The results of the parts of a multi. A refused multi has an error for each of its parts.
fn multi(r: &mut Reader<'_>) -> Result<Vec<Result<Reply, i32>>, Malformed> {
    let mut results = Vec::new();
    loop {
        let (op, is_end, _) = (r.i32()?, r.bool()?, r.i32()?);
        if is_end {
            return Ok(results);
        }
        if results.len() == MOST_RESULTS {
            return Err(Malformed("more results than a multi has parts"));
        }
        results.push(match op {
            op::ERROR => Err(r.i32()?),
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => Ok(created(op, r)?),
            op::SET_DATA => Ok(Reply::Stat(r.stat()?)),
            op::DELETE | op::CHECK => Ok(Reply::Done),
            _ => return Err(Malformed("a result of no part of a multi")),
        });
    }
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
        let part = |op: i32, is_end: bool| Writer::bare().i32(op).bool(is_end).i32(0).body();
        let end = part(op::ERROR, true);
        assert!(decode(op::MULTI, &[]).is_err());
        assert!(decode(op::MULTI, &end).is_ok());
        assert!(decode(op::MULTI, &part(op::DELETE, false)).is_err(), "it has no end");
        assert!(decode(op::MULTI, &[part(op::DELETE, false), end.clone()].concat()).is_ok());
        assert!(decode(op::MULTI, &[part(op::GET_DATA, false), end.clone()].concat()).is_err());
        assert!(decode(op::MULTI, &[part(op::SET_DATA, false), end.clone()].concat()).is_err());
        for (count, is_answer) in [(MOST_RESULTS, true), (MOST_RESULTS + 1, false)] {
            let bytes = [part(op::CHECK, false).repeat(count), end.clone()].concat();
            assert_eq!(decode(op::MULTI, &bytes).is_ok(), is_answer, "{count}");
        }
        assert!(watch_event(&[0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, b'/']).is_ok());
    }

    /// The fields of each request that only callers of the face send, in the order of ZooKeeper's
    /// `zookeeper.jute` and `MultiOperationRecord`.
    #[test]
    fn requests_are_encoded_field_by_field() {
        let of = |operation: Operation<'_>, body: Writer| {
            let wanted = Writer::request(7, operation.code()).raw(&body.body()).frame();
            assert_eq!(operation.encode(7, Vec::new()), wanted, "{operation:?}");
            assert_eq!(operation.encoded_len(), wanted.len() - 4);
        };
        let (path, acl, bare) = ("/a", &Acl::Open, Writer::bare);
        let open = |w: Writer| w.i32(1).i32(31).buffer(b"world").buffer(b"anyone");
        for (mode, code, flags) in [
            (CreateMode::Persistent, op::CREATE2, 0),
            (CreateMode::Ephemeral, op::CREATE2, 1),
            (CreateMode::PersistentSequential, op::CREATE2, 2),
            (CreateMode::EphemeralSequential, op::CREATE2, 3),
            (CreateMode::Container, op::CREATE_CONTAINER, 4),
        ] {
            let create = Operation::Create { path, data: b"d", acl, mode };
            assert_eq!(create.code(), code);
            of(create, open(bare().buffer(b"/a").buffer(b"d")).i32(flags));
        }
        let ttl = Duration::from_micros(1_999);
        for (mode, flags) in [(CreateMode::Ttl(ttl), 5), (CreateMode::SequentialTtl(ttl), 6)] {
            let create = Operation::Create { path, data: b"d", acl, mode };
            assert_eq!(create.code(), op::CREATE_TTL);
            of(create, open(bare().buffer(b"/a").buffer(b"d")).i32(flags).i64(1));
        }
        of(Operation::GetAcl { path }, bare().buffer(b"/a"));
        for (version, number) in [(None, -1), (Some(3), 3)] {
            of(Operation::SetAcl { path, acl, version }, open(bare().buffer(b"/a")).i32(number));
        }
        let parts = [
            Operation::Create { path, data: b"d", acl, mode: CreateMode::Persistent },
            Operation::SetData { path, data: b"e", version: Some(0) },
            Operation::Check { path, version: Some(1) },
            Operation::Delete { path, version: None },
        ];
        let head = |w: Writer, op: i32| w.i32(op).bool(false).i32(-1);
        let w = open(head(bare(), op::CREATE2).buffer(b"/a").buffer(b"d")).i32(0);
        let w = head(w, op::SET_DATA).buffer(b"/a").buffer(b"e").i32(0);
        let w = head(head(w, op::CHECK).buffer(b"/a").i32(1), op::DELETE).buffer(b"/a").i32(-1);
        of(Operation::Multi { parts: &parts }, w.i32(-1).bool(true).i32(-1));
    }

    #[test]
    fn a_time_to_live_has_bounds() {
        let is_possible = |ttl| {
            assert_eq!(
                CreateMode::Ttl(ttl).is_possible(),
                CreateMode::SequentialTtl(ttl).is_possible()
            );
            CreateMode::Ttl(ttl).is_possible()
        };
        let longest = Duration::from_millis(LONGEST_TTL as u64);
        assert!(is_possible(Duration::from_millis(1)) && is_possible(longest));
        for ttl in [Duration::ZERO, Duration::from_micros(999), longest + Duration::from_millis(1)]
        {
            assert!(!is_possible(ttl), "{ttl:?}");
        }
        assert!(!is_possible(Duration::MAX));
        assert!(CreateMode::Persistent.is_possible());
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
