//! Requests to the server: the crate's, under our own xids, and the link's own.

use super::*;

impl Machine {
    pub(super) fn new_xid(&mut self) -> i32 {
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.next_xid
    }

    pub(super) fn send(&mut self, xid: i32, op: i32, owner: Owner, frame: &[u8], now: BootTime) {
        self.to_server.extend_from_slice(frame);
        let stamp = self.heard.send(now);
        self.flight.push_back(Flight { xid, op, stamp, owner });
        self.last_sent = now;
        if op::is_write(op) || op == op::SYNC {
            self.last_ordered = now;
        }
    }

    /// Sends what the crate asked and was not sent yet, under our own xids.
    pub(super) fn forward(&mut self, now: BootTime) {
        if self.phase != Phase::Up {
            return;
        }
        for i in 0..self.asked.len() {
            let xid = if self.asked[i].sent { continue } else { self.new_xid() };
            let asked = &mut self.asked[i];
            asked.sent = true;
            let (op, body) = (asked.op, std::mem::take(&mut asked.frame));
            let mut frame = Writer::request(xid, op).frame();
            frame.extend_from_slice(body.get(8..).unwrap_or_default());
            let length = (frame.len() - 4) as i32;
            frame[..4].copy_from_slice(&length.to_be_bytes());
            self.send(xid, op, Owner::Crate, &frame, now);
        }
    }

    pub(super) fn send_chores(&mut self, now: BootTime) {
        if self.phase != Phase::Up || self.is_ending() {
            return;
        }
        let attach = self.shared.attach();
        for hold in self.shared.lease.unarmed(attach, WATCH_AFTER, now) {
            hold.set_armed_on(attach);
            self.chores.add(Chore::Watch { hold }, now);
        }
        for id in self.chores.due(now) {
            let xid = self.new_xid();
            if let Some((op, frame)) = self.chores.request(id, xid) {
                self.send(xid, op, Owner::Chore(id), &frame, now);
            }
        }
    }

    pub(crate) fn chore(&mut self, chore: Chore, now: BootTime) {
        self.last_traffic = now;
        if self.is_ending() {
            return; // its sender is dropped: the session is lost
        }
        self.resume_after_silence(now);
        self.chores.add(chore, now);
        self.send_chores(now);
    }

    /// Renews the lease by a write in `dir`.
    pub(crate) fn prove(&mut self, dir: String, done: Sender<Outcome>, now: BootTime) {
        self.last_traffic = now;
        self.resume_after_silence(now);
        // Without a connection the sender is dropped: its caller waits for the connection by the
        // retry policy, not here.
        if self.phase == Phase::Up && !self.is_ending() {
            self.proof.waiting.push(Waiting { dir, since: now, done });
            self.renew_lease(now);
        }
    }

    /// Looks for holds that need a watch now.
    pub(crate) fn wake(&mut self, now: BootTime) {
        self.send_chores(now);
    }
}
