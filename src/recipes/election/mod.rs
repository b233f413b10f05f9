//! `ZkElection`: one leader at a time, over all processes.

mod campaign;
mod candidate;
mod event;
mod leadership;
mod state;

use std::fmt;
use std::ops::ControlFlow;

use self::campaign::Campaign;
pub use self::candidate::ZkCandidate;
pub use self::event::ElectionEvent;
pub use self::leadership::Leadership;
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::queue::{Contender, Queue};
use crate::recipes::settings::{LockBuilder, Recipe, Settings};
use crate::session::ZkSession;
use zk_wire::path;

/// An election over ZooKeeper: of all its candidates, in all processes, one leads.
///
/// Leadership is a lock that is held: candidates queue up, the first leads, and leadership is valid
/// while [`is_held`](crate::Held::is_held), which ends before any server can have let the next one
/// lead. There are two ways to stand:
///
/// * as a latch: [`join`](Self::join) gives a [`ZkCandidate`], which stands in the background for
///   as long as it lives; ask it, wait for it, or read its events;
/// * as a runner: [`run`](Self::run) calls a closure on this thread whenever it leads.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::ops::ControlFlow;
/// use zk_mutex::{ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let election = ZkElection::new(&session, "/elections/billing")?;
///
/// // A latch.
/// let candidate = election.join()?;
/// let leadership = candidate.wait_leader()?; // blocks
/// println!("we lead, token {}", leadership.fencing_token());
/// candidate.leave()?;
///
/// // A runner.
/// election.run(|leadership| {
///     while leadership.is_held() {
///         println!("a piece of work");
///         if std::path::Path::new("enough").exists() {
///             return ControlFlow::Break(());
///         }
///     }
///     ControlFlow::Continue(()) // lost: stand again
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Candidates
///
/// Each `join` and each `run` is a candidate of its own, with a node of its own, also within one
/// process and session. They lead in the order in which they joined; one that leaves from the
/// middle promotes nobody. A candidate that lost leadership, be it that somebody deleted its node,
/// joins again at the end. The path is made when the first candidate joins, and made again if
/// somebody wipes it.
///
/// # When the session is lost
///
/// Leadership is lost with it, and [`lost`](crate::Held::lost) says so; the candidate stands again
/// in the next session. In a shorter outage a leader leads on, and the others keep their places. A
/// leader may still be at work when its time is over (paused, swapped out): only what it writes to
/// can refuse it, by the [`FencingToken`](crate::FencingToken).
///
/// # Other clients
///
/// The nodes are those of Curator's `LeaderLatch` (`<path>/_c_<uuid>-latch-<n>`, the candidate's id
/// in them), with which candidates of this crate share an election. Curator's `LeaderSelector` is
/// built on `InterProcessMutex`: against it, stand with a [`ZkMutex`](crate::ZkMutex).
/// `LeaderLatch` takes every child of the path for a candidate: leave the path to one election.
///
/// A leader can be asked to resign by [`attempt_revoke`](Self::attempt_revoke), which writes over
/// its id.
///
/// Unlike `LeaderLatch`, a candidate of this crate leads on while the connection is away for less
/// than the lease.
#[derive(Clone)]
pub struct ZkElection {
    campaign: Campaign,
}

impl ZkElection {
    /// The election at `path` (below the session's chroot), with the default settings. Nothing is
    /// sent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`](crate::Error::InvalidPath) for a path that ZooKeeper would refuse,
    /// for `/` and for what is below `/zookeeper`;
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when this process has a lock at this
    /// path, or the same election with another ACL.
    pub fn new(session: &ZkSession, path: &str) -> Result<Self> {
        ZkElection::builder(session, path).build()
    }

    /// Begins to describe an election. Its [`data`](LockBuilder::data) is what tells our candidates
    /// from others', as the id of Curator's `LeaderLatch`: [`contenders`](Self::contenders) show
    /// it.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkElection> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The election's path, as it was given.
    pub fn path(&self) -> &str {
        &self.campaign.path
    }

    /// Stands for election, in the background, until the candidate leaves or is dropped. Nothing is
    /// waited for: there may be no server yet.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed;
    /// [`Error::Unavailable`](crate::Error::Unavailable) when this machine gives no thread. What
    /// goes wrong later is told by the candidate.
    #[doc(alias = "start")]
    pub fn join(&self) -> Result<ZkCandidate> {
        ZkCandidate::start(self.campaign.clone())
    }

    /// Stands for election on this thread, and calls `lead` with each leadership it gets.
    ///
    /// `lead` is called while we lead: what is lost between the election and the call is never
    /// seen. That leadership is lost while it runs is told by
    /// [`leadership.lost()`](crate::Held::lost), a channel; the sooner it returns then, the better:
    /// the next leader does not wait for it. When it returns, leadership ends, and by what it
    /// returns we stand again, at the end of the queue (`ControlFlow::Continue(())`), or are done
    /// (`ControlFlow::Break(value)`). If it panics, leadership ends too, and the panic goes on.
    ///
    /// No outage ends a run; only what is below does.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) or [`Error::Auth`](crate::Error::Auth) when the
    /// server refuses us.
    ///
    /// # Panics
    ///
    /// If `lead` does.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use zk_mutex::crossbeam_channel::{select, tick};
    /// use zk_mutex::{ZkElection, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let election = ZkElection::new(&session, "/elections/nightly")?;
    /// let done = election.run(|leadership| {
    ///     let (lost, work) = (leadership.lost(), tick(Duration::from_secs(1)));
    ///     for piece in 1..=10 {
    ///         select! {
    ///             recv(lost.receiver()) -> _ => return ControlFlow::Continue(()), // stand again
    ///             recv(work) -> _ => println!("piece {piece}"),
    ///         }
    ///     }
    ///     ControlFlow::Break(10) // done: let others lead
    /// })?;
    /// println!("{done} pieces");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "LeaderSelector")]
    pub fn run<T>(&self, lead: impl FnMut(&Leadership) -> ControlFlow<T>) -> Result<T> {
        self.run_until_cancelled(&CancelToken::new(), lead)
    }

    /// As [`run`](Self::run), until the token is cancelled. A `lead` that runs then is not stopped:
    /// it may look at the token itself.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::Cancelled`](crate::Error::Cancelled).
    ///
    /// # Panics
    ///
    /// If `lead` does.
    pub fn run_until_cancelled<T>(
        &self,
        cancel: &CancelToken,
        lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<T> {
        self.campaign.run(cancel, lead)
    }

    /// All candidates, in the order in which they would lead: the first leads. Costs a listing, and
    /// a read for each.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; [`Error::Closed`](crate::Error::Closed)
    /// when the session is closed, [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses.
    #[doc(alias = "candidates")]
    #[doc(alias = "getParticipants")]
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        let Campaign { session, queue, .. } = &self.campaign;
        queue.contenders(session.core())
    }

    /// Who leads, of whatever process: the first of the [`contenders`](Self::contenders), or
    /// nobody. A leader whose time is over stays the first until its node goes. Costs a listing,
    /// and a read.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    #[doc(alias = "leader")]
    #[doc(alias = "getLeader")]
    pub fn holders(&self) -> Result<Vec<Contender>> {
        let Campaign { session, queue, .. } = &self.campaign;
        queue.holders(session.core())
    }

    /// Asks one of the [`contenders`](Self::contenders) to resign, as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke): a leader's
    /// [`revoke_requested`](crate::Held::revoke_requested) becomes ready. That writes over its id.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        let Campaign { session, path, .. } = &self.campaign;
        session.attempt_revoke(&path::join(path, &contender.name))
    }
}

impl Recipe for ZkElection {
    fn make(settings: Settings) -> Result<Self> {
        let queue = settings.share("election", |settings| {
            Queue::of_candidates(settings.dir(), settings.acl.clone())
        })?;
        settings.agree("election", &queue)?;
        let Settings { session, path, data: id, .. } = settings;
        Ok(ZkElection { campaign: Campaign { session, path, id, queue } })
    }
}

impl fmt::Debug for ZkElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkElection").field("path", &self.path()).finish_non_exhaustive()
    }
}
