//! An answer beyond the longest frame: a listing of far too many children, or a huge node.
//!
//! Only the request that it answers fails, and for good: asking again, on whatever connection, would
//! give the same. The bytes are thrown away as they come, so that what follows them is still heard.

use super::*;

impl Machine {
    /// Whether a request is unanswered whose answer can be that long. As long as there is none, a
    /// length beyond the longest frame is not the protocol.
    pub(super) fn awaits_long_answer(&self) -> bool {
        self.flight.iter().any(|flight| op::has_long_answer(flight.op))
    }

    /// The head of a frame beyond the longest: the request gets an error code in the place of the answer.
    pub(super) fn server_head(&mut self, head: &[u8; HEAD], now: BootTime) -> Result<(), Malformed> {
        let (header, _) = ReplyHeader::read(head)?;
        let is_answered = |flight: &Flight| flight.xid == header.xid && op::has_long_answer(flight.op);
        if header.err != err::OK || !self.flight.iter().any(is_answered) {
            return Err(Malformed("a frame of impossible length"));
        }
        self.skipped_at = now;
        let frame = ReplyHeader { err: err::TOO_LONG, ..header }.frame(&[]);
        self.server_frame(frame.get(4..).unwrap_or_default(), now)
    }

    /// When the connection is given up because the oldest request has no answer.
    ///
    /// That is T/6 after it was sent. While the bytes of a long answer come, the T/6 count from the
    /// last of them, because other answers wait behind it. But no request waits longer than T/3: a
    /// server that sends the bytes one by one is given up too. (A renewal of the lease that waits so
    /// long may come too late, and the lease ends.)
    ///
    /// Nothing unsafe can come of waiting: only answers extend a lease, and its end waits for none.
    /// Nor does any caller wait for longer: each request is answered after T/6 whatever the
    /// connection does.
    pub(super) fn overdue_at(&self) -> Option<BootTime> {
        let sent = self.flight.front()?.stamp.sent;
        Some((sent.max(self.skipped_at) + self.patience()).min(sent + self.patience() * 2))
    }
}
