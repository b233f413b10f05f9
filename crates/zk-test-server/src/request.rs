//! The entries of the server's log: requests and watch events.

use zk_wire::code::{event, op};
use zk_wire::record::Reader;

/// The operation of a request. One name stands for a family: `create`, `create2`, `createContainer`
/// and `createTTL` are all [`Create`](Op::Create).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The first frame of a connection: a new session, or an old one re-attached.
    Connect,
    /// A node of any mode is created.
    Create,
    /// A node is deleted.
    Delete,
    /// `exists`.
    Exists,
    /// `getData`.
    GetData,
    /// `setData`.
    SetData,
    /// `getACL`.
    GetAcl,
    /// `setACL`.
    SetAcl,
    /// `getChildren`, with or without the `Stat`.
    GetChildren,
    /// `sync`.
    Sync,
    /// A heartbeat.
    Ping,
    /// A transaction.
    Multi,
    /// Several reads in one request.
    MultiRead,
    /// A version is checked, outside a transaction.
    Check,
    /// `addAuth`.
    Auth,
    /// A step of a login by SASL.
    Sasl,
    /// Watches are set again after a reconnect (`setWatches` and `setWatches2`).
    SetWatches,
    /// A persistent watch is added.
    AddWatch,
    /// `checkWatches`: the client asks whether a watch is set.
    CheckWatches,
    /// A watch is removed.
    RemoveWatches,
    /// `getEphemerals`.
    GetEphemerals,
    /// `getAllChildrenNumber`.
    GetAllChildrenNumber,
    /// `whoAmI`.
    WhoAmI,
    /// The client ends its session.
    CloseSession,
    /// Any other operation code.
    Other(i32),
}

impl Op {
    /// The family of one of ZooKeeper's operation codes (`ZooDefs.OpCode`).
    pub fn of(opcode: i32) -> Op {
        match opcode {
            op::CREATE_SESSION => Op::Connect,
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => Op::Create,
            op::DELETE | op::DELETE_CONTAINER => Op::Delete,
            op::EXISTS => Op::Exists,
            op::GET_DATA => Op::GetData,
            op::SET_DATA => Op::SetData,
            op::GET_ACL => Op::GetAcl,
            op::SET_ACL => Op::SetAcl,
            op::GET_CHILDREN | op::GET_CHILDREN2 => Op::GetChildren,
            op::SYNC => Op::Sync,
            op::PING => Op::Ping,
            op::CHECK => Op::Check,
            op::MULTI => Op::Multi,
            op::MULTI_READ => Op::MultiRead,
            op::AUTH => Op::Auth,
            op::SASL => Op::Sasl,
            op::SET_WATCHES | op::SET_WATCHES2 => Op::SetWatches,
            op::ADD_WATCH => Op::AddWatch,
            op::CHECK_WATCHES => Op::CheckWatches,
            op::REMOVE_WATCHES => Op::RemoveWatches,
            op::GET_EPHEMERALS => Op::GetEphemerals,
            op::GET_ALL_CHILDREN_NUMBER => Op::GetAllChildrenNumber,
            op::WHO_AM_I => Op::WhoAmI,
            op::CLOSE => Op::CloseSession,
            other => Op::Other(other),
        }
    }

    /// Whether the answer can be large or take long to make.
    pub(super) fn is_large(self) -> bool {
        matches!(
            self,
            Op::GetData
                | Op::GetChildren
                | Op::MultiRead
                | Op::GetEphemerals
                | Op::GetAllChildrenNumber
                | Op::SetWatches
        )
    }

    fn starts_with_a_path(self) -> bool {
        matches!(
            self,
            Op::Create
                | Op::Delete
                | Op::Exists
                | Op::GetData
                | Op::SetData
                | Op::GetAcl
                | Op::SetAcl
                | Op::GetChildren
                | Op::Sync
                | Op::Check
                | Op::AddWatch
                | Op::CheckWatches
                | Op::RemoveWatches
                | Op::GetEphemerals
                | Op::GetAllChildrenNumber
        )
    }

    fn ends_with_a_watch_flag(self) -> bool {
        matches!(self, Op::Exists | Op::GetData | Op::GetChildren)
    }
}

/// A request that reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// ZooKeeper's code of the operation, which tells the members of a family apart. It is -10 for
    /// [`Op::Connect`].
    pub opcode: i32,
    /// The node of the request, as the client named it: without the number of a sequential node.
    /// For a transaction, the node of its first operation. `None` if the request has no node. Only
    /// the first 1,024 bytes are kept.
    pub path: Option<String>,
    /// The session that sent the request. For a connect request, the session that the client wants
    /// back: 0 for a new session.
    pub session: i64,
    /// The client's number of the request; 0 for a connect request.
    pub xid: i32,
    /// Whether it asks for a watch: a read with the watch flag, `addWatch`, `setWatches`. A read
    /// that fails leaves none (but an `exists` of no node does).
    pub watch: bool,
    /// Whether the server went on to apply it. False only if the test lost the request with
    /// [`drop_request`](super::TestServer::drop_request).
    pub applied: bool,
}

/// What happened to a watched node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// The node's data was set.
    DataChanged,
    /// A child of the node was created or deleted.
    ChildrenChanged,
    /// Another of ZooKeeper's event types (`Watcher.Event.EventType`).
    Other(i32),
}

impl EventKind {
    pub(super) fn of(kind: i32) -> EventKind {
        match kind {
            event::CREATED => EventKind::Created,
            event::DELETED => EventKind::Deleted,
            event::DATA_CHANGED => EventKind::DataChanged,
            event::CHILDREN_CHANGED => EventKind::ChildrenChanged,
            other => EventKind::Other(other),
        }
    }
}

/// A watch event that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The session that got the event.
    pub session: i64,
    /// The kind of event.
    pub kind: EventKind,
    /// The node of the event. Only the first 1,024 bytes are kept.
    pub path: String,
}

impl Event {
    pub(super) fn new(session: i64, kind: i32, path: &str) -> Event {
        Event { session, kind: EventKind::of(kind), path: shortened(path).to_owned() }
    }
}

/// A summary of a request: the fields that faults, the log and the quotas need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSummary<'a> {
    pub(super) op: Op,
    pub(super) opcode: i32,
    pub(super) path: Option<&'a str>,
    pub(super) session: i64,
    pub(super) xid: i32,
    pub(super) watch: bool,
}

impl<'a> RequestSummary<'a> {
    /// Reads the first frame of a connection; `None` if it is not a connect request.
    pub(super) fn connect(frame: &'a [u8]) -> Option<RequestSummary<'a>> {
        let mut r = Reader::new(frame);
        let (_version, _zxid, _timeout) = (r.i32().ok()?, r.i64().ok()?, r.i32().ok()?);
        let session = r.i64().ok()?;
        Some(RequestSummary {
            op: Op::Connect,
            opcode: op::CREATE_SESSION,
            path: None,
            session,
            xid: 0,
            watch: false,
        })
    }

    /// Reads a later frame; `None` if it is too short for a header.
    pub(super) fn request(frame: &'a [u8], session: i64) -> Option<RequestSummary<'a>> {
        let mut r = Reader::new(frame);
        let (xid, opcode) = (r.i32().ok()?, r.i32().ok()?);
        let op = match opcode {
            // a connect request has no header, so this is another request
            op::CREATE_SESSION => Op::Other(opcode),
            _ => Op::of(opcode),
        };
        let path = match op {
            Op::Multi | Op::MultiRead => first_of_multi(&mut r),
            op if op.starts_with_a_path() => r.string().ok(),
            _ => None,
        };
        let watch = matches!(op, Op::AddWatch | Op::SetWatches)
            || op.ends_with_a_watch_flag()
                && path.is_some()
                && frame.last().is_some_and(|flag| *flag != 0);
        Some(RequestSummary { op, opcode, path, session, xid, watch })
    }

    pub(super) fn logged(&self, applied: bool) -> Request {
        Request {
            op: self.op,
            opcode: self.opcode,
            path: self.path.map(|path| shortened(path).to_owned()),
            session: self.session,
            xid: self.xid,
            watch: self.watch,
            applied,
        }
    }
}

/// Each operation of a multi has a header (its code, whether it is the end, an error) before its
/// record.
fn first_of_multi<'a>(r: &mut Reader<'a>) -> Option<&'a str> {
    let op = Op::of(r.i32().ok()?);
    let (is_end, _err) = (r.bool().ok()?, r.i32().ok()?);
    if is_end || !op.starts_with_a_path() {
        return None;
    }
    r.string().ok()
}

/// A path may be as long as a frame, so the log keeps only its beginning.
fn shortened(path: &str) -> &str {
    const MOST: usize = 1024;
    let mut end = path.len().min(MOST);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zk_wire::record::{ConnectRequest, Writer};

    fn body(frame: Vec<u8>) -> Vec<u8> {
        frame[4..].to_vec()
    }

    #[test]
    fn reads_the_operation_and_path_of_a_request() {
        let frame = body(Writer::request(7, 12).buffer(b"/locks").bool(true).frame());
        let request = RequestSummary::request(&frame, 5).unwrap();
        assert_eq!((request.op, request.opcode, request.xid), (Op::GetChildren, 12, 7));
        assert_eq!((request.path, request.session, request.watch), (Some("/locks"), 5, true));
        let frame = body(Writer::request(7, 3).buffer(b"/locks").bool(false).frame());
        assert!(!RequestSummary::request(&frame, 5).unwrap().watch);
        let frame =
            body(Writer::request(8, 15).buffer(b"/a").buffer(b"data").i32(0).i32(0).frame());
        let request = RequestSummary::request(&frame, 5).unwrap();
        assert_eq!((request.op, request.path, request.watch), (Op::Create, Some("/a"), false));
        let frame = body(Writer::request(-2, 11).frame());
        assert_eq!(RequestSummary::request(&frame, 5).unwrap().op, Op::Ping);
        let frame = body(Writer::request(1, 4242).frame());
        assert_eq!(RequestSummary::request(&frame, 5).unwrap().op, Op::Other(4242));
        let frame = body(Writer::request(1, -10).frame());
        assert_eq!(RequestSummary::request(&frame, 5).unwrap().op, Op::Other(-10));
        assert_eq!(RequestSummary::request(&[0; 7], 5), None);
    }

    #[test]
    fn a_transaction_is_about_its_first_node() {
        let multi = Writer::request(3, 14).i32(13).bool(false).i32(-1).buffer(b"/first").i32(0);
        let frame = body(multi.i32(-1).bool(true).i32(-1).frame());
        assert_eq!(RequestSummary::request(&frame, 1).unwrap().path, Some("/first"));
        let empty = body(Writer::request(3, 14).i32(-1).bool(true).i32(-1).frame());
        assert_eq!(RequestSummary::request(&empty, 1).unwrap().path, None);
    }

    #[test]
    fn a_connect_request_names_its_session() {
        let request =
            ConnectRequest { last_zxid: 1, timeout_ms: 4000, session_id: 77, password: &[0; 16] };
        let frame = body(request.frame());
        let summary = RequestSummary::connect(&frame).unwrap();
        assert_eq!((summary.op, summary.session), (Op::Connect, 77));
        assert_eq!(RequestSummary::connect(&frame[..20]), None);
    }

    #[test]
    fn long_paths_are_cut_between_characters() {
        let path = format!("/{}", "é".repeat(2000));
        let event = Event::new(1, 4, &path);
        assert_eq!((event.path.len(), event.kind), (1023, EventKind::ChildrenChanged));
        assert!(path.starts_with(&event.path));
    }

    proptest! {
        #[test]
        fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..80), opcode in -12i32..110) {
            let _ = RequestSummary::connect(&bytes);
            let _ = RequestSummary::request(&bytes, 1);
            let frame = [&[0, 0, 0, 1], &opcode.to_be_bytes()[..], &bytes].concat();
            let _ = RequestSummary::request(&frame, 1).map(|summary| summary.logged(true));
        }
    }
}
