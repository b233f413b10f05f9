//! The event loop: the one thread of a connection. It reads the socket, keeps time, dials, and
//! carries out the outputs of the machine.
//!
//! The machine makes the decisions; this file only does what the machine and the dialer want. The
//! loop ends when the session is over.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::addresses::{Addresses, Target};
use super::attempts::Attempts;
use super::dial::{DialStep, Dialer, Urgency};
use super::sasl::Login;
use super::{CHUNK, Connection, Inner, Owner, is_light};
use crate::clock::BootTime;
use crate::connect_string::Host;
use crate::error::LossReason;
use crate::logging::contained;
use crate::machine::{Dialled, Machine, MachineConfig, Output};
use crate::retry::RetryPolicy;
use crate::sasl::Sasl;
use crate::tls::TlsConfig;
use crate::world::atomic::Ordering;
use crate::world::{
    Events, HashSet, Mutex, Poll, Sender, TcpStream, Token, Waker, resolve, spawn_own,
};

const WAKER: Token = Token(0);

/// How servers are dialled.
pub(crate) struct Dialling {
    pub(crate) addresses: Arc<Mutex<Addresses>>,
    pub(crate) policy: RetryPolicy,
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) sasl: Option<Sasl>,
}

#[cfg(test)]
impl Dialling {
    /// As a session dials whose settings are the default ones.
    pub(crate) fn to(hosts: &[Host]) -> Self {
        Dialling {
            addresses: Arc::new(Mutex::new(Addresses::new(hosts))),
            policy: RetryPolicy::default(),
            connect_timeout: Duration::from_secs(10),
            tls: None,
            sasl: None,
        }
    }
}

pub(crate) struct EventLoop {
    poll: Poll,
    owner: Arc<dyn Owner>,
    dialer: Dialer,
    attempts: Attempts,
    sasl: Option<Sasl>,
    link: Option<Link>,
    refusals: Refusals,
    /// The servers that have refused the login, or a request for want of one, since a server has
    /// served the session.
    refusing: HashSet<SocketAddr>,
}

/// The servers that have closed the connection right after the connect request for our session,
/// since some attempt ended otherwise.
#[derive(Default)]
struct Refusals {
    servers: HashSet<SocketAddr>,
    /// When the first of them did.
    since: Option<BootTime>,
}

/// The connection that the machine uses: the first of the attempts that got through.
struct Link {
    socket: Arc<TcpStream>,
    target: Target,
    /// When the attempt began.
    dialled: BootTime,
    /// When the machine got it.
    since: BootTime,
    /// The login by SASL on this connection, once it has begun.
    login: Option<Login>,
    /// The machine's epoch at `since`. Once this connection carries the session, it is larger.
    epoch_before: u64,
    /// The dialer knows that this connection carries the session.
    is_told: bool,
}

impl EventLoop {
    /// Starts the thread, which dials at once. The thread ends when the session is over, and keeps
    /// `alive` until then. `make` makes the owner of the connection.
    pub(crate) fn start<O: Owner>(
        name: String,
        config: MachineConfig,
        dialling: Dialling,
        alive: Sender<Infallible>,
        make: impl FnOnce(Connection) -> O,
    ) -> io::Result<Arc<O>> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let connection = Connection::new(config, waker, poll.registry().try_clone()?);
        let owner = Arc::new(make(connection));
        let Dialling { addresses, policy, connect_timeout, tls, sasl } = dialling;
        let dials: Arc<dyn Owner> = owner.clone();
        addresses.lock().dials(Arc::downgrade(&dials));
        let mut this = EventLoop {
            poll,
            owner: owner.clone(),
            dialer: Dialer::new(addresses, policy, connect_timeout, BootTime::now()),
            attempts: Attempts::new(tls),
            sasl,
            link: None,
            refusals: Refusals::default(),
            refusing: HashSet::default(),
        };
        spawn_own(name, move || {
            let end = catch_unwind(AssertUnwindSafe(|| this.run()));
            if !matches!(end, Ok(Ok(()))) {
                this.give_up();
                error!("the ZooKeeper connection thread failed ({end:?}); a new session follows");
            }
            // If a thread has panicked inside the machine, some callers have got no answer.
            this.owner.connection().drop_callers();
            drop(this); // the sockets too
            drop(alive);
        })?;
        Ok(owner)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(16);
        loop {
            let next = self.do_what_is_due();
            if self.deliver_outputs() {
                return Ok(());
            }
            let timeout = self.sleep_until(next).map(|next| next.since(BootTime::now()));
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            self.owner.connection().next_look.set(BootTime::default());
            self.log_in_later();
            for event in &events {
                if event.token() != WAKER {
                    self.socket_event(event.token(), event.is_read_closed() || event.is_error());
                    self.deliver_outputs();
                }
            }
        }
    }

    /// The time at which this thread must wake: `next`, which `do_what_is_due` has found, or an
    /// earlier time at which a hold needs its watch. A hold may have been granted while
    /// `do_what_is_due` ran, so the lease is asked again here. A thread that grants a hold after
    /// that finds `next_look` set, and wakes this thread if that is too late for the hold.
    fn sleep_until(&self, next: Option<BootTime>) -> Option<BootTime> {
        let connection = self.owner.connection();
        connection.next_look.set(next.unwrap_or(BootTime::END));
        let (is_up, epoch) = {
            let inner = connection.inner.lock();
            (inner.machine.is_up(), inner.machine.epoch())
        };
        let watch = if is_up { self.owner.next_watch(epoch) } else { None };
        let next = [next, watch].into_iter().flatten().min();
        connection.next_look.set(next.unwrap_or(BootTime::END));
        next
    }

    /// Does what is due: sends requests, gives connections up, dials, as the machine wants. Gives
    /// the time of the next wake-up.
    fn do_what_is_due(&mut self) -> Option<BootTime> {
        let owner = self.owner.clone();
        let timers = owner.run_timers(BootTime::now());
        let mut inner = owner.connection().inner.lock();
        let now = BootTime::now();
        if let Some(error) = inner.failed.take() {
            self.closed_by_server(&mut inner, error, now);
        }
        if inner.machine.is_up() {
            self.refusals = Refusals::default(); // a server has resumed the session
        }
        if inner.machine.is_served() {
            self.refusing.clear();
        }
        if let Refusals { servers, since: Some(since) } = &self.refusals {
            if self.dialer.all_are(now, |addr| servers.contains(addr)) {
                inner.machine.refused_by_all(*since, now);
            }
        }
        #[cfg(unix)]
        if inner.reader.as_ref().is_some_and(|reader| now >= reader.until) {
            // Its time is over, and it got no processor; `flush` lets this thread read again.
            inner.reader = None;
        }
        if inner.machine.is_up() {
            let nodes = owner.to_watch(inner.machine.epoch(), now);
            nodes.into_iter().for_each(|node| inner.machine.watch(node, now));
        }
        let mut next = inner.machine.tick(owner.lease(now), now);
        let mut wake_by = |t: BootTime| next = Some(next.map_or(t, |n: BootTime| n.min(t)));
        timers.into_iter().for_each(&mut wake_by);
        if let Some(reason) = inner.machine.cut.take() {
            self.drop_link(&mut inner, &reason, None, now);
        }
        inner.flush(&owner.connection().registry);
        if inner.failed.is_some() || !inner.machine.outputs.is_empty() {
            wake_by(now);
        }
        self.look_for_new_addresses(now);
        if inner.machine.epoch() > self.link.as_ref().map_or(u64::MAX, |link| link.epoch_before) {
            self.tell_dialer();
        }
        if !inner.machine.is_dialling() {
            self.attempts.clear();
            self.dialer.all_ended(self.link.as_ref().map(|link| &link.target));
            return next;
        }
        for (target, reason) in self.attempts.take_late(now) {
            self.attempt_failed(&target, reason, None, now);
        }
        let is_used = self.use_attempt(&mut inner, now);
        let urgency = self.urgency(&inner, now);
        drop(inner); // to begin an attempt may take time
        if is_used {
            // The poll does not announce again what came while the attempt waited.
            self.read(owner.connection(), false);
            wake_by(now);
        }
        self.dial(urgency, now).into_iter().for_each(&mut wake_by);
        next
    }

    /// Tells the dialer that the link carries the session.
    fn tell_dialer(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| !link.is_told) else { return };
        link.is_told = true;
        let overtaken = self.attempts.overtaken(link.dialled);
        self.dialer.connected(&link.target, &overtaken, BootTime::now());
    }

    /// Drops the attempts at addresses that the resolver's newest answer lacks: such an address may
    /// be silent. A handshake goes on, since the resolver may give some of the addresses each time.
    fn look_for_new_addresses(&mut self, now: BootTime) {
        let EventLoop { attempts, dialer, .. } = self;
        attempts.retain(|target| {
            let is_listed = dialer.is_listed(target);
            if !is_listed {
                debug!("{target}: the name has this address no more");
                dialer.ended(target, now);
            }
            is_listed
        });
    }

    /// Begins attempts, as the dialer says. Gives the time of the next wake-up.
    fn dial(&mut self, urgency: Urgency, now: BootTime) -> Option<BootTime> {
        let wait = loop {
            match self.dialer.next(urgency, now) {
                DialStep::Dial(target) => {
                    let until = now + self.dialer.bound(urgency);
                    debug!("{target}: dialling");
                    if let Err(reason) = self.attempts.begin(&self.poll, target.clone(), until) {
                        self.attempt_failed(&target, reason, None, now);
                    }
                }
                DialStep::LookUp(host) => self.look_up(&host),
                DialStep::Wait(until) => break until,
            }
        };
        wait.into_iter().chain(self.attempts.next_late()).min()
    }

    fn urgency(&self, inner: &Inner, now: BootTime) -> Urgency {
        let machine = &inner.machine;
        let left = machine.time_is_up_at(self.owner.lease(now)).map(|end| end.since(now));
        let has_session = machine.session_id() != 0;
        Urgency { timeout: machine.timeout(), has_session, left, took: machine.last_took() }
    }

    /// If the machine has no connection, it gets the oldest one that is ready. One handshake with
    /// the servers is under way at a time: the proofs of `removal` and of the lease rest on it.
    /// Says whether it got one.
    fn use_attempt(&mut self, inner: &mut Inner, now: BootTime) -> bool {
        if self.link.is_some() || !inner.machine.wants_connection() {
            return false;
        }
        let Some(attempt) = self.attempts.take_ready() else { return false };
        let connection = self.owner.connection();
        let bound = self.dialer.bound(self.urgency(inner, now));
        let is_believed = self.dialer.is_believed(&attempt.target, now);
        *connection.server.lock() = attempt.target.to_string();
        let epoch_before = inner.machine.epoch();
        (inner.socket, inner.tls) = (Some(attempt.socket.clone()), attempt.tls);
        (inner.token, inner.interest) = (attempt.token, Some(attempt.interest));
        inner.machine.connected(Dialled { bound, is_believed }, now);
        inner.flush(&connection.registry);
        self.link = Some(Link {
            socket: attempt.socket,
            target: attempt.target,
            dialled: attempt.since,
            since: now,
            login: None,
            epoch_before,
            is_told: false,
        });
        true
    }

    /// Carries out the outputs of the machine, in order. True: the session is over, and no more
    /// outputs will come.
    fn deliver_outputs(&mut self) -> bool {
        let owner = self.owner.clone();
        let connection = owner.connection();
        let _delivering = connection.delivering.lock();
        loop {
            // This takes outputs up to the first that does more than wake threads. Later outputs stay
            // in the machine: their callers can take them from there if this thread loses the
            // processor.
            let (outputs, is_over) = {
                let mut inner = connection.inner.lock();
                let all = &mut inner.machine.outputs;
                let last = all
                    .iter()
                    .position(|output| !is_light(output, &*owner))
                    .map_or(all.len(), |at| at + 1);
                let outputs: Vec<Output> = all.drain(..last).collect();
                (outputs, inner.machine.is_over())
            };
            if outputs.is_empty() {
                owner.tell_losses();
                return is_over;
            }
            for output in outputs {
                match output {
                    // A closing session has little time left.
                    Output::Lost(_) => self.dialer.skip_pause(BootTime::now()),
                    Output::Sasl(token) => {
                        self.log_in(token);
                        continue;
                    }
                    _ => {}
                }
                connection.carry_out(output, &*owner);
            }
        }
    }

    /// Has the mechanism make the next step of the login by SASL: the first, or the answer to this
    /// token of the server.
    fn log_in(&mut self, token: Option<Vec<u8>>) {
        let (Some(link), Some(sasl)) = (&mut self.link, &self.sasl) else { return };
        let owner = &self.owner;
        let login = link.login.get_or_insert_with(|| {
            let waking = owner.clone();
            Login::new(sasl, &link.target.host, move || waking.connection().wake())
        });
        if let Some(step) = login.step(token) {
            owner.connection().with(|machine, now| machine.sasl(step, now));
        }
    }

    /// Passes on the step that a mechanism has made which waits for others.
    fn log_in_later(&mut self) {
        let login = self.link.as_mut().and_then(|link| link.login.as_mut());
        if let Some(step) = login.and_then(Login::made_later) {
            self.owner.connection().with(|machine, now| machine.sasl(step, now));
        }
    }

    /// Something has happened at this socket. `ends`: the server has closed the connection.
    fn socket_event(&mut self, token: Token, ends: bool) {
        let owner = self.owner.clone();
        let connection = owner.connection();
        let attempt = self.attempts.event(token, ends);
        let mut inner = connection.inner.lock();
        let now = BootTime::now();
        match attempt {
            Some(Err((target, reason))) => {
                debug!("{target}: {reason}");
                self.attempt_failed(&target, reason, None, now);
            }
            Some(Ok(())) => {
                self.use_attempt(&mut inner, now);
            }
            None => {}
        }
        let is_link = self.link.is_some() && inner.token == token;
        drop(inner);
        if is_link {
            self.read(connection, ends);
        }
    }

    /// Reads what the server has sent.
    fn read(&mut self, connection: &Connection, ends: bool) {
        let Some(link) = &self.link else { return };
        let socket = link.socket.clone();
        let mut buf = [0; CHUNK];
        let end = loop {
            // The socket is read under the lock: a calling thread may read too, and the bytes must
            // keep their order.
            let mut inner = connection.inner.lock();
            #[cfg(unix)]
            if inner.reader.is_some() {
                return; // when it ends, the poll announces the bytes that it left unread
            }
            match inner.read(&socket, &mut buf) {
                Ok(Some(0)) => break "closed the connection".to_owned(),
                Ok(Some(n)) => {
                    // After a short read epoll and kqueue announce new bytes again, so another read
                    // is not needed. But if the end of the stream came together with the last
                    // bytes, it was announced with them and is not announced again.
                    // (With TLS a read is short although there is more in the socket.)
                    if cfg!(unix) && !ends && n < buf.len() && inner.tls.is_none() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(e) => {
                    // TLS explains its own errors, and they say nothing about the server's data.
                    if e.kind() == ErrorKind::Other {
                        inner.machine.cut = Some(e.to_string());
                    }
                    break e.to_string();
                }
            }
        };
        let mut inner = connection.inner.lock();
        self.closed_by_server(&mut inner, end, BootTime::now());
    }

    /// The server has closed the connection, or it broke.
    fn closed_by_server(&mut self, inner: &mut Inner, end: String, now: BootTime) {
        // If the machine gave this connection up while it read, its own reason counts.
        let own = inner.machine.cut.take();
        let refused_at = (own.is_none() && inner.machine.is_presented()).then_some(now);
        let reason = own.unwrap_or_else(|| inner.machine.why_closed(end));
        inner.machine.server_gone(&reason, now);
        self.drop_link(inner, &reason, refused_at, now);
    }

    /// An attempt at this server has failed. `refused_at`: when it closed the connection right
    /// after the connect request for our session, if it did.
    fn attempt_failed(
        &mut self,
        target: &Target,
        reason: String,
        refused_at: Option<BootTime>,
        now: BootTime,
    ) {
        self.dialer.failed(target, reason, now);
        self.owner.connection().has_outage.store(true, Ordering::Relaxed);
        match refused_at {
            Some(now) => {
                self.refusals.since.get_or_insert(now);
                self.refusals.servers.insert(target.addr);
            }
            None => self.refusals = Refusals::default(),
        }
    }

    fn drop_link(
        &mut self,
        inner: &mut Inner,
        reason: &str,
        refused_at: Option<BootTime>,
        now: BootTime,
    ) {
        (inner.socket, inner.failed, inner.interest) = (None, None, None);
        let tls = inner.tls.take();
        #[cfg(unix)]
        {
            inner.reader = None; // a reader reads one socket only, and not the next one
        }
        let Some(link) = self.link.take() else { return };
        if let Some(mut tls) = tls {
            tls.close(&link.socket);
        }
        // This wakes a calling thread that waits for the socket.
        let _ = link.socket.shutdown(Shutdown::Both);
        let target = &link.target;
        let carried_the_session = inner.machine.epoch() > link.epoch_before;
        if carried_the_session && !inner.machine.is_ending() {
            let (id, left) = (inner.machine.session_id(), self.owner.lease(now).left(now));
            warn!(
                "session 0x{id:x}: the connection to {target} is lost ({reason}); {left}; resuming"
            );
        } else {
            debug!("{target}: {reason}");
        }
        if inner.machine.take_doubt() {
            self.dialer.doubt(target, now);
        }
        match inner.machine.take_refusal() {
            Some(refusal) => {
                self.refusing.insert(target.addr);
                let refusing = &self.refusing;
                if self.dialer.all_are(now, |addr| refusing.contains(addr)) {
                    self.refusing.clear();
                    inner.machine.all_refuse_login(refusal, now);
                }
                self.dialer.failed(target, reason.to_owned(), now);
                self.refusals = Refusals::default();
            }
            None if inner.machine.is_over() => self.dialer.answered(target, now),
            None => self.attempt_failed(target, reason.to_owned(), refused_at, now),
        }
        if carried_the_session {
            let urgency = self.urgency(inner, now);
            self.dialer.connection_lost(target, now.since(link.since), urgency, now);
        }
        if inner.machine.is_ending() {
            self.dialer.skip_pause(now);
        }
    }

    /// Looks this name up. The resolver blocks, perhaps for long, so each look-up has a thread of
    /// its own, and no more than one is under way for a name.
    fn look_up(&self, host: &Host) {
        let (addresses, asked) = (self.dialer.addresses().clone(), host.clone());
        // There must be an answer in any case: without one the name is never looked up again.
        let spawned = spawn_own("zkm-resolve".into(), move || {
            let answer = contained(|| resolve(&asked.name, asked.port))
                .unwrap_or_else(|| Err(io::Error::other("the look-up panicked")));
            let dials = addresses.lock().answered(&asked, answer);
            if let Some(owner) = dials {
                owner.connection().wake();
            }
        });
        if let Err(e) = spawned {
            let no_thread = Err(io::Error::other(format!("no thread for it ({e})")));
            self.dialer.addresses().lock().answered(host, no_thread);
        }
    }

    /// This thread cannot go on: the session is lost.
    fn give_up(&mut self) {
        {
            let mut inner = self.owner.connection().inner.lock();
            (inner.socket, inner.tls) = (None, None);
            (inner.interest, self.link) = (None, None);
            self.attempts.clear();
            inner.machine = Machine::failed(BootTime::now());
        }
        if contained(|| self.deliver_outputs()).is_none() {
            // It has failed again, perhaps before it has ended the holds and reported the loss.
            let owner = &*self.owner;
            contained(|| owner.connection().carry_out(Output::Lost(LossReason::Internal), owner));
        }
    }
}
