//! A session that no server serves does not live on.
//!
//! A server whose request thread is dead still takes sessions up, and each handshake keeps the
//! session alive at the leader. Its client holds nothing any more by then, and others wait for its
//! nodes. So a session that gets handshakes and no answer to a request is let go: the leader has
//! none of its nodes three timeouts after the first such handshake. Two ticks more are allowed,
//! since the leader counts in ticks. Time in which the leader has no majority does not count, nor what
//! was before it was elected: sessions begin anew at a new leader.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, now, process_name};
use zk_test_server::ensemble::NodeInfo;
use zk_wire::record::ConnectReply;

use super::{Broken, LATE, Seen};

const UNSERVED: &str = "unserved session";

/// The sessions that were taken up, and have had no answer to a request since then.
#[derive(Default)]
pub(super) struct Unserved(BTreeMap<i64, State>);

struct State {
    process: ProcessId,
    since: Duration,
    is_counted: bool,
}

/// The xids of what is no answer to a request: events, and what a login is told.
const NO_ANSWERS: [i32; 2] = [-1, -4];

impl Unserved {
    /// A server has said this to a client first. Returns the session that it has taken up.
    pub(super) fn greets(&mut self, process: ProcessId, frame: &[u8]) -> Option<i64> {
        let reply = ConnectReply::read(frame).ok().filter(|reply| reply.timeout_ms > 0)?;
        let state = State { process, since: now(), is_counted: false };
        self.0.entry(reply.session_id).or_insert(state);
        Some(reply.session_id)
    }

    /// A server has said this to the client of a session.
    pub(super) fn says(&mut self, session: i64, xid: Option<i32>) {
        if xid.is_some_and(|xid| !NO_ANSWERS.contains(&xid)) {
            self.0.remove(&session);
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
        let most = timeout * 3 + self.setting.tick * 2 + LATE;
        let mut broken = None;
        for (session, state) in &mut self.unserved.0 {
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
