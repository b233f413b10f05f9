//! The error type of the library. Each error says what the caller can do about it.

use std::fmt;
use std::time::Duration;

pub use zk_session::{Cause, HostFailure, LossReason};

/// The result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed, or why a call did not get a lock.
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
        /// The setting.
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
    /// The server refused the credentials given with
    /// [`Config::auth`](crate::Config::auth).
    Auth {
        /// The operation that failed.
        op: &'static str,
        /// The node; empty if the server refused the session itself.
        path: String,
    },
    /// The node's ACL does not allow this operation to the session.
    NoAuth {
        /// The operation that failed.
        op: &'static str,
        /// The node. Its ACL or its parent's ACL does not allow the operation.
        path: String,
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
    /// The clients of one semaphore do not have the same number of permits in their settings.
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
        code: String,
    },
}

impl Error {
    /// Whether the same call may succeed later although the program changes nothing. If not, each
    /// further try fails too.
    ///
    /// | error | transient | what to do |
    /// | --- | --- | --- |
    /// | [`InvalidPath`](Self::InvalidPath) | no | correct the path |
    /// | [`InvalidConfig`](Self::InvalidConfig) | no | correct the setting |
    /// | [`Connect`](Self::Connect) | yes | try again after a pause; look at the hosts' reasons |
    /// | [`Auth`](Self::Auth) | no | correct the credentials |
    /// | [`NoAuth`](Self::NoAuth) | no | correct the credentials or the ACL |
    /// | [`WouldBlock`](Self::WouldBlock) | yes | do something else and try again after a pause, or wait: `lock`, `lock_timeout` |
    /// | [`TimedOut`](Self::TimedOut) | yes | try again after a pause, or wait longer. A call with a fixed deadline ([`Wait::until`](crate::Wait::until)) needs a new one |
    /// | [`Unavailable`](Self::Unavailable) | yes | try again after a pause. A call with a fixed deadline ([`Wait::until`](crate::Wait::until)) needs a new one: after its deadline the same call never succeeds |
    /// | [`Lost`](Self::Lost) | no | stop what the lock protects, drop its guards; then lock again |
    /// | [`WouldDeadlock`](Self::WouldDeadlock) | no | correct the program |
    /// | [`InconsistentPermits`](Self::InconsistentPermits) | no | set the same number in all clients |
    /// | [`Cancelled`](Self::Cancelled) | no | stop: the program has cancelled the wait |
    /// | [`Closed`](Self::Closed) | no | connect a new session |
    /// | [`Forked`](Self::Forked) | no | connect a session in this process |
    /// | [`Several`](Self::Several) | if each of its failures is | see each failure |
    /// | [`Server`](Self::Server) | for the codes `OperationTimeout`, `ThrottledOp`, `NotReadOnly` | try again after a pause; otherwise look at the code |
    ///
    /// After a failed `unlock()` there is nothing to try again: the guard is gone, and the library
    /// deletes its node in the background.
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
            Error::WouldBlock { .. } | Error::TimedOut { .. } => true,
            Error::Several { failures } => failures.iter().all(Error::is_transient),
            other => other.of_session().is_some_and(|e| e.is_transient()),
        }
    }

    /// Whether the call did not get the lock because somebody else has it, or is ahead:
    /// [`WouldBlock`](Self::WouldBlock) or [`TimedOut`](Self::TimedOut). False of every failure.
    pub fn is_contended(&self) -> bool {
        matches!(self, Error::WouldBlock { .. } | Error::TimedOut { .. })
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
            Error::Auth { op, path: at } => Of::Auth { op, path: path(at) },
            Error::NoAuth { op, path: at } => Of::NoAuth { op, path: path(at) },
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
            Of::Auth { op, path } => Error::Auth { op, path },
            Of::NoAuth { op, path } => Error::NoAuth { op, path },
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
            // This says nothing bad of ZooKeeper: the time may have been short.
            Error::Unavailable { op, path, cause: cause @ Cause::Deadline } => {
                write!(f, "{op} {path}: {cause}; it is unknown who holds the lock, try again later")
            }
            Error::Unavailable { op, path, cause } => write!(
                f,
                "{op} {path}: ZooKeeper unavailable, {cause}; it is unknown who holds the lock, try again later"
            ),
            Error::Lost { path, reason } => write!(
                f,
                "{path}: the lock is lost, {reason}; stop the work that it protects, drop its guards and lock again"
            ),
            Error::WouldDeadlock { path, why } => write!(f, "{path}: {why}"),
            Error::InconsistentPermits { path, ours, theirs } => write!(
                f,
                "semaphore {path}: its node says {theirs} permits, and the settings of this client say {ours}; set the same number in all clients, \
                 or change the node's number with set_permits()"
            ),
            Error::Several { failures } => {
                write!(f, "{} locks failed", failures.len())?;
                failures.iter().try_for_each(|failure| write!(f, "; {failure}"))
            }
            other => match other.of_session() {
                Some(e) => e.fmt(f),
                None => Ok(()), // each of the others has its text above
            },
        }
    }
}

impl std::error::Error for Error {}

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
            Error::Auth { op, path: path.clone() },
            Error::NoAuth { op, path: path.clone() },
            Error::WouldBlock { path: path.clone() },
            Error::TimedOut { path: path.clone() },
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
    fn the_table_says_of_each_variant_whether_it_is_transient() {
        let source = include_str!("error.rs");
        let body = source.split_once("pub enum Error {").unwrap().1.split_once("\n}\n").unwrap().0;
        let variants: Vec<&str> =
            body.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" {")).collect();
        let row = |line: &'static str| {
            let (variant, rest) = line.trim_start().strip_prefix("/// | [`")?.split_once("`]")?;
            Some((variant, rest.split(" | ").nth(1)?))
        };
        let rows: Vec<(&str, &str)> = source.lines().filter_map(row).collect();
        assert_eq!(rows.iter().map(|(variant, _)| *variant).collect::<Vec<_>>(), variants);
        for (name, says) in rows {
            let answers: Vec<bool> = one_of_each()
                .iter()
                .filter(|e| variant(e) == name)
                .map(Error::is_transient)
                .collect();
            let is = |answer| answers.contains(&answer);
            match says {
                "yes" => assert!(is(true) && !is(false), "{name}: {answers:?}"),
                "no" => assert!(is(false) && !is(true), "{name}: {answers:?}"),
                _ => assert!(is(true) && is(false), "{name}: {answers:?}"),
            }
        }
    }

    #[test]
    fn only_contention_is_no_lock_and_no_failure() {
        for error in one_of_each() {
            let is_contended = ["WouldBlock", "TimedOut"].contains(&variant(&error).as_str());
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

    #[test]
    fn the_codes_that_are_transient_stand_in_the_table() {
        let row = include_str!("error.rs")
            .lines()
            .find(|line| line.contains("/// | [`Server`]"))
            .unwrap();
        let codes = row.split(" | ").nth(2).unwrap();
        let named: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, zk_session::unstable::TRANSIENT_CODES);
    }
}
