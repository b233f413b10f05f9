//! The state of one candidate, which the user's handle and the candidate's thread share: the thread
//! changes it, and the handle waits for changes.

use std::sync::Arc;

use super::campaign::{Campaign, CreatedNodes};
use super::event::{ElectionEvent, Events};
use super::leadership::Leadership;
use crate::cancel::CancelToken;
use crate::error::{Cause, Error, LossReason, Result};
use crate::limit::{Ended, Limit};
use crate::session::notifier::{EventMask, Notifier, WatchRegistry};
use crate::wait::Mode;
use crate::world::{Instant, Mutex};

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
    trouble: Option<Error>,
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
        // This is checked outside the mutex: if it is the first to see the loss, the loss is
        // logged, and a logger may block.
        let last = self.status.lock().leadership.clone();
        last.filter(|leadership| leadership.is_held())
    }

    pub(super) fn is_over(&self) -> bool {
        self.status.lock().over.is_some()
    }

    /// Waits until this candidate leads. With `Mode::Try` it waits only until the server has shown
    /// who leads. `None`: somebody else's node was ahead.
    pub(super) fn wait(&self, mode: Mode, limit: &Limit<'_>) -> Result<Option<Leadership>> {
        let core = self.campaign.session.core();
        let (notifier, mask) = (Notifier::new(), EventMask { gone: 1, changed: 1 });
        let _changes = self.changes.register((), &notifier, mask);
        let _session = core.changes.register((), &notifier, mask);
        loop {
            if let Some(leadership) = self.leadership() {
                return Ok(Some(leadership));
            }
            let path = || self.campaign.path.clone();
            let is_blocked = {
                let status = self.status.lock();
                match (&status.over, &status.trouble) {
                    (Some(Over::Left), _) => return Err(Error::Cancelled { path: path() }),
                    (Some(Over::Failed(e)), _) | (None, Some(e)) => return Err(e.clone()),
                    (None, None) => status.is_blocked,
                }
            };
            let unavailable = |cause| Error::Unavailable { op: "wait_leader", path: path(), cause };
            let outage = core.outage();
            if limit.is_cancelled() {
                return Err(Error::Cancelled { path: path() });
            }
            if mode == Mode::Try && is_blocked && outage.is_none() {
                return Ok(None);
            }
            if limit.is_past() {
                return match outage {
                    Some(_) => Err(unavailable(Cause::ConnectionLost)),
                    None if is_blocked => Ok(None),
                    None => Err(unavailable(Cause::Deadline)),
                };
            }
            let until = match outage {
                Some(Some(spent)) if Instant::now() >= spent => {
                    return Err(unavailable(Cause::Outage(core.failures())));
                }
                Some(Some(spent)) => limit.or_at(spent),
                _ => *limit,
            };
            match notifier.wait(&until) {
                Ended::Got(_) | Ended::Disconnected | Ended::Deadline => {}
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
                status.trouble = None;
            });
        };
        let on_trouble = |e: &Error| {
            let mut is_new = false;
            self.change(|status| is_new = status.trouble.replace(e.clone()).as_ref() != Some(e));
            if is_new {
                self.events.publish(ElectionEvent::Trouble(e.clone()));
            }
        };
        loop {
            let (term, token) =
                self.campaign.elect(&self.left, &self.created_nodes, &on_blocked, &on_trouble)?;
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
        let path = &self.state.campaign.path;
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
