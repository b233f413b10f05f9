//! The application's observer in a simulated process. It keeps account of what the library tells
//! it, and checks each call against that account.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zk_mutex_simulated::{self as library, LockLabel, LossReason, SessionEvent, WaitOutcome};

use zk_sim_runtime::fail;

use super::account::{Account, UNTRUE};
use crate::foreign_code;
use crate::observer::Observer;

/// One for each session. The session's own thread calls it.
pub(super) struct Listener {
    observer: Observer,
    /// The calls that wait and the holds that stand, by the kind and the path of the lock.
    locks: BTreeMap<(&'static str, String), Standing>,
    state: State,
    /// Some calls were left out, so the account is not complete.
    has_missed: bool,
    is_closed: Arc<AtomicBool>,
    /// Whether the session is closed while threads use it: their calls may end behind the close.
    is_in_use: Option<Arc<AtomicBool>>,
    /// How the holds have ended in truth; and whether calls for several locks may have lost others.
    account: Account,
    has_more: bool,
}

#[derive(Debug, Default)]
struct Standing {
    waits: u64,
    holds: u64,
    lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    Connected,
    Suspended,
}

impl Listener {
    /// The second is true once the listener was told of the end of the session.
    pub(super) fn new(
        observer: Observer,
        is_in_use: Option<Arc<AtomicBool>>,
        account: Account,
        has_more: bool,
    ) -> (Listener, Arc<AtomicBool>) {
        let is_closed = Arc::<AtomicBool>::default();
        let listener = Listener {
            observer,
            locks: BTreeMap::new(),
            state: State::None,
            has_missed: false,
            is_closed: is_closed.clone(),
            is_in_use,
            account,
            has_more,
        };
        (listener, is_closed)
    }

    /// Something is told. Only the end of the session is told last.
    fn is_told(&self, what: impl FnOnce() -> String) {
        if self.is_closed.load(Ordering::Relaxed) {
            fail("account", format!("{} is told after the end of the session", what()));
        }
    }

    /// What is told fits the account. An account that is not complete shows nothing.
    fn check(&self, is_well: bool, text: impl FnOnce() -> String) {
        if !self.has_missed {
            self.observer.check("account", is_well, text);
        }
    }

    fn standing(&mut self, lock: &LockLabel, what: &str) -> &mut Standing {
        foreign_code();
        self.is_told(|| format!("{what} of {lock:?}"));
        self.locks.entry((lock.recipe, lock.path.clone())).or_default()
    }

    /// Changes the account of this lock by `change`, which gives false if the call does not fit the
    /// account: the end of a wait, for instance, where no call waits.
    fn lock(&mut self, lock: &LockLabel, what: &str, change: impl FnOnce(&mut Standing) -> bool) {
        let standing = self.standing(lock, what);
        let before = format!("{standing:?}");
        let is_well = change(standing);
        self.check(is_well, || format!("{what} of {lock:?} after {before}"));
    }

    /// The session is in this state now, which comes after another one.
    fn session(&mut self, before: State, to: State) {
        foreign_code();
        self.is_told(|| format!("that the session is {to:?}"));
        let was = std::mem::replace(&mut self.state, to);
        self.check(was == before, || format!("the session is {to:?} after {was:?}"));
    }
}

fn take_one(count: &mut u64) -> bool {
    let had = *count > 0;
    *count = count.saturating_sub(1);
    had
}

impl library::Observer for Listener {
    fn wait_began(&mut self, lock: &LockLabel) {
        self.standing(lock, "a wait").waits += 1;
    }

    fn contended(&mut self, lock: &LockLabel) {
        self.lock(lock, "contention", |of| of.waits > 0);
    }

    fn handed_over(&mut self, lock: &LockLabel) {
        self.lock(lock, "a hand-over", |of| of.waits > 0);
    }

    fn wait_ended(&mut self, lock: &LockLabel, outcome: WaitOutcome, _: Duration) {
        self.lock(lock, "the end of a wait", |of| {
            of.holds += u64::from(outcome == WaitOutcome::Acquired);
            take_one(&mut of.waits)
        });
    }

    fn released(&mut self, lock: &LockLabel, _: Duration) {
        self.lock(lock, "a release", |of| take_one(&mut of.holds));
    }

    fn lost(&mut self, lock: &LockLabel, _: LossReason) {
        self.lock(lock, "a loss", |of| {
            of.lost += 1;
            take_one(&mut of.holds)
        });
    }

    fn session_changed(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Connected { .. } => self.session(State::None, State::Connected),
            SessionEvent::Suspended => self.session(State::Connected, State::Suspended),
            SessionEvent::Reconnected => self.session(State::Suspended, State::Connected),
            SessionEvent::Lost(_) => {
                foreign_code();
                // It may be lost in any state.
                self.is_told(|| "the loss of the session".to_owned());
                self.state = State::None;
            }
            SessionEvent::Closed => self.closed(),
            other => fail("account", format!("{other:?} is told")),
        }
    }

    fn missed(&mut self, _: u64) {
        self.has_missed = true;
    }
}

impl Listener {
    /// Compares the losses that were told with those that there were.
    fn compare(&self) {
        if self.has_missed {
            return;
        }
        for (lock, ends) in self.account.all() {
            let told = self.locks.get(&lock).map_or(0, |of| of.lost);
            if ends.lost + ends.either > 0 {
                let text = || format!("{lock:?}: {told} losses were told, and in truth {ends:?}");
                // A candidate may have terms of which no thread has a view.
                let has_more = self.has_more || lock.0 == "election";
                self.observer.check(UNTRUE, ends.allow(told, has_more), text);
            }
        }
    }

    fn closed(&mut self) {
        self.is_told(|| "the end".to_owned());
        let is_in_use = self.is_in_use.as_ref().is_some_and(|is| is.load(Ordering::Relaxed));
        if !is_in_use {
            let left = self.locks.iter().filter(|(_, of)| of.waits + of.holds > 0);
            let left = format!("{:?}", left.collect::<Vec<_>>());
            self.check(left == "[]", || format!("the end of the session with {left}"));
            self.compare();
        }
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
