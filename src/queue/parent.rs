//! Waiting for the list of children to change: every change of the queue wakes every waiter.

use super::Mode;
use super::attempt::{AHEAD_CHANGED, Attempt, OWN_CHANGED, OWN_GONE, SESSION};
use super::call::Step;
use super::ticket::Ticket;
use crate::session::bell::Causes;

impl Attempt<'_> {
    /// Lists the queue with a watch on the list, and waits for a change if somebody is ahead. True: nobody is; false: the queue must be
    /// read again.
    ///
    /// The end of our own node is a change like any other; it has a watch of its own all the same after a while, for the time between
    /// the last listing and the hold.
    pub(super) fn before_parent(&mut self, ticket: &mut Ticket) -> Step<bool> {
        let generation = ticket.generation.clone();
        // What came before the listing that is about to be made is in it. The listing that came with
        // our node left a watch: an event of it counts.
        if ticket.listed.is_none() {
            self.bell.hush(!(OWN_GONE | OWN_CHANGED));
        }
        let causes = Causes { gone: SESSION, changed: SESSION };
        let _session = self.request.core.changes.register((), &self.bell, causes);
        let (ahead, epoch) = self.look(ticket, self.request.mode == Mode::Wait)?;
        if ahead.is_none() {
            return Ok(true);
        }
        self.blocked()?;
        // The watch stands on the connection that is known, or nothing is known.
        if generation.epoch() != epoch {
            return Ok(false);
        }
        debug!("{}: waiting for a change of the queue", ticket.path);
        self.until_changed(ticket, epoch, |_, rung| (rung & AHEAD_CHANGED != 0).then_some(false))
    }
}
