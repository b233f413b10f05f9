//! One request for the lock: make its node, or wait until whoever's it is has gone and try again.

use std::sync::Arc;
use std::time::Duration;

use super::bid::{Bid, Sight};
use crate::clock::BootTime;
use crate::error::Result;
use crate::limit::Limit;
use crate::queue::{Call, Holding, Mode, Step, Stop};
use crate::session::acl::Acl;
use crate::session::bell::{Bell, Causes};
use crate::session::core::Core;
use crate::session::generation::{CallError, Generation};
use crate::session::hold::OnLoss;
use crate::session::nonce;
use crate::world::{HashSet, Instant};
use zk_wire::path;

const GONE: u8 = 1;
const CHANGED: u8 = 2;
const SESSION: u8 = 4;

/// A waiter tries again this often, in case an event was lost for a reason nobody knows.
const SAFETY_POLL: Duration = Duration::from_secs(60);

/// What one request brings along.
pub(super) struct Request<'a> {
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

pub(super) struct Attempt<'a> {
    request: &'a Request<'a>,
    call: Call<'a>,
    bell: Arc<Bell>,
}

/// Whose node is in the way.
enum Whose {
    /// This bid's, even if the reply to its create was lost.
    Bids(Sight),
    /// Another one of ours, on its way out.
    Debris,
    Others,
    /// It went meanwhile.
    Nobodys,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a Request<'a>) -> Self {
        let dir = path::parent(request.node);
        let call = Call::new(request.core, dir, request.limit, request.contended);
        Attempt { request, call, bell: Bell::new() }
    }

    pub(super) fn run(mut self) -> Result<Option<Holding>> {
        let core = self.request.core;
        // From before anything is asked: an event may come before the answer to the read that armed
        // its watch, and a session may be lost before its connection has said so.
        let _session =
            core.changes.register((), &self.bell, Causes { gone: SESSION, changed: SESSION });
        loop {
            match self.begin() {
                Ok(holding) => return Ok(Some(holding)),
                Err(Stop::Again | Stop::Anew) => (self.request.on_blocked)(false),
                Err(Stop::Busy) => return Ok(None),
                Err(Stop::Fail(e)) => return Err(e),
            }
        }
    }

    /// Goes on under one nonce.
    fn begin(&mut self) -> Step<Holding> {
        let node = self.request.node;
        let generation = self.call.connected()?;
        let causes = Causes { gone: GONE, changed: CHANGED };
        let _node = generation.nodes.register(node.to_owned(), &self.bell, causes);
        let mut bid = Bid::new(generation.clone(), node.to_owned());
        loop {
            match self.advance(&mut bid).and_then(|sight| self.grant(&mut bid, &sight)) {
                Err(Stop::Again) => (self.request.on_blocked)(false),
                end => return end,
            }
        }
    }

    // ---- the steps ----

    /// Creates until a node of ours stands: until it is seen, behind its create.
    fn advance(&mut self, bid: &mut Bid) -> Step<Sight> {
        let Request { node, acl, data, mode, limit, .. } = *self.request;
        loop {
            if limit.is_past() {
                // nothing is sent for nothing
                return Err(self.call.stop(node, CallError::Deadline));
            }
            self.bell.hush(u8::MAX);
            self.call.connected_still(&bid.generation)?;
            let generation = bid.generation.clone();
            let epoch = generation.epoch();
            let debris = generation.pending_deletes();
            let is_made = match bid.create(data, acl, &limit) {
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
            // The bell hears of every node of this name. What rang until the create was answered
            // was about one that is gone; from now on it is about the one that stands: ours, or the
            // one that is in our way.
            self.bell.hush(GONE | CHANGED);
            // Where nothing of ours was about, what was in the way is somebody else's: the read
            // need not say so.
            let is_others = !is_made && debris.is_empty() && !bid.may_exist();
            self.call.is_contended.set(self.call.is_contended.get() || is_others);
            let whose = if is_others && mode == Mode::Try {
                Whose::Others
            } else {
                self.look(bid, is_made, epoch, &debris)?
            };
            match whose {
                Whose::Bids(sight) => {
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
    fn look(&self, bid: &Bid, is_made: bool, epoch: u64, debris: &HashSet<String>) -> Step<Whose> {
        let Request { node: path, limit, .. } = self.request;
        let node = match bid.generation.read(path, true, limit) {
            Ok(node) => node,
            Err(CallError::NoNode) => return Ok(Whose::Nobodys),
            Err(e) => return Err(self.call.stop(path, e)),
        };
        // The answer that led here was acknowledged: no earlier create can still be done. And
        // nobody was asked to remove the node while this bid lives. So it may be had whichever
        // create has made it: it is as if that one's reply had come now. Behind an acknowledged
        // create it is ours by its session, whatever somebody has written to it since.
        if bid.made(&node) || is_made && bid.is_of_our_session(&node) {
            return Ok(Whose::Bids(Sight { czxid: node.stat.czxid, epoch }));
        }
        // Ours may become debris, or be gone, between the create and the look at what is known of
        // it.
        let after = bid.generation.pending_deletes();
        let is_debris = |nonce: &str| debris.contains(nonce) || after.contains(nonce);
        Ok(if nonce::split(&node.data).0.is_some_and(is_debris) {
            Whose::Debris
        } else {
            Whose::Others
        })
    }

    /// Waits until something happens to the node, or to the watch on it.
    fn wait(&self, generation: &Generation, epoch: u64) -> Step<()> {
        while self.call.is_undisturbed(generation, epoch) {
            self.call.progress(); // the one in the way is there, and watched
            match self.call.wait(generation, &self.bell, Instant::now() + SAFETY_POLL)? {
                Some(rung) if rung & (GONE | CHANGED) == 0 => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Makes our node a hold; what remains is to show that it and its session live.
    fn grant(&mut self, bid: &mut Bid, sight: &Sight) -> Step<Holding> {
        let Request { node, on_loss, .. } = self.request;
        loop {
            if self.bell.rung() & GONE != 0 {
                return Err(self.own_gone());
            }
            match bid.grant(sight, on_loss()) {
                Ok((holding, hold)) => {
                    // An event that came before the hold was there to hear it.
                    let rung = self.bell.rung();
                    if rung & GONE != 0 {
                        bid.generation.lease.gone(&hold, BootTime::now());
                    } else if rung & CHANGED != 0 {
                        holding.watch_again();
                    }
                    debug!("{node}: held");
                    return Ok(holding);
                }
                Err(refused) => self.call.renew(&refused, &bid.generation, path::parent(node))?,
            }
        }
    }

    fn own_gone(&self) -> Stop {
        warn!("{}: our node was deleted by somebody; trying again", self.request.node);
        Stop::Anew
    }
}
