//! One request for the exclusive lock: it creates the lock's node, or waits until somebody else's
//! node is gone and tries again. `lock.rs` calls it when a thread has its turn.
//!
//! All clients use one node name, so a node is known by the nonce in its data, and by its session.
//! If the request ends without a hold, whatever node it may have made is removed.

use std::result::Result as StdResult;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::queue::Settings;
use crate::queue::name::NodeKey;
use crate::queue::request::Mode;
use crate::queue::request::until_done;
use crate::queue::{
    Callbacks, HeldNode, NewNode, OnLoss, Request, SAFETY_POLL, Step, Stop, Watches, WhoHolds, rule,
};
use zk_session::Acl;
use zk_session::unstable::{
    CallError, CreateMode, EventMask, Generation, Limit, NodeWatch, Notifier, Operation, Refused,
    Removal, nonce,
};
use zk_session::world::{HashSet, Instant};
use zk_wire::path;

const GONE: u8 = 1;
const CHANGED: u8 = 2;
const SESSION: u8 = 4;

/// The notifications about the lock's node.
const OWN: EventMask = EventMask { gone: GONE, changed: CHANGED };

struct ExclusiveAttempt<'a> {
    request: &'a Request<'a>,
    /// The lock's node, its full path.
    node: &'a str,
    callbacks: &'a Callbacks<'a>,
    notifier: Arc<Notifier>,
}

/// Whose node a read has found.
enum Whose {
    /// This attempt's.
    Ours(SeenNode),
    /// An earlier attempt's, which will be deleted.
    PendingDelete,
    Others,
    /// There is no node any more.
    Gone,
}

/// Creates the lock's node `node`, a full path, or waits until it can. `None`: somebody else has
/// the lock.
pub(super) fn acquire(
    request: &Request<'_>,
    node: &str,
    callbacks: &Callbacks<'_>,
) -> Result<Option<HeldNode>> {
    let mut attempt = ExclusiveAttempt { request, node, callbacks, notifier: Notifier::new() };
    let notifier = attempt.notifier.clone();
    // Register before the first request: an event may arrive before the answer to the read that
    // sets its watch, and a session may be lost before its connection has said so.
    let mask = EventMask { gone: SESSION, changed: SESSION };
    let _session = request.core().changes.register((), &notifier, mask);
    until_done(callbacks.on_blocked, || attempt.begin())
}

impl ExclusiveAttempt<'_> {
    /// Creates, waits and is granted the lock under one nonce.
    fn begin(&mut self) -> Step<HeldNode> {
        let node = self.node;
        let generation = self.request.connected()?;
        self.request.may_delete_in(&generation, path::parent(node))?;
        let _node = generation.nodes.register(node.to_owned(), &self.notifier, OWN);
        let mut create_attempt = CreateAttempt::new(generation.clone(), node.to_owned());
        loop {
            match self
                .advance(&mut create_attempt)
                .and_then(|seen| self.grant(&mut create_attempt, &seen))
            {
                Err(Stop::Again) => (self.callbacks.on_blocked)(false),
                end => return end,
            }
        }
    }

    // ---- the steps ----

    /// Creates, and waits while another node is there, until a read behind our create has shown our
    /// node.
    fn advance(&mut self, create_attempt: &mut CreateAttempt) -> Step<SeenNode> {
        let ExclusiveAttempt { node, request, .. } = *self;
        let (settings, limit) = (request.settings, &request.limit());
        let Settings { acl, data, .. } = settings;
        let is_try = request.mode == Mode::Try;
        loop {
            if limit.is_past() {
                // A request that is sent now would make a node for which no time is left.
                return Err(self.request.stop(node, CallError::Deadline));
            }
            self.notifier.clear(u8::MAX);
            self.request.connected_still(&create_attempt.generation)?;
            let generation = create_attempt.generation.clone();
            let epoch = generation.epoch();
            let pending_deletes = generation.pending_deletes();
            let was_made = create_attempt.made.is_some();
            match create_attempt.create(data, acl, limit) {
                Ok(()) if was_made => {}
                Ok(()) => self.request.progress(),
                Err(CallError::NodeExists) => {}
                Err(e) => return Err(self.request.stop(node, e)),
            }
            let is_made = create_attempt.made.is_some();
            // The notifier is notified of every node of this name. All notifications from before
            // this answer are about a node that is gone. From now on they are about the node that
            // is there now: ours, or the one in our way.
            self.notifier.clear(GONE | CHANGED);
            // If no node of ours can be there, the node in the way is somebody else's, and no read
            // is needed to know that. The leader has given this answer, and a quorum has committed
            // it as it commits a write: so neither the answer nor a read behind it is of the past,
            // and neither needs a `sync`.
            let is_others = !is_made && pending_deletes.is_empty();
            if is_others {
                self.request.call.found_contention();
                if is_try {
                    return Err(Stop::Busy);
                }
            }
            loop {
                let mut longest = SAFETY_POLL;
                match self.read(create_attempt, epoch, &pending_deletes)? {
                    Whose::Ours(seen) => {
                        debug!("{node}: made");
                        return Ok(seen);
                    }
                    _ if is_made => return Err(self.own_gone()),
                    Whose::Gone => break,
                    Whose::PendingDelete => {
                        debug!("{node}: waiting until our earlier node is deleted");
                        self.request.may_delete_in(&generation, path::parent(node))?;
                        longest = settings.operation_timeout(); // the delete may be refused
                    }
                    Whose::Others if is_try => return Err(Stop::Busy),
                    Whose::Others => {
                        self.request.contended();
                        (self.callbacks.on_blocked)(true);
                        debug!("{node}: waiting until somebody else's node is deleted");
                    }
                }
                // A holder writes to its node before it deletes it. So a node that has changed is
                // read again, and no create is tried in vain.
                if !self.wait(&generation, epoch, longest)? {
                    break;
                }
            }
            (self.callbacks.on_blocked)(false);
        }
    }

    /// Reads the node that is there, and sets a watch on it.
    fn read(
        &self,
        create_attempt: &CreateAttempt,
        epoch: u64,
        pending_deletes: &HashSet<String>,
    ) -> Step<Whose> {
        let (path, limit) = (self.node, &self.request.limit());
        let node = match create_attempt.generation.read(path, true, limit) {
            Ok(node) => node,
            Err(CallError::NoNode) => return Ok(Whose::Gone),
            Err(e) => return Err(self.request.stop(path, e)),
        };
        // Somebody may have overwritten the node's data, and the nonce in it. The czxid stays.
        if create_attempt.made == Some(node.stat.czxid) {
            return Ok(Whose::Ours(SeenNode { czxid: node.stat.czxid, epoch }));
        }
        // The node may be an earlier one of ours that is about to be deleted; then nobody else is
        // in the way. The pending deletes show that, if they are looked at twice. A guard may be
        // dropped behind our create: then its node is a pending delete only now. And the delete may
        // be acknowledged behind the read above: then its node was one only before the create.
        let after = create_attempt.generation.pending_deletes();
        let is_pending_delete =
            |nonce: &str| pending_deletes.contains(nonce) || after.contains(nonce);
        let nonce = nonce::split(&node.data).0.or_else(|| nonce::released(&node.data));
        Ok(if nonce.is_some_and(is_pending_delete) { Whose::PendingDelete } else { Whose::Others })
    }

    /// Waits until something happens to the node, or to the watch on it. True: the node has
    /// changed.
    fn wait(&self, generation: &Generation, epoch: u64, longest: Duration) -> Step<bool> {
        let who_holds = WhoHolds { dir: path::parent(self.node), names: rule::all_holders };
        let watches = Watches { generation, epoch, notifier: &self.notifier, who_holds };
        let changed = self.request.until_event(&watches, Instant::now() + longest, |events| {
            Ok((events & (GONE | CHANGED) != 0).then_some(events & GONE == 0))
        });
        Ok(changed?.unwrap_or(false))
    }

    fn grant(&self, create_attempt: &mut CreateAttempt, seen: &SeenNode) -> Step<HeldNode> {
        let generation = create_attempt.generation.clone();
        let grant = || create_attempt.grant(seen, self.callbacks.on_loss);
        self.request.grant(&generation, &self.notifier, OWN, grant, || self.own_gone())
    }

    fn own_gone(&self) -> Stop {
        warn!(
            "{}: our node is gone (deleted by hand, or its session expired); trying again",
            self.node
        );
        Stop::Anew
    }
}

/// One attempt to create the lock's node. If it is dropped before it is granted the lock, the node
/// that it has made is removed.
struct CreateAttempt {
    generation: Arc<Generation>,
    /// The node's full path.
    path: String,
    /// A node with this nonce is made at most once.
    nonce: String,
    /// The czxid of the node, once the create under this nonce was acknowledged.
    made: Option<i64>,
}

/// Our node, as shown by a read that set a watch on it.
struct SeenNode {
    czxid: i64,
    /// The connection on which the watch is set.
    epoch: u64,
}

impl CreateAttempt {
    fn new(generation: Arc<Generation>, path: String) -> Self {
        CreateAttempt { generation, path, nonce: nonce::new(), made: None }
    }

    /// Makes the node, unless an acknowledged create has made it.
    ///
    /// If the answer is lost, or the caller's time is over before it comes, the connection removes
    /// the node that the create may make. That create may still be done much later, so its nonce is
    /// not used again: the node of a later create must not be taken for that one.
    fn create(&mut self, data: &[u8], acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        if self.made.is_some() {
            return Ok(());
        }
        let nonce = nonce::new();
        let data = nonce::sign(&nonce, data);
        let removal = Removal::signed(self.path.clone(), nonce.clone(), None);
        let create =
            Operation::Create { path: &self.path, data: &data, acl, mode: CreateMode::Ephemeral };
        let (folder, create) = (path::parent(&self.path), [(create, Some(removal))]);
        let flight = self.generation.flight_in(folder, None, acl, &create, limit);
        let (_, czxid) = flight.and_then(|mut answers| answers.take(0)?.created())?;
        (self.nonce, self.made) = (nonce, Some(czxid));
        Ok(())
    }

    /// Makes the node a held one, if the lease is fresh.
    fn grant(
        &mut self,
        seen: &SeenNode,
        on_loss: &dyn Fn(NodeKey) -> OnLoss,
    ) -> StdResult<HeldNode, Refused> {
        let node = NewNode {
            path: &self.path,
            is_fixed: true,
            czxid: seen.czxid,
            watch: NodeWatch::On(seen.epoch),
            data: &[],
            removal: Removal::signed(self.path.clone(), self.nonce.clone(), Some(seen.czxid)),
        };
        let held_node = HeldNode::grant(&self.generation, node, on_loss)?;
        self.made = None;
        Ok(held_node)
    }
}

impl Drop for CreateAttempt {
    fn drop(&mut self) {
        if let Some(czxid) = self.made {
            let (path, nonce) = (std::mem::take(&mut self.path), std::mem::take(&mut self.nonce));
            self.generation.remove(Removal::signed(path, nonce, Some(czxid)));
        }
    }
}
