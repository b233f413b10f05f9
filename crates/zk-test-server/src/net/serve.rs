//! Takes requests off the connections and gives them to the engine, in fair shares and bounded
//! batches.

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
    /// Requests that may take long, or be answered at length: what they cost is known only
    /// afterwards.
    large: usize,
    /// When the turn is over.
    until: Instant,
}

const FRAMES: usize = 1000;
const BYTES: usize = 4 << 20;
const LARGE: usize = 8;
/// One of the large requests counts once more for each of so many bytes.
const PIECE: usize = 128 << 10;
/// How many requests of a batch each connection may have at least, however many connections there
/// are.
const SHARE: usize = 16;
/// How many requests a turn serves before it looks at the sockets again.
const TURN: usize = 1000;
/// And for how long at most, give or take one batch's second half.
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

/// Goes with a request through the engine and comes back with its answer.
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

/// What to do with a connection when its earlier requests are answered.
#[derive(Debug)]
enum Then {
    /// Its session has been made or refused.
    Open,
    /// The client has closed it.
    End,
    Close(String),
}

/// How a visit to a connection ended.
enum Visit {
    /// It may have more.
    More,
    Done,
    Then(Then),
}

impl Core {
    /// Serves for one turn; gives back how many requests.
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

    /// Serves all that has arrived by now, on connections that were not accepted yet too.
    pub(super) fn catch_up(&mut self) {
        /// Somebody who sends faster than we serve is not waited for.
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

    /// Serves one batch. Returns how many requests it had.
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
                conn.stop_reading(); // nothing behind it is served, even if it has arrived already
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
                    let _ = conn.write(); // it may have closed but its own half
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

/// Throws away what a connection sends; notices its end.
fn ignore(conn: &mut Conn, buffer: &mut [u8], quota: &mut Quota) -> Visit {
    for _ in 0..SHARE {
        if !conn.read(buffer) {
            // Who only listens on is still sent what is on its way.
            let is_gone = conn.at_end && conn.stage == Stage::Silent;
            return if is_gone { Visit::Then(Then::End) } else { Visit::Done };
        }
        conn.input.clear();
        quota.frames = quota.frames.saturating_sub(1);
    }
    Visit::More
}
