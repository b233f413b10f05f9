//! The error type of the library. Each error says what the caller can do about it.

use std::fmt;
use std::time::Duration;

use zk_session::unstable::{At, CLOSE};
pub use zk_session::{Cause, HostFailure, LossReason};

/// The result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed, or why a call did not get a lock.
///
/// The chapter [`guide::errors`](crate::guide::errors) has each message, with its cause, with what
/// to do about it, and whether it may pass by itself.
///
/// That somebody else has the lock is an error too, as for `std::sync::Mutex::try_lock`, so that
/// `if let Ok(guard) = mutex.try_lock()` and `?` go on only with the lock.
/// [`is_contended`](Self::is_contended) tells it from a failure; it is never said of an outage.
/// Who wants an `Option` of a guard writes [`.optional()?`](OptionalExt::optional).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The path is not valid for ZooKeeper, or no lock can be there. Nothing was sent.
    InvalidPath {
        /// The path as it was given.
        path: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A setting cannot work, or another user of the same lock has set it otherwise.
    InvalidConfig {
        /// The name of the builder's method (`max_hold`) or of the argument (`permits`), or
        /// `connect string`, or `chroot`.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No server gave a session within the connect timeout.
    Connect {
        /// Each host, and why the last attempt at it failed.
        hosts: Vec<HostFailure>,
        /// How long the library tried.
        waited: Duration,
    },
    /// All servers refuse the login of the session: the credentials of
    /// [`Config::auth`](crate::Config::auth), or the login by SASL. Or a server serves only
    /// sessions that log in, and this one did not.
    Auth {
        /// The operation that failed.
        op: &'static str,
        /// The node; empty if the server refused the session itself.
        path: String,
        /// The scheme or the mechanism, what the server said, and what to check.
        reason: String,
    },
    /// The node's ACL does not allow this operation to the session.
    NoAuth {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
        /// The permission that is missing: `READ`, `WRITE` or `ADMIN` on this node, `CREATE` on it
        /// or on a node above it, `DELETE` on the node above it.
        permission: &'static str,
    },
    /// Somebody else has the lock, or is ahead, and this call does not wait: `try_lock`, or a
    /// timeout of zero. This call holds nothing.
    WouldBlock {
        /// The lock's path. Of a multi-lock, that of the member that somebody else has.
        path: String,
    },
    /// The time of the call has ended, and somebody else had the lock or was ahead meanwhile. This
    /// call holds nothing.
    TimedOut {
        /// The lock's path. Of a multi-lock, that of the last member that somebody else had.
        path: String,
    },
    /// The semaphore is paused: its number of permits is 0, by
    /// [`set_permits(0)`](crate::ZkSemaphore::set_permits). The call does not wait, or its time has
    /// ended. It holds nothing.
    Paused {
        /// The semaphore's path.
        path: String,
    },
    /// ZooKeeper did not answer in time. It is unknown whether somebody holds the lock. The cause
    /// says whether that was an outage.
    Unavailable {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
        /// Why no answer came.
        cause: Cause,
    },
    /// The thread held the lock and has lost it: stop the work that the lock protects. A thread
    /// gets this error for as long as it has a guard of the lost lock.
    Lost {
        /// The node that was held. If several permits were taken together, this is the first
        /// permit's node, also if another one was lost.
        path: String,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The call would wait for its own thread, and so for ever. Nothing was sent.
    WouldDeadlock {
        /// The lock's path.
        path: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// Two programs were given different numbers of permits for one semaphore, and nobody has set
    /// the number since the first of them made its node. Or the path of a
    /// [`ZkSemaphoreMutex`](crate::ZkSemaphoreMutex) is that of a semaphore with another number.
    InconsistentPermits {
        /// The semaphore's path.
        path: String,
        /// The number in the settings of this client.
        ours: u32,
        /// The number in the data of the semaphore's node.
        theirs: u32,
    },
    /// The wait was cancelled through its [`CancelToken`](crate::CancelToken), or its candidate
    /// left the election.
    Cancelled {
        /// The lock's path.
        path: String,
    },
    /// The session was closed, by `close()` or by dropping its last handle.
    Closed {
        /// The operation that failed.
        op: &'static str,
        /// The node; empty if there is none.
        path: String,
    },
    /// This process was forked from the process that connected the session. It has none of the
    /// session's threads, and none of its locks. Nothing was sent. See the chapter
    /// [`guide::forks`](crate::guide::forks).
    Forked {
        /// The operation that failed.
        op: &'static str,
        /// The node; empty if there is none.
        path: String,
    },
    /// A guard of several locks was released, and the release of more than one lock failed, each
    /// for a reason of its own. The guard has given all of them up.
    Several {
        /// The failures, at least two, in the order in which the locks were released.
        failures: Vec<Error>,
    },
    /// The server answered with an error for which there is no other variant.
    Server {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
        /// The name of ZooKeeper's error. `AnswerTooLong` stands for an answer of more than 16 MiB,
        /// which the library does not read: the node has far too many children or too much data.
        /// `NumbersUsedUp` stands for a queue whose sequence numbers carry no order any more, so
        /// that a thread which writes cannot read beside that.
        code: String,
    },
}

/// The code of an [`Error::Server`] where a read cannot have the place of a write.
pub(crate) const NUMBERS_USED_UP: &str = "NumbersUsedUp";

impl Error {
    /// Whether the same call may succeed later although the program changes nothing. If not, each
    /// further try fails too. The table of the chapter [`guide::errors`](crate::guide::errors) says
    /// it of each message, with what to do.
    ///
    /// After a failed `unlock()` there is nothing to try again: the guard is gone, and the library
    /// deletes its node in the background, unless the server has refused that.
    ///
    /// ```no_run
    /// # fn book(_: &zk_mutex::ZkMutexGuard) {}
    /// # fn main() -> zk_mutex::Result<()> {
    /// use std::time::Duration;
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// let guard = loop {
    ///     match mutex.lock() {
    ///         Err(e) if e.is_transient() => {
    ///             eprintln!("{e}");
    ///             std::thread::sleep(Duration::from_secs(10));
    ///         }
    ///         locked => break locked?,
    ///     }
    /// };
    /// book(&guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_transient(&self) -> bool {
        match self {
            Error::WouldBlock { .. } | Error::TimedOut { .. } | Error::Paused { .. } => true,
            Error::Several { failures } => failures.iter().all(Error::is_transient),
            Error::Unavailable { op: "unlock" | "leave", .. } => false,
            other => other.of_session().is_some_and(|e| e.is_transient()),
        }
    }

    /// Whether the call did not get the lock because somebody else has it, or is ahead:
    /// [`WouldBlock`](Self::WouldBlock) or [`TimedOut`](Self::TimedOut). Also true of a semaphore
    /// that is [`Paused`](Self::Paused). False of every failure.
    pub fn is_contended(&self) -> bool {
        matches!(self, Error::WouldBlock { .. } | Error::TimedOut { .. } | Error::Paused { .. })
    }

    /// Whether the caller's time or patience is over, as an error of a call that waits for a lock.
    pub(crate) fn is_giving_up(&self) -> bool {
        matches!(self, Error::Cancelled { .. } | Error::Unavailable { .. })
    }

    /// The same error as a session has it; `None` if only locks have it.
    fn of_session(&self) -> Option<zk_session::Error> {
        use zk_session::Error as Of;
        let path = |path: &String| path.clone();
        Some(match self {
            Error::InvalidPath { path: at, rule } => Of::InvalidPath { path: path(at), rule },
            Error::InvalidConfig { what, reason } => {
                Of::InvalidConfig { what, reason: reason.clone() }
            }
            Error::Connect { hosts, waited } => {
                Of::Connect { hosts: hosts.clone(), waited: *waited }
            }
            Error::Auth { op, path: at, reason } => {
                Of::Auth { op, path: path(at), reason: reason.clone() }
            }
            Error::NoAuth { op, path: at, permission } => {
                Of::NoAuth { op, path: path(at), permission }
            }
            Error::Unavailable { op, path: at, cause } => {
                Of::Unavailable { op, path: path(at), cause: cause.clone() }
            }
            Error::Cancelled { path: at } => Of::Cancelled { path: path(at) },
            Error::Closed { op, path: at } => Of::Closed { op, path: path(at) },
            Error::Forked { op, path: at } => Of::Forked { op, path: path(at) },
            Error::Server { op, path: at, code } => {
                Of::Server { op, path: path(at), code: code.clone() }
            }
            Error::WouldBlock { .. }
            | Error::TimedOut { .. }
            | Error::Paused { .. }
            | Error::Lost { .. }
            | Error::WouldDeadlock { .. }
            | Error::InconsistentPermits { .. }
            | Error::Several { .. } => return None,
        })
    }
}

impl From<zk_session::Error> for Error {
    fn from(e: zk_session::Error) -> Error {
        use zk_session::Error as Of;
        let server = |op, path, code: &str| Error::Server { op, path, code: code.to_owned() };
        match e {
            Of::InvalidPath { path, rule } => Error::InvalidPath { path, rule },
            Of::InvalidConfig { what, reason } => Error::InvalidConfig { what, reason },
            Of::Connect { hosts, waited } => Error::Connect { hosts, waited },
            Of::Auth { op, path, reason } => Error::Auth { op, path, reason },
            Of::NoAuth { op, path, permission } => Error::NoAuth { op, path, permission },
            Of::Unavailable { op, path, cause } => Error::Unavailable { op, path, cause },
            Of::Cancelled { path } => Error::Cancelled { path },
            Of::Closed { op, path } => Error::Closed { op, path },
            Of::Forked { op, path } => Error::Forked { op, path },
            Of::Server { op, path, code } => Error::Server { op, path, code },
            // To a call of a lock these are answers that it did not expect.
            Of::NoNode { op, path } => server(op, path, "NoNode"),
            Of::NodeExists { op, path } => server(op, path, "NodeExists"),
            Of::NotEmpty { op, path } => server(op, path, "NotEmpty"),
            Of::BadVersion { op, path } => server(op, path, "BadVersion"),
            Of::NoChildrenForEphemerals { op, path } => server(op, path, "NoChildrenForEphemerals"),
            // What a `multi` of the application's own was refused for.
            Of::MultiRefused { why, .. } => Error::from(*why),
            // No call of a lock gives another error of a session; its text says what it is.
            other => Error::Server { op: "session", path: String::new(), code: other.to_string() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WouldBlock { path } => {
                write!(f, "{path}: somebody else has the lock; try again later, or wait for it")
            }
            Error::TimedOut { path } => write!(
                f,
                "{path}: somebody else had the lock or was ahead, and the time of the call has ended; try again later, or wait longer"
            ),
            Error::Paused { path } => write!(
                f,
                "{path}: the semaphore is paused, its number of permits is 0; raise it with set_permits(), or try again later"
            ),
            // The session itself says what follows if no server has answered to its close.
            Error::Unavailable { op, path, cause } if *op != CLOSE => {
                let (at, zookeeper) = (At(op, path), cause.of_zookeeper());
                write!(f, "{at}: {zookeeper}{cause}; {}", without_an_answer(op))
            }
            Error::Lost { path, reason } => {
                write!(f, "{path}: the lock is lost, {reason}; {}", after_loss(*reason))
            }
            Error::WouldDeadlock { path, why } => write!(f, "{path}: {why}"),
            Error::InconsistentPermits { path, ours, theirs } => write!(
                f,
                "semaphore {path}: its node says {theirs} permits, and the settings of this client say {ours}; set the same number in all clients, \
                 or change the node's number with set_permits()"
            ),
            Error::Cancelled { path } => write!(
                f,
                "{path}: the wait was cancelled, by its CancelToken or because the candidate left the election; this call holds nothing"
            ),
            Error::Closed { op, path } => write!(
                f,
                "{}: the session is closed for good; connect a new one, and make the locks anew in it",
                At(op, path)
            ),
            Error::Forked { op, path } => write!(
                f,
                "{}: the session belongs to the process that forked this one; connect a session in this process, after the fork, and make the locks anew in it",
                At(op, path)
            ),
            Error::Several { failures } => {
                write!(f, "{} releases failed", failures.len())?;
                failures.iter().try_for_each(|failure| write!(f, "; {failure}"))
            }
            Error::Server { op, path, code } if code == NUMBERS_USED_UP => write!(
                f,
                "{op} {path}: the sequence numbers here are used up and carry no order any more, so no read can have the place of a write; unlock the write, then read"
            ),
            other => match other.of_session() {
                Some(e) => e.fmt(f),
                None => Ok(()), // each of the others has its text above
            },
        }
    }
}

impl std::error::Error for Error {}

/// What to do if no answer has come to this operation.
fn without_an_answer(op: &str) -> &'static str {
    match op {
        // The guard is gone, and so is the candidate.
        "unlock" | "leave" => {
            "the lock may be taken for a while yet, and the library goes on to delete its node: do not call this again"
        }
        "set_permits" | "attempt_revoke" => "it may have been done all the same, try again later",
        "connect" | "join" | "permits" | "client" => "try again later",
        _ => "it is unknown who holds the lock, try again later",
    }
}

/// What to do about a lost lock. In some cases the same session gives no lock again.
fn after_loss(reason: LossReason) -> &'static str {
    match reason {
        LossReason::SessionClosed => {
            "stop the work that it protects, and to lock again connect a new session"
        }
        LossReason::Forked => {
            "this process must not do the work that it protects, and to lock connects a session of its own"
        }
        LossReason::AuthFailed => {
            "stop the work that it protects, drop its guards, and correct the login of the session, as the log says"
        }
        LossReason::Resigned => "stop the work that it protects",
        _ => "stop the work that it protects, drop its guards and lock again",
    }
}

/// `.optional()` of the result of a call for a lock.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{OptionalExt, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkMutex::new(&session, "/locks/nightly")?;
/// match mutex.try_lock().optional()? {
///     Some(guard) => println!("we have it: {guard:?}"),
///     None => println!("somebody else has it"),
/// }
/// # Ok(())
/// # }
/// ```
pub trait OptionalExt<T> {
    /// `None` in place of an error that [is contended](Error::is_contended): somebody else has the
    /// lock. So what is `None` is not locked.
    ///
    /// # Errors
    ///
    /// Each other error of the call.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExt<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(got) => Ok(Some(got)),
            Err(e) if e.is_contended() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("guide/errors.md");

    /// An error of each variant. If the answer of a variant depends on its fields, there is an
    /// error for each answer.
    fn one_of_each() -> Vec<Error> {
        let (op, path, reason) = ("lock", String::from("/locks/orders"), String::from("no"));
        let server = |code: &str| Error::Server { op, path: path.clone(), code: code.to_owned() };
        let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
        vec![
            Error::InvalidPath { path: path.clone(), rule: "a rule" },
            Error::InvalidConfig { what: "setting", reason: reason.clone() },
            Error::Connect { hosts: Vec::new(), waited: Duration::ZERO },
            Error::Auth { op, path: path.clone(), reason: "refused".into() },
            Error::NoAuth { op, path: path.clone(), permission: "CREATE" },
            Error::WouldBlock { path: path.clone() },
            Error::TimedOut { path: path.clone() },
            Error::Paused { path: path.clone() },
            unavailable(Cause::Deadline),
            unavailable(Cause::ConnectionLost),
            unavailable(Cause::Outage(Vec::new())),
            unavailable(Cause::NoProgress(Duration::ZERO)),
            unavailable(Cause::Resources(reason)),
            Error::Lost { path: path.clone(), reason: LossReason::LeaseExpired },
            Error::WouldDeadlock { path: path.clone(), why: "why" },
            Error::InconsistentPermits { path: path.clone(), ours: 1, theirs: 2 },
            Error::Cancelled { path: path.clone() },
            Error::Closed { op, path: path.clone() },
            Error::Forked { op, path: path.clone() },
            Error::Several { failures: vec![server("ThrottledOp"), unavailable(Cause::Deadline)] },
            Error::Several { failures: vec![unavailable(Cause::Deadline), server("NoNode")] },
            server("OperationTimeout"),
            server("ThrottledOp"),
            server("NotReadOnly"),
            server("InvalidACL"),
            server(zk_session::unstable::ANSWER_TOO_LONG),
        ]
    }

    fn variant(error: &Error) -> String {
        let text = format!("{error:?}");
        text.split(' ').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_guide_says_of_each_variant_whether_it_is_transient() {
        let says = |name: &str, answer: &str| {
            let row = format!("| [`{name}`](crate::Error::{name}) | ");
            let end = format!(" | {answer} |");
            GUIDE.lines().any(|line| line.starts_with(&row) && line.ends_with(&end))
        };
        // A failure of each kind is rare, and the page has a sentence on it.
        let is_on_the_page = |e: &Error| !matches!(e, Error::Several { .. });
        for error in one_of_each().into_iter().filter(is_on_the_page) {
            let answer = if error.is_transient() { "yes" } else { "no" };
            assert!(says(&variant(&error), answer), "{error:?} is transient: {answer}");
        }
    }

    #[test]
    fn only_contention_is_no_lock_and_no_failure() {
        for error in one_of_each() {
            let is_contended =
                ["WouldBlock", "TimedOut", "Paused"].contains(&variant(&error).as_str());
            assert_eq!(error.is_contended(), is_contended, "{error:?}");
            let optional = Err::<(), _>(error.clone()).optional();
            assert_eq!(optional, if is_contended { Ok(None) } else { Err(error) });
        }
        assert_eq!(Ok::<_, Error>(7).optional(), Ok(Some(7)));
    }

    #[test]
    fn a_time_that_ends_before_an_answer_is_no_outage_and_an_outage_says_what_the_hosts_answer() {
        let said = |cause| Error::Unavailable { op: "read", path: "/l".into(), cause }.to_string();
        assert_eq!(
            said(Cause::Deadline),
            "read /l: the time ended before a server had answered; it is unknown who holds the lock, try again later"
        );
        assert_eq!(
            said(Cause::Outage(Vec::new())),
            "read /l: ZooKeeper unavailable, there is no connection (); it is unknown who holds the lock, try again later"
        );
    }

    /// What was given up cannot be given up again. Each other call may be made again.
    #[test]
    fn an_operation_without_an_answer_is_transient_unless_it_gives_something_up() {
        let causes = [
            Cause::Deadline,
            Cause::ConnectionLost,
            Cause::Outage(Vec::new()),
            Cause::NoProgress(Duration::from_secs(60)),
            Cause::Resources("thread".into()),
        ];
        let again = [
            "lock",
            "read",
            "write",
            "acquire",
            "join",
            "wait_leader",
            "run",
            "campaign",
            "contenders",
            "holders",
            "permits",
            "set_permits",
            "attempt_revoke",
            "client",
            "connect",
        ];
        let operations = again.map(|op| (op, true)).into_iter();
        for (op, may_be_called) in
            operations.chain([("unlock", false), ("leave", false), (CLOSE, false)])
        {
            for cause in causes.clone() {
                let e = Error::Unavailable { op, path: "/l".into(), cause };
                assert_eq!(e.is_transient(), may_be_called, "{e}");
                assert_eq!(e.to_string().contains("try again later"), may_be_called, "{e}");
                let is_done = ["set_permits", "attempt_revoke"].contains(&op);
                assert_eq!(e.to_string().contains("it may have been done"), is_done, "{e}");
                let all = |failures| Error::Several { failures }.is_transient();
                assert_eq!(all(vec![e.clone(), e]), may_be_called);
            }
        }
    }

    /// The same fields, and the same class.
    #[test]
    fn an_error_of_the_session_stays_what_it_is() {
        use zk_session::Error as Of;
        let (op, path, reason) = ("read", String::from("/at/a"), String::from("a reason"));
        let (what, waited) = ("a setting", Duration::from_secs(7));
        let server = |code: &str| Of::Server { op, path: path.clone(), code: code.into() };
        for of in [
            Of::InvalidPath { path: path.clone(), rule: "a rule" },
            Of::InvalidConfig { what, reason: reason.clone() },
            Of::Connect { hosts: Vec::new(), waited },
            Of::Auth { op, path: path.clone(), reason: reason.clone() },
            Of::NoAuth { op, path: path.clone(), permission: "DELETE" },
            Of::Unavailable { op, path: path.clone(), cause: Cause::NoProgress(waited) },
            Of::Cancelled { path: path.clone() },
            Of::Closed { op, path: path.clone() },
            Of::Forked { op, path: path.clone() },
            server("ThrottledOp"),
            server("InvalidACL"),
        ] {
            let error = Error::from(of.clone());
            assert_eq!(error.of_session(), Some(of.clone()));
            assert_eq!(error.is_transient(), of.is_transient(), "{error:?}");
        }
        // What no call of a lock expects is an answer of the server.
        for (of, code) in [
            (Of::NoNode { op, path: path.clone() }, "NoNode"),
            (Of::NodeExists { op, path: path.clone() }, "NodeExists"),
            (Of::NotEmpty { op, path: path.clone() }, "NotEmpty"),
            (Of::BadVersion { op, path: path.clone() }, "BadVersion"),
            (Of::NoChildrenForEphemerals { op, path: path.clone() }, "NoChildrenForEphemerals"),
        ] {
            assert_eq!(Error::from(of).of_session(), Some(server(code)));
        }
        let why = Box::new(server("ThrottledOp"));
        let refused = Error::from(Of::MultiRefused { index: 3, why: why.clone() });
        assert_eq!(refused, Error::from(*why));
    }

    #[test]
    fn the_codes_that_are_transient_stand_in_the_table() {
        let is_row = |line: &&str| line.starts_with("| [`Server`]") && line.ends_with(" | yes |");
        let row = GUIDE.lines().find(is_row).unwrap();
        let codes = row.split(" | ").nth(2).unwrap();
        let named: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, zk_session::unstable::TRANSIENT_CODES);
    }
}
