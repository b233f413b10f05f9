//! `ZkElection`: of all candidates in all processes, one leads at a time.
//!
//! This file has the public type and its documentation. `candidate.rs` stands for election on a
//! thread of its own; `run` does so on the caller's thread. Both use `campaign.rs`, which queues
//! for the leadership and guarantees that a candidate has one node at a time.

mod campaign;
mod candidate;
mod event;
mod leadership;
mod state;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use self::campaign::{Campaign, SharedElection};
pub use self::candidate::ZkCandidate;
pub use self::event::ElectionEvent;
pub use self::leadership::Leadership;
#[cfg(doc)]
use crate::LockBuilder;
use crate::error::Result;
use crate::queue::Queue;
use crate::queue::Settings;
use crate::recipes::calls::{InQueue, contender_calls, lock_builder};
use crate::recipes::settings::Recipe;
use crate::session::ZkSession;
use zk_session::CancelToken;

/// An election over ZooKeeper: of all candidates in all processes, one leads at a time.
///
/// The candidates wait in a queue, as for a lock, and the first of them leads.
/// There are two ways to stand for election:
///
/// * [`join`](Self::join) gives a [`ZkCandidate`], which stands for election in the background
///   until it is dropped. The program asks whether it leads, waits until it leads, or reads its
///   events. (Curator calls this a latch.)
/// * [`run`](Self::run) stands for election on the calling thread, and calls a closure each time
///   that it leads. (A runner; Curator calls this a selector.)
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::ops::ControlFlow;
/// use zk_mutex::{ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let election = ZkElection::new(&session, "/elections/billing")?;
///
/// // In the background.
/// let candidate = election.join()?;
/// let leadership = candidate.wait_leader()?; // blocks
/// println!("we lead, token {}", leadership.fencing_token());
/// candidate.leave()?;
///
/// // On this thread.
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
/// process and session. A candidate that lost its leadership queues again, at the end, also if it
/// lost the leadership because somebody deleted its node. The path is made when the first candidate
/// joins, and made again if somebody deletes it.
///
/// # Fairness
///
/// The candidates lead in the order in which they joined. If a candidate that does not lead leaves,
/// the leader stays the same.
///
/// # When the session is lost
///
/// Leadership is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session, and so before another candidate can lead. When leadership
/// is lost, its signal [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check)
/// gives an error. The candidate stands again, in a new session. In an outage that is over before
/// the lease ends, the leader goes on leading, and the others keep their places.
///
/// A leader may be paused until its lease has ended, and write when it wakes. Only the store can
/// refuse that write, by the [`FencingToken`](crate::FencingToken).
///
/// # Differences from Curator's `LeaderLatch`
///
/// * The nodes are the same (`<path>/_c_<uuid>-latch-<n>`, with the candidate's id in the data), so
///   candidates of both stand in one election. `LeaderLatch` takes every child of the path for a
///   candidate: use the path for nothing else.
/// * A candidate of this crate goes on leading while the connection is away for less than the
///   lease.
/// * A leader can be asked to resign, by
///   [`attempt_revoke`](crate::ZkSession::attempt_revoke). This overwrites its id.
/// * Curator's `LeaderSelector` uses the nodes of `InterProcessMutex`. To elect a leader together
///   with programs that use it, use a [`ZkMutex`](crate::ZkMutex).
///
/// Source: Curator's `LeaderLatch`.
#[derive(Clone)]
pub struct ZkElection {
    campaign: Campaign,
}

lock_builder! {
    ZkElection;
    /// A builder, for an election with settings of its own. Its [`data`](LockBuilder::data) is the
    /// id of our candidates, as the id of Curator's `LeaderLatch`: [`contenders`](Self::contenders)
    /// shows it.
    builder()
}

impl ZkElection {
    /// The election at `path` (below the session's chroot), with the default settings. Nothing is
    /// sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: impl AsRef<str>) -> Result<Self> {
        ZkElection::builder(session, path).build()
    }

    /// Stands for election, in the background, until the candidate leaves or is dropped. The call
    /// waits for nothing: there may be no server yet.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed;
    /// [`Error::Unavailable`](crate::Error::Unavailable) when this machine gives no thread. The
    /// candidate reports errors that come later.
    #[doc(alias = "start")]
    pub fn join(&self) -> Result<ZkCandidate> {
        ZkCandidate::start(self.campaign.clone())
    }

    /// Stands for election on this thread, and calls `lead` each time that it leads.
    ///
    /// `lead` is called only while this candidate leads. If leadership is lost while `lead` runs,
    /// [`leadership.lost()`](crate::Held::lost) becomes ready, and `lead` should return soon: the
    /// next leader does not wait for it. When `lead` returns, the leadership ends. Its return value
    /// decides what follows:
    ///
    /// * `ControlFlow::Continue(())`: the candidate queues again, at the end.
    /// * `ControlFlow::Break(value)`: the call returns this value.
    ///
    /// The term ends when `lead` returns. The call does not wait until the node is deleted: that
    /// goes on in the background. The node is gone when [`close`](crate::ZkSession::close) of the
    /// session has returned `Ok`.
    ///
    /// If `lead` panics, the leadership ends, and the panic goes on to the caller.
    ///
    /// No outage ends this call: it goes on until `lead` breaks, or until one of the errors below.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed;
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, and
    /// [`Error::Auth`](crate::Error::Auth) when the servers refuse the session's credentials.
    ///
    /// # Panics
    ///
    /// If `lead` panics.
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

    /// As [`run`](Self::run), until the token is cancelled. If `lead` runs at that moment, it is
    /// not stopped: it may look at the token itself. If it returns `Break` after that, the call
    /// returns its value all the same; after `Continue` the call ends with `Cancelled`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::Cancelled`](crate::Error::Cancelled) when the token is
    /// cancelled.
    ///
    /// # Panics
    ///
    /// If `lead` panics.
    pub fn run_until_cancelled<T>(
        &self,
        cancel: &CancelToken,
        lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<T> {
        self.campaign.run(cancel, lead)
    }

    /// What all elections of this path and session have counted, since the first of them was made:
    /// candidates that wait, terms as holds, losses. When the last of them, and of their
    /// candidates, is dropped, the counts are gone. Costs nothing. See
    /// [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> crate::LockStats {
        self.campaign.shared.tally.stats()
    }
}

contender_calls! {
    ZkElection, |election| election.campaign;

    /// All contenders, in the order of the queue: the first leads, the others wait. Costs a
    /// listing, and a read for each contender.
    #[doc(alias = "candidates")]
    #[doc(alias = "getParticipants")]
    contenders;

    /// The contender that leads, in any process: the first of the [`contenders`](Self::contenders).
    /// The list is empty if nobody leads. A leader whose lease has ended stays the first until its
    /// node is deleted. Costs a listing behind a `sync`, and a read.
    #[doc(alias = "leader")]
    #[doc(alias = "getLeader")]
    holders;
}

impl Recipe for ZkElection {
    fn make(mut settings: Settings) -> Result<Self> {
        settings.warn_waiting_after = Duration::MAX; // a candidate that waits is as usual
        let shared = settings.share("election", |settings| SharedElection {
            queue: Queue::of_candidates(
                settings.dir(),
                settings.acl.clone(),
                settings.memory.clone(),
            ),
            tally: settings.tally("election"),
        })?;
        settings.agree(&shared.queue)?;
        Ok(ZkElection { campaign: Campaign { settings: settings.into(), shared } })
    }
}

impl fmt::Debug for ZkElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.campaign.settings.path;
        f.debug_struct("ZkElection").field("path", path).finish_non_exhaustive()
    }
}
