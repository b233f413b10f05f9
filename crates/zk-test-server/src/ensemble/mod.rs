//! An ensemble of ZooKeeper servers for simulations. It has no sockets, no threads and no clock:
//! the caller passes in events and the time, and carries out the outputs.
//!
//! The servers are made of the parts of the embedded server's engine. They do what ZooKeeper 3.8.0
//! does wherever a client could see a difference:
//!
//! * Only the leader numbers writes. It proposes them to its followers, and commits a write when a
//!   quorum has logged it. Followers apply committed writes in the leader's order, when the
//!   leader's stream has brought them. They answer reads from their own tree, and fire watches when
//!   they apply a write.
//! * A follower forwards writes and `sync` to the leader. It answers a write when it applies it.
//!   Requests of one session are answered in order, except for those that a member refuses eagerly
//!   ([`eager_acl_check`](Settings::eager_acl_check)).
//! * Only the leader expires sessions, by its ticks. Three things keep a session alive: the session
//!   is made or checked, its client sends something on its own connection to the leader, or a
//!   follower lists the session in its answer to the leader's ping. The leader pings every half
//!   tick. **A forwarded write does not keep a session alive.**
//! * A follower that receives nothing from its leader for [`sync_limit`](Settings::sync_limit)
//!   ticks closes its clients' connections and looks for a leader. Until then it answers reads and
//!   pings. A leader that receives nothing from a quorum for that long does the same. Until then it
//!   also answers `sync`, if no proposal is open.
//! * The member with the newest history among those that reach a quorum is elected. Its followers
//!   take over its history, and lose writes that only they had logged. A write that was
//!   acknowledged to a client is in the history of some member of each quorum, so it is not lost.
//!   Sessions begin anew at a new leader, with their whole timeout.
//!
//! The simulation carries packets and bytes, sets the time, and makes the faults: it delays or
//! drops [packets](Packet), cuts connections, stops and starts members, and lets their clocks
//! drift.
//!
//! # What is simpler than in the real server
//!
//! * A log is written at once. There is no DIFF: a follower takes over the leader's whole tree.
//! * No observers, no local sessions, no `reconfig`, no read-only mode, no four-letter words.
//! * The pause between two repeated votes grows to 3.2 seconds at most, not to a minute.

mod clock;
mod eager;
mod election;
mod leader;
mod learner;
mod member;
mod message;
mod pipeline;
mod server;

use self::clock::Clock;
use self::member::{Member, Part};
pub use self::message::Packet;
use self::server::Server;
use crate::engine::front::TimeoutLimits;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The configuration of the servers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of servers, at most 100.
    pub members: usize,
    /// `tickTime`.
    pub tick: Duration,
    /// `initLimit`, in ticks: the time that a follower has to join a leader.
    pub init_limit: u32,
    /// `syncLimit`, in ticks: the time after which a silent leader or follower counts as lost.
    pub sync_limit: u32,
    /// `minSessionTimeout`; usually two ticks.
    pub min_session: Duration,
    /// `maxSessionTimeout`; usually twenty ticks.
    pub max_session: Duration,
    /// The pause between two checks for containers and nodes with a time to live that can be
    /// deleted.
    pub reap_interval: Duration,
    /// `zookeeper.enableEagerACLCheck`.
    pub eager_acl_check: bool,
    /// `zookeeper.leaderServes`. Otherwise the leader closes the connections of clients.
    pub leader_serves: bool,
}

impl Settings {
    fn init_time(&self) -> Duration {
        self.tick * self.init_limit
    }

    fn sync_time(&self) -> Duration {
        self.tick * self.sync_limit
    }
}

impl Default for Settings {
    /// As in the configuration that comes with ZooKeeper, for three servers.
    fn default() -> Settings {
        let tick = Duration::from_secs(2);
        Settings {
            members: 3,
            tick,
            init_limit: 10,
            sync_limit: 5,
            min_session: tick * 2,
            max_session: tick * 20,
            reap_interval: Duration::from_secs(60),
            eager_acl_check: false,
            leader_serves: true,
        }
    }
}

/// The number of a client's connection. The simulation chooses it, and uses no number twice.
pub type ConnId = u64;

/// The reason why a member begins to look for a leader.
type Reason = &'static str;

/// An output of the ensemble. The caller carries out the outputs in their order.
#[derive(Debug)]
pub enum Output {
    /// Send this to a client.
    Bytes {
        /// The member that sends.
        member: usize,
        /// The client's connection.
        conn: ConnId,
        /// Whole frames.
        bytes: Vec<u8>,
    },
    /// Close a connection, after all earlier bytes were sent to its client. The caller still has to
    /// call [`Ensemble::closed`].
    Close {
        /// The member that closes the connection.
        member: usize,
        /// The connection.
        conn: ConnId,
    },
    /// Carry this packet to another member.
    Packet(Packet),
    /// An event that a real server would log.
    Notice {
        /// The member that it is about.
        member: usize,
        /// The event.
        notice: Notice,
    },
}

/// An event that a real server would log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The member has no leader, and looks for one.
    Looks {
        /// The reason.
        why: &'static str,
    },
    /// The member leads, and serves clients.
    Leads {
        /// The epoch in which it leads.
        epoch: u64,
    },
    /// The member follows a leader, and serves clients.
    Follows {
        /// The leader.
        leader: usize,
        /// The leader's epoch.
        epoch: u64,
    },
    /// The leader ends a session that has timed out.
    Expired {
        /// The session.
        session: i64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Looks { why } => write!(f, "looks for a leader: {why}"),
            Notice::Leads { epoch } => write!(f, "leads in epoch {epoch}"),
            Notice::Follows { leader, epoch } => write!(f, "follows {leader} in epoch {epoch}"),
            Notice::Expired { session } => write!(f, "expires session {session:#x}"),
        }
    }
}

/// A node in a member's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its path.
    pub path: String,
    /// The session that owns the node, if the node is ephemeral; 0 for none. As in ZooKeeper a
    /// negative number marks a container, or a node with a time to live.
    pub owner: i64,
    /// The transaction that made it.
    pub czxid: i64,
    /// Its data.
    pub data: Vec<u8>,
}

/// A node in a member's tree, as [`Ensemble::each_node`] shows it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Its path.
    pub path: &'a str,
    /// As in [`NodeInfo`].
    pub owner: i64,
    /// The transaction that made it.
    pub czxid: i64,
    /// The transaction that wrote its data.
    pub mzxid: i64,
    /// Its data.
    pub data: &'a [u8],
}

/// The servers. See the [module's page](self).
///
/// Each call takes the time, `now`, which never goes back. After each call the caller takes the
/// [outputs](Self::take_outputs).
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Member>,
    outputs: Vec<Output>,
}

impl Ensemble {
    /// Servers without data, none of which runs yet. The clocks' differences and the sessions'
    /// passwords are made from the seed.
    pub fn new(settings: &Settings, seed: u64) -> Ensemble {
        let mut rng = fastrand::Rng::with_seed(seed);
        let secret = rng.u128(..);
        let make = |id| {
            let ahead = Duration::from_nanos(rng.u64(..3_600_000_000_000));
            let mut server = Server::new(id, settings.clone(), secret);
            server.set_now(ahead);
            Member { server, clock: Clock::new(ahead), part: Part::Down }
        };
        Ensemble { members: (0..settings.members).map(make).collect(), outputs: Vec::new() }
    }

    /// The outputs since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Sets the time of a member and lets it take an event.
    fn at<T>(
        &mut self,
        member: usize,
        now: Duration,
        happens: impl FnOnce(&mut Member) -> T,
    ) -> Option<T> {
        let member = self.members.get_mut(member)?;
        member.server.set_now(member.clock.at(now));
        let result = happens(member);
        self.outputs.extend(member.take_outputs());
        Some(result)
    }

    // ---- clients ----

    /// A client has connected.
    pub fn open(&mut self, member: usize, conn: ConnId, peer: SocketAddr, now: Duration) {
        self.at(member, now, |member| member.open(conn, peer));
    }

    /// A client has sent these bytes, in any pieces.
    pub fn bytes(&mut self, member: usize, conn: ConnId, bytes: &[u8], now: Duration) {
        self.at(member, now, |member| member.read(conn, bytes));
    }

    /// A client's connection is gone.
    pub fn closed(&mut self, member: usize, conn: ConnId, now: Duration) {
        self.at(member, now, |member| member.server.hang_up(conn));
    }

    // ---- members ----

    /// A packet has arrived.
    pub fn packet(&mut self, packet: Packet, now: Duration) {
        self.at(packet.to, now, |member| member.hear(packet));
    }

    /// The time, in the world's time, at which a member has something to do.
    pub fn next_timer(&self, member: usize) -> Option<Duration> {
        let member = self.members.get(member)?;
        member.next_timer().map(|at| member.clock.when(at))
    }

    /// Lets a member do what is due.
    pub fn timer(&mut self, member: usize, now: Duration) {
        self.at(member, now, Member::timer);
    }

    /// Starts a member that does not run, with or without the data on its disk.
    pub fn start(&mut self, member: usize, keeps_data: bool, now: Duration) {
        self.at(member, now, |member| {
            if matches!(member.part, Part::Down) {
                if !keeps_data {
                    member.server.wipe();
                }
                member.look("it has started");
            }
        });
    }

    /// Ends a member's process, and with it that it is deaf. The outputs are what the operating system does then: it closes all
    /// connections and streams. A caller that simulates the loss of the whole host drops these
    /// outputs.
    pub fn kill(&mut self, member: usize, now: Duration) {
        self.at(member, now, Member::stop);
    }

    /// Lets a member's clock run faster than the world's by so many millionths from now on.
    pub fn set_drift(&mut self, member: usize, drift_ppm: i32, now: Duration) {
        if let Some(member) = self.members.get_mut(member) {
            member.clock.set_drift(drift_ppm, now);
        }
    }

    /// From now on a member grants no session timeout beyond these limits.
    pub fn set_session_limits(&mut self, member: usize, min: Duration, max: Duration) {
        if let Some(member) = self.members.get_mut(member) {
            member.server.front.limits = TimeoutLimits { min, max };
        }
    }

    /// From now on a member takes sessions up and answers none of its clients' requests, as a server
    /// whose request thread is dead; or it answers again. What it has read until then is done.
    pub fn set_deaf(&mut self, member: usize, is_deaf: bool) {
        if let Some(member) = self.members.get_mut(member) {
            member.server.is_deaf = is_deaf;
        }
    }

    /// Whether that is so.
    pub fn is_deaf(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.server.is_deaf)
    }

    // ---- actions of an operator ----

    /// Lets the leader expire a session; false if there is none with this id, or no leader.
    pub fn expire(&mut self, session: i64, now: Duration) -> bool {
        self.lead(now, |leader, server| leader.expire(server, session))
    }

    /// Lets the next sequential child of `parent` have the number `next`; false if there is no such
    /// node, or no leader.
    pub fn set_sequence(&mut self, parent: &str, next: i32, now: Duration) -> bool {
        self.lead(now, |leader, server| leader.set_sequence(server, parent, next))
    }

    fn lead(
        &mut self,
        now: Duration,
        does: impl FnOnce(&mut leader::Leader, &mut Server) -> bool,
    ) -> bool {
        let Some(leader) = self.leader() else { return false };
        let done = self.at(leader, now, |member| match &mut member.part {
            Part::Leading(leader) => does(leader, &mut member.server),
            Part::Down | Part::Looking(_) | Part::Following(_) => false,
        });
        done == Some(true)
    }

    // ---- observation ----

    /// The member that leads and serves. During a cut between members there may be several; then
    /// it is the member that was elected last.
    pub fn leader(&self) -> Option<usize> {
        let leads =
            |member: &&Member| matches!(member.part, Part::Leading(_)) && member.server.is_serving;
        let leaders = self.members.iter().filter(leads);
        leaders.max_by_key(|member| member.server.current_epoch).map(|member| member.server.id)
    }

    /// What a member's clock shows.
    pub fn clock(&self, member: usize, now: Duration) -> Duration {
        self.members.get(member).map_or(now, |member| member.clock.at(now))
    }

    /// Whether a member runs.
    pub fn is_running(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| !matches!(member.part, Part::Down))
    }

    /// Whether a member serves clients.
    pub fn is_serving(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.server.is_serving)
    }

    /// Whether a member runs and cannot join the leader: it has accepted the epoch of a later leader
    /// that no quorum followed. The real server refuses the leader then too (`Learner`), until the
    /// others elect one again.
    pub fn is_left_out(&self, member: usize) -> bool {
        let is_newer = |leader: usize| {
            self.members[member].server.accepted_epoch > self.members[leader].server.current_epoch
        };
        self.is_running(member) && !self.is_serving(member) && self.leader().is_some_and(is_newer)
    }

    /// Whether a member serves clients under a leader that has been replaced, and does not know it
    /// yet.
    pub fn is_deposed(&self, member: usize) -> bool {
        let epoch = |member: usize| self.members[member].server.current_epoch;
        self.is_serving(member) && self.leader().is_some_and(|leader| epoch(member) < epoch(leader))
    }

    /// Whether all other members serve one leader and have logged and applied the same writes. Only
    /// then may a member that is down lose its data. Otherwise this member could be one of only two
    /// that have logged a committed write, and the ensemble would lose this write.
    pub fn can_lose_data(&self, member: usize) -> bool {
        let state = |member: &Member| {
            let server = &member.server;
            (server.is_serving, server.current_epoch, server.last_logged(), server.applied)
        };
        let mut others = self.members.iter().filter(|other| other.server.id != member).map(state);
        let Some(first) = others.next() else { return false };
        first.0 && first.2 == first.3 && others.all(|other| other == first)
    }

    /// The newest transaction that a member has applied.
    pub fn applied(&self, member: usize) -> i64 {
        self.members.get(member).map_or(0, |member| member.server.applied)
    }

    /// The sessions, as far as a member has applied them: their ids and timeouts, by id.
    pub fn sessions(&self, member: usize) -> Vec<(i64, Duration)> {
        let sessions = self.members.get(member).map(|member| &member.server.sessions);
        sessions.into_iter().flatten().map(|(id, timeout)| (*id, *timeout)).collect()
    }

    /// The timeout after which this member expires a session that it does not hear of. A server
    /// granted it when the session's client connected last. The leader goes by it at once, even if
    /// the server's answer never comes to the client. `None` if the member does not lead, or has no
    /// such session.
    pub fn counted_timeout(&self, member: usize, session: i64) -> Option<Duration> {
        match &self.members.get(member)?.part {
            Part::Leading(leader) => leader.order.sessions.counted(session),
            _ => None,
        }
    }

    /// The timeout that was granted on the newest connection of this session, at whichever member.
    pub fn granted_timeout(&self, session: i64) -> Option<Duration> {
        let all = self.members.iter().flat_map(|member| &member.server.front.conns);
        let its = all.filter(|(_, client)| client.session == session);
        its.max_by_key(|(conn, _)| **conn).map(|(_, client)| client.timeout)
    }

    /// The nodes, as far as a member has applied them, by path.
    pub fn nodes(&self, member: usize) -> Vec<NodeInfo> {
        let tree = self.members.get(member).map(|member| &member.server.front.store.tree);
        let mut nodes: Vec<NodeInfo> = tree
            .into_iter()
            .flat_map(|tree| tree.iter())
            .map(|(path, node)| NodeInfo {
                path: path.to_owned(),
                owner: node.stat.owner,
                czxid: node.stat.czxid,
                data: node.data.as_deref().unwrap_or_default().to_vec(),
            })
            .collect();
        nodes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        nodes
    }

    /// Calls `see` with each node, as far as a member has applied them, in no order.
    pub fn each_node(&self, member: usize, mut see: impl FnMut(NodeView<'_>)) {
        let Some(member) = self.members.get(member) else { return };
        for (path, node) in member.server.front.store.tree.iter() {
            see(NodeView {
                path,
                owner: node.session(),
                czxid: node.stat.czxid,
                mzxid: node.stat.mzxid,
                data: node.data.as_deref().unwrap_or_default(),
            });
        }
    }

    /// How many watches a member's clients have set.
    pub fn watch_count(&self, member: usize) -> usize {
        self.members.get(member).map_or(0, |member| member.server.front.store.watches.len())
    }
}

#[cfg(test)]
mod tests;
