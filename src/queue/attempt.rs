//! One request's way through the queue: make a node, list the queue, wait while a node is ahead,
//! and be granted the lock.
//!
//! A waiter waits by one of two strategies. With `Predecessor` it watches the one node that it has
//! to wait for, so that a release wakes one waiter. With `Parent` it watches the list of children,
//! and every change wakes every waiter.
//!
//! A request whose caller gives up leaves its node in a `Place`. Another thread of the process goes
//! on from there, with the watches that are set. Without such a thread, and after a refusal, the
//! place is dropped, and the drop of its `ContenderNode` deletes the node.

use std::sync::Arc;
use std::time::Duration;

use super::held_node::NewNode;
use super::held_node::OnLoss;
use super::name::{self, Kind, Name, NodeKey};
use super::request::{Callbacks, Request, SAFETY_POLL, Step, Stop, Watches, WhoHolds, until_done};
use super::rule::{self, Claim, Stranger, Verdict};
use super::{Contender, HeldNode, Queue, WaitStrategy};
use crate::error::{Error, Result};
use crate::queue::request::Mode;
use zk_session::unstable::{
    Answers, CallError, CreateMode, EventMask, Generation, Limit, Listed, NodeWatch, Notifier,
    Operation, Refused, Registration, Removal, Reply, create_contender,
};
use zk_session::world::Instant;
use zk_wire::path;

const OWN_GONE: u8 = 1;
const OWN_CHANGED: u8 = 2;
const AHEAD_GONE: u8 = 4;
const AHEAD_CHANGED: u8 = 8;
const SESSION: u8 = 16;

/// The notifications about a waiter's own node.
const OWN: EventMask = EventMask { gone: OWN_GONE, changed: OWN_CHANGED };

/// A waiter that has waited for so long watches its own node too, to notice if somebody deletes it.
const OWN_WATCH_AFTER: Duration = Duration::from_millis(50);

struct QueueAttempt<'a> {
    queue: &'a Queue,
    request: &'a Request<'a>,
    /// What the request wants: this decides the name of its node, and for which nodes it waits.
    kind: Kind,
    callbacks: &'a Callbacks<'a>,
}

/// A contender's place in the queue. It outlives the call that has taken it.
pub(crate) struct Place {
    contender: ContenderNode,
    /// Notified of changes of our node, and of what the place waits for.
    notifier: Arc<Notifier>,
    /// What the place waits for; `None` before a listing has shown somebody ahead.
    waits: Option<Waits>,
    _own: Registration<String>,
    /// With `Parent`: the list of children.
    _parent: Option<Registration<String>>,
}

/// The watches with which a place waits until the queue changes ahead of it.
struct Waits {
    /// The connection on which they are set.
    epoch: u64,
    /// As in [`Verdict::Wait`].
    sole: bool,
    /// When to list the queue again in any case.
    until: Instant,
    _session: Registration<()>,
    /// With `Predecessor`: the node just ahead.
    _ahead: Option<Registration<String>>,
}

/// The node that a listing shows just ahead of ours.
struct Ahead {
    path: String,
    /// As in [`Verdict::Wait`].
    sole: bool,
}

impl Queue {
    /// Goes through the queue until the lock is held, from `place` on if there is one. `None`:
    /// somebody else was ahead. Without a hold `place` is the place that this request leaves.
    pub(crate) fn acquire(
        &self,
        request: &Request<'_>,
        kind: Kind,
        callbacks: &Callbacks<'_>,
        place: &mut Option<Box<Place>>,
    ) -> Result<Option<HeldNode>> {
        let attempt = QueueAttempt { queue: self, request, kind, callbacks };
        // The listing may be older than this call, and show somebody who has gone since.
        if let Some(place) = place {
            place.contender.listed = None;
        }
        let done = until_done(callbacks.on_blocked, || attempt.begin(place));
        // A thread that gives up leaves its place. After a refusal the next thread would be refused
        // too, and the place would keep others from the lock.
        if done.as_ref().is_err_and(|e| !e.is_giving_up()) {
            *place = None;
        }
        done
    }
}

impl QueueAttempt<'_> {
    /// Goes through the queue with one node.
    fn begin(&self, place: &mut Option<Box<Place>>) -> Step<HeldNode> {
        if self.request.limit().is_past() {
            // A request that is sent now would make a node for which no time is left.
            return Err(self.request.stop(&self.queue.dir, CallError::Deadline));
        }
        let generation = self.connected()?;
        self.request.may_delete_in(&generation, &self.queue.dir)?;
        if place.is_none() && self.request.mode == Mode::Try && self.is_taken(&generation)? {
            return Err(Stop::Busy);
        }
        // A node that was granted is about to be deleted: a panic came after its grant.
        let is_over = |place: &mut Box<Place>| {
            let contender = &place.contender;
            contender.is_settled || contender.generation.number != generation.number
        };
        drop(place.take_if(is_over));
        let current = match place {
            Some(place) => {
                if place.waits.is_some() {
                    self.blocked(&mut place.contender)?;
                }
                place
            }
            None => place.insert(Box::new(self.enqueue(&generation)?)),
        };
        let end = loop {
            match self.advance(current).and_then(|()| self.grant(current)) {
                Err(Stop::Again) => (self.callbacks.on_blocked)(false),
                end => break end,
            }
        };
        // Granted, or gone: there is no place any more.
        if matches!(end, Ok(_) | Err(Stop::Anew)) {
            *place = None;
        }
        end
    }

    // ---- the steps ----

    /// Lists the queue for a caller that only tries, before it makes a node. True: somebody else is
    /// in the queue, so the call ends, and has written nothing. That answer rests on this listing
    /// alone, and no write of the call goes before it. So the listing travels behind a `sync`:
    /// otherwise a server that lags could show a contender that has gone.
    fn is_taken(&self, generation: &Generation) -> Step<bool> {
        let dir = &self.queue.dir;
        let listed = match generation.synced_children(dir, &self.request.limit()) {
            Err(CallError::NoNode) => return Ok(false),
            listed => listed.map_err(|e| self.request.stop(dir, e))?,
        };
        let children = listed.children.names();
        let (names, others) = self.queue.parse(&children);
        let is_pending_delete = |id: &str| listed.pending.contains(id);
        self.check_kind(generation, &names, &others, &is_pending_delete)?;
        let claim = Claim::of(self.kind);
        let blocks = |name: &Name<'_>| claim.yields_to(name.kind) && !is_pending_delete(name.id);
        Ok(names.iter().any(blocks))
    }

    /// An error if the listing shows contenders for a lock of another kind that was here before
    /// ours: two clients could do the work that the path stands for. If ours was here before, the
    /// log says so, and this gives true. `others`: the children that are no contenders of our
    /// family.
    fn check_kind(
        &self,
        generation: &Generation,
        names: &[Name<'_>],
        others: &[&str],
        is_pending_delete: &dyn Fn(&str) -> bool,
    ) -> Step<bool> {
        let Some(Stranger { name, came_first }) =
            rule::stranger(names, others, self.kind, is_pending_delete)
        else {
            return Ok(false);
        };
        let Queue { dir, .. } = self.queue;
        if !came_first {
            self.queue.warn_stranger(&name, self.kind);
            return Ok(true);
        }
        // Whose it is, and since when, if that can be read.
        let path = path::join(dir, name.full);
        let whose = match generation.read(&path, false, &self.request.limit()) {
            Ok(node) => format!(" ({})", Contender::of(&path, false, node)),
            Err(_) => String::new(),
        };
        let reason = format!(
            "{:?} belongs to another kind of lock: {} is {}{whose}; give each kind a path of its own",
            self.request.core().shown(dir),
            name.full,
            name.kind.described()
        );
        Err(Stop::Fail(Error::InvalidConfig { what: "path", reason }))
    }

    /// Makes our node in the queue, and lists the queue in the same flight.
    fn enqueue(&self, generation: &Arc<Generation>) -> Step<Place> {
        let Queue { dir, layout, acl, strategy, .. } = self.queue;
        let notifier = Notifier::new();
        // Register before the first watch is set: an event that arrives between two waits would
        // otherwise be dropped, and its watch, already used up, would be taken for an armed one.
        let parent = (*strategy == WaitStrategy::Parent).then(|| {
            let mask = EventMask { gone: AHEAD_CHANGED, changed: AHEAD_CHANGED };
            generation.nodes.register(dir.clone(), &notifier, mask)
        });
        let limit = &self.request.limit();
        let watch = *strategy == WaitStrategy::Parent && self.request.mode != Mode::Try;
        let id = name::new_id(*layout);
        (self.callbacks.on_id)(&id);
        let prefix = path::join(dir, &name::prefix(*layout, self.kind, &id));
        // The server does the two in order, so the listing shows our node, and all that was
        // acknowledged to others before it: it needs no `sync`.
        let create = create_contender(
            &prefix,
            &id,
            CreateMode::EphemeralSequential,
            &self.request.settings.data,
            acl,
        );
        let list = (Operation::GetChildren { path: dir, watch }, None);
        let flight = self.queue.flight(generation, &[create, list], limit);
        let made = flight.and_then(|mut answers| Ok((answers.take(0)?.created()?, answers)));
        let (created, mut answers) = made.map_err(|e| self.request.stop(dir, e))?;
        let sequence = name::parse(path::name(&created.0)).map_or(0, |own| own.sequence);
        if rule::is_half_used(sequence) {
            self.queue.warn_half_used();
        }
        let mut contender = ContenderNode::new(generation.clone(), created, id);
        // If only the listing failed, `list` makes another.
        contender.listed = answers.listed(1).ok();
        debug!("{}: queued", contender.path);
        self.request.progress();
        let own = generation.nodes.register(contender.path.clone(), &notifier, OWN);
        Ok(Place { contender, notifier, waits: None, _own: own, _parent: parent })
    }

    /// Lists the queue and waits, until no node is ahead.
    fn advance(&self, place: &mut Place) -> Step<()> {
        loop {
            self.report_if_overdue();
            self.request.connected_still(&place.contender.generation)?;
            let is_first = match (&place.waits, self.queue.strategy) {
                (Some(_), _) => self.until_changed(place)?,
                (None, WaitStrategy::Predecessor) => self.watch_predecessor(place)?,
                (None, WaitStrategy::Parent) => self.watch_parent(place)?,
            };
            if is_first {
                return Ok(());
            }
        }
    }

    /// Notes that somebody is listed ahead of us. For a caller that only tries that is the end.
    fn blocked(&self, contender: &mut ContenderNode) -> Step<()> {
        self.request.call.found_contention();
        if self.request.mode == Mode::Try {
            return Err(Stop::Busy);
        }
        self.request.contended();
        (self.callbacks.on_blocked)(true);
        self.request.may_give_up(contender)
    }

    /// Finds the node just ahead of ours, in the listing that came with our node or in a new one,
    /// and gives it with the connection that the listing came from. With `watch`, a new listing
    /// leaves a watch on the list.
    ///
    /// Either listing follows our create. So if it shows somebody ahead, that was so at some moment
    /// since the call began, and a call whose time ends says so with right, even if the server lags
    /// by then.
    fn list(&self, contender: &mut ContenderNode, watch: bool) -> Step<(Option<Ahead>, u64)> {
        let Queue { dir, .. } = self.queue;
        let listed = match contender.listed.take() {
            Some(listed) => Ok(listed),
            None => contender.generation.children(dir, watch, &self.request.limit()),
        };
        let listed = match listed {
            Err(CallError::NoNode) => return Err(Stop::Anew),
            listed => listed.map_err(|e| self.request.stop(dir, e))?,
        };
        let children = listed.children.names();
        let (names, others) = self.queue.parse(&children);
        let is_pending_delete = |id: &str| listed.pending.contains(id);
        let has_stranger =
            self.check_kind(&contender.generation, &names, &others, &is_pending_delete)?;
        let claim = Claim::of(self.kind);
        let ordered;
        let verdict = if rule::unordered(&names) {
            if rule::used_up(&names) {
                self.queue.warn_numbers();
            }
            let dated = self.queue.by_czxid(&contender.generation, names, &self.request.limit());
            ordered = dated.map_err(|e| self.request.stop(dir, e))?;
            rule::verdict_in_order(&ordered, contender.name(), claim, &is_pending_delete)
        } else {
            rule::verdict(&names, contender.name(), claim, &is_pending_delete)
        };
        match verdict {
            Verdict::Held => Ok((None, listed.epoch)),
            Verdict::Gone => Err(Stop::Anew),
            Verdict::Wait { predecessor, sole } => {
                // When the last node of our kind ahead goes, the other kind may be the earlier one.
                let sole = sole && !has_stranger;
                let ahead = Ahead { path: path::join(dir, predecessor.full), sole };
                Ok((Some(ahead), listed.epoch))
            }
        }
    }

    /// Sets the watch on our own node, unless it is set on this connection.
    fn watch_own(&self, contender: &mut ContenderNode, epoch: u64) -> Step<()> {
        if contender.watch == NodeWatch::On(epoch) {
            return Ok(());
        }
        let read = Operation::GetData { path: &contender.path, watch: true };
        let flight = contender.generation.flight(&[(read, None)], &self.request.limit());
        let mut answers = flight.map_err(|e| self.request.stop(&contender.path, e))?;
        self.own_watched(contender, &mut answers, 0)
    }

    /// Takes the answer to a read of our own node that set a watch on it.
    fn own_watched(
        &self,
        contender: &mut ContenderNode,
        answers: &mut Answers,
        at: usize,
    ) -> Step<()> {
        match answers.take(at).and_then(Reply::node) {
            Ok(node) => {
                (contender.watch, contender.data) = (NodeWatch::On(answers.epoch), node.data);
                Ok(())
            }
            Err(CallError::NoNode) => Err(Stop::Anew),
            Err(e) => Err(self.request.stop(&contender.path, e)),
        }
    }

    /// Waits until the queue changes ahead of the place. True: no node is ahead. False: the queue
    /// must be listed again. After an error the place still waits.
    fn until_changed(&self, place: &mut Place) -> Step<bool> {
        let Place { contender, notifier, waits, .. } = place;
        let Some(Waits { epoch, sole, until, .. }) = *waits else { return Ok(false) };
        let generation = &contender.generation.clone();
        let who_holds = WhoHolds { dir: &self.queue.dir, names: rule::holders };
        let watches = Watches { generation, epoch, notifier, who_holds };
        let wait = |contender: &mut ContenderNode, until| {
            self.request.until_event(&watches, until, |events| {
                if events & OWN_GONE != 0 {
                    return Err(own_gone(&contender.path));
                }
                if events & OWN_CHANGED != 0 {
                    contender.watch = NodeWatch::Unset;
                    return Ok(Some(false));
                }
                if events & AHEAD_CHANGED != 0 {
                    return Ok(Some(false));
                }
                // The server sends events in the order of the changes. So if our own watch stands
                // and has not fired, our node was still there when the node ahead was deleted.
                let stood =
                    sole && contender.watch == NodeWatch::On(epoch) && generation.epoch() == epoch;
                Ok((events & AHEAD_GONE != 0).then_some(stood))
            })
        };
        let mut changed = wait(contender, until.min(Instant::now() + OWN_WATCH_AFTER))?;
        if changed.is_none() && self.request.is_undisturbed(generation, epoch) {
            self.watch_own(contender, epoch)?;
            changed = wait(contender, until)?;
        }
        *waits = None;
        Ok(changed.unwrap_or(false))
    }

    fn grant(&self, place: &mut Place) -> Step<HeldNode> {
        let Place { contender, notifier, .. } = place;
        let (generation, path) = (contender.generation.clone(), contender.path.clone());
        let grant = || contender.grant(self.callbacks.on_loss);
        self.request.grant(&generation, notifier, OWN, grant, || own_gone(&path))
    }

    fn connected(&self) -> Step<Arc<Generation>> {
        self.report_if_overdue();
        self.request.connected()
    }

    fn report_if_overdue(&self) {
        if let Some(e) = self.request.overdue() {
            (self.callbacks.on_retry)(&e);
        }
    }
}

fn own_gone(path: &str) -> Stop {
    warn!(
        "{path}: our waiting node is gone (deleted by hand, or its session expired); queueing again"
    );
    Stop::Anew
}

// ---- what a place waits for ----

impl QueueAttempt<'_> {
    /// Lists the queue, and watches the node just ahead of ours, if there is one. True: no node is
    /// ahead. False: the place waits, or the queue must be listed again.
    fn watch_predecessor(&self, place: &mut Place) -> Step<bool> {
        let Place { contender, notifier, waits, .. } = place;
        let (ahead, epoch) = self.list(contender, false)?;
        let Some(ahead) = ahead else { return Ok(true) };
        self.blocked(contender)?;
        let generation = contender.generation.clone();
        notifier.clear(!(OWN_GONE | OWN_CHANGED));
        // Register before the watch is set: an event may arrive before the answer to the read that
        // sets it.
        let mask = EventMask { gone: AHEAD_GONE, changed: AHEAD_CHANGED };
        let ahead_node = Some(generation.nodes.register(ahead.path.clone(), notifier, mask));
        let session = self.session_changes(notifier);
        // If we are next, our own node is read in the same flight, with a watch: with that watch
        // set, the end of the node ahead is a grant, and no second listing is needed. A contender
        // further back sets the watch on its own node later, if it waits for long.
        let own = contender.path.clone();
        let read = |path| (Operation::GetData { path, watch: true }, None);
        let both = [read(ahead.path.as_str()), read(own.as_str())];
        let requests = if ahead.sole { both.as_slice() } else { &both[..1] };
        let flight = generation.flight(requests, &self.request.limit());
        let mut answers = flight.map_err(|e| self.request.stop(&ahead.path, e))?;
        let watched = answers.epoch;
        if ahead.sole {
            self.own_watched(contender, &mut answers, 1)?;
        }
        match answers.take(0) {
            Ok(_) => {}
            Err(CallError::NoNode) => return Ok(false),
            Err(e) => return Err(self.request.stop(&ahead.path, e)),
        }
        // All watches must stand on the connection that the listing came from: what happened
        // between two connections is not known.
        if watched == epoch && generation.epoch() == epoch {
            debug!("{}: waiting for {}", contender.path, ahead.path);
            let until = Instant::now() + SAFETY_POLL;
            let sole = ahead.sole;
            *waits = Some(Waits { epoch, sole, until, _session: session, _ahead: ahead_node });
        }
        Ok(false)
    }

    /// Lists the queue with a watch on the list. True: no node is ahead. False: the place waits, or
    /// the queue must be listed again.
    ///
    /// The end of our own node changes the list too. Our node gets a watch of its own all the same
    /// after a while, for the time between the last listing and the hold.
    fn watch_parent(&self, place: &mut Place) -> Step<bool> {
        let Place { contender, notifier, waits, .. } = place;
        // Notifications from before the listing below tell nothing that it does not show: they are
        // cleared. If the listing that came with our node is used instead, it has left a watch
        // already, and a notification of that counts.
        if contender.listed.is_none() {
            notifier.clear(!(OWN_GONE | OWN_CHANGED));
        }
        let session = self.session_changes(notifier);
        let (ahead, epoch) = self.list(contender, self.request.mode != Mode::Try)?;
        if ahead.is_none() {
            return Ok(true);
        }
        self.blocked(contender)?;
        // If the connection has changed since the listing, its watch is gone.
        if contender.generation.epoch() == epoch {
            debug!("{}: waiting for a change of the queue", contender.path);
            let until = Instant::now() + SAFETY_POLL;
            let sole = false;
            *waits = Some(Waits { epoch, sole, until, _session: session, _ahead: None });
        }
        Ok(false)
    }

    fn session_changes(&self, notifier: &Arc<Notifier>) -> Registration<()> {
        let mask = EventMask { gone: SESSION, changed: SESSION };
        self.request.core().changes.register((), notifier, mask)
    }
}

// ---- the node ----

/// One contender's node, made by a request for a lock. If it is dropped before it is granted, it is
/// deleted, whatever happens to the connection.
pub(crate) struct ContenderNode {
    pub(crate) generation: Arc<Generation>,
    /// The node's full path.
    pub(crate) path: String,
    pub(crate) id: String,
    /// The zxid of the create; in a downgrade's read node, that of the write which it follows.
    pub(crate) czxid: i64,
    /// The listing that came with the node, until it is used.
    pub(crate) listed: Option<Listed>,
    /// The watch on the node: set on some connection, or none.
    pub(crate) watch: NodeWatch,
    /// The node's data, as the read said that set the watch.
    pub(crate) data: Vec<u8>,
    /// The node is held, or is being deleted: its drop here must not delete it.
    is_settled: bool,
}

impl ContenderNode {
    /// `path` and `czxid` are those that the answer to the create says.
    pub(crate) fn new(
        generation: Arc<Generation>,
        (path, czxid): (String, i64),
        id: String,
    ) -> Self {
        ContenderNode {
            generation,
            path,
            id,
            czxid,
            listed: None,
            watch: NodeWatch::Unset,
            data: Vec::new(),
            is_settled: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        path::name(&self.path)
    }

    /// Deletes the node, as a drop does, and waits for the outcome.
    pub(crate) fn delete(&mut self, limit: &Limit<'_>) {
        self.is_settled = true;
        let removal = Removal::named(self.path.clone(), self.id.clone());
        let outcome = self.generation.remove_and_tell(removal);
        let _ = limit.or_after(self.generation.operation_timeout()).recv(&outcome);
    }

    /// Makes the node a held one, if the lease is fresh.
    pub(crate) fn grant(
        &mut self,
        on_loss: &dyn Fn(NodeKey) -> OnLoss,
    ) -> Result<HeldNode, Refused> {
        let node = NewNode {
            path: &self.path,
            is_fixed: false,
            czxid: self.czxid,
            watch: self.watch,
            data: &self.data,
            removal: Removal::named(self.path.clone(), self.id.clone()),
        };
        let held_node = HeldNode::grant(&self.generation, node, on_loss)?;
        self.is_settled = true;
        Ok(held_node)
    }
}

impl Drop for ContenderNode {
    fn drop(&mut self) {
        if !self.is_settled {
            let (path, id) = (std::mem::take(&mut self.path), std::mem::take(&mut self.id));
            self.generation.remove(Removal::named(path, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZkSession;
    use crate::queue::name::Layout;
    use zk_session::Acl;
    use zk_test_server::TestServer;

    /// The event comes between the listing and the wait, while another contender is ahead.
    #[test]
    fn a_waiter_hears_of_its_own_node_at_once_and_forgets_what_its_listing_has_shown() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        for strategy in [WaitStrategy::Predecessor, WaitStrategy::Parent] {
            let dir = format!("/{strategy:?}");
            let queue = Queue::new(dir.clone(), Layout::Curator, Acl::Open, Arc::default())
                .waiting(strategy);
            let within = |seconds| Limit::after(Duration::from_secs(seconds));
            let _ahead = Request::tried(&session, &dir, within(20), |request| {
                let acquired = queue.acquire(request, Kind::Lock, &Callbacks::NONE, &mut None);
                acquired.unwrap().unwrap()
            });
            let end = |events, seconds| {
                Request::tried(&session, &dir, within(seconds), |request| {
                    let (kind, callbacks) = (Kind::Lock, &Callbacks::NONE);
                    let attempt = QueueAttempt { queue: &queue, request, kind, callbacks };
                    let place = &mut attempt.enqueue(&generation).ok().unwrap();
                    place.contender.listed = None;
                    place.notifier.notify(events);
                    let is_first = match strategy {
                        WaitStrategy::Predecessor => attempt.watch_predecessor(place)?,
                        WaitStrategy::Parent => attempt.watch_parent(place)?,
                    };
                    assert!(!is_first && place.waits.is_some());
                    attempt.until_changed(place)
                })
            };
            assert!(matches!(end(OWN_GONE, 20), Err(Stop::Anew)), "{strategy:?}");
            assert!(matches!(end(OWN_CHANGED, 20), Ok(false)), "{strategy:?}");
            let of_before = AHEAD_GONE | AHEAD_CHANGED | SESSION;
            assert!(matches!(end(of_before, 1), Err(Stop::Busy)), "{strategy:?}");
        }
    }

    /// A place in the queue of `/l`, as a call leaves it that gives up, and a request that goes on
    /// from there.
    fn place_that_goes_on<T>(
        session: &ZkSession,
        limit: Duration,
        test: impl FnOnce(&Queue, &Request<'_>, Place) -> T,
    ) -> T {
        let generation = session.core().generation().unwrap();
        let queue = Queue::new("/l".to_owned(), Layout::Curator, Acl::Open, Arc::default());
        Request::tried(session, "/l", Limit::after(limit), |request| {
            let (kind, callbacks) = (Kind::Lock, &Callbacks::NONE);
            let attempt = QueueAttempt { queue: &queue, request, kind, callbacks };
            let place = attempt.enqueue(&generation).ok().unwrap();
            test(&queue, request, place)
        })
    }

    /// The thread that has left the place has panicked after the grant, so its node is about to be
    /// deleted. A new contender waits behind that node.
    #[test]
    fn a_place_whose_node_was_granted_is_not_used_again() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let short = Duration::from_millis(300);
        place_that_goes_on(&session, short, |queue, request, mut place| {
            place.contender.is_settled = true;
            let acquired =
                queue.acquire(request, Kind::Lock, &Callbacks::NONE, &mut Some(Box::new(place)));
            assert!(!matches!(acquired, Ok(Some(_))));
        });
    }

    /// The listing that came with the node shows somebody ahead, who has gone before the next call
    /// began.
    #[test]
    fn a_place_that_changes_hands_is_listed_again() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let mutex = crate::ZkMutex::new(&session, "/l").unwrap();
        let guard = mutex.lock().unwrap();
        place_that_goes_on(&session, Duration::from_secs(20), |queue, request, place| {
            guard.unlock().unwrap();
            let acquired =
                queue.acquire(request, Kind::Lock, &Callbacks::NONE, &mut Some(Box::new(place)));
            assert!(matches!(acquired, Ok(Some(_))));
            assert!(!request.call.is_contended());
        });
    }
}
