//! The side of a watch that the event loop has: it compares each look with what was told last.

use super::event::{Sight, WatchEvent};
use crate::error::LossReason;
use crate::machine::Watched;
use crate::machine::codec::{CallError, error};
use crate::world::{Mutex, OnceLock, Receiver, Sender, TrySendError, bounded};
use std::sync::Arc;
use zk_wire::code::op;
use zk_wire::record::Stat;

/// How many events wait for a receiver at most. Of more events the oldest are dropped.
pub(crate) const BACKLOG: usize = 16;

/// The name of a watch's reads in errors.
pub(crate) const OP: &str = "watch";

/// Tells a [`Watch`](crate::Watch) of its node. None of its functions waits for a receiver.
pub(crate) struct Teller {
    /// The path as the program knows it.
    path: String,
    what: Watched,
    state: Mutex<State>,
    lost: OnceLock<LossReason>,
}

struct State {
    /// Where the outcome of the first look goes, until there is one.
    first: Option<Sender<Result<(), i32>>>,
    /// What was told last; `None` before the first look.
    told: Option<Sight>,
    /// The refusal that was told last, unless a look has succeeded since.
    refused: Option<i32>,
    /// `None` once the watch has ended. The receiver is there to take the oldest event out of a
    /// full channel.
    channel: Option<(Sender<WatchEvent>, Receiver<WatchEvent>)>,
}

impl Teller {
    /// A teller for this node, the receiver of its events, and a receiver of the outcome of the
    /// first look: an error is ZooKeeper's code of a refusal.
    pub(crate) fn new(
        path: &str,
        what: Watched,
    ) -> (Arc<Self>, Receiver<WatchEvent>, Receiver<Result<(), i32>>) {
        let (sender, events) = bounded(BACKLOG);
        let (first, is_set) = bounded(1);
        let channel = Some((sender, events.clone()));
        let state = State { first: Some(first), told: None, refused: None, channel };
        let (path, lost) = (path.to_owned(), OnceLock::new());
        (Arc::new(Teller { path, what, state: Mutex::new(state), lost }), events, is_set)
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn what(&self) -> Watched {
        self.what
    }

    /// Why the watch has ended, if its session is lost.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.lost.get().copied()
    }

    /// Takes a look at the node: how it is (`None`: it does not exist), or the code of a refusal.
    pub(crate) fn looked(&self, seen: Result<Option<&Stat>, i32>) {
        let mut state = self.state.lock();
        if let Some(first) = state.first.take() {
            let _ = first.try_send(seen.map(drop));
        }
        match seen {
            Ok(stat) => {
                let now = Sight::new(self.what, stat);
                let before = state.told.replace(now).unwrap_or(now);
                state.refused = None;
                for event in before.events_until(now, self.what) {
                    state.tell(event.clone());
                }
            }
            // The same refusal comes again and again, until somebody changes an ACL, say.
            Err(code) if state.refused.replace(code) != Some(code) => {
                let refused = error(OP, self.path.clone(), CallError::of(op::GET_DATA, code));
                state.tell(WatchEvent::Refused(refused));
            }
            Err(_) => {}
        }
    }

    /// The session is lost: this is the last event.
    pub(crate) fn lost(&self, reason: LossReason) {
        let mut state = self.state.lock();
        let _ = self.lost.set(reason);
        state.tell(WatchEvent::Lost(reason));
        (state.channel, state.first) = (None, None);
    }

    /// Nobody wants to be told any more.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        (state.channel, state.first) = (None, None);
    }
}

impl State {
    fn tell(&self, event: WatchEvent) {
        let Some((sender, receiver)) = &self.channel else { return };
        let mut event = event;
        while let Err(TrySendError::Full(again)) = sender.try_send(event) {
            // The program may take it at the same time; then there is room, too.
            let _ = receiver.try_recv();
            event = again;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use WatchEvent::{Changed, Created, Deleted, Lost, Refused};
    use zk_wire::code::err;

    fn seen(mzxid: i64) -> Stat {
        Stat { czxid: 1, mzxid, ..Stat::default() }
    }

    fn teller() -> (Arc<Teller>, Receiver<WatchEvent>, Receiver<Result<(), i32>>) {
        Teller::new("/a", Watched::Node)
    }

    #[test]
    fn the_first_look_is_what_later_looks_are_compared_with_and_tells_nothing() {
        let (teller, events, is_set) = teller();
        assert!(is_set.try_recv().is_err());
        teller.looked(Ok(Some(&seen(5))));
        assert_eq!(is_set.try_recv(), Ok(Ok(())));
        teller.looked(Ok(Some(&seen(5))));
        assert!(events.try_recv().is_err());
        teller.looked(Ok(Some(&seen(6))));
        teller.looked(Ok(None));
        assert_eq!(events.try_iter().collect::<Vec<_>>(), [Changed, Deleted]);
    }

    #[test]
    fn a_refusal_is_told_once_until_a_look_succeeds() {
        let (teller, events, is_set) = teller();
        teller.looked(Ok(Some(&seen(5))));
        for _ in 0..3 {
            teller.looked(Err(err::NO_AUTH));
        }
        teller.looked(Ok(Some(&seen(6))));
        teller.looked(Err(err::NO_AUTH));
        teller.looked(Err(err::TOO_LONG));
        assert_eq!(is_set.try_recv(), Ok(Ok(())));
        let no_auth = || Refused(Error::NoAuth { op: OP, path: "/a".into(), permission: "READ" });
        let code = "AnswerTooLong".to_owned();
        let too_long = Refused(Error::Server { op: OP, path: "/a".into(), code });
        let told: Vec<_> = events.try_iter().collect();
        assert_eq!(told, [no_auth(), Changed, no_auth(), too_long]);
    }

    #[test]
    fn a_slow_receiver_loses_the_oldest_events_and_gets_the_last() {
        let (teller, events, _is_set) = teller();
        teller.looked(Ok(None));
        for zxid in 1..=i64::try_from(BACKLOG).unwrap() * 3 {
            teller.looked(Ok(Some(&seen(zxid))));
        }
        teller.looked(Ok(None));
        teller.lost(LossReason::SessionExpired);
        let told: Vec<_> = events.iter().collect(); // it ends, so the channel is disconnected
        assert_eq!(told.len(), BACKLOG);
        assert!(!told.contains(&Created));
        assert_eq!(told[BACKLOG - 3..], [Changed, Deleted, Lost(LossReason::SessionExpired)]);
        assert_eq!(teller.loss(), Some(LossReason::SessionExpired));
    }

    #[test]
    fn a_watch_that_was_dropped_is_told_nothing() {
        let (teller, events, is_set) = teller();
        teller.looked(Ok(None));
        teller.end();
        teller.looked(Ok(Some(&seen(1))));
        teller.lost(LossReason::SessionExpired);
        assert!(events.iter().next().is_none());
        assert_eq!(is_set.try_recv(), Ok(Ok(())));
    }
}
