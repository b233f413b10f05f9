//! The error type of a session. Each error says what the caller can do about it.

use std::fmt;
use std::time::Duration;

/// The result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The path is not valid for ZooKeeper, or no node of yours can be there. Nothing was sent.
    InvalidPath {
        /// The path as it was given.
        path: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A setting cannot work.
    InvalidConfig {
        /// The name of the setting, as a program writes it (`session_timeout`), or `connect string`
        /// or `request`.
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
        /// The permission that is missing: `READ`, `WRITE` or `ADMIN` on the node itself, `CREATE`
        /// or `DELETE` on its parent.
        permission: &'static str,
    },
    /// There is no such node. For a create: its parent does not exist.
    NoNode {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
    },
    /// The node that was to be made exists already.
    NodeExists {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
    },
    /// The node that was to be deleted has children.
    NotEmpty {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
    },
    /// The node, or its ACL, does not have the version that was stated: another client has changed
    /// it.
    BadVersion {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
    },
    /// The parent of the node that was to be made ends with a session. Such a node can have no
    /// children.
    NoChildrenForEphemerals {
        /// The operation that failed.
        op: &'static str,
        /// The node that was to be made.
        path: String,
    },
    /// An operation of a [`multi`](crate::Requests::multi) was refused, and so none of them was
    /// done.
    MultiRefused {
        /// The place of the refused operation among those of the multi; the first has 0.
        index: usize,
        /// The error of that operation, with its path.
        why: Box<Error>,
    },
    /// ZooKeeper did not answer in time. A change that was asked for may have been made, or may be
    /// made yet; [`Requests`](crate::Requests) says when. The cause says whether that was an
    /// outage.
    Unavailable {
        /// The operation that failed.
        op: &'static str,
        /// The node.
        path: String,
        /// Why no answer came.
        cause: Cause,
    },
    /// The wait was cancelled through its [`CancelToken`](crate::CancelToken).
    Cancelled {
        /// The node.
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
    /// session's threads. Nothing was sent.
    Forked {
        /// The operation that failed.
        op: &'static str,
        /// The node; empty if there is none.
        path: String,
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

/// Creates of nodes that not all servers have. The advice on a refusal depends on the operation.
pub(crate) const CREATE_TTL: &str = "create with a time to live";
pub(crate) const CREATE_CONTAINER: &str = "create a container";

/// The operation that gives a held node back, and that a caller cannot repeat.
pub(crate) const RELEASE: &str = "release";

/// The operation that closes a session. Each further close gives the outcome of the first.
#[doc(hidden)]
pub const CLOSE: &str = "close the session";

/// The code of an [`Error::Server`] for an answer that is too long to be read.
#[doc(hidden)]
pub const ANSWER_TOO_LONG: &str = "AnswerTooLong";

/// What this code means, and what to do. (The length is `MAX_FRAME` of the wire format.)
pub(crate) const TOO_LONG_ADVICE: &str = "the list of its children, or its data, is longer than the 16 MiB that the library reads; \
     delete what does not belong there, or use another path";

/// One host of the connect string, and why it gave no session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFailure {
    /// The host and port as in the connect string.
    pub host: String,
    /// Why the last attempt failed.
    pub reason: String,
}

/// Why no answer came from ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The caller's time ended before a server had answered, and there was a connection then. If
    /// the time ends in an outage, the cause is `Outage`.
    Deadline,
    /// The connection broke, or the server stopped answering, before the answer came.
    ConnectionLost,
    /// The session had no connection when the call's time ended: its own deadline or, for a call
    /// without one, the time of the retry policy
    /// ([`RetryPolicy::max_elapsed`](crate::RetryPolicy::max_elapsed)). Each host of the connect
    /// string is here with the reason why the last attempt at it failed.
    Outage(Vec<HostFailure>),
    /// Servers were reachable, but for this long none gave the answer that the call needed. That is
    /// all that the retry policy allows.
    NoProgress(Duration),
    /// This machine did not give a resource that was needed: a thread, a socket.
    Resources(String),
}

/// Why a node under the lease, or a session, was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease could not be renewed in time, so the server may have expired the session. Only
    /// what is held is lost by this: if the server has not expired the session, the session is
    /// resumed, and its watches go on.
    LeaseExpired,
    /// The server expired the session, and deleted its nodes.
    SessionExpired,
    /// The server refused the session's login: its credentials, or its login by SASL.
    AuthFailed,
    /// The session was closed on our side.
    SessionClosed,
    /// The node was deleted: by somebody, or by the server when it expires the session,
    /// since the news of the node may come before the news of the session.
    NodeDeleted,
    /// The node was held for longer than its owner allows. The session itself never gives this
    /// reason: what is built on it does.
    HeldTooLong,
    /// This process gave up what it held. The session itself never gives this reason.
    Resigned,
    /// The library's own connection thread failed; see the log.
    Internal,
    /// This process was forked from the process that has the node. That process may still have it;
    /// this one does not.
    Forked,
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
    /// | [`Auth`](Self::Auth) | no | correct the login; its `reason` says what to check |
    /// | [`NoAuth`](Self::NoAuth) | no | let the ACL give the permission, or correct the credentials |
    /// | [`NoNode`](Self::NoNode) | no | make the node or, for a create, its parent |
    /// | [`NodeExists`](Self::NodeExists) | no | take another name, or change the node that is there |
    /// | [`NotEmpty`](Self::NotEmpty) | no | delete the children first |
    /// | [`BadVersion`](Self::BadVersion) | no | read the node again, and decide anew |
    /// | [`NoChildrenForEphemerals`](Self::NoChildrenForEphemerals) | no | take a parent that ends with no session |
    /// | [`MultiRefused`](Self::MultiRefused) | if its `why` is | see `why` |
    /// | [`Unavailable`](Self::Unavailable) | yes | try again after a pause; after a write look first whether it was done. Of a `release` and a `close` it is not transient: there is nothing to call again |
    /// | [`Cancelled`](Self::Cancelled) | no | stop: the program has cancelled the wait |
    /// | [`Closed`](Self::Closed) | no | connect a new session |
    /// | [`Forked`](Self::Forked) | no | connect a session in this process |
    /// | [`Server`](Self::Server) | for the codes `OperationTimeout`, `RequestTimeout`, `ThrottledOp`, `NotReadOnly`, `NewConfigNoQuorum`, `ReconfigInProgress` | try again after a pause; otherwise look at the code |
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Unavailable { op, .. } => ![RELEASE, CLOSE].contains(op),
            Error::Connect { .. } => true,
            Error::Server { code, .. } => TRANSIENT_CODES.contains(&code.as_str()),
            Error::MultiRefused { why, .. } => why.is_transient(),
            Error::InvalidPath { .. }
            | Error::InvalidConfig { .. }
            | Error::Auth { .. }
            | Error::NoAuth { .. }
            | Error::NoNode { .. }
            | Error::NodeExists { .. }
            | Error::NotEmpty { .. }
            | Error::BadVersion { .. }
            | Error::NoChildrenForEphemerals { .. }
            | Error::Cancelled { .. }
            | Error::Closed { .. }
            | Error::Forked { .. } => false,
        }
    }
}

/// With these codes a server says that it cannot do the request now: it is too slow, it has too
/// much to do, it has lost the other servers, or the ensemble is being changed.
#[doc(hidden)]
pub const TRANSIENT_CODES: [&str; 6] = [
    "OperationTimeout",
    "RequestTimeout",
    "ThrottledOp",
    "NotReadOnly",
    "NewConfigNoQuorum",
    "ReconfigInProgress",
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Deadline => f.write_str("the time ended before a server had answered"),
            Cause::ConnectionLost => f.write_str("the connection was lost before the answer came"),
            Cause::Outage(hosts) => write!(f, "there is no connection ({})", Hosts(hosts)),
            Cause::NoProgress(d) => write!(
                f,
                "servers could be reached, but for {:.1} s none gave the answer that was needed, and the retry policy allows no longer wait; see whether the ensemble has a quorum",
                d.as_secs_f64()
            ),
            Cause::Resources(what) => write!(f, "this machine gave no {what}, see its limits"),
        }
    }
}

impl Cause {
    /// What stands before the cause in a message. A short time says nothing bad of ZooKeeper, and
    /// neither does a machine that lacks something.
    #[doc(hidden)]
    pub fn of_zookeeper(&self) -> &'static str {
        match self {
            Cause::Deadline | Cause::Resources(_) => "",
            Cause::ConnectionLost | Cause::Outage(_) | Cause::NoProgress(_) => {
                "ZooKeeper unavailable, "
            }
        }
    }
}

impl LossReason {
    /// In one or two words with small letters, as a label of a metric: `lease_expired`,
    /// `session_expired`, `auth_failed`, `session_closed`, `node_deleted`, `held_too_long`,
    /// `resigned`, `internal` or `forked`.
    pub fn as_str(self) -> &'static str {
        match self {
            LossReason::LeaseExpired => "lease_expired",
            LossReason::SessionExpired => "session_expired",
            LossReason::AuthFailed => "auth_failed",
            LossReason::SessionClosed => "session_closed",
            LossReason::NodeDeleted => "node_deleted",
            LossReason::HeldTooLong => "held_too_long",
            LossReason::Resigned => "resigned",
            LossReason::Internal => "internal",
            LossReason::Forked => "forked",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossReason::LeaseExpired => "its lease ran out: it could not be renewed in time",
            LossReason::SessionExpired => "the server expired the session",
            LossReason::AuthFailed => "the server refused the session's login",
            LossReason::SessionClosed => "the session was closed",
            LossReason::NodeDeleted => "its node is gone (deleted by hand, or its session expired)",
            LossReason::HeldTooLong => "it was held for longer than its max_hold",
            LossReason::Resigned => "this process gave it up",
            LossReason::Internal => "the connection thread failed, see the log",
            LossReason::Forked => "it belongs to the process that forked this one",
        })
    }
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.reason)
    }
}

/// Hosts with their reasons, on one line.
pub(crate) struct Hosts<'a>(pub(crate) &'a [HostFailure]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.0.iter().enumerate() {
            write!(f, "{}{host}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// What failed, and where, if there is a node.
#[doc(hidden)]
pub struct At<'a>(pub &'a str, pub &'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        if self.1.is_empty() { Ok(()) } else { write!(f, " {}", self.1) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidPath { path, rule } => {
                write!(f, "invalid path {path:?}: {rule}")
            }
            Error::InvalidConfig { what, reason } => write!(f, "invalid {what}: {reason}"),
            Error::Connect { hosts, waited } => {
                write!(
                    f,
                    "connect: no session within {:.1} s; check that ZooKeeper runs and is reachable ({})",
                    waited.as_secs_f64(),
                    Hosts(hosts)
                )
            }
            Error::Auth { op, path, reason } => write!(f, "{}: {reason}", At(op, path)),
            Error::NoAuth { op, path, permission } => {
                let of = match *permission {
                    "CREATE" => "this node, or of one above it,",
                    "DELETE" => "the node above this one",
                    _ => "this node",
                };
                write!(
                    f,
                    "{op} {path}: the ACL of {of} does not give {permission} to this session; change the ACL, or give auth() credentials that it names"
                )
            }
            Error::NoNode { op, path } => {
                write!(f, "{op} {path}: there is no such node; make it, or its parent, first")
            }
            Error::NodeExists { op, path } => write!(
                f,
                "{op} {path}: there is such a node already; take another name, or change that node"
            ),
            Error::NotEmpty { op, path } => {
                write!(f, "{op} {path}: the node has children; delete them first")
            }
            Error::BadVersion { op, path } => write!(
                f,
                "{op} {path}: it has another version, somebody has changed it; read it again"
            ),
            Error::NoChildrenForEphemerals { op, path } => write!(
                f,
                "{op} {path}: its parent ends with a session, and can have no children; take another parent"
            ),
            Error::MultiRefused { index, why } => {
                write!(f, "nothing was done, for operation {index} of the multi was refused: {why}")
            }
            Error::Unavailable { op, path, cause } => {
                let (at, zookeeper) = (At(op, path), cause.of_zookeeper());
                let advice = match cause {
                    _ if *op == CLOSE => {
                        "it is closed in this process, and the servers end it after its timeout: do not call this again"
                    }
                    _ if *op == RELEASE => "the session goes on to delete the node",
                    Cause::Deadline | Cause::ConnectionLost => {
                        "if it asked for a change, the change may have been made, try again later"
                    }
                    // Nothing was sent.
                    _ => "try again later",
                };
                write!(f, "{at}: {zookeeper}{cause}; {advice}")
            }
            Error::Cancelled { path } => {
                write!(f, "{path}: the call was cancelled; what it had sent may still be done")
            }
            Error::Closed { op, path } => {
                write!(f, "{}: the session is closed for good; connect a new one", At(op, path))
            }
            Error::Forked { op, path } => write!(
                f,
                "{}: the session belongs to the process that forked this one; connect a session in this process, after the fork",
                At(op, path)
            ),
            Error::Server { op, path, code } if code == ANSWER_TOO_LONG => {
                write!(f, "{op} {path}: {TOO_LONG_ADVICE}")
            }
            Error::Server { op, path, code } if code == "InvalidACL" => write!(
                f,
                "{op} {path}: the server answered {code}: the ACL is empty, or has an entry of an unknown scheme, \
                 or of the scheme auth without credentials; check auth() and the ACL"
            ),
            Error::Server { op, path, code } if code == "Unimplemented" => {
                let advice = match *op {
                    CREATE_TTL => {
                        "it is too old for nodes with a time to live, or does not allow them; set zookeeper.extendedTypesEnabled=true on all servers"
                    }
                    CREATE_CONTAINER => "it is too old for containers; make a persistent node",
                    _ => "it is too old; this library needs ZooKeeper 3.5 or later",
                };
                write!(f, "{op} {path}: the server answered {code}: {advice}")
            }
            Error::Server { op, path, code } if code == "EphemeralOnLocalSession" => write!(
                f,
                "{op} {path}: the server answered {code}: its sessions are local, and a local session makes no nodes that end with it; set localSessionsEnabled=false on all servers"
            ),
            Error::Server { op, path, code } if self.is_transient() => {
                write!(
                    f,
                    "{op} {path}: the server answered {code}, it cannot do this now; try again later"
                )
            }
            Error::Server { op, path, code } => {
                write!(f, "{op} {path}: the server answered {code}; see the server's log")
            }
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of each variant. If the answer of a variant depends on its fields, there is an
    /// error for each answer.
    fn one_of_each() -> Vec<Error> {
        let (op, path, reason) = ("create", String::from("/app/orders"), String::from("no"));
        let server = |code: &str| Error::Server { op, path: path.clone(), code: code.to_owned() };
        let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
        vec![
            Error::InvalidPath { path: path.clone(), rule: "a rule" },
            Error::InvalidConfig { what: "setting", reason: reason.clone() },
            Error::Connect { hosts: Vec::new(), waited: Duration::ZERO },
            Error::Auth { op, path: path.clone(), reason: "the server refused it".into() },
            Error::NoAuth { op, path: path.clone(), permission: "CREATE" },
            Error::NoNode { op, path: path.clone() },
            Error::NodeExists { op, path: path.clone() },
            Error::NotEmpty { op, path: path.clone() },
            Error::BadVersion { op, path: path.clone() },
            Error::NoChildrenForEphemerals { op, path: path.clone() },
            Error::MultiRefused { index: 1, why: Box::new(server("ThrottledOp")) },
            Error::MultiRefused { index: 1, why: Box::new(server("InvalidACL")) },
            unavailable(Cause::Deadline),
            unavailable(Cause::ConnectionLost),
            unavailable(Cause::Outage(Vec::new())),
            unavailable(Cause::NoProgress(Duration::ZERO)),
            unavailable(Cause::Resources(reason)),
            Error::Cancelled { path: path.clone() },
            Error::Closed { op, path: path.clone() },
            Error::Forked { op, path: path.clone() },
            server("OperationTimeout"),
            server("ThrottledOp"),
            server("NotReadOnly"),
            server("InvalidACL"),
            server("Unimplemented"),
            server("EphemeralOnLocalSession"),
            server(ANSWER_TOO_LONG),
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

    /// What was given up cannot be given up again. Each other call may be made again.
    #[test]
    fn an_operation_without_an_answer_is_transient_unless_it_gives_something_up() {
        let host = HostFailure { host: "h:2181".into(), reason: "refused".into() };
        let causes = [
            Cause::Deadline,
            Cause::ConnectionLost,
            Cause::Outage(vec![host]),
            Cause::NoProgress(Duration::from_secs(60)),
            Cause::Resources("thread".into()),
        ];
        let again = ["create", CREATE_TTL, CREATE_CONTAINER, "read", "hold", "watch", "connect"];
        let operations = again.map(|op| (op, true)).into_iter();
        for (op, may_be_called) in operations.chain([(RELEASE, false), (CLOSE, false)]) {
            for cause in causes.clone() {
                let e = Error::Unavailable { op, path: "/n".into(), cause };
                assert_eq!(e.is_transient(), may_be_called, "{e}");
                assert_eq!(e.to_string().contains("try again later"), may_be_called, "{e}");
            }
        }
    }

    #[test]
    fn a_time_that_ends_before_an_answer_is_no_outage_and_an_outage_says_what_the_hosts_answer() {
        let said = |cause| Error::Unavailable { op: "read", path: "/l".into(), cause }.to_string();
        assert_eq!(
            said(Cause::Deadline),
            "read /l: the time ended before a server had answered; if it asked for a change, the change may have been made, try again later"
        );
        let host = HostFailure { host: "h:2181".into(), reason: "refused".into() };
        assert_eq!(
            said(Cause::Outage(vec![host])),
            "read /l: ZooKeeper unavailable, there is no connection (h:2181: refused); try again later"
        );
    }

    #[test]
    fn what_a_server_does_not_know_is_told_by_operation() {
        let said =
            |op| Error::Server { op, path: "/n".into(), code: "Unimplemented".into() }.to_string();
        for op in ["create", "lock", CREATE_CONTAINER] {
            assert!(!said(op).contains("time to live"), "{}", said(op));
        }
        assert!(said("lock").contains("needs ZooKeeper 3.5 or later"), "{}", said("lock"));
        assert!(said(CREATE_CONTAINER).contains("containers"), "{}", said(CREATE_CONTAINER));
        assert!(said(CREATE_TTL).contains("extendedTypesEnabled=true"), "{}", said(CREATE_TTL));
    }

    #[test]
    fn the_word_for_each_loss_is_the_documented_one() {
        use LossReason::*;
        let all = [
            LeaseExpired,
            SessionExpired,
            AuthFailed,
            SessionClosed,
            NodeDeleted,
            HeldTooLong,
            Resigned,
            Internal,
            Forked,
        ];
        let source = include_str!("error.rs");
        let docs = source.split_once("as a label of a metric:").unwrap().1;
        let docs = docs.split_once("pub fn as_str").unwrap().0;
        let words: Vec<&str> = docs.split('`').skip(1).step_by(2).collect();
        assert_eq!(all.map(LossReason::as_str).to_vec(), words);
        // The words are the names of the variants.
        let plain = |word: &str| word.replace('_', "").to_lowercase();
        all.iter().for_each(|of| assert_eq!(plain(&format!("{of:?}")), plain(of.as_str())));
    }

    #[test]
    fn the_codes_that_are_transient_stand_in_the_table() {
        let row = include_str!("error.rs")
            .lines()
            .find(|line| line.contains("/// | [`Server`]"))
            .unwrap();
        let codes = row.split(" | ").nth(2).unwrap();
        let named: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, TRANSIENT_CODES);
    }
}
