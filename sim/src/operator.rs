//! What an operator sends to a server by a client of their own.

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Makes a node without data that anybody may do anything with.
    Create { path: String },
    /// Deletes a node, whoever made it.
    Delete { path: String },
    /// Writes a node's data.
    Write { path: String, data: String },
    /// From now on nobody may do more with this node than read it.
    MakeReadOnly { path: String },
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const SET_DATA: i32 = 5;
const SET_ACL: i32 = 7;
const CLOSE: i32 = -11;

const READ: i32 = 1;
const ALL: i32 = 31;

/// The first frame of a connection: it asks for a session.
pub fn connect() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes()); // the version of the protocol
    body.extend(0_i64.to_be_bytes()); // no zxid was seen
    body.extend(30_000_i32.to_be_bytes()); // the timeout in milliseconds
    body.extend(0_i64.to_be_bytes()); // a new session
    text(&mut body, &[0; 16]); // its password
    frame(&body)
}

/// These requests, and the end of the session.
pub fn all(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (request, xid) in requests.iter().zip(1_i32..) {
        let mut body = xid.to_be_bytes().to_vec();
        match request {
            Request::Create { path } => {
                body.extend(CREATE.to_be_bytes());
                text(&mut body, path.as_bytes());
                text(&mut body, b"");
                acl(&mut body, ALL);
                body.extend(0_i32.to_be_bytes()); // a persistent node
            }
            Request::Delete { path } => {
                body.extend(DELETE.to_be_bytes());
                text(&mut body, path.as_bytes());
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
            Request::Write { path, data } => {
                body.extend(SET_DATA.to_be_bytes());
                text(&mut body, path.as_bytes());
                text(&mut body, data.as_bytes());
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
            Request::MakeReadOnly { path } => {
                body.extend(SET_ACL.to_be_bytes());
                text(&mut body, path.as_bytes());
                acl(&mut body, READ);
                body.extend((-1_i32).to_be_bytes()); // of any version
            }
        }
        bytes.extend(frame(&body));
    }
    let mut end = i32::MAX.to_be_bytes().to_vec();
    end.extend(CLOSE.to_be_bytes());
    bytes.extend(frame(&end));
    bytes
}

fn acl(body: &mut Vec<u8>, permissions: i32) {
    body.extend(1_i32.to_be_bytes());
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
