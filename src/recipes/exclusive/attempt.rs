//! One request for the exclusive lock: it creates the lock's node, or waits until somebody else's
//! node is gone and tries again. `lock.rs` calls it when a thread has its turn.
//!
//! All clients use one node name, so a node is known by the nonce in its data, and by its session.
//! If the request ends without a hold, whatever node it may have made is removed.

use std::result::Result as StdResult;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::limit::Limit;
use crate::local::turn::LocalRequest;
use crate::queue::call::until_done;
use crate::queue::{Call, HeldNode, Step, Stop, WhoHolds};
use crate::session::acl::Acl;
use crate::session::generation::{CallError, CreateMode, Generation, Node, Operation, Removal};
use crate::session::lease::Refused;
use crate::session::leased_node::{LeasedNode, OnLoss};
use crate::session::nonce;
use crate::session::notifier::{EventMask, Notifier};
use crate::wait::Mode;
use crate::world::{HashSet, Instant};
use zk_wire::path;

const GONE: u8 = 1;
const CHANGED: u8 = 2;
const SESSION: u8 = 4;

/// The notifications about the lock's node.
const OWN: EventMask = EventMask { gone: GONE, changed: CHANGED };

/// A waiter tries again this often, in case an event is lost for a reason that nobody foresaw.
const SAFETY_POLL: Duration = Duration::from_secs(60);

/// One request for the lock.
pub(super) struct ExclusiveRequest<'a> {
    pub(super) local: &'a LocalRequest<'a>,
    /// The lock's node, its full path.
    pub(super) node: &'a str,
    pub(super) acl: &'a Acl,
    /// Somebody had the lock while this request waited for its turn in this process.
    pub(super) contended: bool,
    /// Called with true when the server shows somebody else's node, and with false when that is not
    /// known any more.
    pub(super) on_blocked: &'a dyn Fn(bool),
    /// Makes the function that runs if the lock is lost.
    pub(super) on_loss: &'a dyn Fn() -> OnLoss,
}

pub(super) struct ExclusiveAttempt<'a> {
    request: &'a ExclusiveRequest<'a>,
    call: Call<'a>,
    notifier: Arc<Notifier>,
}

/// Whose node a read has found.
enum Whose {
    /// This attempt's, even if the reply to its create was lost.
    Ours(SeenNode),
    /// An earlier attempt's, which will be deleted.
    PendingDelete,
    Others,
    /// There is no node any more.
    Gone,
}

impl<'a> ExclusiveAttempt<'a> {
    pub(super) fn new(request: &'a ExclusiveRequest<'a>) -> Self {
        let dir = path::parent(request.node);
        let call =
            Call::new(request.local.session.core(), dir, request.local.limit, request.contended);
        let names: for<'n> fn(&[&'n str]) -> Vec<&'n str> = |children| children.to_vec();
        let call = call.reporting(WhoHolds { dir, names, after: request.local.warn_after });
        ExclusiveAttempt { request, call, notifier: Notifier::new() }
    }

    pub(super) fn run(mut self) -> Result<Option<HeldNode>> {
        let core = self.call.core;
        // Register before the first request: an event may arrive before the answer to the read that
        // sets its watch, and a session may be lost before its connection has said so.
        let _session = core.changes.register(
            (),
            &self.notifier,
            EventMask { gone: SESSION, changed: SESSION },
        );
        until_done(self.request.on_blocked, || self.begin())
    }

    /// Creates, waits and is granted the lock under one nonce.
    fn begin(&mut self) -> Step<HeldNode> {
        let node = self.request.node;
        let generation = self.call.connected()?;
        let _node = generation.nodes.register(node.to_owned(), &self.notifier, OWN);
        let mut create_attempt = CreateAttempt::new(generation.clone(), node.to_owned());
        loop {
            match self
                .advance(&mut create_attempt)
                .and_then(|seen| self.grant(&mut create_attempt, &seen))
            {
                Err(Stop::Again) => (self.request.on_blocked)(false),
                end => return end,
            }
        }
    }

    // ---- the steps ----

    /// Creates, and waits while another node is there, until a read behind our create has shown our
    /// node.
    fn advance(&mut self, create_attempt: &mut CreateAttempt) -> Step<SeenNode> {
        let ExclusiveRequest { node, acl, local, .. } = *self.request;
        let LocalRequest { data, mode, limit, .. } = *local;
        loop {
            if limit.is_past() {
                // A request that is sent now would make a node for which no time is left.
                return Err(self.call.stop(node, CallError::Deadline));
            }
            self.notifier.clear(u8::MAX);
            self.call.connected_still(&create_attempt.generation)?;
            let generation = create_attempt.generation.clone();
            let epoch = generation.epoch();
            let pending_deletes = generation.pending_deletes();
            let is_made = match create_attempt.create(data, acl, &limit) {
                Ok(()) => {
                    self.call.progress();
                    true
                }
                Err(CallError::NodeExists) => false,
                Err(CallError::NoNode) => {
                    let dir = path::parent(node);
                    generation
                        .make_parents(dir, acl, &limit)
                        .map_err(|e| self.call.stop(dir, e))?;
                    continue;
                }
                Err(e) => return Err(self.call.stop(node, e)),
            };
            // The notifier is notified of every node of this name. All notifications from before
            // this answer are about a node that is gone. From now on they are about the node that
            // is there now: ours, or the one in our way.
            self.notifier.clear(GONE | CHANGED);
            // If no node of ours can be there, the node in the way is somebody else's, and no read
            // is needed to know that.
            let is_others = !is_made && pending_deletes.is_empty() && !create_attempt.may_exist();
            self.call.is_contended.set(self.call.is_contended.get() || is_others);
            let whose = if is_others && mode == Mode::Try {
                Whose::Others
            } else {
                self.read(create_attempt, is_made, epoch, &pending_deletes)?
            };
            match whose {
                Whose::Ours(seen) => {
                    debug!(
                        "{node}: {}",
                        if is_made { "made" } else { "made, though the reply was lost" }
                    );
                    return Ok(seen);
                }
                _ if is_made => return Err(self.own_gone()),
                Whose::Gone => continue,
                Whose::PendingDelete => debug!("{node}: waiting until our earlier node is deleted"),
                Whose::Others if mode == Mode::Try => return Err(Stop::Busy),
                Whose::Others => {
                    self.call.is_contended.set(true);
                    (self.request.on_blocked)(true);
                    debug!("{node}: waiting until somebody else's node is deleted");
                }
            }
            self.wait(&generation, epoch)?;
            (self.request.on_blocked)(false);
        }
    }

    /// Reads the node that is there, and sets a watch on it.
    fn read(
        &self,
        create_attempt: &CreateAttempt,
        is_made: bool,
        epoch: u64,
        pending_deletes: &HashSet<String>,
    ) -> Step<Whose> {
        let (path, limit) = (self.request.node, &self.call.limit);
        let node = match create_attempt.generation.read(path, true, limit) {
            Ok(node) => node,
            Err(CallError::NoNode) => return Ok(Whose::Gone),
            Err(e) => return Err(self.call.stop(path, e)),
        };
        // The create before this read was answered, so none of our earlier creates can still be
        // done by the server. And no removal of this attempt's node was requested. So a node with
        // our nonce can be held, whichever of our creates has made it, as if the reply to that
        // create came now. After an acknowledged create even our session alone shows that the node
        // is ours: somebody may have overwritten its data, and the nonce in it.
        if create_attempt.made(&node) || is_made && create_attempt.is_of_our_session(&node) {
            return Ok(Whose::Ours(SeenNode { czxid: node.stat.czxid, epoch }));
        }
        // An earlier node of ours may become a pending delete, or be deleted, between our create
        // and this point. So it counts as ours if it was a pending delete before the create or is
        // one now.
        let after = create_attempt.generation.pending_deletes();
        let is_pending_delete =
            |nonce: &str| pending_deletes.contains(nonce) || after.contains(nonce);
        Ok(if nonce::split(&node.data).0.is_some_and(is_pending_delete) {
            Whose::PendingDelete
        } else {
            Whose::Others
        })
    }

    /// Waits until something happens to the node, or to the watch on it.
    fn wait(&self, generation: &Generation, epoch: u64) -> Step<()> {
        while self.call.is_undisturbed(generation, epoch) {
            self.call.progress(); // the node in the way was read, and its watch is set
            match self.call.wait(generation, &self.notifier, Instant::now() + SAFETY_POLL)? {
                Some(events) if events & (GONE | CHANGED) == 0 => {}
                _ => break,
            }
        }
        Ok(())
    }

    fn grant(&self, create_attempt: &mut CreateAttempt, seen: &SeenNode) -> Step<HeldNode> {
        let generation = create_attempt.generation.clone();
        let dir = path::parent(self.request.node);
        let grant = || create_attempt.grant(seen, (self.request.on_loss)());
        self.call.grant(&generation, &self.notifier, OWN, dir, grant, || self.own_gone())
    }

    fn own_gone(&self) -> Stop {
        warn!(
            "{}: our node is gone (deleted by hand, or its session expired); trying again",
            self.request.node
        );
        Stop::Anew
    }
}

/// One attempt to create the lock's node, under one nonce. If it is dropped before it is granted
/// the lock, the node that it may have made is removed.
struct CreateAttempt {
    generation: Arc<Generation>,
    /// The node's full path.
    path: String,
    nonce: String,
    /// A create under this nonce was acknowledged, or its outcome is not known.
    may_exist: bool,
}

/// Our node, as shown by a read that set a watch on it.
struct SeenNode {
    czxid: i64,
    /// The connection on which the watch is set.
    epoch: u64,
}

impl CreateAttempt {
    fn new(generation: Arc<Generation>, path: String) -> Self {
        CreateAttempt { generation, path, nonce: nonce::new(), may_exist: false }
    }

    /// Whether a node in our way can be one that this attempt has made.
    fn may_exist(&self) -> bool {
        self.may_exist
    }

    /// Sends a create. If it fails otherwise than by a refusal, the node may exist: the next create
    /// or the drop of this attempt finds out. If the caller's time is over before the answer, the
    /// connection sees to the node: it removes the node when the answer comes, if this create or
    /// one before it may have made it.
    fn create(&mut self, data: &[u8], acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        let before = std::mem::replace(&mut self.may_exist, true);
        let data = nonce::sign(&self.nonce, data);
        let mut removal = Removal::signed(self.path.clone(), self.nonce.clone(), None);
        removal.may_exist = before;
        let create =
            Operation::Create { path: &self.path, data: &data, acl, mode: CreateMode::Ephemeral };
        let flight = self.generation.flight(&[(create, Some(removal))], limit);
        let made = flight.and_then(|mut answers| answers.take(0)).map(drop);
        match made {
            Ok(()) | Err(CallError::ConnectionLoss | CallError::Other(_)) => {}
            // The connection removes the node when the answer comes. Until then nothing is known of
            // it.
            Err(CallError::Deadline | CallError::Cancelled) => self.may_exist = false,
            // The create was refused, or was never sent.
            Err(_) => self.may_exist = before,
        }
        made
    }

    /// Whether this is the node that this attempt has made.
    fn made(&self, node: &Node) -> bool {
        nonce::split(&node.data).0 == Some(self.nonce.as_str()) && self.is_of_our_session(node)
    }

    fn is_of_our_session(&self, node: &Node) -> bool {
        self.generation.session_id() == Some(node.stat.owner)
    }

    /// Makes the node a held one, if the lease is fresh.
    fn grant(&mut self, seen: &SeenNode, on_loss: OnLoss) -> StdResult<HeldNode, Refused> {
        let leased = LeasedNode::fixed(self.path.clone(), seen.czxid, seen.epoch, on_loss);
        self.generation.grant(&leased)?;
        self.may_exist = false;
        let removal = Removal::signed(self.path.clone(), self.nonce.clone(), Some(seen.czxid));
        Ok(HeldNode::new(&self.generation, leased, removal))
    }
}

impl Drop for CreateAttempt {
    fn drop(&mut self) {
        if self.may_exist {
            let (path, nonce) = (std::mem::take(&mut self.path), std::mem::take(&mut self.nonce));
            self.generation.remove(Removal::signed(path, nonce, None));
        }
    }
}
