//! A candidate: a thread that stands for election until it leaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::campaign::Campaign;
use super::event::ElectionEvent;
use super::leadership::Leadership;
use super::state::CandidateState;
use crate::error::{Cause, Error, Result};
use crate::limit::Limit;
use crate::queue::Mode;
use crate::session::SessionState;
use crate::wait::{Wait, until_got};
use crate::world::thread::{Builder, JoinHandle};
use crate::world::{Mutex, Receiver};

/// One candidate of a [`ZkElection`](crate::ZkElection), from [`join`](crate::ZkElection::join)
/// until it leaves or is dropped.
///
/// It has one node in the queue of candidates, kept by a thread of its own: it leads when its node
/// comes first, and queues again, at the end, when it has lost leadership. No outage ends it: it
/// keeps its place for as long as the server keeps the session, and queues anew in the next one.
/// What ends it is [`leave`](Self::leave), a drop, the end of the session
/// ([`close`](crate::ZkSession::close)), and a server that refuses it
/// ([`Error::NoAuth`](crate::Error::NoAuth), [`Error::Auth`](crate::Error::Auth)).
///
/// It is no lock: it is bound to no thread, and all threads may share it by reference or in an
/// `Arc`.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{ElectionEvent, ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let candidate = ZkElection::new(&session, "/elections/billing")?.join()?;
/// match candidate.wait_leader_timeout(Duration::from_secs(5))? {
///     Some(leadership) => println!("we lead, token {}", leadership.fencing_token()),
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
    state: Arc<CandidateState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ZkCandidate {
    pub(super) fn start(campaign: Campaign) -> Result<Self> {
        let (op, path) = ("join", campaign.path.clone());
        if campaign.session.state() == SessionState::Closed {
            return Err(Error::Closed { op, path });
        }
        let state = CandidateState::new(campaign);
        let stands = state.clone();
        let thread = Builder::new()
            .name("zkm-candidate".into())
            .spawn(move || stands.run())
            .map_err(|e| {
                let cause = Cause::Resources(format!("thread ({e})"));
                Error::Unavailable { op, path, cause }
            })?;
        Ok(ZkCandidate { state, thread: Mutex::new(Some(thread)) })
    }

    /// The election's path, as it was given.
    pub fn path(&self) -> &str {
        &self.state.campaign.path
    }

    /// Whether it leads now, validly. Cheap: no I/O, a clock and a flag.
    ///
    /// It is false at the latest when the lease ends, before any server can have let another
    /// candidate lead. An outage shorter than that changes nothing.
    #[doc(alias = "hasLeadership")]
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The term that lasts now, if it leads. No I/O.
    pub fn leadership(&self) -> Option<Leadership> {
        self.state.leadership()
    }

    /// Blocks until it leads.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says; the
    /// candidate itself goes on after that.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when an outage outlasts the retry policy,
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the candidate leaves,
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) or [`Error::Auth`](crate::Error::Auth) when the
    /// server refuses it, [`Error::Server`](crate::Error::Server) as long as the server answers it
    /// with another error.
    #[doc(alias = "await")]
    pub fn wait_leader(&self) -> Result<Leadership> {
        until_got(|| self.state.wait(Mode::Wait, &Limit::NONE))
    }

    /// As [`wait_leader`](Self::wait_leader), for up to `timeout`; `None` if somebody else led all
    /// the time. The candidate goes on. A timeout of zero waits until a server has said who leads,
    /// a sixth of the session timeout at most.
    ///
    /// # Errors
    ///
    /// As [`wait_leader`](Self::wait_leader); [`Error::Unavailable`](crate::Error::Unavailable)
    /// when the time ran out in an outage, or before a server said who leads.
    pub fn wait_leader_timeout(&self, timeout: Duration) -> Result<Option<Leadership>> {
        self.wait_leader_with(Wait::timeout(timeout))
    }

    /// As [`wait_leader`](Self::wait_leader), for as long as `wait` says; `None` if somebody else
    /// led all that time, never where only a token can end the wait. The candidate goes on.
    ///
    /// # Errors
    ///
    /// As [`wait_leader_timeout`](Self::wait_leader_timeout), and
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the token is cancelled.
    pub fn wait_leader_with(&self, wait: Wait) -> Result<Option<Leadership>> {
        let operation_timeout = || self.state.campaign.session.timeout() / 6;
        wait.acquire(operation_timeout, |mode, limit| self.state.wait(mode, &limit))
    }

    /// What happens to it, from when it joined.
    ///
    /// There is one channel for all who ask: each event goes to one of them. It holds 64 events;
    /// where nobody reads, the oldest are forgotten. It is disconnected after the last event.
    pub fn events(&self) -> &Receiver<ElectionEvent> {
        self.state.events.receiver()
    }

    /// Ends the candidacy: leadership, if it led, ends at once, and who waits for it here gets
    /// [`Error::Cancelled`](crate::Error::Cancelled). Then waits until its node is deleted, for up
    /// to a sixth of the session timeout. To stand again, [`join`](crate::ZkElection::join) anew.
    ///
    /// A drop does the same without waiting for the server. A second call only waits.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server has confirmed that the node
    /// is gone. The candidate has left in any case; the node goes as soon as a server can be
    /// reached, and at the latest with the session.
    #[doc(alias = "close")]
    pub fn leave(&self) -> Result<()> {
        self.stop();
        self.state.created_nodes.until_gone(&self.state.campaign)
    }

    /// Ends the thread, which waits for nothing that cannot be cancelled. Its node is a pending
    /// delete then.
    fn stop(&self) {
        self.state.left.cancel();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // a panic was printed
        }
    }
}

impl Drop for ZkCandidate {
    fn drop(&mut self) {
        // Waited for, so that a program that ends now ends its session after this, and with it the
        // node.
        self.stop();
    }
}

impl fmt::Debug for ZkCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_leader() {
            "<leads>"
        } else if self.state.is_over() {
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
