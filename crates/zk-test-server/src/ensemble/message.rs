//! The messages between members.

use crate::engine::acl::Id;
use crate::engine::tree::Tree;
use crate::engine::txn::{Stamp, Txn};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A message on its way from one member to another.
///
/// Between two members there are votes, each for itself, and streams (TCP connections from a
/// follower to its leader). Whoever carries packets keeps the order of those from one member to
/// another. It may delay them, and it may drop any: if a packet of a stream is missing, the member
/// that gets the next one takes the stream for broken and closes it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Who sends it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    pub(super) channel: Channel,
    pub(super) message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Election,
    /// A stream between a follower and its leader, and how many packets came before this one.
    Stream {
        id: u64,
        index: u64,
    },
}

/// A transaction, as it is proposed, logged and applied.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stamp: Stamp,
    /// Whose it is, and the number of the request among those of its connection.
    pub(super) session: i64,
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) txn: Txn,
}

/// All that a leader's servers have in common.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) tree: Tree,
    pub(super) sessions: BTreeMap<i64, Duration>,
    pub(super) zxid: i64,
}

/// Who should lead. The greatest vote wins: that of the member with the newest history.
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

/// What a member votes for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    pub(super) state: State,
    /// Of the election; votes of different rounds do not count together.
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
    /// The follower's last epoch and its newest transaction; none if it has accepted this epoch
    /// before.
    AckEpoch {
        history: Option<(u64, i64)>,
    },
    AckNewLeader,
    Ack {
        zxid: i64,
    },
    /// The answer to a ping: the sessions that were heard of since the ping before.
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
    /// SNAP, the proposals that are not committed yet, and NEWLEADER. The follower takes all of it
    /// over at once. (If it lost for a moment a proposal that it had acknowledged before, over an
    /// earlier stream, that proposal could be committed without a quorum.)
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

    /// From either: the stream is closed.
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

    /// The next packet of this stream.
    pub(super) fn packet(&mut self, from: usize, message: Message) -> Packet {
        let channel = Channel::Stream { id: self.id, index: self.sent };
        self.sent += 1;
        Packet { from, to: self.peer, channel, message }
    }

    /// Whether the packet that has arrived is the next one.
    pub(super) fn is_next(&mut self, index: u64) -> bool {
        self.received += 1;
        index == self.received - 1
    }
}
