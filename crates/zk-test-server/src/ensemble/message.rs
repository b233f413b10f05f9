//! The messages between members.

use crate::engine::acl::Id;
use crate::engine::tree::Tree;
use crate::engine::txn::{Stamp, Txn};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A message from one member to another.
///
/// The members exchange votes, and open streams: TCP connections from a follower to its leader.
/// Each vote stands for itself. The simulation must deliver the packets from one member to another
/// in the order in which they were sent. It may delay packets and may drop any of them. A member
/// that misses a packet of a stream notices the gap at the next packet, and closes the stream as
/// broken.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The member that sends the packet.
    pub from: usize,
    /// The member that gets the packet.
    pub to: usize,
    pub(super) channel: Channel,
    pub(super) message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Election,
    /// A stream between a follower and its leader, and the number of packets before this one.
    Stream {
        id: u64,
        index: u64,
    },
}

/// A transaction that is proposed, logged and applied.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stamp: Stamp,
    /// The client's session. `xid` is the number of the request within its connection.
    pub(super) session: i64,
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) txn: Txn,
}

/// The state that all servers of a leader have in common.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) tree: Tree,
    pub(super) sessions: BTreeMap<i64, Duration>,
    pub(super) zxid: i64,
}

/// The candidate that a member votes for. The greatest vote wins: its member has the newest
/// history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vote {
    pub(super) epoch: u64,
    pub(super) zxid: i64,
    pub(super) member: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Looking,
    Following,
    Leading,
}

/// A member's state and its vote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    pub(super) state: State,
    /// The round of the election. Votes of different rounds are not counted together.
    pub(super) round: u64,
    pub(super) vote: Vote,
}

/// A request that only the leader can serve.
#[derive(Clone, Debug)]
pub(super) struct Forwarded {
    pub(super) session: i64,
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
    pub(super) who: Arc<Vec<Id>>,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Notification(Notification),

    // From a follower to its leader.
    FollowerInfo {
        accepted_epoch: u64,
    },
    /// The follower's last epoch and its newest transaction; none if the follower has accepted this
    /// epoch before.
    AckEpoch {
        history: Option<(u64, i64)>,
    },
    AckNewLeader,
    Ack {
        zxid: i64,
    },
    /// The answer to a ping: the sessions whose clients have sent something since the ping before.
    Touched(BTreeMap<i64, Duration>),
    Forwarded(Forwarded),
    Revalidate {
        session: i64,
        timeout: Duration,
    },

    // From the leader to a follower.
    LeaderInfo {
        epoch: u64,
    },
    /// SNAP, the proposals that are not committed yet, and NEWLEADER. The follower takes over all
    /// of it at once. A follower that took over the snapshot first would lose for a moment a
    /// proposal that it had acknowledged on an earlier stream, and this proposal could be committed
    /// without a quorum.
    NewLeader {
        epoch: u64,
        snapshot: Arc<Snapshot>,
        proposals: Vec<Arc<Entry>>,
    },
    UpToDate,
    Proposal(Arc<Entry>),
    Commit {
        zxid: i64,
    },
    Ping,
    Synced,
    Revalidated {
        session: i64,
        is_valid: bool,
    },

    /// From either side: the stream is closed.
    Closed,
}

/// One end of a stream.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: usize,
    pub(super) id: u64,
    sent: u64,
    received: u64,
}

impl Link {
    pub(super) fn new(peer: usize, id: u64) -> Link {
        Link { peer, id, sent: 0, received: 0 }
    }

    /// The next packet to send on this stream.
    pub(super) fn packet(&mut self, from: usize, message: Message) -> Packet {
        let channel = Channel::Stream { id: self.id, index: self.sent };
        self.sent += 1;
        Packet { from, to: self.peer, channel, message }
    }

    /// Whether this packet is the next one of the stream.
    pub(super) fn is_next(&mut self, index: u64) -> bool {
        self.received += 1;
        index == self.received - 1
    }
}
