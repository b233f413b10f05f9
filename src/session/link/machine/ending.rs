//! The end of a session: by its server, by its user, or by refused credentials.

use super::*;

impl Machine {
    /// Closes the session at the server and then for good; `done` hears whether the server knows.
    pub(crate) fn close(&mut self, done: Sender<bool>, now: BootTime) {
        self.end(LossReason::SessionClosed, now);
        match &mut self.ending {
            Some(ending) if self.phase != Phase::Over => ending.done.push(done),
            Some(ending) => drop(done.try_send(ending.told)),
            None => {}
        }
    }

    /// The session is lost to its users from here on: every caller gets an answer now.
    pub(crate) fn end(&mut self, reason: LossReason, now: BootTime) {
        if self.ending.is_some() {
            return;
        }
        self.shared.lease.end(reason);
        self.ending = Some(Ending { reason, until: now + GOODBYE, told: false, done: Vec::new() });
        self.events.push(LinkEvent::Lost(reason));
        while !self.asked.is_empty() {
            self.refuse_oldest(code_of(reason));
        }
        self.chores.drop_all();
        self.proof.waiting.clear(); // the senders are dropped: the session is lost
        for flight in &mut self.flight {
            flight.owner = Owner::Link;
        }
        match (reason, self.phase) {
            (LossReason::SessionExpired, _) => self.over(true),
            (_, Phase::Up | Phase::Auth(..)) => self.say_goodbye(now),
            // A session was or may be made: the next connection, or the one being made, closes it.
            (_, Phase::Greeting(_)) => {}
            (_, Phase::Down) if self.session.is_some() => {}
            _ => self.over(true),
        }
    }

    pub(super) fn say_goodbye(&mut self, now: BootTime) {
        self.phase = Phase::Up;
        // What the end of the session does not end. The names are nobody else's.
        for path in self.shared.lasting_debris() {
            let xid = self.new_xid();
            let frame = Writer::request(xid, op::DELETE).buffer(path.as_bytes()).i32(-1).frame();
            self.send(xid, op::DELETE, Owner::Link, &frame, now);
        }
        let xid = self.new_xid();
        let frame = Writer::request(xid, op::CLOSE).frame();
        self.send(xid, op::CLOSE, Owner::Close, &frame, now);
    }

    pub(super) fn over(&mut self, told: bool) {
        self.phase = Phase::Over;
        self.cut = Some("the session has ended".into());
        self.flight.clear();
        self.to_server.clear();
        if let Some(ending) = &mut self.ending {
            ending.told = told;
            for done in ending.done.drain(..) {
                let _ = done.try_send(told);
            }
        }
        self.settle_crate_close();
    }
}
