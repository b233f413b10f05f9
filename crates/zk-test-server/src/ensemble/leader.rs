//! The leader: it brings followers up to date, orders all writes, and commits writes that a quorum
//! has logged. Only the leader expires sessions (`Leader`, `LearnerHandler`,
//! `LeaderZooKeeperServer`).

use super::message::{Entry, Forwarded, Link, Message};
use super::server::Server;
use super::{Notice, Reason};
use crate::engine::ConnId;
use crate::engine::acl::Schemes;
use crate::engine::finish::Pending;
use crate::engine::order::{Order, Submitted};
use crate::engine::prep;
use crate::engine::session::{Owner, Sessions};
use crate::engine::txn::{Stamp, Txn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use zk_wire::code::{err, op};

#[derive(Debug)]
pub(super) struct Leader {
    stage: Stage,
    epoch: u64,
    /// The member's last epoch and its newest transaction when it began to lead.
    history: (u64, i64),
    /// The time at which the member gives up if no quorum follows it by then.
    begin_until: Duration,
    /// The followers' streams, by their number.
    handlers: BTreeMap<u64, Handler>,
    pub(super) order: Order,
    proposals: VecDeque<Proposal>,
    /// The `sync`s that wait until a proposal is committed, by its zxid: the streams of the
    /// followers that sent them.
    syncs: BTreeMap<i64, Vec<u64>>,
    ticks: u64,
    /// Whether the next half tick is the second half of a tick.
    ends_tick: bool,
    half_tick_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Waits until a quorum has said which epochs it has accepted.
    Discovery,
    /// Waits until a quorum has accepted the new epoch.
    Agreement,
    /// Waits until a quorum has taken over the history.
    Synchronization,
    /// Serves clients.
    Broadcast,
}

/// The leader's state of one follower's stream.
#[derive(Debug)]
struct Handler {
    link: Link,
    accepted_epoch: u64,
    has_accepted: bool,
    /// The leader has sent the history; proposals and commits follow on the stream.
    is_forwarding: bool,
    /// The follower has taken over the history.
    is_level: bool,
    heard_at: Duration,
    /// The last tick in which the follower counts for the quorum if it sends nothing more.
    counts_until: u64,
    /// The proposals that the follower has not acknowledged, each with the time at which it was
    /// sent.
    unacknowledged: VecDeque<(i64, Duration)>,
}

#[derive(Debug)]
struct Proposal {
    entry: Arc<Entry>,
    acknowledged: BTreeSet<usize>,
}

impl Leader {
    pub(super) fn begin(server: &mut Server) -> Leader {
        Leader {
            stage: Stage::Discovery,
            epoch: 0,
            history: (server.current_epoch, server.last_logged()),
            begin_until: server.now + server.settings.init_time(),
            handlers: BTreeMap::new(),
            order: order(server, 0),
            proposals: VecDeque::new(),
            syncs: BTreeMap::new(),
            ticks: 0,
            ends_tick: false,
            half_tick_at: Duration::ZERO,
        }
    }

    pub(super) fn close(&mut self, server: &mut Server) {
        for handler in self.handlers.values_mut() {
            server.send(&mut handler.link, Message::Closed);
        }
    }

    // ---- becoming the leader ----

    /// The number of members that have done something; the leader itself is one of them.
    fn count(&self, has_done: impl Fn(&Handler) -> bool) -> usize {
        let members = self.handlers.values().filter(|handler| has_done(handler));
        1 + members.map(|handler| handler.link.peer).collect::<BTreeSet<_>>().len()
    }

    /// Enters each next stage for which a quorum is ready.
    pub(super) fn advance(&mut self, server: &mut Server) {
        let quorum = server.quorum();
        if self.stage == Stage::Discovery && self.count(|_| true) >= quorum {
            let accepted = self.handlers.values().map(|handler| handler.accepted_epoch);
            self.epoch = accepted.fold(server.accepted_epoch, u64::max) + 1;
            server.accepted_epoch = self.epoch;
            self.stage = Stage::Agreement;
            for handler in self.handlers.values_mut() {
                server.send(&mut handler.link, Message::LeaderInfo { epoch: self.epoch });
            }
        }
        if self.stage == Stage::Agreement && self.count(|handler| handler.has_accepted) >= quorum {
            server.current_epoch = self.epoch;
            self.stage = Stage::Synchronization;
            let accepted: Vec<u64> =
                self.handlers.iter().filter(|(_, h)| h.has_accepted).map(|(id, _)| *id).collect();
            accepted.into_iter().for_each(|stream| self.bring_level(server, stream));
        }
        if self.stage == Stage::Synchronization && self.count(|handler| handler.is_level) >= quorum
        {
            self.stage = Stage::Broadcast;
            let zxid = (self.epoch << 32) as i64;
            self.order = order(server, zxid);
            // As at the real server, clients see the new epoch before its first transaction.
            server.front.last_zxid = zxid;
            server.is_serving = true;
            self.half_tick_at = server.now + server.settings.tick / 2;
            server.notice(Notice::Leads { epoch: self.epoch });
            for handler in self.handlers.values_mut().filter(|handler| handler.is_level) {
                server.send(&mut handler.link, Message::UpToDate);
            }
        }
    }

    /// Sends a follower the history and the proposals that are not committed yet.
    fn bring_level(&mut self, server: &mut Server, stream: u64) {
        let Some(handler) = self.handlers.get_mut(&stream) else { return };
        let snapshot = Arc::new(server.snapshot());
        let proposals: Vec<Arc<Entry>> =
            self.proposals.iter().map(|p| Arc::clone(&p.entry)).collect();
        handler.unacknowledged =
            proposals.iter().map(|entry| (entry.stamp.zxid, server.now)).collect();
        server
            .send(&mut handler.link, Message::NewLeader { epoch: self.epoch, snapshot, proposals });
        handler.is_forwarding = true;
    }

    // ---- followers ----

    /// Takes a packet of a stream. After an error the member cannot lead any more.
    pub(super) fn hear(
        &mut self,
        server: &mut Server,
        from: usize,
        (stream, index): (u64, u64),
        message: Message,
    ) -> Result<(), Reason> {
        if let (Message::FollowerInfo { accepted_epoch }, 0) = (&message, index) {
            let mut link = Link::new(from, stream);
            link.is_next(index);
            let counts_until =
                self.ticks + u64::from(server.settings.init_limit + server.settings.sync_limit);
            let mut handler = Handler {
                link,
                accepted_epoch: *accepted_epoch,
                has_accepted: false,
                is_forwarding: false,
                is_level: false,
                heard_at: server.now,
                counts_until,
                unacknowledged: VecDeque::new(),
            };
            if self.stage > Stage::Discovery {
                server.send(&mut handler.link, Message::LeaderInfo { epoch: self.epoch });
            }
            self.handlers.insert(stream, handler);
            self.advance(server);
            return Ok(());
        }
        let Some(handler) = self.handlers.get_mut(&stream) else {
            if !matches!(message, Message::Closed) {
                server.refuse_stream(from, stream);
            }
            return Ok(());
        };
        if matches!(message, Message::Closed) {
            self.handlers.remove(&stream);
            return Ok(());
        }
        if !handler.link.is_next(index) {
            self.drop_stream(server, stream);
            return Ok(());
        }
        handler.heard_at = server.now;
        handler.counts_until = self.ticks + u64::from(server.settings.sync_limit);
        match message {
            Message::AckEpoch { history } => {
                if history.is_some_and(|history| history > self.history) {
                    return Err("a follower has more of the history");
                }
                handler.has_accepted = history.is_some() || self.stage > Stage::Agreement;
                if self.stage > Stage::Agreement {
                    self.bring_level(server, stream);
                }
                self.advance(server);
            }
            Message::AckNewLeader => {
                handler.is_level = true;
                if self.stage == Stage::Broadcast {
                    server.send(&mut handler.link, Message::UpToDate);
                }
                self.advance(server);
            }
            Message::Ack { zxid } => {
                while handler.unacknowledged.front().is_some_and(|(oldest, _)| *oldest <= zxid) {
                    handler.unacknowledged.pop_front();
                }
                if let Some(proposal) =
                    self.proposals.iter_mut().find(|p| p.entry.stamp.zxid == zxid)
                {
                    proposal.acknowledged.insert(from);
                }
                self.commit(server);
            }
            Message::Touched(touched) => {
                for (session, timeout) in touched {
                    self.order.sessions.touch(session, timeout, server.now);
                }
            }
            Message::Forwarded(Forwarded { op: op::SYNC, .. }) => match self.proposals.back() {
                None => server.send(&mut handler.link, Message::Synced),
                Some(newest) => self.syncs.entry(newest.entry.stamp.zxid).or_default().push(stream),
            },
            Message::Forwarded(Forwarded { session, xid, op, body, who }) => {
                let write = Submitted {
                    session,
                    owner: Owner::Learner(stream),
                    op,
                    body: &body,
                    who: &who,
                };
                self.write(server, xid, write);
            }
            Message::Revalidate { session, timeout } => {
                let is_valid = self.order.sessions.touch(session, timeout, server.now);
                self.order.sessions.set_owner(session, Owner::Learner(stream));
                server.send(&mut handler.link, Message::Revalidated { session, is_valid });
            }
            _ => self.drop_stream(server, stream),
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn has_stream(&self, stream: u64) -> bool {
        self.handlers.contains_key(&stream)
    }

    fn drop_stream(&mut self, server: &mut Server, stream: u64) {
        if let Some(mut handler) = self.handlers.remove(&stream) {
            server.send(&mut handler.link, Message::Closed);
        }
    }

    // ---- the order of writes ----

    /// Numbers a write and proposes it.
    fn write(&mut self, server: &mut Server, xid: i32, write: Submitted<'_>) {
        let Submitted { session, op, body, .. } = write;
        if op == op::CREATE_SESSION && !self.order.sessions.is_alive(session) {
            let timeout_ms = body.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
            let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
            self.order.sessions.track(session, timeout, Some(write.owner), server.now);
        }
        let (stamp, txn) =
            self.order.prepare(&server.front.store.tree, write, server.front.wall_ms());
        self.propose(server, Entry { stamp, session, xid, op, txn });
    }

    fn propose(&mut self, server: &mut Server, entry: Entry) {
        let entry = Arc::new(entry);
        server.log(Arc::clone(&entry));
        for handler in self.handlers.values_mut().filter(|handler| handler.is_forwarding) {
            handler.propose(server, &entry);
        }
        self.proposals.push_back(Proposal { entry, acknowledged: BTreeSet::from([server.id]) });
        self.commit(server);
    }

    /// Commits the proposals that a quorum has logged, in their order.
    fn commit(&mut self, server: &mut Server) {
        let quorum = server.quorum();
        while self.proposals.front().is_some_and(|oldest| oldest.acknowledged.len() >= quorum) {
            let Some(Proposal { entry, .. }) = self.proposals.pop_front() else { break };
            let zxid = entry.stamp.zxid;
            for handler in self.handlers.values_mut().filter(|handler| handler.is_forwarding) {
                server.send(&mut handler.link, Message::Commit { zxid });
            }
            self.order.applied(zxid, &entry.txn);
            server.commit();
            for stream in self.syncs.remove(&zxid).unwrap_or_default() {
                if let Some(handler) = self.handlers.get_mut(&stream) {
                    server.send(&mut handler.link, Message::Synced);
                }
            }
        }
    }

    /// Takes a request of one of the leader's own clients.
    pub(super) fn submit(&mut self, server: &mut Server, request: Pending) {
        let Pending { session, xid, op, .. } = request;
        if !prep::is_write(op) {
            let refused = self.order.sessions.check(session, Owner::Me).err();
            server.queue(Pending { refused, ..request }, false);
            return;
        }
        let (body, who) = (request.body.clone(), Arc::clone(&request.who));
        server.queue(request, true);
        self.write(
            server,
            xid,
            Submitted { session, owner: Owner::Me, op, body: &body, who: &who },
        );
    }

    /// Checks the session of a client that has reconnected.
    pub(super) fn revalidate(
        &mut self,
        server: &mut Server,
        conn: ConnId,
        session: i64,
        timeout: Duration,
    ) {
        if self.order.sessions.touch(session, timeout, server.now) {
            self.order.sessions.set_owner(session, Owner::Me);
            server.front.welcome(conn, 0);
        } else {
            server.front.refuse_session(conn, 0);
        }
    }

    /// Ends a session as if it had timed out; false if there is none with this id.
    pub(super) fn expire(&mut self, server: &mut Server, session: i64) -> bool {
        let is_alive = self.order.sessions.is_alive(session);
        if is_alive {
            self.order.sessions.set_closing(session);
            server.notice(Notice::Expired { session });
            let write = Submitted { session, owner: Owner::Me, op: op::CLOSE, body: &[], who: &[] };
            self.write(server, 0, write);
        }
        is_alive
    }

    /// Lets the next sequential child of `parent` have the number `next`; false if there is no such
    /// node.
    pub(super) fn set_sequence(&mut self, server: &mut Server, parent: &str, next: i32) -> bool {
        let time = server.front.wall_ms();
        let (stamp, txn) = self.order.set_sequence(&server.front.store.tree, parent, next, time);
        let is_known = matches!(txn, Txn::SetSequence { .. });
        let entry = Entry { stamp: Stamp { ..stamp }, session: 0, xid: 0, op: op::SET_DATA, txn };
        self.propose(server, entry);
        is_known
    }

    // ---- timers ----

    pub(super) fn next_timer(&self, server: &Server) -> Duration {
        if self.stage < Stage::Broadcast {
            return self.begin_until;
        }
        let limit = |handler: &Handler| handler.heard_at + handler.time_limit(server);
        let silent = self.handlers.values().map(limit).min();
        let due = self.order.next_tick(&server.front.store.tree);
        silent.into_iter().chain(due).fold(self.half_tick_at, Duration::min)
    }

    pub(super) fn timer(&mut self, server: &mut Server) -> Result<(), Reason> {
        if self.stage < Stage::Broadcast {
            let is_late = self.begin_until <= server.now;
            return if is_late { Err("no quorum has joined it") } else { Ok(()) };
        }
        let is_silent = |h: &Handler| h.heard_at + h.time_limit(server) <= server.now;
        let silent: Vec<u64> =
            self.handlers.iter().filter(|(_, h)| is_silent(h)).map(|(stream, _)| *stream).collect();
        silent.into_iter().for_each(|stream| self.drop_stream(server, stream));
        while let Some(session) = self.order.next_expired(server.now) {
            self.expire(server, session);
        }
        let (now, wall_ms) = (server.now, server.front.wall_ms());
        for path in self.order.due_for_reaping(&server.front.store.tree, now, wall_ms) {
            let (owner, body) = (Owner::Me, path.as_bytes());
            self.write(
                server,
                0,
                Submitted { session: 0, owner, op: op::DELETE_CONTAINER, body, who: &[] },
            );
        }
        if self.half_tick_at <= server.now { self.half_tick(server) } else { Ok(()) }
    }

    /// Pings the followers. At the end of a tick the leader first counts them, and fails if they
    /// are not a quorum.
    fn half_tick(&mut self, server: &mut Server) -> Result<(), Reason> {
        self.half_tick_at = server.now + server.settings.tick / 2;
        if self.ends_tick {
            self.ticks += 1;
            if self.count(|handler| handler.counts_until >= self.ticks) < server.quorum() {
                return Err("it has received nothing from a quorum");
            }
        }
        self.ends_tick = !self.ends_tick;
        let sync_time = server.settings.sync_time();
        let is_slow = |(_, since): &(i64, Duration)| *since + sync_time <= server.now;
        let slow =
            self.handlers.iter().filter(|(_, h)| h.unacknowledged.front().is_some_and(is_slow));
        let slow: Vec<u64> = slow.map(|(stream, _)| *stream).collect();
        slow.into_iter().for_each(|stream| self.drop_stream(server, stream));
        for handler in self.handlers.values_mut().filter(|handler| handler.is_forwarding) {
            server.send(&mut handler.link, Message::Ping);
        }
        Ok(())
    }
}

impl Handler {
    fn propose(&mut self, server: &mut Server, entry: &Arc<Entry>) {
        self.unacknowledged.push_back((entry.stamp.zxid, server.now));
        server.send(&mut self.link, Message::Proposal(Arc::clone(entry)));
    }

    /// How long the follower may be silent.
    fn time_limit(&self, server: &Server) -> Duration {
        if self.is_level { server.settings.sync_time() } else { server.settings.init_time() }
    }
}

/// The order of a new leader: every known session has its whole timeout again from now on.
fn order(server: &Server, zxid: i64) -> Order {
    let mut sessions = Sessions::new(server.settings.tick, err::SESSION_EXPIRED);
    for (session, timeout) in &server.sessions {
        sessions.track(*session, *timeout, None, server.now);
    }
    Order::new(sessions, zxid, server.settings.reap_interval, server.now, Schemes::default())
}
