//! The queue of contenders: the children of one znode, and a contender's way through them.
//!
//! The protocol is the lock recipe of ZooKeeper's documentation ("ZooKeeper Recipes and Solutions:
//! Locks") with the ids of Curator's `LockInternals`, and two differences. A node whose create was
//! not acknowledged is deleted and never adopted. And a node is held only while the session's lease
//! is fresh.

mod attempt;
pub(crate) mod held_node;
pub(crate) mod memory;
pub(crate) mod name;
pub(crate) mod request;
mod revoke;
mod revoke_signal;
pub(crate) mod rule;
pub(crate) mod snapshot;
pub(crate) mod tally;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use self::attempt::{ContenderNode, Place};
pub(crate) use self::held_node::{EndBy, HeldNode, HoldBounds, NewNode, OnLoss, Release};
use self::memory::{Fact, Memory};
use self::name::{Family, Kind, Layout, Name};
pub(crate) use self::request::{
    Callbacks, Question, Request, SAFETY_POLL, Step, Stop, Watches, WhoHolds, end_of_time, query,
};
use self::revoke_signal::REVOKE_MESSAGE;
pub use self::revoke_signal::RevokeSignal;
use self::snapshot::{Children, Folder, snapshot};
use crate::error::Result;
use crate::observer::EventQueue;
use crate::session::ZkSession;
use zk_session::unstable::{
    Answers, CallError, Core, Generation, Limit, Node, Operation, Process, Removal, Reply,
};
use zk_session::world::wall_time;
use zk_session::world::{self, HashMap};
use zk_session::{Acl, Session};
use zk_wire::path;

/// Makes a node if it is missing, and its parents.
pub(crate) type MakeNode =
    Box<dyn Fn(&Generation, &Limit<'_>) -> std::result::Result<(), CallError> + Send + Sync>;

/// What a thread that waits for a lock watches at the server.
///
/// It decides what a release costs. It does not change who gets the lock: with either strategy that
/// is the order of the queue. Clients of one lock in different sessions may use different
/// strategies.
///
/// | | [`Predecessor`](Self::Predecessor) | [`Parent`](Self::Parent) |
/// | --- | --- | --- |
/// | woken by a release | the next one in the queue | every waiter |
/// | woken by a contender that comes | nobody | every waiter |
/// | woken by a contender that gives up | the next one behind it | every waiter |
/// | requests until it waits | a listing, and a read or two | a listing |
/// | requests when it is woken | none if it is next | a listing of the whole queue |
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{WaitStrategy, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let builder = ZkMutex::builder(&session, "/locks/nightly");
/// let few = builder.wait_strategy(WaitStrategy::Parent).build()?;
/// let _guard = few.lock()?;
/// # Ok(())
/// # }
/// ```
///
/// Source: "A simple lock" and "Herd effect" in "ZooKeeper: Wait-free coordination for
/// Internet-scale systems", 2010, 2.4; the lock recipe of the ZooKeeper documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// The one node that has to be deleted before this thread can have the lock: the node just
    /// ahead or, for a reader, the node of the last writer ahead. So says the lock recipe of the
    /// ZooKeeper documentation. The default.
    #[default]
    Predecessor,
    /// The list of children of the lock's node, the first version in textbooks. Every change of the
    /// queue wakes every waiter, and each of them lists the queue again. With `n` waiters a release
    /// causes `n` events, and `n` listings of `n` names each. Use it for a handful of waiters at
    /// most, or to see what a herd costs (`herd` in `bench/`).
    Parent,
}

/// The settings of a lock. `LockBuilder::settings` checks them.
pub(crate) struct Settings {
    pub(crate) session: Session,
    /// Where the locks of the session report what happens; `None` without an observer.
    pub(crate) events: Option<Arc<EventQueue>>,
    /// What the locks of the session remember.
    pub(crate) memory: Arc<Memory>,
    /// The lock's path, as the program gave it.
    pub(crate) path: String,
    /// What observers call the lock.
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Acl,
    pub(crate) layout: Layout,
    pub(crate) hand_over: Duration,
    pub(crate) keep: Duration,
    pub(crate) strategy: WaitStrategy,
    /// How long one holder may have the lock.
    pub(crate) bounds: HoldBounds,
    /// After this time the log says who holds the lock for which a thread waits.
    pub(crate) warn_waiting_after: Duration,
    /// How many permits there are. Only a semaphore uses this.
    pub(crate) permits: u32,
}

impl Settings {
    /// The default settings of a lock.
    pub(crate) fn new(session: ZkSession, path: String) -> Self {
        let ZkSession { session, events, memory } = session;
        Settings {
            session,
            events,
            memory,
            path,
            name: String::new(),
            // By the host and the process id an operator finds the process.
            data: world::host_and_process().into_bytes(),
            acl: Acl::default(),
            layout: Layout::default(),
            hand_over: Duration::from_millis(20),
            keep: Duration::ZERO,
            strategy: WaitStrategy::default(),
            bounds: HoldBounds::default(),
            warn_waiting_after: Duration::from_secs(30),
            permits: 1,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        self.session.core()
    }

    /// The process that has the lock's session. In a forked child nothing else can be asked.
    pub(crate) fn process(&self) -> &Process {
        self.core().process()
    }

    /// The lock's full path.
    pub(crate) fn dir(&self) -> String {
        format!("{}{}", self.core().chroot(), self.path)
    }

    /// A full path without the session's chroot, as programs and logs show it.
    pub(crate) fn shown<'a>(&self, full: &'a str) -> &'a str {
        self.core().shown(full)
    }

    /// How long one step of a call on the lock may take.
    pub(crate) fn operation_timeout(&self) -> Duration {
        self.core().operation_timeout()
    }
}

pub(crate) struct Queue {
    /// The full path of the znode whose children are the queue.
    dir: String,
    layout: Layout,
    acl: Acl,
    family: Family,
    /// Makes the node above this one, if that needs more than an empty parent: a semaphore's node
    /// has data.
    above: Option<MakeNode>,
    strategy: WaitStrategy,
    /// What is known of the queue already, and what the log was told.
    pub(crate) memory: Arc<Memory>,
}

/// A client that holds a lock or waits for it, as its node shows it. `contenders` and `holders` of
/// each lock give it, and [`ZkSession::attempt_revoke`](crate::ZkSession::attempt_revoke) takes its
/// path.
///
/// Its `Display` is a line for operators, such as `h7:4711, session 0x1000002a3c5f0001, for 12 s`:
/// the data (by default host and process id), the session as log lines have it, and how long the
/// node has existed. The time is right if this host's clock agrees with the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The path of its node, below the session's chroot. A permit of a semaphore is in the folder
    /// `leases` below the semaphore's path, and a contender that waits for permits in `locks`.
    pub path: String,
    /// Whether it is a reader of a [`ZkRwLock`](crate::ZkRwLock).
    pub reads: bool,
    /// The data of its node. By default this crate writes the host's name and the process id. Of
    /// threads that hand the node to each other, the one that made it has written the data
    /// ([`LockBuilder::data`](crate::LockBuilder::data)).
    pub data: Vec<u8>,
    /// The session that owns the node. Zero if it belongs to no session: then no crash and no
    /// expiry ends it, and the lock stays held until somebody deletes the node. This crate makes no
    /// such contender. Other clients do: kazoo's `acquire(ephemeral=False)`, for instance.
    pub session_id: i64,
    /// When the node was made, by the server's clock.
    pub created: SystemTime,
}

impl Contender {
    pub(crate) fn of(path: &str, reads: bool, node: Node) -> Self {
        let session_id = node.stat.owner;
        let since = Duration::from_millis(u64::try_from(node.stat.ctime).unwrap_or(0));
        let created = UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH);
        Contender { path: path.to_owned(), reads, data: node.data, session_id, created }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.data == REVOKE_MESSAGE {
            f.write_str("(asked to let go)")?;
        } else if self.data.is_empty() {
            f.write_str("(no data)")?;
        } else {
            // The data may be anything: it is shown on one line, and only its beginning.
            let text = String::from_utf8_lossy(&self.data);
            let is_long = text.chars().nth(SHOWN_DATA).is_some();
            let start: String = text.chars().take(SHOWN_DATA).collect();
            write!(f, "{}{}", start.escape_debug(), if is_long { ".." } else { "" })?;
        }
        match self.session_id {
            0 => f.write_str(", no session")?,
            id => write!(f, ", session 0x{id:x}")?,
        }
        let age = wall_time().duration_since(self.created).unwrap_or_default();
        write!(f, ", for {}", Rounded(age))
    }
}

/// How many characters of a contender's data are shown.
const SHOWN_DATA: usize = 80;

/// Shows a duration for people to read, by its two greatest units.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds} s"),
            (0, 0, _) => write!(f, "{minutes} min {} s", seconds % 60),
            (0, ..) => write!(f, "{hours} h {} min", minutes % 60),
            _ => write!(f, "{days} d {} h", hours % 24),
        }
    }
}

impl Queue {
    pub(crate) fn new(dir: String, layout: Layout, acl: Acl, memory: Arc<Memory>) -> Self {
        Queue {
            dir,
            layout,
            acl,
            family: Family::Locks,
            above: None,
            strategy: WaitStrategy::default(),
            memory,
        }
    }

    /// The queue of an election's candidates, in which locks do not count.
    pub(crate) fn of_candidates(dir: String, acl: Acl, memory: Arc<Memory>) -> Self {
        Queue { family: Family::Candidates, ..Queue::new(dir, Layout::Curator, acl, memory) }
    }

    /// The same queue, below a node that `make` makes.
    pub(crate) fn below(self, make: MakeNode) -> Self {
        Queue { above: Some(make), ..self }
    }

    /// Sends requests of which the first makes a node in the queue, in one flight. Makes the queue's
    /// znode in it if it is missing, and the missing ones above it.
    fn flight(
        &self,
        generation: &Generation,
        requests: &[(Operation<'_>, Option<Removal>)],
        limit: &Limit<'_>,
    ) -> std::result::Result<Answers, CallError> {
        let below = self.above.is_some().then(|| path::parent(&self.dir));
        let flight = || generation.flight_in(&self.dir, below, &self.acl, requests, limit);
        loop {
            match (flight(), &self.above) {
                (Err(CallError::NoNode), Some(make)) => make(generation, limit)?,
                (flight, _) => return flight,
            }
        }
    }

    /// The same queue, with another strategy for its waiters.
    pub(crate) fn waiting(mut self, strategy: WaitStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The full path of the queue's znode.
    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }

    pub(crate) fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn acl(&self) -> &Acl {
        &self.acl
    }

    /// All contenders in the queue, in order.
    pub(crate) fn contenders(&self, core: &Core, of: &Question<'_>) -> Result<Vec<Contender>> {
        self.list("contenders", core, of, |_| ())
    }

    /// The contenders in the queue that hold the lock: the first, and if that one reads, all that
    /// read before the first that wants to write.
    pub(crate) fn holders(&self, core: &Core, of: &Question<'_>) -> Result<Vec<Contender>> {
        self.list("holders", core, of, rule::keep_holders)
    }

    /// The contenders in the queue, as they are at one moment, in order; `keep` drops those that
    /// are not wanted.
    fn list(
        &self,
        op: &'static str,
        core: &Core,
        of: &Question<'_>,
        keep: fn(&mut Vec<Name<'_>>),
    ) -> Result<Vec<Contender>> {
        let choose = |children: &[&str]| self.choose(children, keep);
        let folder = Folder { dir: &self.dir, choose: &choose };
        let nodes = snapshot(op, core, &self.dir, of, &[folder])?.pop().unwrap_or_default();
        Ok(self.ordered(core, nodes, keep))
    }

    /// The nodes that must be read to show which contenders `keep` keeps: all of them if their
    /// order is in the nodes.
    pub(crate) fn choose(&self, children: &[&str], keep: fn(&mut Vec<Name<'_>>)) -> Vec<String> {
        let (mut names, _) = self.parse(children);
        if !rule::unordered(&names) {
            rule::in_order(&mut names);
            keep(&mut names);
        }
        names.into_iter().map(|name| name.full.to_owned()).collect()
    }

    /// The contenders that `keep` keeps, of nodes that `choose` has chosen.
    pub(crate) fn ordered(
        &self,
        core: &Core,
        nodes: Children,
        keep: fn(&mut Vec<Name<'_>>),
    ) -> Vec<Contender> {
        let full: Vec<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        let (mut names, _) = self.parse(&full);
        let mut nodes: HashMap<String, Node> = nodes.into_iter().collect();
        if rule::unordered(&names) {
            let czxid = |name: &str| nodes.get(name).map(|node| node.stat.czxid);
            let dated = names.into_iter().map(|name| (name, czxid(name.full)));
            names = rule::order_by_czxid(dated.collect());
        } else {
            rule::in_order(&mut names);
        }
        keep(&mut names);
        let contender = |name: Name<'_>| {
            let node = nodes.remove(name.full)?;
            let path = path::join(&self.dir, name.full);
            Some(Contender::of(core.shown(&path), name.kind == Kind::Read, node))
        };
        names.into_iter().filter_map(contender).collect()
    }

    /// The contenders in the queue's order, if their numbers carry none. Takes one read for each
    /// such contender.
    fn by_czxid<'n>(
        &self,
        generation: &Generation,
        names: Vec<Name<'n>>,
        limit: &Limit<'_>,
    ) -> std::result::Result<Vec<Name<'n>>, CallError> {
        let mut dated = Vec::with_capacity(names.len());
        for name in names {
            let path = path::join(&self.dir, name.full);
            let exists = || generation.call(Operation::Exists { path: &path }, limit);
            match rule::is_unordered(name.sequence).then(exists).transpose() {
                Ok(Some(Reply::Stat(stat))) => dated.push((name, Some(stat.czxid))),
                Ok(_) | Err(CallError::NoNode) => dated.push((name, None)),
                Err(e) => return Err(e),
            }
        }
        Ok(rule::order_by_czxid(dated))
    }

    /// The contenders in a listing, and the other names. Logs once for each path and session what
    /// an operator should know about the others.
    fn parse<'a>(&self, children: &[&'a str]) -> (Vec<Name<'a>>, Vec<&'a str>) {
        let (names, junk) = rule::contenders(children, self.family);
        if let Some(first) = junk.first() {
            if self.memory.is_new(&self.dir, Fact::Junk) {
                warn!(
                    "{}: {} of its children are no contenders and are ignored, for example {first:?}",
                    self.dir,
                    junk.len()
                );
            }
        }
        if rule::mixed(&names) && self.memory.is_new(&self.dir, Fact::Mixed) {
            error!(
                "{}: both Curator's and kazoo's clients queue here, and do not all respect each other; let them use one layout",
                self.dir
            );
        }
        (names, junk)
    }

    fn warn_stranger(&self, name: &Name<'_>, ours: Kind) {
        if self.memory.is_new(&self.dir, Fact::Stranger) {
            error!(
                "{}: {} is {}, where {} was before; they do not exclude each other; give each kind a path of its own",
                self.dir,
                name.full,
                name.kind.described(),
                ours.described()
            );
        }
    }

    fn warn_half_used(&self) {
        if self.memory.is_new(&self.dir, Fact::HalfUsed) {
            warn!(
                "{}: more than half of its 2147483648 sequence numbers are used up. They start anew when this node is made anew: ZooKeeper deletes it when it finds it empty, if it is a container. \
                 If somebody made it as another kind of node, delete it when nobody uses the lock, and make it again",
                self.dir
            );
        }
    }

    fn warn_numbers(&self) {
        if self.memory.is_new(&self.dir, Fact::NoOrder) {
            error!(
                "{}: its sequence numbers are used up and carry no order any more; only clients of this library still exclude each other here. \
                 Stop the lock's users for a moment, or delete the node when it is empty: its numbers start anew then",
                self.dir
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &[u8], session_id: i64, age: Duration) -> String {
        let created = wall_time().checked_sub(age).unwrap();
        let (path, reads) = (String::new(), false);
        Contender { path, reads, data: data.to_vec(), session_id, created }.to_string()
    }

    #[test]
    fn a_contender_is_shown_on_one_line() {
        let minute = Duration::from_secs(60);
        let now = Duration::ZERO;
        assert_eq!(
            shown(b"h7:4711", 0x1000_0000_0000_001f, now),
            "h7:4711, session 0x100000000000001f, for 0 s"
        );
        assert_eq!(shown(b"h7:4711", -2, now), "h7:4711, session 0xfffffffffffffffe, for 0 s");
        assert!(shown(b"h7:4711", 1, minute * 3).starts_with("h7:4711, session 0x1, for 3 min "));
        assert_eq!(shown(b"job 7", 0, now), "job 7, no session, for 0 s");
        assert_eq!(shown(b"", 1, now), "(no data), session 0x1, for 0 s");
        assert_eq!(shown(b"__REVOKE__", 1, now), "(asked to let go), session 0x1, for 0 s");
        assert_eq!(
            shown(b"a\nb\xff\x1b[0m", 1, now),
            "a\\nb\u{fffd}\\u{1b}[0m, session 0x1, for 0 s"
        );
        assert_eq!(
            shown(&[b'x'; 81], 1, now),
            format!("{}.., session 0x1, for 0 s", "x".repeat(80))
        );
        assert_eq!(shown(&[b'x'; 80], 1, now), format!("{}, session 0x1, for 0 s", "x".repeat(80)));
    }

    #[test]
    fn a_contender_whose_server_clock_is_ahead_is_shown_as_new() {
        let created = wall_time() + Duration::from_secs(3_600);
        let (path, reads, data, session_id) = (String::new(), false, Vec::new(), 1);
        let contender = Contender { path, reads, data, session_id, created };
        assert!(contender.to_string().ends_with(", for 0 s"), "{contender}");
    }

    #[test]
    fn a_time_is_shown_by_its_two_greatest_units() {
        for (seconds, shown) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3_599, "59 min 59 s"),
            (3_600, "1 h 0 min"),
            (86_399, "23 h 59 min"),
            (86_400, "1 d 0 h"),
            (100 * 86_400 + 7_300, "100 d 2 h"),
        ] {
            assert_eq!(Rounded(Duration::from_secs(seconds)).to_string(), shown);
        }
    }
}
