//! The logs of requests and of watch events: two bounded lists, which forget the oldest entries.

use super::matcher::Matcher;
use super::request::{Event, Request};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct History {
    capacity: usize,
    requests: VecDeque<Request>,
    events: VecDeque<Event>,
    /// The number of the first request that is still here, since the server was made.
    first: u64,
}

/// How far a call that waits for a request has searched the log.
#[derive(Debug)]
pub(super) struct Search {
    matcher: Matcher,
    next: u64,
    skipped: usize,
}

impl Search {
    pub(super) fn new(matcher: Matcher) -> Search {
        Search { matcher, next: 0, skipped: 0 }
    }
}

impl History {
    pub(super) fn new(capacity: usize) -> History {
        History { capacity, requests: VecDeque::new(), events: VecDeque::new(), first: 0 }
    }

    pub(super) fn request(&mut self, request: Request) {
        if self.requests.len() >= self.capacity {
            self.first += 1;
            if self.requests.pop_front().is_none() {
                return; // the log keeps no requests
            }
        }
        self.requests.push_back(request);
    }

    pub(super) fn event(&mut self, event: Event) {
        if self.events.len() >= self.capacity && self.events.pop_front().is_none() {
            return;
        }
        self.events.push_back(event);
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn count(&self, matcher: &Matcher) -> usize {
        let all = self.requests.iter().filter(|request| matcher.takes_logged(request)).count();
        all.saturating_sub(matcher.skips())
    }

    /// Continues the search where the last call ended.
    pub(super) fn find(&self, search: &mut Search) -> Option<&Request> {
        let from = search.next.max(self.first);
        let start = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        for request in self.requests.iter().skip(start) {
            search.next = search.next.max(self.first) + 1;
            if search.matcher.takes_logged(request) {
                if search.skipped == search.matcher.skips() {
                    return Some(request);
                }
                search.skipped += 1;
            }
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.first += self.requests.len() as u64;
        self.requests.clear();
        self.events.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Op, RequestSummary};

    fn request(xid: i32, op: Op) -> Request {
        RequestSummary { op, opcode: 0, path: None, session: 1, xid, watch: false }.logged(true)
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut history = History::new(3);
        for xid in 0..5 {
            history.request(request(xid, Op::Create));
            history.event(Event::new(i64::from(xid), 1, "/a"));
        }
        assert_eq!(history.requests().map(|r| r.xid).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(history.events().map(|e| e.session).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(history.count(&Op::Create.into()), 3);
        assert_eq!(history.count(&Matcher::from(Op::Create).skip(1)), 2);
        assert_eq!(history.count(&Op::Delete.into()), 0);
        history.clear();
        assert_eq!(history.count(&Matcher::any()), 0);
    }

    #[test]
    fn a_log_of_no_entries_keeps_none() {
        let mut history = History::new(0);
        history.request(request(1, Op::Create));
        history.event(Event::new(1, 1, "/a"));
        assert_eq!((history.requests().count(), history.events().count()), (0, 0));
    }

    #[test]
    fn a_search_sees_each_request_once() {
        let mut history = History::new(2);
        let mut search = Search::new(Matcher::from(Op::Create).skip(2));
        history.request(request(1, Op::Create));
        assert_eq!(history.find(&mut search), None);
        assert_eq!(history.find(&mut search), None);
        history.request(request(2, Op::Ping));
        history.request(request(3, Op::Create));
        assert_eq!(history.find(&mut search), None);
        history.clear();
        history.request(request(4, Op::Create));
        assert_eq!(history.find(&mut search).map(|r| r.xid), Some(4));
    }
}
