//! The end of a session: by the server, by the application, or by refused credentials. Every caller
//! gets an answer at once; then the machine tries for `CLOSE_TIMEOUT` to close the session at the
//! server.

use super::*;
use crate::machine::codec::Operation;

impl Machine {
    /// Closes the session. Says whether the server knows, if that is known already; otherwise
    /// [`Output::Closed`] says so later.
    pub(crate) fn close(&mut self, now: BootTime) -> Option<bool> {
        self.end(LossReason::SessionClosed, now);
        let ending = self.ending.as_mut()?;
        if self.phase == Phase::Over {
            return Some(ending.server_knows);
        }
        ending.is_awaited = true;
        None
    }

    /// The session is lost from here on: every caller gets an answer now.
    pub(crate) fn end(&mut self, reason: LossReason, now: BootTime) {
        self.end_at_server(reason, reason != LossReason::SessionExpired, now);
    }

    /// The same. `lives`: the server may still have the session, so it must be closed there.
    pub(super) fn end_at_server(&mut self, reason: LossReason, lives: bool, now: BootTime) {
        if self.ending.is_some() {
            return;
        }
        let until = now + CLOSE_TIMEOUT;
        self.ending = Some(Ending {
            reason,
            until,
            is_close_sent: false,
            is_login_refused: false,
            server_knows: false,
            is_awaited: false,
        });
        self.outputs.push_back(Output::Lost(reason));
        self.fail_all(code_of(reason), now);
        self.background.drop_all();
        self.looks = Looks::default();
        self.proof.waiters.clear(); // `Lost` tells their callers
        match (reason, self.phase) {
            _ if !lives => self.over(true),
            // `Generation::close` has ended the lease before this call: no guard is valid any more.
            (LossReason::SessionClosed, Phase::Up | Phase::Auth(..)) => self.send_close(now),
            // The next `tick` sends the close request, after the event loop has carried out `Lost`.
            // When the server hears of the end it deletes our nodes, and other processes get the
            // locks: by then no guard of ours may be valid.
            (_, Phase::Up | Phase::Auth(..)) => {}
            // A session was or may be made. The connection that is being made closes it, once it
            // has logged in; or the next one, if the session's id is known.
            (_, Phase::Handshake(_) | Phase::Sasl(..)) => {}
            (_, Phase::Down) if self.session.is_some() => {}
            _ => self.over(true),
        }
    }

    /// Takes the place of a machine in which a thread has panicked, or whose event loop has. The
    /// state of that machine may be half changed, so nothing of it is used any more: its session is
    /// lost, and the server does not hear of it. Its callers get no answers; their channels are
    /// disconnected.
    pub(crate) fn failed(now: BootTime) -> Self {
        let mut machine = Machine::new(MachineConfig::new(Duration::ZERO, String::new()), now);
        machine.end(LossReason::Internal, now);
        machine.over(false);
        machine
    }

    pub(super) fn send_close(&mut self, now: BootTime) {
        self.phase = Phase::Up;
        if let Some(ending) = &mut self.ending {
            ending.is_close_sent = true;
        }
        self.send(&Operation::Close, SentFor::Close, now);
    }

    pub(super) fn over(&mut self, server_knows: bool) {
        self.phase = Phase::Over;
        self.cut = Some("the session has ended".into());
        self.outstanding.clear();
        self.to_server.clear();
        if let Some(ending) = &mut self.ending {
            ending.server_knows = server_knows;
            if std::mem::take(&mut ending.is_awaited) {
                self.outputs.push_back(Output::Closed(server_knows));
            }
        }
    }
}
