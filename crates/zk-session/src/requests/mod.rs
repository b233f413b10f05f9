//! The requests that a program sends on its session: reads, writes of one node, and writes of
//! several nodes at once. A call waits through outages, and ends in time.
//!
//! This file has the calls; `wait` has the rule when a request is sent, and when again; `multi` the
//! writes of several nodes.

mod multi;
pub(crate) mod wait;

pub use self::multi::{Op, OpOutcome};
use crate::acl::{Acl, AclEntry};
use crate::cancel::CancelToken;
use crate::error::{CREATE_CONTAINER, CREATE_TTL, Error, Result};
#[doc(hidden)]
pub use crate::machine::codec::error;
use crate::machine::codec::{CreateMode, Node, Operation, Reply};
use crate::path::full_path;
use crate::session::Session;
use crate::world::Instant;
use std::time::Duration;
use zk_wire::record::Stat;

const CREATE: &str = "create";
const READ: &str = "read";
const WRITE: &str = "write";
const DELETE: &str = "delete";
const LOOK: &str = "look at";
const LIST: &str = "list";
const READ_ACL: &str = "read the ACL of";
const WRITE_ACL: &str = "set the ACL of";
const CHECK: &str = "check";
const MULTI: &str = "multi";
const SYNC: &str = "sync";

/// The longest request that a server accepts by default (`jute.maxbuffer`). A server cuts the
/// connection at a longer one, and all that the session does would suffer.
const LONGEST: usize = 0xf_ffff;

/// The name of a create in errors.
fn create_of(mode: CreateMode) -> &'static str {
    match mode {
        CreateMode::Ttl(_) | CreateMode::SequentialTtl(_) => CREATE_TTL,
        CreateMode::Container => CREATE_CONTAINER,
        _ => CREATE,
    }
}

impl Session {
    /// The requests of this session: it is a client of ZooKeeper. See [`Requests`] for an example.
    pub fn requests(&self) -> Requests {
        Requests { session: self.clone(), within: None, until: None, cancel: None }
    }
}

/// Requests on a session: a view of it that costs little to make and to clone, and that says how
/// long each call may take. It is a handle of the session, as a clone of the session is.
///
/// Paths are absolute, and below the session's chroot, both those that a program gives and those
/// that it gets: with the chroot `/app`, `/config` is the node `/app/config`, and `/` is `/app`. No
/// call but [`hold`](Self::hold) makes a missing parent. (`create` of `/` makes the chroot itself.)
///
/// # How long a call takes
///
/// [`within`](Self::within), [`until`](Self::until) and [`cancelled_by`](Self::cancelled_by) limit
/// each call; without them there is no deadline. While no server can be reached, a call waits, also
/// while a new session is made after the server has expired the old one. A call with a deadline
/// waits until then. A call without a deadline waits for as long as the
/// [`RetryPolicy`](crate::RetryPolicy) of the session allows ([`max_elapsed`]); then it ends with
/// [`Error::Unavailable`].
///
/// # What happens in an outage
///
/// A read is sent again after a lost connection, until there is an answer or the time is over.
///
/// A write is sent once, because the second could do what nobody asked for: it could find the node
/// of the first, or delete the node that somebody has made since. If it was sent and no answer
/// came, the call ends with [`Error::Unavailable`] of the cause [`ConnectionLost`] or [`Deadline`],
/// or with [`Error::Cancelled`] if it was cancelled. Then the write may have been done, or may be
/// done yet, also after a read of this session has shown that it was not done: it may be on its way
/// still. So look whether it was done, and write with a `version` where that matters. A write that
/// certainly was not sent is tried again as a read is; with the causes [`Outage`] and
/// [`NoProgress`] it was never sent.
///
/// # Which state a read shows
///
/// All requests of one session are done in the order in which they were sent, and a read never
/// shows an older state than an earlier answer of this session. But a server may lag behind the
/// others. So a read may not show what *another* client has done and has told this one about, say
/// by a message. [`sync`](Self::sync) before the read ends that: the read then shows all that was
/// acknowledged to any client before the `sync` was called. A read after one's own write needs no
/// `sync`.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use std::time::Duration;
/// use zk_session::{Acl, CreateMode, Error, Session};
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
/// let zk = session.requests().within(Duration::from_secs(10));
/// match zk.create("/config", b"colour=red", CreateMode::Persistent, &Acl::Open) {
///     Ok(_) | Err(Error::NodeExists { .. }) => {}
///     Err(e) => return Err(e),
/// }
/// let config = zk.get("/config")?;
/// println!("version {}: {:?}", config.stat.version, config.data);
/// // Only if nobody has changed it since.
/// match zk.set("/config", b"colour=blue", Some(config.stat.version)) {
///     Ok(stat) => println!("version {} now", stat.version),
///     Err(Error::BadVersion { .. }) => println!("somebody was faster"),
///     Err(e) => return Err(e),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Each call can fail with these, and its own documentation names further ones:
///
/// * [`Error::Unavailable`]: no answer came in time.
/// * [`Error::NoAuth`]: the ACL of the node, or of its parent, does not allow it.
/// * [`Error::Auth`]: the servers refuse the credentials of the session.
/// * [`Error::InvalidPath`] and [`Error::InvalidConfig`]: the path breaks a rule of ZooKeeper, or
///   the request is longer than servers accept by default (1,048,575 bytes, `jute.maxbuffer`).
///   Nothing was sent.
/// * [`Error::Cancelled`], [`Error::Closed`], [`Error::Forked`].
/// * [`Error::Server`]: the server answered with another code.
///
/// [`max_elapsed`]: crate::RetryPolicy::max_elapsed
/// [`ConnectionLost`]: crate::Cause::ConnectionLost
/// [`Deadline`]: crate::Cause::Deadline
/// [`Outage`]: crate::Cause::Outage
/// [`NoProgress`]: crate::Cause::NoProgress
#[derive(Clone, Debug)]
#[must_use = "it sends nothing by itself"]
pub struct Requests {
    session: Session,
    within: Option<Duration>,
    until: Option<Instant>,
    cancel: Option<CancelToken>,
}

/// A node that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// Its path; of a sequential node with its number.
    pub path: String,
    /// What the server says of it.
    pub stat: Stat,
}

impl Requests {
    /// Each call may take this long, counted from its own beginning. The default is no limit.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// Each call ends at this time at the latest (a [`std::time::Instant`]). The default is no
    /// limit. With [`within`](Self::within), the earlier of the two ends a call.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.until = Some(deadline);
        self
    }

    /// Each call ends when this token is cancelled, with [`Error::Cancelled`]. The default is no
    /// token.
    pub fn cancelled_by(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Makes a node, and gives its path and its [`Stat`].
    ///
    /// The path of a sequential node is the part before the number; it may end with `/`. If the
    /// answer is lost, a program cannot know the number of its node. So give such a node data by
    /// which it is known, or a unique name in front of the number.
    ///
    /// ```no_run
    /// # fn main() -> zk_session::Result<()> {
    /// # let zk = zk_session::Session::connect("zk1:2181")?.requests();
    /// use zk_session::{Acl, CreateMode};
    ///
    /// let job = zk.create("/jobs/job-", b"", CreateMode::PersistentSequential, &Acl::Open)?;
    /// println!("{}", job.path); // "/jobs/job-0000000017"
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NodeExists`]; [`Error::NoNode`] if the parent does not exist;
    /// [`Error::NoChildrenForEphemerals`]; [`Error::InvalidConfig`] for a time to live out of its
    /// bounds; [`Error::Server`] with the code `InvalidACL`, or `Unimplemented` if the servers do
    /// not have this mode; and those of all calls ([`Requests`]).
    pub fn create(&self, path: &str, data: &[u8], mode: CreateMode, acl: &Acl) -> Result<Created> {
        let full = self.to_create(path, mode)?;
        let create = Operation::Create { path: &full, data, acl, mode };
        let op = create_of(mode);
        match self.write(op, path, create)? {
            Reply::Created(full, stat) => Ok(Created { path: self.shown(&full), stat }),
            other => Err(wait::unexpected(op, path, &other)),
        }
    }

    /// Reads a node: its data, and its [`Stat`].
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; [`Error::Server`] with the code `AnswerTooLong` for more than 16 MiB; and
    /// those of all calls ([`Requests`]).
    pub fn get(&self, path: &str) -> Result<Node> {
        match self.read(READ, path, Operation::GetData { path: &self.full(path)?, watch: false })? {
            Reply::Node(node) => Ok(node),
            other => Err(wait::unexpected(READ, path, &other)),
        }
    }

    /// Replaces the data of a node. With a `version` only if the node's data has this version
    /// ([`Stat::version`]). Gives the `Stat` after the change.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; [`Error::BadVersion`]; and those of all calls ([`Requests`]).
    pub fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Result<Stat> {
        let set = Operation::SetData { path: &self.full(path)?, data, version };
        wait::stat(WRITE, path, self.write(WRITE, path, set)?)
    }

    /// Deletes a node, which must have no children. With a `version` only if the node's data has
    /// this version ([`Stat::version`]).
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; [`Error::NotEmpty`]; [`Error::BadVersion`]; and those of all calls
    /// ([`Requests`]).
    pub fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        let delete = Operation::Delete { path: &self.full(path)?, version };
        self.write(DELETE, path, delete).map(drop)
    }

    /// The `Stat` of a node; `None` if there is no such node.
    ///
    /// # Errors
    ///
    /// Those of all calls ([`Requests`]). Servers since 3.9 demand the right to read for this.
    pub fn exists(&self, path: &str) -> Result<Option<Stat>> {
        match self.read(LOOK, path, Operation::Exists { path: &self.full(path)? }) {
            Err(Error::NoNode { .. }) => Ok(None),
            answer => wait::stat(LOOK, path, answer?).map(Some),
        }
    }

    /// The names of a node's children, without the path of the node, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; [`Error::Server`] with the code `AnswerTooLong` for more than 16 MiB; and
    /// those of all calls ([`Requests`]).
    pub fn children(&self, path: &str) -> Result<Vec<String>> {
        let list = Operation::GetChildren { path: &self.full(path)?, watch: false };
        match self.read(LIST, path, list)? {
            Reply::Children(listing) => {
                Ok(listing.names().into_iter().map(str::to_owned).collect())
            }
            other => Err(wait::unexpected(LIST, path, &other)),
        }
    }

    /// The entries of the access control list of a node, and the node's `Stat`.
    ///
    /// A list that was set as [`Acl::CreatorAll`] comes with the identities that the creator had.
    /// A session without the right to change the list gets `digest` identities without their
    /// passwords.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; and those of all calls ([`Requests`]).
    pub fn acl(&self, path: &str) -> Result<(Vec<AclEntry>, Stat)> {
        match self.read(READ_ACL, path, Operation::GetAcl { path: &self.full(path)? })? {
            Reply::Acl(entries, stat) => Ok((entries, stat)),
            other => Err(wait::unexpected(READ_ACL, path, &other)),
        }
    }

    /// Replaces the access control list of a node. With a `version` only if the list has this
    /// version ([`Stat::aversion`]). Gives the `Stat` after the change.
    ///
    /// ```no_run
    /// # fn main() -> zk_session::Result<()> {
    /// # let zk = zk_session::Session::connect("zk1:2181")?.requests();
    /// use zk_session::{Acl, AclEntry, Permissions};
    ///
    /// let (mut entries, stat) = zk.acl("/config")?;
    /// entries.push(AclEntry {
    ///     permissions: Permissions::READ,
    ///     scheme: "ip".into(),
    ///     id: "10.0.0.0/8".into(),
    /// });
    /// zk.set_acl("/config", &Acl::Custom(entries), Some(stat.aversion))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`]; [`Error::BadVersion`]; [`Error::Server`] with the code `InvalidACL`; and
    /// those of all calls ([`Requests`]).
    pub fn set_acl(&self, path: &str, acl: &Acl, version: Option<i32>) -> Result<Stat> {
        let set = Operation::SetAcl { path: &self.full(path)?, acl, version };
        wait::stat(WRITE_ACL, path, self.write(WRITE_ACL, path, set)?)
    }

    /// Lets the session's server catch up with the others: reads after this show all that was
    /// acknowledged to any client before this was called. [`Requests`] says when that is needed.
    ///
    /// # Errors
    ///
    /// Those of all calls ([`Requests`]).
    pub fn sync(&self) -> Result<()> {
        self.read(SYNC, "/", Operation::Sync).map(drop)
    }

    // ---- paths ----

    /// The full path of a node.
    fn full(&self, path: &str) -> Result<String> {
        full_path(self.session.core().chroot(), path)
    }

    /// The full path of a node that is to be made.
    fn to_create(&self, path: &str, mode: CreateMode) -> Result<String> {
        if !mode.is_possible() {
            let reason = "it must be at least 1 ms, and at most 1,099,511,627,775 ms".to_owned();
            return Err(Error::InvalidConfig { what: "CreateMode::Ttl", reason });
        }
        if !mode.is_sequential() {
            return self.full(path);
        }
        // The rules are for the name with its number.
        let numbered = self.full(&[path, "0"].concat()).map_err(|e| match e {
            Error::InvalidPath { rule, .. } => Error::InvalidPath { path: path.to_owned(), rule },
            e => e,
        })?;
        Ok(numbered.strip_suffix('0').unwrap_or(&numbered).to_owned())
    }

    /// A full path as the program knows it.
    pub(crate) fn shown(&self, full: &str) -> String {
        let core = self.session.core();
        let is_chroot = !core.chroot().is_empty() && full == core.chroot();
        if is_chroot { "/".to_owned() } else { core.shown(full).to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionEvent;
    use crate::acl::Permissions;
    use crate::error::Cause;
    use crate::machine::Watched;
    use zk_test_server::TestServer;

    /// A call at a path.
    type Call = fn(&Requests, &str) -> Result<()>;

    fn make(zk: &Requests, path: &str, mode: CreateMode) -> Result<()> {
        zk.create(path, b"", mode, &Acl::Open).map(drop)
    }

    /// Each call, by the operation that its errors name.
    const CALLS: [(&str, Call); 14] = [
        (CREATE, |zk, path| make(zk, path, CreateMode::Persistent)),
        (CREATE, |zk, path| make(zk, path, CreateMode::EphemeralSequential)),
        (CREATE_CONTAINER, |zk, path| make(zk, path, CreateMode::Container)),
        (CREATE_TTL, |zk, path| make(zk, path, CreateMode::Ttl(Duration::from_secs(1)))),
        (READ, |zk, path| zk.get(path).map(drop)),
        (WRITE, |zk, path| zk.set(path, b"", None).map(drop)),
        (DELETE, |zk, path| zk.delete(path, None)),
        (LOOK, |zk, path| zk.exists(path).map(drop)),
        (LIST, |zk, path| zk.children(path).map(drop)),
        (READ_ACL, |zk, path| zk.acl(path).map(drop)),
        (WRITE_ACL, |zk, path| zk.set_acl(path, &Acl::Open, None).map(drop)),
        ("hold", |zk, path| zk.hold(path, b"", &Acl::Open).map(drop)),
        ("watch", |zk, path| zk.watch(path, Watched::Node).map(drop)),
        (MULTI, |zk, path| zk.multi(&[Op::Check { path, version: None }]).map(drop)),
    ];

    /// What an error is about: its operation, if it has one, and its path.
    fn about(e: &Error) -> (Option<&'static str>, &str) {
        match e {
            Error::MultiRefused { why, .. } => about(why),
            Error::InvalidPath { path, .. } | Error::Cancelled { path } => (None, path),
            Error::Auth { op, path, .. }
            | Error::NoAuth { op, path, .. }
            | Error::NoNode { op, path }
            | Error::NodeExists { op, path }
            | Error::NotEmpty { op, path }
            | Error::BadVersion { op, path }
            | Error::NoChildrenForEphemerals { op, path }
            | Error::Unavailable { op, path, .. }
            | Error::Closed { op, path }
            | Error::Forked { op, path }
            | Error::Server { op, path, .. } => (Some(op), path),
            Error::InvalidConfig { .. } | Error::Connect { .. } => (None, ""),
        }
    }

    fn may(permissions: Permissions) -> Acl {
        Acl::Custom(vec![AclEntry { permissions, scheme: "world".into(), id: "anyone".into() }])
    }

    #[test]
    fn an_error_names_the_path_as_the_program_gave_it_whatever_fails() {
        for chroot in ["", "/app"] {
            let server = TestServer::start().unwrap();
            let root = Session::connect(server.connect_string()).unwrap().requests();
            if !chroot.is_empty() {
                make(&root, chroot, CreateMode::Persistent).unwrap();
            }
            let session = Session::connect(server.connect_string() + chroot).unwrap();
            let zk = session.requests().within(Duration::from_secs(20));
            let read = may(Permissions::READ);
            zk.create("/closed", b"", CreateMode::Persistent, &read).unwrap();
            for (op, call) in CALLS {
                let op = if op == MULTI { CHECK } else { op };
                // A look at what does not exist, or at any node, is no error; `hold` makes parents.
                let finds = [LOOK, "hold", "watch", CHECK].contains(&op);
                match call(&zk, "/no/node") {
                    Err(e) => assert_eq!(about(&e), (Some(op), "/no/node"), "{chroot} {e:?}"),
                    Ok(()) => assert!(finds, "{op}"),
                }
                let refused = match op {
                    READ | LIST | READ_ACL | LOOK | "watch" | CHECK | DELETE => continue,
                    WRITE | WRITE_ACL => "/closed",
                    _ => "/closed/node",
                };
                let e = call(&zk, refused).unwrap_err();
                assert!(matches!(e, Error::NoAuth { .. }), "{chroot} {op}: {e:?}");
                assert_eq!(about(&e), (Some(op), refused), "{chroot} {e:?}");
            }
            // The node that a program holds is refused, or one above it.
            let node = "/closed/parent/web-";
            let e = zk.hold(node, b"", &Acl::Open).unwrap_err();
            assert_eq!(about(&e), (Some("hold"), node), "{chroot} {e:?}");

            let cancelled = CancelToken::new();
            cancelled.cancel();
            let events = session.subscribe();
            let each = |zk: &Requests, is_it: fn(&Error) -> bool, what: &str| {
                for (op, call) in CALLS {
                    let e = call(zk, "/a/node").unwrap_err();
                    assert!(is_it(&e), "{chroot} {op} {what}: {e:?}");
                    let (named, path) = about(&e);
                    assert!(named.is_none_or(|named| named == op), "{chroot} {op}: {e:?}");
                    assert_eq!(path, "/a/node", "{chroot} {op}: {e:?}");
                }
            };
            let is_cancelled: fn(&Error) -> bool = |e| matches!(e, Error::Cancelled { .. });
            let zk = session.requests();
            server.refuse(true);
            server.cut_connections();
            while events.recv().unwrap() != SessionEvent::Suspended {}
            each(&zk.clone().cancelled_by(&cancelled), is_cancelled, "cancelled");
            let is_outage: fn(&Error) -> bool =
                |e| matches!(e, Error::Unavailable { cause: Cause::Outage(_), .. });
            each(&zk.clone().within(Duration::ZERO), is_outage, "in an outage");
            server.refuse(false);
            session.close().unwrap();
            each(&zk, |e| matches!(e, Error::Closed { .. }), "closed");
        }
    }

    #[test]
    fn what_was_made_is_shown_below_the_chroot_and_the_chroot_itself_as_the_root() {
        let server = TestServer::start().unwrap();
        let config = crate::Config::new(server.connect_string() + "/app").create_chroot();
        let zk = Session::connect(config).unwrap().requests();
        // Nobody may make the chroot.
        let root = Session::connect(server.connect_string()).unwrap().requests();
        let (all, version) = root.acl("/").unwrap();
        root.set_acl("/", &may(Permissions::READ | Permissions::ADMIN), None).unwrap();
        for (op, path, e) in [
            (CREATE, "/", make(&zk, "/", CreateMode::Persistent).unwrap_err()),
            ("hold", "/web-", zk.hold("/web-", b"", &Acl::Open).unwrap_err()),
        ] {
            assert!(matches!(e, Error::NoAuth { .. }), "{e:?}");
            assert_eq!(about(&e), (Some(op), path));
        }
        root.set_acl("/", &Acl::Custom(all), Some(version.aversion + 1)).unwrap();
        let made = |path, mode| zk.create(path, b"", mode, &Acl::Open).unwrap().path;
        assert_eq!(made("/", CreateMode::Persistent), "/");
        // A path that begins like the chroot.
        assert_eq!(made("/app", CreateMode::Persistent), "/app");
        assert_eq!(made("/app/app-", CreateMode::PersistentSequential), "/app/app-0000000000");
        let create =
            Op::Create { path: "/a", data: b"", mode: CreateMode::Persistent, acl: &Acl::Open };
        let done = zk.multi(&[create]).unwrap();
        assert!(matches!(&done[0], OpOutcome::Created { path, .. } if path == "/a"), "{done:?}");
        let held = zk.hold("/app/web-", b"", &Acl::Open).unwrap();
        assert!(held.path().starts_with("/app/web-"), "{held:?}");
        assert_eq!(root.children("/app/app").unwrap().len(), 2);
    }
}
