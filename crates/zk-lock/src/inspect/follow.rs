//! The commands that go on until something happens: they look, tell what is new, and look again.
//!
//! A thread of its own looks, since a look waits for the end of an outage. Meanwhile the main
//! thread tells when an outage begins and ends, and ends the program at its time, or by a signal.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::crossbeam_channel::{Receiver, bounded, never, select};
use zk_mutex::zk_session::{Watch, WatchEvent, Watched};
use zk_mutex::{SessionEvent, SessionState, ZkSession};

use crate::exit::{Failure, UNREACHABLE};
use crate::output::Output;
use crate::signals::Signals;
use crate::time::{millis, show};

/// A shorter outage is not told.
const SHORT_OUTAGE: Duration = Duration::from_secs(2);

/// Where a watch is wanted and cannot be set, the next look comes after this time.
const WITHOUT_WATCH: Duration = Duration::from_secs(1);

/// How a command that goes on has ended.
pub enum End {
    /// It has seen what it waited for.
    Seen(u8),
    /// Its time is over; in an outage nobody knows how things are.
    Over {
        is_away: bool,
    },
    Signal(i32),
}

impl End {
    /// The exit status of a command that shows what it sees until it is ended.
    pub fn code(self) -> u8 {
        match self {
            End::Seen(code) => code,
            End::Over { .. } => 0,
            End::Signal(signal) => crate::exit::of_signal(signal),
        }
    }
}

/// A command that goes on.
pub struct Follow<'o> {
    session: ZkSession,
    signals: Signals,
    events: Receiver<SessionEvent>,
    end: Option<Instant>,
    output: &'o Output,
}

impl<'o> Follow<'o> {
    /// It ends after `duration` at the latest. `connect` makes the session.
    pub fn start(
        connect: impl FnOnce() -> Result<ZkSession, Failure>,
        duration: Option<Duration>,
        output: &'o Output,
    ) -> Result<Follow<'o>, Failure> {
        let session = connect()?;
        // Until here a signal has ended the program by itself.
        let signals = Signals::start()?;
        let events = session.subscribe();
        let end = duration.and_then(|duration| Instant::now().checked_add(duration));
        Ok(Follow { session, signals, events, end, output })
    }

    /// Looks when the notifier's watch fires, and at the latest `every` after the last look began.
    /// Between two looks it rests for as long as a look takes, so it looks for half of the time at
    /// most. `seen` gets
    /// what each look has seen, and `None` when ZooKeeper does not answer any more.
    pub fn run<T: Send + 'static>(
        self,
        every: Duration,
        mut look: impl FnMut(&ZkSession, &mut Notifier) -> Result<T, Failure> + Send + 'static,
        mut seen: impl FnMut(Option<T>) -> Result<ControlFlow<u8>, Failure>,
    ) -> Result<End, Failure> {
        let (tell, looks) = bounded(0);
        let session = self.session.clone();
        let look_on = move || {
            let mut notifier = Notifier::default();
            loop {
                let begun = Instant::now();
                let looked = look(&session, &mut notifier);
                let took = begun.elapsed();
                if tell.send(looked).is_err() {
                    return;
                }
                notifier.wait(every.saturating_sub(took).max(took));
            }
        };
        // It ends with the program, or when the session is closed: nothing waits for it.
        thread::Builder::new()
            .name("look".into())
            .spawn(look_on)
            .map_err(|e| Failure::system(format!("no thread: {e}")))?;
        let ended = self.told(&looks, &mut seen);
        drop(looks);
        let _ = self.session.close();
        ended
    }

    fn told<T>(
        &self,
        looks: &Receiver<Result<T, Failure>>,
        seen: &mut impl FnMut(Option<T>) -> Result<ControlFlow<u8>, Failure>,
    ) -> Result<End, Failure> {
        let mut outage = Outage::default();
        let mut events = self.events.clone();
        if self.session.status().state != SessionState::Connected {
            outage.begins();
        }
        let mut has_seen = false;
        loop {
            let is_over = self.end.is_some_and(|end| end <= Instant::now());
            // However short its time is, it looks once.
            let is_away = outage.since.is_some();
            if is_over && has_seen {
                return Ok(End::Over { is_away });
            }
            if is_over && is_away {
                let text = "ZooKeeper has given no answer in this time";
                return Err(Failure::new(UNREACHABLE, "unreachable", text));
            }
            let wake = [self.end.filter(|_| !is_over), outage.tell_at()].into_iter().flatten();
            let wake = wake.min().map_or_else(never, zk_mutex::crossbeam_channel::at);
            let mut is_told = false;
            select! {
                recv(looks) -> looked => match looked {
                    Ok(Ok(what)) => {
                        has_seen = true;
                        outage.ends(self.output);
                        if let ControlFlow::Break(code) = seen(Some(what))? {
                            return Ok(End::Seen(code));
                        }
                    }
                    Ok(Err(e)) if e.code == UNREACHABLE => {
                        outage.begins();
                        is_told = outage.tell(self.output);
                    }
                    Ok(Err(e)) => return Err(e),
                    Err(_) => return Err(Failure::system("the thread that reads has ended")),
                },
                recv(events) -> event => match event {
                    Ok(SessionEvent::Suspended | SessionEvent::Lost(_)) => outage.begins(),
                    Ok(_) => outage.ends(self.output),
                    // The next look says why the session is closed.
                    Err(_) => events = never(),
                },
                recv(self.signals.events) -> _ => if let Some(signal) = self.signals.ending() {
                    return Ok(End::Signal(signal));
                },
                recv(wake) -> _ => if outage.tell_at().is_some_and(|at| at <= Instant::now()) {
                    is_told = outage.tell(self.output);
                },
            }
            if is_told {
                if let ControlFlow::Break(code) = seen(None)? {
                    return Ok(End::Seen(code));
                }
            }
        }
    }
}

/// A time in which ZooKeeper does not answer.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    is_told: bool,
}

impl Outage {
    fn begins(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// When it is to be told; `None` if there is nothing to tell.
    fn tell_at(&self) -> Option<Instant> {
        self.since.filter(|_| !self.is_told).map(|since| since + SHORT_OUTAGE)
    }

    /// Tells of it, if nobody has yet.
    fn tell(&mut self, output: &Output) -> bool {
        if std::mem::replace(&mut self.is_told, true) {
            return false;
        }
        output.warn("away", "ZooKeeper does not answer; watching on", json!({}));
        true
    }

    fn ends(&mut self, output: &Output) {
        let away = self.since.take().map(|since| since.elapsed());
        if let Some(away) = away.filter(|_| std::mem::take(&mut self.is_told)) {
            let text = format!("ZooKeeper answers again, after {}", show(away));
            output.warn("back", &text, json!({"away_ms": millis(away)}));
        }
    }
}

/// Wakes the thread that looks when a node changes.
#[derive(Default)]
pub struct Notifier {
    wanted: Option<(String, Watched)>,
    /// It survives outages, and ends with its session.
    watch: Option<Watch>,
}

impl Notifier {
    /// From now on a change of this node, and nothing else, wakes the thread. To miss no change,
    /// call this first, and read the node then.
    pub fn watch(&mut self, session: &ZkSession, path: &str, what: Watched) {
        let is_wanted = |(known, of): &(String, Watched)| known == path && *of == what;
        if self.watch.is_some() && self.wanted.as_ref().is_some_and(is_wanted) {
            return;
        }
        self.watch = session.zookeeper().requests().watch(path, what).ok();
        self.wanted = Some((path.to_owned(), what));
    }

    fn wait(&mut self, pause: Duration) {
        let Some(watch) = &self.watch else {
            return thread::sleep(match self.wanted {
                Some(_) => pause.min(WITHOUT_WATCH),
                None => pause,
            });
        };
        let events = watch.receiver();
        let first = match events.recv_timeout(pause) {
            Err(e) if e.is_timeout() => return,
            event => event.ok(),
        };
        // The look that comes next shows what has come meanwhile too.
        let last = first.into_iter().chain(events.try_iter()).last();
        if matches!(last, None | Some(WatchEvent::Lost(_))) {
            self.watch = None;
        }
    }
}
