//! The dialer: chooses the address to dial next, and the time. The event loop asks it whenever no
//! connection carries the session.
//!
//! In each pass every address is tried once: in random order those that have not failed since they
//! last carried a session, then the others, the newest failure last. The server whose connection
//! was lost has failed in this outage, and not in the next one. Attempts overlap, as in RFC 8305: if
//! an attempt has no result after a moment, the next one begins next to it. Between passes there are
//! pauses that grow, with jitter. Meanwhile the names are looked up again and again: an address that
//! the resolver's newest answer lacks is dropped, and a new one is dialled next.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::addresses::{Addresses, Target};
use crate::clock::BootTime;
use crate::connect_string::Host;
use crate::retry::RetryPolicy;
use crate::world::{HashMap, HashSet, Mutex, shuffle};

/// A connection that ended sooner than this counts as a failed pass. So a server that cuts every
/// client at once is not dialled in a loop.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// An attempt without a result for this long is joined by the next one.
const STAGGER: Duration = Duration::from_millis(250);

/// The same where the lease of a hold is short.
const LEAST_STAGGER: Duration = Duration::from_millis(50);

/// The longest pause before a live session is dialled again is at least this, however short its
/// timeout is.
const LEAST_CAP: Duration = Duration::from_millis(20);

/// Each server gets this much time at least to make a session, however short the requested session
/// timeout is: the server may grant a longer one, but only if the attempt lasts until its answer.
const LEAST_FIRST_ATTEMPT: Duration = Duration::from_millis(250);

/// The most sockets that are open at a time.
const MOST_OPEN: usize = 3;

/// Names are looked up again after an eighth of the time that the outage has lasted, but not more
/// often and not more seldom than this.
const LOOK_UP_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

pub(super) struct Dialer {
    addresses: Arc<Mutex<Addresses>>,
    policy: RetryPolicy,
    /// How long `connect` waits for the first session.
    connect_timeout: Duration,
    /// The targets that this pass has still to try, the next one first.
    pass: VecDeque<Target>,
    /// All addresses of this pass.
    seen: HashSet<SocketAddr>,
    /// The targets of the attempts that are under way.
    open: Vec<Target>,
    is_in_pass: bool,
    /// The passes since a connection last carried the session for long, this one included.
    passes: u32,
    next_pass: BootTime,
    next_dial: BootTime,
    failures: u32,
    down_since: BootTime,
    /// The servers that do not know the session, and were not believed in this outage.
    doubted: HashMap<Target, Doubt>,
}

#[derive(Clone, Copy)]
struct Doubt {
    since: BootTime,
    is_asked_again: bool,
}

pub(super) enum DialStep {
    Dial(Target),
    /// Look this name up on a thread of its own, since the resolver blocks; then
    /// [`Addresses::answered`] takes the answer.
    LookUp(Host),
    Wait(Option<BootTime>),
}

/// What the dialer must know of the session.
#[derive(Clone, Copy)]
pub(super) struct Urgency {
    /// The session's timeout; the requested one if there is no session.
    pub(super) timeout: Duration,
    /// A session waits to be resumed.
    pub(super) has_session: bool,
    /// What is left of the lease on which holds depend, or of the time to close the session.
    pub(super) left: Option<Duration>,
    /// How long the last answer took.
    pub(super) took: Duration,
}

impl Urgency {
    /// The longest pause, so that a live session is resumed in time.
    fn cap(self) -> Duration {
        let of_session = (self.timeout / 8).max(LEAST_CAP);
        if self.has_session { of_session } else { Duration::MAX }
    }

    /// How long an attempt is alone before the next one begins next to it.
    fn stagger(self) -> Duration {
        self.left.map_or(STAGGER, |left| (left / 8).clamp(LEAST_STAGGER, STAGGER))
    }
}

impl Dialer {
    pub(super) fn new(
        addresses: Arc<Mutex<Addresses>>,
        policy: RetryPolicy,
        connect_timeout: Duration,
        now: BootTime,
    ) -> Self {
        Dialer {
            addresses,
            policy,
            connect_timeout,
            pass: VecDeque::new(),
            seen: HashSet::default(),
            open: Vec::new(),
            is_in_pass: false,
            passes: 0,
            next_pass: now,
            next_dial: now,
            failures: 0,
            down_since: now,
            doubted: HashMap::default(),
        }
    }

    pub(super) fn addresses(&self) -> &Arc<Mutex<Addresses>> {
        &self.addresses
    }

    /// The next step.
    pub(super) fn next(&mut self, of: Urgency, now: BootTime) -> DialStep {
        let addresses = self.addresses.clone();
        let mut addresses = addresses.lock();
        let every = self.looks_up_every(now);
        if let Some(host) = addresses.next_look_up(self.down_since, every, now) {
            return DialStep::LookUp(host);
        }
        let mut targets = addresses.in_order(shuffle);
        // A session is made at addresses of today only: an address of before may belong to another
        // ensemble. If the session exists, only its own ensemble takes it up.
        targets.retain(|of_today| {
            of.has_session || addresses.is_current(of_today, self.down_since, now)
        });
        self.pass.retain(|target| targets.contains(target));
        if self.pass.is_empty() && self.open.is_empty() && self.is_in_pass {
            self.is_in_pass = false;
            self.failed_pass(of, now);
        }
        if !self.is_in_pass && now >= self.next_pass && !targets.is_empty() {
            self.is_in_pass = true;
            self.passes = self.passes.saturating_add(1);
            self.seen = self.open.iter().map(|open| open.addr).collect();
            self.next_dial = now;
        }
        // New addresses are dialled next, in a pause too. Before the first pass of an outage they
        // wait for it, as all do.
        let mut new: Vec<Target> = Vec::new();
        for target in targets {
            // Two hosts may have one address: one of them is tried in this pass.
            let is_seen = |addr| self.seen.contains(addr) || new.iter().any(|of| of.addr == *addr);
            if !is_seen(&target.addr) || self.asks_again(&target, &addresses, now) {
                new.push(target);
            }
        }
        if !new.is_empty() && (self.is_in_pass || !self.seen.is_empty()) {
            self.is_in_pass = true;
            self.seen.extend(new.iter().map(|target| target.addr));
            for target in new.into_iter().rev() {
                self.pass.push_front(target);
            }
        }
        let change = addresses.next_change(self.down_since, every, now);
        if self.open.len() < MOST_OPEN && !self.pass.is_empty() {
            if self.open.is_empty() || now >= self.next_dial {
                let target = self.take_next(&addresses);
                self.next_dial = now + of.stagger();
                self.open.extend(target.clone());
                return target.map_or(DialStep::Wait(change), DialStep::Dial);
            }
            return DialStep::Wait(change.into_iter().chain([self.next_dial]).min());
        }
        let pause = (!self.is_in_pass && addresses.len() > 0).then_some(self.next_pass);
        DialStep::Wait(change.into_iter().chain(pause.filter(|pause| *pause > now)).min())
    }

    fn looks_up_every(&self, now: BootTime) -> Duration {
        let [least, most] = LOOK_UP_AGAIN;
        (now.since(self.down_since) / 8).clamp(least, most)
    }

    /// The first target of the pass. Among those that have not failed, one of the other family of
    /// addresses than the last attempt's goes first, if there is one: a host may have lost its way
    /// to one family.
    fn take_next(&mut self, addresses: &Addresses) -> Option<Target> {
        let last = self.open.last().map(|target| target.addr.is_ipv4());
        let may_go_first = |target: &&Target| addresses.failed_at(target.addr).is_none();
        let at = self
            .pass
            .iter()
            .take_while(may_go_first)
            .position(|target| last.is_some_and(|last| last != target.addr.is_ipv4()));
        self.pass.remove(at.unwrap_or(0))
    }

    /// Whether the resolver's newest answer has this target.
    pub(super) fn is_listed(&self, target: &Target) -> bool {
        self.addresses.lock().has(target)
    }

    /// Whether the session has ended if this server does not know it. The servers may have got
    /// other addresses since the last look-up, and another ensemble theirs. So an address of a name
    /// is believed if the resolver still gives it after this server has said that. A
    /// look-up counts only if it began after this server said that: the address may have got its new
    /// server just before.
    pub(super) fn is_believed(&self, target: &Target, now: BootTime) -> bool {
        let since = self.doubted.get(target).map_or(BootTime::END, |doubt| doubt.since);
        self.addresses.lock().is_current(target, since, now)
    }

    /// A server that is not believed does not know the session: the names are looked up again, and
    /// then the server is asked again.
    pub(super) fn doubt(&mut self, target: &Target, now: BootTime) {
        let doubted = self.doubted.len();
        let doubt = Doubt { since: now, is_asked_again: false };
        self.doubted.entry(target.clone()).or_insert(doubt);
        if self.doubted.len() > doubted {
            self.down_since = now;
        }
    }

    /// Whether this server, which was doubted, is to be asked again now. It is true once.
    fn asks_again(&mut self, target: &Target, addresses: &Addresses, now: BootTime) -> bool {
        let is_due = !self.pass.contains(target) && !self.open.contains(target);
        let doubt = self.doubted.get_mut(target).filter(|doubt| {
            is_due && !doubt.is_asked_again && addresses.is_current(target, doubt.since, now)
        });
        doubt.is_some_and(|doubt| !std::mem::replace(&mut doubt.is_asked_again, true))
    }

    /// Whether each server has this property ([`Addresses::all_are`]).
    pub(super) fn all_are(&self, now: BootTime, is: impl Fn(&SocketAddr) -> bool) -> bool {
        self.addresses.lock().all_are(self.down_since, now, is)
    }

    /// How long one server may take for each step: to accept the connection, and to take up the
    /// session. That is T/6. In the first pass of a session that is not made yet it is no more than
    /// a part of the time of `connect`.
    ///
    /// If holds depend on the lease, and there are other servers to try, it is a third of what the
    /// lease has left: one silent server must not take the time of the others. In later passes it
    /// is half, since all of them may be slow. For the same reason it is twice as long as the last
    /// answer took, at least.
    pub(super) fn bound(&self, of: Urgency) -> Duration {
        let Urgency { timeout, has_session, left, took } = of;
        let is_first = self.passes <= 1;
        let longest = match has_session {
            true => timeout / 6,
            false => (timeout / 6).max(LEAST_FIRST_ATTEMPT),
        };
        let servers = u32::try_from(self.addresses.lock().len()).unwrap_or(u32::MAX);
        let part = self.connect_timeout / servers.saturating_add(1);
        let has_others = !self.pass.is_empty() || self.open.len() > 1;
        let share = left
            .filter(|_| has_others)
            .map(|left| (left / if is_first { 3 } else { 2 }).max(timeout / 24).max(took * 2));
        let part = (is_first && !has_session).then_some(part);
        share.into_iter().chain(part).fold(longest, Duration::min)
    }

    /// The attempt at this target has failed, or the connection to it.
    pub(super) fn failed(&mut self, target: &Target, reason: String, now: BootTime) {
        self.addresses.lock().failed(target.addr, reason, now);
        self.ended(target, now);
    }

    /// The session has ended by an answer of this server, which has not failed by that. Otherwise
    /// the next session would be made at a server that had failed just before.
    pub(super) fn answered(&mut self, target: &Target, now: BootTime) {
        self.addresses.lock().forget(target.addr);
        self.ended(target, now);
    }

    /// The attempt at this target has ended. The next one begins at once.
    pub(super) fn ended(&mut self, target: &Target, now: BootTime) {
        self.open.retain(|open| open != target);
        self.next_dial = now;
    }

    /// The event loop has dropped all attempts, and has this connection if there is one.
    pub(super) fn all_ended(&mut self, but: Option<&Target>) {
        self.open.retain(|open| Some(open) == but);
    }

    /// A connection carries the session. The attempts at the targets in `overtaken` had begun
    /// earlier, and had no result yet. They have failed too: otherwise a host that is always silent
    /// would never count as one that has failed, and would be dialled before the others each time.
    pub(super) fn connected(&mut self, target: &Target, overtaken: &[Target], now: BootTime) {
        let mut addresses = self.addresses.lock();
        addresses.serves(target.addr);
        // There is no reason: a later outage may have another one.
        overtaken.iter().for_each(|silent| addresses.failed(silent.addr, String::new(), now));
        drop(addresses);
        self.begin_again();
    }

    fn begin_again(&mut self) {
        self.pass.clear();
        self.seen.clear();
        self.open.clear();
        self.is_in_pass = false;
        self.doubted.clear();
    }

    /// The connection to this target, which carried the session, has failed after `lasted`.
    pub(super) fn connection_lost(
        &mut self,
        target: &Target,
        lasted: Duration,
        of: Urgency,
        now: BootTime,
    ) {
        self.down_since = now;
        self.doubted.clear();
        self.next_dial = now;
        self.is_in_pass = false;
        self.pass.clear();
        self.seen.clear();
        if lasted >= STABLE_AFTER {
            self.addresses.lock().has_served(target.addr);
            (self.failures, self.passes) = (0, 0);
            self.next_pass = now;
        } else {
            self.failed_pass(of, now);
        }
    }

    fn failed_pass(&mut self, of: Urgency, now: BootTime) {
        self.failures = self.failures.saturating_add(1);
        let pause = self.policy.pause(self.failures);
        self.next_pass = now + pause.min(of.cap());
    }

    /// Skips the pause before the next pass: a closing session has little time left.
    pub(super) fn skip_pause(&mut self, now: BootTime) {
        self.failures = 0;
        self.next_pass = now;
    }
}

#[cfg(test)]
mod tests;
