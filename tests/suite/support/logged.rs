//! What has been logged in this process: printed as usual, and kept for the scenario to look at. A
//! logger that panics, too.
use env_logger::Logger;
use log::{Level, Log, Metadata, Record};
use parking_lot::Mutex;
use std::panic;

static KEPT: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static TRAP: Mutex<Option<Trap>> = Mutex::new(None);

struct Trap {
    part: &'static str,
    panics: usize,
}

struct Keeper(Logger);

/// Warnings, and what the embedded server says of its clients.
fn is_kept(metadata: &Metadata<'_>) -> bool {
    metadata.level() <= Level::Warn
        || metadata.level() == Level::Info && metadata.target().starts_with("zk_mutex::testing")
}

impl Log for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata) || is_kept(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        spring(record);
        if is_kept(record.metadata()) {
            KEPT.lock().push((record.level(), record.args().to_string()));
        }
        self.0.log(record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Makes `printer` the process's logger, and keeps warnings and errors.
pub(super) fn install(printer: Logger) {
    log::set_max_level(printer.filter().max(log::LevelFilter::Info));
    log::set_boxed_logger(Box::new(Keeper(printer))).expect("the first logger of this process");
}

/// The warnings (`Level::Warn`), errors (`Level::Error`) or the embedded server's news (`Level::Info`) so far that contain `part`.
pub fn logged(level: Level, part: &str) -> Vec<String> {
    let kept = KEPT.lock();
    kept.iter().filter(|(l, text)| *l == level && text.contains(part)).map(|(_, text)| text.clone()).collect()
}

/// From now on the logger panics at each record that contains `part`, as one that prints does when
/// its pipe is closed.
pub fn trap(part: &'static str) {
    *TRAP.lock() = Some(Trap { part, panics: 0 });
}

/// How often the logger has panicked since it was told to.
pub fn panics() -> usize {
    TRAP.lock().as_ref().map_or(0, |trap| trap.panics)
}

fn spring(record: &Record<'_>) {
    let mut trap = TRAP.lock();
    let Some(set) = trap.as_mut().filter(|set| record.args().to_string().contains(set.part)) else { return };
    set.panics += 1;
    drop(trap);
    // Past the hook, which would print a backtrace: long enough for a lease to end.
    panic::resume_unwind(Box::new("failed printing to stdout: Broken pipe"));
}
