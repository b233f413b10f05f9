//! The decisions of the loopback end, without socket, thread or clock. Its inputs are the client's
//! bytes and the session's answers; its outputs are bytes for the client and requests for the
//! session. `thread` carries the outputs out.
//!
//! The client matches answers to requests by their order alone. So each request gets a place in a
//! queue, whether the session or this machine answers it, and answers leave the queue in order.

use std::collections::VecDeque;

use super::watches::{WatchKind, Watches};
use zk_wire::Malformed;
use zk_wire::code::{err, op, xid};
use zk_wire::frame::{FrameOrHead, Frames, HEAD};
use zk_wire::record::{ConnectReply, Reader, ReplyHeader, request_header, watch_event};

/// The longest request that a server accepts by default (`jute.maxbuffer`). If a session sends a
/// longer one, the server cuts its connection, and the locks would suffer.
const LONGEST: usize = 0xf_ffff;

/// A request for the session: the operation, and the body without its header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Submission {
    pub(super) number: u64,
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
}

pub(super) struct ClientMachine {
    /// The client's chroot. The client removes it from the paths of answers and events, by its
    /// length.
    chroot: String,
    next_number: u64,
    from_client: Frames,
    /// The head of a request that is far too long and is being skipped.
    too_long: Option<[u8; HEAD]>,
    is_greeted: bool,
    /// The client's requests whose answers were not sent yet, oldest first.
    requests: VecDeque<ClientRequest>,
    watches: Watches,
    /// The numbers of our own `setWatches` requests that have no answer yet.
    unanswered_set_watches: Vec<u64>,
    /// The error code for every request, once the session is over.
    ended: Option<i32>,
    /// The answer to the client's close was sent, or the client is gone.
    is_closed: bool,
    /// For the thread: bytes to write, requests to submit, in order, and lines for the log. (The
    /// machine does no I/O.)
    pub(super) to_client: Vec<u8>,
    pub(super) submissions: Vec<Submission>,
    pub(super) warnings: Vec<String>,
}

struct ClientRequest {
    number: u64,
    xid: i32,
    op: i32,
    /// The path, if the request sets a watch.
    watched: Option<String>,
    /// The frame of its answer.
    answer: Option<Vec<u8>>,
}

impl ClientMachine {
    /// The requests get the numbers after `first`.
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

    /// Takes bytes of the client. An error means that they are not frames of a client, and nothing
    /// more can be read.
    pub(super) fn client_bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut frames = std::mem::take(&mut self.from_client);
        frames.push(bytes);
        let result = loop {
            // The answer waits for the request's last byte: until then the client expects no
            // answer.
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
        // With a timeout this long the client sends no pings and never takes its session for
        // expired.
        let reply = ConnectReply { timeout_ms: i32::MAX, session_id: 1, password: vec![0; 16] };
        self.to_client.extend(reply.frame());
        Ok(())
    }

    fn request(&mut self, frame: &[u8], is_too_long: bool) -> Result<(), Malformed> {
        let is_closing = self.requests.back().is_some_and(|last| last.op == op::CLOSE);
        if self.is_closed || is_closing {
            return Ok(()); // the client itself drops the requests after its close
        }
        let (xid, op) = request_header(frame)?;
        let body = frame.get(8..).unwrap_or_default();
        let mut watched = None;
        let refusal = match op {
            // The locks use the session too, so a close does not end it.
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
            // `addWatch` is refused: a lasting watch misses events while there is no connection,
            // and this client hears of no reconnection. `removeWatches` would remove the watches of
            // locks too. Refused credentials would cut the connection, and new ones would count
            // until the next reconnection only: credentials belong to the session.
            _ => Some(err::UNIMPLEMENTED),
        };
        if refusal == Some(err::UNIMPLEMENTED) {
            let what = "the client was refused an operation that a shared session cannot have";
            self.warnings.push(format!("{what} (code {op})"));
        }
        let number = self.new_number();
        // The client's xids overflow into negative numbers, which have another meaning in answers.
        let xid = if op == op::PING { xid::PING } else { xid & i32::MAX };
        let answer = refusal.map(|code| reply(xid, 0, code, &[]));
        if answer.is_none() {
            // The client sends a plain create for its Container mode, which would make a persistent
            // node.
            let is_container = op == op::CREATE && body.ends_with(&4i32.to_be_bytes());
            let op = if is_container { op::CREATE_CONTAINER } else { op };
            self.submissions.push(Submission { number, op, body: body.to_vec() });
        }
        self.requests.push_back(ClientRequest { number, xid, op, watched, answer });
        Ok(())
    }

    /// Whether the answer to the client's close was sent. Its socket closes soon.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether there is work for the thread.
    pub(super) fn has_work(&self) -> bool {
        !self.to_client.is_empty() || !self.submissions.is_empty() || !self.warnings.is_empty()
    }

    /// Ends the work for a client that is gone or cannot be served any more.
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

    /// Takes a watch event of the server, in the order of its answers. The events of the library's
    /// own watches are not sent to the client.
    pub(super) fn event(&mut self, kind: i32, path: &str) {
        if !self.watches.fire(kind, path) {
            return;
        }
        // If the path is the chroot itself, the client would make it an empty path and find no
        // watch for it.
        let root = if path == self.chroot { "/" } else { "" };
        let path = format!("{path}{root}");
        self.to_client.extend(reply(xid::EVENT, -1, err::OK, &watch_event(kind, &path)));
    }

    /// Sets the client's watches again: another connection carries the session, or an answer to
    /// this was lost.
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
            // Either the connection is lost, or only this answer came too late. The code is the
            // same. So the watches are set again at once, from the same zxid. If a reconnection
            // follows, it sets them once more, which changes nothing.
            err::CONNECTION_LOSS => self.set_watches_again(),
            err::SESSION_EXPIRED => self.unanswered_set_watches.clear(),
            _ => {
                self.unanswered_set_watches.clear();
                let what = "the server refused to set the client's watches again";
                self.warnings.push(format!("{what} (ZooKeeper error {code})"));
            }
        }
    }

    /// The session is over: every request gets this code.
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

    /// Sends the answers that wait for no earlier request.
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

/// Whether the path of a new node begins with the chroot, which the client will remove.
fn is_below(chroot: &str, body: &[u8]) -> bool {
    Reader::new(body).string().is_ok_and(|path| {
        path.strip_prefix(chroot).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests;
