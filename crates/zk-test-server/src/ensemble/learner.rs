//! A follower: it applies the writes that the leader commits, answers reads by itself, and forwards
//! requests that only the leader can do (`Follower`, `Learner`, `FollowerRequestProcessor`).

use super::message::{Forwarded, Link, Message};
use super::server::Server;
use super::{Notice, Reason};
use crate::engine::ConnId;
use crate::engine::finish::Pending;
use crate::engine::prep;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use zk_wire::code::op;

/// How often a member tries to connect to a leader that refuses it, and the pause between two
/// tries.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Learner {
    pub(super) leader: usize,
    pub(super) link: Link,
    stage: Stage,
    /// The time at which the member gives up if it has not taken over the leader's history by then.
    join_until: Duration,
    heard_at: Duration,
    /// The sessions whose clients have sent something since the leader's last ping, with their
    /// timeouts.
    touched: BTreeMap<i64, Duration>,
    /// The `sync`s that the leader has not answered: session and xid.
    syncs: VecDeque<(i64, i32)>,
    /// Connections that resume a session, while the leader checks the session.
    revalidations: BTreeMap<i64, ConnId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Number of failed tries, and the time of the next one.
    Connecting { failed: u32, next: Option<Duration> },
    /// The leader has answered the first packet.
    Joining,
    /// The member has the leader's history and acknowledges the leader's proposals.
    Level,
}

impl Learner {
    pub(super) fn begin(server: &mut Server, leader: usize) -> Learner {
        let mut learner = Learner {
            leader,
            link: server.open_stream(leader),
            stage: Stage::Connecting { failed: 0, next: None },
            join_until: server.now + server.settings.init_time(),
            heard_at: server.now,
            touched: BTreeMap::new(),
            syncs: VecDeque::new(),
            revalidations: BTreeMap::new(),
        };
        learner.connect(server);
        learner
    }

    fn connect(&mut self, server: &mut Server) {
        let info = Message::FollowerInfo { accepted_epoch: server.accepted_epoch };
        server.send(&mut self.link, info);
    }

    pub(super) fn close(&mut self, server: &mut Server) {
        server.send(&mut self.link, Message::Closed);
    }

    /// Takes a packet from the leader. After an error the member has no leader any more.
    pub(super) fn hear(&mut self, server: &mut Server, message: Message) -> Result<(), Reason> {
        self.heard_at = server.now;
        match message {
            Message::Closed => match self.stage {
                Stage::Connecting { failed, .. } if failed + 1 < TRIES => {
                    let next = Some(server.now + TRY_AGAIN);
                    self.stage = Stage::Connecting { failed: failed + 1, next };
                }
                _ => return Err("the leader closed the stream"),
            },
            Message::LeaderInfo { epoch } => {
                self.stage = Stage::Joining;
                let history = match epoch.cmp(&server.accepted_epoch) {
                    std::cmp::Ordering::Less => return Err("the leader's epoch is an old one"),
                    std::cmp::Ordering::Equal => None,
                    std::cmp::Ordering::Greater => {
                        Some((server.current_epoch, server.last_logged()))
                    }
                };
                server.accepted_epoch = epoch;
                server.send(&mut self.link, Message::AckEpoch { history });
            }
            Message::NewLeader { epoch, snapshot, proposals } => {
                server.install(&snapshot, &proposals, epoch);
                self.stage = Stage::Level;
                server.send(&mut self.link, Message::AckNewLeader);
                for entry in proposals {
                    server.send(&mut self.link, Message::Ack { zxid: entry.stamp.zxid });
                }
            }
            Message::UpToDate => {
                server.is_serving = true;
                server.notice(Notice::Follows { leader: self.leader, epoch: server.current_epoch });
            }
            Message::Proposal(entry) => {
                let zxid = entry.stamp.zxid;
                server.log(entry);
                server.send(&mut self.link, Message::Ack { zxid });
            }
            Message::Commit { zxid } => {
                if server.tail.front().is_none_or(|entry| entry.stamp.zxid != zxid) {
                    return Err("the leader committed what it did not propose");
                }
                server.commit();
            }
            Message::Ping => {
                let touched = std::mem::take(&mut self.touched);
                server.send(&mut self.link, Message::Touched(touched));
            }
            Message::Synced => {
                if let Some((session, xid)) = self.syncs.pop_front() {
                    server.synced(session, xid);
                }
            }
            Message::Revalidated { session, is_valid } => {
                // As at the real server, the answer goes to the connection that asked for the check
                // last.
                if let Some(conn) = self.revalidations.remove(&session) {
                    if is_valid {
                        server.front.welcome(conn, 0);
                    } else {
                        server.front.refuse_session(conn, 0);
                    }
                }
            }
            _ => return Err("the leader said what only a follower says"),
        }
        Ok(())
    }

    /// Notes that the session's client has sent something.
    pub(super) fn touch(&mut self, session: i64, timeout: Duration) {
        self.touched.insert(session, timeout);
    }

    /// Takes a request of a client.
    pub(super) fn submit(&mut self, server: &mut Server, request: Pending) {
        let Pending { session, xid, op, .. } = request;
        let needs_commit = prep::is_write(op) || op == op::SYNC;
        if !needs_commit {
            server.queue(request, false);
            return;
        }
        let forwarded = Forwarded {
            session,
            xid,
            op,
            body: request.body.clone(),
            who: Arc::clone(&request.who),
        };
        server.queue(request, true);
        if op == op::SYNC {
            self.syncs.push_back((session, xid));
        }
        server.send(&mut self.link, Message::Forwarded(forwarded));
    }

    /// Asks the leader whether the session of a client that has reconnected still lives: only the
    /// leader knows it.
    pub(super) fn revalidate(
        &mut self,
        server: &mut Server,
        conn: ConnId,
        session: i64,
        timeout: Duration,
    ) {
        self.revalidations.insert(session, conn);
        server.send(&mut self.link, Message::Revalidate { session, timeout });
    }

    pub(super) fn next_timer(&self, server: &Server) -> Duration {
        match self.stage {
            Stage::Connecting { next, .. } => next.unwrap_or(self.join_until).min(self.join_until),
            Stage::Joining => self.join_until,
            Stage::Level => self.heard_at + server.settings.sync_time(),
        }
    }

    pub(super) fn timer(&mut self, server: &mut Server) -> Result<(), Reason> {
        match self.stage {
            Stage::Connecting { next: Some(next), failed } if next <= server.now => {
                self.link = server.open_stream(self.leader);
                self.stage = Stage::Connecting { failed, next: None };
                self.connect(server);
            }
            Stage::Level if self.heard_at + server.settings.sync_time() <= server.now => {
                return Err("it has received nothing from its leader");
            }
            Stage::Connecting { .. } | Stage::Joining if self.join_until <= server.now => {
                return Err("it could not join its leader");
            }
            _ => {}
        }
        Ok(())
    }
}
