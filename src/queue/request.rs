//! One request for a lock, from the call of the program down to the requests to the servers: how
//! long it waits, and what a failed request means to it.
//!
//! `Stop` says how a request goes on after a failure, `until_done` begins it anew, `query` is for
//! calls that wait for no lock.

use std::cell::Cell;
use std::result::Result as StdResult;
use std::sync::Arc;
use std::time::Duration;

use super::Contender;
use super::ContenderNode;
use super::Settings;
use super::held_node::{HeldNode, OnLoss};
use super::memory::Fact;
use super::name::NodeKey;
use crate::error::{Cause, Error, Result};
#[cfg(test)]
use crate::observer::LockLabel;
use crate::queue::tally::CallTally;
#[cfg(test)]
use crate::queue::tally::LockTally;
#[cfg(test)]
use crate::session::ZkSession;
use zk_session::SessionState;
use zk_session::unstable::{
    Answers, CallError, Core, Ended, EventMask, Generation, Limit, Notifier, Operation, Overlong,
    Refused, Reply, Retry, nonce,
};
use zk_session::world::Instant;
use zk_wire::path;

/// Whether a request waits for the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Leave at once if somebody is ahead.
    Try,
    /// Wait, for a caller that only tries. The request is for another lock that the caller must
    /// have before the lock that it tries for.
    Pass,
    Wait,
}

impl Mode {
    /// A call that only tries does not wait for a connection. It ends at once, with what this
    /// process knows, as any call does whose time is over.
    pub(crate) fn limit<'a>(self, limit: Limit<'a>, core: &Core) -> Limit<'a> {
        let is_down = self == Mode::Try && core.state() != SessionState::Connected;
        if is_down { limit.or_after(Duration::ZERO) } else { limit }
    }

    /// The error for a call that found somebody else ahead until its end.
    pub(crate) fn missed(self, path: String) -> Error {
        match self {
            Mode::Try => Error::WouldBlock { path },
            Mode::Wait | Mode::Pass => Error::TimedOut { path },
        }
    }
}

/// How long a question to the servers may take.
pub(crate) struct Question<'a> {
    /// For the connection, and for requests that are sent again.
    pub(crate) whole: Limit<'a>,
    /// For each request. A call that asks once has none: each answer is due within T/6, and many
    /// answers may be needed.
    pub(crate) request: Limit<'a>,
}

/// One call of the program for a lock, as all its steps see it: the wait in this process, and the
/// requests for this lock or for each member of a multi-lock.
pub(crate) struct Call {
    /// The name of the call, for its errors.
    pub(crate) op: &'static str,
    begun: Cell<Instant>,
    is_contended: Cell<bool>,
}

impl Call {
    /// A call that begins now.
    pub(crate) fn new(op: &'static str) -> Self {
        Call { op, begun: Cell::new(Instant::now()), is_contended: Cell::new(false) }
    }

    /// When it began or, if it is for several locks, when it took the last of those that it has.
    /// The retry policy counts from here.
    pub(crate) fn begun(&self) -> Instant {
        self.begun.get()
    }

    /// The call has one of its locks, and goes on to the next. Returns whether somebody else was
    /// ahead of the call in the queue of that lock.
    pub(crate) fn has_one(&self) -> bool {
        self.begun.set(Instant::now());
        self.is_contended.replace(false)
    }

    /// Somebody else was found ahead: an answer of a server has shown it, or another thread of this
    /// process has it.
    pub(crate) fn found_contention(&self) {
        self.is_contended.set(true);
    }

    /// Whether somebody else was ahead at some moment of this call; of a call for several locks,
    /// since it has the last of those that it has.
    pub(crate) fn is_contended(&self) -> bool {
        self.is_contended.get()
    }
}

/// What a call wants of one lock. The call makes it, and it goes with the call through this process
/// and through the queue at the server.
pub(crate) struct Request<'a> {
    /// The call of the program. The call of a multi-lock has a request for each member.
    pub(crate) call: &'a Call,
    /// The settings of the lock.
    pub(crate) settings: &'a Settings,
    pub(crate) mode: Mode,
    /// See [`limit`](Request::limit).
    limit: Limit<'a>,
    /// Where the request is counted.
    pub(crate) tally: &'a CallTally<'a>,
    /// Whether a valid guard of this process excludes what the request wants.
    is_excluded_here: &'a dyn Fn() -> bool,
    retry: Retry,
    /// How long the request has waited, once it waits.
    overlong: Cell<Option<Overlong>>,
}

/// What the owner of a request wants to hear on the request's way to the lock.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks<'a> {
    /// Called with the id of each node before the node is made.
    pub(crate) on_id: &'a dyn Fn(&str),
    /// Called with true when the server shows somebody ahead, and with false when that is not known
    /// any more.
    pub(crate) on_blocked: &'a dyn Fn(bool),
    /// Makes the function that runs if the node with this key is lost.
    pub(crate) on_loss: &'a dyn Fn(NodeKey) -> OnLoss,
    /// Called with the error with which a request that never gives up would have ended if it did,
    /// because it has made no progress for as long as the retry policy allows to others.
    pub(crate) on_retry: &'a dyn Fn(&Error),
}

impl Callbacks<'static> {
    pub(crate) const NONE: Self = Callbacks {
        on_id: &|_| (),
        on_blocked: &|_| (),
        on_loss: &|_| Box::new(|| ()),
        on_retry: &|_| (),
    };
}

/// The watches with which a request waits.
pub(crate) struct Watches<'a> {
    pub(crate) generation: &'a Generation,
    /// The connection on which they are set.
    pub(crate) epoch: u64,
    /// It is notified of their events, and of changes of the session.
    pub(crate) notifier: &'a Notifier,
    pub(crate) who_holds: WhoHolds<'a>,
}

/// A waiter looks again this often, in case an event is lost for a reason that nobody foresaw.
pub(crate) const SAFETY_POLL: Duration = Duration::from_secs(60);

/// Where a waiter reads who holds the lock.
#[derive(Clone, Copy)]
pub(crate) struct WhoHolds<'a> {
    /// The node whose children the holders' nodes are.
    pub(crate) dir: &'a str,
    /// Gives the names of the holders' nodes, of all children's.
    pub(crate) names: for<'n> fn(&[&'n str]) -> Vec<&'n str>,
}

/// At most so many holders are named in a line of the log.
const SHOWN_HOLDERS: usize = 3;

/// How often a waiter that has asked who holds the lock looks whether the answer is there. It goes
/// on waiting for its own event meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Why a step did not lead on.
pub(crate) enum Stop {
    /// Others have the lock, and this request does not wait for it any longer.
    Busy,
    Fail(Error),
    /// The connection was lost: send the request again.
    Again,
    /// The request's own node or its session is gone: begin anew.
    Anew,
}

pub(crate) type Step<T> = StdResult<T, Stop>;

impl<'a> Request<'a> {
    pub(crate) fn new(
        call: &'a Call,
        settings: &'a Settings,
        mode: Mode,
        limit: Limit<'a>,
        tally: &'a CallTally<'a>,
    ) -> Self {
        let retry = Retry::since(call.begun());
        let (is_excluded_here, overlong) = (&|| false, Cell::new(None));
        Request { call, settings, mode, limit, tally, is_excluded_here, retry, overlong }
    }

    /// The same request, for a lock that knows whether a valid guard of this process excludes it.
    pub(crate) fn unless(self, is_excluded_here: &'a dyn Fn() -> bool) -> Self {
        Request { is_excluded_here, ..self }
    }

    /// From now on the request never gives up because of the retry policy.
    pub(crate) fn enduring(self) -> Self {
        Request { retry: Retry::enduring(), ..self }
    }

    /// The request for another lock that the caller must have before this one, until `until` at
    /// the latest.
    pub(crate) fn passage(&self, until: Option<Instant>) -> Self {
        let limit = until.map_or(self.limit, |until| self.limit.or_at(until));
        let mode = if self.mode == Mode::Try { Mode::Pass } else { self.mode };
        Request::new(self.call, self.settings, mode, limit, self.tally)
            .unless(self.is_excluded_here)
    }

    pub(crate) fn core(&self) -> &'a Core {
        self.settings.core()
    }

    /// How long the request may wait. With this limit each flight of the request notes when it is
    /// sent: if it fails, the time of the retry policy counts from then.
    pub(crate) fn limit(&self) -> Limit<'_> {
        self.limit.of_call(&self.retry)
    }

    /// An error if the caller has cancelled the call already.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.limit.is_cancelled() { Err(self.cancelled()) } else { Ok(()) }
    }

    pub(crate) fn cancelled(&self) -> Error {
        Error::Cancelled { path: self.settings.path.clone() }
    }

    /// Somebody else has the lock or is ahead.
    pub(crate) fn contended(&self) {
        self.call.found_contention();
        self.tally.contended();
    }

    /// As `contended`, for a wait that is about to end.
    pub(crate) fn contended_until_now(&self) {
        self.call.found_contention();
        self.tally.contended_until_now();
    }

    /// For how long the request has waited, if a line in the log is due now; and when the next one
    /// is due.
    pub(crate) fn long_wait(&self) -> (Option<Duration>, Option<Instant>) {
        let after = self.settings.warn_waiting_after;
        let begun = || Overlong::new(Instant::now(), after);
        let mut overlong = self.overlong.get().unwrap_or_else(begun);
        let lasted = overlong.due();
        self.overlong.set(Some(overlong));
        (lasted, overlong.next)
    }

    /// The session, once it is connected.
    pub(crate) fn session(&self) -> Result<Arc<Generation>> {
        let (op, path) = (self.call.op, &self.settings.path);
        Ok(self.core().connected(op, path, &self.limit, &self.retry)?)
    }

    /// The session, once it is connected, for a request whose time may end in contention.
    pub(crate) fn connected(&self) -> Step<Arc<Generation>> {
        self.session().map_err(|e| match e {
            Error::Unavailable { .. } if self.limit.is_past() => self.stop_at_end_of_time(),
            e => Stop::Fail(e),
        })
    }

    /// What the end of its time means to the request, see [`end_of_time`].
    pub(crate) fn end_of_time(&self) -> Result<()> {
        end_of_time(self.call, self.core(), &self.settings.path, self.is_excluded_here)
    }

    fn stop_at_end_of_time(&self) -> Stop {
        self.end_of_time().map_or_else(Stop::Fail, |()| Stop::Busy)
    }

    /// Waits until the session in which the request has made its node is connected.
    pub(crate) fn connected_still(&self, generation: &Generation) -> Step<()> {
        if self.connected()?.number == generation.number { Ok(()) } else { Err(Stop::Anew) }
    }

    /// Whether watches that were set on the connection `epoch` are still set, as far as is known.
    pub(crate) fn is_undisturbed(&self, generation: &Generation, epoch: u64) -> bool {
        // If a later session is connected, the watches of this one are gone.
        self.core().state() == SessionState::Connected
            && generation.epoch() == epoch
            && !generation.lease.is_over()
    }

    /// The request has got further: its node is made, its watches are set, or the event has come
    /// for which it waited.
    pub(crate) fn progress(&self) {
        self.retry.progress();
    }

    /// An attempt of the request has failed: the connection or the session was lost.
    pub(crate) fn failed(&self) {
        self.core().failed(&self.retry);
    }

    /// An error if the request has made no progress for as long as the retry policy allows to other
    /// requests.
    pub(crate) fn overdue(&self) -> Option<Error> {
        let cause = self.core().overdue(&self.retry)?;
        Some(Error::Unavailable { op: self.call.op, path: self.settings.path.clone(), cause })
    }

    /// Waits until `outcome` gives a value for an event of the watches, and gives that value.
    /// `None`: the caller must look again, because the watches may be gone, or because nothing has
    /// come until then.
    pub(crate) fn until_event<T>(
        &self,
        watches: &Watches<'_>,
        until: Instant,
        mut outcome: impl FnMut(u8) -> Step<Option<T>>,
    ) -> Step<Option<T>> {
        while self.is_undisturbed(watches.generation, watches.epoch) {
            self.progress(); // the watches are set
            let Some(events) = self.wait(watches, until)? else { break };
            self.progress(); // the event has come
            if let Some(outcome) = outcome(events)? {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Waits for a notification and gives its events. `None`: `until` came first.
    fn wait(&self, watches: &Watches<'_>, until: Instant) -> Step<Option<u8>> {
        let Watches { generation, notifier, .. } = watches;
        let mut ended = Ended::Deadline;
        while matches!(ended, Ended::Deadline) && Instant::now() < until && !self.limit.is_past() {
            let (lasted, next) = self.long_wait();
            let at = next.map_or(until, |next| next.min(until));
            ended = match lasted {
                Some(lasted) => self.report(watches, lasted),
                None => generation.wait(notifier, &self.limit.or_at(at)),
            };
        }
        match ended {
            Ended::Got(events) => Ok(Some(events)),
            Ended::Deadline if !self.limit.is_past() => Ok(None),
            Ended::Deadline | Ended::Disconnected => Err(self.stop_at_end_of_time()),
            Ended::Cancelled => Err(Stop::Fail(self.cancelled())),
        }
    }

    /// Logs that the request has waited for this long, and who holds the lock. The thread still
    /// waits for its own event: if that comes first, this ends with it and logs nothing.
    fn report(&self, watches: &Watches<'_>, lasted: Duration) -> Ended<u8> {
        let WhoHolds { dir, names } = watches.who_holds;
        // Behind a `sync`, so that no holder is named who has let go long ago.
        let list = [Operation::Sync, Operation::GetChildren { path: dir, watch: false }];
        let listing = match self.ask(watches, &list) {
            Ok(answers) => answers,
            Err(ended) => return ended,
        };
        let seconds = lasted.as_secs();
        let listed = |answers: Answers| answers.behind_sync()?.listed(0);
        let Some(Ok(listed)) = listing.map(listed) else {
            warn!("{dir}: waiting for {seconds} s; who holds it could not be read");
            return Ended::Deadline;
        };
        let all = names(&listed.children.names());
        if all.is_empty() {
            return Ended::Deadline; // it has become free just now
        }
        let paths: Vec<String> =
            all.iter().take(SHOWN_HOLDERS).map(|name| path::join(dir, name)).collect();
        let reads = paths.iter().map(|path| Operation::GetData { path, watch: false });
        let mut nodes = match self.ask(watches, &reads.collect::<Vec<_>>()) {
            Ok(answers) => answers,
            Err(ended) => return ended,
        };
        let mut holders = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            let node = nodes.as_mut().map(|nodes| nodes.take(at).and_then(Reply::node));
            if let Some(Ok(mut node)) = node {
                node.data = nonce::split(&node.data).1.to_vec();
                holders.push(Contender::of(path, false, node).to_string());
            }
        }
        let more = match all.len().saturating_sub(paths.len()) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        if !holders.is_empty() {
            let held_by = holders.join("; ");
            warn!("{dir}: waiting for {seconds} s; held by {held_by}{more}");
        }
        Ended::Deadline
    }

    /// Sends these reads and waits for the answers; `None` if none come in time. `Err`: an event of
    /// the notifier, or the limit of the call, came first.
    fn ask(
        &self,
        Watches { generation, notifier, .. }: &Watches<'_>,
        requests: &[Operation<'_>],
    ) -> StdResult<Option<Answers>, Ended<u8>> {
        let requests: Vec<_> = requests.iter().map(|request| (*request, None)).collect();
        let Ok((_, answers)) = generation.send(&requests) else { return Ok(None) };
        let until = Instant::now() + generation.operation_timeout() + LOOK;
        while Instant::now() < until {
            if let Ok(answers) = answers.try_recv() {
                return Ok(Some(answers));
            }
            match generation.wait(notifier, &self.limit.or_at(Instant::now() + LOOK)) {
                Ended::Deadline if !self.limit.is_past() => {}
                ended => return Err(ended),
            }
        }
        Ok(None)
    }

    /// Renews the lease after a grant was refused, if that can help.
    pub(crate) fn renew(&self, refused: &Refused, generation: &Generation) -> Step<()> {
        let stop = |e| self.stop(&self.settings.dir(), e);
        match refused {
            Refused::Stale => generation.prove(&self.limit()).map_err(stop),
            Refused::Over(_) => Err(stop(CallError::Expired)),
        }
    }

    /// Makes a node of ours a held one, once no other node keeps it out. What remains to show is
    /// that our node and its session still live. `mask` says which notifications are about the
    /// node, `own_gone` what the end of the node means to the request.
    pub(crate) fn grant(
        &self,
        generation: &Generation,
        notifier: &Notifier,
        mask: EventMask,
        mut grant: impl FnMut() -> StdResult<HeldNode, Refused>,
        own_gone: impl Fn() -> Stop,
    ) -> Step<HeldNode> {
        loop {
            if notifier.events() & mask.gone != 0 {
                return Err(own_gone());
            }
            match grant() {
                Ok(node) => {
                    // An event that came before the grant could not reach the held node: it is
                    // passed on now.
                    let events = notifier.events();
                    if events & mask.gone != 0 {
                        node.seen_gone();
                    } else if events & mask.changed != 0 {
                        node.watch_again();
                    }
                    debug!("{}: held", node.path());
                    return Ok(node);
                }
                Err(refused) => self.renew(&refused, generation)?,
            }
        }
    }

    /// Fails if a node that this session has left in the folder `dir` cannot be deleted. Another
    /// node would stay there as well, and hold the lock against all others.
    pub(crate) fn may_delete_in(&self, generation: &Generation, dir: &str) -> Step<()> {
        let may = generation.may_delete_in(dir, &self.limit());
        may.map_err(|(node, e)| self.stop(&node, e))
    }

    /// Fails if this request, which is about to wait with a node, could not delete the node when its
    /// time ends: the node would hold the lock against all others. The delete of a node that does not
    /// exist shows whether the ACL allows it; the session remembers that it does.
    pub(crate) fn may_give_up(&self, node: &mut ContenderNode) -> Step<()> {
        let (limit, memory) = (self.limit(), &self.settings.memory);
        let dir = path::parent(&node.path);
        if !limit.has_deadline() || memory.knows(dir, Fact::MayDelete) {
            return Ok(());
        }
        let path = &path::join(dir, &format!("zk-mutex-no-op-{}", node.id));
        match node.generation.call(Operation::Delete { path, version: None }, &limit) {
            Ok(_) | Err(CallError::NoNode) => drop(memory.is_new(dir, Fact::MayDelete)),
            Err(e) => {
                if matches!(e, CallError::NoAuth(_)) {
                    node.delete(&limit); // so that the next call knows of it
                }
                return Err(self.stop(&node.path, e));
            }
        }
        Ok(())
    }

    /// What it means that a request for the node `path` has failed.
    pub(crate) fn stop(&self, path: &str, e: CallError) -> Stop {
        if matches!(e, CallError::ConnectionLoss | CallError::Expired) {
            self.failed();
        }
        match e {
            CallError::ConnectionLoss => Stop::Again,
            CallError::Expired => Stop::Anew,
            CallError::Deadline => self.stop_at_end_of_time(),
            CallError::Cancelled => Stop::Fail(self.cancelled()),
            e => Stop::Fail(failure(self.call.op, self.core(), path, e)),
        }
    }
}

/// What the end of its time means to a call for a lock: `Ok` is contention. All recipes go by this
/// rule:
///
/// 1. There is no connection now: the time has ended in an outage. That is an error with what each
///    host answers, even if somebody was ahead before the outage, who may have gone since. But
///    while a valid guard of this process excludes the call, no server can have given the lock to
///    anybody else: that is contention.
/// 2. There is a connection, and somebody else was ahead at some moment of this call: that is
///    contention, whatever request was under way when the time ended. An outage in between that is
///    over by now changes nothing.
/// 3. There is a connection, and no answer has come that shows whether somebody is ahead: that is
///    an error, but no outage.
///
/// `path` is as the user knows it.
pub(crate) fn end_of_time(
    call: &Call,
    core: &Core,
    path: &str,
    is_excluded_here: impl FnOnce() -> bool,
) -> Result<()> {
    let (op, path) = (call.op, path.to_owned());
    match core.state() {
        SessionState::Closed => Err(Error::Closed { op, path }),
        SessionState::Connected if call.is_contended() => Ok(()),
        SessionState::Connected => Err(Error::Unavailable { op, path, cause: Cause::Deadline }),
        _ => match core.refusal() {
            Some(reason) => Err(Error::Auth { op, path, reason }),
            None if is_excluded_here() => Ok(()),
            None => Err(Error::Unavailable { op, path, cause: Cause::Outage(core.failures()) }),
        },
    }
}

/// Calls `acquire` again until it returns a lock or an error. Even without a deadline a single call
/// may return `None`, if one of its requests took too long while another contender was ahead.
pub(crate) fn until_got<T>(acquire: impl Fn() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(got) = acquire()? {
            return Ok(got);
        }
    }
}

/// Runs `begin` until it succeeds or fails for good, and anew after each lost connection, session
/// or node. Before each new run it calls `on_blocked(false)`: it is not known any more whether
/// somebody is ahead.
pub(crate) fn until_done<T>(
    on_blocked: &dyn Fn(bool),
    mut begin: impl FnMut() -> Step<T>,
) -> Result<Option<T>> {
    loop {
        match begin() {
            Ok(done) => return Ok(Some(done)),
            Err(Stop::Again | Stop::Anew) => on_blocked(false),
            Err(Stop::Busy) => return Ok(None),
            Err(Stop::Fail(e)) => return Err(e),
        }
    }
}

/// Sends requests that wait for no lock, and sends them again after a lost connection, as long as
/// the limit and the retry policy allow. `requests` gets the limit for them. An error names `path`,
/// a full one, unless `requests` has set it to another.
pub(crate) fn query<T>(
    op: &'static str,
    core: &Core,
    path: &str,
    limit: &Limit<'_>,
    mut requests: impl FnMut(&Generation, &Limit<'_>, &mut String) -> StdResult<T, CallError>,
) -> Result<T> {
    let retry = Retry::since(Instant::now());
    loop {
        let generation = core.connected(op, core.shown(path), limit, &retry)?;
        let mut at = path.to_owned();
        match requests(&generation, &limit.of_call(&retry), &mut at) {
            Err(CallError::ConnectionLoss | CallError::Expired) if !limit.is_past() => {
                core.failed(&retry)
            }
            done => return done.map_err(|e| failure(op, core, &at, e)),
        }
    }
}

/// What a failed request means to the user; `path` is a full one.
pub(crate) fn failure(op: &'static str, core: &Core, path: &str, e: CallError) -> Error {
    error(op, core.shown(path).to_owned(), e)
}

/// What a failed request means to the user; `path` is as the user knows it.
pub(crate) fn error(op: &'static str, path: String, e: CallError) -> Error {
    zk_session::unstable::error(op, path, e).into()
}

#[cfg(test)]
impl Request<'_> {
    /// Calls `test` with a request for the lock at `path`.
    pub(crate) fn tried<T>(
        session: &ZkSession,
        path: &str,
        limit: Limit<'_>,
        test: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        let (call, settings) = (Call::new("lock"), Settings::new(session.clone(), path.to_owned()));
        let label = LockLabel { recipe: "mutex", name: String::new(), path: path.to_owned() };
        let (tally, mut outcome) = (LockTally::new(label, None), None);
        let _ = tally.count(&call, |tally| {
            outcome = Some(test(&Request::new(&call, &settings, Mode::Wait, limit, tally)));
            Ok(Some(()))
        });
        outcome.unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::error::LossReason;
    use crate::queue::NewNode;
    use crate::{SessionEvent, ZkMutex};
    use zk_session::unstable::{Folder, FolderWatch, NodeWatch, Operation};
    use zk_test_server::{Op, TestServer};

    const SOON: Duration = Duration::from_secs(20);

    /// The waiter sleeps, as on a busy computer, until its session is lost and the next one is
    /// connected. No event can come on the old connection any more, so it must not go on waiting
    /// for one.
    #[test]
    fn a_waiter_that_wakes_in_the_next_session_finds_its_watches_gone() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let (events, core) = (session.subscribe(), session.core());
        let old = core.generation().unwrap();
        let epoch = old.epoch();
        Request::tried(&session, "/locks/orders", Limit::NONE, |request| {
            assert!(request.is_undisturbed(&old, epoch));
            assert!(server.expire_session(old.session_id().unwrap()));
            let soon = Duration::from_secs(20);
            while !matches!(events.recv_timeout(soon).unwrap(), SessionEvent::Connected { .. }) {}
            assert_eq!((core.state(), old.epoch()), (SessionState::Connected, epoch));
            assert!(!request.is_undisturbed(&old, epoch));
        });
    }

    /// An event that comes before the lease has the node reaches the waiter alone, which must pass
    /// it on.
    #[test]
    fn a_held_node_gets_the_event_that_comes_just_before_its_grant() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let mask = EventMask { gone: 1, changed: 2 };
        let grant = |path: &str, events| {
            let notifier = Notifier::new();
            let grant = || {
                let watch = NodeWatch::On(generation.epoch());
                let node = NewNode { watch, ..NewNode::named(path) };
                let held = HeldNode::grant(&generation, node, Callbacks::NONE.on_loss)?;
                notifier.notify(events);
                Ok(held)
            };
            Request::tried(&session, "/l", Limit::NONE, |request| {
                request.grant(&generation, &notifier, mask, grant, || Stop::Anew).ok().unwrap()
            })
        };
        assert_eq!(grant("/l/gone", mask.gone).loss(), Some(LossReason::NodeDeleted));
        // A node gets a new watch if its watch has fired, and only then.
        let _held = [grant("/l/quiet", 0), grant("/l/changed", mask.changed)];
        server.wait_request(Op::GetData.on("/l/changed"), Duration::from_secs(20)).unwrap();
        // The server takes the requests of a connection in order.
        let behind = Operation::Exists { path: "/l" };
        assert_eq!(generation.call(behind, &Limit::NONE).err(), Some(CallError::NoNode));
        assert_eq!(server.count(Op::GetData.on("/l/quiet")), 0);
    }

    /// Ends the event loop's thread by a panic. The session is lost to the client, and lives on at
    /// the server.
    fn break_event_loop(session: &ZkSession) {
        let notify = |_: Folder<'_>| -> bool { panic!("a defect") };
        let generation = session.core().generation().unwrap();
        generation.watch_folder(FolderWatch::new("/".to_owned(), Box::new(notify)));
    }

    /// The nodes in the queue, in their order.
    fn queue(session: &ZkSession) -> Vec<String> {
        let generation = session.core().generation().unwrap();
        let listed = generation.children("/locks/orders", false, &Limit::NONE).unwrap();
        let mut names: Vec<String> =
            listed.children.names().into_iter().map(str::to_owned).collect();
        names.sort_by_key(|name| name[name.len() - 10..].to_owned());
        names
    }

    /// The session of a waiter is lost while its node still exists. That node is deleted with its
    /// own session; in the next session the waiter makes another one.
    #[test]
    fn waiter_of_a_dead_event_loop_queues_again() {
        let server = TestServer::start().unwrap();
        // The old session outlives the test.
        let [theirs, ours] = [(); 2].map(|()| {
            let of = zk_session::Config::new(server.connect_string());
            ZkSession::connect(of.session_timeout(Duration::from_secs(40))).unwrap()
        });
        let [first, second] =
            [&theirs, &ours].map(|session| ZkMutex::new(session, "/locks/orders").unwrap());
        let guard = first.lock().unwrap();
        let until_queued = |count: usize| {
            let until = std::time::Instant::now() + SOON;
            loop {
                let names = queue(&theirs);
                if names.len() == count {
                    return names;
                }
                assert!(std::time::Instant::now() < until, "{names:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| second.lock().unwrap().path().to_owned());
            let old = until_queued(2).remove(1);
            break_event_loop(&ours);
            let new = until_queued(3).remove(2);
            let theirs = theirs.core().generation().unwrap();
            let path = format!("/locks/orders/{old}");
            theirs.call(Operation::Delete { path: &path, version: None }, &Limit::NONE).unwrap();
            drop(guard);
            assert_eq!(waiter.join().unwrap(), format!("/locks/orders/{new}"));
        });
    }
}
