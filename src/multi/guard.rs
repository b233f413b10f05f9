//! Several holds as one, and the two guards of them.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::error::{Error, LossReason, Result};
use crate::fencing::FencingToken;
use crate::guard::{Held, OfThread};
use crate::session::LostSignal;
use crate::world::Instant;

/// Holds of several locks, as one; the guards of a [`ZkMultiLock`](crate::ZkMultiLock) deref to it.
///
/// It stands while each of them does. Once one is lost the rest are still held, and keep others out,
/// until the guard is dropped.
pub struct HeldAll {
    /// As they were taken, each with its member's number.
    holds: Vec<(usize, Held)>,
    lost: LostSignal,
}

impl HeldAll {
    pub(super) fn new() -> Self {
        HeldAll { holds: Vec::new(), lost: LostSignal::common() }
    }

    /// What was taken of a member.
    pub(super) fn add(&mut self, member: usize, holds: Vec<Held>) {
        for held in holds {
            held.join(&self.lost);
            self.holds.push((member, held));
        }
    }

    pub(super) fn signal(&self) -> &LostSignal {
        &self.lost
    }

    /// Whether all holds stand now. Cheap: no I/O, a clock and a flag for each. Once false, it stays
    /// false.
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

    /// Until when all holds stand even if nothing more is heard of ZooKeeper; `None` once one is lost.
    /// See [`Held::valid_until`].
    pub fn valid_until(&self) -> Option<Instant> {
        let now = Instant::now(); // before the leases are looked at
        let left = self.valid_for();
        (!left.is_zero()).then(|| now + left)
    }

    /// The tokens of all holds, in the order in which the members were given: each store gets that of
    /// the lock that protects it. See [`Held::fencing_token`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.holds().map(Held::fencing_token).collect()
    }

    /// Each hold by itself, in the order in which the members were given.
    pub fn holds(&self) -> impl Iterator<Item = &Held> {
        let mut given: Vec<&(usize, Held)> = self.holds.iter().collect();
        given.sort_by_key(|(member, _)| *member);
        given.into_iter().map(|(_, held)| held)
    }

    /// Lets all go, the last that was taken first; then waits for how that went.
    fn unlock(mut self) -> Result<()> {
        let holds = std::mem::take(&mut self.holds);
        let begun: Vec<_> =
            holds.into_iter().rev().map(|(_, held)| self.let_go(held).begin_unlock()).collect();
        let mut failures: Vec<Error> = begun.into_iter().filter_map(|outcome| outcome().err()).collect();
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

impl Drop for HeldAll {
    fn drop(&mut self) {
        while let Some((_, held)) = self.holds.pop() {
            drop(self.let_go(held));
        }
    }
}

impl fmt::Debug for HeldAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldAll")
            .field("holds", &self.holds().collect::<Vec<_>>())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

/// A hold of a [`ZkMultiLock`](crate::ZkMultiLock), borrowed from it. All members are released when it is
/// dropped, the last taken first.
///
/// The drop does not wait for ZooKeeper: the nodes are deleted for sure, in the background; see
/// [`unlock`](Self::unlock) to wait. What can be asked of a guard is at [`HeldAll`].
#[must_use = "if unused the ZkMultiLock will immediately unlock"]
pub struct ZkMultiGuard<'a> {
    all: HeldAll,
    _lock: OfThread<'a>,
}

/// A hold of a [`ZkMultiLock`](crate::ZkMultiLock) that is not tied to its lifetime; see
/// [`ZkMultiLock::lock_owned`](crate::ZkMultiLock::lock_owned).
#[must_use = "if unused the ZkMultiLock will immediately unlock"]
pub struct OwnedZkMultiGuard {
    all: HeldAll,
    _lock: OfThread<'static>,
}

impl ZkMultiGuard<'_> {
    pub(super) fn new(all: HeldAll) -> Self {
        ZkMultiGuard { all, _lock: OfThread::default() }
    }

    /// Releases all members, the last taken first, and waits until their nodes are deleted: for up to a
    /// sixth of the (longest) session timeout in all, since all deletes are sent before the first answer is
    /// waited for. A release that fails stops no other.
    ///
    /// # Errors
    ///
    /// What failed, as with [`ZkMutexGuard::unlock`](crate::ZkMutexGuard::unlock); if more than one member
    /// failed, [`Error::Several`] with each of them. All are let go in any case, and their nodes go at the
    /// latest with their sessions.
    #[doc(alias = "release")]
    pub fn unlock(self) -> Result<()> {
        self.all.unlock()
    }
}

impl OwnedZkMultiGuard {
    pub(super) fn new(all: HeldAll) -> Self {
        OwnedZkMultiGuard { all, _lock: OfThread::default() }
    }

    /// As [`ZkMultiGuard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`ZkMultiGuard::unlock`].
    #[doc(alias = "release")]
    pub fn unlock(self) -> Result<()> {
        self.all.unlock()
    }
}

impl Deref for ZkMultiGuard<'_> {
    type Target = HeldAll;

    fn deref(&self) -> &HeldAll {
        &self.all
    }
}

impl Deref for OwnedZkMultiGuard {
    type Target = HeldAll;

    fn deref(&self) -> &HeldAll {
        &self.all
    }
}

impl fmt::Debug for ZkMultiGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

impl fmt::Debug for OwnedZkMultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}
