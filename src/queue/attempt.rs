//! One request's way through the queue: make a node, see who is ahead, wait, hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failure::failure;
use super::name::{self, Kind, Name};
use super::rule::{self, Claim, Verdict};
use super::strategy::WaitStrategy;
use super::ticket::Ticket;
use super::{Contender, Holding, Mode, Queue, Request};
use crate::clock::BootTime;
use crate::error::{Cause, Error, Result};
use crate::limit::{Ended, Limit};
use crate::session::SessionState;
use crate::session::bell::{Bell, Causes};
use crate::session::generation::{CallError, Generation, Node, Operation, Settle};
use crate::session::lease::Refused;
use crate::session::path;
use crate::session::retry::Retry;

pub(super) const OWN_GONE: u8 = 1;
pub(super) const OWN_CHANGED: u8 = 2;
pub(super) const AHEAD_GONE: u8 = 4;
pub(super) const AHEAD_CHANGED: u8 = 8;
pub(super) const SESSION: u8 = 16;

/// A waiter this old watches its own node too, to notice if somebody deletes it.
const OWN_WATCH_AFTER: Duration = Duration::from_millis(50);

/// A waiter reads the queue again this often, in case an event was lost for a reason nobody knows.
const SAFETY_POLL: Duration = Duration::from_secs(60);

pub(super) struct Attempt<'a> {
    pub(super) queue: &'a Queue,
    pub(super) request: &'a Request<'a>,
    pub(super) bell: Arc<Bell>,
    retry: Retry,
    /// Somebody else's live contender was listed ahead of us.
    seen_ahead: bool,
}

/// Why a step did not lead on.
pub(super) enum Stop {
    /// Somebody is ahead, and the request goes no further.
    Busy,
    Fail(Error),
    /// The connection was lost: read the queue again.
    Again,
    /// Our node is gone, or its session: begin anew.
    Requeue,
}

pub(super) type Step<T> = std::result::Result<T, Stop>;

/// Whom a listing shows ahead of us.
pub(super) struct Ahead {
    pub(super) path: String,
    pub(super) sole: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(queue: &'a Queue, request: &'a Request<'a>) -> Self {
        let retry = if request.endures.is_some() { Retry::enduring() } else { Retry::new() };
        Attempt { queue, request, bell: Bell::new(), retry, seen_ahead: request.contended }
    }

    pub(super) fn run(mut self) -> Result<Option<Holding>> {
        if self.request.mode == Mode::Try && self.is_taken()? {
            return Ok(None);
        }
        'anew: loop {
            if self.request.limit.is_past() {
                // Nothing is sent for nothing.
                return match self.stop(&self.queue.dir, CallError::Deadline) {
                    Stop::Fail(e) => Err(e),
                    _ => Ok(None),
                };
            }
            let generation = self.connected()?;
            self.bell.hush(u8::MAX);
            // Registered before the first watch: an event that arrives between two waits would
            // otherwise be dropped, and its watch, already used up, would be taken for an armed one.
            let _parent = (self.queue.strategy == WaitStrategy::Parent).then(|| {
                let causes = Causes { gone: AHEAD_CHANGED, changed: AHEAD_CHANGED };
                generation.nodes.register(self.queue.dir.clone(), &self.bell, causes)
            });
            let mut ticket = match self.enqueue(&generation) {
                Ok(ticket) => ticket,
                Err(Stop::Again | Stop::Requeue) => continue,
                Err(Stop::Busy) => return Ok(None),
                Err(Stop::Fail(e)) => return Err(e),
            };
            let causes = Causes { gone: OWN_GONE, changed: OWN_CHANGED };
            let _own = generation.nodes.register(ticket.path.clone(), &self.bell, causes);
            loop {
                match self.advance(&mut ticket).and_then(|()| self.grant(&mut ticket)) {
                    Ok(holding) => return Ok(Some(holding)),
                    Err(Stop::Again) => (self.request.on_blocked)(false),
                    Err(Stop::Requeue) => {
                        (self.request.on_blocked)(false);
                        continue 'anew;
                    }
                    Err(Stop::Busy) => return Ok(None),
                    Err(Stop::Fail(e)) => return Err(e),
                }
            }
        }
    }

    // ---- the steps ----

    /// For those who only try: one read, and no write while somebody else is in the queue.
    fn is_taken(&mut self) -> Result<bool> {
        loop {
            let generation = self.connected()?;
            let listed = match generation.children(&self.queue.dir, false, &self.request.limit) {
                Ok(listed) => listed,
                Err(CallError::NoNode) => return Ok(false),
                Err(e) => match self.stop(&self.queue.dir, e) {
                    Stop::Fail(e) => return Err(e),
                    Stop::Busy => return Ok(true),
                    Stop::Again | Stop::Requeue => continue,
                },
            };
            let claim = Claim::of(self.request.kind);
            let blocks = |name: &Name<'_>| claim.yields_to(name.kind) && !listed.pending.contains(name.id);
            return Ok(self.queue.parse(&listed.children.names()).iter().any(blocks));
        }
    }

    /// Puts a node of ours in the queue, and lists the queue behind it.
    fn enqueue(&mut self, generation: &Arc<Generation>) -> Step<Ticket> {
        let Queue { dir, layout, acl, strategy, .. } = self.queue;
        let limit = &self.request.limit;
        let watch = *strategy == WaitStrategy::Parent && self.request.mode == Mode::Wait;
        let id = name::new_id(*layout);
        (self.request.on_id)(&id);
        let prefix = path::join(dir, &name::prefix(*layout, self.request.kind, &id));
        loop {
            match generation.enter(&prefix, &id, self.request.data, acl, watch, limit) {
                Ok((created, listed)) => {
                    let sequence = name::parse(path::name(&created.path)).map_or(0, |own| own.sequence);
                    let mut ticket = Ticket::new(generation.clone(), created, id, sequence);
                    // Without the listing the queue is listed again.
                    ticket.listed = listed.ok();
                    debug!("{}: queued", ticket.path);
                    self.retry.progress();
                    return Ok(ticket);
                }
                Err(CallError::NoNode) => match self.queue.make(generation, limit) {
                    Ok(()) => {}
                    Err(e) => return Err(self.stop(dir, e)),
                },
                Err(e) => return Err(self.stop(dir, e)),
            }
        }
    }

    /// Reads the queue and waits until nobody is ahead.
    fn advance(&mut self, ticket: &mut Ticket) -> Step<()> {
        loop {
            let generation = self.connected().map_err(Stop::Fail)?;
            if generation.number != ticket.generation.number {
                return Err(Stop::Requeue);
            }
            let is_first = match self.queue.strategy {
                WaitStrategy::Predecessor => self.behind_predecessor(ticket)?,
                WaitStrategy::Parent => self.before_parent(ticket)?,
            };
            if is_first {
                return Ok(());
            }
        }
    }

    /// Somebody is listed ahead of us: for those who only try that is the end.
    pub(super) fn blocked(&mut self) -> Step<()> {
        self.seen_ahead = true;
        if self.request.mode == Mode::Try {
            return Err(Stop::Busy);
        }
        (self.request.on_blocked)(true);
        Ok(())
    }

    /// Lists the queue, if the listing is not there that came with our node: who is just ahead of it,
    /// and on which connection was that seen? `watch` leaves a watch on the list.
    pub(super) fn look(&self, ticket: &mut Ticket, watch: bool) -> Step<(Option<Ahead>, u64)> {
        let Queue { dir, .. } = self.queue;
        let listed = match ticket.listed.take() {
            Some(listed) => Ok(listed),
            None => ticket.generation.children(dir, watch, &self.request.limit),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(CallError::NoNode) => return Err(Stop::Requeue),
            Err(e) => return Err(self.stop(dir, e)),
        };
        let children = listed.children.names();
        let names = self.queue.parse(&children);
        let is_debris = |id: &str| listed.pending.contains(id);
        let claim = Claim::of(self.request.kind);
        let ordered;
        let verdict = if rule::unordered(&names) {
            self.queue.warn_numbers();
            ordered = self.by_czxid(&ticket.generation, names)?;
            rule::verdict_in_order(&ordered, ticket.name(), claim, &is_debris)
        } else {
            rule::verdict(&names, ticket.name(), claim, &is_debris)
        };
        match verdict {
            Verdict::Held => Ok((None, listed.epoch)),
            Verdict::Gone => Err(Stop::Requeue),
            Verdict::Wait { predecessor, sole } => {
                let ahead = Ahead { path: path::join(dir, predecessor.full), sole };
                Ok((Some(ahead), listed.epoch))
            }
        }
    }

    /// The queue's order where its numbers carry none: one read for each of the contenders concerned.
    fn by_czxid<'n>(&self, generation: &Generation, names: Vec<Name<'n>>) -> Step<Vec<Name<'n>>> {
        let mut dated = Vec::with_capacity(names.len());
        for name in names {
            if !rule::is_unordered(name.sequence) {
                dated.push((name, None));
                continue;
            }
            let path = path::join(&self.queue.dir, name.full);
            match generation.czxid(&path, &self.request.limit) {
                Ok(czxid) => dated.push((name, czxid)),
                Err(e) => return Err(self.stop(&path, e)),
            }
        }
        Ok(rule::order_by_czxid(dated))
    }

    /// Arms the watch on our own node, if it is not armed on this connection.
    pub(super) fn watch_own(&self, ticket: &mut Ticket, epoch: u64) -> Step<()> {
        if ticket.armed_on == epoch {
            return Ok(());
        }
        let read = Operation::GetData { path: &ticket.path, watch: true };
        let answers = ticket.generation.flight(&[(read, Settle::Nothing)], &self.request.limit);
        self.own_watched(
            ticket,
            answers.and_then(|mut answers| Ok((answers.take(0)?.node()?, answers.epoch))),
        )
    }

    /// Takes what a read of our own node says that leaves a watch on it, and the connection it stands on.
    pub(super) fn own_watched(
        &self,
        ticket: &mut Ticket,
        read: std::result::Result<(Node, u64), CallError>,
    ) -> Step<()> {
        match read {
            Ok((node, epoch)) => {
                ticket.armed_on = epoch;
                ticket.data = node.data;
                Ok(())
            }
            Err(CallError::NoNode) => Err(Stop::Requeue),
            Err(e) => Err(self.stop(&ticket.path, e)),
        }
    }

    fn own_gone(&self, ticket: &Ticket) -> Stop {
        warn!("{}: our waiting node was deleted by somebody; queueing again", ticket.path);
        Stop::Requeue
    }

    /// Waits, with watches that stand on the connection `epoch`, until a notification comes for which
    /// `outcome` gives a value, and gives that value. Also gives false if our own node or the session
    /// has changed: then the queue must be listed again, whatever the strategy.
    pub(super) fn until_changed(
        &self,
        ticket: &mut Ticket,
        epoch: u64,
        outcome: impl Fn(&Ticket, u8) -> Option<bool>,
    ) -> Step<bool> {
        let generation = ticket.generation.clone();
        let limit = &self.request.limit;
        let mut look_after_own = true;
        let mut until = Instant::now() + OWN_WATCH_AFTER;
        loop {
            let rung = match self.bell.wait(&limit.or_at(until)) {
                Ended::Got(rung) => rung,
                Ended::Deadline if !limit.is_past() && look_after_own => {
                    look_after_own = false;
                    until = Instant::now() + SAFETY_POLL;
                    self.watch_own(ticket, epoch)?;
                    self.retry.progress(); // all that a waiter needs is in place
                    continue;
                }
                Ended::Deadline if !limit.is_past() => return Ok(false),
                Ended::Deadline | Ended::Disconnected => {
                    return Err(self.stop(&self.queue.dir, CallError::Deadline));
                }
                Ended::Cancelled => return Err(self.stop(&self.queue.dir, CallError::Cancelled)),
            };
            if rung & !SESSION != 0 {
                self.retry.progress();
            }
            if rung & OWN_GONE != 0 {
                return Err(self.own_gone(ticket));
            }
            if rung & OWN_CHANGED != 0 {
                ticket.armed_on = 0;
                return Ok(false);
            }
            if let Some(outcome) = outcome(ticket, rung) {
                return Ok(outcome);
            }
            if rung & SESSION != 0 && !self.is_undisturbed(&generation, epoch) {
                return Ok(false);
            }
        }
    }

    /// Whether the watches still stand, as far as is known.
    fn is_undisturbed(&self, generation: &Generation, epoch: u64) -> bool {
        // A later session may be connected already; nothing stands of an earlier one then.
        self.request.core.state() == SessionState::Connected
            && generation.epoch() == epoch
            && !generation.lease.is_over()
    }

    /// Makes our node a hold. It is the first; what remains is to show that its session lives.
    fn grant(&mut self, ticket: &mut Ticket) -> Step<Holding> {
        let generation = ticket.generation.clone();
        loop {
            if self.bell.rung() & OWN_GONE != 0 {
                return Err(self.own_gone(ticket));
            }
            match ticket.grant((self.request.on_loss)()) {
                Ok(holding) => {
                    // An event that came before the hold was there to hear it.
                    let rung = self.bell.rung();
                    if rung & OWN_GONE != 0 {
                        generation.lease.node_deleted(&ticket.path, BootTime::now());
                    } else if rung & OWN_CHANGED != 0 {
                        holding.watch_again();
                    }
                    debug!("{}: held", ticket.path);
                    return Ok(holding);
                }
                Err(Refused::Stale) => match generation.prove(&self.queue.dir, &self.request.limit) {
                    Ok(()) => {}
                    Err(e) => return Err(self.stop(&self.queue.dir, e)),
                },
                Err(Refused::Over(_)) => return Err(self.stop(&self.queue.dir, CallError::Expired)),
            }
        }
    }

    /// Everybody in the queue, in order, with what their nodes say. `limit` is for the connection;
    /// each request has a time of its own, since there may be many.
    pub(super) fn contenders(self, limit: &Limit<'_>) -> Result<Vec<Contender>> {
        let core = self.request.core;
        loop {
            let generation = core.connected("contenders", core.shown(&self.queue.dir), limit, &self.retry)?;
            match self.all(&generation) {
                Ok(all) => return Ok(all),
                Err(Stop::Fail(e)) => return Err(e),
                Err(_) if limit.is_past() => return Err(self.unavailable(Cause::ConnectionLost)),
                Err(_) => {}
            }
        }
    }

    fn all(&self, generation: &Generation) -> Step<Vec<Contender>> {
        let Queue { dir, .. } = self.queue;
        let listed = match generation.children(dir, false, &self.request.limit) {
            Ok(listed) => listed,
            Err(CallError::NoNode) => return Ok(Vec::new()),
            Err(e) => return Err(self.stop(dir, e)),
        };
        let mut names = self.queue.parse(&listed.children.names());
        if rule::unordered(&names) {
            names = self.by_czxid(generation, names)?;
        } else {
            rule::in_order(&mut names);
        }
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let path = path::join(dir, name.full);
            match generation.read(&path, false, &self.request.limit) {
                Ok(node) => all.push(Contender {
                    name: name.full.to_owned(),
                    reads: name.kind == Kind::Read,
                    sequence: name.sequence,
                    session_id: node.stat.owner,
                    created: node.created(),
                    data: node.data,
                }),
                Err(CallError::NoNode) => {}
                Err(e) => return Err(self.stop(&path, e)),
            }
        }
        Ok(all)
    }

    // ---- what stops a step ----

    fn connected(&self) -> Result<Arc<Generation>> {
        let core = self.request.core;
        let (op, path, limit) = ("lock", core.shown(&self.queue.dir), &self.request.limit);
        if let Some(told) = self.request.endures
            && core.is_overdue(&self.retry)
        {
            told(&self.unavailable(Cause::NoProgress(core.patience())));
        }
        core.connected(op, path, limit, &self.retry)
    }

    pub(super) fn stop(&self, path: &str, e: CallError) -> Stop {
        let core = self.request.core;
        if matches!(e, CallError::ConnectionLoss | CallError::Expired) {
            core.failed(&self.retry);
        }
        Stop::Fail(match e {
            CallError::ConnectionLoss => return Stop::Again,
            CallError::Expired => return Stop::Requeue,
            // Contention only if the server has shown it, and an outage is not what kept us since.
            CallError::Deadline if self.seen_ahead && core.state() == SessionState::Connected => {
                return Stop::Busy;
            }
            CallError::Deadline | CallError::Cancelled => failure(core, &self.queue.dir, e),
            e => failure(core, path, e),
        })
    }

    fn unavailable(&self, cause: Cause) -> Error {
        let path = self.request.core.shown(&self.queue.dir).to_owned();
        Error::Unavailable { op: "lock", path, cause }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::session::Acl;
    use crate::testing::TestServer;
    use crate::{Layout, SessionEvent, ZkSession};

    /// It sleeps, as on a busy computer, until its session is lost and the next one is connected. On
    /// the old connection no event can come any more: it must not go on waiting for one.
    #[test]
    fn a_waiter_that_wakes_in_the_next_session_finds_its_watches_gone() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let (events, core) = (session.subscribe(), session.core());
        let queue = Queue::new("/locks/orders".into(), Layout::Curator, Acl::Open);
        let request = Request {
            core,
            kind: Kind::Lock,
            mode: Mode::Wait,
            limit: Limit::NONE,
            endures: None,
            contended: false,
            data: &[],
            on_id: &|_| (),
            on_blocked: &|_| (),
            on_loss: &|| Box::new(|| ()),
        };
        let attempt = Attempt::new(&queue, &request);
        let old = core.generation().unwrap();
        let epoch = old.epoch();
        assert!(attempt.is_undisturbed(&old, epoch));
        assert!(server.expire_session(old.session_id().unwrap()));
        let soon = Duration::from_secs(20);
        while !matches!(events.recv_timeout(soon).unwrap(), SessionEvent::Connected { .. }) {}
        assert_eq!((core.state(), old.epoch()), (SessionState::Connected, epoch));
        assert!(!attempt.is_undisturbed(&old, epoch));
    }
}
