//! The rule behind the lease: at which time the leader has certainly heard of this session.
//!
//! The leader alone expires a session, T after it last heard of it. Suppose that the client is
//! connected to another server: a follower or an observer, here called the learner. Then the leader
//! hears of the client in two ways only. First, the leader itself checks the session when the
//! client attaches to the learner. Second, every half tick of its own the leader pings the learner,
//! and the answer lists the sessions that the learner has heard since the ping before. **A request
//! that the learner forwards does not count**, not even a write: the leader serves it and leaves
//! the session's clock alone. So a client that was silent for most of T may be expired a moment
//! after its next write was acknowledged.
//!
//! Three steps show what the leader has heard. Each follows from the order of one stream.
//!
//! 1. The learner **answered** a request that the client had sent at *s*. Half a tick and T/12
//!    later, or still later, the client sent the request of step 2. In between the leader sent a
//!    ping. (Its pings are half a tick apart; T/12 is added because the leader may pause and clocks
//!    differ.) The learner had heard the client at *s* or later, so its answer to this ping, or to
//!    an earlier one, lists the session.
//! 2. The leader served an **ordered** request: an acknowledged write or an answered `sync`. The
//!    leader's pings and its answer to this request reach the learner in one stream. So when the
//!    client has the answer, the learner has answered every ping that the leader sent before.
//! 3. The leader served a **write that the client sent after the answer of step 2** and that is
//!    acknowledged. The learner's answers to pings and this write reach the leader in one stream.
//!    So the leader has heard those answers. It was still the leader then, since the write needs a
//!    quorum.
//!
//! Then the leader heard of the session at *s* or later, and expires it at *s* + T or later. The
//! connection's own handshake needs no ping: it counts as a request that has passed steps 1 and 2.
//! It still needs step 3, because a server that has been replaced as the leader also answers
//! handshakes.
//!
//! An answer may also come from a learner without a leader. Such a learner answers pings and reads
//! by itself and, with `zookeeper.enableEagerACLCheck`, refuses writes with NoAuth by itself. So a
//! write counts as acknowledged only if its answer bears a zxid above every zxid that the client
//! had seen when it sent the write: only the leader gives out new zxids. (Such a refusal bears zxid
//! 0. If it bore the last zxid that the learner has applied, another client's write could lift it
//! above the zxids that our client had seen.)
//!
//! An earlier rule had no step 2: it counted each acknowledged write. That proof fails if the
//! stream from the leader to the learner stalls for about T/3, and the stream from the learner to
//! the leader breaks right after the write has passed. `search` finds such a history, and finds
//! none for this rule.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootTime;

#[cfg(test)]
mod search;

/// About how many answers are remembered. An answer that comes very soon after the answer before is
/// not noted, which makes the lease a little shorter.
const GRAINS: u32 = 32;

/// The rule, for one session over all its connections.
#[derive(Default)]
pub struct Heard {
    /// How long before an ordered request an earlier request must have been answered (step 1).
    lag: Duration,
    /// Answered requests of this connection: when each was sent, and when its answer was read. The
    /// oldest is first. Entries that no later request can need are dropped.
    answered: VecDeque<(BootTime, BootTime)>,
    /// The newest *s* that has passed steps 1 and 2 on this connection.
    relayed: Option<BootTime>,
    /// The largest zxid that any server has sent in this session.
    zxid: i64,
}

/// What the client knew when it sent a request. It decides what the answer shows.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub sent: BootTime,
    zxid: i64,
    /// The newest *s* that has passed step 1.
    answered: Option<BootTime>,
    /// The newest *s* that has passed steps 1 and 2. If this request is a write and the leader
    /// acknowledges it, then the leader heard of the session at that time or later.
    pub relayed: Option<BootTime>,
}

/// What kind of answer a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer that any server can give by itself: to a ping, to a read, or a refusal.
    Local,
    /// The answer to a `sync`, which the leader served.
    Synced,
    /// A write's answer of a kind that the leader commits: success or a refusal. The zxid shows
    /// whether the leader gave it.
    Written,
}

impl Heard {
    pub fn new() -> Self {
        Heard { lag: Duration::ZERO, answered: VecDeque::new(), relayed: None, zxid: 0 }
    }

    /// A connection has taken up the session; its handshake was sent at `sent`.
    pub fn attached(&mut self, lag: Duration, sent: BootTime, now: BootTime) {
        self.lag = lag;
        self.answered.clear();
        self.answered.push_back((sent, now));
        self.relayed = Some(sent);
    }

    /// A request is being sent.
    pub fn send(&mut self, now: BootTime) -> Stamp {
        Stamp {
            sent: now,
            zxid: self.zxid,
            answered: self.answered_before(now),
            relayed: self.relayed,
        }
    }

    /// Whether an ordered request that is sent now would show an *s* that is newer, by more than
    /// `by`, than earlier requests have shown.
    pub fn would_gain(&mut self, by: Duration, now: BootTime) -> bool {
        let gained = self.answered_before(now).zip(self.relayed);
        gained.is_some_and(|(answered, relayed)| answered > relayed + by)
    }

    /// The newest *s* that passes step 1 for a request that is sent now.
    fn answered_before(&mut self, now: BootTime) -> Option<BootTime> {
        let is_in_time = |entry: Option<&(BootTime, BootTime)>| {
            entry.is_some_and(|(_, answered)| *answered + self.lag <= now)
        };
        while is_in_time(self.answered.get(1)) {
            self.answered.pop_front();
        }
        self.answered.front().filter(|first| is_in_time(Some(first))).map(|(sent, _)| *sent)
    }

    /// A server has sent this zxid.
    pub fn saw(&mut self, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
    }

    /// Takes the answer to a request. True if the request is a write that the leader acknowledged.
    pub fn answer(&mut self, stamp: &Stamp, kind: Answer, zxid: i64, now: BootTime) -> bool {
        let is_written = kind == Answer::Written && zxid > stamp.zxid;
        self.saw(zxid);
        if is_written || kind == Answer::Synced {
            self.relayed = self.relayed.max(stamp.answered);
        }
        let last = self.answered.back();
        if last.is_none_or(|(sent, answered)| {
            stamp.sent > *sent && *answered + self.lag / GRAINS <= now
        }) {
            self.answered.push_back((stamp.sent, now));
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T is 48 units; a tick is not known, so the lag is T/4 + T/12.
    const LAG: u64 = 16;

    fn at(unit: u64) -> BootTime {
        BootTime::at(Duration::from_secs(unit))
    }

    /// What happens at some time.
    enum Does {
        /// The client reads the answer to the handshake that it sent at this time.
        Attach(u64),
        /// The client sends the request with this number.
        Send(usize),
        /// The client reads the answer to the request with this number.
        Read(usize, Answer, i64),
    }
    use Answer::{Local, Synced, Written};
    use Does::{Attach, Read, Send};

    /// For each acknowledged write, in order: the time at which the leader has heard of the
    /// session.
    fn shown(history: &[(u64, Does)]) -> Vec<u64> {
        let (mut heard, mut stamps, mut shown) = (Heard::new(), Vec::new(), Vec::new());
        for (time, does) in history {
            match does {
                Attach(sent) => heard.attached(Duration::from_secs(LAG), at(*sent), at(*time)),
                Send(n) => {
                    assert_eq!(*n, stamps.len());
                    stamps.push(heard.send(at(*time)));
                }
                Read(n, answer, zxid) => {
                    if heard.answer(&stamps[*n], *answer, *zxid, at(*time)) {
                        shown.push(stamps[*n].relayed.unwrap().since(at(0)).as_secs());
                    }
                }
            }
        }
        shown
    }

    #[test]
    fn histories_and_what_they_show() {
        // A write right after the handshake shows the handshake.
        assert_eq!(shown(&[(100, Attach(99)), (101, Send(0)), (102, Read(0, Written, 1))]), [99]);
        // Pings alone show nothing.
        assert!(shown(&[(100, Attach(99)), (103, Send(0)), (104, Read(0, Local, 1))]).is_empty());
        // The steady state: a ping, a lag later a sync, and after its answer a write.
        let steady = [
            (100, Attach(99)),
            (103, Send(0)),
            (104, Read(0, Local, 1)),
            (120, Send(1)),
            (121, Read(1, Synced, 1)),
            (121, Send(2)),
            (122, Read(2, Written, 2)),
        ];
        assert_eq!(shown(&steady), [103]);
        // The same, but the sync was sent a unit too early: only the handshake is shown.
        let early = [
            (100, Attach(99)),
            (103, Send(0)),
            (104, Read(0, Local, 1)),
            (119, Send(1)),
            (121, Read(1, Synced, 1)),
            (121, Send(2)),
            (122, Read(2, Written, 2)),
        ];
        assert_eq!(shown(&early), [99]);
        // The same, but the write was sent together with the sync, and not after its answer.
        let together = [
            (100, Attach(99)),
            (103, Send(0)),
            (104, Read(0, Local, 1)),
            (120, Send(1)),
            (120, Send(2)),
            (121, Read(1, Synced, 1)),
            (122, Read(2, Written, 2)),
        ];
        assert_eq!(shown(&together), [99]);
        // Writes one after the other need no sync: each is the ordered request for the next.
        let writes = [
            (100, Attach(99)),
            (110, Send(0)),
            (111, Read(0, Written, 1)),
            (130, Send(1)),
            (131, Read(1, Written, 2)),
            (132, Send(2)),
            (133, Read(2, Written, 3)),
        ];
        assert_eq!(shown(&writes), [99, 99, 110]);
    }

    #[test]
    fn after_a_silence_the_first_writes_show_nothing_newer_and_a_new_connection_does() {
        // The process is stopped, or its host sleeps (the clock goes on), from 105 to 145.
        let silence = [
            (100, Attach(99)),
            (104, Send(0)),
            (105, Read(0, Local, 1)),
            (145, Send(1)),
            (146, Read(1, Written, 2)),
            (146, Send(2)),
            (147, Read(2, Written, 3)),
        ];
        assert_eq!(shown(&silence), [99, 104]);
        // An answer that lay unread during the silence counts from when it is read.
        let unread = [
            (100, Attach(99)),
            (104, Send(0)),
            (145, Read(0, Local, 1)),
            (146, Send(1)),
            (147, Read(1, Synced, 1)),
            (147, Send(2)),
            (148, Read(2, Written, 3)),
        ];
        assert_eq!(shown(&unread), [99]);
        let attached = [
            (100, Attach(99)),
            (104, Send(0)),
            (105, Read(0, Local, 1)),
            (147, Attach(145)),
            (147, Send(1)),
            (148, Read(1, Written, 2)),
        ];
        assert_eq!(shown(&attached), [145]);
    }

    #[test]
    fn nothing_of_an_earlier_connection_counts_on_the_next_one() {
        let moved = [
            (100, Attach(99)),
            (119, Send(0)),
            (120, Read(0, Synced, 1)),
            (122, Attach(121)),
            (140, Send(1)),
            (141, Read(1, Written, 2)),
            (142, Send(2)),
            (143, Read(2, Written, 3)),
        ];
        assert_eq!(shown(&moved), [121, 121]);
    }

    #[test]
    fn a_write_counts_only_with_a_zxid_above_all_that_were_seen_when_it_was_sent() {
        for (zxid, is_written) in [(0, false), (7, false), (8, true)] {
            let mut heard = Heard::new();
            heard.attached(Duration::from_secs(LAG), at(99), at(100));
            heard.saw(7);
            let stamp = heard.send(at(101));
            assert_eq!(heard.answer(&stamp, Written, zxid, at(102)), is_written, "{zxid}");
        }
        // Two writes are in flight: both count.
        let both = [
            (100, Attach(99)),
            (101, Send(0)),
            (101, Send(1)),
            (102, Read(0, Written, 8)),
            (102, Read(1, Written, 9)),
        ];
        assert_eq!(shown(&both), [99, 99]);
    }

    #[test]
    fn the_number_of_remembered_answers_is_bounded() {
        let mut heard = Heard::new();
        heard.attached(Duration::from_secs(LAG), at(99), at(100));
        for ms in 0..200_000 {
            let now = at(100) + Duration::from_millis(ms);
            let stamp = heard.send(now);
            heard.answer(&stamp, Local, 1, now);
            assert!(heard.answered.len() <= 2 + GRAINS as usize);
        }
        let stamp = heard.send(at(300));
        assert!(stamp.answered > Some(at(300 - LAG - 1)));
    }
}
