//! How long calls wait, and in which order the threads of one process get a lock.
//!
//! * A call with a timeout ends without the lock at the end of that time and not before it, however
//!   long an outage lasts and whatever the retry policy says.
//! * A call without a timeout does not end in an outage before the time of the retry policy is
//!   over, counted from the outage, or from the call if that began later. An outage before does not
//!   count if the connection between the two has stood for long enough: the call has made progress
//!   then.
//! * A call without a timeout ends in an outage when the time of the retry policy is over. The
//!   outage is what the observer knows for certain: the process has had no connection that carries
//!   a session, without a break, since the call began or since it lost its last one.
//! * A call with a timeout blames an outage for its end only if there was one, or if no server had
//!   answered. A server has answered if the connection has stood for long enough: the library gives
//!   it up when a request is unanswered for T/6.
//! * The threads of a session take turns, first come, first served. See [`Seen::overtaken`].

use std::time::Duration;

use zk_sim_runtime::library::this_thread;
use zk_sim_runtime::thread::ThreadId;
use zk_sim_runtime::{ProcessId, clock_of, is_alive, now, process_name, stopped_for, this_process};

use super::answers::{Wish, leases};
use super::lasting::Clue;
use super::names::Node;
use super::{Broken, Hold, LATE, Observer, Seen, report};
use crate::workload::{Place, Recipe};

const EARLY: &str = "given up early";
const WAITS_ON: &str = "waits on";
const OVERTAKEN: &str = "overtaken";
const BLAMED: &str = "outage blamed";

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the lock.
    Got,
    /// Because others have the lock.
    Refused,
    /// Because it was cancelled.
    Cancelled,
    /// With the error `Unavailable`.
    Unavailable,
    /// With another error.
    Otherwise,
}

/// A call that waits for one lock.
pub(super) struct Waiting {
    pub(super) path: String,
    /// When it began, in the world's time.
    pub(super) since: Duration,
    pub(super) wish: Wish,
    /// When it began by its process's clock, and how long the process had been stopped by then.
    pub(super) clock: Duration,
    stopped: Duration,
    /// How long it waits, if that is bounded; and whether a timeout bounds it.
    pub(super) limit: Option<Duration>,
    is_timed: bool,
    of: ThreadId,
    /// A node was granted to its thread since then.
    is_granted: bool,
    /// The connection of the process when it began, if there was one.
    connection: Option<Clue>,
}

/// A process has no connection.
pub(super) struct Down {
    clock: Duration,
    stopped: Duration,
    /// When the last connection began, and when it ended, in the world's time.
    connected: Option<(Duration, Duration)>,
}

impl Down {
    /// Since when, in the world's time, if there was a connection before.
    pub(super) fn since(&self) -> Option<Duration> {
        self.connected.map(|(_, ended)| ended)
    }

    /// Whether the process has been running all the time.
    pub(super) fn was_running(&self, process: ProcessId) -> bool {
        self.stopped == stopped_for(process)
    }

    /// Its last connection, which began at this time, has just ended.
    pub(super) fn now(process: ProcessId, attached: Option<Duration>) -> Down {
        Down {
            clock: clock_of(process),
            stopped: stopped_for(process),
            connected: attached.map(|attached| (attached, now())),
        }
    }
}

impl Observer {
    /// The calling thread begins to wait for this lock: for so long, if the wait is bounded, by a
    /// timeout or in another way.
    pub fn waits(
        &self,
        thread: usize,
        place: &Place,
        wish: Wish,
        limit: Option<Duration>,
        is_timed: bool,
    ) {
        let (Some(process), of) = (this_process(), this_thread()) else { return };
        self.seen(|seen| {
            let waiting = Waiting {
                path: place.path.clone(),
                since: now(),
                wish,
                clock: clock_of(process),
                stopped: stopped_for(process),
                limit,
                is_timed,
                of,
                is_granted: false,
                connection: seen.connection_of(process),
            };
            seen.waiting.insert((process, thread), waiting);
        });
    }

    /// The calling thread has ended its wait.
    pub fn waited(&self, thread: usize, end: End) {
        let Some(process) = this_process() else { return };
        report(self.seen(|seen| {
            let waiting = seen.waiting.remove(&(process, thread))?;
            seen.waits_no_more(process, thread, &waiting, end);
            if seen.is_over_in_outage(process, &waiting) {
                seen.counts.note(WAITS_ON);
            }
            let on = seen.on_in_outage(process, thread, &waiting);
            on.or_else(|| match end {
                End::Got => seen.overtaken(process, thread, &waiting),
                End::Refused => seen.without_outage(process, thread, &waiting, false),
                End::Unavailable => seen
                    .without_outage(process, thread, &waiting, true)
                    .or_else(|| seen.before_the_policy(process, thread, &waiting)),
                End::Cancelled | End::Otherwise => None,
            })
        }));
    }
}

impl Seen {
    /// Checks that no call waits on in an outage.
    pub(super) fn wait_on(&self) -> Option<Broken> {
        self.waiting.iter().find_map(|((process, thread), waiting)| {
            self.on_in_outage(*process, *thread, waiting).filter(|_| is_alive(*process))
        })
    }

    /// By how much an outage has lasted longer than the retry policy lets this call wait, and how
    /// long the process was stopped meanwhile.
    fn beyond_the_policy(
        &self,
        process: ProcessId,
        waiting: &Waiting,
    ) -> Option<(Duration, Duration)> {
        let down = self.down.get(&process).filter(|_| !waiting.is_timed)?;
        let (since, before) = match down.clock > waiting.clock {
            true => (down.clock, down.stopped),
            false => (waiting.clock, waiting.stopped),
        };
        let spent = since + self.setting.max_elapsed;
        Some((clock_of(process).checked_sub(spent)?, stopped_for(process) - before))
    }

    /// A call without a timeout has ended with `Unavailable` before the retry policy says so.
    fn before_the_policy(
        &mut self,
        process: ProcessId,
        thread: usize,
        waiting: &Waiting,
    ) -> Option<Broken> {
        if waiting.is_timed || waiting.stopped != stopped_for(process) {
            return None;
        }
        // A long list on a slow line holds the answers to other requests up for longer than a short
        // policy allows.
        if self.slow_lines.was_slow(process, waiting.since) {
            return None;
        }
        // How long the last connection stood during the call, and since when there is none.
        let (stood, down) = match self.down.get(&process) {
            Some(down) => {
                let (attached, detached) = down.connected?;
                (detached.saturating_sub(attached.max(waiting.since)), Some(down.clock))
            }
            None => {
                let connection = self.connection_of(process)?;
                let attached = self.sessions.get(&connection.session)?.attached;
                (now().saturating_sub(attached.max(waiting.since)), None)
            }
        };
        if stood < (self.setting.session_timeout + LATE) * self.setting.slowness() {
            return None;
        }
        self.counts.note(EARLY);
        // A request may have been unanswered for T/6 when the connection was given up for that: the
        // time counts from when it was sent.
        let unanswered = self.setting.session_timeout / 6 * self.setting.slowness() + LATE;
        let least = self.setting.max_elapsed.saturating_sub(unanswered);
        let lasted = down.map(|down| clock_of(process).saturating_sub(down));
        let text = || {
            format!(
                "thread {thread} of {} waited for {} and is told of an outage, after {lasted:?} \
                 without a connection; it had stood for {stood:?} before",
                process_name(process),
                waiting.path
            )
        };
        lasted.is_none_or(|lasted| lasted < least).then(|| (EARLY, text()))
    }

    fn is_over_in_outage(&self, process: ProcessId, waiting: &Waiting) -> bool {
        self.beyond_the_policy(process, waiting).is_some()
    }

    fn on_in_outage(&self, process: ProcessId, thread: usize, waiting: &Waiting) -> Option<Broken> {
        let (beyond, stopped) = self.beyond_the_policy(process, waiting)?;
        // The process's clock may be faster than the world's.
        let step = self.setting.session_timeout / 6 + LATE;
        let limit = step * self.setting.slowness() + stopped.mul_f64(1.8);
        let text = || {
            format!(
                "thread {thread} of {} waits for {} in an outage, {beyond:?} longer than the retry \
                 policy says",
                process_name(process),
                waiting.path
            )
        };
        (beyond > limit).then(|| (WAITS_ON, text()))
    }

    /// A call whose timeout is over has ended without the lock. `blames`: it says that there was an
    /// outage, or no answer.
    fn without_outage(
        &mut self,
        process: ProcessId,
        thread: usize,
        waiting: &Waiting,
        blames: bool,
    ) -> Option<Broken> {
        let connection = self.connection_of(process).filter(|_| waiting.is_timed)?;
        let since = self.sessions.get(&connection.session)?.attached.max(waiting.since);
        let long = (self.setting.session_timeout + LATE) * self.setting.slowness();
        if now() < since + long || waiting.stopped != stopped_for(process) {
            return None;
        }
        self.counts.note(BLAMED);
        let text = || {
            format!(
                "thread {thread} of {} has waited for {}, with a connection since {since:?}, and \
                 is told of an outage",
                process_name(process),
                waiting.path
            )
        };
        blames.then(|| (BLAMED, text()))
    }

    /// A node was granted to a thread.
    pub(super) fn is_granted_to(&mut self, thread: ThreadId) {
        let mut waiting = self.waiting.values_mut();
        if let Some(waiting) = waiting.find(|waiting| waiting.of == thread) {
            waiting.is_granted = true;
        }
    }

    pub(super) fn connection_of(&self, process: ProcessId) -> Option<Clue> {
        let its = |of: &super::Session| of.process == process && of.epoch.is_some();
        let (session, _) = self.sessions.iter().find(|(_, of)| its(of))?;
        self.clue(*session)
    }

    /// A thread has got the lock, and another thread of its process has waited for longer.
    ///
    /// When a call has begun this says nothing of when its thread came to the queue of its process:
    /// it may have had no processor. So the other call must have begun long before this one, and it
    /// must still wait, with time left.
    ///
    /// The docs promise the turns to threads that wait, and some threads have to begin anew: after
    /// the loss of a hold that was handed to them, of a connection or a session, or when an
    /// operator has deleted a node. So the process must not have been stopped since the other call
    /// began, it must have had the same connection, and no node of the lock was deleted by an
    /// operator.
    ///
    /// Threads that may hold the lock together are not compared: the call of the thread that got
    /// the lock first may return last. With permits, a node that was granted to the thread shows
    /// that.
    fn overtaken(&mut self, process: ProcessId, thread: usize, got: &Waiting) -> Option<Broken> {
        let place = self.setting.places.iter().find(|place| place.path == got.path)?;
        if matches!(place.recipe, Recipe::Exclusive | Recipe::Election) {
            return None; // nothing is promised, or each call has a node of its own
        }
        // A call for permits may have to ask for their number before it queues.
        let step = self.setting.session_timeout / 6 * self.setting.slowness();
        let is_semaphore = matches!(place.recipe, Recipe::Semaphore { .. });
        let lead = LATE + if is_semaphore { step } else { Duration::ZERO };
        // The time of a hold may be over before its thread returns with it.
        let is_short = place.longest.is_some_and(|longest| longest.max_hold < LATE);
        let others = self.waiting.iter().filter(|((of, _), other)| {
            *of == process
                && other.path == got.path
                && (got.wish, other.wish) != (Wish::Shared, Wish::Shared)
        });
        let mut is_ordered = false;
        let mut earlier = None;
        for ((_, number), other) in others {
            is_ordered |= other.since.abs_diff(got.since) > lead;
            let is_waiting = !other.is_granted
                && !is_short
                && other.since + lead < got.since
                && other.limit.is_none_or(|limit| other.clock + limit > clock_of(process) + LATE)
                && other.stopped == stopped_for(process)
                && other.connection.is_some()
                && other.connection == self.connection_of(process)
                && !self.was_deleted_in(place, other.since);
            if is_waiting {
                earlier = earlier.or(Some((*number, other.since)));
            }
        }
        if is_ordered {
            self.counts.note(OVERTAKEN);
        }
        let (number, since) = earlier?;
        let text = format!(
            "thread {thread} of {} waits for {} since {:?} and has it, and thread {number} waits \
             since {since:?}",
            process_name(process),
            got.path,
            got.since
        );
        Some((OVERTAKEN, text))
    }

    /// Whether an operator may have deleted nodes of this lock since then.
    pub(super) fn was_deleted_in(&self, place: &Place, since: Duration) -> bool {
        self.deleted_by_others.iter().any(|(path, asked)| {
            *asked + self.setting.session_timeout * 8 > since
                && [&place.path, &place.queue(), &leases(place)].contains(&&Node::of(path).lock)
        })
    }
}

impl Hold {
    /// Whether it is the queue of a semaphore that it has, and no permit yet.
    pub(super) fn is_of_a_queue_for_permits(&self, places: &[Place]) -> bool {
        places.iter().any(|place| {
            matches!(place.recipe, Recipe::Semaphore { .. } | Recipe::SemaphoreMutex)
                && place.queue() == self.node.lock
        })
    }
}
