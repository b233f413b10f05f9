//! The connection's decisions. Its inputs are the requests of callers, the bytes of the server, and
//! the time. Its outputs are the bytes to send, the answers, watch events, and changes of the
//! session. It does no I/O, reads no clock, and takes no lock.
//!
//! The machine knows nothing of its owner. It gives each call and each removal a number, and names
//! held nodes and folders by their paths. The owner looks up by these who waits for what.
//!
//! The machine keeps the session alive and answers every request in time. If a caller leaves before
//! its answer, the machine removes the nodes that the request has made or may still make. See
//! ARCHITECTURE.md.

mod background;
pub mod codec;
mod ending;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod late;
mod login;
mod looks;
mod removal;
mod requests;
#[cfg(any(test, fuzzing, feature = "test"))]
mod rig;
mod server_side;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use background::{Task, backoff};
pub(crate) use login::{SaslStep, SaslWords};
pub use looks::Watched;
pub use removal::Removal;
pub use requests::{Answers, Batch};
#[cfg(any(test, fuzzing, feature = "test"))]
#[allow(unused_imports)] // only a bench outside of this crate uses it
pub use rig::Bench;

use self::background::Background;
use self::codec::Listing;
use self::looks::Looks;
use crate::clock::BootTime;
use crate::error::LossReason;
use crate::lease::heard::{Answer, Heard, Stamp};
use crate::world::HashSet;
use zk_wire::Malformed;
use zk_wire::code::{err, op, xid};
use zk_wire::frame::{FrameOrHead, Frames, HEAD};
use zk_wire::record::{ConnectReply, ConnectRequest, ReplyHeader, Stat, Writer};

/// How long a closing session tries to close itself at the server.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(700);

pub(crate) struct MachineConfig {
    pub(crate) timeout: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    /// Each connection begins with a login by SASL, which the owner's mechanism makes.
    pub(crate) sasl: Option<SaslWords>,
    /// The servers' tick, if the application states it.
    pub(crate) tick: Option<Duration>,
    /// A server to which the session connects may lead. If none does, writes of other clients renew
    /// the lease too (`lease/heard.rs`).
    pub(crate) leader_serves: bool,
    /// The round trip of each request is wanted.
    pub(crate) is_observed: bool,
    /// If all servers refuse the session for this long, it is given up.
    pub(crate) after_data_loss: Option<Duration>,
    /// A delete of the node at this path is a write without an effect ([`noop`]).
    pub(crate) noop: String,
}

impl MachineConfig {
    /// The settings of a session of which the application states nothing but its timeout.
    pub(crate) fn new(timeout: Duration, noop: String) -> Self {
        MachineConfig {
            timeout,
            auth: Vec::new(),
            sasl: None,
            tick: None,
            leader_serves: true,
            is_observed: false,
            after_data_loss: None,
            noop,
        }
    }
}

/// The path of a node whose parent never exists: a delete of it is a write without an effect.
///
/// No ACL can refuse it, since an absent parent has none: each server leaves the delete to the
/// leader, which answers NoNode and commits that. In a folder that exists, a server with eager ACL
/// checks could refuse the delete by itself, which proves nothing. Then one folder without the
/// permission DELETE would cost all locks of the session their lease.
pub(crate) fn noop(chroot: &str, fresh_id: &str) -> String {
    format!("{chroot}/zk-mutex-no-op-{fresh_id}/none")
}

/// The result of a removal or of a renewal of the lease: an error is ZooKeeper's code of a final
/// refusal, or of the loss of the connection.
pub type Outcome = Result<(), i32>;

/// A held node, as its owner names it. `czxid` tells nodes of one path apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchedNode {
    pub(crate) path: String,
    pub(crate) czxid: i64,
}

/// The work that the machine leaves to its owner. The owner does it in this order.
pub(crate) enum Output {
    /// A server has made the session. The connect request was sent at `sent`.
    Granted {
        session_id: i64,
        timeout: Duration,
        sent: BootTime,
    },
    /// A server has granted a shorter timeout when the session was resumed.
    Shortened {
        timeout: Duration,
    },
    /// A connection carries the session now. `epoch` counts the connections that have carried it.
    Attached {
        epoch: u64,
        is_first: bool,
    },
    /// The next step of the login by SASL is needed, and [`Machine::sasl`] takes it: the first, or
    /// the answer to this token of the server.
    Sasl(Option<Vec<u8>>),
    /// No server will let the session in, for this reason; `Lost` follows.
    Refused(String),
    /// The connection is lost.
    Suspended,
    /// The session is lost. No `Done` follows: who still waits for one waits in vain.
    Lost(LossReason),
    /// It is proven that the leader has heard of the session at this time or later.
    Heard(BootTime),
    /// A request of this operation was answered so long after it was sent.
    RoundTrip {
        op: i32,
        took: Duration,
    },
    /// The requests of the batch with this number are answered.
    Answered(u64, Answers),
    /// The raw request with this number is answered.
    RawAnswered {
        number: u64,
        err: i32,
        zxid: i64,
        body: Vec<u8>,
    },
    /// The removal or the renewal with this number has this result.
    Done(u64, Outcome),
    /// The session is closed: whether the server knows.
    Closed(bool),
    Watch {
        kind: i32,
        path: String,
    },
    /// A held node was read, and a watch was set: the czxid and the data of the node that was
    /// there, or `None` if there was none.
    HoldRead(WatchedNode, Option<(i64, Vec<u8>)>),
    /// The folder with this number was listed, together with the pending deletes. `None`: it could
    /// not be listed, or it has changed since, or the watch has ended with its connection; then
    /// nothing more comes for this number.
    FolderListed(u64, Option<(Listing, Arc<HashSet<String>>)>),
    /// The watched node with this number was read; `Ok(None)` if it does not exist. An error is
    /// ZooKeeper's code of a refusal; the node is read again a while later.
    Looked(u64, Result<Option<Stat>, i32>),
    /// A line for the log. The machine does not write it itself: calling threads use the machine
    /// too, under a lock, and what they log goes to the logger, which may block.
    Log(log::Level, String),
    /// This folder was deleted because it was empty, or does not exist.
    Pruned(String),
    /// A folder may be deleted only if it is still as this session made it. The owner, which knows
    /// that, answers with [`Machine::may_prune`].
    MayPrune {
        task: u64,
        path: String,
        stat: Stat,
    },
}

pub(crate) struct Machine {
    config: MachineConfig,
    phase: Phase,
    session: Option<Session>,
    ending: Option<Ending>,
    /// The last server did not know the session and is not believed, until the owner has taken this.
    is_doubted: bool,
    /// Why the last server has refused the login, until the owner has taken it.
    refused_here: Option<String>,
    /// Why the servers refuse the login, if that has ended the session.
    refusal: Option<String>,
    /// Counts the connections that have carried the session. A watch lives only on its own
    /// connection.
    epoch: u64,
    /// The largest zxid of any answer. Watch events also have a zxid since ZooKeeper 3.9. `heard`
    /// counts it, but the next connect request must not: another event of the same zxid could be
    /// missed.
    zxid: i64,
    next_xid: i32,
    from_server: Frames,
    /// The batches that still lack an answer, by their numbers: the oldest first.
    batches: BTreeMap<u64, requests::SubmittedBatch>,
    /// The last number that was given to a batch, a removal, a renewal or a look.
    last_number: u64,
    /// The numbers of the batches that wait for a connection, in ascending order: the oldest first.
    unsent: VecDeque<u64>,
    /// The requests that were sent on this connection and have no answer yet, oldest first.
    outstanding: VecDeque<Outstanding>,
    background: Background,
    looks: Looks,
    heard: Heard,
    proof: Proof,
    last_sent: BootTime,
    /// When a request that the leader serves was last sent: a write, or a `sync` of our own.
    last_ordered: BootTime,
    /// How long the last answer took.
    last_took: Duration,
    /// The first `tick` of those at which something was held, up to the last one.
    held_since: Option<BootTime>,
    /// How this connection was made, or the last one.
    dialled: Dialled,
    /// When this connection began to carry the session.
    up_since: BootTime,
    /// When servers have taken the session up, first and last, and have not served it since. Less
    /// than T lies between two of these times. (The first may be a refusal for lack of time.)
    taken_up: Option<(BootTime, BootTime)>,
    /// This connection carries the session, and the first `tick` has not run since.
    is_new: bool,
    /// A write was acknowledged on this connection.
    is_proven: bool,
    /// When the last bytes of a frame came that had not come as a whole before.
    partial_at: BootTime,
    /// For the owner of the machine: bytes to write, the reason to close the socket, and the
    /// outputs.
    pub(crate) to_server: Vec<u8>,
    pub(crate) cut: Option<String>,
    pub(crate) outputs: VecDeque<Output>,
}

/// How the dialer has made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialled {
    /// How long the server may take for the handshake, and again for the login.
    pub(crate) bound: Duration,
    /// If the server does not know the session, the session has ended. Otherwise the address may
    /// belong to another ensemble by now.
    pub(crate) is_believed: bool,
}

struct Session {
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection; the event loop dials.
    Down,
    /// The connect request is sent.
    Handshake(BootTime),
    /// The login by SASL goes on since this time. With an xid: the answer to our token is missing.
    /// Without: the owner's mechanism makes the next token.
    Sasl(BootTime, Option<i32>),
    /// The credentials are sent, and this many answers to them are missing.
    Auth(BootTime, usize),
    Up,
    /// The session has ended; everything is answered at once.
    Over,
}

struct Ending {
    reason: LossReason,
    until: BootTime,
    /// The close request was sent, on this connection or an earlier one.
    is_close_sent: bool,
    /// A server has refused the login of the session.
    is_login_refused: bool,
    /// The server has ended the session.
    server_knows: bool,
    /// The owner has called `close`, and hears of the end.
    is_awaited: bool,
}

struct Outstanding {
    xid: i32,
    op: i32,
    stamp: Stamp,
    sent_for: SentFor,
}

/// The renewal of the lease on this connection: a `sync`, and after its answer a write. The `sync`
/// is left out if an earlier request shows almost as much. `heard` says why both are needed.
struct Proof {
    begun: BootTime,
    /// An answer to the `sync` or the write is missing.
    is_under_way: bool,
    /// The `sync` that is under way looks whether another client has written; if so, no write of
    /// ours follows it.
    looks_for_commit: bool,
    /// How often this session has looked so.
    looks: u64,
    /// The callers that wait until the lease is fresh, oldest first.
    waiters: Vec<LeaseWaiter>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SentFor {
    /// A request of a batch: the batch's number, and the index of the request in it.
    Batch {
        number: u64,
        part: usize,
    },
    Task(u64),
    /// The look with this number.
    Look(u64),
    Proof,
    Close,
    /// No answer is needed: syncs of the upkeep, and requests whose callers were answered already.
    Nobody,
}

/// A caller that waits until the lease is fresh.
struct LeaseWaiter {
    since: BootTime,
    number: u64,
}

/// The state of the lease, which `tick` gets. Other threads extend and end the lease.
#[derive(Clone, Copy)]
pub(crate) struct LeaseStatus {
    /// The end of the lease, if a hold depends on it.
    pub(crate) end: Option<BootTime>,
    /// Enough of the lease is left for a new hold.
    pub(crate) is_fresh: bool,
}

impl LeaseStatus {
    /// What is left of the lease, for the log.
    pub(crate) fn left(&self, now: BootTime) -> String {
        match self.end {
            Some(end) => format!("lease left {:.1} s", end.since(now).as_secs_f64()),
            None => "nothing is held".to_owned(),
        }
    }
}

impl Machine {
    pub(crate) fn new(config: MachineConfig, now: BootTime) -> Self {
        Machine {
            background: Background::default(),
            looks: Looks::default(),
            heard: Heard::new(config.leader_serves),
            proof: Proof {
                begun: now,
                is_under_way: false,
                looks_for_commit: false,
                looks: 0,
                waiters: Vec::new(),
            },
            config,
            phase: Phase::Down,
            session: None,
            ending: None,
            is_doubted: false,
            refused_here: None,
            refusal: None,
            epoch: 0,
            zxid: 0,
            next_xid: 1,
            from_server: Frames::default(),
            batches: BTreeMap::new(),
            last_number: 0,
            unsent: VecDeque::new(),
            outstanding: VecDeque::new(),
            last_sent: now,
            last_ordered: now,
            last_took: Duration::ZERO,
            held_since: None,
            dialled: Dialled { bound: Duration::ZERO, is_believed: true },
            up_since: now,
            taken_up: None,
            is_new: false,
            is_proven: false,
            partial_at: now,
            to_server: Vec::new(),
            cut: None,
            outputs: VecDeque::new(),
        }
    }

    /// T: the negotiated session timeout, or the requested one as long as there is no session.
    pub(super) fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.config.timeout, |s| s.timeout)
    }

    /// T/6: the longest time that a request may stay without an answer.
    fn operation_timeout(&self) -> Duration {
        self.timeout() / 6
    }

    /// The lag of `heard`: a request counts if it was answered this long before an ordered request
    /// was sent. It is half a tick, and T/12 for pauses of the leader and differences of the
    /// clocks.
    fn lag(&self) -> Duration {
        self.config.tick.map_or(self.timeout() / 4, |tick| tick / 2) + self.timeout() / 12
    }

    /// When the time ends that the dialer has: that of a closing session, or the lease.
    pub(super) fn time_is_up_at(&self, lease: LeaseStatus) -> Option<BootTime> {
        self.ending.as_ref().map(|ending| ending.until).or(lease.end)
    }

    pub(super) fn last_took(&self) -> Duration {
        self.last_took
    }

    /// Whether the dialer makes connections: there is none that carries the session. A client that
    /// is closed before it has a session needs no other connection than the one on which a server
    /// may make the session now.
    pub(super) fn is_dialling(&self) -> bool {
        !matches!(self.phase, Phase::Up | Phase::Over) && !self.ends_without_session()
    }

    pub(super) fn ends_without_session(&self) -> bool {
        self.is_ending() && self.session.is_none()
    }

    pub(super) fn wants_connection(&self) -> bool {
        self.phase == Phase::Down
    }

    /// Whether requests are sent at once. On a new connection they wait for the first `tick`, which
    /// decides what is sent first.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up && !self.is_new
    }

    /// Whether the server has answered the connect request of this connection.
    pub(super) fn is_greeted(&self) -> bool {
        !matches!(self.phase, Phase::Handshake(_))
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The session's id; zero as long as there is no session.
    pub(super) fn session_id(&self) -> i64 {
        self.session.as_ref().map_or(0, |session| session.id)
    }

    /// Whether the event loop has work: only the event loop carries out all outputs, dials, and
    /// calls `tick`.
    pub(super) fn wants_attention(&self) -> bool {
        !self.outputs.is_empty() || self.cut.is_some() || !self.is_up()
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Counts its entries.
    #[cfg(any(feature = "test", zk_sim))]
    pub(crate) fn kept(&self) -> Kept {
        let late_creates = self.background.late.len();
        Kept {
            late_creates,
            pending_deletes: self.background.pending.len() - late_creates,
            background: self.background.len(),
            looks: self.looks.kept(),
            common_names: self.background.acknowledged.len(),
            callers: self.batches.len().max(self.unsent.len()),
            in_flight: self.outstanding.iter().filter(|of| of.sent_for != SentFor::Nobody).count(),
            proofs: self.proof.waiters.len(),
        }
    }

    /// The pending deletes without the creates that have made no node so far.
    pub(crate) fn deletes_under_way(&self) -> HashSet<String> {
        let late = self.background.late.ids();
        let pending = self.background.pending.iter();
        pending.filter(|id| !late.contains(id.as_str())).cloned().collect()
    }

    /// The ids of our own nodes that are to be deleted and may still exist, or may still be made.
    pub(crate) fn pending_deletes(&self) -> Arc<HashSet<String>> {
        self.background.pending.clone()
    }
}

impl Output {
    fn warn(text: String) -> Self {
        Output::Log(log::Level::Warn, text)
    }
}

/// How many entries the machine keeps.
#[cfg(any(feature = "test", zk_sim))]
pub(crate) struct Kept {
    pub(crate) late_creates: usize,
    pub(crate) pending_deletes: usize,
    pub(crate) background: usize,
    pub(crate) looks: (usize, usize),
    pub(crate) common_names: usize,
    pub(crate) callers: usize,
    pub(crate) in_flight: usize,
    pub(crate) proofs: usize,
}

/// The error code for callers whose session has ended for this reason.
pub(crate) fn code_of(reason: LossReason) -> i32 {
    match reason {
        LossReason::AuthFailed => err::AUTH_FAILED,
        _ => err::SESSION_EXPIRED,
    }
}
