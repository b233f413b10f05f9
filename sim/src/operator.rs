//! The requests of an operator, and of other libraries, by a client of another kind.

use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Deletes a node of any owner.
    Delete { path: String },
    /// Makes a node without data. Anybody may do with it what these permissions allow.
    Make { path: String, permissions: i32 },
    /// Lets anybody do with a node what these permissions allow.
    Permit { path: String, permissions: i32 },
    /// Writes a node's data.
    Write { path: String, data: String },
    /// Makes a container, unless it stands.
    Contain { path: String },
    /// Makes an ephemeral node, to whose name the server adds a number.
    Contend { path: String },
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const SET_DATA: i32 = 5;
const SET_ACL: i32 = 7;
const CREATE_CONTAINER: i32 = 19;
const PING: i32 = 11;
const CLOSE: i32 = -11;

/// The modes of nodes that are made.
const PERSISTENT: i32 = 0;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const CONTAINER: i32 = 4;

/// All permissions.
pub const ALL: i32 = 31;

/// All permissions but the one to delete a node's children.
pub const ALL_BUT_DELETE: i32 = ALL & !8;

/// All permissions but the one to list a node's children.
pub const ALL_BUT_READ: i32 = ALL & !1;

/// The connect request for a new session with this timeout.
pub fn connect(timeout: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes()); // the version of the protocol
    body.extend(0_i64.to_be_bytes()); // no zxid was seen
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    body.extend(timeout.to_be_bytes());
    body.extend(0_i64.to_be_bytes()); // a new session
    text(&mut body, &[0; 16]); // its password
    frame(&body)
}

/// The frames of these requests.
pub fn all(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (request, xid) in requests.iter().zip(1_i32..) {
        let mut body = xid.to_be_bytes().to_vec();
        match request {
            Request::Delete { path } => {
                body.extend(DELETE.to_be_bytes());
                text(&mut body, path.as_bytes());
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
            Request::Make { path, permissions } => {
                create(&mut body, CREATE, path, *permissions, PERSISTENT);
            }
            Request::Contain { path } => {
                create(&mut body, CREATE_CONTAINER, path, ALL, CONTAINER);
            }
            Request::Contend { path } => {
                create(&mut body, CREATE, path, ALL, EPHEMERAL_SEQUENTIAL);
            }
            Request::Permit { path, permissions } => {
                body.extend(SET_ACL.to_be_bytes());
                text(&mut body, path.as_bytes());
                acl(&mut body, *permissions);
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
            Request::Write { path, data } => {
                body.extend(SET_DATA.to_be_bytes());
                text(&mut body, path.as_bytes());
                text(&mut body, data.as_bytes());
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
        }
        bytes.extend(frame(&body));
    }
    bytes
}

/// The end of the session.
pub fn end() -> Vec<u8> {
    frame(&[i32::MAX.to_be_bytes(), CLOSE.to_be_bytes()].concat())
}

/// What keeps the session alive.
pub fn ping() -> Vec<u8> {
    frame(&[(-2_i32).to_be_bytes(), PING.to_be_bytes()].concat())
}

fn create(body: &mut Vec<u8>, code: i32, path: &str, permissions: i32, mode: i32) {
    body.extend(code.to_be_bytes());
    text(body, path.as_bytes());
    text(body, &[]);
    acl(body, permissions);
    body.extend(mode.to_be_bytes());
}

fn acl(body: &mut Vec<u8>, permissions: i32) {
    body.extend(1_i32.to_be_bytes()); // the number of its entries
    body.extend(permissions.to_be_bytes());
    text(body, b"world");
    text(body, b"anyone");
}

fn text(body: &mut Vec<u8>, text: &[u8]) {
    body.extend(length(text));
    body.extend(text);
}

fn frame(body: &[u8]) -> Vec<u8> {
    [length(body).to_vec(), body.to_vec()].concat()
}

fn length(bytes: &[u8]) -> [u8; 4] {
    i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes()
}
