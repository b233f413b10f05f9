//! The actions of a history, and the scopes: which histories the search plays.

use std::fmt;

use Action::*;

use crate::client::T;

/// Which worlds the search tries: all histories of `depth` actions of these kinds.
#[derive(Debug)]
pub struct Scope {
    pub name: &'static str,
    pub depth: usize,
    /// The client dials this many servers, and only their streams stop: two, if a second follower
    /// would show nothing new.
    pub servers: usize,
    /// The name of a lock's node has an id. Otherwise all locks have one name.
    pub is_named: bool,
    /// How many locks the client asks for, one after the other.
    pub calls: usize,
    /// A REVALIDATE can overtake requests that wait for the stream to the leader.
    pub overtaking: bool,
    /// The streams from the leader stop, too.
    pub down: bool,
    /// The leader changes; the old one may not know it.
    pub elections: bool,
    /// Streams break.
    pub breaks: bool,
    /// Time passes in steps so long. Zero: it does not pass.
    pub step: u64,
    /// Time passes until a stream that stands still would break.
    pub patience: bool,
    /// Another client takes the lock when it is free.
    pub theirs: bool,
    /// A hold depends on the lease, and the leader pings the followers.
    pub lease: bool,
    pub starts: &'static [Start],
}

/// Where the histories of a scope begin.
#[derive(Debug)]
pub struct Start {
    /// The client has made its session at this server. Server 0 is the leader.
    pub at: usize,
    /// So long after a ping of the leader.
    pub after_ping: u64,
    /// What has happened since.
    pub done: &'static [Action],
}

const PLAIN: Scope = Scope {
    name: "",
    depth: 0,
    servers: 3,
    is_named: true,
    calls: 1,
    overtaking: false,
    down: false,
    elections: false,
    breaks: false,
    step: 0,
    patience: false,
    theirs: false,
    lease: false,
    starts: &[start(0, 0), start(1, 0)],
};

const fn start(at: usize, after_ping: u64) -> Start {
    Start { at, after_ping, done: &[] }
}

/// The node was marked as released, and its delete waits in this server.
const fn half_released(at: usize) -> Start {
    Start { at, after_ping: 0, done: &RELEASED[at] }
}

const RELEASED: [[Action; 5]; 2] = [
    [Lock, StopUp(0), Release(0), PassRequest(0), PassRequest(0)],
    [Lock, StopUp(1), Release(0), PassRequest(1), PassRequest(1)],
];

const fn late_writes(done: &'static [Action]) -> Start {
    Start { at: 1, after_ping: 0, done }
}

/// The write of the first connection waits in server 1, behind which the client has dialled it
/// again. Over server 2 the node is written to, and the next request waits there. Then the release
/// is done over the leader, and another client has the lock.
const WRITTEN_ONCE: [Action; 12] = [
    Lock,
    StopUp(1),
    Release(0),
    Dial(1),
    StopUp(2),
    Dial(2),
    PassCheck(2),
    PassRequest(2),
    PassRequest(2),
    Dial(2),
    Dial(0),
    TheyLock,
];

/// The same, with one more request over server 2.
const WRITTEN_TWICE: [Action; 13] = [
    Lock,
    StopUp(1),
    Release(0),
    Dial(1),
    StopUp(2),
    Dial(2),
    PassCheck(2),
    PassRequest(2),
    PassRequest(2),
    PassRequest(2),
    Dial(2),
    Dial(0),
    TheyLock,
];

/// All faults, and time; two locks.
const ALL_FAULTS: Scope = Scope {
    calls: 2,
    overtaking: true,
    down: true,
    elections: true,
    breaks: true,
    step: T / 6,
    ..PLAIN
};

/// All that is searched. The depths are such that all searches together, those for the weaker rules
/// too, take less than a minute on two cores. Measured on 24 November 2026: 45 s of processors, and
/// 48 s on two cores that had a load of 4.5.
pub static SCOPES: [Scope; 10] = [
    // Handshakes that are given up, while the streams of the followers stop.
    Scope { name: "handshakes", depth: 9, ..PLAIN },
    // Packets of one follower pass each other, too, and the leader's own clients wait.
    Scope { name: "overtaking", depth: 8, overtaking: true, ..PLAIN },
    // Streams stand still for as long as they can.
    Scope { name: "patience", depth: 7, servers: 2, overtaking: true, patience: true, ..PLAIN },
    // A node was looked for in vain, long ago; an outage of T and more comes.
    Scope {
        name: "long outage",
        depth: 7,
        servers: 2,
        overtaking: true,
        patience: true,
        step: T + T / 6,
        starts: &[Start {
            at: 1,
            after_ping: 0,
            done: &[StopUp(1), Lock, Dial(1), Dial(0), WaitLong],
        }],
        ..PLAIN
    },
    Scope { name: "faults", depth: 5, ..ALL_FAULTS },
    // Nodes with one name, also of another client.
    Scope {
        name: "common names",
        depth: 9,
        servers: 2,
        is_named: false,
        calls: 2,
        overtaking: true,
        theirs: true,
        ..PLAIN
    },
    // The same with all faults, and time; also from a release whose delete waits.
    Scope {
        name: "common names and leaders",
        depth: 6,
        is_named: false,
        theirs: true,
        starts: &[start(0, 0), start(1, 0), half_released(0), half_released(1)],
        ..ALL_FAULTS
    },
    // Common names, from the middle of a release whose write waits in one follower; the release
    // goes on in another one.
    Scope {
        name: "late writes",
        depth: 6,
        is_named: false,
        overtaking: true,
        starts: &[late_writes(&WRITTEN_ONCE), late_writes(&WRITTEN_TWICE)],
        ..PLAIN
    },
    // The lease, on one follower and the leader.
    Scope {
        name: "lease",
        depth: 8,
        servers: 2,
        calls: 0,
        down: true,
        breaks: true,
        step: T / 6,
        lease: true,
        starts: &[start(1, 250), start(0, 0)],
        ..PLAIN
    },
    // The lease, when the leader changes.
    Scope {
        name: "lease and leaders",
        depth: 5,
        calls: 0,
        down: true,
        elections: true,
        breaks: true,
        step: T / 12,
        lease: true,
        starts: &[start(0, 0), start(0, 250), start(1, 0), start(1, 250)],
        ..PLAIN
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection breaks, if there is one, and the client dials this server.
    Dial(usize),
    StopUp(usize),
    StopDown(usize),
    /// All packets pass, in the order in which they came.
    GoUp(usize),
    GoDown(usize),
    /// One packet passes: the first REVALIDATE or answer to a ping.
    PassCheck(usize),
    /// One packet passes: the first request.
    PassRequest(usize),
    PassDown(usize),
    /// The stream between this follower and the leader breaks, and the follower joins again.
    Break(usize),
    /// Packets to the leader are lost from now on; those from it still come.
    LoseUp(usize),
    Elect(usize),
    /// The old leader hears of the new one.
    Rejoin,
    Lock,
    Abandon(usize),
    Release(usize),
    TheyLock,
    Wait,
    WaitLong,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Dial(s) => write!(f, "the client's connection breaks, and it dials server {s}"),
            Action::StopUp(s) => write!(f, "the way of server {s} to the leader stops"),
            Action::StopDown(s) => write!(f, "the stream from the leader to server {s} stops"),
            Action::GoUp(s) => write!(f, "the way of server {s} to the leader opens"),
            Action::GoDown(s) => write!(f, "the stream from the leader to server {s} opens"),
            Action::PassCheck(s) => {
                write!(f, "one REVALIDATE, or answer to a ping, of server {s} passes")
            }
            Action::PassRequest(s) => write!(f, "one request of server {s} passes"),
            Action::PassDown(s) => write!(f, "one packet of the leader to server {s} passes"),
            Action::Break(s) => write!(f, "server {s} loses the leader, and joins it again"),
            Action::LoseUp(s) => {
                write!(f, "what server {s} sends to the leader is lost from now on")
            }
            Action::Elect(s) => {
                write!(f, "server {s} becomes the leader; the old one does not know")
            }
            Action::Rejoin => write!(f, "the old leader joins the new one"),
            Action::Lock => write!(f, "the client asks for a lock"),
            Action::Abandon(call) => write!(f, "the caller of lock {call} leaves"),
            Action::Release(call) => write!(f, "the holder of lock {call} releases it"),
            Action::TheyLock => write!(f, "the other client takes the lock"),
            Action::Wait => write!(f, "time passes"),
            Action::WaitLong => write!(f, "time passes, until a stopped stream would break"),
        }
    }
}
