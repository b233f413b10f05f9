//! The core of a session: it makes one generation after the other, keeps the session's state, and
//! notifies observers, subscribers and waiting calls of each change.
//!
//! `Session`, and what is built on it, use it from the threads of the application. The supervisor's
//! thread makes a new generation when one is lost, and ends leases in time. `close` must return in
//! time whatever the network does, and nothing may be held any more when the server can hear of
//! it.

use std::convert::Infallible;
use std::result::Result as StdResult;
use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::connect_string::ConnectString;
use super::connection::{Addresses, Dialling};
use super::event::{Notice, Observing, SessionEvent, SessionState, Subscribers, Tell};
use super::generation::{CallError, Chroot, Generation, OfCore, operation_timeout};
use super::lease;
use super::notifier::{LazyRegistration, WatchRegistry};
use super::parents::Parents;
use super::retry::Retry;
use super::sasl::Sasl;
use super::status::{SessionStats, SessionStatus};
use super::tls::TlsConfig;
use crate::clock::BootTime;
use crate::error::{CLOSE, Cause, Error, HostFailure, Hosts, LossReason, Result};
use crate::limit::{Ended, Limit, Overlong};
use crate::logging::{self, contained};
use crate::machine::{MachineConfig, noop};
use crate::process::Process;
use crate::signal::Signal;
use crate::world::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::world::thread::ThreadId;
use crate::world::{
    Instant, Mutex, OnceLock, Receiver, RecvTimeoutError, Sender, bounded, new_uuid, spawn_own,
    this_thread, unbounded,
};

/// How long `close` waits for the server and for the session's threads, in all.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(950);

/// How much longer a second caller of `close` waits for the outcome. The first caller may get it at
/// the end of `CLOSE_TIMEOUT`, and passes it on then.
const OUTCOME_EXTRA: Duration = Duration::from_millis(40);

/// How much of that time `close` waits for the logger to have the last lines: a program may end right
/// after the close.
const LAST_LINES: Duration = Duration::from_millis(200);

/// The longest sleep of the supervisor. While the host sleeps, the clock of the leases goes on and
/// the supervisor's timer does not. So the supervisor wakes this often to see whether a lease has
/// ended.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A call that waits for another thread looks for an outage this often at most.
const LEAST_LOOK: Duration = Duration::from_millis(100);

/// When an outage has lasted for this long, the log says what each host answers.
const REPORT_OUTAGE_AFTER: Duration = Duration::from_secs(10);

/// The number of the next session of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

pub struct Core {
    /// The process whose threads serve the session.
    process: Process,
    number: u64,
    ensemble: ConnectString,
    config: Config,
    /// What is known of the servers' addresses.
    addresses: Arc<Mutex<Addresses>>,
    /// What is known of the server's containers.
    parents: Arc<Parents>,
    /// The chroot was seen, or may be made.
    may_use_chroot: AtomicBool,
    state: Mutex<CoreState>,
    /// Notified at each change of state.
    pub changes: WatchRegistry<()>,
    supervisor: Sender<SupervisorMessage>,
    /// The outcome of `close`: whether the server has answered it.
    closed: Arc<Signal<bool>>,
    /// Disconnected when all threads of the session have ended.
    threads: Receiver<Infallible>,
    /// Takes what happens to the session; `None` if nobody observes it.
    tell: Option<Arc<Tell>>,
    /// The thread of the observer. It may close the session, and `close` must not wait for the
    /// thread that called it.
    observing: Arc<OnceLock<ThreadId>>,
}

struct CoreState {
    state: SessionState,
    current: Option<Arc<Generation>>,
    /// Each thread of the session keeps a clone of this. `None` once the session is closed: no
    /// further thread is started then.
    alive: Option<Sender<Infallible>>,
    /// Until when the callers of `close` wait; `None` before the first call.
    closing: Option<Instant>,
    /// How many generations were started.
    generations: u64,
    /// When the current outage began; `None` while there is a connection.
    down_since: Option<Instant>,
    /// Why the last session was lost, if the server refused its login.
    refused: Option<String>,
    /// Why no connection can be tried: this machine gave no thread, or no descriptor.
    lacks: Option<String>,
    stats: SessionStats,
    subscribers: Subscribers,
}

enum SupervisorMessage {
    /// An event of the generation with this number.
    Session(u64, SessionEvent),
    /// A hold may end before the supervisor would look.
    Look,
    /// The session is closed.
    Stop,
}

impl Core {
    pub(super) fn start(
        ensemble: ConnectString,
        config: Config,
        observing: Option<Observing>,
    ) -> Result<Arc<Self>> {
        let process = Process::here().map_err(|e| {
            let cause = Cause::Resources(format!("handler for forks ({e})"));
            Error::Unavailable { op: "connect", path: String::new(), cause }
        })?;
        let (supervisor, inbox) = unbounded();
        let (alive, threads) = bounded(0);
        let (tell, observer) = observing.map(|of| (Arc::new(of.tell), of.run)).unzip();
        let may_use_chroot = config.create_chroot || ensemble.chroot.is_empty();
        let config = Config { sasl: config.sasl.as_ref().map(Sasl::for_a_session), ..config };
        let core = Arc::new(Core {
            process,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            addresses: Arc::new(Mutex::new(Addresses::new(&ensemble.hosts))),
            ensemble,
            config,
            parents: Arc::default(),
            may_use_chroot: AtomicBool::new(may_use_chroot),
            state: Mutex::new(CoreState {
                state: SessionState::Connecting,
                current: None,
                alive: Some(alive.clone()),
                closing: None,
                generations: 0,
                down_since: Some(Instant::now()),
                refused: None,
                lacks: None,
                stats: SessionStats::default(),
                subscribers: Subscribers::default(),
            }),
            changes: WatchRegistry::default(),
            supervisor,
            closed: Signal::new(),
            threads,
            tell,
            observing: Arc::default(),
        });
        if let Some(run) = observer {
            let own = core.observing.clone();
            spawn("zkm-observer", alive.clone(), move || {
                let _ = own.set(this_thread());
                run();
            })?;
        }
        let supervised = core.clone();
        spawn("zkm-session", alive, move || supervised.keep_supervising(&inbox))?;
        Ok(core)
    }

    // ---- the session's properties and its connected generation ----

    /// The process that connected the session. In a forked child of it nothing but this can be
    /// asked: see `process.rs`.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The session's number, which no other session of this process ever has.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn chroot(&self) -> &str {
        &self.ensemble.chroot
    }

    /// Whether the session presents credentials, or a certificate, to the servers.
    pub fn has_credentials(&self) -> bool {
        let Config { auth, sasl, tls, .. } = &self.config;
        !auth.is_empty() || sasl.is_some() || tls.as_ref().is_some_and(TlsConfig::has_certificate)
    }

    /// The ensemble's hosts, sorted and in small letters, so that two spellings of a connect string
    /// compare as equal.
    pub fn ensemble(&self) -> Vec<String> {
        let hosts = self.ensemble.hosts.iter();
        let mut hosts: Vec<String> =
            hosts.map(|host| host.to_string().to_ascii_lowercase()).collect();
        hosts.sort();
        hosts
    }

    /// A full path as the user knows it: without the chroot.
    pub fn shown<'a>(&self, full: &'a str) -> &'a str {
        full.strip_prefix(self.chroot()).filter(|rest| rest.starts_with('/')).unwrap_or(full)
    }

    /// Why the servers refuse the login of the session, if they do.
    pub fn refusal(&self) -> Option<String> {
        self.state.lock().refusal()
    }

    pub fn state(&self) -> SessionState {
        if self.process.is_forked() {
            return SessionState::Closed;
        }
        self.state.lock().state
    }

    /// The current session, or the session that is being made.
    pub fn generation(&self) -> Option<Arc<Generation>> {
        if self.process.is_forked() {
            return None;
        }
        self.state.lock().current.clone()
    }

    /// The negotiated session timeout; the requested one while there is no session.
    fn timeout(&self) -> Duration {
        self.timeout_of(self.generation().as_deref())
    }

    fn timeout_of(&self, current: Option<&Generation>) -> Duration {
        granted(current).unwrap_or(self.config.session_timeout)
    }

    /// How long one step of a call may take: a request with its answer, or a call that tries once.
    pub fn operation_timeout(&self) -> Duration {
        operation_timeout(self.timeout())
    }

    /// How long `connect` waits.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.config.connect_timeout
    }

    pub fn status(&self) -> SessionStatus {
        let (state, current, stats) = if self.process.is_forked() {
            (SessionState::Closed, None, SessionStats::default())
        } else {
            let now = self.state.lock();
            (now.state, now.current.clone(), now.stats)
        };
        let timeout = self.timeout_of(current.as_deref());
        let remaining = |generation: &Generation| generation.lease.remaining(BootTime::now());
        SessionStatus {
            state,
            session_id: current.as_deref().and_then(Generation::session_id),
            timeout,
            lease_remaining: current.as_deref().map_or(Duration::ZERO, remaining),
            stats,
        }
    }

    pub(super) fn subscribe(&self) -> Receiver<SessionEvent> {
        if self.process.is_forked() {
            return Subscribers::default().add(); // nothing will come
        }
        let mut state = self.state.lock();
        let events = state.subscribers.add();
        if state.state == SessionState::Closed {
            state.subscribers = Subscribers::default(); // nothing more will come
        }
        events
    }

    /// Waits until the session is connected and the pause of `retry` is over. Returns the
    /// generation. The wait ends at the deadline of `limit` or, without a deadline, when the retry
    /// policy says so. The error is [`Cause::Deadline`] only if there is a connection.
    pub fn connected(
        &self,
        op: &'static str,
        path: &str,
        limit: &Limit<'_>,
        retry: &Retry,
    ) -> Result<Arc<Generation>> {
        self.process.check(op, path)?;
        let policy = &self.config.retry_policy;
        let mut changes = LazyRegistration::new(&self.changes, ());
        loop {
            let now = Instant::now();
            let (connected, down_since) = {
                let state = self.state.lock();
                match (state.state, &state.current) {
                    // The lease ends with the loss of the session, a little before the supervisor
                    // hears of the loss.
                    (SessionState::Connected, Some(current)) if !current.lease.is_over() => {
                        (Some(current.clone()), None)
                    }
                    (SessionState::Closed, _) => {
                        return Err(Error::Closed { op, path: path.into() });
                    }
                    _ => match state.refusal() {
                        Some(reason) => return Err(Error::Auth { op, path: path.into(), reason }),
                        None => (None, Some(state.down_since.unwrap_or(now))),
                    },
                }
            };
            if let Some(down_since) = down_since {
                retry.note_outage(down_since);
            }
            let budget = retry.budget(policy).filter(|_| !limit.has_deadline());
            let mut wait = budget.map_or(*limit, |(_, spent)| limit.or_at(spent));
            if let Some(generation) = connected {
                let is_spent = budget.is_some_and(|(_, spent)| now >= spent);
                match retry.pause_end(now) {
                    Some(until) => wait = wait.or_at(until),
                    None if !is_spent => {
                        retry.begin_attempt();
                        match self.check_chroot(&generation, op, path, limit)? {
                            true => return Ok(generation),
                            false => {
                                self.failed(retry);
                                continue;
                            }
                        }
                    }
                    None => {}
                }
            }
            match changes.wait(&wait) {
                Ended::Got(_) | Ended::Disconnected => {}
                Ended::Cancelled => return Err(Error::Cancelled { path: path.into() }),
                Ended::Deadline => {
                    let is_spent = budget.is_some_and(|(_, spent)| Instant::now() >= spent);
                    let cause = match (down_since, budget) {
                        _ if !is_spent && !limit.is_past() => continue, // the pause is over
                        // A connection that is gone for a moment only is not what is wrong.
                        (down, Some((since, _)))
                            if down.is_none_or(|down| down.elapsed() < since.elapsed() / 2) =>
                        {
                            Cause::NoProgress(since.elapsed())
                        }
                        (Some(_), _) => Cause::Outage(self.failures()),
                        (None, _) => Cause::Deadline,
                    };
                    return Err(Error::Unavailable { op, path: path.into(), cause });
                }
            }
        }
    }

    /// Looks whether a chroot that must exist does; once it was seen, this does nothing. False: no
    /// useful answer came.
    fn check_chroot(
        &self,
        generation: &Generation,
        op: &'static str,
        path: &str,
        limit: &Limit<'_>,
    ) -> Result<bool> {
        if self.may_use_chroot.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let chroot = self.chroot();
        match generation.has_chroot(limit) {
            Ok(true) => {
                self.may_use_chroot.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Ok(false) => {
                let reason = format!(
                    "{chroot:?} of the connect string does not exist; correct the connect string, make the node, or let the session make it with Config::create_chroot()"
                );
                Err(Error::InvalidConfig { what: "chroot", reason })
            }
            Err(CallError::Cancelled) => Err(Error::Cancelled { path: path.into() }),
            Err(CallError::Deadline) => {
                Err(Error::Unavailable { op, path: path.into(), cause: Cause::Deadline })
            }
            Err(_) => Ok(false),
        }
    }

    /// An attempt of the call that owns `retry` has failed: the connection or the session was lost.
    pub fn failed(&self, retry: &Retry) {
        // The dialer also tries this often when it resumes a live session.
        let longest = granted(self.generation().as_deref()).map_or(Duration::MAX, |t| t / 8);
        retry.failed(&self.config.retry_policy, longest);
    }

    /// If an enduring call has made no progress for so long that another call would have ended: the
    /// cause with which that call would have ended. `None` during an outage, which the session's
    /// events report.
    pub fn overdue(&self, retry: &Retry) -> Option<Cause> {
        let longest = self.config.retry_policy.max_elapsed;
        let since = retry.failing_since().filter(|since| since.elapsed() >= longest);
        since.filter(|_| self.state() == SessionState::Connected)?;
        Some(Cause::NoProgress(longest))
    }

    /// For a call that began at `begun`, sends nothing and has no deadline: the error if it has
    /// waited in an outage for as long as the retry policy allows. Otherwise the time at which this
    /// can be so at the earliest; `None` if the clock cannot express it.
    pub fn outage_limit(&self, begun: Instant) -> StdResult<Option<Instant>, Cause> {
        let now = Instant::now();
        let Some(down_since) = self.state.lock().down_since else {
            return Ok(now.checked_add(self.config.retry_policy.max_elapsed.max(LEAST_LOOK)));
        };
        let spent = self.spent_at(down_since.max(begun));
        if spent.is_some_and(|spent| now >= spent) {
            return Err(Cause::Outage(self.failures()));
        }
        Ok(spent)
    }

    /// Until when the retry policy lets a call go on that makes no progress from `begun` on; `None`
    /// if the clock cannot express it.
    pub fn spent_at(&self, begun: Instant) -> Option<Instant> {
        begun.checked_add(self.config.retry_policy.max_elapsed)
    }

    /// Why each server gave no session, as far as it is known.
    pub fn failures(&self) -> Vec<HostFailure> {
        let lacks = self.state.lock().lacks.clone();
        self.addresses.lock().failures(lacks.as_deref())
    }

    /// How much the session keeps in memory now. This takes the session's own locks, as any call of
    /// a process does.
    #[cfg(any(feature = "test", zk_sim))]
    pub fn kept(&self) -> crate::kept::Kept {
        let waiters = self.changes.len();
        let mut kept = crate::kept::Kept { waiters, ..Default::default() };
        if let Some(generation) = self.generation() {
            generation.add_kept(&mut kept);
        }
        kept
    }

    // ---- the end ----

    /// Ends the session here, and at the server if it answers in time. The first caller does that.
    /// Each caller gets the outcome, and waits until the session's threads have ended.
    pub(super) fn close(&self) -> Result<()> {
        self.process.check(CLOSE, "")?;
        let now = Instant::now();
        let (until, first) = {
            let mut state = self.state.lock();
            match state.closing {
                Some(until) => (until, None),
                None => {
                    let (until, id) = (now + CLOSE_TIMEOUT, id_of(&state));
                    state.closing = Some(until);
                    state.alive = None;
                    state.state = SessionState::Closed;
                    state.subscribers.publish(&SessionEvent::Closed);
                    state.subscribers = Subscribers::default();
                    (until, Some((id, state.current.take())))
                }
            }
        };
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let told = match first {
            Some((id, current)) => {
                let closing = current.map(|current| current.close());
                self.changes.notify(&(), true);
                let _ = self.supervisor.send(SupervisorMessage::Stop);
                if let Some((lost, _)) = &closing {
                    lease::notify_lost(lost);
                }
                // After the losses, since it is the last event of all.
                self.report(&SessionEvent::Closed);
                let told = closing
                    .is_none_or(|(_, answer)| answer.recv_timeout(left(until)).unwrap_or(false));
                self.closed.raise(told);
                log_transition(&id, &SessionEvent::Closed, "", Duration::ZERO);
                told
            }
            None => self.closed.wait(left(until + OUTCOME_EXTRA)).unwrap_or(false),
        };
        if self.observing.get() != Some(&this_thread()) {
            let _ = self.threads.recv_timeout(left(until));
        }
        logging::wait_until_logged(left(until).min(LAST_LINES));
        if told {
            return Ok(());
        }
        Err(Error::Unavailable { op: CLOSE, path: String::new(), cause: Cause::ConnectionLost })
    }

    // ---- the supervisor's thread ----

    /// Supervises until the session is closed. This thread alone ends leases in time, so a panic
    /// of it must not end it: what is held then is lost at once, and a new session follows after a
    /// pause.
    fn keep_supervising(self: &Arc<Self>, inbox: &Receiver<SupervisorMessage>) {
        let mut panics = 0;
        while contained(|| self.supervise(inbox, panics)).is_none() {
            error!("the session's own thread failed; a new session follows");
            panics += 1;
            if let Some(generation) = self.generation() {
                let lost = SessionEvent::Lost(LossReason::Internal);
                contained(|| generation.lose(LossReason::Internal));
                contained(|| self.session_event(generation.number, &lost));
            }
            let until = Instant::now() + self.config.retry_policy.pause(panics).min(MAX_SLEEP);
            loop {
                match inbox.recv_deadline(until) {
                    Ok(SupervisorMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                    Ok(_) => {} // of the lost session
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
        }
    }

    /// Makes a session, and the next one whenever one is lost, and ends leases, until the session is
    /// closed. `failures`: how many attempts have failed before.
    fn supervise(self: &Arc<Self>, inbox: &Receiver<SupervisorMessage>, mut failures: u32) {
        let mut outage = None;
        let mut start_at = Some(Instant::now());
        loop {
            if start_at.is_some_and(|at| Instant::now() >= at) {
                start_at = match self.start_generation() {
                    Ok(()) => None,
                    Err(reason) => {
                        let lacks = format!("this machine gave no {reason}");
                        error!("no session can be made, {lacks}; trying again");
                        self.state.lock().lacks = Some(lacks);
                        failures += 1;
                        Some(Instant::now() + self.config.retry_policy.pause(failures))
                    }
                };
            }
            // All times below are counted from here: this thread may lose the processor at any
            // step, and must not sleep longer for that.
            let begun = Instant::now();
            let mut sleep =
                start_at.map_or(MAX_SLEEP, |at| at.saturating_duration_since(begun).min(MAX_SLEEP));
            let generation = self.generation();
            if let Some(generation) = &generation {
                // A thread that gets a hold later, with an end of its own, wakes this thread if
                // that end comes before the next look.
                generation.supervisor_looks.set(BootTime::END);
                if !generation.timeout().is_zero() {
                    sleep = sleep.min((generation.timeout() / 8).max(Duration::from_millis(10)));
                }
                let now = BootTime::now();
                if let Some(end) = generation.lease.end_if_due(now) {
                    sleep = sleep.min(end.since(now));
                }
                generation.lease.look(now);
            }
            self.report_outage(&mut outage);
            if self.state.lock().subscribers.flush() {
                sleep = sleep.min(Duration::from_millis(100));
            }
            if let Some(generation) = generation {
                generation.supervisor_looks.set(generation.timers_at(begun) + sleep);
            }
            match inbox.recv_deadline(begun + sleep) {
                Ok(SupervisorMessage::Session(number, event)) => {
                    if let Some((reason, was_connected)) = self.session_event(number, &event) {
                        // An expired session that had a connection is replaced at once. After any
                        // other loss the next session may be lost for the same reason, so a pause
                        // comes first.
                        let is_expired = reason == LossReason::SessionExpired;
                        failures = if is_expired && was_connected { 0 } else { failures + 1 };
                        let pause = if failures == 0 {
                            Duration::ZERO
                        } else {
                            self.config.retry_policy.pause(failures)
                        };
                        start_at = Some(Instant::now() + pause);
                    }
                }
                Ok(SupervisorMessage::Look) => {}
                Ok(SupervisorMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Logs what each host answers, if the current outage has lasted for long.
    fn report_outage(&self, outage: &mut Option<Overlong>) {
        let state = self.state.lock();
        let down_since = state.down_since.filter(|_| state.state != SessionState::Closed);
        let Some(since) = down_since else { return };
        if outage.as_ref().is_none_or(|outage| outage.since != since) {
            *outage = Some(Overlong::new(since, REPORT_OUTAGE_AFTER));
        }
        let Some(lasted) = outage.as_mut().and_then(Overlong::due) else { return };
        let (id, current) = (id_of(&state), state.current.clone());
        drop(state);
        let left = current.map_or_else(String::new, |current| current.lease_left() + "; ");
        let (seconds, hosts) = (lasted.as_secs(), self.failures());
        warn!("session {id}: no connection for {seconds} s; {left}{}", Hosts(&hosts));
    }

    /// Takes an event of a session. If the session is lost, returns the reason, and whether a
    /// connection had carried the session.
    fn session_event(&self, number: u64, event: &SessionEvent) -> Option<(LossReason, bool)> {
        let mut state = self.state.lock();
        let is_over = matches!(state.state, SessionState::Closed | SessionState::Lost);
        if state.generations != number || is_over {
            return None;
        }
        let id = id_of(&state);
        let server = state.current.as_ref().map(|current| current.server()).unwrap_or_default();
        let away = state.down_since.map_or(Duration::ZERO, |since| since.elapsed());
        let mut lost = None;
        match event {
            SessionEvent::Connected { .. } | SessionEvent::Reconnected => state.up(),
            SessionEvent::Suspended => {
                state.state = SessionState::Suspended;
                state.down_since.get_or_insert_with(Instant::now);
            }
            SessionEvent::Lost(reason) => {
                state.state = SessionState::Lost;
                state.down_since.get_or_insert_with(Instant::now);
                lost = state.current.take().map(|current| (*reason, current));
                let refusal = lost.as_ref().map(|(_, current)| current.refusal());
                state.refused = refusal.filter(|_| *reason == LossReason::AuthFailed);
            }
            SessionEvent::Closed => return None, // only `close` publishes this
        }
        state.stats.count(event);
        state.subscribers.publish(event);
        self.report(event);
        drop(state);
        self.changes.notify(&(), true);
        log_transition(&id, event, &server, away);
        lost.map(|(reason, lost)| (reason, lost.epoch() > 0))
    }

    fn report(&self, event: &SessionEvent) {
        if let Some(tell) = &self.tell {
            tell(Notice::Session(event.clone()));
        }
    }

    fn start_generation(self: &Arc<Self>) -> Result<(), String> {
        let config = &self.config;
        let (number, alive) = {
            let mut state = self.state.lock();
            let Some(alive) = state.alive.clone() else { return Ok(()) }; // closed
            state.state = SessionState::Connecting;
            state.generations += 1;
            (state.generations, alive)
        };
        self.changes.notify(&(), true);
        let noop = noop(self.chroot(), &new_uuid().to_string());
        let settings = MachineConfig {
            auth: config.auth.clone(),
            sasl: config.sasl.as_ref().map(Sasl::words),
            tick: config.server_tick,
            leader_serves: config.leader_serves,
            is_observed: self.tell.is_some(),
            after_data_loss: config.after_data_loss,
            ..MachineConfig::new(config.session_timeout, noop)
        };
        let (supervisor, woken) = (self.supervisor.clone(), self.supervisor.clone());
        let of_core = OfCore {
            chroot: Chroot {
                path: self.chroot().into(),
                is_required: !config.create_chroot && !self.chroot().is_empty(),
            },
            parents: self.parents.clone(),
            tell: self.tell.clone(),
            report: Box::new(move |event| {
                drop(supervisor.send(SupervisorMessage::Session(number, event)));
            }),
            wake_supervisor: Box::new(move || drop(woken.send(SupervisorMessage::Look))),
        };
        let dialling = Dialling {
            addresses: self.addresses.clone(),
            policy: config.retry_policy,
            connect_timeout: config.connect_timeout,
            tls: config.tls.clone(),
            sasl: config.sasl.clone(),
        };
        let generation = Generation::start(number, settings, dialling, of_core, alive)
            .map_err(|e| format!("thread or poll for a connection ({e})"))?;
        let mut state = self.state.lock();
        if state.state == SessionState::Closed {
            // The session was closed meanwhile. No thread can have a node in this generation yet.
            drop(state);
            drop(generation.close());
            return Ok(());
        }
        state.current = Some(generation);
        state.lacks = None;
        Ok(())
    }
}

impl CoreState {
    /// Why the servers refuse the login. If an attempt has failed for another reason since, what
    /// they would say now is not known: that is an outage.
    fn refusal(&self) -> Option<String> {
        let has_outage = self.current.as_ref().is_some_and(|current| current.has_outage());
        self.refused.clone().filter(|_| !has_outage)
    }

    fn up(&mut self) {
        self.state = SessionState::Connected;
        self.down_since = None;
        self.refused = None;
    }
}

/// The session timeout that a server has granted; `None` while there is no session.
fn granted(current: Option<&Generation>) -> Option<Duration> {
    current.map(Generation::timeout).filter(|timeout| !timeout.is_zero())
}

/// `server`: the host of the connection; `away`: how long there was none before this event.
fn log_transition(id: &str, event: &SessionEvent, server: &str, away: Duration) {
    match event {
        SessionEvent::Connected { timeout, .. } => {
            queued!(
                Info,
                "session {id}: connected to {server}, timeout {} ms",
                timeout.as_millis()
            );
        }
        // The event loop has logged which connection was lost, and why.
        SessionEvent::Suspended => queued!(Info, "session {id}: suspended"),
        SessionEvent::Reconnected => {
            queued!(Info, "session {id}: resumed on {server}, {:.1} s away", away.as_secs_f64());
        }
        SessionEvent::Lost(reason) => {
            queued!(Warn, "session {id}: lost, {reason}; making a new one");
        }
        SessionEvent::Closed => queued!(Info, "session {id}: closed"),
    }
}

/// The session's id for the log.
fn id_of(state: &CoreState) -> String {
    let id = state.current.as_ref().and_then(|generation| generation.session_id());
    id.map_or_else(|| "(none yet)".into(), |id| format!("0x{id:x}"))
}

/// Starts a thread, which keeps `alive` until `body` has returned and its values are dropped.
fn spawn(
    name: &str,
    alive: Sender<Infallible>,
    body: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let run = move || {
        body();
        drop(alive);
    };
    spawn_own(name.into(), run).map(drop).map_err(|e| Error::Unavailable {
        op: "connect",
        path: String::new(),
        cause: Cause::Resources(format!("thread ({e})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryPolicy;
    use zk_test_support::{own_loopback, until};

    const T: Duration = Duration::from_secs(12);
    const SOON: Duration = Duration::from_secs(20);

    /// A core whose only server is down: there is a generation, and no session.
    fn before_the_first_session() -> Arc<Core> {
        let config = Config::new(format!("{}:2181", own_loopback())).session_timeout(T);
        let core = Core::start(config.check().unwrap(), config, None).unwrap();
        until("a generation", SOON, || core.generation());
        core
    }

    /// Steps of a call with a timeout of zero would fail at once, and its pauses would be none.
    #[test]
    fn before_the_first_session_the_requested_timeout_counts() {
        let core = before_the_first_session();
        let SessionStatus { state, session_id, timeout, lease_remaining, stats } = core.status();
        assert_eq!((state, session_id), (SessionState::Connecting, None));
        assert_eq!((timeout, lease_remaining), (T, Duration::ZERO));
        assert_eq!(stats, SessionStats::default());
        assert_eq!((core.operation_timeout(), core.timeout()), (T / 6, T));
        assert_eq!(core.refusal(), None);
        let [host] = &core.failures()[..] else { panic!("{:?}", core.failures()) };
        assert_eq!(vec![host.host.clone()], core.ensemble());
        // The second failure in a row costs a pause, as in a session.
        let begun = Instant::now();
        let retry = Retry::since(begun);
        core.failed(&retry);
        core.failed(&retry);
        let pause = retry.pause_end(begun).map(|until| until - begun);
        assert!(pause >= Some(RetryPolicy::default().base / 2), "{pause:?}");
        core.close().unwrap();
        let status = core.status();
        assert_eq!((status.state, status.timeout), (SessionState::Closed, T));
    }

    #[test]
    fn a_connection_ends_all_that_was_so_in_the_outage_before_it() {
        let core = before_the_first_session();
        let number = core.generation().unwrap().number;
        for round in 1..=2 {
            core.state.lock().refused = Some("no such user".to_owned());
            core.session_event(number, &SessionEvent::Reconnected);
            let state = core.state.lock();
            assert_eq!((state.state, state.down_since), (SessionState::Connected, None));
            assert_eq!(state.refused, None);
            drop(state);
            let connected = Instant::now();
            core.session_event(number, &SessionEvent::Suspended);
            assert!(core.state.lock().down_since >= Some(connected), "the outage begins now");
            let SessionStats { connections_lost, reconnected, .. } = core.status().stats;
            assert_eq!((connections_lost, reconnected), (round, round));
        }
        core.close().unwrap();
    }

    #[test]
    fn the_log_counts_each_outage_from_its_own_beginning() {
        let core = before_the_first_session();
        let (now, mut outage) = (Instant::now(), None);
        for (seconds, is_reported) in [(40, true), (5, false), (20, true), (3, false)] {
            let lasted = Duration::from_secs(seconds);
            core.state.lock().down_since = Some(now - lasted);
            core.report_outage(&mut outage);
            let Overlong { since, next } = outage.unwrap();
            assert_eq!(since, now - lasted);
            let first = since + REPORT_OUTAGE_AFTER;
            let again = since + lasted * 2;
            let is_right = if is_reported { next >= Some(again) } else { next == Some(first) };
            assert!(is_right, "{seconds} s: {:?}", next.map(|next| next - since));
            core.state.lock().down_since = None;
            core.report_outage(&mut outage);
        }
        core.close().unwrap();
    }
}
