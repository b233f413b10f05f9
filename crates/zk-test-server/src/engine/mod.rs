//! ZooKeeper itself, without sockets and threads. Its inputs are frames and the time; its outputs
//! are frames. [`Engine`] is a single server; `ensemble` makes several servers of the same parts.
//!
//! Like the real server, it has two processors. First, a request is *prepared* (`prep.rs`): a write
//! is checked and numbered. Later, the request is *finished* (`finish.rs`): the transaction is
//! applied, watches fire, and the answer is sent. Requests that are prepared together overlap, as
//! those of a busy real server do.

pub(crate) mod acl;
pub(crate) mod conn;
pub(crate) mod finish;
pub(crate) mod front;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod node;
pub(crate) mod order;
mod outstanding;
pub(crate) mod prep;
mod read;
mod report;
pub(crate) mod request;
pub(crate) mod sasl;
pub(crate) mod session;
pub(crate) mod tree;
pub(crate) mod txn;
mod watch;

use self::acl::Schemes;
use self::conn::State;
use self::finish::Pending;
use self::front::{Front, Greeting, TimeoutLimits};
pub(crate) use self::front::{Identity, Output};
use self::order::{Order, Submitted};
use self::request::is_unnumbered;
use self::sasl::Sasl;
use self::session::{Owner, Sessions};
use crate::Brand;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::SocketAddr;
use std::time::Duration;
use zk_wire::Malformed;
use zk_wire::code::{err, op};

// A simulation replays a run from its seed. So these maps iterate in the same order in each run;
// the standard library's maps iterate in a random order.
type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
type HashSet<T> = std::collections::HashSet<T, BuildHasherDefault<DefaultHasher>>;

/// The number of a connection. The owner of the sockets chooses it.
pub type ConnId = u64;

#[derive(Clone, Debug)]
pub struct Settings {
    pub brand: Brand,
    pub tick: Duration,
    pub min_session: Duration,
    pub max_session: Duration,
    /// The pause between two checks for containers and nodes with a time to live that can be
    /// deleted.
    pub reap_interval: Duration,
    /// A client with these credentials may do everything
    /// (`zookeeper.DigestAuthenticationProvider.superDigest`).
    pub super_digest: Option<String>,
    pub sasl: Sasl,
}

impl Settings {
    fn schemes(&self) -> Schemes {
        Schemes { brand: self.brand, has_sasl: self.sasl.is_configured() }
    }
}

/// A server that stands alone.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    front: Front,
    order: Order,
    /// Requests that are prepared and not finished.
    queue: VecDeque<Pending>,
}

impl Engine {
    pub fn new(settings: Settings, identity: Identity) -> Engine {
        let limits = TimeoutLimits { min: settings.min_session, max: settings.max_session };
        let sessions = Sessions::new(settings.tick, err::UNKNOWN_SESSION);
        Engine {
            front: Front::new(
                identity,
                limits,
                settings.brand,
                settings.super_digest.clone(),
                settings.sasl.clone(),
            ),
            order: Order::new(
                sessions,
                0,
                settings.reap_interval,
                Duration::ZERO,
                settings.schemes(),
            ),
            settings,
            queue: VecDeque::new(),
        }
    }

    /// Sets the time since the engine was made, by the caller's clock. Call this before the
    /// functions below.
    pub(crate) fn set_now(&mut self, now: Duration) {
        self.front.set_now(now);
    }

    pub(crate) fn accept(&mut self, conn: ConnId, peer: SocketAddr) {
        self.front.accept(conn, peer);
    }

    /// The client of this connection has proven that this is its name, by a certificate.
    pub(crate) fn identify(&mut self, conn: ConnId, subject: String) {
        self.front.identify(conn, subject);
    }

    /// Takes one frame, without its length. The answer bears `tag`. After an error the connection
    /// is to be closed.
    pub(crate) fn prepare(
        &mut self,
        conn: ConnId,
        frame: &[u8],
        tag: u64,
    ) -> Result<(), Malformed> {
        match self.front.state(conn) {
            State::Ended => return Ok(()),
            State::New => return self.connect(conn, frame, tag),
            // The real server reads nothing more until the session is made.
            State::Connecting => self.apply(),
            State::Open => {}
        }
        let Some(request) = self.front.receive(conn, frame, tag)? else { return Ok(()) };
        let front::Request { session, timeout, xid, op, body } = request;
        let brand = self.settings.brand;
        if !self.order.sessions.touch(session, timeout, self.front.now) {
            debug!("test server: dropped a request of {session:#x}, which has ended");
        } else if brand.hangs_up_at(op) {
            return Err(Malformed("an operation that this server does not know"));
        } else if is_known(op, brand) {
            self.submit(Some(conn), session, xid, op, tag, body);
        } else {
            self.front.refuse_operation(conn, &request, tag);
        }
        Ok(())
    }

    fn connect(&mut self, conn: ConnId, frame: &[u8], tag: u64) -> Result<(), Malformed> {
        let now = self.front.now;
        match self.front.greet(conn, frame)? {
            Greeting::Refused => {}
            Greeting::Create { session, timeout } => {
                self.order.sessions.track(session, timeout, Some(Owner::Me), now);
                let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
                self.submit(
                    Some(conn),
                    session,
                    0,
                    op::CREATE_SESSION,
                    tag,
                    &timeout_ms.to_be_bytes(),
                );
            }
            Greeting::Resume { session, timeout, is_known } => {
                if is_known && self.order.sessions.touch(session, timeout, now) {
                    self.front.welcome(conn, tag);
                } else {
                    self.front.refuse_session(conn, tag);
                }
            }
        }
        Ok(())
    }

    /// Finishes all requests that were prepared.
    pub fn apply(&mut self) {
        while let Some(request) = self.queue.pop_front() {
            if let Some((stamp, txn)) = &request.txn {
                self.order.applied(stamp.zxid, txn);
            }
            self.front.finish(request);
        }
    }

    /// Forgets a connection that is gone. Its requests are executed all the same.
    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.front.hang_up(conn);
    }

    /// Expires the sessions and deletes the containers and timed nodes that are due.
    pub(crate) fn tick(&mut self) {
        while let Some(session) = self.order.next_expired(self.front.now) {
            info!("test server: session {session:#x} has expired");
            self.end_session(session);
        }
        let Front { store, now, .. } = &self.front;
        for path in self.order.due_for_reaping(&store.tree, *now, self.front.wall_ms()) {
            self.submit(None, 0, 0, op::DELETE_CONTAINER, 0, path.as_bytes());
        }
        self.apply();
    }

    /// The time at which [`tick`](Self::tick) may have something to do, by the same clock. It is
    /// cheap to call.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        self.order.next_tick(&self.front.store.tree)
    }

    /// As [`next_tick`](Self::next_tick), but leaves out checks that would find nothing to delete.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.order.next_due(&self.front.store.tree, self.front.now, self.front.wall_ms())
    }

    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        self.front.take_outputs()
    }

    /// Ends a session as if it had timed out; false if there is none with this id.
    pub fn expire(&mut self, session: i64) -> bool {
        self.apply();
        let is_alive = self.order.sessions.is_alive(session);
        if is_alive {
            self.end_session(session);
        }
        is_alive
    }

    fn end_session(&mut self, session: i64) {
        self.order.sessions.set_closing(session);
        self.submit(None, session, 0, op::CLOSE, 0, &[]);
        self.apply();
    }

    /// Restarts the server with its data and its sessions, without watches and connections.
    pub fn restart(&mut self) {
        self.apply();
        self.front.forget_clients();
        self.order.forget_outstanding(self.front.last_zxid);
        self.order.sessions.restart(self.front.now);
    }

    /// Restarts the server without data.
    pub(crate) fn wipe(&mut self) {
        self.queue.clear();
        self.front.wipe();
        let sessions = Sessions::new(self.settings.tick, err::UNKNOWN_SESSION);
        let Settings { reap_interval, .. } = self.settings;
        let schemes = self.settings.schemes();
        self.order = Order::new(sessions, 0, reap_interval, self.front.now, schemes);
    }

    /// Lets the next sequential child of `parent` have the number `next`; false if there is no such
    /// node.
    pub fn set_sequence(&mut self, parent: &str, next: i32) -> bool {
        self.apply();
        self.front.store.tree.set_sequence(parent, next)
    }

    /// The first half of a request.
    fn submit(
        &mut self,
        conn: Option<ConnId>,
        session: i64,
        xid: i32,
        op: i32,
        tag: u64,
        body: &[u8],
    ) {
        let who = conn.map(|conn| self.front.who(conn)).unwrap_or_default();
        let is_write = prep::is_write(op);
        let (mut txn, mut refused, mut rest) = (None, None, Vec::new());
        if conn.is_some() && is_write && is_unnumbered(op, body, self.settings.brand) {
            refused = Some(err::MARSHALLING_ERROR);
        } else if is_write {
            let write = Submitted { session, owner: Owner::Me, op, body, who: &who };
            txn = Some(self.order.prepare(&self.front.store.tree, write, self.front.wall_ms()));
        } else {
            refused = self.order.sessions.check(session, Owner::Me).err();
            rest = body.to_vec();
        }
        self.queue.push_back(Pending {
            conn,
            session,
            xid,
            op,
            tag,
            body: rest,
            who,
            txn,
            refused,
        });
    }
}

/// `Request.isValid`.
pub(crate) fn is_known(op: i32, brand: Brand) -> bool {
    prep::is_write(op) && !(op == op::CHECK && brand.refuses_a_single_check())
        || matches!(
            op,
            op::EXISTS
                | op::GET_ACL
                | op::GET_CHILDREN
                | op::GET_ALL_CHILDREN_NUMBER
                | op::GET_CHILDREN2
                | op::GET_DATA
                | op::GET_EPHEMERALS
                | op::MULTI_READ
                | op::PING
                | op::SET_WATCHES
                | op::SET_WATCHES2
                | op::SYNC
                | op::CHECK_WATCHES
                | op::REMOVE_WATCHES
                | op::ADD_WATCH
                | op::WHO_AM_I
        )
}

#[cfg(test)]
mod tests;
