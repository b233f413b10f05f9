//! A candidate: a thread that stands for election until it leaves.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use parking_lot::Mutex;

use super::campaign::Campaign;
use super::event::{ElectionEvent, Events};
use super::leadership::Leadership;
use crate::cancel::CancelToken;
use crate::error::{Cause, Error, LossReason, Result};
use crate::limit::{Ended, Limit};
use crate::queue::Leftovers;
use crate::session::SessionState;
use crate::session::bell::{Bell, Bells, Causes};

/// One candidate of a [`ZkElection`](crate::ZkElection), from [`join`](crate::ZkElection::join) until
/// it leaves or is dropped.
///
/// It has one node in the queue of candidates, kept by a thread of its own: it leads when its node
/// comes first, and queues again, at the end, when it has lost leadership. No outage ends it: it keeps
/// its place for as long as the server keeps the session, and queues anew in the next one. What ends it
/// is [`leave`](Self::leave), a drop, the end of the session ([`close`](crate::ZkSession::close)), and a
/// server that refuses it ([`Error::NoAuth`](crate::Error::NoAuth),
/// [`Error::Auth`](crate::Error::Auth)).
///
/// It is no lock: it is bound to no thread, and all threads may share it by reference or in an `Arc`.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{ElectionEvent, ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let candidate = ZkElection::new(&session, "/elections/billing")?.join()?;
/// match candidate.wait_leader_timeout(Duration::from_secs(5))? {
///     Some(leadership) => println!("we lead, token {}", leadership.fencing_token()?),
///     None => println!("somebody else leads"),
/// }
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         for event in candidate.events() {
///             if let ElectionEvent::Elected { token } = event {
///                 println!("we lead under {token}");
///             }
///         } // ends when the candidate has left
///     });
///     candidate.leave()
/// })
/// # }
/// ```
#[must_use = "a candidate that is dropped leaves the election"]
pub struct ZkCandidate {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the session was about to delete when it joined is none of ours.
    before: Leftovers,
}

/// What a candidate and its thread share.
struct Shared {
    campaign: Campaign,
    /// Cancelled when it leaves.
    left: CancelToken,
    status: Mutex<Status>,
    /// Rings at each change of the status.
    changes: Bells<()>,
    events: Events,
}

#[derive(Default)]
struct Status {
    /// The term that began last, lost or not.
    leadership: Option<Leadership>,
    /// The server has shown somebody ahead.
    is_blocked: bool,
    trouble: Option<Error>,
    over: Option<Over>,
}

#[derive(Clone)]
enum Over {
    Left,
    Failed(Error),
}

impl ZkCandidate {
    pub(super) fn start(campaign: Campaign) -> Result<Self> {
        let (op, path) = ("join", campaign.path.clone());
        if campaign.session.state() == SessionState::Closed {
            return Err(Error::Closed { op, path });
        }
        let before = campaign.going();
        let shared = Arc::new(Shared {
            campaign,
            left: CancelToken::new(),
            status: Mutex::default(),
            changes: Bells::default(),
            events: Events::new(),
        });
        let stands = shared.clone();
        let thread =
            Builder::new().name("zkm-candidate".into()).spawn(move || stands.run()).map_err(|e| {
                let cause = Cause::Resources(format!("thread ({e})"));
                Error::Unavailable { op, path, cause }
            })?;
        Ok(ZkCandidate { shared, thread: Mutex::new(Some(thread)), before })
    }

    /// The election's path, as it was given.
    pub fn path(&self) -> &str {
        &self.shared.campaign.path
    }

    /// Whether it leads now, validly. Cheap: no I/O, a clock and a flag.
    ///
    /// It is false at the latest when the lease ends, before any server can have let another candidate
    /// lead. An outage shorter than that changes nothing.
    #[doc(alias = "hasLeadership")]
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The term that lasts now, if it leads. No I/O.
    pub fn leadership(&self) -> Option<Leadership> {
        self.shared.leadership()
    }

    /// Blocks until it leads.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says; the candidate
    /// itself goes on after that.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when an outage outlasts the retry policy,
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the candidate leaves,
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) or [`Error::Auth`](crate::Error::Auth) when the server
    /// refuses it, [`Error::Server`](crate::Error::Server) as long as the server answers it with another
    /// error.
    #[doc(alias = "await")]
    pub fn wait_leader(&self) -> Result<Leadership> {
        self.forever(Limit::NONE)
    }

    /// As [`wait_leader`](Self::wait_leader), for up to `timeout`; `None` if somebody else led all the
    /// time. The candidate goes on.
    ///
    /// # Errors
    ///
    /// As [`wait_leader`](Self::wait_leader); [`Error::Unavailable`](crate::Error::Unavailable) when the
    /// time ran out in an outage, or before a server said who leads.
    pub fn wait_leader_timeout(&self, timeout: Duration) -> Result<Option<Leadership>> {
        self.shared.wait(&Limit::after(timeout))
    }

    /// As [`wait_leader_timeout`](Self::wait_leader_timeout), until a point in time.
    ///
    /// # Errors
    ///
    /// As [`wait_leader_timeout`](Self::wait_leader_timeout).
    pub fn wait_leader_deadline(&self, deadline: Instant) -> Result<Option<Leadership>> {
        self.shared.wait(&Limit::at(deadline))
    }

    /// As [`wait_leader`](Self::wait_leader), until the token is cancelled. The candidate goes on.
    ///
    /// # Errors
    ///
    /// As [`wait_leader`](Self::wait_leader).
    pub fn wait_leader_with(&self, cancel: &CancelToken) -> Result<Leadership> {
        self.forever(Limit::cancelled_by(cancel))
    }

    /// What happens to it, from when it joined.
    ///
    /// There is one channel for all who ask: each event goes to one of them. It holds 64 events; where
    /// nobody reads, the oldest are forgotten. It is disconnected after the last event.
    pub fn events(&self) -> &Receiver<ElectionEvent> {
        self.shared.events.receiver()
    }

    /// Ends the candidacy: leadership, if it led, ends at once, and who waits for it here gets
    /// [`Error::Cancelled`](crate::Error::Cancelled). Then waits until its node is deleted, for up to a
    /// sixth of the session timeout. To stand again, [`join`](crate::ZkElection::join) anew.
    ///
    /// A drop does the same without waiting for the server. A second call only waits.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server has confirmed that the node is
    /// gone. The candidate has left in any case; the node goes as soon as a server can be reached, and
    /// at the latest with the session.
    #[doc(alias = "close")]
    pub fn leave(&self) -> Result<()> {
        self.stop();
        self.shared.campaign.until_gone(&self.before)
    }

    /// Ends the thread, which waits for nothing that cannot be cancelled. Its node is then with the link.
    fn stop(&self) {
        self.shared.left.cancel();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // a panic was printed
        }
    }

    /// Without a deadline it leads in the end, or there is an error.
    fn forever(&self, limit: Limit<'_>) -> Result<Leadership> {
        loop {
            if let Some(leadership) = self.shared.wait(&limit)? {
                return Ok(leadership);
            }
        }
    }
}

impl Drop for ZkCandidate {
    fn drop(&mut self) {
        // Waited for, so that a program that ends now ends its session after this, and with it the node.
        self.stop();
    }
}

impl fmt::Debug for ZkCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_leader() {
            "<leads>"
        } else if self.shared.status.lock().over.is_some() {
            "<over>"
        } else {
            "<stands>"
        };
        f.debug_struct("ZkCandidate")
            .field("path", &self.path())
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn leadership(&self) -> Option<Leadership> {
        // Looked at outside the lock: a loss that is seen first here is logged, and a logger may block.
        let last = self.status.lock().leadership.clone();
        last.filter(|leadership| leadership.is_held())
    }

    /// Waits until it leads. `None`: somebody else's node was ahead.
    fn wait(&self, limit: &Limit<'_>) -> Result<Option<Leadership>> {
        let core = self.campaign.session.core();
        let (bell, causes) = (Bell::new(), Causes { gone: 1, changed: 1 });
        let _changes = self.changes.register((), &bell, causes);
        let _session = core.changes.register((), &bell, causes);
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
            if limit.is_past() {
                return match outage {
                    Some(_) => Err(unavailable(Cause::ConnectionLost)),
                    None if is_blocked => Ok(None),
                    None => Err(unavailable(Cause::Deadline)),
                };
            }
            let until = match outage {
                Some((since, Some(spent))) if Instant::now() >= spent => {
                    return Err(unavailable(Cause::Outage(since.elapsed())));
                }
                Some((_, Some(spent))) => limit.or_at(spent),
                _ => *limit,
            };
            match bell.wait(&until) {
                Ended::Got(_) | Ended::Disconnected | Ended::Deadline => {}
                Ended::Cancelled => return Err(Error::Cancelled { path: path() }),
            }
        }
    }

    // ---- the candidate's thread ----

    fn run(self: Arc<Self>) {
        // Told in any case: nobody shall wait for a thread that is no more.
        let mut ending = Ending { shared: &self, event: ElectionEvent::Left };
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
            let (mandate, token) = self.campaign.elect(&self.left, &on_blocked, &on_trouble)?;
            if self.left.is_cancelled() {
                return Ok(());
            }
            let leadership = mandate.view();
            let lost = leadership.lost();
            self.change(|status| {
                *status = Status { leadership: Some(leadership.clone()), ..Status::default() };
            });
            self.events.publish(ElectionEvent::Elected { token });
            select! {
                recv(lost) -> _ => {}
                recv(self.left.receiver()) -> _ => return Ok(()),
            }
            self.events.publish(ElectionEvent::Lost(lost.reason().unwrap_or(LossReason::Internal)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock());
        self.changes.ring(&(), true);
    }
}

/// Tells that the thread is at its end.
struct Ending<'a> {
    shared: &'a Shared,
    event: ElectionEvent,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let path = &self.shared.campaign.path;
        let over = match &self.event {
            ElectionEvent::Failed(e) => {
                log::warn!("election {path}: our candidate is out, {e}");
                Over::Failed(e.clone())
            }
            _ => {
                log::debug!("election {path}: our candidate left");
                Over::Left
            }
        };
        self.shared.change(|status| *status = Status { over: Some(over), ..Status::default() });
        self.shared.events.end(self.event.clone());
    }
}
