//! Every request of the protocol as data, which can be shown, written to the wire, and generated.
pub use super::shorthand::*;
use zk_test_support::{raw::Acl, wire::Writer};

/// The opcodes, by ZooKeeper's names (`ZooDefs.OpCode`).
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
    pub const CREATE_SESSION: i32 = -10;
    pub const CLOSE_SESSION: i32 = -11;
}

/// The modes of a create.
pub mod mode {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL: i32 = 1;
    pub const SEQUENTIAL: i32 = 2;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
    pub const CONTAINER: i32 = 4;
    pub const TTL: i32 = 5;
    pub const SEQUENTIAL_TTL: i32 = 6;
}

/// `addWatch`'s modes.
pub const PERSISTENT_WATCH: i32 = 0;
pub const RECURSIVE_WATCH: i32 = 1;

/// `WatcherType`, of `removeWatches` and `checkWatches`.
pub const CHILD_WATCHES: i32 = 1;
pub const DATA_WATCHES: i32 = 2;
pub const ANY_WATCHES: i32 = 3;
/// Since 3.9.
pub const PERSISTENT_WATCHES: i32 = 4;
pub const RECURSIVE_WATCHES: i32 = 5;

/// create, create2, createContainer or createTTL, by `op`.
#[derive(Clone, Debug)]
pub struct Create {
    pub op: i32,
    pub path: String,
    /// None is a null buffer.
    pub data: Option<Vec<u8>>,
    /// None is a null vector.
    pub acl: Option<Vec<Acl>>,
    pub flags: i32,
    /// Only createTTL writes this.
    pub ttl: i64,
}

/// setWatches; setWatches2 if there are lists of persistent watches.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    pub seen: i64,
    pub data: Vec<String>,
    pub exist: Vec<String>,
    pub child: Vec<String>,
    pub persistent: Option<[Vec<String>; 2]>,
}

#[derive(Clone, Debug)]
pub enum Req {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Option<Vec<Acl>>,
        version: i32,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetChildren2 {
        path: String,
        watch: bool,
    },
    Sync {
        path: String,
    },
    Ping,
    Check {
        path: String,
        version: i32,
    },
    Multi(Vec<Req>),
    MultiRead(Vec<Req>),
    Auth {
        scheme: String,
        auth: Vec<u8>,
    },
    /// A token of a login by SASL; None is a null buffer.
    Sasl(Option<Vec<u8>>),
    SetWatches(Watches),
    AddWatch {
        path: String,
        mode: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    CheckWatches {
        path: String,
        kind: i32,
    },
    GetEphemerals {
        prefix: String,
    },
    GetAllChildrenNumber {
        path: String,
    },
    WhoAmI,
    CloseSession,
    /// Any opcode with any body.
    Other {
        op: i32,
        body: Vec<u8>,
    },
}

impl Req {
    pub fn opcode(&self) -> i32 {
        match self {
            Req::Create(create) => create.op,
            Req::Delete { .. } => op::DELETE,
            Req::Exists { .. } => op::EXISTS,
            Req::GetData { .. } => op::GET_DATA,
            Req::SetData { .. } => op::SET_DATA,
            Req::GetAcl { .. } => op::GET_ACL,
            Req::SetAcl { .. } => op::SET_ACL,
            Req::GetChildren { .. } => op::GET_CHILDREN,
            Req::GetChildren2 { .. } => op::GET_CHILDREN2,
            Req::Sync { .. } => op::SYNC,
            Req::Ping => op::PING,
            Req::Check { .. } => op::CHECK,
            Req::Multi(_) => op::MULTI,
            Req::MultiRead(_) => op::MULTI_READ,
            Req::Auth { .. } => op::AUTH,
            Req::Sasl(_) => op::SASL,
            Req::SetWatches(Watches { persistent: None, .. }) => op::SET_WATCHES,
            Req::SetWatches(_) => op::SET_WATCHES2,
            Req::AddWatch { .. } => op::ADD_WATCH,
            Req::RemoveWatches { .. } => op::REMOVE_WATCHES,
            Req::CheckWatches { .. } => op::CHECK_WATCHES,
            Req::GetEphemerals { .. } => op::GET_EPHEMERALS,
            Req::GetAllChildrenNumber { .. } => op::GET_ALL_CHILDREN_NUMBER,
            Req::WhoAmI => op::WHO_AM_I,
            Req::CloseSession => op::CLOSE_SESSION,
            Req::Other { op, .. } => *op,
        }
    }

    /// Writes the body, with its paths below `root`.
    pub fn write(&self, to: Writer, root: &str) -> Writer {
        let path = |path: &str| rooted(root, path);
        match self {
            Req::Create(create) => {
                let to = acls(nullable(to.string(&path(&create.path)), &create.data), &create.acl);
                let to = to.i32(create.flags);
                if create.op == op::CREATE_TTL { to.i64(create.ttl) } else { to }
            }
            Req::Delete { path: at, version } | Req::Check { path: at, version } => {
                to.string(&path(at)).i32(*version)
            }
            Req::Exists { path: at, watch }
            | Req::GetData { path: at, watch }
            | Req::GetChildren { path: at, watch }
            | Req::GetChildren2 { path: at, watch } => to.string(&path(at)).bool(*watch),
            Req::SetData { path: at, data, version } => {
                nullable(to.string(&path(at)), data).i32(*version)
            }
            Req::GetAcl { path: at }
            | Req::Sync { path: at }
            | Req::GetAllChildrenNumber { path: at } => to.string(&path(at)),
            Req::GetEphemerals { prefix } => to.string(&path(prefix)),
            Req::SetAcl { path: at, acl, version } => acls(to.string(&path(at)), acl).i32(*version),
            Req::Multi(parts) | Req::MultiRead(parts) => {
                let part =
                    |to: Writer, part: &Req| part.write(header(to, part.opcode(), false), root);
                header(parts.iter().fold(to, part), -1, true)
            }
            Req::Auth { scheme, auth } => to.i32(0).string(scheme).buffer(auth),
            Req::Sasl(token) => nullable(to, token),
            Req::SetWatches(watches) => {
                let lists = [&watches.data, &watches.exist, &watches.child].into_iter();
                lists.chain(watches.persistent.iter().flatten()).fold(
                    to.i64(watches.seen),
                    |to, paths| {
                        paths.iter().fold(to.i32(paths.len() as i32), |to, at| to.string(&path(at)))
                    },
                )
            }
            Req::AddWatch { path: at, mode: number }
            | Req::RemoveWatches { path: at, kind: number }
            | Req::CheckWatches { path: at, kind: number } => to.string(&path(at)).i32(*number),
            Req::Ping | Req::WhoAmI | Req::CloseSession | Req::Other { .. } => to,
        }
    }

    /// The whole frame of the request.
    pub fn frame(&self, xid: i32, root: &str) -> Vec<u8> {
        let mut frame = self.write(Writer::new().i32(xid).i32(self.opcode()), root).frame();
        if let Req::Other { body, .. } = self {
            frame.extend(body);
            let length = frame.len() as i32 - 4;
            frame[..4].copy_from_slice(&length.to_be_bytes());
        }
        frame
    }

    pub(super) fn change(mut self, change: impl FnOnce(&mut Create)) -> Req {
        match &mut self {
            Req::Create(create) => change(create),
            other => panic!("{other:?} is no create"),
        }
        self
    }

    /// Sets the opcode of a create.
    pub fn op(self, op: i32) -> Req {
        self.change(|create| create.op = op)
    }

    pub fn flags(self, flags: i32) -> Req {
        self.change(|create| create.flags = flags)
    }

    pub fn data(self, data: &[u8]) -> Req {
        self.change(|create| create.data = Some(data.to_vec()))
    }

    pub fn null_data(self) -> Req {
        self.change(|create| create.data = None)
    }

    pub fn acl(self, acl: &[Acl]) -> Req {
        self.change(|create| create.acl = Some(acl.to_vec()))
    }
}

/// The server's name for the path that a client with this chroot calls `path`.
pub fn rooted(root: &str, path: &str) -> String {
    match path {
        "/" if !root.is_empty() => root.to_owned(),
        _ if path.starts_with('/') => format!("{root}{path}"),
        _ => path.to_owned(),
    }
}

fn nullable(to: Writer, bytes: &Option<Vec<u8>>) -> Writer {
    match bytes {
        Some(bytes) => to.buffer(bytes),
        None => to.i32(-1),
    }
}

fn acls(to: Writer, acl: &Option<Vec<Acl>>) -> Writer {
    match acl {
        Some(acl) => acl.iter().fold(to.i32(acl.len() as i32), |to, entry| {
            to.i32(entry.perms).string(&entry.scheme).string(&entry.id)
        }),
        None => to.i32(-1),
    }
}

/// `MultiHeader`.
fn header(to: Writer, op: i32, done: bool) -> Writer {
    to.i32(op).bool(done).i32(-1)
}
