//! Waiting, by either strategy: for the one node whose end concerns us, so that a release wakes one
//! waiter; or for any change of the list of children, which wakes every waiter.

use super::Mode;
use super::attempt::{AHEAD_CHANGED, AHEAD_GONE, OWN_CHANGED, OWN_GONE, QueueAttempt, SESSION};
use super::call::Step;
use super::contender_node::ContenderNode;
use crate::session::generation::{CallError, Operation, Reply};
use crate::session::notifier::EventMask;

impl QueueAttempt<'_> {
    /// Lists the queue, and waits for the one ahead if there is one. True: nobody is ahead; false:
    /// the queue must be read again.
    pub(super) fn behind_predecessor(&mut self, contender: &mut ContenderNode) -> Step<bool> {
        let (ahead, epoch) = self.look(contender, false)?;
        let Some(ahead) = ahead else { return Ok(true) };
        self.blocked()?;
        let generation = contender.generation.clone();
        self.notifier.clear(!(OWN_GONE | OWN_CHANGED));
        // WatchRegistry before watches: an event may come before the answer to the read that armed its
        // watch.
        let mask = |gone, changed| EventMask { gone, changed };
        let _ahead = generation.nodes.register(
            ahead.path.clone(),
            &self.notifier,
            mask(AHEAD_GONE, AHEAD_CHANGED),
        );
        let _session =
            self.request.core.changes.register((), &self.notifier, mask(SESSION, SESSION));
        // One that was written to since it was made may leave a persistent node in its place that
        // the listing did not show yet. With a watch on its own node the next in line needs no
        // second listing. It is read in the same flight. A contender further back sets that watch
        // later, if it waits for long.
        let own = contender.path.clone();
        let read = |path| (Operation::GetData { path, watch: true }, None);
        let both = [read(ahead.path.as_str()), read(own.as_str())];
        let requests = if ahead.sole { both.as_slice() } else { &both[..1] };
        let flight = generation.flight(requests, &self.request.limit);
        let mut answers = flight.map_err(|e| self.call.stop(&ahead.path, e))?;
        let watched = answers.epoch;
        if ahead.sole {
            self.own_watched(contender, &mut answers, 1)?;
        }
        let sole = match answers.take(0).and_then(Reply::node) {
            Ok(node) => ahead.sole && node.stat.version == 0,
            Err(CallError::NoNode) => return Ok(false),
            Err(e) => return Err(self.call.stop(&ahead.path, e)),
        };
        // All watches stand on the connection that the listing came from, or nothing is known.
        if watched != epoch || generation.epoch() != epoch {
            return Ok(false);
        }
        debug!("{}: waiting for {}", contender.path, ahead.path);
        self.until_changed(contender, epoch, |contender, events| {
            if events & AHEAD_CHANGED != 0 {
                return Some(false);
            }
            // Events come in the order of what happened: our own node stood when that one went.
            let stood = sole && contender.armed_on == epoch && generation.epoch() == epoch;
            (events & AHEAD_GONE != 0).then_some(stood)
        })
    }

    /// Lists the queue with a watch on the list, and waits for a change if somebody is ahead. True:
    /// nobody is; false: the queue must be read again.
    ///
    /// The end of our own node is a change like any other; it has a watch of its own all the same
    /// after a while, for the time between the last listing and the hold.
    pub(super) fn before_parent(&mut self, contender: &mut ContenderNode) -> Step<bool> {
        let generation = contender.generation.clone();
        // What came before the listing that is about to be made is in it. The listing that came
        // with our node left a watch: an event of it counts.
        if contender.listed.is_none() {
            self.notifier.clear(!(OWN_GONE | OWN_CHANGED));
        }
        let mask = EventMask { gone: SESSION, changed: SESSION };
        let _session = self.request.core.changes.register((), &self.notifier, mask);
        let (ahead, epoch) = self.look(contender, self.request.mode == Mode::Wait)?;
        if ahead.is_none() {
            return Ok(true);
        }
        self.blocked()?;
        // The watch stands on the connection that is known, or nothing is known.
        if generation.epoch() != epoch {
            return Ok(false);
        }
        debug!("{}: waiting for a change of the queue", contender.path);
        self.until_changed(contender, epoch, |_, events| {
            (events & AHEAD_CHANGED != 0).then_some(false)
        })
    }
}
