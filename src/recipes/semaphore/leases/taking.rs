//! One request's way to a semaphore's leases: make the nodes, count, wait, hold.
//!
//! The algorithm is that of Curator's `InterProcessSemaphoreV2`: whoever wants leases holds the
//! mutex `locks`, makes its nodes, and watches all leases until they are few enough. What keeps the
//! bound is the count of nodes alone: of those who hold at one time, the one whose node was made
//! last has counted all the others' nodes. The mutex is there so that two who wait do not count
//! each other's nodes for ever; so who loses it while it waits takes its nodes away and begins
//! anew.

use std::sync::Arc;
use std::time::Duration;

use super::{Leases, Want};
use crate::queue::contender_node::ContenderNode;
use crate::queue::name::{self, Layout};
use crate::queue::{Call, Step, Stop};
use crate::queue::{HeldNode, Mode};
use crate::session::generation::{CallError, CreateMode, Generation, Reply, create_contender};
use crate::session::notifier::{EventMask, Notifier, WatchRegistry};
use crate::world::Instant;
use zk_wire::path;

const LEASES: u8 = 1;
const COUNT: u8 = 2;
const SESSION: u8 = 4;
const MUTEX: u8 = 8;

/// A waiter counts again this often, in case an event was lost for a reason nobody knows.
const SAFETY_POLL: Duration = Duration::from_secs(60);

/// So many nodes are made in one flight at the most. All answers of a flight are due within T/6,
/// and each create that is left without an answer is searched for by a listing of its own.
const AT_ONCE: usize = 64;

struct Taking<'a> {
    leases: &'a Leases,
    want: &'a Want<'a>,
    mutex: &'a HeldNode,
    /// Rings when the mutex is lost.
    losses: &'a WatchRegistry<()>,
    notifier: Arc<Notifier>,
}

impl Leases {
    /// Takes leases, for who holds the mutex; `losses` rings when that is lost. `Anew`: it is, or
    /// the session.
    pub(crate) fn take(
        &self,
        want: &Want<'_>,
        mutex: &HeldNode,
        losses: &WatchRegistry<()>,
    ) -> Step<Vec<HeldNode>> {
        let taking = Taking { leases: self, want, mutex, losses, notifier: Notifier::new() };
        loop {
            match taking.begin() {
                Err(Stop::Again | Stop::Anew) if mutex.loss().is_none() => {}
                end => return end,
            }
        }
    }
}

impl<'a> Taking<'a> {
    /// Makes our nodes, and waits until they may be held.
    fn begin(&self) -> Step<Vec<HeldNode>> {
        let (generation, mut contenders, mut fits) = self.make()?;
        // WatchRegistry before watches, and until all is held: an event may come before the answer to the
        // read that armed its watch.
        let mask = |cause| EventMask { gone: cause, changed: cause };
        let nodes = &generation.nodes;
        let _leases = nodes.register(self.leases.dir.clone(), &self.notifier, mask(LEASES));
        let _count =
            nodes.register(self.leases.count.path().to_owned(), &self.notifier, mask(COUNT));
        let _session = self.call().core.changes.register((), &self.notifier, mask(SESSION));
        let _mutex = self.losses.register((), &self.notifier, mask(MUTEX));
        loop {
            let advanced = self.advance(&generation, &contenders, fits.take());
            match advanced.and_then(|()| self.grant(&mut contenders)) {
                Err(Stop::Again) => {}
                end => return end,
            }
        }
    }

    /// Makes our nodes, all in one session, and counts the leases behind the last of them, in the
    /// same flight. Says whether they are few enough, unless that must be asked again.
    fn make(&self) -> Step<(Arc<Generation>, Vec<ContenderNode>, Option<bool>)> {
        let Want { call, data, number, .. } = self.want;
        let limit = &call.limit;
        let Leases { dir, acl, .. } = self.leases;
        let generation = call.connected()?;
        self.connected_still(&generation)?;
        let mut contenders = Vec::new();
        loop {
            if limit.is_past() {
                return Err(call.stop(dir, CallError::Deadline)); // nothing is sent for nothing
            }
            let missing = (*number as usize).saturating_sub(contenders.len());
            let is_last = missing <= AT_ONCE;
            let new_id = |_| name::new_id(Layout::Curator);
            let ids: Vec<String> = (0..missing.min(AT_ONCE)).map(new_id).collect();
            let prefixes: Vec<String> =
                ids.iter().map(|id| path::join(dir, &name::lease_prefix(id))).collect();
            let mode = CreateMode::EphemeralSequential;
            let create = |(id, prefix): (&String, _)| create_contender(prefix, id, mode, data, acl);
            let creates = ids.iter().zip(prefixes.iter().map(String::as_str)).map(create);
            let count = is_last.then(|| self.leases.count_requests(false));
            let requests: Vec<_> = creates.chain(count.into_iter().flatten()).collect();
            let flight = generation.flight(&requests, limit);
            let mut answers = flight.map_err(|e| call.stop(dir, e))?;
            let mut failed = None;
            for (at, id) in ids.iter().enumerate() {
                match answers.take(at).and_then(Reply::created) {
                    Ok(created) => {
                        debug!("{}: made", created.0);
                        self.call().progress();
                        contenders.push(ContenderNode::new(
                            generation.clone(),
                            created,
                            id.clone(),
                            0,
                        ));
                    }
                    Err(e) => failed = failed.or(Some(e)),
                }
            }
            let e = match failed {
                None if !is_last => {
                    self.connected_still(&generation)?;
                    continue;
                }
                None => {
                    let room = self.leases.room_of(
                        self.want,
                        &generation,
                        &contenders,
                        false,
                        answers,
                        missing,
                    );
                    let fits = match room.and_then(|room| self.judge(room)) {
                        Ok(fits) => Some(fits),
                        Err(Stop::Again) => None,
                        Err(stop) => return Err(stop),
                    };
                    return Ok((generation, contenders, fits));
                }
                // The semaphore's node first: it is none that may go while nobody is here.
                Some(CallError::NoNode) => {
                    let counted =
                        self.leases.count.get(&generation, self.leases.count.known(), false, limit);
                    match counted.and_then(|_| generation.make_parents(dir, acl, limit)) {
                        Ok(()) => continue,
                        Err(e) => e,
                    }
                }
                Some(e) => e,
            };
            match call.stop(dir, e) {
                Stop::Again => self.connected_still(&generation)?,
                stop => return Err(stop),
            }
        }
    }

    /// Counts, and waits until our leases are among those that may be held.
    /// `fits` is what the count behind their creates has shown.
    fn advance(
        &self,
        generation: &Generation,
        contenders: &[ContenderNode],
        fits: Option<bool>,
    ) -> Step<()> {
        self.connected_still(generation)?;
        if fits.map_or_else(|| self.fits(generation, contenders, false), Ok)? {
            return Ok(());
        }
        if self.want.mode == Mode::Try {
            return Err(Stop::Busy);
        }
        debug!("{}: waiting until fewer leases stand", self.leases.dir);
        loop {
            self.notifier.clear(u8::MAX);
            self.connected_still(generation)?;
            let epoch = generation.epoch();
            if self.fits(generation, contenders, true)? {
                // One of those that went since may have been ours.
                if self.notifier.events() & LEASES == 0 {
                    return Ok(());
                }
                continue;
            }
            self.wait(generation, epoch)?;
        }
    }

    /// Waits until something has changed that calls for another count; the watches were armed on
    /// the connection `epoch`.
    fn wait(&self, generation: &Generation, epoch: u64) -> Step<()> {
        let poll = Instant::now() + SAFETY_POLL;
        while self.call().is_undisturbed(generation, epoch) {
            self.call().progress(); // our nodes are counted, and the watches stand
            match self.call().wait(generation, &self.notifier, poll)? {
                Some(events) if events & (LEASES | COUNT | MUTEX) == 0 => {}
                _ => break,
            }
        }
        Ok(())
    }

    fn fits(
        &self,
        generation: &Generation,
        contenders: &[ContenderNode],
        watch: bool,
    ) -> Step<bool> {
        self.judge(self.leases.room(self.want, generation, contenders, watch)?)
    }

    fn judge(&self, room: Option<i64>) -> Step<bool> {
        match room {
            Some(room) if room >= 0 => Ok(true),
            Some(_) => {
                self.call().is_contended.set(true);
                Ok(false)
            }
            None => {
                warn!(
                    "{}: our waiting node was deleted by somebody; making another",
                    self.leases.dir
                );
                Err(Stop::Anew)
            }
        }
    }

    /// Makes our nodes holds. What remains is to show that their session lives.
    fn grant(&self, contenders: &mut [ContenderNode]) -> Step<Vec<HeldNode>> {
        // Unless all that are wanted are held they go back, with this.
        let mut granted = Vec::with_capacity(contenders.len());
        for contender in contenders {
            loop {
                match contender.grant(Box::new(|| ())) {
                    Ok(held_node) => {
                        granted.push(held_node);
                        break;
                    }
                    Err(refused) => {
                        self.call()
                            .renew(&refused, &contender.generation, &self.leases.dir)
                            .map_err(|stop| match stop {
                                Stop::Again if !granted.is_empty() => Stop::Anew,
                                stop => stop,
                            })?;
                    }
                }
            }
        }
        // All or none, also of those that are lost at once.
        if granted.iter().any(|held_node: &HeldNode| !held_node.is_held()) {
            return Err(Stop::Anew);
        }
        // One of ours may have gone behind the count: the event loop looks for them now, and not
        // when they have been held for a while.
        if self.notifier.events() & LEASES != 0 {
            granted.iter().for_each(HeldNode::watch_again);
        }
        granted.iter().for_each(|held_node| debug!("{}: held", held_node.path()));
        Ok(granted)
    }

    /// Waits until that session is connected, in which our nodes were made and the mutex is held.
    fn connected_still(&self, generation: &Generation) -> Step<()> {
        self.call().connected_still(generation)?;
        if self.mutex.loss().is_some() { Err(Stop::Anew) } else { Ok(()) }
    }

    fn call(&self) -> &'a Call<'a> {
        self.want.call
    }
}
