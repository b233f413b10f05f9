//! Several holds as one: the guard of a multi-lock.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::error::{Error, LossReason, Result};
use crate::fencing::FencingToken;
use crate::guard::{Held, StaysOnItsThread};
use crate::session::LostSignal;
use crate::world::Instant;

/// A hold of a [`ZkMultiLock`](crate::ZkMultiLock): of all its members, as one. They are released
/// when it is dropped, the last taken first.
///
/// It stands while each of them does. Once one is lost the rest are still held, and keep others
/// out, until the guard is dropped.
///
/// The drop does not wait for ZooKeeper: the nodes are deleted for sure, in the background; see
/// [`unlock`](Self::unlock) to wait. It stays on its thread, as a
/// [`ZkMutexGuard`](crate::ZkMutexGuard) does.
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
#[must_use = "if unused the ZkMultiLock will immediately unlock"]
pub struct ZkMultiGuard {
    /// As they were taken, each with its member's number.
    holds: Vec<(usize, Held)>,
    lost: LostSignal,
    _here: StaysOnItsThread,
}

impl ZkMultiGuard {
    pub(super) fn new() -> Self {
        ZkMultiGuard { holds: Vec::new(), lost: LostSignal::common(), _here: PhantomData }
    }

    /// What was taken of a member.
    pub(super) fn add(&mut self, member: usize, held: Held) {
        held.join(&self.lost);
        self.holds.push((member, held));
    }

    pub(super) fn signal(&self) -> &LostSignal {
        &self.lost
    }

    /// Whether all holds stand now. Cheap: no I/O, a clock and a flag for each. Once false, it
    /// stays false.
    pub fn is_held(&self) -> bool {
        self.holds.iter().all(|(_, held)| held.is_held())
    }

    /// As [`is_held`](Self::is_held), for `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the node and the reason of the first, in the order in which the members
    /// were given, that is lost.
    pub fn check(&self) -> Result<()> {
        self.holds().try_for_each(Held::check)
    }

    /// A signal that becomes ready as soon as any of the holds is lost, never at a release. Does no
    /// I/O.
    ///
    /// Asking for it also makes sure that a deletion of a node by somebody else is noticed, as with
    /// [`Held::lost`].
    pub fn lost(&self) -> LostSignal {
        self.holds.iter().for_each(|(_, held)| held.ask_for_watch());
        self.lost.clone()
    }

    /// Why the hold that was lost first was lost, if any was.
    pub fn lost_reason(&self) -> Option<LossReason> {
        self.is_held(); // the clock may have something to say
        self.lost.reason()
    }

    /// How long all holds stand even if nothing more is heard of ZooKeeper; zero once one is lost.
    pub fn valid_for(&self) -> Duration {
        self.holds.iter().map(|(_, held)| held.valid_for()).min().unwrap_or_default()
    }

    /// Until when all holds stand even if nothing more is heard of ZooKeeper; `None` once one is
    /// lost. See [`Held::valid_until`].
    pub fn valid_until(&self) -> Option<Instant> {
        let now = Instant::now(); // before the leases are looked at
        let left = self.valid_for();
        (!left.is_zero()).then(|| now + left)
    }

    /// The tokens of all members, in the order in which they were given: each store gets that of
    /// the lock that protects it. See [`Held::fencing_token`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.holds().map(Held::fencing_token).collect()
    }

    /// Each member's hold by itself, in the order in which they were given.
    pub fn holds(&self) -> impl Iterator<Item = &Held> {
        let mut given: Vec<&(usize, Held)> = self.holds.iter().collect();
        given.sort_by_key(|(member, _)| *member);
        given.into_iter().map(|(_, held)| held)
    }

    /// Releases all members, the last taken first, and waits until their nodes are deleted: for up
    /// to a sixth of the (longest) session timeout in all, since all deletes are sent before the
    /// first answer is waited for. A release that fails stops no other.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when a member was lost before, as [`check`](Self::check) says; otherwise
    /// what failed, as with [`ZkMutexGuard::unlock`](crate::ZkMutexGuard::unlock), and if more than
    /// one member failed, [`Error::Several`] with each of them. All are let go in any case, and
    /// their nodes go at the latest with their sessions.
    #[doc(alias = "release")]
    pub fn unlock(mut self) -> Result<()> {
        let was_lost = self.check();
        let holds = std::mem::take(&mut self.holds);
        let begun: Vec<_> =
            holds.into_iter().rev().map(|(_, held)| self.let_go(held).begin_unlock()).collect();
        // The owners stay until the last outcome is there: one of them may be the last handle of
        // its session, whose end would keep the others waiting.
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

    /// The node may go on in other hands, and its loss is not ours then.
    fn let_go(&self, held: Held) -> Held {
        held.part(&self.lost);
        held
    }
}

impl Drop for ZkMultiGuard {
    fn drop(&mut self) {
        // All are let go before the first of them may close its session, which takes its time.
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
