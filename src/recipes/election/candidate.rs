//! `ZkCandidate`: a thread that stands for election until the program drops the candidate. The
//! program asks it for its leadership; `state.rs` is what both sides share.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::campaign::Campaign;
use super::event::ElectionEvent;
use super::leadership::Leadership;
use super::state::CandidateState;
use crate::error::{Cause, Error, Result};
use crate::queue::request::{Call, Mode, until_got};
use crate::recipes::wait::Wait;
use zk_session::SessionState;
use zk_session::unstable::Limit;
use zk_session::world::thread::JoinHandle;
use zk_session::world::{LazyLock, Mutex, Receiver, bounded, spawn_own};

/// The events of a parent's candidate in a forked child: there are none.
static ENDED: LazyLock<Receiver<ElectionEvent>> = LazyLock::new(|| bounded(0).1);

/// The name of the calls that wait for the leadership, for errors.
const WAIT_LEADER: &str = "wait_leader";

/// One candidate of a [`ZkElection`](crate::ZkElection), from [`join`](crate::ZkElection::join)
/// until it leaves or is dropped.
///
/// It has one node in the queue of candidates. A thread of its own takes care of the node. The
/// candidate leads when its node comes first. When it has lost its leadership, it queues again, at
/// the end. No outage ends it: it keeps its place while the server keeps the session, and queues
/// anew in the next session. It ends in these cases:
///
/// * The program calls [`leave`](Self::leave), or drops the candidate.
/// * The session is closed ([`close`](crate::ZkSession::close)).
/// * An ACL refuses it ([`Error::NoAuth`](crate::Error::NoAuth)), or the servers refuse the
///   session's credentials ([`Error::Auth`](crate::Error::Auth)).
///
/// It belongs to no thread: all threads may share it by reference or in an `Arc`. It is a handle of
/// its session and keeps the session open.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{ElectionEvent, ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let candidate = ZkElection::new(&session, "/elections/billing")?.join()?;
/// match candidate.wait_leader_timeout(Duration::from_secs(5)) {
///     Ok(leadership) => println!("we lead, token {}", leadership.fencing_token()),
///     Err(e) if e.is_contended() => println!("somebody else leads"),
///     Err(e) => return Err(e), // an outage, for instance
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
#[must_use = "a candidate that is dropped leaves the election; keep it: `let candidate = ..`"]
pub struct ZkCandidate {
    state: Arc<CandidateState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ZkCandidate {
    pub(super) fn start(campaign: Campaign) -> Result<Self> {
        let (op, path) = ("join", campaign.settings.path.clone());
        campaign.process().check(op, &path)?;
        if campaign.settings.core().state() == SessionState::Closed {
            return Err(Error::Closed { op, path });
        }
        let state = CandidateState::new(campaign);
        let stands = state.clone();
        let thread = spawn_own("zkm-candidate".into(), move || stands.run()).map_err(|e| {
            let cause = Cause::Resources(format!("thread ({e})"));
            Error::Unavailable { op, path, cause }
        })?;
        Ok(ZkCandidate { state, thread: Mutex::new(Some(thread)) })
    }

    /// Whether this candidate leads now. This is cheap: it does no I/O, and looks at a clock and a
    /// flag.
    ///
    /// It is false at the latest when the lease ends, before any server can have let another
    /// candidate lead. An outage shorter than that changes nothing.
    #[doc(alias = "hasLeadership")]
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The leadership, if this candidate leads now. This call does no I/O.
    pub fn leadership(&self) -> Option<Leadership> {
        self.state.leadership()
    }

    /// Blocks until this candidate leads.
    ///
    /// The call waits in an outage for as long as the session's [`RetryPolicy`](crate::RetryPolicy)
    /// says, 60 s by default, counted from the call. After that the call ends, and the candidate
    /// goes on.
    ///
    /// # Errors
    ///
    /// * [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or no
    ///   server gives the answer that the candidate needs, for longer than the retry policy allows.
    /// * [`Error::Cancelled`](crate::Error::Cancelled) when the candidate leaves.
    /// * [`Error::Closed`](crate::Error::Closed) when the session is closed.
    /// * [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, and
    ///   [`Error::Auth`](crate::Error::Auth) when the servers refuse the session's credentials.
    /// * [`Error::Server`](crate::Error::Server) while the server refuses the candidate with
    ///   another error.
    #[doc(alias = "await")]
    pub fn wait_leader(&self) -> Result<Leadership> {
        let call = Call::new(WAIT_LEADER);
        until_got(|| self.state.wait(&call, Mode::Wait, &Limit::NONE))
    }

    /// Waits until this candidate leads, for `timeout` at most. The candidate goes on. With a
    /// timeout of zero the call waits until a server has said who leads, for a sixth of the session
    /// timeout at most, and not at all without a connection.
    ///
    /// # Errors
    ///
    /// * [`Error::TimedOut`](crate::Error::TimedOut) when the time ended while another candidate
    ///   was ahead; [`Error::WouldBlock`](crate::Error::WouldBlock) if the timeout is zero.
    /// * [`Error::Unavailable`](crate::Error::Unavailable) when the time ran out in an outage, or
    ///   before a server said who leads.
    /// * Otherwise as [`wait_leader`](Self::wait_leader).
    pub fn wait_leader_timeout(&self, timeout: Duration) -> Result<Leadership> {
        self.wait_leader_with(Wait::timeout(timeout))
    }

    /// Waits until this candidate leads for as long as `wait` says: a timeout, a deadline and a
    /// cancel token, or any of these. A wait that has neither a timeout nor a deadline never ends
    /// because of others. The candidate goes on.
    ///
    /// # Errors
    ///
    /// As [`wait_leader_timeout`](Self::wait_leader_timeout), and
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the token is cancelled.
    pub fn wait_leader_with(&self, wait: Wait) -> Result<Leadership> {
        let settings = &self.state.campaign.settings;
        let call = Call::new(WAIT_LEADER);
        wait.acquire(
            || settings.core().operation_timeout(),
            |mode| mode.missed(settings.path.clone()),
            |mode, limit| self.state.wait(&call, mode, &limit),
        )
    }

    /// The events of this candidate, from when it joined.
    ///
    /// All callers get the same channel: each event goes to one of them. It holds 64 events. If
    /// nobody reads them, the oldest are dropped. The channel is disconnected after the last event.
    pub fn events(&self) -> &Receiver<ElectionEvent> {
        if self.state.campaign.process().is_forked() {
            &ENDED
        } else {
            self.state.events.receiver()
        }
    }

    /// Ends the candidacy. If this candidate leads, its leadership ends at once. Threads that wait
    /// in [`wait_leader`](Self::wait_leader) get [`Error::Cancelled`](crate::Error::Cancelled).
    /// Then the call waits until the candidate's node is deleted, for up to a sixth of the session
    /// timeout. To stand again, [`join`](crate::ZkElection::join) again.
    ///
    /// A drop does the same, but does not wait until the node is deleted. A second call only waits.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server has confirmed that the node
    /// is deleted. The candidate has left all the same. The node is deleted as soon as a server can
    /// be reached, and at the latest with the session.
    #[doc(alias = "close")]
    pub fn leave(&self) -> Result<()> {
        let campaign = &self.state.campaign;
        campaign.process().check("leave", &campaign.settings.path)?;
        self.stop();
        self.state.created_nodes.until_gone(campaign)
    }

    /// Ends the thread, and waits for its end. This is quick: every wait of that thread ends when
    /// `left` is cancelled. After this the node is a pending delete.
    fn stop(&self) {
        self.state.left.cancel();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // a panic has been printed already
        }
    }
}

impl Drop for ZkCandidate {
    fn drop(&mut self) {
        if self.state.campaign.process().keeps(&self.state) {
            // The thread does not exist here. Even to detach it would touch memory that may be that
            // of a thread of this process by now.
            mem::forget(self.thread.get_mut().take());
            return;
        }
        // Waits for the thread. The thread has a handle of the session: if the program ended first,
        // the session would stay open at the server, and with it the node.
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
            .field("path", &self.state.campaign.settings.path)
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}
