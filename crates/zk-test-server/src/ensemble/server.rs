//! The state that a member has in each of its roles: its history, its clients, its vote and its
//! outputs.

use super::message::{Channel, Entry, Link, Message, Notification, Packet, Snapshot, State, Vote};
use super::pipeline::Pipeline;
use super::{Notice, Output, Settings};
use crate::Brand;
use crate::engine::ConnId;
use crate::engine::conn::State as ConnState;
use crate::engine::finish::Pending;
use crate::engine::front::{self, Front, Identity, TimeoutLimits};
use crate::engine::sasl::Sasl;
use crate::engine::txn::Txn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zk_wire::code::{err, op};
use zk_wire::frame::Frames;
use zk_wire::record::ReplyHeader;

/// The wall clock at the beginning of every simulated world: 2020-01-01, in milliseconds since
/// 1970.
const EPOCH: i64 = 1_577_836_800_000;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: usize,
    pub(super) members: usize,
    pub(super) settings: Settings,
    /// The time on the member's own clock.
    pub(super) now: Duration,
    /// The clients, and the tree with all transactions that were applied.
    pub(super) front: Front,
    /// The timeouts of all sessions, from the transactions that were applied.
    pub(super) sessions: BTreeMap<i64, Duration>,
    /// The newest transaction in the tree.
    pub(super) applied: i64,
    /// Transactions that the member has logged and acknowledged and does not know to be committed.
    /// They survive a restart, as the applied ones do.
    pub(super) tail: VecDeque<Arc<Entry>>,
    pub(super) accepted_epoch: u64,
    pub(super) current_epoch: u64,
    /// The round of the last election.
    pub(super) round: u64,
    /// Whether clients are served.
    pub(super) is_serving: bool,
    /// Whether requests are read and not answered.
    pub(super) is_deaf: bool,
    pub(super) pipeline: Pipeline,
    inputs: BTreeMap<ConnId, Frames>,
    /// Connections whose session is being made or checked. The member does not read them meanwhile.
    connecting: BTreeSet<ConnId>,
    streams: u64,
    outputs: Vec<Output>,
}

impl Server {
    pub(super) fn new(id: usize, settings: Settings, secret: u128) -> Server {
        let identity = Identity { server: id as u8 + 1, epoch: EPOCH, secret };
        let limits = TimeoutLimits { min: settings.min_session, max: settings.max_session };
        Server {
            id,
            members: settings.members,
            settings,
            now: Duration::ZERO,
            front: Front::new(identity, limits, Brand::default(), None, Sasl::default()),
            sessions: BTreeMap::new(),
            applied: 0,
            tail: VecDeque::new(),
            accepted_epoch: 0,
            current_epoch: 0,
            round: 0,
            is_serving: false,
            is_deaf: false,
            pipeline: Pipeline::default(),
            inputs: BTreeMap::new(),
            connecting: BTreeSet::new(),
            streams: 0,
            outputs: Vec::new(),
        }
    }

    pub(super) fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.front.set_now(self.now);
    }

    pub(super) fn quorum(&self) -> usize {
        self.members / 2 + 1
    }

    // ---- messages to other members ----

    pub(super) fn notice(&mut self, notice: Notice) {
        self.outputs.push(Output::Notice { member: self.id, notice });
    }

    pub(super) fn notify(&mut self, to: usize, notification: Notification) {
        if to != self.id {
            let message = Message::Notification(notification);
            let packet = Packet { from: self.id, to, channel: Channel::Election, message };
            self.outputs.push(Output::Packet(packet));
        }
    }

    /// Opens a stream to another member.
    pub(super) fn open_stream(&mut self, to: usize) -> Link {
        self.streams += 1;
        Link::new(to, (self.id as u64) << 48 | self.streams)
    }

    pub(super) fn send(&mut self, link: &mut Link, message: Message) {
        self.outputs.push(Output::Packet(link.packet(self.id, message)));
    }

    /// Closes a stream that this member does not know.
    pub(super) fn refuse_stream(&mut self, to: usize, id: u64) {
        self.send(&mut Link::new(to, id), Message::Closed);
    }

    /// Takes all outputs since the last call, in order.
    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        self.flush();
        std::mem::take(&mut self.outputs)
    }

    /// Appends the bytes for the clients to the other outputs.
    fn flush(&mut self) {
        let member = self.id;
        for output in self.front.take_outputs() {
            self.outputs.push(match output {
                front::Output::Reply { conn, bytes, .. } => Output::Bytes { member, conn, bytes },
                front::Output::Event { conn, bytes, .. } => Output::Bytes { member, conn, bytes },
                front::Output::Close { conn } => Output::Close { member, conn },
            });
        }
    }

    // ---- history ----

    /// The newest transaction that it has logged.
    pub(super) fn last_logged(&self) -> i64 {
        self.tail.back().map_or(self.applied, |entry| entry.stamp.zxid)
    }

    pub(super) fn own_vote(&self) -> Vote {
        Vote { epoch: self.current_epoch, zxid: self.last_logged(), member: self.id }
    }

    /// The vote for the leader that this member already has.
    pub(super) fn settled(&self, state: State, leader: usize) -> Notification {
        let vote = Vote { epoch: self.current_epoch, zxid: self.last_logged(), member: leader };
        Notification { state, round: self.round, vote }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let tree = self.front.store.tree.clone();
        Snapshot { tree, sessions: self.sessions.clone(), zxid: self.applied }
    }

    /// Replaces the member's history by the leader's. The member has no clients at this time.
    pub(super) fn install(&mut self, snapshot: &Snapshot, proposals: &[Arc<Entry>], epoch: u64) {
        self.front.store.tree = snapshot.tree.clone();
        self.front.last_zxid = snapshot.zxid;
        self.sessions.clone_from(&snapshot.sessions);
        self.applied = snapshot.zxid;
        self.tail = proposals.iter().cloned().collect();
        self.current_epoch = epoch;
    }

    pub(super) fn log(&mut self, entry: Arc<Entry>) {
        self.tail.push_back(entry);
    }

    /// Applies the oldest transaction of the tail, and answers its client, if the client is
    /// connected here.
    pub(super) fn commit(&mut self) {
        let Some(entry) = self.tail.pop_front() else { return };
        let Entry { stamp, session, xid, op, txn } = &*entry;
        match txn {
            Txn::CreateSession { timeout_ms } => {
                let timeout = Duration::from_millis(u64::try_from(*timeout_ms).unwrap_or(0));
                self.sessions.insert(*session, timeout);
            }
            Txn::CloseSession { session, .. } => {
                self.sessions.remove(session);
            }
            _ => {}
        }
        self.applied = stamp.zxid;
        let own = self.pipeline.committed(*session, *xid);
        let request = own.unwrap_or_else(|| Pending {
            conn: None,
            session: *session,
            xid: *xid,
            op: *op,
            tag: 0,
            body: Vec::new(),
            who: Arc::default(),
            txn: None,
            refused: None,
        });
        self.front.finish(Pending { txn: Some((*stamp, txn.clone())), ..request });
        self.answer_ready(*session);
    }

    /// Answers a `sync` that the leader has answered.
    pub(super) fn synced(&mut self, session: i64, xid: i32) {
        if let Some(request) = self.pipeline.committed(session, xid) {
            self.answer(request);
        }
        self.answer_ready(session);
    }

    fn answer_ready(&mut self, session: i64) {
        while let Some(request) = self.pipeline.next_ready(session) {
            self.answer(request);
        }
    }

    /// Takes a request, and answers it when the earlier requests of its session are answered.
    pub(super) fn queue(&mut self, request: Pending, needs_commit: bool) {
        if let Some(request) = self.pipeline.take(request, needs_commit) {
            self.answer(request);
        }
    }

    fn answer(&mut self, request: Pending) {
        // A read of a connection that is gone would leave its watch behind for ever.
        if request.conn.is_some_and(|conn| self.front.state(conn) != ConnState::Ended) {
            self.front.finish(request);
        }
    }

    /// Stops serving clients: closes their connections, and applies all transactions that were
    /// logged.
    pub(super) fn stop_serving(&mut self) {
        self.is_serving = false;
        let mut conns: Vec<ConnId> = self.front.conns.keys().copied().collect();
        conns.sort_unstable();
        conns.into_iter().for_each(|conn| self.front.close(conn));
        self.flush();
        self.front.forget_clients();
        self.inputs.clear();
        self.connecting.clear();
        self.pipeline = Pipeline::default();
        while !self.tail.is_empty() {
            self.commit();
        }
    }

    /// Loses all data on the disk.
    pub(super) fn wipe(&mut self) {
        self.front.wipe();
        self.sessions.clear();
        self.tail.clear();
        (self.applied, self.accepted_epoch, self.current_epoch) = (0, 0, 0);
    }

    // ---- clients ----

    pub(super) fn accept(&mut self, conn: ConnId, peer: SocketAddr) {
        self.front.accept(conn, peer);
        self.inputs.insert(conn, Frames::default());
    }

    pub(super) fn hang_up(&mut self, conn: ConnId) {
        self.front.hang_up(conn);
        self.inputs.remove(&conn);
        self.connecting.remove(&conn);
    }

    pub(super) fn push(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(input) = self.inputs.get_mut(&conn) {
            input.push(bytes);
        }
    }

    /// The next frame of a connection, if a whole frame is there and may be read now.
    pub(super) fn next_frame(&mut self, conn: ConnId) -> Option<Vec<u8>> {
        /// `jute.maxbuffer`.
        const LONGEST: usize = 0xfffff;
        match self.front.state(conn) {
            ConnState::New | ConnState::Open => {}
            ConnState::Connecting => {
                self.connecting.insert(conn);
                return None;
            }
            ConnState::Ended => return None,
        }
        match self.inputs.get_mut(&conn)?.next() {
            Ok(Some(frame)) if frame.len() <= LONGEST => Some(frame.to_vec()),
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => {
                self.front.close(conn);
                None
            }
        }
    }

    /// Takes a connection whose session is now made or checked, so that it may be read again.
    pub(super) fn pop_readable(&mut self) -> Option<ConnId> {
        let is_ready = |conn: &&ConnId| self.front.state(**conn) != ConnState::Connecting;
        let conn = self.connecting.iter().find(is_ready).copied()?;
        self.connecting.remove(&conn);
        Some(conn)
    }

    /// Refuses a write that this member's own tree does not allow, if the settings have
    /// `enableEagerACLCheck`. The answer overtakes the answers to earlier requests.
    pub(super) fn refuse_eagerly(&mut self, conn: ConnId, request: &front::Request<'_>) -> bool {
        if !self.settings.eager_acl_check {
            return false;
        }
        let who = self.front.who(conn);
        let Some(code) =
            super::eager::refusal(&self.front.store.tree, request.op, request.body, &who)
        else {
            return false;
        };
        debug_assert!(code != err::OK && request.op != op::CLOSE);
        self.front.send(conn, 0, ReplyHeader { xid: request.xid, zxid: 0, err: code }.frame(&[]));
        true
    }
}
