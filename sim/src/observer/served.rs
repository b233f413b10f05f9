//! A session that no server serves does not live on.
//!
//! A server whose request thread is dead still takes sessions up, and each handshake keeps the
//! session alive at the leader. Its client holds nothing any more by then, and others wait for its
//! nodes. So a session that gets handshakes and no answer to a request is let go by the first
//! handshake that comes a timeout after the first one: the leader has none of its nodes three and a
//! half timeouts after the first such handshake, if no two of them are further apart than a session
//! may live without any, a timeout and a half. Two ticks more are allowed, since the leader counts
//! in ticks. Time in which the leader has no majority does not count, nor what was before it was
//! elected: a new leader gives each session its whole timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zk_sim_runtime::{ProcessId, now, process_name, stopped_for};
use zk_test_server::ensemble::NodeInfo;
use zk_wire::record::ConnectReply;

use super::{Broken, LATE, Seen, Setting};

const UNSERVED: &str = "unserved session";

/// The sessions that were taken up, and have had no answer to a request since then.
#[derive(Default)]
pub(super) struct Unserved {
    all: BTreeMap<i64, State>,
    /// Those that had an answer after long. It may be an answer to the client that let the session
    /// go, and closed it.
    late: BTreeSet<i64>,
}

struct State {
    process: ProcessId,
    since: Duration,
    /// When a server last took it up, and how long the process had been stopped by then.
    last: Duration,
    stopped: Duration,
    is_counted: bool,
}

/// The xids of what is no answer to a request: events, and what a login is told.
const NO_ANSWERS: [i32; 2] = [-1, -4];

impl Unserved {
    /// A server has said this to a client first. Returns the session that it has taken up. The time
    /// begins again where the client may not know of the handshake before, because its process was
    /// stopped since then, and where no handshake has kept the session alive.
    pub(super) fn greets(
        &mut self,
        process: ProcessId,
        frame: &[u8],
        setting: &Setting,
    ) -> Option<i64> {
        let reply = ConnectReply::read(frame).ok().filter(|reply| reply.timeout_ms > 0)?;
        let (since, stopped) = (now(), stopped_for(process));
        let new = State { process, since, last: since, stopped, is_counted: false };
        let state = self.all.entry(reply.session_id).or_insert(new);
        let longest = setting.session_timeout * 3 / 2 / setting.slowness();
        if state.stopped != stopped || since >= state.last + longest {
            state.since = since;
        }
        (state.last, state.stopped) = (since, stopped);
        Some(reply.session_id)
    }

    /// Whether the client of this session may let it go, since no server has served it for long.
    pub(super) fn may_be_let_go(&self, session: i64, setting: &Setting) -> bool {
        let least = setting.shortest_timeout / 2 / setting.slowness();
        self.late.contains(&session)
            || self.all.get(&session).is_some_and(|state| state.since + least < now())
    }

    /// A server has said this to the client of a session.
    pub(super) fn says(&mut self, session: i64, xid: Option<i32>, setting: &Setting) {
        if xid.is_some_and(|xid| !NO_ANSWERS.contains(&xid)) {
            if self.may_be_let_go(session, setting) {
                self.late.insert(session);
            }
            self.all.remove(&session);
        }
    }
}

impl Seen {
    /// Checks that no session lives on without being served. `quorum_since`: since when the leader
    /// has had a majority, and could end the session.
    pub(super) fn unserved(
        &mut self,
        tree: Option<&[NodeInfo]>,
        quorum_since: Option<Duration>,
    ) -> Option<Broken> {
        let (tree, quorum_since) = (tree?, quorum_since?);
        let slowness = self.setting.slowness();
        let timeout = self.setting.session_timeout * slowness;
        let most = timeout * 7 / 2 + self.setting.tick * 2 + LATE;
        let mut broken = None;
        for (session, state) in &mut self.unserved.all {
            let lasts = now().saturating_sub(state.since.max(quorum_since));
            let Some(node) = tree.iter().find(|node| node.owner == *session) else { continue };
            if lasts > timeout && !std::mem::replace(&mut state.is_counted, true) {
                self.counts.note(UNSERVED);
            }
            let text = || {
                format!(
                    "session {session:#x} of {} has been taken up and not served since {:?}, and \
                     {} still stands",
                    process_name(state.process),
                    state.since,
                    node.path
                )
            };
            if lasts > most {
                broken = broken.or_else(|| Some((UNSERVED, text())));
            }
        }
        broken
    }
}
