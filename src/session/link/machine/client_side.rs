//! The client crate's side: its requests in, its answers out, in order.

use super::*;

impl Machine {
    pub(crate) fn crate_bytes(&mut self, bytes: &[u8], now: BootTime) -> Result<(), Malformed> {
        self.last_traffic = now;
        self.resume_after_silence(now);
        self.from_crate.push(bytes);
        let mut frames = std::mem::take(&mut self.from_crate);
        let mut result = Ok(());
        while result.is_ok() {
            match frames.next() {
                Ok(Some(frame)) => result = self.crate_frame(frame, now),
                Ok(None) => break,
                Err(e) => result = Err(e),
            }
        }
        self.from_crate = frames;
        result
    }

    pub(super) fn crate_frame(&mut self, frame: &[u8], now: BootTime) -> Result<(), Malformed> {
        if !self.crate_connected {
            self.crate_connected = true;
            // A timeout this long keeps the crate from pinging and from thinking itself expired.
            let reply = ConnectReply { timeout_ms: i32::MAX, session_id: 1, password: vec![0; 16] };
            self.to_crate.extend(reply.frame());
            return Ok(());
        }
        let (xid, op) = request_header(frame)?;
        // The crate counts on into negative numbers, which mean something else in answers.
        let xid = if op == op::PING { xid } else { xid & i32::MAX };
        match op {
            op::PING => self.answer_crate(xid, err::OK),
            op::CLOSE => {
                self.crate_close = Some(xid);
                self.end(LossReason::SessionClosed, now);
                self.settle_crate_close();
            }
            _ => match &self.ending {
                Some(ending) => {
                    let code = code_of(ending.reason);
                    self.answer_crate(xid, code);
                }
                None => {
                    let op = if op == op::CREATE && frame.ends_with(&4i32.to_be_bytes()) {
                        op::CREATE_CONTAINER // the crate makes a persistent node of its Container mode
                    } else {
                        op
                    };
                    let frame = frame.to_vec();
                    self.asked.push_back(Asked { xid, op, frame, arrived: now, sent: false });
                    self.forward(now);
                }
            },
        }
        Ok(())
    }

    pub(super) fn answer_crate(&mut self, xid: i32, err: i32) {
        self.to_crate.extend(ReplyHeader { xid, zxid: 0, err }.frame(&[]));
    }

    /// Once the session is over the crate's own close request can be answered.
    pub(super) fn settle_crate_close(&mut self) {
        if self.is_over()
            && let Some(xid) = self.crate_close.take()
        {
            self.answer_crate(xid, err::OK);
            self.crate_closed = true;
        }
    }

    /// Whether the crate's close request is answered: its socket should close soon.
    pub(crate) fn crate_is_closed(&self) -> bool {
        self.crate_closed
    }
}
