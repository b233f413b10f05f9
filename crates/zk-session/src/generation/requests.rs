//! The requests of callers. Each ends in time: it is answered within the operation timeout, or its
//! caller leaves.

use std::sync::Arc;

use super::{Answers, CallError, CreateMode, Generation, Listing, Node, Operation, Removal, Reply};
use crate::acl::Acl;
use crate::connection::Owner;
use crate::limit::{Ended, Limit};
use crate::machine::Batch;
use crate::notifier::Notifier;
use crate::raw::RawListener;
use crate::world::{HashSet, Receiver};

/// The answer to a listing.
pub struct Listed {
    pub children: Listing,
    /// The ids of our own pending deletes at that time.
    pub pending: Arc<HashSet<String>>,
    /// The connection on which the answer came.
    pub epoch: u64,
}

impl Generation {
    /// Sends these requests together. Gives the number of the batch, and where its answers will
    /// come.
    pub fn send(
        &self,
        requests: &[(Operation<'_>, Option<Removal>)],
    ) -> Result<(u64, Receiver<Answers>), CallError> {
        let mut batch = Batch::new();
        for (operation, removal) in requests {
            batch.push(operation, removal.clone());
        }
        self.connection.submit(batch)
    }

    /// Sends these requests together, and waits for all their answers as long as `limit` says. If
    /// the wait ends before the answers come, the nodes that the requests have made or may still
    /// make are deleted, as the removal beside each request says.
    ///
    /// Each request is answered within the operation timeout, whatever the network does; while its
    /// own answer comes, within half of the session timeout.
    pub fn flight(
        &self,
        requests: &[(Operation<'_>, Option<Removal>)],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        limit.sends();
        let (number, answers) = self.send(requests)?;
        let answers =
            self.wait_for(&answers, limit).or_else(|why| self.leave(number, &answers, why))?;
        if answers.was_cut_short {
            limit.cut_short();
        }
        Ok(answers)
    }

    /// Waits for the answers to a batch, as long as `limit` says.
    fn wait_for(
        &self,
        answers: &Receiver<Answers>,
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        #[cfg(unix)]
        if let Some(answers) = (self as &dyn Owner).read_until(|| answers.try_recv().ok(), limit) {
            return Ok(answers);
        }
        match limit.recv(answers) {
            Ended::Got(answers) => Ok(answers),
            Ended::Disconnected => Err(CallError::Expired),
            Ended::Deadline => Err(CallError::Deadline),
            Ended::Cancelled => Err(CallError::Cancelled),
        }
    }

    /// The caller of a batch leaves because its wait has ended like this. If the answers have come
    /// meanwhile, it gets them.
    fn leave(
        &self,
        number: u64,
        answers: &Receiver<Answers>,
        why: CallError,
    ) -> Result<Answers, CallError> {
        match why {
            CallError::Expired => Err(why), // no thread is left that could answer
            _ => self.connection.leave(number, answers).unwrap_or(Err(why)),
        }
    }

    /// Sends one write, and waits for its answer as long as `limit` says. `None`: it was not sent,
    /// and no server will ever get it. After an error without an answer it may have been done, or
    /// may be done yet.
    pub(crate) fn write(
        &self,
        operation: Operation<'_>,
        limit: &Limit<'_>,
    ) -> Result<Option<Reply>, CallError> {
        let (number, answers) = match self.send(&[(operation, None)]) {
            Err(CallError::Expired) => return Ok(None),
            sent => sent?,
        };
        let mut answers = match self.wait_for(&answers, limit) {
            Err(_) if self.connection.withdraw(number) => return Ok(None),
            Err(why) => self.leave(number, &answers, why)?,
            Ok(answers) => answers,
        };
        match answers.take(0) {
            Err(CallError::ConnectionLoss | CallError::Expired) if !answers.were_sent => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Waits until a notifier that is registered with `nodes` is notified.
    pub fn wait(&self, notifier: &Notifier, limit: &Limit<'_>) -> Ended<u8> {
        #[cfg(unix)]
        if let Some(events) = (self as &dyn Owner).read_until(|| notifier.take(), limit) {
            return Ended::Got(events);
        }
        notifier.wait(limit)
    }

    /// Sends one request that makes no node to be deleted later, and waits for its answer.
    pub fn call(&self, operation: Operation<'_>, limit: &Limit<'_>) -> Result<Reply, CallError> {
        self.flight(&[(operation, None)], limit)?.take(0)
    }

    /// Whether the chroot exists; asked as [`synced`](Self::synced) does.
    pub(crate) fn has_chroot(&self, limit: &Limit<'_>) -> Result<bool, CallError> {
        let exists = Operation::Exists { path: &self.of_core.chroot.path };
        match self.synced(&[exists], limit)?.take(0) {
            // Since 3.9 servers demand the right to read for this question, of a node that exists.
            Ok(_) | Err(CallError::NoAuth(_)) => Ok(true),
            Err(CallError::NoNode) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Lists a node's children. With `watch`, sets a watch on the list, if the node exists.
    pub fn children(&self, dir: &str, watch: bool, limit: &Limit<'_>) -> Result<Listed, CallError> {
        let list = Operation::GetChildren { path: dir, watch };
        self.flight(&[(list, None)], limit)?.listed(0)
    }

    /// Sends these reads in one flight, behind a `sync`. So they show all that was acknowledged to
    /// any client before this call.
    ///
    /// A server may lag behind the leader for as long as its stream from there is slow. It answers
    /// reads meanwhile, and what they show may be over: a lock that somebody has released, as the
    /// caller knows from him, would seem to be taken. The server answers a `sync` when it has
    /// received what the leader had committed before, and only then the reads behind it. If the
    /// `sync` fails, the reads show nothing, and the call fails.
    ///
    /// A read that follows an acknowledged write of the same call needs no `sync`: its server has
    /// done that write, and all writes before it. That holds on a later connection too, because a
    /// server that has seen less than the session refuses it.
    pub fn synced(&self, reads: &[Operation<'_>], limit: &Limit<'_>) -> Result<Answers, CallError> {
        let behind_sync = std::iter::once(&Operation::Sync).chain(reads);
        let requests: Vec<_> = behind_sync.map(|request| (*request, None)).collect();
        self.flight(&requests, limit)?.behind_sync()
    }

    /// Lists a node's children as [`synced`](Self::synced) does.
    pub fn synced_children(&self, dir: &str, limit: &Limit<'_>) -> Result<Listed, CallError> {
        self.synced(&[Operation::GetChildren { path: dir, watch: false }], limit)?.listed(0)
    }

    /// Reads a node as [`synced`](Self::synced) does. With `watch`, sets a watch on it, if it
    /// exists.
    pub fn synced_read(
        &self,
        path: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        self.synced(&[Operation::GetData { path, watch }], limit)?.take(0)?.node()
    }

    /// Reads a node. With `watch`, sets a watch on it, if it exists.
    pub fn read(&self, path: &str, watch: bool, limit: &Limit<'_>) -> Result<Node, CallError> {
        self.call(Operation::GetData { path, watch }, limit)?.node()
    }

    /// Renews the lease, and waits until it is fresh. If that takes longer than the operation
    /// timeout, the session is attached to a server anew, and the caller gets `ConnectionLoss`.
    pub fn prove(&self, limit: &Limit<'_>) -> Result<(), CallError> {
        limit.sends();
        match limit.recv(&self.connection.prove()) {
            Ended::Got(Ok(())) => Ok(()),
            Ended::Got(Err(_)) | Ended::Disconnected => Err(CallError::ConnectionLoss),
            Ended::Deadline => Err(CallError::Deadline),
            Ended::Cancelled => Err(CallError::Cancelled),
        }
    }

    // ---- a client of another kind, which shares the session ----

    /// Gives the generation this listener, which gets all news from now on. If the session has
    /// ended already, this call itself tells the listener. A generation has one listener: a later
    /// one takes the place of an earlier one. The generation keeps it until its own drop.
    #[cfg_attr(not(feature = "client"), allow(dead_code))] // the only such client is the bridge
    pub fn listen(&self, listener: RawListener) {
        self.raw.listen(listener);
    }

    /// Sends a request, or keeps it until there is a connection: the operation's code, and the body
    /// without the header. Its answer is told to the listener under this number, which the
    /// listener's client has chosen and uses once. If the session has ended, nothing is sent and no
    /// answer comes: the listener is told of the end.
    ///
    /// The session is shared, so the client must send nothing that would harm it: no request above
    /// the servers' limit, no close, no credentials.
    #[cfg_attr(not(feature = "client"), allow(dead_code))] // the only such client is the bridge
    pub fn submit_raw(&self, number: u64, op: i32, body: &[u8]) {
        let batch = Batch::raw(number, op, body);
        let _ = self.connection.with(|machine, now| machine.submit(batch, now));
    }
}

impl Answers {
    /// Takes the answer to one of the requests.
    pub fn take(&mut self, at: usize) -> Result<Reply, CallError> {
        let taken = || Err(CallError::ConnectionLoss);
        self.all.get_mut(at).map_or_else(taken, |answer| std::mem::replace(answer, taken()))
    }

    /// The answers to the requests behind a `sync`, which is the first request; an error if it
    /// failed.
    pub fn behind_sync(mut self) -> Result<Self, CallError> {
        self.take(0)?;
        drop(self.all.remove(0));
        Ok(self)
    }

    pub fn listed(&mut self, at: usize) -> Result<Listed, CallError> {
        match self.take(at)? {
            Reply::Children(children) => {
                Ok(Listed { children, pending: self.pending.clone(), epoch: self.epoch })
            }
            _ => Err(unexpected()),
        }
    }
}

impl Reply {
    /// The path and the czxid of a node that was just created.
    pub fn created(self) -> Result<(String, i64), CallError> {
        match self {
            Reply::Created(path, stat) => Ok((path, stat.czxid)),
            _ => Err(unexpected()),
        }
    }

    pub fn node(self) -> Result<Node, CallError> {
        match self {
            Reply::Node(node) => Ok(node),
            _ => Err(unexpected()),
        }
    }
}

/// The codec decodes each answer by its request, so this never happens.
fn unexpected() -> CallError {
    CallError::Other("an answer to another request".to_owned())
}

/// The request that creates a contender's node; the id is a part of its name. If the call fails and
/// the node may exist, it is deleted.
pub fn create_contender<'a>(
    path: &'a str,
    id: &str,
    mode: CreateMode,
    data: &'a [u8],
    acl: &'a Acl,
) -> (Operation<'a>, Option<Removal>) {
    (Operation::Create { path, data, acl, mode }, Some(Removal::of_create(path, id)))
}
