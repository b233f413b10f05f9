//! The connection's decisions: requests, bytes of the server and the time come in; bytes to send,
//! answers, watch events and changes of the session come out. It does no I/O, reads no clock, and
//! takes no lock.
//!
//! The machine keeps the session, gives every request an answer in time, and settles what a request
//! may have done whose caller has gone. See ARCHITECTURE.md.

mod background;
mod ending;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod removal;
mod requests;
#[cfg(any(test, fuzzing))]
mod rig;
mod server_side;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use background::Task;
pub(crate) use removal::Removal;
pub(crate) use requests::{Answers, Batch};

use self::background::Background;
use super::codec::{self, Listing};
use crate::clock::BootTime;
use crate::error::LossReason;
use crate::session::generation::FolderWatch;
use crate::session::heard::{Answer, Heard, Stamp};
use crate::session::leased_node::LeasedNode;
use crate::world::{HashSet, Sender};
use zk_wire::Malformed;
use zk_wire::code::{err, op, xid};
use zk_wire::frame::{FrameOrHead, Frames, HEAD};
use zk_wire::record::{ConnectReply, ConnectRequest, ReplyHeader, Writer};

/// How long a closing session tries to tell the server.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(700);

pub(crate) struct MachineConfig {
    pub(crate) timeout: Duration,
    /// How long one host may take to connect, and to answer the connect request, at the most.
    pub(crate) attempt: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    /// The servers' tick, where the application states it.
    pub(crate) tick: Option<Duration>,
    /// The name of a node that never exists.
    pub(crate) noop: String,
}

/// How a release ended: ZooKeeper's error code if it was refused for good. No answer at all (the
/// sender is dropped) means that the session was lost first.
pub(crate) type Outcome = Result<(), i32>;

/// What the machine wants done outside, in this order.
pub(crate) enum Output {
    /// A server made the session, after the request for it was sent at `sent`.
    Granted {
        session_id: i64,
        timeout: Duration,
        sent: BootTime,
    },
    /// A server granted a shorter timeout when the session was resumed.
    Shortened {
        timeout: Duration,
    },
    /// The session is taken up on a connection; its number counts the connections of the session.
    Attached {
        epoch: u64,
        is_first: bool,
    },
    /// The connection is lost.
    Suspended,
    /// The session is lost.
    Lost(LossReason),
    /// It is proven that the leader heard of the session at this time or later.
    Heard(BootTime),
    /// A caller's requests, of this number, are answered.
    Answered(u64, Sender<Answers>, Answers),
    /// A request of the application's client is answered.
    #[cfg_attr(not(feature = "client"), allow(dead_code))]
    ClientAnswered {
        number: u64,
        err: i32,
        zxid: i64,
        body: Vec<u8>,
    },
    /// A waiting caller hears how something ended.
    Done(Sender<Outcome>, Outcome),
    Watch {
        kind: i32,
        path: String,
    },
    /// A held node was read with a watch: its czxid and data; `None` if it is gone.
    HoldRead(Arc<LeasedNode>, Option<(i64, Vec<u8>)>),
    /// The children of a node that is watched for them; `None` if they could not be listed.
    FolderListed(Arc<FolderWatch>, Option<(Listing, Arc<HashSet<String>>)>),
    /// A line for the log: a logger may block, and the machine stands behind a lock.
    Log(log::Level, String),
    /// These holds are marked as lost; what their holders left to be run for that is to be run.
    TellLoss(Vec<Arc<LeasedNode>>),
    /// A node may be removed only if no hold stands on this path: the answer is awaited by
    /// [`Machine::may_remove`].
    MayRemove {
        task: u64,
        path: String,
    },
}

pub(crate) struct Machine {
    config: MachineConfig,
    phase: Phase,
    session: Option<Session>,
    ending: Option<Ending>,
    /// Counts the connections that took up the session; watches live only on their own one.
    epoch: u64,
    /// The largest zxid of any answer. (Watch events bear one since ZooKeeper 3.9; `heard` counts
    /// it too, and the next connection must not: it could miss another event of the same zxid.)
    zxid: i64,
    next_xid: i32,
    from_server: Frames,
    /// The requests without all their answers, by their number: the oldest first.
    batches: BTreeMap<u64, requests::SubmittedBatch>,
    next_batch: u64,
    /// Those that wait for a connection, oldest first: by ascending numbers.
    unsent: VecDeque<u64>,
    /// What was sent on this connection and has no answer yet, oldest first.
    outstanding: VecDeque<Outstanding>,
    background: Background,
    heard: Heard,
    proof: Proof,
    last_sent: BootTime,
    /// When the leader was last asked for something: a write or a `sync`.
    last_ordered: BootTime,
    /// When this connection took up the session.
    up_since: BootTime,
    /// Nothing was sent yet on this connection since it took up the session.
    is_new: bool,
    /// When the last bytes came of an answer that is thrown away because it is too long.
    skipped_at: BootTime,
    /// What the owner must do: write these, close the socket, see to the outputs.
    pub(crate) to_server: Vec<u8>,
    pub(crate) cut: Option<String>,
    pub(crate) outputs: VecDeque<Output>,
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
    /// The credentials are sent; so many answers are awaited.
    Auth(BootTime, usize),
    Up,
    /// The session has ended; everything is answered at once.
    Over,
}

struct Ending {
    reason: LossReason,
    until: BootTime,
    /// The goodbye was sent, on this connection or an earlier one.
    is_close_sent: bool,
    /// Whether the server has ended the session.
    server_knows: bool,
    waiters: Vec<Sender<bool>>,
    /// Nodes that should go and would outlive the session.
    lasting_nodes: Vec<String>,
}

struct Outstanding {
    xid: i32,
    op: i32,
    stamp: Stamp,
    sent_for: SentFor,
}

/// The renewal of the lease, on this connection: a `sync`, unless an earlier request has shown
/// almost as much, and behind its answer a write. `heard` says why both.
struct Proof {
    begun: BootTime,
    /// The directory of its write, while an answer is awaited.
    under_way: Option<String>,
    /// Callers that wait until the lease is fresh, oldest first.
    waiters: Vec<LeaseWaiter>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SentFor {
    /// One of the requests of a batch, by the batch's number.
    Batch {
        number: u64,
        part: usize,
    },
    Task(u64),
    Proof,
    Close,
    /// Nobody: pings, syncs.
    Nobody,
}

/// A caller that waits until the lease is fresh.
struct LeaseWaiter {
    /// A directory of its locks.
    dir: String,
    since: BootTime,
    done: Sender<Outcome>,
}

/// What the machine must be told of the lease, which others extend and end, when it looks at the
/// time.
#[derive(Clone, Copy)]
pub(crate) struct LeaseStatus {
    /// When it ends, if a hold depends on it.
    pub(crate) end: Option<BootTime>,
    /// Enough of it is left for a new hold.
    pub(crate) is_fresh: bool,
}

impl Machine {
    pub(crate) fn new(config: MachineConfig, now: BootTime) -> Self {
        Machine {
            background: Background::default(),
            heard: Heard::new(),
            proof: Proof { begun: now, under_way: None, waiters: Vec::new() },
            config,
            phase: Phase::Down,
            session: None,
            ending: None,
            epoch: 0,
            zxid: 0,
            next_xid: 1,
            from_server: Frames::default(),
            batches: BTreeMap::new(),
            next_batch: 0,
            unsent: VecDeque::new(),
            outstanding: VecDeque::new(),
            last_sent: now,
            last_ordered: now,
            up_since: now,
            is_new: false,
            skipped_at: now,
            to_server: Vec::new(),
            cut: None,
            outputs: VecDeque::new(),
        }
    }

    /// T: the negotiated timeout, or the one asked for as long as there is none.
    pub(super) fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.config.timeout, |s| s.timeout)
    }

    /// T/6: the longest that anything may go unanswered.
    fn operation_timeout(&self) -> Duration {
        self.timeout() / 6
    }

    /// How long before an ordered request a request must have been answered to count (see `heard`):
    /// half a tick, and T/12 for the leader's pauses and the clocks.
    fn lag(&self) -> Duration {
        self.config.tick.map_or(self.timeout() / 4, |tick| tick / 2) + self.timeout() / 12
    }

    /// How long one host may take for each of two steps, to connect and to take up the session.
    /// Where a live session is to be resumed, the next host must have its chance in time.
    pub(super) fn attempt(&self) -> Duration {
        self.session.as_ref().map_or(self.config.attempt, |s| s.timeout / 6)
    }

    pub(super) fn wants_connection(&self) -> bool {
        self.phase == Phase::Down
    }

    /// Whether requests are sent at once. On a new connection the `tick` that follows decides what
    /// goes first.
    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up && !self.is_new
    }

    /// How often the dialler may try at the least, so that a live session is found in time.
    pub(super) fn redial_cap(&self) -> Option<Duration> {
        self.session.as_ref().map(|s| (s.timeout / 8).max(Duration::from_millis(20)))
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

    /// Whether the event loop has something to do: it alone hands out what comes out of the
    /// machine, dials, and looks at the time.
    pub(super) fn wants_attention(&self) -> bool {
        !self.outputs.is_empty() || self.cut.is_some() || !self.is_up()
    }

    /// Puts a line for the log among what is to be done outside.
    pub(super) fn log(&mut self, level: log::Level, text: String) {
        self.outputs.push_back(Output::Log(level, text));
    }

    /// Counts what it keeps.
    #[cfg(zk_sim)]
    pub(crate) fn add_kept(&self, kept: &mut crate::observed::Kept) {
        kept.pending_deletes = self.background.pending.len();
        kept.background = self.background.len();
        kept.callers = self.batches.len();
        kept.in_flight =
            self.outstanding.iter().filter(|flight| flight.sent_for != SentFor::Nobody).count();
        kept.proofs = self.proof.waiters.len();
    }

    /// The ids of nodes of ours that should go and may still exist.
    pub(crate) fn pending_deletes(&self) -> Arc<HashSet<String>> {
        self.background.pending.clone()
    }
}

impl Output {
    fn warn(text: String) -> Self {
        Output::Log(log::Level::Warn, text)
    }
}

/// What callers are told whose session has ended so.
pub(crate) fn code_of(reason: LossReason) -> i32 {
    match reason {
        LossReason::AuthFailed => err::AUTH_FAILED,
        _ => err::SESSION_EXPIRED,
    }
}
