//! The common part of all recipes: a call, a hold, its end, and their checks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_mutex_simulated::{
    CancelToken, Contender, Error, Held, Leadership, LossReason, LostSignal, Result, RevokeSignal,
};
use zk_sim_runtime::library::{Instant, Receiver, RecvTimeoutError, Sender, thread, unbounded};
use zk_sim_runtime::{
    Call, ProcessId, Rng, call_begins, call_ends, fail, now, stopped_for, this_process,
};

use super::account::{self, Account};
use super::calls::Wait;
use super::side_channel::{News, Tip};
use super::{Hasty, Job, Place, Recipe, Shared};
use crate::between;
use crate::observer::{End, Ending, LATE, Listed, Observer, Wish};

/// The number of released guards whose signals are checked again.
const REMEMBERED: usize = 8;

/// One thread of a process.
pub(super) struct Worker {
    number: usize,
    pub(super) job: Job,
    /// The lock that it uses, if it is one.
    using: Option<usize>,
    pub(super) shared: Shared,
    pub(super) rng: Rng,
    pub(super) is_closed: Option<Arc<AtomicBool>>,
    /// How the holds of its session have ended.
    pub(super) account: Account,
    canceller: Canceller,
    /// The begin of its last call, in the world's time.
    asked: Duration,
    /// Its calls only try, because another client has told it something.
    pub(super) tries: bool,
    /// The guards that it lets go.
    ending: Ending,
    /// The signals of released guards.
    released: VecDeque<Signals>,
    /// Views of terms that have ended.
    terms: VecDeque<Leadership>,
}

/// The observations of a thread during its hold.
pub(super) struct View {
    signals: Signals,
    /// The hold was lost before its release.
    pub(super) was_lost: bool,
}

/// The signals of a guard that its thread has asked for.
struct Signals {
    path: String,
    /// The paths of all its nodes: several, if it has several permits.
    nodes: Vec<String>,
    lost: Option<LostSignal>,
    asked: Option<RevokeSignal>,
}

impl Signals {
    fn has_come(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.reason().is_some())
            || self.asked.as_ref().is_some_and(RevokeSignal::is_requested)
    }
}

impl Worker {
    pub(super) fn new(
        number: usize,
        job: Job,
        shared: Shared,
        rng: Rng,
        canceller: Canceller,
    ) -> Worker {
        Worker {
            number,
            job,
            using: None,
            shared,
            rng,
            is_closed: None,
            account: Account::default(),
            canceller,
            asked: Duration::ZERO,
            tries: false,
            ending: Ending::default(),
            released: VecDeque::new(),
            terms: VecDeque::new(),
        }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.job.places
    }

    pub(super) fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// The session is being closed while its threads use it, or was closed so.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.as_ref().is_some_and(|is_closed| is_closed.load(Ordering::Relaxed))
    }

    pub(super) fn is_calm(&self) -> bool {
        self.shared.is_calm.load(Ordering::Relaxed)
    }

    /// True at one in so many calls.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.rng.u32(..times) == 0
    }

    /// Whether this turn takes several locks as one.
    pub(super) fn wants_several(&mut self) -> bool {
        self.job.has_multi && self.one_in(4)
    }

    /// Whether the thread makes its lock objects anew now.
    pub(super) fn remakes(&mut self) -> bool {
        self.job.remakes && self.one_in(2)
    }

    /// A sixth of the session timeout: the limit of single steps.
    pub(super) fn step(&self) -> Duration {
        self.job.session_timeout / 6
    }

    /// Tells another client at once what this one was answered.
    pub(super) fn tells(&mut self, news: News) {
        if let Some(place) = self.using.filter(|_| self.job.talks) {
            self.shared.side_channel.tell(&mut self.rng, Tip { place, news });
        }
    }

    /// The thread begins to use the lock with this number, or several of them.
    pub(super) fn uses(&mut self, place: Option<usize>) {
        self.using = place;
        let all = &self.job.places;
        let paths: Vec<&str> = match place {
            Some(place) => vec![&all[place].path],
            None => all.iter().map(|place| place.path.as_str()).collect(),
        };
        self.shared.observer.uses(self.number, &paths);
    }

    /// The thread uses no lock any more.
    pub(super) fn rests(&mut self) {
        self.using = None;
        self.shared.observer.uses(self.number, &[]);
    }

    /// Spends some time without a lock. If another client tells it something meanwhile, this is
    /// returned at once.
    pub(super) fn pause(&mut self) -> Option<Tip> {
        // An exclusive lock has no queue: a thread that comes back at once may get it again and
        // again. This pause gives the other threads a chance.
        let is_unfair = |place: &Place| matches!(place.recipe, Recipe::Exclusive);
        if self.is_calm() && self.places().iter().any(is_unfair) {
            let least = self.job.session_timeout / 4;
            thread::sleep(between(&mut self.rng, least, least * 4));
            return None;
        }
        if self.rng.u32(..4) == 0 {
            return None;
        }
        let lasts = between(&mut self.rng, Duration::from_micros(10), self.job.longest_pause);
        if self.job.talks && !self.is_calm() {
            return self.shared.side_channel.listen(lasts);
        }
        thread::sleep(lasts);
        None
    }

    // ---- calls ----

    /// Makes a call that takes a lock, and checks its result. `wanted` are the locks for which the
    /// call waits; none for a call on a lock that the thread has. `may_fail` accepts errors besides
    /// `Unavailable`.
    pub(super) fn ask<G>(
        &mut self,
        wanted: &[(&Place, Wish)],
        may_fail: impl Fn(&Error) -> bool,
        call: impl FnOnce(&Wait) -> Result<Option<G>>,
    ) -> Option<G> {
        let path = match wanted {
            [(place, _)] => Some(place.path.as_str()),
            _ => None,
        };
        let (wait, limit) = self.wait();
        let (observer, number) = (self.shared.observer.clone(), self.number);
        let is_well = self.shared.is_well.load(Ordering::Relaxed);
        let (clock, asked) = (Clock::start(&observer), observer.moment());
        observer.asks(number, wanted);
        match wanted {
            [(place, wish)] if !matches!(wait, Wait::Try) => {
                observer.waits(number, place, *wish, limit, matches!(wait, Wait::Timeout(_)));
            }
            [_, _, ..] => observer.waits_for_several(),
            _ => {}
        }
        call_begins(Call::Take);
        let result = call(&wait);
        call_ends();
        let end = match &result {
            Ok(Some(_)) => End::Got,
            Ok(None) => End::Refused,
            Err(Error::Unavailable { .. }) => End::Unavailable,
            Err(Error::Cancelled { .. }) => End::Cancelled,
            Err(_) => End::Otherwise,
        };
        let since = observer.has_asked(number, wanted);
        observer.waited(number, end);
        observer.waited_for_several();
        observer.calls();
        if let Wait::Timeout(limit) = wait {
            // Another error may come at any time.
            let is_for_time = matches!(result, Ok(None) | Err(Error::Unavailable { .. }));
            let took = clock.started.elapsed();
            if is_for_time {
                let text = || {
                    let (path, told) = (path.unwrap_or("several locks"), result.as_ref().err());
                    format!("{path}: {told:?} after {took:?} of {limit:?}")
                };
                observer.check("given up early", took >= limit, text);
            }
        }
        // A deadline may always come just before an answer.
        let is_timed = matches!(wait, Wait::Try | Wait::Timeout(_));
        if is_well && !is_timed && !observer.may_fail_in_calm() {
            let fails = matches!(result, Err(Error::Unavailable { .. }));
            let text =
                || format!("{}: {:?}", path.unwrap_or("several locks"), result.as_ref().err());
            observer.check("error in calm", !fails, text);
        }
        self.asked = clock.world;
        if let Some(limit) = limit {
            clock.check(&observer, path.unwrap_or("several locks"), limit);
        }
        match result {
            Ok(Some(guard)) => return Some(guard),
            Ok(None) => {
                observer.not_acquired(false);
                observer.is_refused(number, wanted, asked, &since);
            }
            Err(e) => {
                log::info!("not locked: {e}");
                observer.not_acquired(true);
                if let [(place, Wish::Permits(wanted))] = wanted {
                    observer.refuses_permits(place, *wanted, &e, asked);
                }
                let is_cancelled = matches!(&wait, Wait::Cancelled(token) if token.is_cancelled());
                let is_expected = match &e {
                    Error::Unavailable { .. } => true,
                    Error::InvalidConfig { what: "path", .. } => observer.had_others(wanted, asked),
                    Error::Cancelled { .. } => is_cancelled,
                    Error::Closed { .. } => self.is_closed(),
                    Error::Lost { reason: LossReason::SessionClosed, .. } => self.is_closed(),
                    e => may_fail(e),
                };
                let text = || format!("{}: {e}", path.unwrap_or("several locks"));
                observer.check("wrong error", is_expected, text);
            }
        }
        None
    }

    /// Makes a call that works on the lock at this path until it is cancelled or has done enough.
    pub(super) fn runs(
        &mut self,
        place: &Place,
        call: impl FnOnce(&mut Worker, &CancelToken) -> Result<()>,
    ) {
        self.asked = now();
        let (cancel, observer) = (CancelToken::new(), self.shared.observer.clone());
        let asked = observer.moment();
        if self.rng.bool() {
            let after = between(&mut self.rng, Duration::from_micros(50), Duration::from_secs(20));
            self.canceller.cancel(cancel.clone(), after);
        }
        observer.calls();
        let outcome = call(self, &cancel);
        observer.calls();
        match outcome {
            Ok(()) => {}
            Err(Error::Cancelled { .. }) if cancel.is_cancelled() => observer.not_acquired(false),
            Err(_) if self.is_closed() => observer.not_acquired(true),
            Err(Error::InvalidConfig { what: "path", .. })
                if observer.had_others(&[(place, Wish::Alone)], asked) =>
            {
                observer.not_acquired(true);
            }
            Err(e) => fail("wrong error", format!("{}: {e}", place.path)),
        }
    }

    /// Chooses how long a call waits. Returns also the latest end of the call.
    fn wait(&mut self) -> (Wait, Option<Duration>) {
        // In a calm each thread has to get a lock.
        let hasty = self.job.hasty.filter(|_| !self.tries && !self.is_calm() && !self.one_in(12));
        if let Some(Hasty { processes, patience }) = hasty {
            if self.job.number >= processes {
                return (Wait::Forever, None);
            }
            let limit = patience.mul_f64(0.5 + 0.5 * self.rng.f64());
            return (Wait::Timeout(limit), Some(limit));
        }
        let choice = if self.tries { 0 } else { self.rng.u32(..12) };
        match choice {
            0 => (Wait::Try, Some(self.step())),
            1..3 => {
                let limit =
                    between(&mut self.rng, Duration::from_millis(1), Duration::from_secs(20));
                (Wait::Timeout(limit), Some(limit))
            }
            3 => {
                let token = CancelToken::new();
                let limit =
                    between(&mut self.rng, Duration::from_micros(50), Duration::from_secs(20));
                self.canceller.cancel(token.clone(), limit);
                (Wait::Cancelled(token), Some(limit))
            }
            _ => (Wait::Forever, None),
        }
    }

    /// Lists the contenders of a lock, or its holders, and checks the answer.
    pub(super) fn lists(
        &mut self,
        place: &Place,
        which: Listed,
        call: impl FnOnce() -> Result<Vec<Contender>>,
    ) -> Option<Vec<Contender>> {
        let asked = self.shared.observer.moment();
        let limit = self.step() * 16;
        let told = self.quick("a list", limit, call).ok()?;
        self.shared.observer.lists(place, which, &told, asked);
        Some(told)
    }

    /// Makes a call that does not wait for a lock. It must end within `limit`.
    pub(super) fn quick<T>(
        &mut self,
        what: &str,
        limit: Duration,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let clock = Clock::start(&self.shared.observer);
        let result = call();
        clock.check(&self.shared.observer, what, limit);
        result
    }

    /// Makes a call that asks the client with this node to let the lock go.
    pub(super) fn asks_for(&mut self, node: &str, call: impl FnOnce() -> Result<Option<Vec<u8>>>) {
        self.shared.observer.asks_for(node, false);
        let limit = self.step() * 2;
        if let Ok(Some(_)) = self.quick("attempt_revoke", limit, call) {
            self.shared.observer.asks_for(node, true);
        }
    }

    // ---- holds ----

    /// The thread has got these guards, of one lock or of several as one.
    pub(super) fn acquired(&mut self, held: &[&Held]) {
        self.shared.observer.acquired(self.number, held, self.asked);
        self.tells(News::Acquired);
        self.shared.observer.writes(held);
    }

    /// Keeps a guard for a while.
    pub(super) fn hold(&mut self, held: &Held) -> View {
        // Asking for the signal makes the library watch the node at once.
        let lost = (!self.one_in(4)).then(|| held.lost());
        self.hold_all(held, lost, || held.is_held())
    }

    /// Keeps guards for a while, or until they are lost or requested by others. `first` is one of
    /// the guards.
    pub(super) fn hold_all(
        &mut self,
        first: &Held,
        lost: Option<LostSignal>,
        is_held: impl Fn() -> bool,
    ) -> View {
        let nodes = Observed::all(first).into_iter().map(|node| node.path).collect();
        let asked = self.one_in(2).then(|| first.revoke_requested());
        if let Some(asked) = &asked {
            self.shared.observer.listens(self.number, first, asked);
        }
        let usual = between(&mut self.rng, Duration::from_micros(1), self.job.longest_hold);
        // Some holds last longer than a lease that is not extended.
        let is_long = self.one_in(self.job.long_hold_in);
        let lasts = match (self.is_calm(), is_long) {
            (true, _) => usual.min(self.job.session_timeout / 2),
            (false, true) => self.job.session_timeout.mul_f64(0.5 + self.rng.f64() * 3.0),
            (false, false) => usual,
        };
        let until = Instant::now() + lasts;
        let lets_others = |asked: &RevokeSignal| asked.is_requested();
        let was_lost = match &lost {
            Some(lost) if self.rng.bool() => {
                lost.receiver().recv_deadline(until).is_err_and(|e| e.is_disconnected())
            }
            _ => {
                while is_held()
                    && Instant::now() < until
                    && !asked.as_ref().is_some_and(lets_others)
                {
                    let step =
                        between(&mut self.rng, Duration::from_micros(1), Duration::from_millis(50));
                    thread::sleep(step.min(until - Instant::now()));
                }
                !is_held()
            }
        };
        // A holder that is to be told something stays, so that it is seen if it is not told.
        let longest = Instant::now() + self.job.session_timeout * 5;
        while self.shared.observer.owes_news(first) && Instant::now() < longest {
            thread::sleep(Duration::from_millis(5));
        }
        let was_lost = was_lost || !is_held();
        let path = first.path().to_owned();
        if was_lost {
            self.shared.observer.check("lost, and held", !is_held(), || path.clone());
        }
        if let Some(lost) = lost.as_ref().filter(|_| was_lost) {
            let clock = Clock::start(&self.shared.observer);
            // A thread that ends the hold may be stopped before it makes the signal ready.
            let mut stopped = clock.stopped();
            while lost.wait(Duration::from_secs(5)).is_none() {
                if clock.stopped() == stopped {
                    fail("notified late", format!("{path}: lost, and lost() is not ready"));
                }
                stopped = clock.stopped();
            }
            clock.check(&self.shared.observer, format!("lost() of {path}"), Duration::ZERO);
        }
        View { signals: Signals { path, nodes, lost, asked }, was_lost }
    }

    /// The thread is about to release these guards.
    pub(super) fn lets_go(&mut self, held: &[&Held], view: &View) {
        let was_asked = view.signals.asked.as_ref().is_some_and(RevokeSignal::is_requested);
        if was_asked {
            self.shared.observer.is_asked(&view.signals.nodes);
        }
        if view.was_lost {
            self.shared.observer.lost(held);
        }
        // It writes even if the guards are lost: a holder may be paused between its last check and
        // the write.
        self.shared.observer.writes(held);
        self.ending = self.shared.observer.ends(held);
        for (node, was_lost) in self.ending.losses() {
            if let Some(lock) = account::lock_of(&self.job.places, node) {
                self.account.ends(lock, was_lost);
            }
        }
        self.shared.observer.releases(self.number, held, was_asked && held.len() == 1);
    }

    /// Releases a guard, which it is about to let go, and checks the result.
    pub(super) fn end<G>(&mut self, view: View, guard: G, unlock: impl FnOnce(G) -> Result<()>) {
        let ending = std::mem::take(&mut self.ending);
        call_begins(Call::LetGo);
        if self.rng.bool() {
            let _: Result<()> = self.quick("a drop", Duration::ZERO, || {
                drop(guard);
                Ok(())
            });
        } else {
            let (step, may_fail) = (self.step(), !self.shared.is_well.load(Ordering::Relaxed));
            let outcome = self.quick("unlock", step, || unlock(guard));
            let is_closing = self.is_closed();
            self.shared.observer.unlocked(self.number, &ending, &outcome, may_fail, is_closing);
            if outcome.is_ok() {
                self.tells(News::Released);
            }
        }
        call_ends();
        self.shared.observer.has_released(self.number);
        for node in ending.released() {
            if let Some(lock) = account::lock_of(&self.job.places, node) {
                self.account.was_released(lock);
            }
        }
        self.remember(view);
    }

    /// Remembers the signals of a released guard, which must not change any more.
    pub(super) fn remember(&mut self, mut view: View) {
        // A signal that came in time may stay.
        view.signals.lost = view.signals.lost.filter(|lost| lost.reason().is_none());
        view.signals.asked = view.signals.asked.filter(|asked| !asked.is_requested());
        self.released.push_back(view.signals);
        if self.released.len() > REMEMBERED
            && let Some(signals) = self.released.pop_front()
            && (signals.lost.is_some() || signals.asked.is_some())
        {
            let text = || signals.path.clone();
            self.shared.observer.check("signal after the release", !signals.has_come(), text);
        }
    }

    /// The term of this view has ended, by the end of its candidate or of its runner's function.
    /// `lasted`: it lasted until then. The view is looked at again for some time.
    pub(super) fn has_led(&mut self, view: Leadership, lasted: bool) {
        self.shared.observer.has_resigned(&view, lasted);
        self.terms.push_back(view);
        if self.terms.len() > REMEMBERED {
            self.terms.pop_front();
        }
    }

    /// Checks that no signal came after the release of its guard. It is checked in each turn, and
    /// counted when the guard is forgotten.
    pub(super) fn check_released(&self) {
        let late = self.released.iter().find(|signals| signals.has_come());
        if let Some(signals) = late {
            fail("signal after the release", signals.path.clone());
        }
        if let Some(term) = self.terms.iter().find(|term| term.is_held()) {
            fail("term outlived", format!("{}: a term that has ended lasts again", term.path()));
        }
    }
}

/// Measures how long something takes, without the time in which the process was stopped.
struct Clock {
    process: Option<ProcessId>,
    world: Duration,
    started: Instant,
    stopped: Duration,
}

impl Clock {
    fn start(observer: &Observer) -> Clock {
        observer.calls();
        let process = this_process();
        let stopped = process.map_or(Duration::ZERO, stopped_for);
        Clock { process, world: now(), started: Instant::now(), stopped }
    }

    /// How long the process, or a thread of it, has been stopped since the start.
    fn stopped(&self) -> Duration {
        self.process.map_or(Duration::ZERO, stopped_for) - self.stopped
    }

    fn check(&self, observer: &Observer, what: impl fmt::Display, limit: Duration) {
        observer.calls();
        let took = self.started.elapsed();
        let stopped = self.stopped();
        // The process's clock may be faster than the world's.
        let is_in_time = took <= limit + LATE + stopped.mul_f64(1.8);
        observer.check("deadline", is_in_time, || {
            format!("{what}: {took:?} in place of {limit:?}, {stopped:?} of it stopped")
        });
    }
}

/// Closes a session, and checks that this ends within the limit whatever the network does.
pub(super) fn check_close(observer: &Observer, close: impl FnOnce() -> Result<()>) {
    let clock = Clock::start(observer);
    if let Err(e) = close() {
        log::info!("not closed: {e}");
    }
    observer.lets_a_client_go();
    clock.check(observer, "close", Duration::from_secs(1));
}

/// Cancels tokens at their time, on a thread of its own. The thread ends with its last handle.
#[derive(Clone)]
pub(super) struct Canceller(Sender<(Instant, CancelToken)>);

impl Canceller {
    pub(super) fn start() -> Canceller {
        let (sender, receiver) = unbounded();
        thread::spawn(move || Canceller::run(&receiver));
        Canceller(sender)
    }

    fn cancel(&self, token: CancelToken, after: Duration) {
        let _ = self.0.send((Instant::now() + after, token));
    }

    fn run(inbox: &Receiver<(Instant, CancelToken)>) {
        let (mut next, mut all) = (0_u64, BTreeMap::<(Instant, u64), CancelToken>::new());
        loop {
            let now = Instant::now();
            let later = all.split_off(&(now, u64::MAX));
            all.values().for_each(CancelToken::cancel);
            all = later;
            let message = match all.first_key_value() {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(((at, _), _)) => inbox.recv_deadline(*at),
            };
            match message {
                Ok((at, token)) => {
                    next += 1;
                    all.insert((at, next), token);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
