//! What the application's client asks and is answered, without socket, thread or clock: its bytes
//! and the session's answers in; bytes for it, and requests for the session, out.
//!
//! The client matches answers to requests by their order alone. So each request gets a place in a
//! queue, whoever answers it, and answers leave the queue in order.

use std::collections::VecDeque;

use super::watches::{WatchKind, Watches};
use zk_wire::Malformed;
use zk_wire::code::{err, op, xid};
use zk_wire::frame::{FrameOrHead, Frames, HEAD};
use zk_wire::record::{ConnectReply, Reader, ReplyHeader, request_header, watch_event};

/// The longest request that a server takes (`jute.maxbuffer`, as it is by default): it cuts the
/// connection of a session that sends a longer one, and locks would feel that.
const LONGEST: usize = 0xf_ffff;

/// A request for the session: the operation, and the body without its header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Submission {
    pub(super) number: u64,
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
}

pub(super) struct ClientMachine {
    /// The client cuts it off the paths of answers and events, by its length.
    chroot: String,
    next_number: u64,
    from_client: Frames,
    /// The beginning of a request that is thrown away as it comes, far too long.
    too_long: Option<[u8; HEAD]>,
    is_greeted: bool,
    /// The client's requests whose answers have not left, oldest first.
    requests: VecDeque<ClientRequest>,
    watches: Watches,
    /// Our own `setWatches` requests that are not answered yet.
    unanswered_set_watches: Vec<u64>,
    /// The session is over: every request is answered with this code.
    ended: Option<i32>,
    /// The client has had the answer to its close, or is gone.
    is_closed: bool,
    /// For the thread: bytes to write, requests to submit, in order, and what to log. (The logger
    /// is foreign code and may come back here.)
    pub(super) to_client: Vec<u8>,
    pub(super) submissions: Vec<Submission>,
    pub(super) warnings: Vec<String>,
}

struct ClientRequest {
    number: u64,
    xid: i32,
    op: i32,
    /// The path, if it asks for a watch.
    watched: Option<String>,
    /// The frame that answers it.
    answer: Option<Vec<u8>>,
}

impl ClientMachine {
    /// Requests are numbered from `first` on.
    pub(super) fn new(chroot: String, first: u64) -> Self {
        ClientMachine {
            chroot,
            next_number: first,
            from_client: Frames::default(),
            too_long: None,
            is_greeted: false,
            requests: VecDeque::new(),
            watches: Watches::default(),
            unanswered_set_watches: Vec::new(),
            ended: None,
            is_closed: false,
            to_client: Vec::new(),
            submissions: Vec::new(),
            warnings: Vec::new(),
        }
    }

    // ---- the client's side ----

    /// What it sent. An error: these are not the client's frames, and nothing more can be
    /// understood.
    pub(super) fn client_bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut frames = std::mem::take(&mut self.from_client);
        frames.push(bytes);
        let result = loop {
            // Not before its last byte has come: until then the client awaits no answer to it.
            if let Some(head) = self.too_long.take_if(|_| !frames.is_skipping()) {
                self.request(&head, true)?;
            }
            let result = match frames.next_or_head(|| true) {
                Ok(Some(FrameOrHead::Frame(frame))) => self.frame(frame),
                Ok(Some(FrameOrHead::Head(head))) => {
                    self.too_long = Some(*head);
                    Ok(())
                }
                Ok(None) => break Ok(()),
                Err(e) => Err(e),
            };
            if result.is_err() {
                break result;
            }
        };
        self.from_client = frames;
        self.flush();
        result
    }

    fn frame(&mut self, frame: &[u8]) -> Result<(), Malformed> {
        if self.is_greeted {
            return self.request(frame, frame.len() > LONGEST);
        }
        self.is_greeted = true;
        // With a timeout this long the client neither pings nor takes itself for expired.
        let reply = ConnectReply { timeout_ms: i32::MAX, session_id: 1, password: vec![0; 16] };
        self.to_client.extend(reply.frame());
        Ok(())
    }

    fn request(&mut self, frame: &[u8], is_too_long: bool) -> Result<(), Malformed> {
        let is_closing = self.requests.back().is_some_and(|last| last.op == op::CLOSE);
        if self.is_closed || is_closing {
            return Ok(()); // the client drops the requests behind its close by itself
        }
        let (xid, op) = request_header(frame)?;
        let body = frame.get(8..).unwrap_or_default();
        let mut watched = None;
        let refusal = match op {
            // The session has other users: a close does not end it.
            op::PING | op::CLOSE => Some(err::OK),
            _ if self.ended.is_some() => self.ended,
            _ if is_too_long => Some(err::BAD_ARGUMENTS),
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN => {
                if body.last().is_some_and(|watch| *watch != 0) {
                    watched = Some(Reader::new(body).string()?.to_owned());
                }
                None
            }
            op::CREATE | op::DELETE | op::SET_DATA | op::GET_ACL | op::SET_ACL => None,
            // `addWatch`: what a lasting watch misses while there is no connection is told to
            // nobody, and this client hears of no reconnection. `removeWatches` would remove the
            // watches of locks too. Refused credentials cut the connection, and new ones would be
            // in force until the next reconnection only: they belong to the session.
            _ => Some(err::UNIMPLEMENTED),
        };
        if refusal == Some(err::UNIMPLEMENTED) {
            let what = "the client was refused an operation that a shared session cannot have";
            self.warnings.push(format!("{what} (code {op})"));
        }
        let number = self.new_number();
        // The client counts on into negative numbers, which mean something else in answers.
        let xid = if op == op::PING { xid::PING } else { xid & i32::MAX };
        let answer = refusal.map(|code| reply(xid, 0, code, &[]));
        if answer.is_none() {
            // The client makes a persistent node of its Container mode.
            let is_container = op == op::CREATE && body.ends_with(&4i32.to_be_bytes());
            let op = if is_container { op::CREATE_CONTAINER } else { op };
            self.submissions.push(Submission { number, op, body: body.to_vec() });
        }
        self.requests.push_back(ClientRequest { number, xid, op, watched, answer });
        Ok(())
    }

    /// Whether the client has had the answer to its close. Its socket closes soon.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether there is something for the thread.
    pub(super) fn has_work(&self) -> bool {
        !self.to_client.is_empty() || !self.submissions.is_empty() || !self.warnings.is_empty()
    }

    /// The client is gone, or can be served no more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.requests.clear();
        self.watches.clear();
        self.submissions.clear();
    }

    // ---- the session's side ----

    /// The answer to the request of this number, in the order of the server's answers.
    pub(super) fn answer(&mut self, number: u64, code: i32, zxid: i64, body: &[u8]) {
        self.watches.saw(zxid);
        if let Some(at) = self.unanswered_set_watches.iter().position(|own| *own == number) {
            return self.set_watches_answered(at, code);
        }
        let Ok(at) = self.requests.binary_search_by_key(&number, |request| request.number) else {
            return;
        };
        let Some(request) = self.requests.get_mut(at).filter(|request| request.answer.is_none())
        else {
            return;
        };
        let mut answer = reply(request.xid, zxid, code, body);
        if code == err::OK && request.op == op::CREATE && !is_below(&self.chroot, body) {
            self.warnings.push("the server made another node than the client asked for".into());
            answer = reply(request.xid, zxid, err::RUNTIME_INCONSISTENCY, &[]);
        }
        request.answer = Some(answer);
        if let (Some(path), Some(kind)) =
            (request.watched.take(), WatchKind::left_by(request.op, code))
        {
            self.watches.add(kind, path);
        }
        self.flush();
    }

    /// A watch event of the server, in the order of its answers. Events of other watches of the
    /// session are none of the client's.
    pub(super) fn event(&mut self, kind: i32, path: &str) {
        if !self.watches.fire(kind, path) {
            return;
        }
        // Of the chroot itself the client would leave an empty path, and find no watch for it.
        let root = if path == self.chroot { "/" } else { "" };
        let path = format!("{path}{root}");
        self.to_client.extend(reply(xid::EVENT, -1, err::OK, &watch_event(kind, &path)));
    }

    /// The session was taken up on another connection, or an answer to this was lost.
    pub(super) fn set_watches_again(&mut self) {
        self.unanswered_set_watches.clear();
        for body in self.watches.set_watches() {
            let number = self.new_number();
            self.unanswered_set_watches.push(number);
            self.submissions.push(Submission { number, op: op::SET_WATCHES, body });
        }
    }

    fn set_watches_answered(&mut self, at: usize, code: i32) {
        self.unanswered_set_watches.swap_remove(at);
        match code {
            err::OK if self.unanswered_set_watches.is_empty() => self.watches.all_armed(),
            err::OK => {}
            // The connection is lost; or it stands, and only this answer came too late. Both look
            // the same here. So the watches are set again at once, from the same zxid. If a
            // reconnection follows it sets them once more, which changes nothing.
            err::CONNECTION_LOSS => self.set_watches_again(),
            err::SESSION_EXPIRED => self.unanswered_set_watches.clear(),
            _ => {
                self.unanswered_set_watches.clear();
                let what = "the server refused to set the client's watches again";
                self.warnings.push(format!("{what} (ZooKeeper error {code})"));
            }
        }
    }

    /// The session is over.
    pub(super) fn ended(&mut self, code: i32) {
        let code = *self.ended.get_or_insert(code);
        for request in self.requests.iter_mut().filter(|request| request.answer.is_none()) {
            request.answer = Some(reply(request.xid, 0, code, &[]));
        }
        self.watches.clear();
        self.submissions.clear();
        self.flush();
    }

    // ---- both ----

    /// Lets the answers go that no earlier request holds up.
    fn flush(&mut self) {
        while let Some(answer) = self.requests.front_mut().and_then(|request| request.answer.take())
        {
            self.to_client.extend(answer);
            let op = self.requests.pop_front().map(|request| request.op);
            if op == Some(op::CLOSE) {
                self.close();
            }
        }
    }

    fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

fn reply(xid: i32, zxid: i64, err: i32, body: &[u8]) -> Vec<u8> {
    ReplyHeader { xid, zxid, err }.frame(body)
}

/// Whether the path that the server gave a new node has the chroot that the client will cut off.
fn is_below(chroot: &str, body: &[u8]) -> bool {
    Reader::new(body).string().is_ok_and(|path| {
        path.strip_prefix(chroot).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests;
