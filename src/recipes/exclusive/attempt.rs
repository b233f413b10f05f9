//! One request for the lock: make its node, or wait until whoever's it is has gone and try again.

use std::sync::Arc;
use std::time::Duration;

use super::create_attempt::{CreateAttempt, Sight};
use crate::clock::BootTime;
use crate::error::Result;
use crate::limit::Limit;
use crate::queue::{Call, HeldNode, Mode, Step, Stop};
use crate::session::acl::Acl;
use crate::session::core::Core;
use crate::session::generation::{CallError, Generation};
use crate::session::leased_node::OnLoss;
use crate::session::nonce;
use crate::session::notifier::{EventMask, Notifier};
use crate::world::{HashSet, Instant};
use zk_wire::path;

const GONE: u8 = 1;
const CHANGED: u8 = 2;
const SESSION: u8 = 4;

/// A waiter tries again this often, in case an event was lost for a reason nobody knows.
const SAFETY_POLL: Duration = Duration::from_secs(60);

/// What one request brings along.
pub(super) struct ExclusiveRequest<'a> {
    pub(super) core: &'a Core,
    /// The lock's node, its full path.
    pub(super) node: &'a str,
    pub(super) acl: &'a Acl,
    pub(super) data: &'a [u8],
    pub(super) mode: Mode,
    pub(super) limit: Limit<'a>,
    /// Somebody had the lock while this request waited for its turn here.
    pub(super) contended: bool,
    /// Told when the server shows somebody else's node (true), and when that must be asked anew
    /// (false).
    pub(super) on_blocked: &'a dyn Fn(bool),
    /// Makes what is run if the hold is lost.
    pub(super) on_loss: &'a dyn Fn() -> OnLoss,
}

pub(super) struct ExclusiveAttempt<'a> {
    request: &'a ExclusiveRequest<'a>,
    call: Call<'a>,
    notifier: Arc<Notifier>,
}

/// Whose node is in the way.
enum Whose {
    /// This create_attempt's, even if the reply to its create was lost.
    OfAttempt(Sight),
    /// Another one of ours, on its way out.
    Debris,
    Others,
    /// It went meanwhile.
    Nobodys,
}

impl<'a> ExclusiveAttempt<'a> {
    pub(super) fn new(request: &'a ExclusiveRequest<'a>) -> Self {
        let dir = path::parent(request.node);
        let call = Call::new(request.core, dir, request.limit, request.contended);
        ExclusiveAttempt { request, call, notifier: Notifier::new() }
    }

    pub(super) fn run(mut self) -> Result<Option<HeldNode>> {
        let core = self.request.core;
        // From before anything is asked: an event may come before the answer to the read that armed
        // its watch, and a session may be lost before its connection has said so.
        let _session = core.changes.register(
            (),
            &self.notifier,
            EventMask { gone: SESSION, changed: SESSION },
        );
        loop {
            match self.begin() {
                Ok(held_node) => return Ok(Some(held_node)),
                Err(Stop::Again | Stop::Anew) => (self.request.on_blocked)(false),
                Err(Stop::Busy) => return Ok(None),
                Err(Stop::Fail(e)) => return Err(e),
            }
        }
    }

    /// Goes on under one nonce.
    fn begin(&mut self) -> Step<HeldNode> {
        let node = self.request.node;
        let generation = self.call.connected()?;
        let mask = EventMask { gone: GONE, changed: CHANGED };
        let _node = generation.nodes.register(node.to_owned(), &self.notifier, mask);
        let mut create_attempt = CreateAttempt::new(generation.clone(), node.to_owned());
        loop {
            match self
                .advance(&mut create_attempt)
                .and_then(|sight| self.grant(&mut create_attempt, &sight))
            {
                Err(Stop::Again) => (self.request.on_blocked)(false),
                end => return end,
            }
        }
    }

    // ---- the steps ----

    /// Creates until a node of ours stands: until it is seen, behind its create.
    fn advance(&mut self, create_attempt: &mut CreateAttempt) -> Step<Sight> {
        let ExclusiveRequest { node, acl, data, mode, limit, .. } = *self.request;
        loop {
            if limit.is_past() {
                // nothing is sent for nothing
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
            // The notifier hears of every node of this name. What rang until the create was answered
            // was about one that is gone; from now on it is about the one that stands: ours, or the
            // one that is in our way.
            self.notifier.clear(GONE | CHANGED);
            // Where nothing of ours was about, what was in the way is somebody else's: the read
            // need not say so.
            let is_others = !is_made && pending_deletes.is_empty() && !create_attempt.may_exist();
            self.call.is_contended.set(self.call.is_contended.get() || is_others);
            let whose = if is_others && mode == Mode::Try {
                Whose::Others
            } else {
                self.look(create_attempt, is_made, epoch, &pending_deletes)?
            };
            match whose {
                Whose::OfAttempt(sight) => {
                    debug!(
                        "{node}: {}",
                        if is_made { "made" } else { "made, though the reply was lost" }
                    );
                    return Ok(sight);
                }
                _ if is_made => return Err(self.own_gone()),
                Whose::Nobodys => continue,
                Whose::Debris => debug!("{node}: waiting for an earlier node of ours to go"),
                Whose::Others if mode == Mode::Try => return Err(Stop::Busy),
                Whose::Others => {
                    self.call.is_contended.set(true);
                    (self.request.on_blocked)(true);
                    debug!("{node}: waiting for it to go");
                }
            }
            self.wait(&generation, epoch)?;
            (self.request.on_blocked)(false);
        }
    }

    /// Reads the node that stands, and leaves a watch on it.
    fn look(
        &self,
        create_attempt: &CreateAttempt,
        is_made: bool,
        epoch: u64,
        pending_deletes: &HashSet<String>,
    ) -> Step<Whose> {
        let ExclusiveRequest { node: path, limit, .. } = self.request;
        let node = match create_attempt.generation.read(path, true, limit) {
            Ok(node) => node,
            Err(CallError::NoNode) => return Ok(Whose::Nobodys),
            Err(e) => return Err(self.call.stop(path, e)),
        };
        // The answer that led here was acknowledged: no earlier create can still be done. And
        // nobody was asked to remove the node while this create_attempt lives. So it may be had whichever
        // create has made it: it is as if that one's reply had come now. Behind an acknowledged
        // create it is ours by its session, whatever somebody has written to it since.
        if create_attempt.made(&node) || is_made && create_attempt.is_of_our_session(&node) {
            return Ok(Whose::OfAttempt(Sight { czxid: node.stat.czxid, epoch }));
        }
        // Ours may become pending_deletes, or be gone, between the create and the look at what is known of
        // it.
        let after = create_attempt.generation.pending_deletes();
        let is_pending_delete =
            |nonce: &str| pending_deletes.contains(nonce) || after.contains(nonce);
        Ok(if nonce::split(&node.data).0.is_some_and(is_pending_delete) {
            Whose::Debris
        } else {
            Whose::Others
        })
    }

    /// Waits until something happens to the node, or to the watch on it.
    fn wait(&self, generation: &Generation, epoch: u64) -> Step<()> {
        while self.call.is_undisturbed(generation, epoch) {
            self.call.progress(); // the one in the way is there, and watched
            match self.call.wait(generation, &self.notifier, Instant::now() + SAFETY_POLL)? {
                Some(events) if events & (GONE | CHANGED) == 0 => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Makes our node a hold; what remains is to show that it and its session live.
    fn grant(&mut self, create_attempt: &mut CreateAttempt, sight: &Sight) -> Step<HeldNode> {
        let ExclusiveRequest { node, on_loss, .. } = self.request;
        loop {
            if self.notifier.events() & GONE != 0 {
                return Err(self.own_gone());
            }
            match create_attempt.grant(sight, on_loss()) {
                Ok((held_node, hold)) => {
                    // An event that came before the hold was there to hear it.
                    let events = self.notifier.events();
                    if events & GONE != 0 {
                        create_attempt.generation.lease.node_gone(&hold, BootTime::now());
                    } else if events & CHANGED != 0 {
                        held_node.watch_again();
                    }
                    debug!("{node}: held");
                    return Ok(held_node);
                }
                Err(refused) => {
                    self.call.renew(&refused, &create_attempt.generation, path::parent(node))?
                }
            }
        }
    }

    fn own_gone(&self) -> Stop {
        warn!("{}: our node was deleted by somebody; trying again", self.request.node);
        Stop::Anew
    }
}
