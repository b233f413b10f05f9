//! A member of the ensemble, in one of its four states: it is down, it looks for a leader, it
//! follows a leader, or it leads.

use super::clock::Clock;
use super::election::Election;
use super::leader::Leader;
use super::learner::Learner;
use super::message::{Channel, Message, Notification, Packet, State};
use super::server::Server;
use super::{Notice, Output, Reason};
use crate::Brand;
use crate::engine::conn::State as ConnState;
use crate::engine::finish::Pending;
use crate::engine::front::{Greeting, Request};
use crate::engine::{ConnId, is_known};
use std::net::SocketAddr;
use std::time::Duration;
use zk_wire::Malformed;
use zk_wire::code::op;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: Server,
    pub(super) clock: Clock,
    pub(super) part: Part,
}

#[derive(Debug)]
pub(super) enum Part {
    /// The member does not run.
    Down,
    Looking(Election),
    Following(Learner),
    Leading(Leader),
}

impl Member {
    /// Ends the part that the member has now. The caller begins another one.
    fn leave(&mut self) {
        match &mut self.part {
            Part::Following(learner) => learner.close(&mut self.server),
            Part::Leading(leader) => leader.close(&mut self.server),
            Part::Looking(_) | Part::Down => {}
        }
        self.server.stop_serving();
        self.part = Part::Down;
    }

    pub(super) fn look(&mut self, why: Reason) {
        self.leave();
        self.server.notice(Notice::Looks { why });
        self.part = Part::Looking(Election::begin(&mut self.server));
    }

    pub(super) fn stop(&mut self) {
        self.leave();
        self.server.is_deaf = false;
    }

    /// Begins to lead or to follow, when an election is decided.
    fn join(&mut self, leader: usize) {
        if leader == self.server.id {
            let mut leading = Leader::begin(&mut self.server);
            leading.advance(&mut self.server);
            self.part = Part::Leading(leading);
        } else {
            self.part = Part::Following(Learner::begin(&mut self.server, leader));
        }
    }

    /// Ends each step of the member: serves the requests that can be read by now, and returns the
    /// outputs.
    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        while let Some(conn) = self.server.pop_readable() {
            self.serve(conn);
        }
        self.server.take_outputs()
    }

    pub(super) fn hear(&mut self, packet: Packet) {
        let Packet { from, channel, message, .. } = packet;
        match (channel, message) {
            (Channel::Election, Message::Notification(heard)) => self.hear_vote(from, heard),
            (Channel::Election, _) => {}
            (Channel::Stream { id, index }, message) => {
                self.hear_stream(from, (id, index), message)
            }
        }
    }

    fn hear_vote(&mut self, from: usize, heard: Notification) {
        let server = &mut self.server;
        let (state, leader) = match &mut self.part {
            Part::Down => return,
            Part::Looking(election) => {
                if let Some(leader) = election.hear(server, from, heard) {
                    self.join(leader);
                }
                return;
            }
            Part::Following(learner) => (State::Following, learner.leader),
            Part::Leading(_) => (State::Leading, server.id),
        };
        if heard.state == State::Looking {
            server.notify(from, server.settled(state, leader));
        }
    }

    fn hear_stream(&mut self, from: usize, (id, index): (u64, u64), message: Message) {
        let server = &mut self.server;
        let heard = match &mut self.part {
            Part::Down => return,
            Part::Leading(leader) => leader.hear(server, from, (id, index), message),
            Part::Following(learner) if learner.link.id == id => {
                if learner.link.is_next(index) || matches!(message, Message::Closed) {
                    learner.hear(server, message)
                } else {
                    Err("the stream of the leader has a gap")
                }
            }
            Part::Following(_) | Part::Looking(_) => {
                if !matches!(message, Message::Closed) {
                    server.refuse_stream(from, id);
                }
                Ok(())
            }
        };
        if let Err(why) = heard {
            self.look(why);
        }
    }

    /// The time at which the member has something to do, by its own clock.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        match &self.part {
            Part::Down => None,
            Part::Looking(election) => Some(election.next_timer()),
            Part::Following(learner) => Some(learner.next_timer(&self.server)),
            Part::Leading(leader) => Some(leader.next_timer(&self.server)),
        }
    }

    pub(super) fn timer(&mut self) {
        let server = &mut self.server;
        let result = match &mut self.part {
            Part::Down => Ok(()),
            Part::Looking(election) => {
                if let Some(leader) = election.timer(server) {
                    self.join(leader);
                }
                return;
            }
            Part::Following(learner) => learner.timer(server),
            Part::Leading(leader) => leader.timer(server),
        };
        if let Err(why) = result {
            self.look(why);
        }
    }

    // ---- clients ----

    pub(super) fn open(&mut self, conn: ConnId, peer: SocketAddr) {
        self.server.accept(conn, peer);
    }

    pub(super) fn read(&mut self, conn: ConnId, bytes: &[u8]) {
        self.server.push(conn, bytes);
        self.serve(conn);
    }

    fn serve(&mut self, conn: ConnId) {
        while let Some(frame) = self.server.next_frame(conn) {
            let is_first = self.server.front.state(conn) == ConnState::New;
            let taken =
                if is_first { self.greet(conn, &frame) } else { self.request(conn, &frame) };
            if taken.is_err() {
                self.server.front.close(conn);
            }
        }
    }

    /// Takes the first frame of a connection.
    fn greet(&mut self, conn: ConnId, frame: &[u8]) -> Result<(), Malformed> {
        let is_leader = matches!(self.part, Part::Leading(_));
        if !self.server.is_serving || is_leader && !self.server.settings.leader_serves {
            self.server.front.close(conn);
            return Ok(());
        }
        match self.server.front.greet(conn, frame)? {
            Greeting::Refused => {}
            // The request that makes a session is a request as any other.
            Greeting::Create { .. } if self.server.is_deaf => {}
            Greeting::Create { session, timeout } => {
                let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
                let body = &timeout_ms.to_be_bytes();
                self.touch(session, timeout);
                self.submit(
                    conn,
                    &Request { session, timeout, xid: 0, op: op::CREATE_SESSION, body },
                );
            }
            Greeting::Resume { is_known: false, .. } => self.server.front.refuse_session(conn, 0),
            Greeting::Resume { session, timeout, is_known: true } => match &mut self.part {
                Part::Leading(leader) => {
                    leader.revalidate(&mut self.server, conn, session, timeout)
                }
                Part::Following(learner) => {
                    learner.revalidate(&mut self.server, conn, session, timeout)
                }
                Part::Looking(_) | Part::Down => {}
            },
        }
        Ok(())
    }

    fn request(&mut self, conn: ConnId, frame: &[u8]) -> Result<(), Malformed> {
        if self.server.is_deaf {
            return Ok(());
        }
        let Some(request) = self.server.front.receive(conn, frame, 0)? else { return Ok(()) };
        if !self.touch(request.session, request.timeout) {
            // The real server drops the requests of a session that has ended.
        } else if !is_known(request.op, Brand::default()) {
            self.server.front.refuse_operation(conn, &request, 0);
        } else if !self.server.refuse_eagerly(conn, &request) {
            self.submit(conn, &request);
        }
        Ok(())
    }

    /// Notes that a session's client has sent something; false if the session has ended as far as
    /// this member knows.
    fn touch(&mut self, session: i64, timeout: Duration) -> bool {
        match &mut self.part {
            Part::Leading(leader) => leader.order.sessions.touch(session, timeout, self.server.now),
            Part::Following(learner) => {
                learner.touch(session, timeout);
                true
            }
            Part::Looking(_) | Part::Down => false,
        }
    }

    fn submit(&mut self, conn: ConnId, request: &Request<'_>) {
        let Request { session, xid, op, body, .. } = *request;
        let who = self.server.front.who(conn);
        let (conn, body) = (Some(conn), body.to_vec());
        let request =
            Pending { conn, session, xid, op, tag: 0, body, who, txn: None, refused: None };
        match &mut self.part {
            Part::Leading(leader) => leader.submit(&mut self.server, request),
            Part::Following(learner) => learner.submit(&mut self.server, request),
            Part::Looking(_) | Part::Down => {}
        }
    }
}
