//! The requests of an operator, by a client of another kind.

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Deletes a node of any owner.
    Delete { path: String },
    /// Writes a node's data.
    Write { path: String, data: String },
}

const DELETE: i32 = 2;
const SET_DATA: i32 = 5;
const CLOSE: i32 = -11;

/// The connect request for a new session.
pub fn connect() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes()); // the version of the protocol
    body.extend(0_i64.to_be_bytes()); // no zxid was seen
    body.extend(30_000_i32.to_be_bytes()); // the timeout in milliseconds
    body.extend(0_i64.to_be_bytes()); // a new session
    text(&mut body, &[0; 16]); // its password
    frame(&body)
}

/// The frames of these requests, and the end of the session.
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
            Request::Write { path, data } => {
                body.extend(SET_DATA.to_be_bytes());
                text(&mut body, path.as_bytes());
                text(&mut body, data.as_bytes());
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
