//! The removal of a node of ours. `background` sends the requests of a removal; this file says
//! which request is next, and what an answer means.
//!
//! If the node's name contains an id of ours, no other client makes a node of that name. The node
//! is deleted by its name, and the delete is sent again until it is acknowledged. If the answer to
//! the create was lost, only the beginning of the name is known, so the node must be found in a
//! listing first. A removal takes these steps, on each connection from the beginning:
//!
//! 1. A write was acknowledged on this connection. After it, all requests of ours that were sent to
//!    this server on earlier connections are done: a server forwards the requests of its clients in
//!    order.
//! 2. A listing or a read shows our node.
//! 3. The node is deleted.
//!
//! # A node that was not found may still come
//!
//! Step 1 says nothing about requests that were sent to *another* server. ZooKeeper refuses the
//! requests of a session that come through any server but the session's owner. The owner is the
//! server through which the leader got the last REVALIDATE, which a server sends for each connect
//! request (`Learner.validateSession`, `LearnerZooKeeperServer.revalidateSession`,
//! `SessionTrackerImpl.checkSession`). So a create that was sent to the server F is done late if a
//! REVALIDATE of F reaches the leader after the session has moved on, and before the create. That
//! happens in two ways:
//!
//! - We give up a handshake at F and dial F again. The answer to the first REVALIDATE completes the
//!   second connection (`Learner.pendingRevalidations` keeps one connection for each session).
//!   Then the stream from F to the leader stops, with the second REVALIDATE and the create in it.
//!   We move on to another server, and the stream goes on.
//! - The stream from F to the leader is full, and the create waits in F for the thread that writes
//!   there (`FollowerRequestProcessor`). We dial F again. The thread that serves the connect
//!   request writes the REVALIDATE itself, so it may pass the create.
//!
//! Sockets that the dialer opens at several servers at a time change nothing here: a server does
//! nothing for the session before it reads a connect request (`NIOServerCnxn.readConnectRequest`),
//! and the machine sends the next one only after it has given the one before up.
//!
//! No later answer of another server shows that this cannot happen any more. But when it happens,
//! F becomes the owner. So our next write on the present connection is refused (SESSION_MOVED), and
//! the session is attached anew. Hence a create whose node was not found [stays known](super::late)
//! for the time [`late_bound`]: the session sends a write from time to time, and looks for the node
//! again on each further connection. After that time the create cannot be done: the servers give up
//! a stream between them that stands still for syncLimit ticks.
//!
//! A client that never dialled F again while one of its handshakes may still be answered there would
//! close the first of the two ways. We do not do that. The second way would stay open, so the create
//! would have to be remembered all the same. And the price is high: no answer shows that a handshake
//! will not be answered any more, so F would be left out for [`late_bound`], a minute at least.
//! Handshakes are given up when their servers cannot reach the leader, and in such an outage that is
//! often all servers at once: the session would find no server when the ensemble comes back, and
//! would expire with all its locks.
//!
//! A create may also be done late by the server to which we are connected now: it waits there in the
//! thread that serves an earlier connection of ours, and that thread gets no processor. The server
//! stays the owner, so no write of ours is refused, and no further connection comes. So the session
//! looks once more when the time of the create is over, after a write that is sent after that time.
//! The server forwards requests in order, so what that thread has passed on by then is done. That the
//! thread runs within [`late_bound`] and T more is assumed.
//!
//! # A node with a common name
//!
//! Other clients may make a node of the same name. Such a node is ours if our session owns it and
//! its czxid is the one that we know. If we know no czxid, because the answer to the create was
//! lost, the nonce in the node's data decides. If the nonce was overwritten, a node of our session
//! is ours, unless it is the node of a later create, which was acknowledged.
//!
//! A delete that comes late could hit the node of the next holder, and a third client would get the
//! lock beside that holder. Two steps prevent that:
//!
//! 1. The library writes to the node, so that the node's version is 1 or higher. The answer also
//!    shows once more that the node is ours.
//! 2. The delete names that version. If it comes late, the server refuses it: the next holder's
//!    node has version 0, since nobody writes to it before its release, unless by hand.
//!
//! The write of step 1 may come late, too, and hit the next holder's node. So what it writes does
//! not count as a nonce: otherwise the other node would look like this one. And each write that has
//! got no answer may raise the other node's version by one. So the delete names a version above the
//! number of such writes, which they alone cannot give the other node.

use super::*;
use crate::error::TOO_LONG_ADVICE;
use crate::machine::codec::{Node, Operation, Reply};
use crate::nonce;
use zk_wire::path;

/// A node of ours that is to go, and how it is found.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The node's path, as far as it is known.
    pub(crate) path: String,
    /// The id that makes the node ours: a part of its name, or the nonce in its data. The pending
    /// deletes contain this id until the node is gone.
    pub(crate) id: String,
    known: KnownPart,
    step: RemovalStep,
    /// The nodes that the listing shows under our id and that were not looked at yet. Full paths.
    found: Vec<String>,
    /// The node of this create was found: the create was done, and cannot be done once more.
    was_done: bool,
    /// So many writes of `RemovalStep::Write` have got no answer. They may still be done.
    lost_writes: i32,
    /// When the create cannot be done any more, once a removal has found no node.
    pub(super) until: Option<BootTime>,
}

/// How much is known of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownPart {
    FullPath,
    /// The beginning of the path; the server may have appended a number.
    Prefix,
    /// The path, which other clients use too; and the czxid, if the create was answered or the node
    /// was seen.
    Shared(Option<i64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RemovalStep {
    Prove,
    /// List the directory, or read the node with a common name.
    Read,
    /// Read the last node in `found`.
    ReadFound,
    /// Give the node with a common name a version that the next holder's node does not have.
    Write(Seen),
    /// Delete the node, if it has this version.
    Delete(Option<i32>),
}

/// A node with a common name, as a read has shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    czxid: i64,
    version: i32,
    /// The data that is written to it.
    data: Vec<u8>,
}

/// What follows from an answer.
pub(super) enum RemovalNext {
    /// Send the next request at once.
    SendNow,
    /// Our node does not exist, and no request can still make it.
    Gone,
    /// Our node does not exist. But its create, whose answer was lost, may still be done.
    Absent,
    /// The server refused a request of this operation. Try again, but seldom: somebody must change
    /// an ACL first.
    Refused(i32),
    /// Try again a little later.
    SendLater,
}

impl Removal {
    /// The removal of a node with this id in its name.
    pub fn named(path: String, id: String) -> Self {
        Removal::new(path, id, KnownPart::FullPath)
    }

    /// The removal of the node that a create of `prefix` may make; `prefix` contains the id.
    pub(crate) fn of_create(prefix: &str, id: &str) -> Self {
        Removal::new(prefix.to_owned(), id.to_owned(), KnownPart::Prefix)
    }

    /// The removal of a node that has `nonce` in its data, and this czxid, if that is known.
    pub fn signed(path: String, nonce: String, czxid: Option<i64>) -> Self {
        Removal::new(path, nonce, KnownPart::Shared(czxid))
    }

    fn new(path: String, id: String, known: KnownPart) -> Self {
        let mut removal = Removal {
            path,
            id,
            known,
            step: RemovalStep::Prove,
            found: Vec::new(),
            was_done: !matches!(known, KnownPart::Prefix | KnownPart::Shared(None)),
            lost_writes: 0,
            until: None,
        };
        removal.restart();
        removal
    }

    /// Whether no other client makes a node of this name.
    pub(super) fn is_named(&self) -> bool {
        !matches!(self.known, KnownPart::Shared(_))
    }

    /// The czxid of the node, if it has a common name and the czxid is known.
    pub(super) fn czxid(&self) -> Option<i64> {
        match self.known {
            KnownPart::Shared(czxid) => czxid,
            KnownPart::FullPath | KnownPart::Prefix => None,
        }
    }

    /// The create has made this node.
    pub(super) fn made(self, path: &str, czxid: i64) -> Self {
        let known =
            if self.is_named() { KnownPart::FullPath } else { KnownPart::Shared(Some(czxid)) };
        let mut removal = Removal { path: path.to_owned(), known, was_done: true, ..self };
        removal.restart();
        removal
    }

    /// Begins anew: the connection is gone, and nothing that was seen on it counts.
    pub(super) fn restart(&mut self) {
        self.found.clear();
        self.lost_writes += i32::from(matches!(self.step, RemovalStep::Write(_)));
        self.step = match self.known {
            KnownPart::FullPath => RemovalStep::Delete(None),
            KnownPart::Prefix | KnownPart::Shared(_) => RemovalStep::Prove,
        };
    }

    /// A write was acknowledged on this connection.
    pub(super) fn is_proven(&mut self) {
        if self.step == RemovalStep::Prove {
            self.step = RemovalStep::Read;
        }
    }

    /// Whether the create can have made one of these nodes of its directory.
    pub(super) fn may_have_made(&self, names: &[&str]) -> bool {
        let own = path::name(&self.path);
        names.iter().any(|name| match self.is_named() {
            true => is_made_by(own, name),
            false => *name == own,
        })
    }

    /// The text that says that a request of the operation `op` was refused with this code, and what
    /// to do.
    pub(super) fn refused(&self, op: i32, code: i32) -> String {
        let (path, dir) = (&self.path, path::parent(&self.path));
        let is_listing = op != op::DELETE && self.known == KnownPart::Prefix;
        let what = match is_listing {
            true => "its directory could not be listed, to find and delete our node",
            false => "our node could not be deleted",
        };
        let of = if op == op::DELETE || is_listing { dir } else { path };
        let (why, advice) = match code {
            err::NO_AUTH => (
                format!(
                    "NoAuth: the ACL of {of} does not give {} to this session",
                    codec::permission(op)
                ),
                "change the ACL, or give auth() credentials that it names; ",
            ),
            err::TOO_LONG => (TOO_LONG_ADVICE.to_owned(), ""),
            code => (err::name(code), ""),
        };
        format!(
            "{path}: {what} ({why}); {advice}it is tried again, and the server deletes the node when the session ends"
        )
    }

    /// The next request. The delete of `noop` is a write without an effect.
    pub(super) fn operation<'a>(&'a self, noop: &'a str) -> Operation<'a> {
        match &self.step {
            RemovalStep::Prove => Operation::Delete { path: noop, version: None },
            RemovalStep::Read if self.known == KnownPart::Prefix => {
                Operation::GetChildren { path: path::parent(&self.path), watch: false }
            }
            RemovalStep::Read | RemovalStep::ReadFound => {
                Operation::GetData { path: self.node(), watch: false }
            }
            RemovalStep::Write(Seen { version, data, .. }) => {
                Operation::SetData { path: self.node(), data, version: Some(*version) }
            }
            RemovalStep::Delete(version) => {
                Operation::Delete { path: self.node(), version: *version }
            }
        }
    }

    /// The node that is looked at now.
    fn node(&self) -> &str {
        self.found.last().unwrap_or(&self.path)
    }

    /// Takes the answer to the last request. `is_written` says that the request is a write and the
    /// leader has acknowledged it; a server without a leader can give the same code, which shows
    /// nothing. `session` is the id of our session, and `acknowledged` the czxid of the last node of
    /// this path whose create was acknowledged.
    pub(super) fn answered(
        &mut self,
        code: i32,
        is_written: bool,
        body: &[u8],
        session: i64,
        acknowledged: Option<i64>,
    ) -> Result<RemovalNext, Malformed> {
        let step = std::mem::replace(&mut self.step, RemovalStep::Prove);
        let is_listing = step == RemovalStep::Read && self.known == KnownPart::Prefix;
        let is_delete = matches!(step, RemovalStep::Delete(_));
        let next = match (step, code) {
            (RemovalStep::Prove, _) if is_written => self.go_on(RemovalStep::Read),
            (RemovalStep::Read, err::OK) if is_listing => self.listed(body)?,
            (RemovalStep::Read, err::NO_NODE) => self.not_found(),
            (RemovalStep::Read, err::OK) => match codec::decode(op::GET_DATA, body)? {
                Reply::Node(node) => self.seen(node, session, acknowledged),
                _ => RemovalNext::SendLater,
            },
            (RemovalStep::ReadFound, err::OK) => match codec::decode(op::GET_DATA, body)? {
                // Somebody has made a node with our id in its name.
                Reply::Node(node) if node.stat.owner != session => self.next_found(),
                _ => {
                    self.was_done = true;
                    self.go_on(RemovalStep::Delete(None))
                }
            },
            (RemovalStep::ReadFound, err::NO_NODE) => self.next_found(),
            // The id is fresh, so a node with it that cannot be read is ours, too.
            (RemovalStep::ReadFound, err::NO_AUTH | err::TOO_LONG) => {
                self.was_done = true;
                self.go_on(RemovalStep::Delete(None))
            }
            (RemovalStep::Write(seen), err::OK) => match codec::decode(op::SET_DATA, body)? {
                // Each lost write may still come, and give the next holder's node a version more.
                Reply::Stat(stat) if stat.owner == session && stat.czxid == seen.czxid => {
                    let version = stat.version;
                    let is_enough = version > self.lost_writes;
                    self.go_on(match is_enough {
                        true => RemovalStep::Delete(Some(version)),
                        false => RemovalStep::Write(Seen { version, ..seen }),
                    })
                }
                _ => self.not_found(), // our node was deleted behind the read
            },
            (RemovalStep::Write(_), err::NO_NODE) if is_written => self.not_found(),
            // Somebody has written to the node behind the read: read it again.
            (RemovalStep::Write(_) | RemovalStep::Delete(Some(_)), err::BAD_VERSION) => {
                self.go_on(RemovalStep::Read)
            }
            // An ACL or a quota forbids the write. The delete then names the version that the node
            // has, and could hit the next holder's node if it came late (`Acl` says so).
            (RemovalStep::Write(seen), code) if !is_passing(code) => {
                self.go_on(RemovalStep::Delete(Some(seen.version)))
            }
            (RemovalStep::Delete(_), err::OK | err::NO_NODE) if is_written => self.next_found(),
            (
                RemovalStep::Read | RemovalStep::Delete(_),
                err::NO_AUTH | err::AUTH_FAILED | err::NOT_EMPTY | err::TOO_LONG,
            ) => RemovalNext::Refused(if is_delete { op::DELETE } else { op::GET_DATA }),
            _ => RemovalNext::SendLater,
        };
        if matches!(next, RemovalNext::Refused(_) | RemovalNext::SendLater) {
            self.restart();
        }
        Ok(next)
    }

    fn go_on(&mut self, step: RemovalStep) -> RemovalNext {
        self.step = step;
        RemovalNext::SendNow
    }

    /// The node does not exist, or not any more.
    fn not_found(&self) -> RemovalNext {
        if self.was_done { RemovalNext::Gone } else { RemovalNext::Absent }
    }

    /// Takes the listing, which contains the node if the create was done.
    fn listed(&mut self, body: &[u8]) -> Result<RemovalNext, Malformed> {
        let (dir, prefix) = (path::parent(&self.path), path::name(&self.path));
        let names = codec::children(body)?.into_iter();
        self.found = names
            .filter(|name| is_made_by(prefix, name))
            .map(|name| path::join(dir, name))
            .collect();
        Ok(self.look_at_found())
    }

    /// Goes on to the next node that the listing has shown.
    fn next_found(&mut self) -> RemovalNext {
        self.found.pop();
        self.look_at_found()
    }

    fn look_at_found(&mut self) -> RemovalNext {
        match self.found.is_empty() {
            true => self.not_found(),
            false => self.go_on(RemovalStep::ReadFound),
        }
    }

    /// Takes the node that exists on the path now.
    fn seen(&mut self, node: Node, session: i64, acknowledged: Option<i64>) -> RemovalNext {
        let Node { data, stat } = node;
        let is_ours = match (self.known, nonce::split(&data).0) {
            _ if stat.owner != session => false,
            // Another client may have overwritten the data, but the czxid stays.
            (KnownPart::Shared(Some(known)), _) => known == stat.czxid,
            (_, Some(nonce)) => nonce == self.id,
            // Another client, or a late write of an earlier removal, has overwritten the data. The
            // node is of a lost create, unless its create was acknowledged: then its caller, its
            // hold or its own removal sees to it.
            (_, None) => acknowledged != Some(stat.czxid),
        };
        if !is_ours {
            return self.not_found();
        }
        if nonce::split(&data).0.is_some() {
            // The write below takes the nonce away. From now on the czxid identifies the node.
            self.known = KnownPart::Shared(Some(stat.czxid));
            self.was_done = true;
        }
        let data = nonce::released_data(&self.id);
        self.go_on(RemovalStep::Write(Seen { czxid: stat.czxid, version: stat.version, data }))
    }
}

/// ZooKeeper's codes of requests that it did not do for lack of time.
const THROTTLED: i32 = -127;
const OPERATION_TIMEOUT: i32 = -7;

/// How long a create whose answer was lost may still be done, at the longest, after a removal has
/// found no node. `timeout` is the session's.
///
/// A leader and a follower end the stream between them when it is silent for syncLimit ticks
/// (`Learner.connectToLeader` and `LearnerHandler.run` set that time on their sockets). A session
/// timeout has two ticks at least, so this covers a syncLimit of 20 and more.
pub(super) fn late_bound(timeout: Duration) -> Duration {
    (timeout * 10).max(Duration::from_secs(60))
}

/// Whether the same request may succeed a little later.
pub(super) fn is_passing(code: i32) -> bool {
    matches!(code, err::CONNECTION_LOSS | err::SESSION_MOVED | THROTTLED | OPERATION_TIMEOUT)
}

/// Whether a create of `prefix`, numbered by the server or not, can have made the node `name`.
fn is_made_by(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        number.strip_prefix('-').unwrap_or(number).bytes().all(|digit| digit.is_ascii_digit())
    })
}
