//! `Held`: what each guard can tell of its hold. All recipes make their guards with the macro at
//! the end of this file. It guarantees that a guard ends its hold once, and that the signals of a
//! released guard never become ready.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, LossReason, Result};
use crate::fencing::FencingToken;
use crate::queue::RevokeSignal;
use crate::queue::{EndBy, HeldNode, Release};
use zk_session::LostSignal;
use zk_session::world::OnceLock;

/// The recipe's side of a guard: one hold. If a recipe counts guards by thread, the guards of one
/// thread share a hold.
pub(crate) trait Hold: Send + Sync {
    /// The node that is held. If there are several, the node that was made first.
    fn node(&self) -> &HeldNode;

    /// The other nodes, if several permits of a semaphore were taken together.
    fn others(&self) -> &[HeldNode] {
        &[]
    }

    /// The path of the node, below the session's chroot.
    fn path(&self) -> &str;

    /// How many guards this hold has.
    fn count(&self) -> usize {
        1
    }

    /// Ends one guard, without waiting for anything.
    fn release(&self, end_by: EndBy) -> Release;
}

/// A hold of a lock. Every guard derefs to it.
///
/// A hold is valid until it is released or lost. If it is lost, somebody else may hold the lock:
/// stop the work that it protects. This process notices a loss at the latest when the session's
/// lease ends, whatever the network does. An outage that is over before the lease ends changes
/// nothing.
///
/// # The lease
///
/// The session renews the lease in the background as long as a guard lives, so an idle holder keeps
/// its lock. T is the session timeout that the server granted. Every T/8 the session sends a
/// `sync`, or a small write in its place. As long as servers answer within T/32, at least T/4 is
/// left of the lease at each time. An idle holder keeps its lock as long as each answer of the
/// servers takes at most T/10. No server expires the session before the lease ends, on these
/// assumptions:
///
/// * The servers' tick is at most T/2. That is so unless an operator sets `minSessionTimeout` below
///   two ticks. In that case state the tick with
///   [`server_tick`](crate::Config::server_tick).
/// * The error of this host's clock within T, plus the longest pause of the leading server between
///   two of its pings, is less than T/12.
/// * All servers of the ensemble grant the same timeout. If the session moves to a server that
///   grants a shorter one, the lease becomes shorter when that server's answer arrives. If the
///   answer is lost, the server may expire the session before the lease ends.
/// * Nothing stops this host's clocks while those of other hosts go on. A hypervisor that freezes,
///   restores or moves a virtual machine may do so, and so may CRIU. Nothing inside can see that:
///   use the [`fencing_token`](Self::fencing_token).
/// * The session is not connected through an observer master (`observerMasterPort`), and sessions
///   are not local (`localSessionsEnabled`).
pub struct Held {
    hold: Arc<dyn Hold>,
    /// Made at the first call that needs a signal. Most guards never need one, and so allocate
    /// nothing.
    signals: OnceLock<Box<Signals>>,
    /// This guard has been released, or is only a view and has nothing to release.
    is_released: bool,
}

/// The signals of one guard. They end with the guard, because its node may go on with another
/// thread.
#[derive(Default)]
struct Signals {
    lost: OnceLock<LostSignal>,
    revoked: OnceLock<RevokeSignal>,
}

impl Held {
    pub(crate) fn new(hold: Arc<dyn Hold>) -> Self {
        Held { hold, signals: OnceLock::new(), is_released: false }
    }

    /// A view of a hold that is released elsewhere. Its signals become ready when the hold ends, in
    /// whatever way, also after this view was dropped.
    pub(crate) fn view(hold: Arc<dyn Hold>) -> Self {
        let mut held = Held::new(hold);
        held.is_released = true;
        held
    }

    /// Its nodes. There is one, or one for each of several permits that were taken together.
    pub(crate) fn held_nodes(&self) -> impl Iterator<Item = &HeldNode> {
        std::iter::once(self.hold.node()).chain(self.hold.others())
    }

    /// Whether this process is a forked child of the process that has the hold.
    fn is_forked(&self) -> bool {
        self.hold.node().process().is_forked()
    }

    /// How many nodes it has.
    pub(crate) fn nodes(&self) -> usize {
        self.hold.others().len() + 1
    }

    /// Whether the hold is valid now. This is cheap: it does no I/O, and looks at a clock and a
    /// flag. Once it is false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held_nodes().all(HeldNode::is_held)
    }

    /// As [`is_held`](Self::is_held), but an error if the hold is lost: for use with `?`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the path of the node and the reason. For several permits that were
    /// taken together it is the path of the first permit's node, also if another one was lost.
    pub fn check(&self) -> Result<()> {
        match self.lost_reason() {
            None => Ok(()),
            Some(reason) => Err(Error::Lost { path: self.path().to_owned(), reason }),
        }
    }

    /// A signal that becomes ready when the hold is lost, and never when it is released. Wait for
    /// it with [`wait`](LostSignal::wait), or with its [`receiver`](LostSignal::receiver) in
    /// `select!`. This call does no I/O.
    ///
    /// The signal belongs to this guard: if it was not ready when the guard was released, it never
    /// becomes ready. This is so also if the node is used further (by another thread of this
    /// process, by an outer guard of this thread, or by other readers) and is lost then. (The
    /// signal of a [`Leadership`](crate::Leadership) becomes ready when the term ends in any way.)
    ///
    /// From this call on the node is watched, so that the session notices if somebody else deletes
    /// it. (Without this call the watch begins when the lock has been held for 50 ms.)
    pub fn lost(&self) -> LostSignal {
        if self.is_forked() {
            return LostSignal::ready(self.lost_reason().unwrap_or(LossReason::Forked));
        }
        self.ask_for_watch();
        self.lost_signal().clone()
    }

    /// A signal that becomes ready when somebody asks the holder to release the lock, with
    /// [`attempt_revoke`](crate::ZkSession::attempt_revoke) or with Curator's `Revoker`. If
    /// somebody asked while this thread was still waiting for the lock, the signal is ready at
    /// once. A release or a loss never makes it ready. After this guard was released, nothing makes
    /// it ready. This call does no I/O.
    ///
    /// A request does not end the hold: the hold stays valid, and the holder decides whether and
    /// when to drop the guard. When the guard is dropped, the lock is not handed to another thread
    /// of this process, so that other processes get their turn.
    ///
    /// The holder of a [`ZkExclusiveLock`](crate::ZkExclusiveLock) can only be asked by a client
    /// that writes `__REVOKE__` to its node itself.
    ///
    /// As with [`lost`](Self::lost), the node is watched from this call on. The request belongs to
    /// the node, not to one guard: if it came before this thread got the node from another thread
    /// of this process, the signal is ready at once.
    ///
    /// ```no_run
    /// # fn step() -> bool { false }
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// let guard = mutex.lock()?;
    /// let asked = guard.revoke_requested();
    /// while !asked.is_requested() && step() {}
    /// guard.unlock()
    /// # }
    /// ```
    ///
    /// Source: Curator's `Revocable.makeRevocable`.
    pub fn revoke_requested(&self) -> RevokeSignal {
        if self.is_forked() {
            return RevokeSignal::of(self.hold.node().process());
        }
        self.ask_for_watch();
        let signals = self.signals();
        let make = || {
            let signal = self.hold.node().state().revoke_signal();
            self.hold.others().iter().for_each(|other| other.state().join_revoked(&signal));
            signal
        };
        signals.revoked.get_or_init(make).clone()
    }

    /// Why the hold was lost, if it was.
    pub fn lost_reason(&self) -> Option<LossReason> {
        let reason = self.held_nodes().find_map(HeldNode::loss)?;
        // Of several nodes one may be lost after another. The signal keeps the reason that came
        // first, so the answer does not change.
        let signal = if self.is_forked() {
            self.signals.get().and_then(|signals| signals.lost.get())
        } else {
            Some(self.lost_signal())
        };
        Some(signal.and_then(LostSignal::reason).unwrap_or(reason))
    }

    /// How long the hold stays valid even if ZooKeeper never answers again; zero if it is lost.
    /// Each renewal of the lease makes this time longer again, up to the end of the lock's
    /// [`max_hold`](crate::LockBuilder::max_hold).
    ///
    /// To wait for something no longer than that, give this time to `recv_timeout` and the like. It
    /// counts from this call. A program that needs the end as a point in time reads the clock first
    /// and calls this afterwards: a pause between the two then makes the end too early, never too
    /// late.
    ///
    /// ```no_run
    /// # fn ask_the_bank() -> u64 { 0 }
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::crossbeam_channel::bounded;
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// let guard = mutex.lock()?;
    /// let (tell, answer) = bounded(1);
    /// std::thread::spawn(move || tell.send(ask_the_bank()));
    /// println!("{:?}", answer.recv_timeout(guard.valid_for())); // no longer than the lock is ours
    /// guard.check()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Such a wait does not count the time in which the host sleeps: after a sleep the hold may
    /// have ended before. [`check`](Self::check) does count it.
    pub fn valid_for(&self) -> Duration {
        self.held_nodes().map(HeldNode::valid_for).min().unwrap_or_default()
    }

    /// The token to give to the store with each write. Each holder's token is higher than the token
    /// of the holder before. So a store that refuses a token lower than the highest it has seen
    /// refuses the writes of an earlier holder, as soon as the next holder has written.
    ///
    /// A nested guard has the same token. This call costs nothing: the token came with the answer
    /// that made the node. A hold that is lost keeps its token. Several permits that were taken
    /// together have the token of the first permit.
    pub fn fencing_token(&self) -> FencingToken {
        let node = self.hold.node();
        FencingToken::new(node.leased().czxid(), node.hand_overs())
    }

    /// How many guards this thread has on this hold: 1, and more if it locked a re-entrant lock
    /// several times. The read guards and the write guards of a [`ZkRwLock`](crate::ZkRwLock) are
    /// counted apart. In a forked child there are none.
    pub fn hold_count(&self) -> usize {
        if self.is_forked() { 0 } else { self.hold.count() }
    }

    /// The path of the lock's node. For several permits that were taken together, the path of the
    /// first permit's node.
    pub fn path(&self) -> &str {
        self.hold.path()
    }

    /// From now on, until `part`, a loss of this hold raises that signal too.
    pub(crate) fn join(&self, signal: &LostSignal) {
        self.held_nodes().for_each(|held_node| held_node.leased().join(signal));
    }

    pub(crate) fn part(&self, signal: &LostSignal) {
        if self.is_forked() {
            return;
        }
        self.held_nodes().for_each(|held_node| held_node.leased().part(signal));
    }

    #[cfg(zk_sim)]
    pub(crate) fn node(&self) -> &HeldNode {
        self.hold.node()
    }

    /// Makes sure that a deletion of the node by somebody else is noticed.
    pub(crate) fn ask_for_watch(&self) {
        if self.is_forked() {
            return;
        }
        self.held_nodes().for_each(HeldNode::ask_for_watch);
    }

    pub(crate) fn unlock(self) -> Result<()> {
        self.begin_unlock()().1
    }

    /// Ends the guard. Gives a function that waits for the outcome, and then gives it with the
    /// owner. The owner may be the last handle of its session: its drop then closes the session.
    pub(crate) fn begin_unlock(mut self) -> impl FnOnce() -> (Arc<dyn Hold>, Result<()>) {
        self.is_released = true;
        let hold = self.hold.clone();
        let release = if self.is_forked() {
            Release::of_guard_only(hold.node(), EndBy::Unlock)
        } else {
            self.silence();
            hold.release(EndBy::Unlock)
        };
        // If several nodes were lost one after the other, this is the reason that `check` gave.
        let first = self.signals.get().and_then(|signals| signals.lost.get()?.reason());
        move || {
            let outcome = release.wait(hold.path()).map_err(|e| match (e, first) {
                (Error::Lost { path, .. }, Some(reason)) => Error::Lost { path, reason },
                (e, _) => e,
            });
            (hold, outcome)
        }
    }

    /// Ends the guard as a drop does, and gives the owner, which may be the last handle of its
    /// session.
    pub(crate) fn begin_drop(self) -> Arc<dyn Hold> {
        let hold = self.hold.clone();
        drop(self);
        hold
    }

    /// Separates the guard's signals from its nodes: from now on nothing makes them ready.
    fn silence(&self) {
        if let Some(signals) = self.signals.get() {
            for node in self.held_nodes() {
                let (lost, revoked) = (signals.lost.get(), signals.revoked.get());
                lost.into_iter().for_each(|signal| node.leased().part(signal));
                revoked.into_iter().for_each(|signal| node.state().part_revoked(signal));
            }
        }
    }

    fn lost_signal(&self) -> &LostSignal {
        self.signals().lost.get_or_init(|| {
            let signal = self.hold.node().leased().signal();
            self.hold.others().iter().for_each(|other| other.leased().join(&signal));
            signal
        })
    }

    fn signals(&self) -> &Signals {
        self.signals.get_or_init(Box::default)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a forked child nothing is released.
        let is_kept = self.hold.node().process().keeps(&self.hold);
        if !self.is_released && !is_kept {
            self.silence();
            // An error is logged: a drop cannot return it.
            let _ = self.hold.release(EndBy::Drop);
        }
    }
}

impl Held {
    /// What `Debug` shows of a guard of this type.
    pub(crate) fn show(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(guard)
            .field("path", &self.path())
            .field("state", &format_args!("{}", if self.is_held() { "<held>" } else { "<lost>" }))
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("Held", f)
    }
}

/// A field of this type keeps a guard on the thread that took the lock: guards are counted by
/// thread, so another thread must not drop them. If a program sends such a guard, the compiler's
/// error names this type.
pub(crate) type StaysOnItsThread =
    std::marker::PhantomData<dyn GuardStaysOnItsThread + Sync + Unpin>;

/// No type has this trait. Its trait object is not `Send`. The compiler names this trait first in
/// its error, so its name says what is wrong.
pub(crate) trait GuardStaysOnItsThread {}

/// Makes the guard of a recipe. It derefs to [`Held`], which has the guard's methods. A guard with
/// a field of the type `StaysOnItsThread` is not `Send`; any other guard may be sent to another
/// thread.
macro_rules! guard {
    ($(#[$about:meta])* $guard:ident, ends by $(#[$alias:meta])* $end:ident, unused: $unused:literal
     $(, $marker:ident: StaysOnItsThread)?) => {
        $(#[$about])*
        ///
        /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background.
        #[doc = concat!(
            "To wait until it is deleted, call [`", stringify!($end), "`](Self::", stringify!($end),
            "). The other methods are those"
        )]
        /// of [`Held`](crate::Held).
        ///
        /// Keep the guard in a variable, such as `_guard`: where none keeps it, the lock is
        /// released at once, and with `let _ =` or `.is_ok()` the compiler says nothing
        /// ([slips](crate::ZkMutex#slips)).
        ///
        /// The guard borrows nothing, so it can be stored in a struct. It is a handle of its
        /// session and keeps the session open. If it is the last handle, its end also closes the
        /// session. Then the drop, or this call, waits for that for up to 0.95 s. Keep a
        /// [`ZkSession`](crate::ZkSession) elsewhere to avoid this.
        #[must_use = concat!("if unused ", $unused, "; keep it: `let _guard = ..`")]
        pub struct $guard {
            held: $crate::recipes::guard::Held,
            $($marker: $crate::recipes::guard::StaysOnItsThread,)?
        }

        impl $guard {
            fn new(held: $crate::recipes::guard::Held) -> Self {
                $guard { held, $($marker: std::marker::PhantomData)? }
            }

            /// Releases the guard, and waits until its node is deleted, for up to a sixth of the
            /// session timeout. The call does not wait if the node stays: if this is a nested
            /// guard, if other threads of this process use the node, or if one of them gets it now.
            /// If this guard is the last handle of its session, the call then closes the session,
            /// which may take up to 0.95 s more.
            ///
            /// # Errors
            ///
            /// * [`Error::Lost`](crate::Error::Lost) when the hold was lost before.
            /// * [`Error::Unavailable`](crate::Error::Unavailable) when no server has confirmed yet
            ///   that the node is deleted; also if the session has ended meanwhile.
            /// * [`Error::NoAuth`](crate::Error::NoAuth) or [`Error::Server`](crate::Error::Server)
            ///   when the server refused.
            ///
            /// After any error the lock is released all the same, and the node is deleted when the
            /// session ends, if not before.
            $(#[$alias])*
            pub fn $end(self) -> $crate::error::Result<()> {
                self.held.unlock()
            }
        }

        impl std::ops::Deref for $guard {
            type Target = $crate::recipes::guard::Held;

            fn deref(&self) -> &$crate::recipes::guard::Held {
                &self.held
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.held.show(stringify!($guard), f)
            }
        }
    };
}
pub(crate) use guard;
