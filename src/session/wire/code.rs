//! Operation and error codes (`ZooDefs.OpCode`, `KeeperException.Code`).

pub(crate) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const CLOSE: i32 = -11;

    /// The operations that go through the quorum, among those that a client of ours sends.
    pub(crate) fn is_write(op: i32) -> bool {
        matches!(op, CREATE | CREATE_CONTAINER | DELETE)
    }
}

pub(crate) mod err {
    pub(crate) const OK: i32 = 0;
    pub(crate) const CONNECTION_LOSS: i32 = -4;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;

    /// The answers to a write that show that it went through the quorum: success, and the refusals
    /// that the leader decides and commits as error transactions. Others (throttled, not writable,
    /// moved) can come from a server that is alone.
    pub(crate) fn is_committed(err: i32) -> bool {
        matches!(
            err,
            OK | NO_NODE
                | NO_AUTH
                | BAD_VERSION
                | NO_CHILDREN_FOR_EPHEMERALS
                | NODE_EXISTS
                | NOT_EMPTY
                | INVALID_ACL
        )
    }
}

pub(crate) mod xid {
    pub(crate) const EVENT: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
}

/// Watch event types (`Watcher.Event.EventType`) and the one state that servers send.
pub(crate) mod event {
    pub(crate) const CREATED: i32 = 1;
    pub(crate) const DELETED: i32 = 2;
    pub(crate) const CHILDREN_CHANGED: i32 = 4;
    pub(crate) const SYNC_CONNECTED: i32 = 3;
}
