//! The faults that are in force or planned. It decides which fault a request gets, and has no
//! sockets.
//!
//! `server.rs` has the calls that plan a fault. `net/serve.rs` calls `judge` for each request, and
//! `net/outbox.rs` loses or delays the answers.

use super::engine::ConnId;
use super::matcher::Matcher;
use super::request::RequestSummary;
use std::time::Duration;

/// A fault for the next matching request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The request is applied. The connection is closed instead of an answer.
    DropReply,
    /// The request is applied, but not answered. The connection stays open and silent.
    SilenceReply,
    /// The request is not applied. The connection is closed.
    DropRequest,
}

/// The number of one call of `hold_requests`; a later call has a higher number.
pub(super) type HoldId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Inject(Plan),
    Hold(HoldId),
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) black_hole: bool,
    pub(super) delay: Duration,
    planned: Vec<(Plan, Counted)>,
    holds: Vec<Hold>,
    last_hold: HoldId,
}

#[derive(Debug)]
struct Hold {
    id: HoldId,
    counted: Counted,
    /// The connections whose request it holds, in the order of the requests.
    conns: Vec<ConnId>,
}

/// A matcher, and how many matching requests it has let pass.
#[derive(Debug)]
struct Counted {
    matcher: Matcher,
    passed: usize,
}

impl Counted {
    fn new(matcher: Matcher) -> Counted {
        Counted { matcher, passed: 0 }
    }

    fn selects(&mut self, request: &RequestSummary<'_>) -> bool {
        if !self.matcher.takes(request) {
            return false;
        }
        let skips = self.passed < self.matcher.skips();
        self.passed += usize::from(skips);
        !skips
    }
}

impl Faults {
    pub(super) fn plan(&mut self, plan: Plan, matcher: Matcher) {
        self.planned.push((plan, Counted::new(matcher)));
    }

    pub(super) fn planned(&self) -> usize {
        self.planned.len()
    }

    /// Decides what happens to a request. `after` is the hold that has held this request before and
    /// has released it, or 0.
    pub(super) fn judge(
        &mut self,
        request: &RequestSummary<'_>,
        conn: ConnId,
        after: HoldId,
    ) -> Verdict {
        let mut holds = self.holds.iter_mut().filter(|hold| hold.id > after);
        if let Some(hold) = holds.find_map(|hold| hold.counted.selects(request).then_some(hold)) {
            hold.conns.push(conn);
            return Verdict::Hold(hold.id);
        }
        match self.planned.iter_mut().position(|(_, counted)| counted.selects(request)) {
            Some(index) => Verdict::Inject(self.planned.remove(index).0),
            None => Verdict::Pass,
        }
    }

    pub(super) fn hold(&mut self, matcher: Matcher) -> HoldId {
        self.last_hold += 1;
        let hold = Hold { id: self.last_hold, counted: Counted::new(matcher), conns: Vec::new() };
        self.holds.push(hold);
        self.last_hold
    }

    /// The connections whose request this hold keeps.
    pub(super) fn held(&self, id: HoldId) -> &[ConnId] {
        self.holds.iter().find(|hold| hold.id == id).map_or(&[], |hold| &hold.conns)
    }

    /// Ends a hold and returns the connections that waited.
    pub(super) fn release(&mut self, id: HoldId) -> Vec<ConnId> {
        match self.holds.iter().position(|hold| hold.id == id) {
            Some(index) => self.holds.remove(index).conns,
            None => Vec::new(),
        }
    }

    /// Forgets a connection that is gone, and its held request.
    pub(super) fn forget(&mut self, conn: ConnId) {
        for hold in &mut self.holds {
            hold.conns.retain(|held| *held != conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    const CREATE: RequestSummary<'_> = RequestSummary {
        op: Op::Create,
        opcode: 1,
        path: Some("/a"),
        session: 1,
        xid: 1,
        watch: false,
    };
    const PING: RequestSummary<'_> = RequestSummary { op: Op::Ping, path: None, ..CREATE };

    #[test]
    fn a_plan_is_injected_once() {
        let mut faults = Faults::default();
        faults.plan(Plan::DropReply, Op::Create.into());
        assert_eq!(faults.judge(&PING, 1, 0), Verdict::Pass);
        assert_eq!(faults.judge(&CREATE, 1, 0), Verdict::Inject(Plan::DropReply));
        assert_eq!(faults.judge(&CREATE, 1, 0), Verdict::Pass);
        assert_eq!(faults.planned(), 0);
    }

    #[test]
    fn plans_are_injected_in_their_order_and_skip() {
        let mut faults = Faults::default();
        faults.plan(Plan::DropReply, Matcher::from(Op::Create).skip(1));
        faults.plan(Plan::DropRequest, Matcher::from(Op::Create).skip(1));
        let verdicts = [(); 4].map(|()| faults.judge(&CREATE, 1, 0));
        assert_eq!(
            verdicts,
            [
                Verdict::Pass,
                Verdict::Inject(Plan::DropReply),
                Verdict::Inject(Plan::DropRequest),
                Verdict::Pass
            ]
        );
    }

    #[test]
    fn a_hold_keeps_its_connections_in_order() {
        let mut faults = Faults::default();
        let first = faults.hold(Op::Create.into());
        let second = faults.hold(Matcher::any().skip(1));
        assert_eq!(faults.judge(&CREATE, 7, 0), Verdict::Hold(first));
        assert_eq!(faults.judge(&CREATE, 5, 0), Verdict::Hold(first));
        faults.plan(Plan::DropReply, Op::Create.into());
        assert_eq!(faults.held(first), [7, 5]);
        assert_eq!(faults.release(first), [7, 5]);
        // A later hold gets the request then, and may hold it too.
        assert_eq!(faults.judge(&CREATE, 7, first), Verdict::Inject(Plan::DropReply));
        assert_eq!(faults.judge(&CREATE, 5, first), Verdict::Hold(second));
        faults.forget(5);
        assert!(faults.held(second).is_empty() && faults.release(first).is_empty());
    }
}
