//! The requests of callers, and raw requests, from `submit` to their answers.
//!
//! A batch is the set of requests that one caller sends at once, without waiting for answers in
//! between. The server does the requests of a session in order, so a later request of a batch sees
//! the effect of an earlier one. Each batch is answered exactly once, within T/6, unless its caller
//! has left.

use super::*;
use crate::machine::codec::{CallError, Operation, Reply};

/// The requests that one caller sends together.
pub struct Batch {
    /// The frames, one after the other. The xids are filled in when they are sent.
    frames: Vec<u8>,
    requests: Vec<BatchRequest>,
    answer_to: AnswerTo,
}

/// The receiver of a batch's answers.
enum AnswerTo {
    /// The caller that has the batch's number.
    Caller,
    /// The owner's listener for raw requests, with the number that the request has there.
    Listener(u64),
    /// The caller has left.
    Nobody,
}

struct BatchRequest {
    op: i32,
    /// The start of its frame in the batch's frames.
    at: usize,
    /// The removal of the node that this request may make. It is used if the caller does not get
    /// the node.
    removal: Option<Removal>,
    answer: Option<Result<Reply, CallError>>,
}

/// A batch's answers, in the order of its requests.
pub struct Answers {
    pub(crate) all: Vec<Result<Reply, CallError>>,
    /// The epoch of the connection on which they came.
    pub epoch: u64,
    /// The requests were sent, or may have been. Otherwise no server ever gets them.
    pub were_sent: bool,
    /// The ids of our own nodes that were still to be deleted when the last answer came. A node
    /// that was deleted before is in no listing of this batch, because the server does requests in
    /// order.
    pub pending: Arc<HashSet<String>>,
    /// The connection was given up when a part of an answer to these requests had come. It may be so
    /// long that the next connection is given up in the same way, and it blocks the answers to all
    /// other requests of the session.
    pub was_cut_short: bool,
}

/// A batch that was submitted and still lacks an answer.
pub(super) struct SubmittedBatch {
    batch: Batch,
    submitted_at: BootTime,
    is_sent: bool,
    was_cut_short: bool,
}

impl Batch {
    /// A batch of a caller.
    pub(crate) fn new() -> Self {
        Batch {
            frames: Vec::with_capacity(256),
            requests: Vec::with_capacity(2),
            answer_to: AnswerTo::Caller,
        }
    }

    /// One raw request: its operation and its body.
    pub(crate) fn raw(number: u64, op: i32, body: &[u8]) -> Self {
        let frames = Writer::request(0, op).raw(body).frame();
        let part = BatchRequest { op, at: 0, removal: None, answer: None };
        Batch { frames, requests: vec![part], answer_to: AnswerTo::Listener(number) }
    }

    pub(crate) fn push(&mut self, operation: &Operation<'_>, removal: Option<Removal>) {
        let at = self.frames.len();
        self.frames = operation.encode(0, std::mem::take(&mut self.frames));
        self.requests.push(BatchRequest { op: operation.code(), at, removal, answer: None });
    }
}

impl Machine {
    pub(super) fn new_xid(&mut self) -> i32 {
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.next_xid
    }

    /// Sends one request of the machine's own.
    pub(super) fn send(&mut self, operation: &Operation<'_>, sent_for: SentFor, now: BootTime) {
        let xid = self.new_xid();
        self.to_server = operation.encode(xid, std::mem::take(&mut self.to_server));
        self.sent(xid, operation.code(), sent_for, now);
    }

    pub(super) fn sent(&mut self, xid: i32, op: i32, sent_for: SentFor, now: BootTime) {
        let stamp = self.heard.send(now);
        // A caller's `sync` is no step of a renewal. If it counted here, a caller that tries for a
        // lock again and again would put each renewal off, and other callers would find the lease
        // too short to be granted a lock.
        let is_callers = matches!(sent_for, SentFor::Batch { .. });
        self.outstanding.push_back(Outstanding { xid, op, stamp, sent_for });
        self.last_sent = now;
        if op::is_write(op) || op == op::SYNC && !is_callers {
            self.last_ordered = now;
        }
    }

    /// Takes requests, and sends them at once if there is a connection. Gives the number with which
    /// their answers come, and with which the caller can [abandon](Self::abandon) them.
    pub(crate) fn submit(&mut self, batch: Batch, now: BootTime) -> Result<u64, CallError> {
        self.resume_after_silence(self.timeout() / 3, now);
        if let Some(ending) = &self.ending {
            return Err(self.call_error(op::CLOSE, code_of(ending.reason)));
        }
        let number = self.new_number();
        let submitted =
            SubmittedBatch { batch, submitted_at: now, is_sent: false, was_cut_short: false };
        self.batches.insert(number, submitted);
        self.unsent.push_back(number);
        self.send_unsent(now);
        Ok(number)
    }

    pub(super) fn send_unsent(&mut self, now: BootTime) {
        if !self.is_up() {
            return;
        }
        while let Some(number) = self.unsent.pop_front() {
            let Some(SubmittedBatch { batch, is_sent, .. }) = self.batches.get_mut(&number) else {
                continue;
            };
            *is_sent = true;
            let (mut frames, from) = (std::mem::take(&mut batch.frames), self.to_server.len());
            let requests: Vec<(i32, usize)> =
                batch.requests.iter().map(|part| (part.op, part.at)).collect();
            if from == 0 {
                std::mem::swap(&mut self.to_server, &mut frames);
            } else {
                self.to_server.append(&mut frames);
            }
            for (part, (op, at)) in requests.into_iter().enumerate() {
                let (xid, field) = (self.new_xid(), from + at + 4);
                if let Some(field) = self.to_server.get_mut(field..field + 4) {
                    field.copy_from_slice(&xid.to_be_bytes());
                }
                self.sent(xid, op, SentFor::Batch { number, part }, now);
            }
        }
    }

    /// The caller of these requests leaves. The nodes that they have made or may still make are
    /// deleted. False: all answers were there before; the caller [takes](Self::take_answers) them,
    /// or has them.
    pub(crate) fn abandon(&mut self, number: u64, now: BootTime) -> bool {
        let is_withdrawn = self.withdraw(number);
        if !is_withdrawn {
            let Some(submitted) = self.batches.get_mut(&number) else { return false };
            submitted.batch.answer_to = AnswerTo::Nobody;
            for part in &submitted.batch.requests {
                match (&part.answer, &part.removal) {
                    (None, Some(removal)) => self.background.expect(&removal.id),
                    // A failed create was settled when it failed.
                    (Some(answer), Some(removal)) if answer.is_ok() => {
                        self.background.settle(removal.clone(), answer, now);
                    }
                    _ => {}
                }
            }
        }
        self.resume_after_silence(self.timeout() / 3, now);
        self.send_background(now);
        true
    }

    /// Takes requests back that were not sent: no server ever gets them. False: they were sent, or
    /// are answered.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let Ok(at) = self.unsent.binary_search(&number) else { return false };
        self.unsent.remove(at);
        self.batches.remove(&number).is_some()
    }

    /// Takes the answers to these requests from the outputs.
    pub(crate) fn take_answers(&mut self, number: u64) -> Option<Answers> {
        let is_it = |output: &Output| matches!(output, Output::Answered(of, ..) if *of == number);
        let at = self.outputs.iter().position(is_it)?;
        match self.outputs.remove(at) {
            Some(Output::Answered(_, answers)) => Some(answers),
            _ => None,
        }
    }

    /// Takes the answer to one request of a batch.
    pub(super) fn batch_answered(
        &mut self,
        (number, part): (u64, usize),
        op: i32,
        header: ReplyHeader,
        body: &[u8],
        now: BootTime,
    ) -> Result<(), Malformed> {
        let failed = (header.err != err::OK).then(|| self.call_error(op, header.err));
        let Some(SubmittedBatch { batch, is_sent, .. }) = self.batches.get_mut(&number) else {
            return Ok(());
        };
        let answer = match failed {
            None => Ok(codec::decode(op, body)?),
            Some(e) => Err(e),
        };
        let Some(part) = batch.requests.get_mut(part) else { return Ok(()) };
        if let Some(removal) = &part.removal {
            if let (Ok(Reply::Created(path, stat)), false) = (&answer, removal.is_named()) {
                self.background.acknowledged.insert(path.clone(), stat.czxid);
            }
            let has_left = matches!(batch.answer_to, AnswerTo::Nobody);
            // If the outcome is unknown, the node is deleted, whatever the caller does next.
            let is_lost = *is_sent && answer.as_ref().is_err_and(is_uncertain);
            if has_left || is_lost {
                self.background.settle(removal.clone(), &answer, now);
            }
        }
        part.answer = Some(answer);
        if batch.requests.iter().all(|part| part.answer.is_some()) {
            self.complete(number, header, body);
        }
        Ok(())
    }

    /// Gives the answers of a batch to its caller. `header` and `body` are those of the last
    /// answer.
    fn complete(&mut self, number: u64, header: ReplyHeader, body: &[u8]) {
        let Some(submitted) = self.batches.remove(&number) else { return };
        let SubmittedBatch { batch, is_sent, was_cut_short, .. } = submitted;
        match batch.answer_to {
            AnswerTo::Caller => {
                let all = batch.requests.into_iter().filter_map(|part| part.answer).collect();
                let (epoch, pending) = (self.epoch, self.pending_deletes());
                let answers = Answers { all, epoch, were_sent: is_sent, pending, was_cut_short };
                self.outputs.push_back(Output::Answered(number, answers));
            }
            AnswerTo::Listener(number) => {
                let (ReplyHeader { err, zxid, .. }, body) = (header, body.to_vec());
                self.outputs.push_back(Output::RawAnswered { number, err, zxid, body });
            }
            AnswerTo::Nobody => {}
        }
    }

    /// The connection is lost: requests that were sent on it are answered with `CONNECTION_LOSS`.
    /// Requests that wait for a connection stay. `cut_short`: the request whose answer has come in
    /// part, and was late.
    pub(super) fn fail_sent(&mut self, cut_short: Option<SentFor>, now: BootTime) {
        self.outstanding.clear();
        if let Some(SentFor::Batch { number, .. }) = cut_short {
            self.batches.get_mut(&number).into_iter().for_each(|of| of.was_cut_short = true);
        }
        let sent = self.batches.iter().filter(|(_, of)| of.is_sent);
        let sent: Vec<u64> = sent.map(|(number, _)| *number).collect();
        for number in sent {
            self.fail_open_parts(number, err::CONNECTION_LOSS, now);
        }
    }

    /// The session has ended: every request is answered with this code.
    pub(super) fn fail_all(&mut self, code: i32, now: BootTime) {
        self.unsent.clear();
        self.outstanding.iter_mut().for_each(|flight| flight.sent_for = SentFor::Nobody);
        let all: Vec<u64> = self.batches.keys().copied().collect();
        for number in all {
            self.fail_open_parts(number, code, now);
        }
    }

    /// Answers requests that have waited for T/6: because there was no connection, or because the
    /// answer is slow. The connection is kept, since it may be new.
    ///
    /// A caller whose own answer has come in part goes on waiting for the rest, as long as the
    /// connection does ([`overdue_at`](Self::overdue_at)). If it were answered now, it would ask
    /// for the same long answer once more. Later callers are answered as always, so that
    /// each of their steps keeps its time, and ask again.
    pub(super) fn fail_overdue(&mut self, now: BootTime) {
        let overdue: BTreeSet<u64> = self
            .overdue_batches()
            .take_while(|(_, at)| now >= *at)
            .map(|(number, _)| number)
            .collect();
        if overdue.is_empty() {
            return;
        }
        self.unsent.retain(|unsent| !overdue.contains(unsent));
        // Their answers may still come, and are dropped then.
        for flight in &mut self.outstanding {
            if matches!(flight.sent_for, SentFor::Batch { number, .. } if overdue.contains(&number))
            {
                flight.sent_for = SentFor::Nobody;
            }
        }
        for number in overdue {
            self.fail_open_parts(number, err::CONNECTION_LOSS, now);
        }
        self.send_background(now);
    }

    /// When each batch has waited for T/6, the oldest first.
    fn overdue_batches(&self) -> impl Iterator<Item = (u64, BootTime)> + '_ {
        let coming = match self.under_way() {
            Some(SentFor::Batch { number, .. }) => Some(number),
            _ => None,
        };
        // The client behind the listener needs the answers to its requests in order.
        let waits = move |(number, of): &(&u64, &SubmittedBatch)| {
            Some(**number) == coming && matches!(of.batch.answer_to, AnswerTo::Caller)
        };
        let all = self.batches.iter().filter(move |of| !waits(of));
        all.map(|(number, of)| (*number, of.submitted_at + self.operation_timeout()))
    }

    /// Answers the requests of a batch that have no answer yet.
    fn fail_open_parts(&mut self, number: u64, code: i32, now: BootTime) {
        let header = ReplyHeader { xid: 0, zxid: 0, err: code };
        let requests =
            self.batches.get(&number).map_or(0, |submitted| submitted.batch.requests.len());
        for part in 0..requests {
            let is_open =
                |b: &SubmittedBatch| b.batch.requests.get(part).is_some_and(|p| p.answer.is_none());
            if self.batches.get(&number).is_some_and(is_open) {
                // The body of an error is not decoded, so this cannot fail.
                let _ = self.batch_answered((number, part), 0, header, &[], now);
            }
        }
    }

    /// The time at which the oldest request has waited for T/6.
    pub(super) fn next_overdue(&self) -> Option<BootTime> {
        self.overdue_batches().next().map(|(_, at)| at)
    }
}

/// Whether a create that failed with this error may have made the node.
pub(super) fn is_uncertain(e: &CallError) -> bool {
    match e {
        CallError::ConnectionLoss => true,
        CallError::Other(code) => !matches!(code.as_str(), "InvalidACL" | "BadArguments"),
        _ => false,
    }
}
