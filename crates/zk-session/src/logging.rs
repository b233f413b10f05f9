//! Logging that cannot hurt the library's threads. The application's logger is foreign code: it may
//! block for as long as its pipe is full, and a logger that prints panics when its pipe is closed.
//!
//! No thread of the library waits for the logger. If the supervisor did, it would end no lease in
//! time, and no holder would learn of a lost lock; the event loop would keep no connection. So a
//! line that is logged on a thread of the library (`world::spawn_own` starts them all) is put into
//! a queue of the process, and one more thread, `zkm-log`, gives the lines to the logger, in order.
//! The thread starts with the first line, and ends when there was nothing to log for a while. What
//! an application's thread logs in its own call goes to the logger on that thread, but for
//! `queued!` lines: these say what happened to the session and to the holds of other threads,
//! and the thread that notices it must not block there.
//!
//! The library logs only through the macros of this file. If the level is enabled, each runs the
//! logger, and the formatting of its arguments, inside [`contained`].

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use log::Level;
use log::Record;

use crate::clock::BootTime;
use crate::process::PerProcess;
use crate::signal::Signal;
use crate::world::{
    LazyLock, Mutex, Receiver, Sender, bounded, holds_no_lock, is_own_thread, spawn_own,
};

/// How many lines may wait for the logger. Only warnings and errors use the second half.
const ROOM: usize = 2_048;

/// A line that waited for so long says when it was logged.
const LATE: Duration = Duration::from_secs(1);

/// For so long the thread waits for another line before it ends.
const LINGER: Duration = Duration::from_secs(10);

/// Runs foreign code (a logger, a callback, the client crate). Returns `None` if it panicked: the
/// panic ends here. `f` may panic anywhere, so the data that it shares with other threads must be
/// consistent at each such point.
pub fn contained<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // The drop of the panic's payload is foreign code too. If that panics in its turn, the
            // second payload is leaked.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(another);
            }
            None
        }
    }
}

/// Where a line is logged: module, file and line number.
pub(crate) type Place = (&'static str, &'static str, u32);

/// Logs a line, on this thread if it is the application's own.
pub fn log(level: Level, place: &'static Place, text: fmt::Arguments<'_>) {
    if is_own_thread() {
        queue(level, place, text);
    } else {
        give(level, place, text);
    }
}

/// Puts a line into the queue of the process. Runs no foreign code, and does not block.
pub fn queue(level: Level, place: &'static Place, text: fmt::Arguments<'_>) {
    LINES.get().add(Line { level, place, text: text.to_string(), at: BootTime::now() });
}

/// Waits until the logger has all lines that are in the queue now, for `limit` at most.
pub(crate) fn wait_until_logged(limit: Duration) {
    LINES.get().wait_until_logged(limit);
}

/// The logger may be called on this thread now. In tests each line asks this, whatever its level.
#[inline]
pub fn may_log_here() {
    debug_assert!(is_own_thread() || holds_no_lock(), "the logger would run under a lock");
}

/// Gives a line to the application's logger.
fn give(level: Level, (module, file, line): &'static Place, text: fmt::Arguments<'_>) {
    let mut record = Record::builder();
    record.level(level).target(module).module_path_static(Some(module));
    log::logger().log(&record.file_static(Some(file)).line(Some(*line)).args(text).build());
}

/// Whether lines of this level are logged. `log::max_level` reads an atomic; `Log::enabled` would
/// be foreign code.
#[inline]
pub fn is_enabled(level: Level) -> bool {
    level <= log::STATIC_MAX_LEVEL && level <= log::max_level()
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_contained {
    (log, $level:ident, $($arg:tt)+) => {{
        $crate::logging::may_log_here();
        $crate::log_contained!(as log, $level, $($arg)+)
    }};
    (queue, $level:ident, $($arg:tt)+) => {
        $crate::log_contained!(as queue, $level, $($arg)+)
    };
    (as $how:ident, $level:ident, $($arg:tt)+) => {
        if $crate::logging::is_enabled($crate::logging::Level::$level) {
            $crate::logging::contained(|| {
                $crate::logging::$how(
                    $crate::logging::Level::$level,
                    &(module_path!(), file!(), line!()),
                    format_args!($($arg)+),
                );
            });
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! error {
    ($($arg:tt)+) => { $crate::log_contained!(log, Error, $($arg)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! warn {
    ($($arg:tt)+) => { $crate::log_contained!(log, Warn, $($arg)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! info {
    ($($arg:tt)+) => { $crate::log_contained!(log, Info, $($arg)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! debug {
    ($($arg:tt)+) => { $crate::log_contained!(log, Debug, $($arg)+) };
}

/// `queued!(Warn, ..)`: a line that goes through the queue, whichever thread logs it.
#[doc(hidden)]
#[macro_export]
macro_rules! queued {
    ($level:ident, $($arg:tt)+) => { $crate::log_contained!(queue, $level, $($arg)+) };
}

/// The lines of this process on their way to its logger.
static LINES: LazyLock<PerProcess<Lines>> = LazyLock::new(PerProcess::default);

struct Line {
    level: Level,
    place: &'static Place,
    text: String,
    at: BootTime,
}

impl Line {
    fn give(self) {
        let Line { level, place, text, at } = self;
        let late = BootTime::now().since(at);
        debug_assert!(holds_no_lock());
        contained(|| {
            if late < LATE {
                give(level, place, format_args!("{text}"));
            } else {
                give(level, place, format_args!("{text} ({:.1} s ago)", late.as_secs_f64()));
            }
        });
    }
}

#[derive(Default)]
struct Lines(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Line>,
    /// How many lines did not fit since the last line in `waiting`.
    lost: u64,
    /// How many lines were put into `waiting`, and how many of these the logger has had.
    added: u64,
    logged: u64,
    /// Wakes the thread; `None` while there is none.
    thread: Option<Sender<()>>,
    /// The callers that wait, each until `logged` has reached a number.
    callers: Vec<(u64, Arc<Signal<()>>)>,
}

impl Lines {
    fn add(&self, line: Line) {
        let starts = {
            let mut state = self.0.lock();
            let room = if line.level <= Level::Warn { ROOM } else { ROOM / 2 };
            if state.waiting.len() < room {
                state.note_lost();
                state.put(line);
            } else {
                state.lost += 1;
            }
            if let Some(thread) = &state.thread {
                let _ = thread.try_send(()); // if it is full, the thread is woken already
                None
            } else {
                let (wake, woken) = bounded(1);
                state.thread = Some(wake);
                Some(woken)
            }
        };
        let Some(woken) = starts else { return };
        if spawn_own("zkm-log".into(), move || LINES.get().deliver(&woken)).is_err() {
            // The lines stay, and the next line tries again.
            self.0.lock().thread = None;
        }
    }

    /// The thread: gives the lines to the logger, which may block it or panic.
    fn deliver(&self, woken: &Receiver<()>) {
        loop {
            while let Some(line) = self.next() {
                line.give();
                self.0.lock().has_logged();
            }
            if woken.recv_timeout(LINGER).is_err() && self.has_ended() {
                return;
            }
        }
    }

    /// Whether the thread has nothing to do. If so, the next line starts another one. A line may have
    /// come just now: it has woken this thread, and would wait for the line after it.
    fn has_ended(&self) -> bool {
        let mut state = self.0.lock();
        let has_ended = state.waiting.is_empty() && state.lost == 0;
        if has_ended {
            state.thread = None;
        }
        has_ended
    }

    fn next(&self) -> Option<Line> {
        let mut state = self.0.lock();
        if state.waiting.is_empty() {
            state.note_lost();
        }
        state.waiting.pop_front()
    }

    fn wait_until_logged(&self, limit: Duration) {
        let done = Signal::new();
        {
            let mut state = self.0.lock();
            if state.logged == state.added {
                return;
            }
            let all = state.added;
            state.callers.push((all, done.clone()));
        }
        if done.wait(limit).is_none() {
            self.0.lock().callers.retain(|(_, other)| !Arc::ptr_eq(other, &done));
        }
    }
}

impl State {
    fn put(&mut self, line: Line) {
        self.waiting.push_back(line);
        self.added += 1;
    }

    /// If lines were lost, puts a line that says so in their place.
    fn note_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let text = format!("{lost} lines of the log were lost while the logger blocked");
            let place = &(module_path!(), file!(), line!());
            self.put(Line { level: Level::Warn, place, text, at: BootTime::now() });
        }
    }

    /// The logger has had the next line.
    fn has_logged(&mut self) {
        self.logged += 1;
        let logged = self.logged;
        self.callers.retain(|(wanted, caller)| {
            let waits = logged < *wanted;
            if !waits {
                caller.raise(());
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue whose thread the test stands for.
    fn lines() -> Lines {
        let lines = Lines::default();
        lines.0.lock().thread = Some(bounded(1).0);
        lines
    }

    fn line(level: Level, text: &str) -> Line {
        Line { level, place: &("", "", 0), text: text.to_owned(), at: BootTime::now() }
    }

    #[test]
    fn lines_that_do_not_fit_are_counted_in_their_place() {
        let lines = lines();
        (0..ROOM + 3).for_each(|i| lines.add(line(Level::Info, &i.to_string())));
        lines.add(line(Level::Warn, "fits"));
        let next = || lines.next().map(|line| line.text);
        assert_eq!(next().as_deref(), Some("0"));
        (1..ROOM / 2).for_each(|i| assert_eq!(next(), Some(i.to_string())));
        let lost = ROOM - ROOM / 2 + 3;
        let says = |lost| format!("{lost} lines of the log were lost while the logger blocked");
        assert_eq!([next(), next(), next()], [Some(says(lost)), Some("fits".into()), None]);
        // Nothing follows the lost lines.
        (0..ROOM + 7).for_each(|_| lines.add(line(Level::Error, "")));
        (0..ROOM).for_each(|_| assert_eq!(next().as_deref(), Some("")));
        assert_eq!([next(), next()], [Some(says(7)), None]);
    }

    #[test]
    fn the_thread_of_the_log_ends_only_when_no_line_waits_for_it() {
        let lines = lines();
        lines.add(line(Level::Info, "comes as the thread is about to end"));
        assert!(!lines.has_ended() && lines.0.lock().thread.is_some());
        assert!(lines.next().is_some());
        lines.0.lock().lost = 1;
        assert!(!lines.has_ended(), "somebody must say how many were lost");
        assert!(lines.next().is_some());
        assert!(lines.has_ended() && lines.0.lock().thread.is_none());
    }

    #[test]
    fn who_waits_for_the_log_waits_for_the_lines_of_before_and_no_longer_than_its_limit() {
        let lines = lines();
        lines.wait_until_logged(Duration::MAX);
        lines.add(line(Level::Info, "first"));
        lines.wait_until_logged(Duration::from_millis(1));
        assert!(lines.0.lock().callers.is_empty(), "it has given up");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lines.wait_until_logged(Duration::MAX));
            while lines.0.lock().callers.is_empty() {
                std::thread::yield_now();
            }
            lines.add(line(Level::Info, "second"));
            lines.0.lock().has_logged();
            waits.join().unwrap();
        });
    }
}
