//! Requests as the proxy sees them, and the selection of requests by a test.
use super::wire::Reader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// The first frame of a connection.
    Connect,
    Create,
    Delete,
    Exists,
    GetData,
    SetData,
    GetChildren,
    Sync,
    Ping,
    Auth,
    /// A token of a login by SASL; it stands for the path.
    Sasl,
    CloseSession,
    Other,
}

impl OpKind {
    fn of(opcode: i32) -> OpKind {
        match opcode {
            1 | 15 | 19 | 21 => OpKind::Create, // create, create2, createContainer, createTTL
            2 => OpKind::Delete,
            3 => OpKind::Exists,
            4 => OpKind::GetData,
            5 => OpKind::SetData,
            8 | 12 => OpKind::GetChildren,
            9 => OpKind::Sync,
            11 => OpKind::Ping,
            100 => OpKind::Auth,
            102 => OpKind::Sasl,
            -11 => OpKind::CloseSession,
            _ => OpKind::Other,
        }
    }

    /// Only requests of this kind whose path contains `part`.
    pub fn on(self, part: &str) -> Which {
        Which { kind: self, part: part.to_owned() }
    }
}

/// Selects requests.
#[derive(Clone, Debug)]
pub struct Which {
    kind: OpKind,
    part: String,
}

impl From<OpKind> for Which {
    fn from(kind: OpKind) -> Which {
        Which { kind, part: String::new() }
    }
}

impl Which {
    pub fn matches(&self, request: &Request) -> bool {
        self.kind == request.kind
            && request.path.as_deref().unwrap_or_default().contains(&self.part)
    }
}

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: OpKind,
    /// ZooKeeper's operation code; createSession's (-10) for the connect request.
    pub opcode: i32,
    pub path: Option<String>,
}

impl Request {
    pub fn connect() -> Request {
        Request { kind: OpKind::Connect, opcode: -10, path: None }
    }

    /// The xid and the request in the body of a frame.
    pub fn parse(body: &[u8]) -> Option<(i32, Request)> {
        let mut body = Reader(body);
        let (xid, opcode) = (body.i32()?, body.i32()?);
        let path = match opcode {
            1..=9 | 12 | 15 | 19 | 21 | 102 => body.string(),
            _ => None,
        };
        Some((xid, Request { kind: OpKind::of(opcode), opcode, path }))
    }
}
