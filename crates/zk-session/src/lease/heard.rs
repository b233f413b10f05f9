//! The rule behind the lease: which time the leader has certainly heard of this session at, or
//! after.
//!
//! The leader alone expires a session, T after it last heard of it, and a new leader begins with
//! the whole of T. Suppose that the client is connected to another server: a follower or an
//! observer, here called the learner. Then the leader hears of the client in two ways only. First,
//! the leader itself checks the session when the client attaches to the learner. Second, every half
//! tick of its own the leader pings the learner, and the answer lists the sessions that the learner
//! has heard since the ping before. **A request that the learner forwards does not count**, not
//! even a write: the leader serves it and leaves the session's clock alone. So a client that was
//! silent for most of T may be expired a moment after its next write was acknowledged.
//!
//! The rule has two halves, and what it shows is the earlier of their two times:
//!
//! - *heard*: the leader to which this connection leads has heard of the session at this time or
//!   later;
//! - *committed*: a quorum has committed a proposal that this leader made at this time or later. So
//!   no other leader had taken its place before, and a leader that comes after it gives the session
//!   the whole of T.
//!
//! A connection has one leader: a learner closes its connections when it leaves its leader, and so
//! does a leader when it stops to lead. Nothing of an earlier connection counts.
//!
//! # Heard
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
//! 3. The leader served **another ordered request, which the client sent after the answer of step
//!    2**. The learner's answers to pings and this request reach the leader in one stream. So the
//!    leader has heard those answers.
//!
//! If the request of step 3 is a write, the leader has looked whether the session still lives. It
//! does not look at a `sync`: it may have taken the session for expired already, so that what it
//! heard had no effect, and the end of the session is on its way. So a `sync` counts in step 3 only
//! if its answer is read before the end of the lease that was shown before: until then no leader
//! takes the session for expired.
//!
//! The connection's own handshake needs no ping: it counts as a request that has passed steps 1 and
//! 2. It still needs step 3: a learner may answer it by the leader's answer to an earlier handshake
//! of the session.
//!
//! # Committed
//!
//! An acknowledged **write of our own** was proposed after it was sent. That holds at every server.
//!
//! A **write of another client** counts too, if no server that we are connected to leads. Our
//! `sync` comes to the leader from a learner then. The leader answers it behind the commit of every
//! proposal that it made before, and the learner gets the answer in one stream with the commits. So
//! if a later answer on the connection bears a zxid above all zxids that we had seen when we read
//! the answer to a `sync`, then the leader made that proposal after it served the `sync`, and a
//! quorum has committed it: *committed* is the time at which we sent the `sync`. This can be any
//! `sync`; it need not be one of the three steps.
//!
//! **At a leader this is wrong**: it answers the `sync` of its own client at once, like a read. A
//! proposal may be older than the `sync`, and its last acknowledgement may lie in a stalled stream,
//! while the servers behind that stream have chosen another leader. Then the zxid rises behind the
//! `sync` although the leader was replaced before. No request shows whether a server leads. So this
//! half is used only where the application states that no leader serves clients (`leader_serves`).
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
//! the leader breaks right after the write has passed. `search` finds such a history, and one for
//! each other rule that leaves something out, and finds none for this rule.
//!
//! # A touch may be lost
//!
//! Step 1 takes for granted that the learner lists each session that it has heard. ZooKeeper has a
//! race there. A learner notes a session (it *touches* it) in a table, and each ping takes the
//! table away (`LearnerSessionTracker.touchSession` and `snapshot`). A thread may read which table
//! it is, be stopped while a ping takes that table and lists it, and only then write into it. Its
//! request is answered, and the touch is lost. This can happen only to the first touch of a session
//! after a ping. The leader itself has no such table.
//!
//! **The rule does not bear this in each history** (`Rule::LosesTouch`). The touch of step 1 is
//! lost. Steps 2 and 3 follow, and the end of the session comes before the leader is told of their
//! touches. Two such histories:
//!
//! - The client was silent for 0.77 T before step 1. (The session does not do this: it connects
//!   again after T/3 of silence, and a handshake needs no table.)
//! - The stream from the learner to the leader breaks within half a tick after step 3, and the
//!   client reaches no other server until its lease ends.
//!
//! An idle holder sends a `sync` or a write each T/8, so more touches must be lost. In a million
//! such histories, with ticks of T/15 to T/2, the search finds an early end only if three touches
//! are lost one after the other or, where streams stall and break, two.
//!
//! A rule that counts each answered request from the time at which the request *before* it was sent
//! bears the loss of one touch, since a learner does the requests of a connection one after the
//! other (`Rule::Pairs`). It would shorten the lease by the time between two requests, unless the
//! session sent a ping together with each `sync`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootTime;

#[cfg(test)]
mod search;

/// About how many answers are remembered. An answer that comes very soon after the answer before is
/// not noted, which makes the lease a little shorter.
const GRAINS: u32 = 32;

/// How long the lease lasts behind the time at which the leader has heard of the session. The
/// twelfth that is left out is for the difference between our clock and the leader's.
pub fn span(timeout: Duration) -> Duration {
    timeout - timeout / 12
}

/// The rule, for one session over all its connections.
#[derive(Default)]
pub struct Heard {
    /// A server that this session is connected to may lead. If not, the application has said so.
    leader_serves: bool,
    /// How long before an ordered request an earlier request must have been answered (step 1).
    lag: Duration,
    /// How long the lease lasts behind `shown`.
    span: Duration,
    /// Answered requests of this connection: when each was sent, and when its answer was read. The
    /// oldest is first. Entries that no later request can need are dropped.
    answered: VecDeque<(BootTime, BootTime)>,
    /// The newest *s* that has passed steps 1 and 2 on this connection.
    relayed: Option<BootTime>,
    /// The leader of this connection has heard of the session at this time or later (step 3).
    heard: Option<BootTime>,
    /// A quorum has committed what the leader of this connection proposed at this time or later.
    committed: Option<BootTime>,
    /// The last `sync` of this connection that was answered: when it was sent, and the largest zxid
    /// that was seen when its answer was read.
    synced: Option<(BootTime, i64)>,
    /// The newest time that is shown, on any connection.
    shown: Option<BootTime>,
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
    /// The newest *s* that has passed steps 1 and 2. If the leader serves this request, then the
    /// leader has heard of the session at that time or later.
    relayed: Option<BootTime>,
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

/// What an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The request is a write that the leader acknowledged.
    pub is_written: bool,
    /// The leader has heard of the session at this time or later, which no earlier answer has
    /// shown.
    pub heard: Option<BootTime>,
}

impl Heard {
    pub fn new(leader_serves: bool) -> Self {
        Heard { leader_serves, ..Heard::default() }
    }

    /// A server has made the session, which needs a quorum. The connect request was sent at `sent`.
    pub fn made(&mut self, sent: BootTime) {
        self.shown = Some(sent);
    }

    /// A connection has taken up the session; its handshake was sent at `sent`. `timeout` is the
    /// session's.
    pub fn attached(&mut self, lag: Duration, timeout: Duration, sent: BootTime, now: BootTime) {
        (self.lag, self.span) = (lag, span(timeout));
        self.answered.clear();
        self.answered.push_back((sent, now));
        self.relayed = Some(sent);
        (self.heard, self.committed, self.synced) = (None, None, None);
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

    /// A quorum has committed what the leader of this connection proposed at this time or later.
    pub fn committed(&self) -> Option<BootTime> {
        self.committed
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

    /// Takes the answer to a request of this connection.
    pub fn answer(&mut self, stamp: &Stamp, kind: Answer, zxid: i64, now: BootTime) -> Shown {
        let is_written = kind == Answer::Written && zxid > stamp.zxid;
        self.saw(zxid);
        self.note_commit(stamp, is_written, kind, zxid);
        if is_written || kind == Answer::Synced && self.lasts(now) {
            self.heard = self.heard.max(stamp.relayed);
        }
        if is_written || kind == Answer::Synced {
            self.relayed = self.relayed.max(stamp.answered);
        }
        let last = self.answered.back();
        if last.is_none_or(|(sent, answered)| {
            stamp.sent > *sent && *answered + self.lag / GRAINS <= now
        }) {
            self.answered.push_back((stamp.sent, now));
        }
        Shown { is_written, heard: self.show() }
    }

    /// Notes what an answer shows of proposals that were committed.
    fn note_commit(&mut self, stamp: &Stamp, is_written: bool, kind: Answer, zxid: i64) {
        if is_written {
            self.committed = self.committed.max(Some(stamp.sent));
        }
        if let Some((sent, _)) = self.synced.filter(|(_, seen)| zxid > *seen) {
            self.committed = self.committed.max(Some(sent));
        }
        if kind == Answer::Synced && !self.leader_serves {
            self.synced = Some((stamp.sent, self.zxid));
        }
    }

    /// Whether the lease still lasts that was shown before.
    fn lasts(&self, now: BootTime) -> bool {
        self.shown.is_some_and(|shown| now < shown + self.span)
    }

    /// The earlier of the two times, if it is newer than all that was shown before.
    fn show(&mut self) -> Option<BootTime> {
        let shown = self.heard.min(self.committed);
        if shown <= self.shown {
            return None;
        }
        self.shown = shown;
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T is 48 units; a tick is not known, so the lag is T/4 + T/12. The lease lasts 44 units.
    const T: Duration = Duration::from_secs(48);
    const LAG: u64 = 16;

    fn at(unit: u64) -> BootTime {
        BootTime::at(Duration::from_secs(unit))
    }

    /// What happens at some time.
    #[derive(Clone, Copy)]
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

    /// Each time that is shown, in order: the leader has heard of the session then or later. The
    /// session was made at 90.
    fn shown_if(leader_serves: bool, history: &[(u64, Does)]) -> Vec<u64> {
        let (mut heard, mut stamps, mut all) = (Heard::new(leader_serves), Vec::new(), Vec::new());
        heard.made(at(90));
        for (time, does) in history {
            match does {
                Attach(sent) => heard.attached(Duration::from_secs(LAG), T, at(*sent), at(*time)),
                Send(n) => {
                    assert_eq!(*n, stamps.len());
                    stamps.push(heard.send(at(*time)));
                }
                Read(n, answer, zxid) => {
                    let shown = heard.answer(&stamps[*n], *answer, *zxid, at(*time));
                    all.extend(shown.heard.map(|heard| heard.since(at(0)).as_secs()));
                }
            }
        }
        all
    }

    /// As above; the session may be connected to a leader.
    fn shown(history: &[(u64, Does)]) -> Vec<u64> {
        shown_if(true, history)
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
        assert_eq!(shown(&writes), [99, 110]);
    }

    #[test]
    fn one_write_serves_all_that_the_leader_hears_later_and_shows_no_more_than_its_own_time() {
        let write_and_syncs = [
            (100, Attach(99)),
            (103, Send(0)),
            (104, Read(0, Local, 1)),
            (108, Send(1)),
            (109, Read(1, Written, 2)),
            // The leader has heard what was sent at 103.
            (120, Send(2)),
            (121, Read(2, Synced, 2)),
            (121, Send(3)),
            (122, Read(3, Synced, 2)),
            // And what was sent at 121; but it may have been replaced at 108.
            (138, Send(4)),
            (139, Read(4, Synced, 2)),
            (139, Send(5)),
            (140, Read(5, Synced, 2)),
        ];
        assert_eq!(shown(&write_and_syncs), [99, 103, 108]);
    }

    #[test]
    fn a_sync_shows_what_the_leader_has_heard_only_as_long_as_the_lease_lasts() {
        for (read, all) in [(142, vec![99, 103]), (143, vec![99])] {
            let late = [
                (100, Attach(99)),
                (103, Send(0)),
                (104, Read(0, Local, 1)),
                (108, Send(1)),
                (109, Read(1, Written, 2)),
                (120, Send(2)),
                (121, Read(2, Synced, 2)),
                (121, Send(3)),
                (read, Read(3, Synced, 2)),
            ];
            assert_eq!(shown(&late), all, "{read}");
        }
    }

    #[test]
    fn a_write_of_another_client_counts_behind_a_sync_where_no_leader_serves_us() {
        /// The steady state without a write of ours; then a ping that is answered with `zxid`.
        fn history(zxid: i64) -> [(u64, Does); 9] {
            [
                (100, Attach(99)),
                (103, Send(0)),
                (104, Read(0, Local, 7)),
                (120, Send(1)),
                (121, Read(1, Synced, 7)),
                (121, Send(2)),
                (122, Read(2, Synced, 8)),
                (125, Send(3)),
                (126, Read(3, Local, zxid)),
            ]
        }
        // The zxid of the second sync shows that the leader still led at the first one.
        assert_eq!(shown_if(false, &history(8)), [103]);
        assert!(shown(&history(8)).is_empty());
        assert!(shown(&history(9)).is_empty());
        let later = |zxid| {
            let mut later = history(zxid).to_vec();
            later.extend([(138, Send(4)), (139, Read(4, Synced, zxid))]);
            later.extend([(139, Send(5)), (140, Read(5, Local, zxid))]);
            later.extend([(156, Send(6)), (157, Read(6, Synced, zxid))]);
            later
        };
        // The ping's answer shows that the leader led at 121. What it heard at 121 is shown by the
        // last sync, which is too late.
        assert_eq!(shown_if(false, &later(9)), [103]);
    }

    #[test]
    fn a_zxid_that_was_seen_before_the_answer_to_the_sync_shows_no_commit() {
        let after_sync = |seen, zxid| {
            let mut heard = Heard::new(false);
            heard.made(at(90));
            heard.attached(Duration::from_secs(LAG), T, at(99), at(100));
            let sync = heard.send(at(101));
            heard.saw(seen);
            heard.answer(&sync, Synced, 7, at(102));
            let ping = heard.send(at(103));
            heard.answer(&ping, Local, zxid, at(104)).heard
        };
        assert_eq!(after_sync(7, 7), None);
        assert_eq!(after_sync(9, 8), None);
        assert_eq!(after_sync(9, 9), None);
        assert_eq!(after_sync(9, 10), Some(at(99)));
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
            (123, Send(1)),
            (124, Read(1, Local, 2)),
            (140, Send(2)),
            (141, Read(2, Written, 3)),
            (142, Send(3)),
            (143, Read(3, Written, 4)),
        ];
        assert_eq!(shown(&moved), [121, 123]);
        // Neither a write nor a sync of the connection before shows that this leader led.
        assert_eq!(shown_if(false, &moved[..6]), Vec::<u64>::new());
        let written = [
            (100, Attach(99)),
            (101, Send(0)),
            (102, Read(0, Written, 1)),
            (122, Attach(121)),
            (123, Send(1)),
            (124, Read(1, Synced, 1)),
        ];
        assert_eq!(shown_if(false, &written), [99]);
    }

    #[test]
    fn a_write_counts_only_with_a_zxid_above_all_that_were_seen_when_it_was_sent() {
        for (zxid, is_written) in [(0, false), (7, false), (8, true)] {
            let mut heard = Heard::new(true);
            heard.attached(Duration::from_secs(LAG), T, at(99), at(100));
            heard.saw(7);
            let stamp = heard.send(at(101));
            let shown = heard.answer(&stamp, Written, zxid, at(102));
            assert_eq!(shown.is_written, is_written, "{zxid}");
            assert_eq!(shown.heard, is_written.then_some(at(99)), "{zxid}");
        }
        // Two writes are in flight: both count.
        let both = [
            (100, Attach(99)),
            (101, Send(0)),
            (101, Send(1)),
            (102, Read(0, Written, 8)),
            (102, Read(1, Written, 9)),
        ];
        assert_eq!(shown(&both), [99]);
    }

    #[test]
    fn the_number_of_remembered_answers_is_bounded() {
        let mut heard = Heard::new(true);
        heard.attached(Duration::from_secs(LAG), T, at(99), at(100));
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
