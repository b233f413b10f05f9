//! Waiting for the one node whose end concerns us: a release wakes one waiter.

use super::attempt::{AHEAD_CHANGED, AHEAD_GONE, Ahead, Attempt, OWN_CHANGED, OWN_GONE, SESSION, Step};
use super::ticket::Ticket;
use crate::session::bell::Causes;
use crate::session::generation::CallError;

impl Attempt<'_> {
    /// Lists the queue, and waits for the one ahead if there is one. True: nobody is ahead; false: the queue must be read again.
    pub(super) fn behind_predecessor(&mut self, ticket: &mut Ticket) -> Step<bool> {
        let attach = ticket.generation.shared.attach();
        let Some(ahead) = self.look(ticket, false)? else { return Ok(true) };
        self.blocked()?;
        self.wait(ticket, &ahead, attach)
    }

    /// Waits for the one ahead. True: it is gone and we hold; false: the queue must be read again.
    fn wait(&mut self, ticket: &mut Ticket, ahead: &Ahead, attach: u64) -> Step<bool> {
        let generation = ticket.generation.clone();
        let limit = &self.request.limit;
        self.bell.hush(!(OWN_GONE | OWN_CHANGED));
        // Bells before watches: an event may come before the answer to the read that armed its watch.
        let causes = |gone, changed| Causes { gone, changed };
        let _ahead = generation.shared.nodes.register(
            ahead.path.clone(),
            &self.bell,
            causes(AHEAD_GONE, AHEAD_CHANGED),
        );
        let _session = self.request.core.changes.register((), &self.bell, causes(SESSION, SESSION));
        // One that was written to since it was made may leave a persistent node in its place that the listing did not show yet.
        let sole = match generation.read(&ahead.path, true, limit) {
            Ok(node) => ahead.sole && node.version == 0,
            Err(CallError::NoNode) => return Ok(false),
            Err(e) => return Err(self.stop(&ahead.path, e)),
        };
        // With its own watch in place a hold needs no second listing, if that one is all there is.
        // Further back in the queue the wait is what it is for, and it can wait a little itself.
        if sole {
            self.watch_own(ticket, attach)?;
        }
        // All watches stand on the connection that the listing came from, or nothing is known.
        if generation.shared.attach() != attach {
            return Ok(false);
        }
        debug!("{}: waiting for {}", ticket.path, ahead.path);
        self.until_changed(ticket, attach, |ticket, rung| {
            if rung & AHEAD_CHANGED != 0 {
                return Some(false);
            }
            // Events come in the order of what happened: our own node stood when that one went.
            let stood = sole && ticket.armed_on == attach && generation.shared.attach() == attach;
            (rung & AHEAD_GONE != 0).then_some(stood)
        })
    }
}
