//! `ZkMultiGuard`: the holds of all members of a multi-lock as one. It guarantees that all of them
//! are released together, and that the loss of any of them is a loss of the whole.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::recipes::guard::{Held, StaysOnItsThread};
use zk_session::LostSignal;

/// A hold of a [`ZkMultiLock`](crate::ZkMultiLock): of all its members together. All of them are
/// released when the guard is dropped, the last taken first.
///
/// The guard is valid while all members are held. When one of them is lost, the others are still
/// held, and keep others out, until the guard is dropped.
///
/// The drop does not wait for ZooKeeper: the nodes are deleted for sure, in the background. To wait
/// until they are deleted, call [`unlock`](Self::unlock).
///
/// The guard borrows nothing, so it can be stored in a struct. It is a handle of its members'
/// sessions and keeps them open. If it is the last handle of a session, its end also closes that
/// session. Then the drop, or `unlock`, waits for that for up to 0.95 s for each such session. Keep
/// a [`ZkSession`](crate::ZkSession) elsewhere to avoid this.
///
/// # Threads
///
/// A guard stays on the thread that took it, as a [`ZkMutexGuard`](crate::ZkMutexGuard) does.
///
/// ```compile_fail,E0277
/// # fn main() -> zk_mutex::Result<()> {
/// # let session = zk_mutex::ZkSession::connect("127.0.0.1:2181")?;
/// # let one = zk_mutex::ZkMutex::new(&session, "/locks/one")?;
/// let guard = zk_mutex::ZkMultiLock::new([&one])?.lock()?;
/// std::thread::spawn(move || drop(guard)); // error: GuardStaysOnItsThread
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the ZkMultiLock will immediately unlock; keep it: `let _guard = ..`"]
pub struct ZkMultiGuard {
    /// In the order in which they were taken, each with its member's number.
    holds: Vec<(usize, Held)>,
    lost: LostSignal,
    _here: StaysOnItsThread,
}

impl ZkMultiGuard {
    pub(super) fn new() -> Self {
        ZkMultiGuard { holds: Vec::new(), lost: LostSignal::common(), _here: PhantomData }
    }

    /// Adds the hold of a member.
    pub(super) fn add(&mut self, member: usize, held: Held) {
        held.join(&self.lost);
        self.holds.push((member, held));
    }

    pub(super) fn signal(&self) -> &LostSignal {
        &self.lost
    }

    /// Whether all members are held now. This is cheap: it does no I/O, and looks at a clock, and
    /// at a flag for each member. Once it is false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.iter().all(|(_, held)| held.is_held())
    }

    /// As [`is_held`](Self::is_held), but an error if a member is lost: for use with `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the node and the reason of a member that is lost. If several are lost,
    /// it names the first of them in the order in which the members were given.
    pub fn check(&self) -> Result<()> {
        self.holds().try_for_each(Held::check)
    }

    /// A signal that becomes ready when the first member is lost, and never when the guard is
    /// released. This call does no I/O.
    ///
    /// From this call on the nodes are watched, so that the sessions notice if somebody else
    /// deletes one, as with [`Held::lost`].
    pub fn lost(&self) -> LostSignal {
        self.holds.iter().for_each(|(_, held)| held.ask_for_watch());
        self.lost.clone()
    }

    /// How long all members stay held even if ZooKeeper never answers again; zero if one is lost.
    /// See [`Held::valid_for`].
    pub fn valid_for(&self) -> Duration {
        self.holds.iter().map(|(_, held)| held.valid_for()).min().unwrap_or_default()
    }

    /// The tokens of all members, in the order in which the members were given. Give each store the
    /// token of the lock that protects it. See [`Held::fencing_token`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.holds().map(Held::fencing_token).collect()
    }

    /// The hold of each member, in the order in which the members were given.
    pub fn holds(&self) -> impl Iterator<Item = &Held> {
        let mut given: Vec<&(usize, Held)> = self.holds.iter().collect();
        given.sort_by_key(|(member, _)| *member);
        given.into_iter().map(|(_, held)| held)
    }

    /// Releases all members, the last taken first, and waits until their nodes are deleted, for up
    /// to a sixth of the longest session timeout. All deletes are sent before the call waits for
    /// the first answer. If one release fails, the others go on.
    ///
    /// # Errors
    ///
    /// * [`Error::Lost`] when a member was lost before, as [`check`](Self::check) gives it.
    /// * Otherwise the error of the release that failed, as
    ///   [`ZkMutexGuard::unlock`](crate::ZkMutexGuard::unlock) gives it.
    /// * [`Error::Several`] when several releases failed, with the error of each.
    ///
    /// After any error all members are released all the same, and each node is deleted when its
    /// session ends, if not before.
    #[doc(alias = "release")]
    pub fn unlock(mut self) -> Result<()> {
        let was_lost = self.check();
        let holds = std::mem::take(&mut self.holds);
        let begun: Vec<_> =
            holds.into_iter().rev().map(|(_, held)| self.let_go(held).begin_unlock()).collect();
        // The owners are kept until the last outcome is known. One of them may be the last handle
        // of its session: its drop closes the session, and the other outcomes would wait for that.
        let (owners, outcomes): (Vec<_>, Vec<_>) =
            begun.into_iter().map(|outcome| outcome()).unzip();
        let mut failures: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        drop(owners);
        was_lost?;
        if failures.len() > 1 {
            return Err(Error::Several { failures });
        }
        failures.pop().map_or(Ok(()), Err)
    }

    /// Separates a hold from this guard's signal. Its node may go on with another thread, and a
    /// later loss of the node must not make the signal ready.
    fn let_go(&self, held: Held) -> Held {
        held.part(&self.lost);
        held
    }
}

impl Drop for ZkMultiGuard {
    fn drop(&mut self) {
        // All members are released before the first session may be closed, which takes time.
        let holds = std::mem::take(&mut self.holds);
        let begun: Vec<_> =
            holds.into_iter().rev().map(|(_, held)| self.let_go(held).begin_drop()).collect();
        drop(begun);
    }
}

impl fmt::Debug for ZkMultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkMultiGuard")
            .field("holds", &self.holds().collect::<Vec<_>>())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}
