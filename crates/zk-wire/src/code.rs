//! The codes of operations, errors, special answers and watch events.

/// The codes of operations (`ZooDefs.OpCode`), by ZooKeeper's own names.
#[allow(missing_docs)]
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const ERROR: i32 = -1;
    pub const CREATE_SESSION: i32 = -10;
    pub const CLOSE: i32 = -11;

    /// Whether the answer to this operation can be longer than a frame may be, because it contains
    /// data that others have stored. This covers the operations that `zk-mutex` sends.
    pub fn has_long_answer(op: i32) -> bool {
        matches!(op, GET_DATA | GET_CHILDREN | GET_CHILDREN2)
    }

    /// Whether this operation is a write, which needs a quorum, and whose code of an answer says
    /// whether the leader has committed it ([`err::is_committed`](super::err::is_committed)). A
    /// multi is a write too, but is not among these: the code of its answer does not say that.
    pub fn is_write(op: i32) -> bool {
        matches!(op, CREATE | CREATE2 | CREATE_CONTAINER | CREATE_TTL | DELETE | SET_DATA | SET_ACL)
    }
}

/// The codes of errors (`KeeperException.Code`), by ZooKeeper's own names.
#[allow(missing_docs)]
pub mod err {
    pub const OK: i32 = 0;
    pub const RUNTIME_INCONSISTENCY: i32 = -2;
    pub const CONNECTION_LOSS: i32 = -4;
    pub const MARSHALLING_ERROR: i32 = -5;
    pub const UNIMPLEMENTED: i32 = -6;
    pub const BAD_ARGUMENTS: i32 = -8;
    pub const UNKNOWN_SESSION: i32 = -12;
    /// ZooKeeper's `APIERROR`, which marks a range of codes and is never sent. Here it stands for
    /// an answer that was longer than a frame may be and was skipped.
    pub const TOO_LONG: i32 = -100;
    pub const NO_NODE: i32 = -101;
    pub const NO_AUTH: i32 = -102;
    pub const BAD_VERSION: i32 = -103;
    pub const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub const NODE_EXISTS: i32 = -110;
    pub const NOT_EMPTY: i32 = -111;
    pub const SESSION_EXPIRED: i32 = -112;
    pub const INVALID_ACL: i32 = -114;
    pub const AUTH_FAILED: i32 = -115;
    pub const SESSION_MOVED: i32 = -118;
    pub const NO_WATCHER: i32 = -121;
    pub const RECONFIG_DISABLED: i32 = -123;
    /// The server serves only clients that have authenticated themselves by one of the schemes that
    /// it enforces; it closes the connection. (`SESSIONCLOSEDREQUIRESASLAUTH`; the scheme need not
    /// be `sasl`.)
    pub const REQUIRES_AUTH: i32 = -124;

    /// The name in ZooKeeper's documentation; the number, if this crate knows no name for it.
    pub fn name(code: i32) -> String {
        let name = match code {
            -1 => "SystemError",
            RUNTIME_INCONSISTENCY => "RuntimeInconsistency",
            -3 => "DataInconsistency",
            CONNECTION_LOSS => "ConnectionLoss",
            MARSHALLING_ERROR => "MarshallingError",
            UNIMPLEMENTED => "Unimplemented",
            -7 => "OperationTimeout",
            BAD_ARGUMENTS => "BadArguments",
            -13 => "NewConfigNoQuorum",
            -14 => "ReconfigInProgress",
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
            -120 => "EphemeralOnLocalSession",
            NO_WATCHER => "NoWatcher",
            -122 => "RequestTimeout",
            RECONFIG_DISABLED => "ReconfigDisabled",
            REQUIRES_AUTH => "SessionClosedRequireSaslAuth",
            -125 => "QuotaExceeded",
            -127 => "ThrottledOp",
            code => return code.to_string(),
        };
        name.to_owned()
    }

    /// Whether the leader has committed a write that was answered with this code: success, and
    /// refusals. With eager ACL checks a server without a leader may give some of these codes too;
    /// then the zxid is 0. Other codes (throttled, not writable, moved) never show that the leader
    /// has seen the write.
    pub fn is_committed(err: i32) -> bool {
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

/// The xids of answers to no numbered request.
#[allow(missing_docs)]
pub mod xid {
    pub const EVENT: i32 = -1;
    pub const PING: i32 = -2;
    pub const AUTH: i32 = -4;
}

/// Watch event types (`Watcher.Event.EventType`) and the one state that servers send.
#[allow(missing_docs)]
pub mod event {
    pub const CREATED: i32 = 1;
    pub const DELETED: i32 = 2;
    pub const DATA_CHANGED: i32 = 3;
    pub const CHILDREN_CHANGED: i32 = 4;
    pub const SYNC_CONNECTED: i32 = 3;
}

#[cfg(test)]
mod tests {
    use super::err;

    /// The codes of ZooKeeper's `KeeperException.Code` that a server may send.
    #[test]
    fn each_code_of_an_error_has_a_name() {
        let codes = (-9..=-1).chain(-14..=-12).chain(-108..=-101);
        let codes = codes.chain(-116..=-110).chain(-125..=-118).chain([-127]);
        // These numbers, and the client's own InvalidCallback, are not used.
        let unused = [-9, -104, -105, -106, -107, -113, -116];
        for code in codes.filter(|code| !unused.contains(code)) {
            assert_ne!(err::name(code), code.to_string());
        }
        assert_eq!(err::name(-13), "NewConfigNoQuorum");
        assert_eq!(err::name(-14), "ReconfigInProgress");
        assert_eq!(err::name(-120), "EphemeralOnLocalSession");
        assert_eq!(err::name(-122), "RequestTimeout");
        assert_eq!(err::name(-126), "-126");
    }
}
