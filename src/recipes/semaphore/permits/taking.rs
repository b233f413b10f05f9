//! One request's way to a semaphore's permits: make the nodes, count the permits, wait, and be
//! granted them.
//!
//! The algorithm is that of Curator's `InterProcessSemaphoreV2`. A client that wants permits takes
//! the mutex `locks`, makes its nodes, and watches all permits until there are few enough. The
//! count of nodes alone keeps the bound: among the clients that hold permits at one time, the one
//! that made its node last has counted the nodes of all others. The mutex is there because two
//! waiting clients would count each other's nodes for ever. So a client that loses the mutex while
//! it waits deletes its nodes and begins anew.

use std::sync::Arc;

use super::Permits;
use crate::queue::ContenderNode;
use crate::queue::name::{self, Layout};
use crate::queue::request::Mode;
use crate::queue::{
    Callbacks, HeldNode, Request, SAFETY_POLL, Step, Stop, Watches, WhoHolds, rule,
};
use zk_session::unstable::{
    CallError, CreateMode, EventMask, Generation, Notifier, Reply, WatchRegistry, create_contender,
};
use zk_session::world::Instant;
use zk_wire::path;

const PERMITS: u8 = 1;
const COUNT: u8 = 2;
const SESSION: u8 = 4;
const MUTEX: u8 = 8;

/// At most so many nodes are made in one flight. All answers of a flight are due within T/6, and
/// each create without an answer needs a listing of its own later.
const AT_ONCE: usize = 64;

struct Taking<'a> {
    permits: &'a Permits,
    request: &'a Request<'a>,
    /// It gets so many permits or none.
    number: u32,
    mutex: &'a HeldNode,
    /// Notified when the mutex is lost.
    losses: &'a WatchRegistry<()>,
    /// Called when a count shows that others have the permits.
    on_taken: &'a dyn Fn(),
    notifier: Arc<Notifier>,
}

impl Permits {
    /// Takes permits for the thread that holds `mutex`; `losses` is notified when that is lost, and
    /// `on_taken` is called when others have the permits. `Stop::Anew`: the mutex or the session is
    /// lost.
    pub(crate) fn take(
        &self,
        request: &Request<'_>,
        number: u32,
        mutex: &HeldNode,
        losses: &WatchRegistry<()>,
        on_taken: &dyn Fn(),
    ) -> Step<Vec<HeldNode>> {
        let notifier = Notifier::new();
        let taking = Taking { permits: self, request, number, mutex, losses, on_taken, notifier };
        loop {
            match taking.begin() {
                Err(Stop::Again | Stop::Anew) if mutex.loss().is_none() => {}
                end => return end,
            }
        }
    }
}

impl Taking<'_> {
    /// Makes our nodes, waits until they may be held, and is granted them.
    fn begin(&self) -> Step<Vec<HeldNode>> {
        let (generation, mut contenders, mut fits) = self.make()?;
        // Register before the watches are set, and until all permits are held: an event may arrive
        // before the answer to the read that sets its watch.
        let mask = |event| EventMask { gone: event, changed: event };
        let nodes = &generation.nodes;
        let _permits = nodes.register(self.permits.dir.clone(), &self.notifier, mask(PERMITS));
        let _count =
            nodes.register(self.permits.count.path().to_owned(), &self.notifier, mask(COUNT));
        let _session = self.request.core().changes.register((), &self.notifier, mask(SESSION));
        let _mutex = self.losses.register((), &self.notifier, mask(MUTEX));
        loop {
            let advanced = self.advance(&generation, &mut contenders, fits.take());
            match advanced.and_then(|()| self.grant(&mut contenders)) {
                Err(Stop::Again) => {}
                end => return end,
            }
        }
    }

    /// Makes our nodes, all in one session, and counts the permits behind the last of them, in the
    /// same flight. Gives whether they are few enough, or `None` if that count failed.
    fn make(&self) -> Step<(Arc<Generation>, Vec<ContenderNode>, Option<bool>)> {
        let (settings, limit) = (self.request.settings, &self.request.limit());
        let Permits { dir, acl, .. } = self.permits;
        let generation = self.request.connected()?;
        self.connected_still(&generation)?;
        let mut contenders = Vec::new();
        loop {
            if limit.is_past() {
                return Err(self.request.stop(dir, CallError::Deadline)); // no time is left for a node
            }
            let missing = (self.number as usize).saturating_sub(contenders.len());
            let is_last = missing <= AT_ONCE;
            let new_id = |_| name::new_id(Layout::Curator);
            let ids: Vec<String> = (0..missing.min(AT_ONCE)).map(new_id).collect();
            let prefixes: Vec<String> =
                ids.iter().map(|id| path::join(dir, &name::permit_prefix(id))).collect();
            let mode = CreateMode::EphemeralSequential;
            let create = |(id, prefix): (&String, _)| {
                create_contender(prefix, id, mode, &settings.data, acl)
            };
            let creates = ids.iter().zip(prefixes.iter().map(String::as_str)).map(create);
            let count = is_last.then(|| self.permits.count_requests(false));
            let requests: Vec<_> =
                creates.chain(count.into_iter().flatten().map(|read| (read, None))).collect();
            let count = &self.permits.count;
            let flight = generation.flight_in(dir, Some(count.path()), acl, &requests, limit);
            let mut answers = match flight {
                // The semaphore's node is missing.
                Err(CallError::NoNode) => {
                    let made = count.get(&generation, count.known(), false, limit);
                    made.map_err(|e| self.request.stop(dir, e))?;
                    continue;
                }
                flight => flight.map_err(|e| self.request.stop(dir, e))?,
            };
            let mut failed = None;
            for (at, id) in ids.iter().enumerate() {
                match answers.take(at).and_then(Reply::created) {
                    Ok(created) => {
                        debug!("{}: made", created.0);
                        self.request.progress();
                        contenders.push(ContenderNode::new(
                            generation.clone(),
                            created,
                            id.clone(),
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
                    let room = self.permits.room_of(
                        self.request,
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
                Some(e) => e,
            };
            match self.request.stop(dir, e) {
                Stop::Again => self.connected_still(&generation)?,
                stop => return Err(stop),
            }
        }
    }

    /// Counts, and waits until our permits are among those that may be held. `fits` is the outcome
    /// of the count behind their creates.
    fn advance(
        &self,
        generation: &Generation,
        contenders: &mut [ContenderNode],
        fits: Option<bool>,
    ) -> Step<()> {
        self.connected_still(generation)?;
        if fits.map_or_else(|| self.fits(generation, contenders, false), Ok)? {
            return Ok(());
        }
        if self.request.mode == Mode::Try {
            return Err(Stop::Busy);
        }
        if let Some(first) = contenders.first_mut() {
            self.request.may_give_up(first)?;
        }
        debug!("{}: waiting until there are fewer permits", self.permits.dir);
        loop {
            self.notifier.clear(u8::MAX);
            self.connected_still(generation)?;
            let epoch = generation.epoch();
            if self.fits(generation, contenders, true)? {
                // A permit that went since the count may have been ours.
                if self.notifier.events() & PERMITS == 0 {
                    return Ok(());
                }
                continue;
            }
            self.wait(generation, epoch)?;
        }
    }

    /// Waits until something has changed that calls for another count. The watches were set on the
    /// connection `epoch`.
    fn wait(&self, generation: &Generation, epoch: u64) -> Step<()> {
        let who_holds = WhoHolds { dir: self.permits.dir(), names: rule::all_holders };
        let watches = Watches { generation, epoch, notifier: &self.notifier, who_holds };
        let is_change = |events| events & (PERMITS | COUNT | MUTEX) != 0;
        self.request
            .until_event(&watches, Instant::now() + SAFETY_POLL, |events| {
                Ok(is_change(events).then_some(()))
            })
            .map(drop)
    }

    fn fits(
        &self,
        generation: &Generation,
        contenders: &[ContenderNode],
        watch: bool,
    ) -> Step<bool> {
        self.judge(self.permits.room(self.request, generation, contenders, watch)?)
    }

    fn judge(&self, room: Option<i64>) -> Step<bool> {
        match room {
            Some(room) if room >= 0 => Ok(true),
            Some(_) => {
                self.request.contended();
                (self.on_taken)();
                Ok(false)
            }
            None => {
                warn!(
                    "{}: our waiting node is gone (deleted by hand, or its session expired); making another",
                    self.permits.dir
                );
                Err(Stop::Anew)
            }
        }
    }

    /// Makes our nodes held ones. What remains is to show that their session lives.
    fn grant(&self, contenders: &mut [ContenderNode]) -> Step<Vec<HeldNode>> {
        // If not all are granted, this is dropped, and the granted ones are released.
        let mut granted = Vec::with_capacity(contenders.len());
        for contender in contenders {
            loop {
                match contender.grant(Callbacks::NONE.on_loss) {
                    Ok(held_node) => {
                        granted.push(held_node);
                        break;
                    }
                    Err(refused) => {
                        self.request.renew(&refused, &contender.generation).map_err(|stop| {
                            match stop {
                                Stop::Again if !granted.is_empty() => Stop::Anew,
                                stop => stop,
                            }
                        })?;
                    }
                }
            }
        }
        // All or none: if one permit is lost already, the others are released.
        if granted.iter().any(|held_node: &HeldNode| !held_node.is_held()) {
            return Err(Stop::Anew);
        }
        // One of ours may have been deleted after the count: the event loop reads them now, and not
        // only when they have been held for a while.
        if self.notifier.events() & PERMITS != 0 {
            granted.iter().for_each(HeldNode::watch_again);
        }
        granted.iter().for_each(|held_node| debug!("{}: held", held_node.path()));
        Ok(granted)
    }

    /// Waits until the session in which our nodes were made and the mutex is held is connected.
    fn connected_still(&self, generation: &Generation) -> Step<()> {
        self.request.connected_still(generation)?;
        if self.mutex.loss().is_some() { Err(Stop::Anew) } else { Ok(()) }
    }
}
