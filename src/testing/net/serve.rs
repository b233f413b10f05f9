//! Takes requests off the connections and gives them to the engine, in fair shares and bounded batches.

use super::Core;
use super::conn::Stage;
use super::framing::Next;
use crate::session::wire::Malformed;
use crate::session::wire::code::op;
use crate::testing::engine::ConnId;
use crate::testing::faults::{Plan, Verdict};
use crate::testing::request::Sketch;
use crate::testing::words;

/// What a batch takes at most. Requests of one batch overlap, as those in ZooKeeper's own pipeline do
/// (`zookeeper.globalOutstandingLimit`).
#[derive(Debug)]
struct Quota {
    frames: usize,
    bytes: usize,
    /// Reads whose answers may be long: the memory they need is known only afterwards.
    large: usize,
}

const BATCH: Quota = Quota { frames: 1000, bytes: 4 << 20, large: 8 };
/// What a connection may have of it at least, however many there are.
const SHARE: usize = 16;
/// How many requests a turn serves before it looks at the sockets again.
const TURN: usize = 1000;

impl Quota {
    fn is_spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0 || self.large == 0
    }

    fn spend(&mut self, request: &Sketch<'_>, bytes: usize) {
        self.frames = self.frames.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.large = self.large.saturating_sub(usize::from(request.op.has_large_answer()));
    }
}

/// Goes with a request through the engine and comes back with its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    const CONNECT: u64 = 1;
    const DROP: u64 = 2;
    const SILENCE: u64 = 4;

    fn new(opcode: i32, plan: Option<Plan>) -> Tag {
        let connect = if opcode == op::CREATE_SESSION { Tag::CONNECT } else { 0 };
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

/// What is done to a connection once what it sent before is answered.
#[derive(Debug)]
enum Then {
    /// Its session stands, or is refused.
    Open,
    /// The client has closed it.
    End,
    Cut,
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
    pub(super) fn serve(&mut self) {
        let mut served = 0;
        while served < TURN && !self.ready.is_empty() && !self.faults.black_hole {
            served += self.batch();
        }
    }

    /// Serves all that has arrived by now.
    pub(super) fn catch_up(&mut self) {
        /// Somebody who sends faster than we serve is not waited for.
        const TURNS: usize = 100;
        for id in self.ids() {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.readable();
                self.queue(id);
            }
        }
        for _ in 0..TURNS {
            self.serve();
            self.flush();
            if self.ready.is_empty() || self.faults.black_hole {
                break;
            }
        }
    }

    /// One batch; gives back how many requests it had.
    fn batch(&mut self) -> usize {
        let mut quota = BATCH;
        let waiting = self.ready.len();
        let share = (BATCH.frames / waiting.max(1)).max(SHARE);
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
        for (id, then) in thens {
            self.then(id, then);
        }
        BATCH.frames - quota.frames
    }

    fn visit(&mut self, id: ConnId, share: usize, quota: &mut Quota) -> Visit {
        let most = quota.frames.saturating_sub(share);
        loop {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_served()) else {
                return Visit::Done;
            };
            if quota.is_spent() || quota.frames <= most {
                return Visit::More;
            }
            let is_first = conn.stage == Stage::First;
            let next = conn.input.peek(self.max_frame, is_first.then_some(words::is_word));
            let at = match next {
                Next::Frame(at) => at,
                Next::Wait if conn.read(&mut self.buffer) => continue,
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
            let request =
                if is_first { Sketch::connect(frame) } else { Sketch::request(frame, conn.session) };
            let Some(request) = request else {
                return Visit::Then(Then::Close(format!("a request of {} bytes", frame.len())));
            };
            let plan = match self.faults.judge(&request, id, conn.after) {
                Verdict::Pass => None,
                Verdict::Strike(plan) => Some(plan),
                Verdict::Hold(hold) => {
                    conn.held = Some(hold);
                    self.has_news = true;
                    return Visit::Done;
                }
            };
            quota.spend(&request, frame.len());
            let logged = request.logged(plan != Some(Plan::DropRequest));
            let tag = Tag::new(request.opcode, plan);
            let result = match plan {
                Some(Plan::DropRequest) => Ok(()),
                _ => self.engine.prepare(id, frame, tag.0),
            };
            conn.input.consume(&at);
            conn.after = 0;
            if let Err(Malformed(why)) = result {
                return Visit::Then(Then::Close(why.to_owned()));
            }
            self.history.request(logged);
            self.has_news = true;
            if plan == Some(Plan::DropRequest) {
                return Visit::Then(Then::Cut);
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
            Then::Cut => self.cut(id),
            Then::Close(why) => {
                log::warn!("test server: closed {}: {why}", conn.peer);
                self.engine.hang_up(id);
                self.close(id);
            }
        }
    }

    fn answer_word(&mut self, id: ConnId, word: [u8; 4]) {
        let Some(listener) = &self.listener else { return };
        log::debug!("test server: {}", String::from_utf8_lossy(&word));
        self.engine.count_word(id);
        let asked = words::Asked { conn: id, address: listener.address() };
        let answer = words::answer(&mut self.engine, word, asked);
        self.engine.count_answer();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.push(answer.as_bytes());
        }
        self.close(id);
    }
}
