//! The records that this process has logged: they are printed as usual, and kept for the scenario.
//! Also a logger that panics or blocks.
use crossbeam_channel::{Receiver, Sender, bounded};
use env_logger::Logger;
use log::{Level, Log, Metadata, Record};
use parking_lot::Mutex;
use std::{convert::Infallible, panic, time::Duration};

static KEPT: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static TRAP: Mutex<Option<Trap>> = Mutex::new(None);

struct Trap {
    part: &'static str,
    panics: usize,
}

static GATE: Mutex<Option<Gate>> = Mutex::new(None);

struct Gate {
    part: &'static str,
    reached: Sender<()>,
    closed: Receiver<Infallible>,
}

/// Keeps a thread blocked in the logger until this is dropped.
pub struct Kept {
    reached: Receiver<()>,
    _closed: Sender<Infallible>,
}

impl Kept {
    /// Waits until a thread is blocked; false if none is in this time.
    pub fn wait(&self, limit: Duration) -> bool {
        self.reached.recv_timeout(limit).is_ok()
    }
}

struct Keeper(Logger);

/// Warnings, and the news of the library and of the embedded server.
fn is_kept(metadata: &Metadata<'_>) -> bool {
    let is_news = || {
        ["zk_mutex", "zk_session", "zk_test_server"]
            .iter()
            .any(|t| metadata.target().starts_with(t))
    };
    metadata.level() <= Level::Warn || metadata.level() == Level::Info && is_news()
}

impl Log for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata) || is_kept(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        spring(record);
        block(record);
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
pub fn install(printer: Logger) {
    log::set_max_level(printer.filter().max(log::LevelFilter::Info));
    log::set_boxed_logger(Box::new(Keeper(printer))).expect("the first logger of this process");
}

/// The warnings (`Level::Warn`), errors (`Level::Error`) or news (`Level::Info`) so far that
/// contain `part`.
pub fn logged(level: Level, part: &str) -> Vec<String> {
    let kept = KEPT.lock();
    kept.iter()
        .filter(|(l, text)| *l == level && text.contains(part))
        .map(|(_, text)| text.clone())
        .collect()
}

/// From now on the logger panics at each record that contains `part`, like a logger that prints to
/// a closed pipe. The lines of the embedded server are left out.
pub fn trap(part: &'static str) {
    *TRAP.lock() = Some(Trap { part, panics: 0 });
}

/// How often the logger has panicked since `trap`.
pub fn panics() -> usize {
    TRAP.lock().as_ref().map_or(0, |trap| trap.panics)
}

/// Blocks the thread that logs the next record with `part`.
pub fn hold(part: &'static str) -> Kept {
    let (tell, reached) = bounded(1);
    let (open, closed) = bounded(0);
    *GATE.lock() = Some(Gate { part, reached: tell, closed });
    Kept { reached, _closed: open }
}

fn block(record: &Record<'_>) {
    let gate = GATE.lock().take_if(|gate| record.args().to_string().contains(gate.part));
    if let Some(gate) = gate {
        let _ = gate.reached.send(());
        let _ = gate.closed.recv();
    }
}

fn spring(record: &Record<'_>) {
    if record.target().starts_with("zk_test_server") {
        return; // the server is not the application
    }
    let mut trap = TRAP.lock();
    let Some(set) = trap.as_mut().filter(|set| record.args().to_string().contains(set.part)) else {
        return;
    };
    set.panics += 1;
    drop(trap);
    // This avoids the hook, which would print a backtrace; a lease could end meanwhile.
    panic::resume_unwind(Box::new("failed printing to stdout: Broken pipe"));
}
