//! `Wait`: how long a call waits for a lock, as the program says it. Each recipe's `.._with` call
//! takes it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::queue::request::{Mode, Question, until_got};
use zk_session::CancelToken;
use zk_session::unstable::{Core, Limit};
use zk_session::world::Instant;

/// How long a call waits for a lock: for ever, for a timeout, or until a deadline; and with a
/// cancel token not longer than until it is cancelled.
///
/// These calls take it: [`lock_with`](crate::ZkMutex::lock_with) of each lock that has one,
/// [`read_with`](crate::ZkRwLock::read_with), [`write_with`](crate::ZkRwLock::write_with),
/// [`acquire_with`](crate::ZkSemaphore::acquire_with),
/// [`acquire_many_with`](crate::ZkSemaphore::acquire_many_with) and
/// [`wait_leader_with`](crate::ZkCandidate::wait_leader_with). The calls that ask who holds a lock
/// take it too, as [`holders_with`](crate::ZkMutex::holders_with): they wait for no lock, and the
/// `Wait` says how long they wait for an answer. One value and its clones can serve
/// many calls: a timeout is counted from the beginning of each call, a deadline is a point in time.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{CancelToken, Error, Wait, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkMutex::new(&session, "/locks/orders")?;
/// let stop = CancelToken::new(); // another thread may call stop.cancel()
/// let wait = Wait::timeout(Duration::from_secs(5)).cancelled_by(&stop);
/// match mutex.lock_with(wait) {
///     Ok(guard) => println!("got it: {guard:?}"),
///     Err(Error::TimedOut { .. }) => println!("others had it for 5 s"),
///     Err(Error::Cancelled { .. }) => println!("stopped"),
///     Err(e) => return Err(e), // an outage, for instance
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What the call returns
///
/// * [`Error::TimedOut`](crate::Error::TimedOut) when the timeout or the deadline passed and the
///   call has found somebody else ahead: in a server's answer, or in this process. A wait that has
///   neither never gives it. With a timeout of zero this is
///   [`Error::WouldBlock`](crate::Error::WouldBlock).
/// * [`Error::Unavailable`](crate::Error::Unavailable) when the timeout or the deadline passed in
///   an outage, or before a server had answered. A wait that has neither gives this error too, when
///   an outage lasts longer than the session's [`RetryPolicy`](crate::RetryPolicy) allows. With a
///   timeout or a deadline the call waits in an outage until then, and not for less.
/// * [`Error::Cancelled`](crate::Error::Cancelled) when the token was cancelled before the call had
///   the lock. If the token was cancelled before the call, the call ends at once.
///
/// A thread that holds a re-entrant lock already does not wait: it gets another guard, whatever the
/// `Wait` says. There is one exception: a thread that holds a [`ZkRwLock`](crate::ZkRwLock) to
/// write and asks to read for the first time. That call needs answers of the server, so its
/// timeout, its deadline and its token count.
#[derive(Clone, Debug, Default)]
#[must_use = "a wait does nothing until a call for a lock gets it"]
pub struct Wait {
    end: End,
    cancel: Option<CancelToken>,
}

#[derive(Clone, Copy, Debug, Default)]
enum End {
    #[default]
    Never,
    After(Duration),
    At(Instant),
}

impl Wait {
    /// Waits until the call has the lock, however long others hold it. The default.
    pub fn forever() -> Self {
        Wait::default()
    }

    /// Waits for this time at most, counted from the beginning of the call.
    ///
    /// With a timeout of zero the call asks once, as [`try_lock`](crate::ZkMutex::try_lock) does.
    /// It waits for the server's answer, for up to a sixth of the session timeout; without a
    /// connection it ends at once with [`Error::Unavailable`](crate::Error::Unavailable), unless
    /// this process knows the answer (see [`until`](Self::until)). It does not wait until another
    /// holder releases the lock. If the timeout is not zero, but shorter than a round
    /// trip, the call mostly gives [`Error::Unavailable`](crate::Error::Unavailable).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use zk_mutex::Wait;
    /// let wait = Wait::timeout(Duration::from_secs(5));
    /// ```
    pub fn timeout(timeout: Duration) -> Self {
        Wait { end: End::After(timeout), ..Wait::default() }
    }

    /// Waits until this point in time at most. If it is in the past, the call sends nothing and
    /// ends at once, with what this process knows:
    ///
    /// * `Ok(..)` if this thread holds the lock already, if the node of a mutex was
    ///   [kept](crate::LockBuilder::keep) and no thread has it, or if the candidate leads.
    /// * [`Error::TimedOut`](crate::Error::TimedOut) if another thread of this process holds the
    ///   lock, or waits for it behind others.
    /// * Otherwise [`Error::Unavailable`](crate::Error::Unavailable), also for a candidate that
    ///   does not lead: whether another one leads now, only a server can say.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use zk_mutex::Wait;
    /// let wait = Wait::until(Instant::now() + Duration::from_secs(5));
    /// ```
    pub fn until(deadline: Instant) -> Self {
        Wait { end: End::At(deadline), ..Wait::default() }
    }

    /// The same wait, but no longer than until the token is cancelled. If this is called several
    /// times, the last token counts.
    ///
    /// ```
    /// # use zk_mutex::{CancelToken, Wait};
    /// let stop = CancelToken::new();
    /// let wait = Wait::forever().cancelled_by(&stop);
    /// ```
    pub fn cancelled_by(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Asks for a lock by `acquire`, for as long as this says. `operation_timeout` bounds a call
    /// that asks once. `missed` is the error if `acquire` gives `None`.
    pub(crate) fn acquire<T>(
        &self,
        operation_timeout: impl FnOnce() -> Duration,
        missed: impl FnOnce(Mode) -> Error,
        acquire: impl Fn(Mode, Limit<'_>) -> Result<Option<T>>,
    ) -> Result<T> {
        let (mode, limit) = self.begin(operation_timeout);
        if limit.left().is_none() {
            return until_got(|| acquire(mode, limit));
        }
        acquire(mode, limit)?.ok_or_else(|| missed(mode))
    }

    /// For a call that begins now.
    fn begin(&self, operation_timeout: impl FnOnce() -> Duration) -> (Mode, Limit<'_>) {
        let until = |deadline| Limit::new(deadline, self.cancel.as_ref());
        match self.end {
            End::Never => (Mode::Wait, until(None)),
            End::After(Duration::ZERO) => (Mode::Try, until(None).or_after(operation_timeout())),
            End::After(timeout) => (Mode::Wait, until(None).or_after(timeout)),
            End::At(deadline) => (Mode::Wait, until(Some(deadline))),
        }
    }

    /// For a question to the servers, which begins now.
    pub(crate) fn question(&self, core: &Core) -> Question<'_> {
        let (mode, whole) = self.begin(|| core.operation_timeout());
        match mode {
            Mode::Wait | Mode::Pass => Question { whole, request: whole },
            Mode::Try => Question {
                whole: mode.limit(whole, core),
                request: Limit::new(None, self.cancel.as_ref()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquired_with(wait: &Wait) -> (bool, bool, bool) {
        let seen = wait.acquire(
            || Duration::from_secs(9),
            |_| unreachable!(),
            |mode, limit| {
                Ok(Some((mode == Mode::Try, limit.left().is_some(), limit.is_cancelled())))
            },
        );
        seen.unwrap()
    }

    #[test]
    fn only_a_timeout_of_zero_tries_once() {
        let now = Instant::now();
        assert_eq!(acquired_with(&Wait::forever()), (false, false, false));
        assert_eq!(acquired_with(&Wait::timeout(Duration::ZERO)), (true, true, false));
        assert_eq!(acquired_with(&Wait::timeout(Duration::from_nanos(1))), (false, true, false));
        assert_eq!(acquired_with(&Wait::until(now)), (false, true, false));
    }

    #[test]
    fn a_deadline_is_a_point_in_time_and_a_timeout_counts_from_the_call() {
        let hour = Duration::from_secs(3600);
        let left = |wait: &Wait| {
            wait.acquire(|| hour, |_| unreachable!(), |_, limit| Ok(Some(limit.left()))).unwrap()
        };
        let now = Instant::now();
        assert_eq!(left(&Wait::until(now)), Some(Duration::ZERO));
        assert!(left(&Wait::until(now + hour)).is_some_and(|left| left <= hour));
        let wait = Wait::timeout(hour);
        let first = left(&wait);
        while Instant::now() == now {}
        assert!(left(&wait).is_some_and(|left| left > hour - now.elapsed()), "{first:?}");
    }

    #[test]
    fn a_timeout_that_the_clock_cannot_express_is_none() {
        assert_eq!(acquired_with(&Wait::timeout(Duration::MAX)), (false, false, false));
    }

    #[test]
    fn a_token_can_be_combined_with_each_wait() {
        let token = CancelToken::new();
        token.cancel();
        let waits = [Wait::forever(), Wait::timeout(Duration::ZERO), Wait::until(Instant::now())];
        for wait in waits {
            assert!(acquired_with(&wait.cancelled_by(&token)).2);
        }
    }

    #[test]
    fn a_wait_without_a_deadline_tries_again_while_others_are_ahead() {
        let calls = std::cell::Cell::new(0);
        let acquire = |_, _: Limit<'_>| {
            calls.set(calls.get() + 1);
            Ok((calls.get() == 3).then_some(()))
        };
        let path = || "/l".to_owned();
        let missed = |mode: Mode| mode.missed(path());
        assert_eq!(Wait::forever().acquire(Duration::default, missed, acquire), Ok(()));
        for (timeout, error) in [
            (Duration::from_secs(1), Error::TimedOut { path: path() }),
            (Duration::ZERO, Error::WouldBlock { path: path() }),
        ] {
            calls.set(0);
            let got = Wait::timeout(timeout).acquire(Duration::default, missed, acquire);
            assert_eq!(got, Err(error));
        }
    }
}
