//! The calls that all locks have under the same names, and the trait by which those calls and the
//! multi-lock take any lock. The macros keep the names, the texts and the errors alike: a recipe
//! says only what is special about it.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::queue::Settings;
use crate::queue::request::{Call, Mode, until_got};
use crate::queue::tally::LockTally;
use crate::queue::{Contender, Queue, Request};
use crate::recipes::guard::Held;
use crate::recipes::wait::Wait;
use zk_session::unstable::{Core, Limit};
use zk_session::world::thread::ThreadId;

/// One way to take a lock: a mutex, one half of a read/write lock, a number of permits.
pub(crate) trait Acquire: Send + Sync {
    /// The name of this way, by which a multi-lock orders its members.
    fn kind(&self) -> &'static str;

    /// The name of a call that takes it, for errors.
    fn op(&self) -> &'static str {
        "lock"
    }

    fn settings(&self) -> &Settings;

    /// What all locks of the path in the session count for this way.
    fn tally(&self) -> &Arc<LockTally>;

    /// Another guard for a thread that holds the lock. `None`: the thread does not hold it, or has
    /// lost it, or the lock is not re-entrant.
    fn again(&self) -> Option<Held> {
        None
    }

    /// Takes the lock for a thread that gets no guard from `again`. `None`: somebody else was
    /// ahead. After `None` and after an error this call has no node, or the node is being deleted,
    /// or another thread waits with it.
    #[inline(never)] // inlined, it made re-entry a tenth slower
    fn acquire(&self, call: &Call, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let settings = self.settings();
        let limit = mode.limit(limit, settings.core());
        let is_excluded_here = || self.is_excluded_here();
        self.tally().count(call, |tally| {
            let request = Request::new(call, settings, mode, limit, tally);
            self.take(&request.unless(&is_excluded_here))
        })
    }

    /// Whether a valid guard of this process shows that no server can give the lock to a call now.
    fn is_excluded_here(&self) -> bool {
        false
    }

    /// What `acquire` does, and counts.
    fn take(&self, request: &Request<'_>) -> Result<Option<Held>>;

    /// The error for a call that did not get the lock, although nothing failed.
    fn missed(&self, mode: Mode) -> Error {
        mode.missed(self.settings().path.clone())
    }

    /// Whether `thread` has guards on the lock, through any session, and so would wait for itself.
    /// False also where guards belong to no thread. An error if they are of a lost hold.
    fn has_guards(&self, _thread: ThreadId) -> Result<bool> {
        Ok(false)
    }

    /// An error in a forked child. Every call asks for this before it takes any lock.
    #[inline]
    fn check_process(&self) -> Result<()> {
        let settings = self.settings();
        Ok(settings.process().check(self.op(), &settings.path)?)
    }

    /// A thread that holds the lock already needs no limit, and most limits read the clock: so
    /// `again` is tried first.
    #[inline]
    fn lock(&self) -> Result<Held> {
        self.check_process()?;
        match self.again() {
            Some(held) => Ok(held),
            None => {
                let call = Call::new(self.op());
                until_got(|| self.acquire(&call, Mode::Wait, Limit::NONE))
            }
        }
    }

    #[inline]
    fn lock_with(&self, wait: &Wait) -> Result<Held> {
        self.check_process()?;
        if let Some(held) = self.again() {
            return Ok(held);
        }
        let call = Call::new(self.op());
        wait.acquire(
            || self.settings().operation_timeout(),
            |mode| self.missed(mode),
            |mode, limit| self.acquire(&call, mode, limit),
        )
    }
}

/// A lock whose contenders stand in one queue.
pub(super) trait InQueue {
    /// The queue, and the session in which requests to it are sent.
    fn queue(&self) -> (&Queue, &Core);

    fn contenders(&self, wait: &Wait) -> Result<Vec<Contender>> {
        let (queue, core) = self.queue();
        queue.contenders(core, &wait.question(core))
    }

    fn holders(&self, wait: &Wait) -> Result<Vec<Contender>> {
        let (queue, core) = self.queue();
        queue.holders(core, &wait.question(core))
    }
}

/// Makes `builder` of a lock. One list of traits says to the compiler and to the reader which
/// settings the lock has.
macro_rules! lock_builder {
    ($lock:ident $(, $has:ident)*; $(#[$doc:meta])* builder($($permits:ident: $u32:ty)?)) => {
        impl $lock {
            $(#[$doc])*
            ///
            /// | setting | default |
            /// | --- | --- |
            #[doc = crate::recipes::settings::settings_of!(Recipe)]
            $(#[doc = crate::recipes::settings::settings_of!($has)])*
            pub fn builder(
                session: &crate::ZkSession,
                path: impl AsRef<str>,
                $($permits: $u32)?
            ) -> crate::LockBuilder<$lock> {
                let path = path.as_ref().to_owned();
                crate::LockBuilder::new(session.clone(), path)$(.$permits($permits))?
            }
        }

        $(impl crate::recipes::settings::$has for $lock {})*
    };
}
pub(super) use lock_builder;

/// Makes `new`, `builder` and `Debug` of a lock that a path and settings describe.
macro_rules! lock_at_a_path {
    ($lock:ident, |$this:ident| $handle:expr, made by |$settings:ident| $made:expr
     $(, $has:ident)* $(; shown by $describe:ident)?) => {
        impl $lock {
            /// The lock at `path` (below the session's chroot), with the default settings. Nothing
            /// is sent.
            ///
            /// # Errors
            ///
            /// As [`build`](crate::LockBuilder::build).
            pub fn new(
                session: &crate::ZkSession,
                path: impl AsRef<str>,
            ) -> crate::Result<Self> {
                $lock::builder(session, path).build()
            }
        }

        crate::recipes::calls::lock_builder! {
            $lock $(, $has)*;
            /// A builder, for a lock with settings of its own.
            builder()
        }

        impl crate::recipes::settings::Recipe for $lock {
            fn make($settings: crate::queue::Settings) -> crate::Result<Self> {
                $made
            }
        }

        impl std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut shown = f.debug_struct(stringify!($lock));
                shown.field("path", &$handle.settings.path);
                $(
                    shown.field("state", &format_args!("{}", $handle.$describe()));
                )?
                shown.finish_non_exhaustive()
            }
        }
    };
}
pub(super) use lock_at_a_path;

/// Makes the four calls that take a lock: one blocks, one tries, one has a timeout, one a [`Wait`].
/// Without names they are `lock`, `try_lock`, `lock_timeout` and `lock_with`.
macro_rules! lock_calls {
    (
        $lock:ident gives $guard:ident by $make:path, of $what:literal, unused: $unused:literal,
        |$this:ident| $way:expr;
        $(#[$lock_doc:meta])* lock
        errors: $(#[$errors:meta])*;
        $(#[$try_doc:meta])* try_lock;
    ) => {
        lock_calls! {
            $lock gives $guard by $make, of $what, unused: $unused, |$this| $way;
            $(#[$lock_doc])* #[doc(alias = "acquire")] lock
            errors: $(#[$errors])*;
            $(#[$try_doc])* #[doc(alias = "tryAcquire")] try_lock;
            #[doc(alias = "try_lock_for")] lock_timeout;
            #[doc(alias = "try_lock_until")] lock_with;
        }
    };
    (
        $lock:ident gives $guard:ident by $make:path, of $what:literal, unused: $unused:literal,
        |$this:ident| $way:expr;
        $(#[$lock_doc:meta])* $call:ident
        errors: $(#[$errors:meta])*;
        $(#[$try_doc:meta])* $try:ident;
        $(#[$timeout_doc:meta])* $timeout:ident;
        $(#[$with_doc:meta])* $with:ident;
    ) => {
        impl $lock {
            $(#[$lock_doc])*
            ///
            /// The call waits in an outage for as long as the session's
            /// [`RetryPolicy`](crate::RetryPolicy) says, 60 s by default, counted from the call.
            ///
            /// # Errors
            ///
            $(#[$errors])*
            /// * [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached,
            ///   or no server gives the answer that is needed, for longer than the retry policy
            ///   allows.
            /// * [`Error::Closed`](crate::Error::Closed) when the session is closed, and
            ///   [`Error::Forked`](crate::Error::Forked) in a forked child of its process.
            /// * [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, also when it lets this
            ///   session make nodes and not delete them: its node would hold the lock against all
            ///   others. [`Error::Auth`](crate::Error::Auth) when the servers refuse the session's
            ///   credentials.
            /// * [`Error::InvalidConfig`](crate::Error::InvalidConfig) when a mutex, a read/write lock
            ///   or an election finds another of these kinds at its path, of any client, that was
            ///   there before: they do not exclude each other.
            ///
            /// After an error this call holds nothing. It has no node, or the node is being
            /// deleted, or another thread of this process waits with it. (A node that an ACL does not
            /// let us delete stays until the session ends.)
            #[must_use = concat!("if unused ", $unused, "; keep it: `let _guard = ..`")]
            pub fn $call(&self) -> crate::Result<$guard> {
                let $this = self;
                $way.lock().map($make)
            }

            $(#[$try_doc])*
            ///
            /// "Somebody else" may also be a thread of this process that waits for the lock
            /// already, or a guard of this process that was lost and still lives: its node is
            /// deleted when that guard is dropped.
            ///
            /// # Errors
            ///
            /// [`Error::WouldBlock`](crate::Error::WouldBlock) when somebody else has it;
            /// [`.optional()?`](crate::OptionalExt::optional) makes that a `None`. Otherwise
            #[doc = concat!("as [`", stringify!($call), "`](Self::", stringify!($call), ");")]
            /// [`Error::Unavailable`](crate::Error::Unavailable) at once when there is no
            /// connection, and when ZooKeeper does not answer within a sixth of the session
            /// timeout.
            #[must_use = concat!("if unused ", $unused, "; keep it: `let _guard = ..`")]
            pub fn $try(&self) -> crate::Result<$guard> {
                self.$timeout(std::time::Duration::ZERO)
            }

            #[doc = concat!("Waits for ", $what, " for `timeout` at most. In an outage the call waits")]
            /// for all of its time, however long that is, and takes the lock if a server comes back
            /// in time.
            ///
            /// # Errors
            ///
            /// * [`Error::TimedOut`](crate::Error::TimedOut) if the time passed while somebody else
            ///   was ahead. This call holds nothing then. Its node is deleted, or about to be
            ///   deleted, or another thread of this process waits with it. [`.optional()?`](crate::OptionalExt::optional) makes it a `None`.
            /// * [`Error::Unavailable`](crate::Error::Unavailable) when the time ran out in an
            ///   outage, or before the server answered. A timeout that is too short for the round
            ///   trips of this call mostly gives this error.
            #[doc = concat!("* Otherwise as [`", stringify!($call), "`](Self::", stringify!($call), ").")]
            ///
            #[doc = concat!(
                "A timeout of zero is [`", stringify!($try), "`](Self::", stringify!($try), "),"
            )]
            /// which waits for the server's answer, and gives
            /// [`Error::WouldBlock`](crate::Error::WouldBlock) in place of `TimedOut`.
            $(#[$timeout_doc])*
            #[must_use = concat!("if unused ", $unused, "; keep it: `let _guard = ..`")]
            pub fn $timeout(&self, timeout: std::time::Duration) -> crate::Result<$guard> {
                self.$with(crate::Wait::timeout(timeout))
            }

            #[doc = concat!("Waits for ", $what, " for as long as `wait` says: a timeout, a deadline")]
            /// and a cancel token, or any of these. A wait that has neither a timeout nor a
            /// deadline never ends because of others.
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($timeout), "`](Self::", stringify!($timeout), "),")]
            /// and [`Error::Cancelled`](crate::Error::Cancelled) when the token is cancelled.
            $(#[$with_doc])*
            #[must_use = concat!("if unused ", $unused, "; keep it: `let _guard = ..`")]
            pub fn $with(&self, wait: crate::Wait) -> crate::Result<$guard> {
                let $this = self;
                $way.lock_with(&wait).map($make)
            }
        }
    };
}
pub(super) use lock_calls;

/// Makes the calls that list a lock's contenders.
macro_rules! contender_calls {
    (
        $lock:ident, |$this:ident| $handle:expr;
        $(#[$contenders_doc:meta])* contenders;
        $(#[$holders_doc:meta])* holders;
    ) => {
        impl $lock {
            $(#[$contenders_doc])*
            ///
            /// # Errors
            ///
            /// * [`Error::Unavailable`](crate::Error::Unavailable) at once when there is no
            ///   connection; and when an answer takes longer than a sixth of the session timeout,
            ///   or contenders come and go for so long faster than they can be read.
            /// * [`Error::Closed`](crate::Error::Closed), [`Error::NoAuth`](crate::Error::NoAuth)
            ///   and [`Error::Auth`](crate::Error::Auth) as from the calls that take the lock.
            pub fn contenders(&self) -> crate::Result<Vec<crate::Contender>> {
                self.contenders_with(crate::Wait::timeout(std::time::Duration::ZERO))
            }

            /// As [`contenders`](Self::contenders), and waits for a connection and for the answers
            /// as long as `wait` says: in an outage too, with a timeout for all of its time. Without
            /// a timeout and a deadline the session's [`RetryPolicy`](crate::RetryPolicy) says how
            /// long the call waits in an outage.
            ///
            /// # Errors
            ///
            /// As [`contenders`](Self::contenders), and
            /// [`Error::Cancelled`](crate::Error::Cancelled) when the token is cancelled.
            pub fn contenders_with(
                &self,
                wait: crate::Wait,
            ) -> crate::Result<Vec<crate::Contender>> {
                let $this = self;
                $handle.contenders(&wait)
            }

            $(#[$holders_doc])*
            ///
            /// # Errors
            ///
            /// As [`contenders`](Self::contenders).
            pub fn holders(&self) -> crate::Result<Vec<crate::Contender>> {
                self.holders_with(crate::Wait::timeout(std::time::Duration::ZERO))
            }

            /// As [`holders`](Self::holders), and waits as
            /// [`contenders_with`](Self::contenders_with) does.
            ///
            /// # Errors
            ///
            /// As [`contenders_with`](Self::contenders_with).
            pub fn holders_with(&self, wait: crate::Wait) -> crate::Result<Vec<crate::Contender>> {
                let $this = self;
                $handle.holders(&wait)
            }
        }
    };
}
pub(super) use contender_calls;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Cause, Error};
    use crate::{
        Acl, AclEntry, Config, Member, Permissions, ZkCandidate, ZkElection, ZkExclusiveLock,
        ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
    };
    use std::time::Duration;
    use zk_session::CreateMode;
    use zk_test_server::TestServer;
    use zk_test_support::own_loopback;

    /// A call that a program makes of a lock: the operation and the path that its errors name.
    type Row<'a> = (&'static str, &'a str, Box<dyn Fn() -> Result<()> + 'a>);

    struct Locks {
        session: ZkSession,
        mutex: ZkMutex,
        rwlock: ZkRwLock,
        semaphore: ZkSemaphore,
        semaphore_mutex: ZkSemaphoreMutex,
        exclusive: ZkExclusiveLock,
        multi: ZkMultiLock,
        election: ZkElection,
        candidate: ZkCandidate,
    }

    const NODE: &str = "/locks/mutex/_c_6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42-lock-0000000000";

    impl Locks {
        fn new(session: ZkSession) -> Result<Self> {
            let of = &session;
            let election = ZkElection::new(of, "/locks/election")?;
            let member = ZkMutex::new(of, "/locks/member")?;
            Ok(Locks {
                mutex: ZkMutex::new(of, "/locks/mutex")?,
                rwlock: ZkRwLock::new(of, "/locks/rwlock")?,
                semaphore: ZkSemaphore::new(of, "/locks/semaphore", 2)?,
                semaphore_mutex: ZkSemaphoreMutex::new(of, "/locks/semaphore_mutex")?,
                exclusive: ZkExclusiveLock::new(of, "/locks/exclusive")?,
                multi: ZkMultiLock::new([Member::from(&member)])?,
                candidate: election.join()?,
                election,
                session,
            })
        }

        /// Each call that asks a server. (The candidate asks by itself.)
        fn calls(&self) -> Vec<Row<'_>> {
            let mut all: Vec<Row<'_>> = Vec::new();
            macro_rules! calls {
                ($($op:literal, $lock:ident: $call:ident($($argument:expr),*);)+) => {
                    $(all.push((
                        $op,
                        concat!("/locks/", stringify!($lock)),
                        Box::new(|| self.$lock.$call($($argument),*).map(drop)),
                    ));)+
                };
            }
            calls! {
                "lock", mutex: try_lock();
                "contenders", mutex: contenders();
                "holders", mutex: holders();
                "read", rwlock: try_read();
                "write", rwlock: try_write();
                "contenders", rwlock: contenders();
                "holders", rwlock: holders();
                "acquire", semaphore: try_acquire();
                "acquire", semaphore: acquire_many_with(2, Wait::timeout(Duration::ZERO));
                "permits", semaphore: permits();
                "set_permits", semaphore: set_permits(2);
                "contenders", semaphore: contenders();
                "holders", semaphore: holders();
                "lock", semaphore_mutex: try_lock();
                "contenders", semaphore_mutex: contenders();
                "holders", semaphore_mutex: holders();
                "lock", exclusive: try_lock();
                "contenders", election: contenders();
                "holders", election: holders();
            }
            all.push(("lock", "/locks/member", Box::new(|| self.multi.try_lock().map(drop))));
            let holder = || self.exclusive.holders().map(drop);
            all.push(("holders", "/locks/exclusive/lock", Box::new(holder)));
            let revoke = || self.session.attempt_revoke(NODE).map(drop);
            all.push(("attempt_revoke", NODE, Box::new(revoke)));
            all
        }
    }

    /// The operation and the path of an error.
    fn about(e: &Error) -> (&'static str, &str) {
        match e {
            Error::Unavailable { op, path, .. }
            | Error::Closed { op, path }
            | Error::NoAuth { op, path, .. } => (op, path),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_names_the_call_and_the_path_as_the_program_gave_it() {
        for chroot in ["", "/app"] {
            // The server is down, and there was never a session.
            let at = format!("{}:2181{chroot}", own_loopback());
            let config = Config::new(at).session_timeout(Duration::from_millis(60));
            let session = ZkSession::builder(config).connect_in_background().unwrap();
            let locks = Locks::new(session).unwrap();
            let waits = Wait::timeout(Duration::ZERO);
            let wait = || locks.candidate.wait_leader_with(waits.clone()).map(drop);
            let mut calls = locks.calls();
            calls.push(("wait_leader", "/locks/election", Box::new(wait)));
            let mut wrong = Vec::new();
            let mut each = |calls: &[Row<'_>], is_it: fn(&Error) -> bool| {
                for (op, path, call) in calls {
                    let e = call().unwrap_err();
                    if !is_it(&e) || about(&e) != (*op, *path) {
                        wrong.push(format!("{op} {path}: {e:?}"));
                    }
                }
            };
            each(&calls, |e| {
                matches!(e, Error::Unavailable { cause: Cause::Outage(_), .. }) && e.is_transient()
            });
            let _ = locks.session.close();
            calls.pop(); // the candidate has ended, by an error of its own
            each(&calls, |e| matches!(e, Error::Closed { .. }));
            assert_eq!(wrong, Vec::<String>::new());
            let e = locks.election.join().map(drop).unwrap_err();
            assert_eq!(about(&e), ("join", "/locks/election"));
        }
    }

    /// The nodes of all locks are closed to everybody.
    #[test]
    fn a_refusal_names_the_call_and_a_node_below_the_chroot() {
        for chroot in ["", "/app"] {
            let server = TestServer::start().unwrap();
            let root = ZkSession::connect(server.connect_string()).unwrap();
            let root = root.zookeeper().requests();
            // Nobody comes from there.
            let (permissions, scheme, id) = (Permissions::ALL, "ip".into(), "10.0.0.1".into());
            let nobody = Acl::Custom(vec![AclEntry { permissions, scheme, id }]);
            let all = [
                "mutex",
                "rwlock",
                "semaphore",
                "semaphore/leases",
                "semaphore/locks",
                "semaphore_mutex",
                "semaphore_mutex/leases",
                "semaphore_mutex/locks",
                "exclusive",
                "exclusive/lock",
                "election",
                "member",
            ];
            let all = all.map(|path| format!("{chroot}/locks/{path}"));
            let above = [chroot.to_owned(), format!("{chroot}/locks")];
            for path in above.iter().filter(|path| !path.is_empty()).chain(&all) {
                root.create(path, b"", CreateMode::Persistent, &Acl::Open).unwrap();
            }
            for path in &all {
                root.set_acl(path, &nobody, None).unwrap();
            }
            let session = ZkSession::connect(server.connect_string() + chroot).unwrap();
            let locks = Locks::new(session).unwrap();
            let mut refused = 0;
            for (op, path, call) in locks.calls() {
                match call() {
                    Ok(()) => assert_eq!(op, "attempt_revoke", "{path}: there is no such node"),
                    Err(e) => {
                        refused += 1;
                        assert!(matches!(e, Error::NoAuth { .. }), "{chroot} {op} {path}: {e:?}");
                        let (named, at) = about(&e);
                        assert!(named == op && at.starts_with(path), "{chroot} {op} {path}: {e:?}");
                        assert!(!e.is_transient(), "{e:?}");
                    }
                }
            }
            assert_eq!(refused, locks.calls().len() - 1);
        }
    }
}
