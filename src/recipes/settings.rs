//! `LockBuilder`: the settings of a lock, and the one builder for all recipes. It checks the
//! settings and gives them to the recipe, which also finds here the state that all locks of a path
//! share in one session.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::local::registry::SelfDeadlockDetector;
use crate::local::registry::{self, LockKey, Shared};
use crate::observer::LockLabel;
use crate::path::lock_path;
use crate::queue::Settings;
use crate::queue::name::Layout;
use crate::queue::tally::LockTally;
use crate::queue::{HeldNode, Queue, WaitStrategy};
use crate::session::ZkSession;
#[cfg(any(doc, test))]
use crate::{ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex};
use zk_session::Acl;

/// ZooKeeper's limit for a whole request (`jute.maxbuffer`), less room for the path and the ACL.
const MAX_DATA: usize = (1 << 20) - (8 << 10);

/// The longest ACL, a part of that room.
const MAX_ACL: usize = 3 << 10;

/// A lock that a [`LockBuilder`] makes.
pub(crate) trait Recipe: Sized {
    fn make(settings: Settings) -> Result<Self>;
}

/// A recipe whose holds end with a guard.
pub(crate) trait HasGuards: Recipe {}

/// A recipe whose node names can be those of different clients.
pub(crate) trait HasLayout: Recipe {}

/// A recipe whose threads can hand a hold to each other.
pub(crate) trait HandsOver: Recipe {}

/// A recipe whose node can stay with the process between two holds.
pub(crate) trait Keeps: Recipe {}

/// A recipe that lets the program choose what waiting threads watch.
pub(crate) trait HasWaitStrategy: Recipe {}

/// The rows of a table in a lock's documentation: the settings that a trait gives to the lock.
macro_rules! settings_of {
    (Recipe) => {
        "\
| [`name`](crate::LockBuilder::name), for metrics | the empty name |
| [`data`](crate::LockBuilder::data), for operators | the host and the process id |
| [`acl`](crate::LockBuilder::acl) | [`Acl::Open`](crate::Acl::Open) |"
    };
    (HasGuards) => {
        "\
| [`max_hold`](crate::LockBuilder::max_hold) | a guard may hold the lock for ever |
| [`release_overdue`](crate::LockBuilder::release_overdue) | no: a hold that is too long keeps others out |
| [`warn_waiting_after`](crate::LockBuilder::warn_waiting_after) | 30 s |
| [`warn_held_after`](crate::LockBuilder::warn_held_after) | never |"
    };
    (HasLayout) => {
        "| [`layout`](crate::LockBuilder::layout) | [`Layout::Curator`](crate::Layout::Curator) |"
    };
    (HandsOver) => {
        "| [`hand_over`](crate::LockBuilder::hand_over) | 20 ms |"
    };
    (Keeps) => {
        "| [`keep`](crate::LockBuilder::keep) | zero: a release deletes the node |"
    };
    (HasWaitStrategy) => {
        "\
| [`wait_strategy`](crate::LockBuilder::wait_strategy) | \
[`WaitStrategy::Predecessor`](crate::WaitStrategy::Predecessor) |"
    };
}
pub(crate) use settings_of;

/// What `Debug` shows of a lock in a forked child.
pub(crate) const FORKED: &str = "<of the parent process>";

impl Settings {
    /// An error if this hold of the lock is lost: a lost hold cannot be entered again.
    pub(crate) fn check(&self, node: &HeldNode) -> Result<()> {
        node.check(self.core())
    }

    /// The lock's queue.
    pub(crate) fn queue(&self) -> Queue {
        Queue::new(self.dir(), self.layout, self.acl.clone(), self.memory.clone())
            .waiting(self.strategy)
    }

    /// The counters of the lock. `recipe`: one of those of [`LockLabel::recipe`].
    pub(crate) fn tally(&self, recipe: &'static str) -> Arc<LockTally> {
        let label = LockLabel { recipe, name: self.name.clone(), path: self.path.clone() };
        LockTally::new(label, self.events.clone())
    }

    pub(crate) fn key(&self) -> LockKey {
        LockKey::new(&self.core().ensemble(), &self.dir())
    }

    pub(crate) fn self_deadlock(&self) -> SelfDeadlockDetector {
        SelfDeadlockDetector::new(self.key(), self.core().number())
    }

    /// The state that all locks of this recipe and path on this session share. The first lock makes
    /// it. An error if this process has a lock of another recipe at the path.
    pub(crate) fn share<T: Send + Sync + 'static>(
        &self,
        what: &'static str,
        make: impl FnOnce(&Settings) -> T,
    ) -> Result<Shared<T>> {
        let session = self.core().number();
        registry::intern(&self.key(), session, what, || make(self)).map_err(|other| {
            let reason = format!(
                "{:?} belongs in this process to another kind of lock ({other}); give this {what} a path of its own",
                self.path
            );
            Error::InvalidConfig { what: "path", reason }
        })
    }

    /// An error if the lock is in use on this session with other settings. All users of one lock in
    /// one session share nodes, so they need the same node names, ACL and wait strategy.
    pub(crate) fn agree(&self, queue: &Queue) -> Result<()> {
        if queue.layout() != self.layout {
            return Err(self.is_in_use_with("layout", &queue.layout()));
        }
        if *queue.acl() != self.acl {
            return Err(self.is_in_use_with("acl", queue.acl()));
        }
        if queue.strategy() != self.strategy {
            return Err(self.is_in_use_with("wait_strategy", &queue.strategy()));
        }
        Ok(())
    }

    /// The error for a lock that is in use on this session with another value of this setting.
    pub(crate) fn is_in_use_with(&self, what: &'static str, value: &dyn fmt::Debug) -> Error {
        let reason = format!(
            "{:?} has {what}({value:?}) on this session already; give all locks of a path the same",
            self.path
        );
        Error::InvalidConfig { what, reason }
    }
}

/// A builder for a lock with settings of its own. Each lock has a call that begins one, such as
/// [`ZkMutex::builder`], and that call's page lists the settings of the lock. (A
/// [`ZkMultiLock`](crate::ZkMultiLock) has those of its members.)
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{Acl, Config, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect(Config::new("zk1:2181").auth("digest", "orders:secret"))?;
/// let mutex = ZkMutex::builder(&session, "/locks/orders")
///     .data("billing on h7") // operators see it in `contenders`
///     .acl(Acl::CreatorAll) // only clients with these credentials
///     .hand_over(Duration::from_millis(50))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until build() is called"]
pub struct LockBuilder<L> {
    settings: Settings,
    of: PhantomData<fn() -> L>,
}

impl<L> LockBuilder<L> {
    pub(crate) fn new(session: ZkSession, path: String) -> Self {
        LockBuilder { settings: Settings::new(session, path), of: PhantomData }
    }

    pub(crate) fn permits(mut self, permits: u32) -> Self {
        self.settings.permits = permits;
        self
    }

    /// What observers and metrics call the lock: [`LockLabel::name`]. Default: the empty name. A
    /// metric has a time series for each name, so give few: one for each purpose, and not one for
    /// each account. All locks of one path in one session have the name of the first of them.
    ///
    /// For: every lock, and [`ZkElection`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The data of this lock's nodes, which `contenders` shows to operators. The default is the
    /// host's name and the process id.
    ///
    /// The data is written when the node is made, and not again when a thread hands the node to
    /// another thread of this process: then it is still that of the thread that made the node. If it
    /// names a thread or a job, and `holders` must name the one that holds the lock, set
    /// [`hand_over`](Self::hand_over) to zero, and [`keep`](Self::keep) no node.
    ///
    /// For: every lock, and [`ZkElection`].
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.settings.data = data.into();
        self
    }

    /// The ACL of this lock's nodes and of the parents that it makes; default [`Acl::Open`]. Every
    /// client of a semaphore must be able to read the semaphore's node. A client that finds the
    /// node empty must also be able to write it.
    ///
    /// All sessions that use a lock need `READ`, `CREATE` and `DELETE` on its znodes. If a session
    /// may create and not delete, its lock ends only with the session. A client needs `WRITE` to
    /// ask a holder to release its lock, and a semaphore needs it to set its number of permits.
    /// `ADMIN` is never needed.
    ///
    /// Give the sessions of a [`ZkExclusiveLock`](crate::ZkExclusiveLock) `WRITE`, too: all holders
    /// use one node name, and a release writes to the node before it deletes it, so that the delete
    /// cannot hit the node of the next holder. Without `WRITE` it can, if a server forwards the
    /// delete late, after the session has moved to another server and sent it again: then two
    /// guards are valid until the event of the deletion arrives.
    ///
    /// If the server refuses the list, the call on the lock ends with
    /// [`Error::Server`](crate::Error::Server) and creates nothing. A list of more than 3 KiB is
    /// refused when the lock is built, and so is [`Acl::CreatorAll`] if the session has no
    /// credentials.
    ///
    /// For: every lock, and [`ZkElection`].
    pub fn acl(mut self, acl: Acl) -> Self {
        self.settings.acl = acl;
        self
    }

    /// Checks the settings, as far as that needs no server.
    pub(crate) fn settings(self) -> Result<Settings> {
        let Settings { session, path, data, acl, bounds, .. } = &self.settings;
        self.settings.process().check("make a lock at", path)?;
        lock_path(session.core().chroot(), path)?;
        if data.len() > MAX_DATA {
            let reason = format!(
                "{} bytes are more than ZooKeeper takes; give {MAX_DATA} at most",
                data.len()
            );
            return Err(Error::InvalidConfig { what: "data", reason });
        }
        if acl.encoded_len() > MAX_ACL {
            let reason = format!(
                "its entries take {} bytes; give entries of {MAX_ACL} at most",
                acl.encoded_len()
            );
            return Err(Error::InvalidConfig { what: "acl", reason });
        }
        if *acl == Acl::CreatorAll && !session.core().has_credentials() {
            let reason = "CreatorAll means the clients with the credentials of this session, which has none; give it some with Config::auth()".to_owned();
            return Err(Error::InvalidConfig { what: "acl", reason });
        }
        let refused =
            |what, reason: &str| Err(Error::InvalidConfig { what, reason: reason.to_owned() });
        if bounds.max == Some(Duration::ZERO) {
            return refused(
                "max_hold",
                "with zero each hold would be lost at once; give a longer time, or leave it out",
            );
        }
        if bounds.releases_overdue && bounds.max.is_none() {
            return refused(
                "release_overdue",
                "nothing is ever overdue without a max_hold; give one",
            );
        }
        Ok(self.settings)
    }
}

#[allow(private_bounds)] // programs cannot add recipes: locks are made here only
impl<L: HasLayout> LockBuilder<L> {
    /// Which client's node names this lock uses; default [`Layout::Curator`].
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`].
    pub fn layout(mut self, layout: Layout) -> Self {
        self.settings.layout = layout;
        self
    }
}

#[allow(private_bounds)]
impl<L: HasGuards> LockBuilder<L> {
    /// How long one guard may hold the lock; by default for ever. When the time is over, the guard
    /// is lost ([`LossReason::HeldTooLong`](crate::LossReason::HeldTooLong)): [`is_held`] is false,
    /// [`check`] gives an error, the signal [`lost`] becomes ready, and the log has a warning. That
    /// waits for no server.
    ///
    /// The lock's node stays at the server until the thread drops the guard: a thread that does not
    /// notice the loss goes on working, and nobody else gets the lock meanwhile. If others should
    /// get it at once, see [`release_overdue`](Self::release_overdue).
    ///
    /// The time counts from the moment when the call that locks returns. It is each holder's own:
    ///
    /// * A nested guard of a re-entrant lock has the end of the thread's first guard.
    /// * If a thread hands the lock over to another thread of this process, the time begins anew.
    /// * A [kept](Self::keep) lock has no such end while no guard holds it.
    /// * Threads that read a [`ZkRwLock`](crate::ZkRwLock) may share one node. It has one end,
    ///   which counts from the first of these threads; the others come in within the
    ///   [`hand_over`](Self::hand_over) time after it. Threads whose locks have other settings for
    ///   the longest hold do not share it. A thread that reads beside its own write has an end for
    ///   each of the two.
    /// * Permits of a semaphore that were taken together end together.
    /// * A [`ZkMultiLock`](crate::ZkMultiLock) is lost when the first of its locks is.
    ///
    /// A leader of a [`ZkElection`](crate::ZkElection) has no longest time. Other users of the lock
    /// may have another `max_hold` or none.
    ///
    /// [`is_held`]: crate::Held::is_held
    /// [`check`]: crate::Held::check
    /// [`lost`]: crate::Held::lost
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use std::time::Duration;
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let builder = ZkMutex::builder(&session, "/locks/orders");
    /// let mutex = builder.max_hold(Duration::from_secs(60)).build()?;
    /// let guard = mutex.lock()?;
    /// // .. work, and before each step:
    /// guard.check()?; // an error once a minute is over
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`], [`ZkSemaphore`], [`ZkSemaphoreMutex`], [`ZkExclusiveLock`].
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.settings.bounds.max = Some(time);
        self
    }

    /// When [`max_hold`](Self::max_hold) is over, the lock's node is deleted at once, although the
    /// guard still exists: others get the lock. By default they get it when the guard is dropped.
    ///
    /// The guard is invalid before the delete is sent. But a thread that does not look at its guard
    /// goes on working, beside the next holder: give the [fencing token](crate::FencingToken) to
    /// the store with each write. Use this if a thread that hangs must not stop all others.
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`], [`ZkSemaphore`], [`ZkSemaphoreMutex`], [`ZkExclusiveLock`].
    pub fn release_overdue(mut self) -> Self {
        self.settings.bounds.releases_overdue = true;
        self
    }

    /// When a thread has waited for the lock for this long, the log warns and says who holds it,
    /// and again each time that the wait has doubled; default 30 s. `Duration::MAX` switches it
    /// off. The thread goes on waiting meanwhile. The library sends a listing and a read for this
    /// warning, and only after so long a wait. They delay no lock.
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`], [`ZkSemaphore`], [`ZkSemaphoreMutex`], [`ZkExclusiveLock`].
    pub fn warn_waiting_after(mut self, time: Duration) -> Self {
        self.settings.warn_waiting_after = time;
        self
    }

    /// After this time the log warns that this process still holds the lock, and again each time
    /// that the time has doubled; by default never. The hold is not changed by that.
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`], [`ZkSemaphore`], [`ZkSemaphoreMutex`], [`ZkExclusiveLock`].
    pub fn warn_held_after(mut self, time: Duration) -> Self {
        self.settings.bounds.report_after = Some(time);
        self
    }
}

#[allow(private_bounds)]
impl<L: HandsOver> LockBuilder<L> {
    /// How long the threads of a session may hand the lock to each other without a round trip;
    /// default 20 ms. The time begins when their node becomes the first in the queue. When it is
    /// over, the next process gets the lock. With zero, every acquisition queues again, behind
    /// other processes.
    ///
    /// Within this time a thread that wants to read also joins the readers of its session. Threads
    /// that want permits of a semaphore hand their place in its queue to each other.
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`], [`ZkSemaphore`], [`ZkSemaphoreMutex`].
    pub fn hand_over(mut self, bound: Duration) -> Self {
        self.settings.hand_over = bound;
        self
    }
}

#[allow(private_bounds)]
impl<L: Keeps> LockBuilder<L> {
    /// How long the lock's node stays with this process after a release, while nobody else asks for
    /// the lock. If a thread of this process takes the lock in that time, it needs no round trip.
    /// Default zero: the node is deleted at each release.
    ///
    /// This suits a lock that mostly one process takes, again and again. While the node is kept:
    ///
    /// * [`contenders`](crate::ZkMutex::contenders) shows it, and for all other processes the lock
    ///   is held.
    /// * If another process waits for the lock, the node is deleted at once or, if a guard lives,
    ///   when that guard is released. The node is also deleted after a reconnection.
    /// * If another process only calls [`try_lock`](crate::ZkMutex::try_lock), it finds the
    ///   lock taken. It makes no node, so this process does not notice it, and keeps the node.
    /// * If this process dies, others wait until the server expires its session, up to the session
    ///   timeout, even if no guard lived.
    ///
    /// The session renews its lease as for a held lock. Each hold has a fencing token of its own.
    /// `unlock` does not wait for a delete.
    ///
    /// For: [`ZkMutex`].
    pub fn keep(mut self, at_most: Duration) -> Self {
        self.settings.keep = at_most;
        self
    }
}

#[allow(private_bounds)]
impl<L: HasWaitStrategy> LockBuilder<L> {
    /// What a thread that waits for the lock watches; default [`WaitStrategy::Predecessor`].
    ///
    /// For: [`ZkMutex`], [`ZkRwLock`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.settings.strategy = strategy;
        self
    }
}

#[allow(private_bounds)]
impl<L: Recipe> LockBuilder<L> {
    /// Makes the lock. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] for a path that ZooKeeper would refuse, for `/`, and for a path below
    /// `/zookeeper`.
    ///
    /// [`Error::InvalidConfig`]:
    ///
    /// * when this process has another kind of lock at this path;
    /// * when this session has the same lock with another layout, ACL or wait strategy;
    /// * when the data is longer than ZooKeeper's limit of 1 MiB for a request allows, or the ACL
    ///   longer than 3 KiB;
    /// * when the ACL is [`Acl::CreatorAll`] and the session has no
    ///   [`auth`](crate::Config::auth): every server would refuse each node;
    /// * when a semaphore is to have 0 permits;
    /// * when `max_hold` is zero, or `release_overdue` is set without it.
    ///
    /// [`Error::Forked`] in a forked child of the session's process.
    pub fn build(self) -> Result<L> {
        L::make(self.settings()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::HoldBounds;
    use zk_session::RetryPolicy;
    use zk_session::world::host_and_process;

    /// Which locks have a trait. The compiler says so: it takes the constant of `Otherwise` only
    /// for a lock that does not have the other one.
    macro_rules! locks_with {
        ($has:ident: $($lock:ident),+) => {{
            struct Asked<L>(PhantomData<L>);
            trait Otherwise {
                const HAS: bool = false;
            }
            impl<L> Otherwise for Asked<L> {}
            impl<L: $has> Asked<L> {
                const HAS: bool = true;
            }
            let locks = [$((concat!("[`", stringify!($lock), "`]"), Asked::<$lock>::HAS)),+];
            locks.into_iter().filter(|(_, has)| *has).map(|(lock, _)| lock).collect::<Vec<_>>()
        }};
    }

    /// The locks for which the setters of a block are, and the rows that their tables have for it.
    fn of_block(bound: &str) -> (String, &'static str) {
        macro_rules! answer {
            ($($has:ident),+) => {
                $(if bound == stringify!($has) {
                    let locks = locks_with! {
                        $has: ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkExclusiveLock,
                        ZkElection
                    };
                    return (locks.join(", "), settings_of!($has));
                })+
            };
        }
        answer!(HasGuards, HasLayout, HandsOver, Keeps, HasWaitStrategy);
        assert_eq!(bound, "", "a new trait");
        ("every lock, and [`ZkElection`]".to_owned(), settings_of!(Recipe))
    }

    #[test]
    fn each_setter_says_for_which_locks_it_is_and_their_pages_list_it() {
        let mut setters = 0;
        for block in include_str!("settings.rs").split("\nimpl<L").skip(1) {
            let (bound, body) = block.split_once("> LockBuilder<L> {\n").unwrap();
            let body = body.split_once("\n}\n").unwrap().0;
            if bound == ": Recipe" {
                continue; // it has `build`, and no setter
            }
            let (locks, table) = of_block(bound.trim_start_matches(": "));
            let mut rows = table.lines();
            let mut above = "";
            for line in body.lines().map(str::trim_start) {
                let call = line.strip_prefix("pub fn ");
                if let Some((setter, _)) = call.and_then(|call| call.split_once('(')) {
                    assert_eq!(above, format!("/// For: {locks}."), "{setter}");
                    let row = format!("| [`{setter}`](crate::LockBuilder::{setter})");
                    assert!(rows.next().unwrap_or_default().starts_with(&row), "{row} in {table}");
                    setters += 1;
                }
                above = line;
            }
            assert_eq!(rows.next(), None, "a row without a setter");
        }
        assert!(setters > 10, "the source was read");
    }

    /// Text of comments or of Markdown, on one line.
    fn on_one_line(text: &str) -> String {
        let bare = |line: &str| line.trim().trim_start_matches("///").trim().to_owned();
        text.lines().map(bare).collect::<Vec<_>>().join(" ")
    }

    /// What the documentation of a setter says.
    fn docs(setter: &str) -> String {
        let source = include_str!("settings.rs");
        let above = source.split(&format!("\n    pub fn {setter}(")).next().unwrap();
        let docs = above.rsplit("\n\n").next().unwrap();
        // A blank line of a comment is none of the source.
        on_one_line(docs)
    }

    fn shown(time: Duration) -> String {
        match time.subsec_millis() {
            0 => format!("{} s", time.as_secs()),
            _ => format!("{} ms", time.as_millis()),
        }
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_code() {
        let session = ZkSession::builder("127.0.0.1:1").connect_in_background().unwrap();
        // Without `..`: a new setting needs a row.
        let Settings {
            session: _,
            events: _,
            path: _,
            name,
            data,
            acl,
            layout,
            hand_over,
            keep,
            strategy,
            bounds: HoldBounds { max, report_after, releases_overdue },
            warn_waiting_after,
            permits: _,
            memory: _,
        } = Settings::new(session, "/l".into());
        let is_nothing = name.is_empty() && keep.is_zero() && max.is_none();
        let is_off = report_after.is_none() && !releases_overdue;
        let mut wrong = Vec::new();
        let is_a = |kind: &str, value: &dyn fmt::Debug| format!("[`{kind}::{value:?}`]");
        let (acl, layout) = (is_a("Acl", &acl), is_a("Layout", &layout));
        let strategy = is_a("WaitStrategy", &strategy);
        let (hand_over, warn) = (shown(hand_over), shown(warn_waiting_after));
        let default = |value: &str| format!("; default {value}");
        let rows = [settings_of!(Recipe), settings_of!(HasGuards), settings_of!(HasLayout)];
        let more = [settings_of!(HandsOver), settings_of!(Keeps), settings_of!(HasWaitStrategy)];
        let mut rows: Vec<&str> = rows.iter().chain(&more).flat_map(|all| all.lines()).collect();
        for (setter, says, row) in [
            ("name", "Default: the empty name.".to_owned(), "the empty name"),
            (
                "data",
                "The default is the host's name and the process id.".to_owned(),
                "the host and the process id",
            ),
            ("acl", default(&acl), &acl),
            ("layout", default(&layout), &layout),
            ("max_hold", "; by default for ever.".to_owned(), "a guard may hold the lock for ever"),
            (
                "release_overdue",
                "By default they get it when the guard is dropped.".to_owned(),
                "no: a hold that is too long keeps others out",
            ),
            ("warn_waiting_after", default(&format!("{warn}. ")), &warn),
            ("warn_held_after", "; by default never.".to_owned(), "never"),
            ("hand_over", default(&format!("{hand_over}. ")), &hand_over),
            ("keep", "Default zero: ".to_owned(), "zero: a release deletes the node"),
            ("wait_strategy", default(&strategy), &strategy),
        ] {
            if !docs(setter).contains(&says) {
                wrong.push(format!("{setter}: {says}"));
            }
            let begin = format!("| [`{setter}`](");
            let at = rows.iter().position(|line| line.starts_with(&begin)).expect(setter);
            let value = rows.remove(at).rsplit(" | ").next().unwrap().trim_end_matches(" |");
            let value = value.split("](").next().unwrap().trim_end_matches(']');
            if value != row.trim_end_matches(']') {
                wrong.push(format!("{setter} in the table: {row}"));
            }
        }
        assert_eq!(wrong, Vec::<String>::new(), "the code says this, and its documentation not");
        assert!(is_nothing && is_off && data == host_and_process().into_bytes());
        assert_eq!(rows, Vec::<&str>::new(), "settings without a row in this test");
    }

    #[test]
    fn what_other_pages_say_of_the_defaults_is_so_too() {
        let session = ZkSession::builder("127.0.0.1:1").connect_in_background().unwrap();
        let of = Settings::new(session, "/l".into());
        let (hand_over, warn) = (shown(of.hand_over), shown(of.warn_waiting_after));
        let elapsed = shown(RetryPolicy::default().max_elapsed);
        let says_elapsed = format!("{elapsed} by default");
        let config = format!("{:?}", crate::Config::new("zk"));
        let timeout = config.split("session_timeout: ").nth(1).unwrap().split('s').next().unwrap();
        for (page, says) in [
            (include_str!("calls.rs"), says_elapsed.clone()),
            (include_str!("election/candidate.rs"), says_elapsed.clone()),
            (include_str!("../guide/faults.md"), says_elapsed.clone()),
            (include_str!("../guide/guarantees.md"), says_elapsed),
            (include_str!("semaphore/mod.rs"), format!("{hand_over} by default")),
            (
                include_str!("../guide/operations.md"),
                format!("warn_waiting_after), default {warn})"),
            ),
            (include_str!("../guide/operations.md"), format!("default of {timeout} s survives")),
        ] {
            assert!(on_one_line(page).contains(&says), "{says}");
        }
    }
}
