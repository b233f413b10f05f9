//! How a waiter waits, by either strategy. With `Predecessor` it watches the one node that it has
//! to wait for, so that a release wakes one waiter. With `Parent` it watches the list of children,
//! and every change wakes every waiter.

use super::attempt::{AHEAD_CHANGED, AHEAD_GONE, OWN_CHANGED, OWN_GONE, QueueAttempt, SESSION};
use super::contender_node::ContenderNode;
use super::request::Step;
use crate::wait::Mode;
use zk_session::generation::{CallError, Operation};
use zk_session::lease::node::NodeWatch;
use zk_session::notifier::EventMask;

/// What a thread that waits for a lock watches at the server.
///
/// It decides what a release costs. It does not change who gets the lock: with either strategy that
/// is the order of the queue. Clients of one lock in different sessions may use different
/// strategies.
///
/// | | [`Predecessor`](Self::Predecessor) | [`Parent`](Self::Parent) |
/// | --- | --- | --- |
/// | woken by a release | the next one in the queue | every waiter |
/// | woken by a contender that comes | nobody | every waiter |
/// | woken by a contender that gives up | the next one behind it | every waiter |
/// | requests until it waits | a listing, and a read or two | a listing |
/// | requests when it is woken | none if it is next | a listing of the whole queue |
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{WaitStrategy, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let few = ZkMutex::builder(&session, "/locks/nightly").wait_strategy(WaitStrategy::Parent).build()?;
/// let _guard = few.lock()?;
/// # Ok(())
/// # }
/// ```
///
/// Source: "A simple lock" and "Herd effect" in "ZooKeeper: Wait-free coordination for
/// Internet-scale systems", 2010, 2.4; the lock recipe of the ZooKeeper documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// The one node that has to be deleted before this thread can have the lock: the node just
    /// ahead or, for a reader, the node of the last writer ahead. So says the lock recipe of the
    /// ZooKeeper documentation. The default.
    #[default]
    Predecessor,
    /// The list of children of the lock's node, the first version in textbooks. Every change of the
    /// queue wakes every waiter, and each of them lists the queue again. With `n` waiters a release
    /// causes `n` events, and `n` listings of `n` names each. Use it for a handful of waiters at
    /// most, or to see what a herd costs (`herd` in `bench/`).
    Parent,
}

impl QueueAttempt<'_> {
    /// Lists the queue, and waits for the node just ahead of ours, if there is one. True: no node
    /// is ahead. False: the queue must be listed again.
    pub(super) fn behind_predecessor(&mut self, contender: &mut ContenderNode) -> Step<bool> {
        let (ahead, epoch) = self.list(contender, false)?;
        let Some(ahead) = ahead else { return Ok(true) };
        self.blocked()?;
        let generation = contender.generation.clone();
        self.notifier.clear(!(OWN_GONE | OWN_CHANGED));
        // Register before the watch is set: an event may arrive before the answer to the read that
        // sets it.
        let mask = |gone, changed| EventMask { gone, changed };
        let _ahead = generation.nodes.register(
            ahead.path.clone(),
            &self.notifier,
            mask(AHEAD_GONE, AHEAD_CHANGED),
        );
        let _session =
            self.request.core().changes.register((), &self.notifier, mask(SESSION, SESSION));
        // If we are next, our own node is read in the same flight, with a watch: with that watch
        // set, the end of the node ahead is a grant, and no second listing is needed. A contender
        // further back sets the watch on its own node later, if it waits for long.
        let own = contender.path.clone();
        let read = |path| (Operation::GetData { path, watch: true }, None);
        let both = [read(ahead.path.as_str()), read(own.as_str())];
        let requests = if ahead.sole { both.as_slice() } else { &both[..1] };
        let flight = generation.flight(requests, &self.request.limit);
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
        if watched != epoch || generation.epoch() != epoch {
            return Ok(false);
        }
        debug!("{}: waiting for {}", contender.path, ahead.path);
        self.until_changed(contender, epoch, |contender, events| {
            if events & AHEAD_CHANGED != 0 {
                return Some(false);
            }
            // The server sends events in the order of the changes. So if our own watch stands and
            // has not fired, our node was still there when the node ahead was deleted.
            let stood = ahead.sole
                && contender.watch == NodeWatch::On(epoch)
                && generation.epoch() == epoch;
            (events & AHEAD_GONE != 0).then_some(stood)
        })
    }

    /// Lists the queue with a watch on the list, and waits for a change if some node is ahead.
    /// True: no node is ahead. False: the queue must be listed again.
    ///
    /// The end of our own node changes the list too. Our node gets a watch of its own all the same
    /// after a while, for the time between the last listing and the hold.
    pub(super) fn before_parent(&mut self, contender: &mut ContenderNode) -> Step<bool> {
        let generation = contender.generation.clone();
        // Notifications from before the listing below tell nothing that it does not show: they are
        // cleared. If the listing that came with our node is used instead, it has left a watch
        // already, and a notification of that counts.
        if contender.listed.is_none() {
            self.notifier.clear(!(OWN_GONE | OWN_CHANGED));
        }
        let mask = EventMask { gone: SESSION, changed: SESSION };
        let _session = self.request.core().changes.register((), &self.notifier, mask);
        let (ahead, epoch) = self.list(contender, self.request.mode != Mode::Try)?;
        if ahead.is_none() {
            return Ok(true);
        }
        self.blocked()?;
        // If the connection has changed since the listing, its watch is gone.
        if generation.epoch() != epoch {
            return Ok(false);
        }
        debug!("{}: waiting for a change of the queue", contender.path);
        self.until_changed(contender, epoch, |_, events| {
            (events & AHEAD_CHANGED != 0).then_some(false)
        })
    }
}
