//! The link's decisions, without a socket: bytes and time in; bytes, cuts and events out.
//!
//! On one side is the client crate, which believes that it talks to one server that never fails; on
//! the other is the ensemble. The machine keeps the session, gives every request an answer in time,
//! and reports what happened. See the crate's ARCHITECTURE.md for why it exists.

mod client_side;
mod ending;
mod long_answer;
mod requests;
mod server_side;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::Outcome;
use super::chores::{Chore, Chores};
use crate::clock::BootTime;
use crate::error::LossReason;
use crate::session::heard::{Answer, Heard, Stamp};
use crate::session::shared::Shared;
use crate::session::wire::code::{err, event, op, xid};
use crate::session::wire::frame::{Frames, HEAD, Next};
use crate::session::wire::record::{ConnectReply, ConnectRequest, ReplyHeader, Writer, request_header};
use crate::session::wire::{Malformed, check};

/// How long a closing session tries to tell the server.
const GOODBYE: Duration = Duration::from_millis(700);

/// A hold this old gets a watch on its node, if it has none yet.
const WATCH_AFTER: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    Connected { session_id: i64, timeout: Duration },
    Suspended,
    Reconnected,
    Lost(LossReason),
}

pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    /// How long one host may take to connect, and to answer the connect request, at the most.
    pub(crate) attempt: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    /// The servers' tick, where the application states it.
    pub(crate) tick: Option<Duration>,
    /// The name of a node that never exists.
    pub(crate) noop: String,
}

pub(super) struct Machine {
    settings: Settings,
    shared: Arc<Shared>,
    phase: Phase,
    session: Option<Session>,
    ending: Option<Ending>,
    /// The largest zxid of any answer. (Watch events bear one since ZooKeeper 3.9; `heard` counts
    /// it too, and the next connection must not: it could miss another event of the same zxid.)
    zxid: i64,
    next_xid: i32,
    from_crate: Frames,
    from_server: Frames,
    /// What the crate asked and has no answer to yet, oldest first.
    asked: VecDeque<Asked>,
    /// What was sent on this connection and has no answer yet, oldest first.
    flight: VecDeque<Flight>,
    chores: Chores,
    heard: Heard,
    proof: Proof,
    crate_connected: bool,
    crate_close: Option<i32>,
    crate_closed: bool,
    last_sent: BootTime,
    /// When the leader was last asked for something: a write or a `sync`.
    last_ordered: BootTime,
    /// When this connection took up the session.
    attached: BootTime,
    last_traffic: BootTime,
    /// When the last bytes came of an answer that is thrown away because it is too long.
    skipped_at: BootTime,
    /// What the pump must do: write these, close the server's socket, pass on the events.
    pub(super) to_server: Vec<u8>,
    pub(super) to_crate: Vec<u8>,
    pub(super) cut: Option<String>,
    pub(super) events: Vec<LinkEvent>,
}

struct Session {
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
    attached_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection; the pump dials.
    Down,
    /// The connect request is sent.
    Greeting(BootTime),
    /// The credentials are sent; so many answers are awaited.
    Auth(BootTime, usize),
    Up,
    /// The session has ended; everything is answered at once.
    Over,
}

struct Ending {
    reason: LossReason,
    until: BootTime,
    /// Whether the server has ended the session.
    told: bool,
    done: Vec<Sender<bool>>,
}

struct Asked {
    xid: i32,
    op: i32,
    frame: Vec<u8>,
    arrived: BootTime,
    sent: bool,
}

struct Flight {
    xid: i32,
    op: i32,
    stamp: Stamp,
    owner: Owner,
}

/// The renewal of the lease, on this connection: a `sync`, unless an earlier request has shown
/// almost as much, and behind its answer a write. `heard` says why both.
struct Proof {
    begun: BootTime,
    /// The directory of its write, while an answer is awaited.
    under_way: Option<String>,
    /// Callers that wait until the lease is fresh, oldest first.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The first of `asked` that has no answer.
    Crate,
    Chore(u64),
    Proof,
    Close,
    /// Nobody: pings, syncs, requests whose caller has been answered.
    Link,
}

/// A caller that waits until the lease is fresh.
struct Waiting {
    /// A directory of its locks.
    dir: String,
    since: BootTime,
    done: Sender<Outcome>,
}

impl Machine {
    pub(crate) fn new(settings: Settings, shared: Arc<Shared>, now: BootTime) -> Self {
        Machine {
            chores: Chores::new(settings.noop.clone()),
            heard: Heard::new(),
            proof: Proof { begun: now, under_way: None, waiting: Vec::new() },
            settings,
            shared,
            phase: Phase::Down,
            session: None,
            ending: None,
            zxid: 0,
            next_xid: 1,
            from_crate: Frames::default(),
            from_server: Frames::default(),
            asked: VecDeque::new(),
            flight: VecDeque::new(),
            crate_connected: false,
            crate_close: None,
            crate_closed: false,
            last_sent: now,
            last_ordered: now,
            attached: now,
            last_traffic: now,
            skipped_at: now,
            to_server: Vec::new(),
            to_crate: Vec::new(),
            cut: None,
            events: Vec::new(),
        }
    }

    /// T: the negotiated timeout, or the one asked for as long as there is none.
    pub(super) fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.settings.timeout, |s| s.timeout)
    }

    /// T/6: the longest that anything may go unanswered.
    pub(super) fn patience(&self) -> Duration {
        self.timeout() / 6
    }

    /// How long before an ordered request a request must have been answered to count (see `heard`):
    /// half a tick, and T/12 for the leader's pauses and the clocks.
    pub(super) fn lag(&self) -> Duration {
        self.settings.tick.map_or(self.timeout() / 4, |tick| tick / 2) + self.timeout() / 12
    }

    /// How long one host may take for each of two steps, to connect and to take up the session.
    /// Where a live session is to be resumed, the next host must have its chance in time.
    pub(crate) fn attempt(&self) -> Duration {
        self.session.as_ref().map_or(self.settings.attempt, |s| s.timeout / 6)
    }

    pub(crate) fn wants_connection(&self) -> bool {
        self.phase == Phase::Down
    }

    /// How often the dialler may try at the least, so that a live session is found in time.
    pub(crate) fn redial_cap(&self) -> Option<Duration> {
        self.session.as_ref().map(|s| (s.timeout / 8).max(Duration::from_millis(20)))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }
}

fn code_of(reason: LossReason) -> i32 {
    match reason {
        LossReason::AuthFailed => err::AUTH_FAILED,
        _ => err::SESSION_EXPIRED,
    }
}
