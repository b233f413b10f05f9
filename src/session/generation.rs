//! One session at the server, from its making to its loss: a client instance, its link, and calls
//! on it that end in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, SendError, bounded};
use zookeeper::{CreateMode, WatchedEvent, ZkError, ZkResult, ZooKeeper};

use super::acl::Acl;
use super::hold::Hold;
use super::link::{Chore, Link, Outcome, Removal};
use super::path;
use super::pool::Pool;
use super::shared::Shared;
use crate::clock::BootTime;
use crate::error::ANSWER_TOO_LONG;
use crate::limit::{Ended, Limit};
use crate::logging::contained;

pub(crate) struct Generation {
    /// Counts the sessions made through one `ZkSession`.
    pub(crate) number: u64,
    pub(crate) shared: Arc<Shared>,
    /// Always there, but for the moment of the drop.
    zk: Option<Arc<ZooKeeper>>,
    link: Link,
    pool: Pool,
}

/// Why a call gave no result.
#[derive(Debug)]
pub(crate) enum CallError {
    NoNode,
    NodeExists,
    /// Somebody else changed the node first.
    BadVersion,
    /// Whether the request was done is unknown.
    ConnectionLoss,
    /// The session is lost.
    Expired,
    AuthFailed,
    NoAuth,
    Deadline,
    Cancelled,
    Resources,
    Other(String),
}

/// How a contender's node gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The server appends the next number.
    Numbered,
    /// The name is whole.
    AsGiven,
    /// The same, and the node outlives the session.
    Persistent,
}

/// What a read of a node says.
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) czxid: i64,
    pub(crate) owner: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
    pub(crate) created: SystemTime,
}

/// Slack for scheduling: a call that may end this close to the caller's deadline is not made on the
/// caller's thread.
const SLACK: Duration = Duration::from_millis(100);

impl Generation {
    /// Starts a client instance that talks to `link`.
    pub(super) fn start(
        number: u64,
        address: &super::link::Address,
        link: Link,
        shared: Arc<Shared>,
        pool: Pool,
    ) -> Result<Self, String> {
        // The crate unwraps what the machine may refuse: a socket, an epoll instance.
        match contained(|| ZooKeeper::connect(&address.connect_string, address.secret, no_watcher)) {
            Some(Ok(zk)) => Ok(Generation { number, shared, zk: Some(Arc::new(zk)), link, pool }),
            Some(Err(e)) => Err(format!("client instance ({e})")),
            None => Err("client instance (its start panicked)".to_owned()),
        }
    }

    pub(super) fn close(&self) -> Receiver<bool> {
        self.link.close()
    }

    /// Makes a node; gives the path that the server gave it.
    ///
    /// The id is a part of the name. If the node may exist although this call fails, it is debris
    /// from then on, and goes.
    pub(crate) fn create_contender(
        self: &Arc<Self>,
        prefix: &str,
        id: &str,
        naming: Naming,
        data: Vec<u8>,
        acl: Acl,
        limit: &Limit<'_>,
    ) -> Result<String, CallError> {
        let (full, entries) = (prefix.to_owned(), acl.entries());
        let (me, node) = (self.clone(), id.to_owned());
        let (parent, name) = (path::parent(prefix).to_owned(), path::name(prefix).to_owned());
        // What becomes of a node that nobody takes: until it is gone, our listings know it for ours.
        let settle = move |outcome: Option<ZkResult<String>>| match outcome {
            Some(Ok(path)) => me.delete(path, node, false, None),
            Some(Err(e)) if is_uncertain(e) => me.sweep(parent, name, node),
            Some(Err(_)) | None => me.shared.remove_debris(&node),
        };
        let mode = match naming {
            Naming::Numbered => CreateMode::EphemeralSequential,
            Naming::AsGiven => CreateMode::Ephemeral,
            Naming::Persistent => CreateMode::Persistent,
        };
        if naming == Naming::Persistent {
            self.shared.lasts(id, prefix);
        }
        let outcome = self.call(
            limit,
            move |zk| zk.create(&full, data, entries, mode),
            {
                let shared = (self.shared.clone(), id.to_owned());
                move || shared.0.add_debris(&shared.1)
            },
            settle.clone(),
        );
        match outcome {
            Ok(result) => result.map_err(|e| {
                settle(Some(Err(e)));
                e.into()
            }),
            Err(e) => Err(e),
        }
    }

    /// Makes an ephemeral node whose name is fixed; its data bears `nonce`.
    ///
    /// If this fails otherwise than by a refusal, the node may exist: that is the caller's to settle, by another create or by
    /// [`remove`](Self::remove). Not if its own time is up before the answer: then the node is removed whatever the answer says,
    /// if this create or one before it (`may_exist`) may have made it.
    pub(crate) fn create_fixed(
        self: &Arc<Self>,
        path: &str,
        nonce: &str,
        data: Vec<u8>,
        acl: Acl,
        may_exist: bool,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let (full, entries) = (path.to_owned(), acl.entries());
        let (me, path, ours) = (self.clone(), path.to_owned(), nonce.to_owned());
        let settle = move |outcome: Option<ZkResult<String>>| {
            let is_made = outcome.is_some_and(|outcome| outcome.map_or_else(is_uncertain, |_| true));
            if is_made || may_exist {
                me.remove(path, ours, None, None);
            } else {
                me.shared.remove_debris(&ours);
            }
        };
        self.call(
            limit,
            move |zk| zk.create(&full, data, entries, CreateMode::Ephemeral),
            || self.shared.add_debris(nonce),
            settle,
        )?
        .map(drop)
        .map_err(CallError::from)
    }

    /// Makes a container and the containers above it that are missing.
    pub(crate) fn make_parents(
        self: &Arc<Self>,
        dir: &str,
        acl: Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        // From the bottom: an ACL further up may forget to allow what is not needed.
        let (full, entries) = (dir.to_owned(), acl.entries());
        let make = self.simple(limit, move |zk| zk.create(&full, Vec::new(), entries, CreateMode::Container));
        match make {
            Ok(_) | Err(CallError::NodeExists) => Ok(()),
            Err(CallError::NoNode) if path::parent(dir) != "/" => {
                self.make_parents(path::parent(dir), acl, limit)?;
                // Somebody may delete it meanwhile; the caller's own loop starts again then.
                let (full, entries) = (dir.to_owned(), acl.entries());
                match self
                    .simple(limit, move |zk| zk.create(&full, Vec::new(), entries, CreateMode::Container))
                {
                    Ok(_) | Err(CallError::NodeExists | CallError::NoNode) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn children(self: &Arc<Self>, dir: &str, limit: &Limit<'_>) -> Result<Vec<String>, CallError> {
        let dir = dir.to_owned();
        self.simple(limit, move |zk| zk.get_children(&dir, false))
    }

    /// As [`children`](Self::children), and leaves a watch on the list, if the node exists.
    pub(crate) fn children_watched(
        self: &Arc<Self>,
        dir: &str,
        limit: &Limit<'_>,
    ) -> Result<Vec<String>, CallError> {
        let dir = dir.to_owned();
        self.simple(limit, move |zk| zk.get_children(&dir, true))
    }

    /// Makes a node that stays, whatever becomes of its children and of us.
    pub(crate) fn create_lasting(
        self: &Arc<Self>,
        path: &str,
        data: Vec<u8>,
        acl: Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let (path, entries) = (path.to_owned(), acl.entries());
        self.simple(limit, move |zk| zk.create(&path, data, entries, CreateMode::Persistent).map(drop))
    }

    /// Reads a node; `watch` leaves a watch on it, if it exists.
    pub(crate) fn read(
        self: &Arc<Self>,
        path: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        let path = path.to_owned();
        let (data, stat) = self.simple(limit, move |zk| zk.get_data(&path, watch))?;
        let created = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or(0));
        Ok(Node {
            data,
            czxid: stat.czxid,
            owner: stat.ephemeral_owner,
            version: stat.version,
            created: UNIX_EPOCH.checked_add(created).unwrap_or(UNIX_EPOCH),
        })
    }

    /// Changes a node's data; with a `version`, if it is as it was at that.
    pub(crate) fn set_data(
        self: &Arc<Self>,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let path = path.to_owned();
        self.simple(limit, move |zk| zk.set_data(&path, data, version)).map(drop)
    }

    /// Deletes a node, once; see [`delete`](Self::delete) for what must go.
    pub(crate) fn delete_now(self: &Arc<Self>, path: &str, limit: &Limit<'_>) -> Result<(), CallError> {
        let path = path.to_owned();
        self.simple(limit, move |zk| zk.delete(&path, None))
    }

    /// The node's czxid, if it exists.
    pub(crate) fn czxid(self: &Arc<Self>, path: &str, limit: &Limit<'_>) -> Result<Option<i64>, CallError> {
        let path = path.to_owned();
        let stat = self.simple(limit, move |zk| zk.exists(&path, false))?;
        Ok(stat.map(|stat| stat.czxid))
    }

    /// Waits until the link has renewed the lease so far that it is fresh. The write of the renewal,
    /// which has no effect, goes to `dir`, a directory of our locks. Where this takes longer than
    /// T/6 the link attaches the session anew, and the caller gets `ConnectionLoss`.
    pub(crate) fn prove(&self, dir: &str, limit: &Limit<'_>) -> Result<(), CallError> {
        let (done, proven) = bounded(1);
        self.link.prove(dir.to_owned(), done);
        match limit.recv(&proven) {
            Ended::Got(_) => Ok(()),
            Ended::Disconnected => Err(CallError::ConnectionLoss),
            Ended::Deadline => Err(CallError::Deadline),
            Ended::Cancelled => Err(CallError::Cancelled),
        }
    }

    /// Hands a node of ours to the link, which deletes it for sure. `renew_parent`: the parent too,
    /// if that leaves it empty. The outcome is sent to `done`, whose sender is dropped if the
    /// session ends first.
    pub(crate) fn delete(
        &self,
        path: String,
        id: String,
        renew_parent: bool,
        done: Option<crossbeam_channel::Sender<Outcome>>,
    ) {
        self.shared.add_debris(&id);
        self.link.chore(Chore::Delete { path, id, renew_parent, done });
    }

    /// As [`delete`](Self::delete), for a node with a fixed name, which is deleted only if it is ours: if its data bears `nonce`, or
    /// its czxid is this one.
    pub(crate) fn remove(
        &self,
        path: String,
        nonce: String,
        czxid: Option<i64>,
        done: Option<crossbeam_channel::Sender<Outcome>>,
    ) {
        self.shared.add_debris(&nonce);
        self.link.chore(Chore::Remove(Removal::new(path, nonce, czxid, done)));
    }

    /// Lets the link look for held nodes that want a watch.
    pub(crate) fn wake(&self) {
        self.link.wake();
    }

    fn sweep(&self, parent: String, prefix: String, id: String) {
        self.shared.add_debris(&id);
        self.link.chore(Chore::Sweep { parent, prefix, id });
    }

    /// Arms the watch on a held node now; gives its czxid.
    pub(crate) fn watch_hold(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        limit: &Limit<'_>,
    ) -> Result<i64, CallError> {
        let (attach, before) = (self.shared.attach(), hold.armed_on());
        match self.read(hold.path(), true, limit) {
            Ok(node) => {
                hold.armed_by_read(before, attach);
                if hold.seen(node.czxid) {
                    hold.told(&node.data);
                    return Ok(node.czxid);
                }
                self.shared.lease.gone(hold, BootTime::now());
                Err(CallError::NoNode)
            }
            Err(CallError::NoNode) => {
                self.shared.lease.gone(hold, BootTime::now());
                Err(CallError::NoNode)
            }
            Err(e) => Err(e),
        }
    }

    /// A call that leaves nothing behind when its caller gives up.
    fn simple<T: Send + 'static>(
        self: &Arc<Self>,
        limit: &Limit<'_>,
        f: impl FnOnce(&ZooKeeper) -> ZkResult<T> + Send + 'static,
    ) -> Result<T, CallError> {
        self.call(limit, f, || (), |_| ())?.map_err(CallError::from)
    }

    /// Makes a call that returns when `limit` says, whatever the network does.
    ///
    /// The crate's calls block, for up to T/6 behind our link. One that may outlast the limit runs
    /// on a thread of the pool; if its caller gives up, `giving_up` runs at once and `abandoned`
    /// gets what came of it (`None`: it was never made).
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        limit: &Limit<'_>,
        f: impl FnOnce(&ZooKeeper) -> ZkResult<T> + Send + 'static,
        giving_up: impl FnOnce(),
        abandoned: impl FnOnce(Option<ZkResult<T>>) + Send + 'static,
    ) -> Result<ZkResult<T>, CallError> {
        if !limit.may_end_within(self.shared.timeout() / 6 + SLACK) {
            return Ok(run(self.zk.as_deref(), f));
        }
        let (zk, gone) = (self.zk.clone(), Arc::new(AtomicBool::new(false)));
        // Without a buffer an answer is either taken or given back, never lost in between.
        let (answer, answered) = bounded(0);
        let has_gone = gone.clone();
        let job = move || {
            if has_gone.load(Ordering::Acquire) {
                abandoned(None);
            } else if let Err(SendError(result)) = answer.send(run(zk.as_deref(), f)) {
                abandoned(Some(result));
            }
        };
        if self.pool.run(Box::new(job)).is_err() {
            return Err(CallError::Resources);
        }
        let why = match limit.recv(&answered) {
            Ended::Got(result) => return Ok(result),
            Ended::Disconnected => CallError::Resources,
            Ended::Deadline => CallError::Deadline,
            Ended::Cancelled => CallError::Cancelled,
        };
        giving_up();
        gone.store(true, Ordering::Release);
        Err(why)
    }
}

impl Drop for Generation {
    /// Dropping a client instance is a call on it, which can wait for the session's goodbye: not on
    /// the thread that happens to be the last, which has a deadline of its own. (It logs, too:
    /// where there is no other thread a panic of the logger must not end this one.)
    fn drop(&mut self) {
        let zk = self.zk.take();
        if let Err(job) = self.pool.run(Box::new(move || drop(zk))) {
            contained(job);
        }
    }
}

/// Makes a call. If it panics, nobody knows what came of it.
fn run<T>(zk: Option<&ZooKeeper>, f: impl FnOnce(&ZooKeeper) -> ZkResult<T>) -> ZkResult<T> {
    let zk = zk.ok_or(ZkError::SessionExpired)?;
    contained(|| f(zk)).unwrap_or_else(|| {
        error!("a call of the ZooKeeper client panicked");
        Err(ZkError::ConnectionLoss)
    })
}

/// The link hands watch events to their waiters before the crate would see them.
fn no_watcher(_: WatchedEvent) {}

/// Whether a create that failed with this may have been done all the same.
fn is_uncertain(e: ZkError) -> bool {
    !matches!(
        e,
        ZkError::NoNode
            | ZkError::NodeExists
            | ZkError::NoAuth
            | ZkError::InvalidACL
            | ZkError::NoChildrenForEphemerals
            | ZkError::BadArguments
            | ZkError::SessionExpired
            | ZkError::AuthFailed
    )
}

impl From<ZkError> for CallError {
    fn from(e: ZkError) -> Self {
        match e {
            ZkError::NoNode => CallError::NoNode,
            ZkError::NodeExists => CallError::NodeExists,
            ZkError::BadVersion => CallError::BadVersion,
            ZkError::ConnectionLoss | ZkError::OperationTimeout | ZkError::SessionMoved => {
                CallError::ConnectionLoss
            }
            ZkError::SessionExpired => CallError::Expired,
            ZkError::AuthFailed => CallError::AuthFailed,
            ZkError::NoAuth => CallError::NoAuth,
            ZkError::APIError => CallError::Other(ANSWER_TOO_LONG.to_owned()), // the link's `err::TOO_LONG`
            other => CallError::Other(format!("{other:?}")),
        }
    }
}
