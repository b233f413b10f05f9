//! Operation and error codes (`ZooDefs.OpCode`, `KeeperException.Code`).
#![cfg_attr(not(feature = "testing"), allow(dead_code))] // the library needs a few, the embedded server all

pub(crate) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const RECONFIG: i32 = 16;
    pub(crate) const CHECK_WATCHES: i32 = 17;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const DELETE_CONTAINER: i32 = 20;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const SASL: i32 = 102;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(crate) const SET_WATCHES2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const WHO_AM_I: i32 = 107;
    pub(crate) const ERROR: i32 = -1;
    pub(crate) const CREATE_SESSION: i32 = -10;
    pub(crate) const CLOSE: i32 = -11;

    /// The operations, among those that a client of ours sends, whose answer can be longer than a
    /// frame may be: it has what others have stored.
    pub(crate) fn has_long_answer(op: i32) -> bool {
        matches!(op, GET_DATA | GET_CHILDREN | GET_CHILDREN2)
    }

    /// The operations that go through the quorum, among those that a client of ours sends.
    pub(crate) fn is_write(op: i32) -> bool {
        matches!(op, CREATE | CREATE2 | CREATE_CONTAINER | DELETE | SET_DATA | SET_ACL)
    }
}

pub(crate) mod err {
    pub(crate) const OK: i32 = 0;
    pub(crate) const RUNTIME_INCONSISTENCY: i32 = -2;
    pub(crate) const CONNECTION_LOSS: i32 = -4;
    pub(crate) const MARSHALLING_ERROR: i32 = -5;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const UNKNOWN_SESSION: i32 = -12;
    /// ZooKeeper's `APIERROR`, which marks a range and is never sent. Here it stands for an answer
    /// that is longer than a frame may be and was thrown away.
    pub(crate) const TOO_LONG: i32 = -100;
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
    pub(crate) const NO_WATCHER: i32 = -121;
    pub(crate) const RECONFIG_DISABLED: i32 = -123;

    /// What ZooKeeper's documentation calls it; the number, where it has no name here.
    pub(crate) fn name(code: i32) -> String {
        let name = match code {
            -1 => "SystemError",
            RUNTIME_INCONSISTENCY => "RuntimeInconsistency",
            -3 => "DataInconsistency",
            CONNECTION_LOSS => "ConnectionLoss",
            MARSHALLING_ERROR => "MarshallingError",
            UNIMPLEMENTED => "Unimplemented",
            -7 => "OperationTimeout",
            BAD_ARGUMENTS => "BadArguments",
            UNKNOWN_SESSION => "UnknownSession",
            NO_NODE => "NoNode",
            NO_AUTH => "NoAuth",
            BAD_VERSION => "BadVersion",
            NO_CHILDREN_FOR_EPHEMERALS => "NoChildrenForEphemerals",
            NODE_EXISTS => "NodeExists",
            NOT_EMPTY => "NotEmpty",
            SESSION_EXPIRED => "SessionExpired",
            INVALID_ACL => "InvalidACL",
            AUTH_FAILED => "AuthFailed",
            SESSION_MOVED => "SessionMoved",
            -119 => "NotReadOnly",
            -125 => "QuotaExceeded",
            -127 => "ThrottledOp",
            code => return code.to_string(),
        };
        name.to_owned()
    }

    /// The codes with which the leader commits a write: success, and refusals. A server that is
    /// alone may send some of them too (with eager ACL checks): `Heard` tells by the zxid. Other
    /// codes (throttled, not writable, moved) never show that the leader has seen the write.
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
    pub(crate) const DATA_CHANGED: i32 = 3;
    pub(crate) const CHILDREN_CHANGED: i32 = 4;
    pub(crate) const SYNC_CONNECTED: i32 = 3;
}
