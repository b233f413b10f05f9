//! The state of one candidate, which the user's handle and the candidate's thread share: the thread
//! changes it, and the handle waits for changes.

use std::sync::Arc;

use super::campaign::{Campaign, CreatedNodes};
use super::event::{ElectionEvent, Events};
use super::leadership::Leadership;
use crate::error::{Error, LossReason, Result};
use crate::queue::end_of_time;
use crate::queue::request::{Call, Mode};
use zk_session::CancelToken;
use zk_session::SessionState;
use zk_session::unstable::{Ended, EventMask, Limit, Notifier, WatchRegistry};
use zk_session::world::{Instant, Mutex};

/// The state of one candidate.
pub(super) struct CandidateState {
    pub(super) campaign: Campaign,
    /// Cancelled when the candidate leaves.
    pub(super) left: CancelToken,
    pub(super) created_nodes: CreatedNodes,
    status: Mutex<Status>,
    /// Notified at each change of the status.
    changes: WatchRegistry<()>,
    pub(super) events: Events,
}

#[derive(Default)]
struct Status {
    /// The term that began last; it may be lost.
    leadership: Option<Leadership>,
    /// The server has shown somebody ahead.
    is_blocked: bool,
    failure: Option<Error>,
    over: Option<Over>,
}

enum Over {
    Left,
    Failed(Error),
}

impl CandidateState {
    pub(super) fn new(campaign: Campaign) -> Arc<Self> {
        Arc::new(CandidateState {
            campaign,
            left: CancelToken::new(),
            created_nodes: CreatedNodes::default(),
            status: Mutex::default(),
            changes: WatchRegistry::default(),
            events: Events::new(),
        })
    }

    /// The term that lasts now.
    pub(super) fn leadership(&self) -> Option<Leadership> {
        if self.campaign.process().is_forked() {
            return None;
        }
        // This is checked outside the mutex: if it is the first to see the loss, it notifies the
        // holders, which takes other mutexes.
        let last = self.status.lock().leadership.clone();
        last.filter(|leadership| leadership.is_held())
    }

    pub(super) fn is_over(&self) -> bool {
        self.campaign.process().is_forked() || self.status.lock().over.is_some()
    }

    /// Waits until this candidate leads. With `Mode::Try` it waits only until the server has shown
    /// who leads. `None`: contention, as [`end_of_time`] says.
    pub(super) fn wait(
        &self,
        call: &Call,
        mode: Mode,
        limit: &Limit<'_>,
    ) -> Result<Option<Leadership>> {
        self.campaign.process().check(call.op, &self.campaign.settings.path)?;
        let core = self.campaign.settings.core();
        let (notifier, mask) = (Notifier::new(), EventMask { gone: 1, changed: 1 });
        let _changes = self.changes.register((), &notifier, mask);
        let _session = core.changes.register((), &notifier, mask);
        let mut has_looked = false;
        loop {
            if let Some(leadership) = self.leadership() {
                return Ok(Some(leadership));
            }
            let path = || self.campaign.settings.path.clone();
            let (is_blocked, failure) = {
                let status = self.status.lock();
                match (&status.over, &status.failure) {
                    (Some(Over::Left), _) => return Err(Error::Cancelled { path: path() }),
                    (Some(Over::Failed(e)), _) => return Err(e.clone()),
                    // Servers that give no answer which helps are waited for, as servers that are
                    // away: a program that calls again at once must not spin.
                    (None, Some(e)) if !matches!(e, Error::Unavailable { .. }) => {
                        return Err(e.clone());
                    }
                    (None, _) => {}
                }
                (status.is_blocked, status.failure.clone())
            };
            if limit.is_cancelled() {
                return Err(Error::Cancelled { path: path() });
            }
            let is_up = core.state() == SessionState::Connected;
            // What the candidate's thread has seen may be older than this call, or of a server that
            // lags: the leader may have left since, as the caller knows from him. So the call looks
            // itself, after each change once, if it can end with "another is ahead".
            // With no time left it sends nothing.
            let has_time = limit.has_deadline() && !limit.is_past();
            let may_say_no = is_blocked && has_time && !call.is_contended();
            if may_say_no && is_up && !std::mem::replace(&mut has_looked, true) {
                if self.campaign.is_behind(&self.created_nodes, limit) {
                    call.found_contention();
                }
                continue;
            }
            let is_tried = mode == Mode::Try && (call.is_contended() || !is_up);
            if is_tried || limit.is_past() {
                return match failure {
                    Some(e) if is_up && !call.is_contended() => Err(e),
                    _ => end_of_time(call, core, &path(), || false).map(|()| None),
                };
            }
            let until = if limit.has_deadline() {
                *limit
            } else {
                let unavailable = |cause| Error::Unavailable { op: call.op, path: path(), cause };
                let look_at = core.outage_limit(call.begun()).map_err(unavailable)?;
                let spent = failure.and_then(|e| Some((core.spent_at(call.begun())?, e)));
                if let Some((_, e)) = spent.as_ref().filter(|(spent, _)| Instant::now() >= *spent) {
                    return Err(e.clone());
                }
                let ends = [look_at, spent.map(|(spent, _)| spent)];
                ends.into_iter().flatten().fold(*limit, Limit::or_at)
            };
            match notifier.wait(&until) {
                Ended::Got(_) | Ended::Disconnected => has_looked = false,
                Ended::Deadline => {}
                Ended::Cancelled => return Err(Error::Cancelled { path: path() }),
            }
        }
    }

    // ---- the candidate's thread ----

    pub(super) fn run(&self) {
        // Its drop reports the end of this thread, also after a panic: otherwise a caller would
        // wait for it for ever.
        let mut ending = StandDown { state: self, event: ElectionEvent::Left };
        ending.event = match self.stand() {
            Err(e) if !self.left.is_cancelled() => ElectionEvent::Failed(e),
            _ => ElectionEvent::Left,
        };
    }

    /// Stands for election, leads, and stands again.
    fn stand(&self) -> Result<()> {
        let on_blocked = |is_blocked| {
            self.change(|status| {
                status.is_blocked = is_blocked;
                status.failure = None;
            });
        };
        let on_retry = |e: &Error| {
            let mut is_new = false;
            self.change(|status| is_new = status.failure.replace(e.clone()).as_ref() != Some(e));
            if is_new {
                self.events.publish(ElectionEvent::Retrying(e.clone()));
            }
        };
        loop {
            let (term, token) =
                self.campaign.elect(&self.left, &self.created_nodes, &on_blocked, &on_retry)?;
            if self.left.is_cancelled() {
                return Ok(());
            }
            let leadership = term.view();
            let lost = leadership.lost();
            self.change(|status| {
                *status = Status { leadership: Some(leadership.clone()), ..Status::default() };
            });
            self.events.publish(ElectionEvent::Elected { token });
            if let Ended::Cancelled = Limit::cancelled_by(&self.left).recv(lost.receiver()) {
                return Ok(());
            }
            self.events.publish(ElectionEvent::Lost(lost.reason().unwrap_or(LossReason::Internal)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock());
        self.changes.notify(&(), true);
    }
}

/// Its drop reports that the candidate's thread has ended.
struct StandDown<'a> {
    state: &'a CandidateState,
    event: ElectionEvent,
}

impl Drop for StandDown<'_> {
    fn drop(&mut self) {
        let path = &self.state.campaign.settings.path;
        let over = match &self.event {
            ElectionEvent::Failed(e) => {
                warn!("election {path}: our candidate is out, {e}");
                Over::Failed(e.clone())
            }
            _ => {
                debug!("election {path}: our candidate left");
                Over::Left
            }
        };
        self.state.change(|status| *status = Status { over: Some(over), ..Status::default() });
        self.state.events.end(self.event.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ZkElection, ZkSession};
    use zk_test_server::TestServer;

    /// In the other order a caller that waits could look in between, find nothing new, and sleep
    /// on.
    #[test]
    fn a_change_is_made_before_the_callers_that_wait_are_woken() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let election = ZkElection::new(&session, "/elections/billing").unwrap();
        let state = CandidateState::new(election.campaign.clone());
        let (notifier, mask) = (Notifier::new(), EventMask { gone: 1, changed: 1 });
        let _changes = state.changes.register((), &notifier, mask);
        state.change(|status| {
            assert_eq!(notifier.events(), 0, "it comes too early");
            status.is_blocked = true;
        });
        assert_eq!(notifier.events(), 1);
    }
}
