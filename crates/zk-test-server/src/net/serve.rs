//! Reads requests from the connections, in fair shares and bounded batches, and gives them to the
//! engine.

use std::time::{Duration, Instant};

use super::Core;
use super::conn::{Conn, Stage};
use super::framing::Next;
use crate::engine::ConnId;
use crate::faults::{Plan, Verdict};
use crate::request::RequestSummary;
use crate::words;
use zk_wire::Malformed;

/// How many requests a batch takes at most. Requests of one batch overlap, as those in ZooKeeper's
/// own pipeline do (`zookeeper.globalOutstandingLimit`).
#[derive(Debug)]
struct Quota {
    frames: usize,
    bytes: usize,
    /// The number of requests that may take long or have a long answer. Their cost is known only
    /// afterwards.
    large: usize,
    /// The time at which the turn ends.
    until: Instant,
}

const FRAMES: usize = 1000;
const BYTES: usize = 4 << 20;
const LARGE: usize = 8;
/// A large request counts once more for each so many bytes of its answer.
const PIECE: usize = 128 << 10;
/// The number of a batch's requests that each connection may have at least, however many
/// connections there are.
const SHARE: usize = 16;
/// How many requests a turn serves before the server polls the sockets again.
const TURN: usize = 1000;
/// How long a turn lasts at most; the second half of its last batch may exceed it.
const SLICE: Duration = Duration::from_millis(10);

impl Quota {
    fn new(until: Instant) -> Quota {
        Quota { frames: FRAMES, bytes: BYTES, large: LARGE, until }
    }

    fn is_spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0 || self.large == 0 || Instant::now() >= self.until
    }

    fn spend(&mut self, request: &RequestSummary<'_>, bytes: usize) {
        self.frames = self.frames.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        if request.op.is_large() {
            self.large = self.large.saturating_sub(1 + bytes / PIECE);
        }
    }
}

/// The tag that goes with a request through the engine and returns with its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    const CONNECT: u64 = 1;
    const DROP: u64 = 2;
    const SILENCE: u64 = 4;

    fn new(is_connect: bool, plan: Option<Plan>) -> Tag {
        let connect = if is_connect { Tag::CONNECT } else { 0 };
        Tag(connect
            | match plan {
                Some(Plan::DropReply) => Tag::DROP,
                Some(Plan::SilenceReply) => Tag::SILENCE,
                Some(Plan::DropRequest) | None => 0,
            })
    }

    pub(super) fn is_connect(self) -> bool {
        self.0 & Tag::CONNECT != 0
    }

    pub(super) fn plan(self) -> Option<Plan> {
        match self.0 {
            tag if tag & Tag::DROP != 0 => Some(Plan::DropReply),
            tag if tag & Tag::SILENCE != 0 => Some(Plan::SilenceReply),
            _ => None,
        }
    }
}

/// What happens to a connection when its earlier requests are answered.
#[derive(Debug)]
enum Then {
    /// The session has been made or refused.
    Open,
    /// The client has closed the session.
    End,
    Close(String),
}

/// The result of one visit to a connection.
enum Visit {
    /// The connection may have more requests.
    More,
    Done,
    Then(Then),
}

impl Core {
    /// Serves for one turn. Returns the number of requests.
    pub(super) fn serve(&mut self) -> usize {
        let until = Instant::now() + SLICE;
        let mut served = 0;
        while served < TURN && !self.ready.is_empty() && !self.faults.black_hole {
            served += self.batch(until);
            if Instant::now() >= until {
                break;
            }
        }
        served
    }

    /// Serves all requests that have arrived by now, also on connections that were not accepted
    /// yet.
    pub(super) fn catch_up(&mut self) {
        /// Limits the wait for a client that sends faster than the server serves.
        const MOST: usize = 100_000;
        const LONGEST: Duration = Duration::from_secs(10);
        let start = Instant::now();
        self.accept_all();
        for id in self.ids() {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.readable();
                self.queue(id);
            }
        }
        let mut served = 0;
        while !self.ready.is_empty()
            && !self.faults.black_hole
            && served < MOST
            && start.elapsed() < LONGEST
        {
            served += self.serve();
            self.flush();
        }
    }

    /// Serves one batch. Returns the number of its requests.
    fn batch(&mut self, until: Instant) -> usize {
        let mut quota = Quota::new(until);
        let waiting = self.ready.len();
        let share = (FRAMES / waiting.max(1)).max(SHARE);
        let mut thens = Vec::new();
        for _ in 0..waiting {
            if quota.is_spent() {
                break;
            }
            let Some(id) = self.ready.pop_front() else { break };
            let visit = self.visit(id, share, &mut quota);
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.is_queued = false;
            }
            match visit {
                Visit::More => self.queue(id),
                Visit::Done => {}
                Visit::Then(then) => thens.push((id, then)),
            }
        }
        self.engine.apply();
        self.deliver();
        self.inject_unanswered();
        for (id, then) in thens {
            self.then(id, then);
        }
        FRAMES - quota.frames
    }

    fn visit(&mut self, id: ConnId, share: usize, quota: &mut Quota) -> Visit {
        let most = quota.frames.saturating_sub(share);
        loop {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_heard()) else {
                return Visit::Done;
            };
            if conn.is_ignored() {
                return ignore(conn, &mut self.buffer, quota);
            }
            if quota.is_spent() || quota.frames <= most {
                return Visit::More;
            }
            let is_first = conn.stage == Stage::First;
            let next = conn.input.peek(self.max_frame, is_first.then_some(words::is_word));
            let at = match next {
                Next::Frame(at) => at,
                Next::Wait if conn.read(&mut self.buffer) => {
                    if let Some(subject) = conn.take_subject() {
                        self.engine.identify(id, subject);
                    }
                    continue;
                }
                Next::Wait if conn.at_end => return Visit::Then(Then::End),
                Next::Wait => return Visit::Done,
                Next::Word(word) => {
                    self.answer_word(id, word);
                    return Visit::Done;
                }
                Next::Nonsense(length) => {
                    return Visit::Then(Then::Close(format!("a frame of {length} bytes")));
                }
            };
            let frame = conn.input.frame(&at);
            let request = if is_first {
                RequestSummary::connect(frame)
            } else {
                RequestSummary::request(frame, conn.session)
            };
            let Some(request) = request else {
                return Visit::Then(Then::Close(format!("a request of {} bytes", frame.len())));
            };
            let plan = match self.faults.judge(&request, id, conn.after) {
                Verdict::Pass => None,
                Verdict::Inject(plan) => Some(plan),
                Verdict::Hold(hold) => {
                    conn.held = Some(hold);
                    self.has_news = true;
                    return Visit::Done;
                }
            };
            quota.spend(&request, frame.len());
            let logged = request.logged(plan != Some(Plan::DropRequest));
            let tag = Tag::new(is_first, plan);
            let result = match plan {
                Some(Plan::DropRequest) => Ok(()),
                _ => self.engine.prepare(id, frame, tag.0),
            };
            conn.input.consume(&at);
            conn.after = 0;
            if let (Err(Malformed(why)), None) = (result, plan) {
                return Visit::Then(Then::Close(why.to_owned()));
            }
            self.history.request(logged);
            self.has_news = true;
            if let Some(plan) = plan {
                conn.stop_reading(); // later requests are not served, even those that have arrived
                self.to_inject.push((id, plan));
                return Visit::More;
            }
            if is_first {
                conn.stage = Stage::Connecting;
                return Visit::Then(Then::Open);
            }
        }
    }

    fn then(&mut self, id: ConnId, then: Then) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match then {
            Then::Open => {
                if conn.stage == Stage::Connecting {
                    conn.stage = Stage::Open;
                }
                self.queue(id);
            }
            Then::End => {
                if !self.faults.black_hole {
                    let _ = conn.write(); // the client may have closed only its own direction
                }
                self.drop_conn(id);
            }
            Then::Close(why) => {
                warn!("test server: closed {}: {why}", conn.peer);
                self.cut(id);
            }
        }
    }

    fn answer_word(&mut self, id: ConnId, word: [u8; 4]) {
        let Some(listener) = &self.listener else { return };
        debug!("test server: {}", String::from_utf8_lossy(&word));
        self.engine.count_word(id);
        let asked = words::Asked { conn: id, address: listener.address() };
        let answer = words::answer(&mut self.engine, word, asked);
        self.engine.count_answer();
        self.finish(id, answer.into());
    }
}

/// Throws away the bytes that a connection sends, and notices its end.
fn ignore(conn: &mut Conn, buffer: &mut [u8], quota: &mut Quota) -> Visit {
    for _ in 0..SHARE {
        if !conn.read(buffer) {
            // A client that has closed only its own direction still gets the bytes that wait for
            // it.
            let is_gone = conn.at_end && conn.stage == Stage::Silent;
            return if is_gone { Visit::Then(Then::End) } else { Visit::Done };
        }
        conn.input.clear();
        quota.frames = quota.frames.saturating_sub(1);
    }
    Visit::More
}
