//! A worker of a storm: a process of the library. Its threads take and release locks of all
//! recipes, and note what they observe. When its stdin is closed, each thread takes its lock once
//! more and ends.
use super::{
    beats::Beats,
    checker::{BOUNDED, MAX_HOLD, MULTI, PERMITS},
    history::{self, BEAT, Failure, History, Mode, Note, Spent, now},
};
use crate::support::{
    Recipe,
    control::{self, Scheduled},
    recipe::{Guard, Lock, Lockable, bounded, kept},
};
use crossbeam_channel::TryRecvError;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::{
    cell::Cell,
    collections::VecDeque,
    env,
    io::{self, Read},
    path::Path,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Config, Contender, Error, Held, LossReason, LostSignal, OptionalExt, Result, Wait, ZkSemaphore,
    ZkSession,
};

/// The first argument that starts a worker instead of the suite. The next ones are the connect
/// string, the history's file, the seed, and the session timeout in milliseconds.
pub const NAME: &str = "storm-worker";

/// The pause between two checks of a thread's guard.
const LOOK: Duration = Duration::from_millis(5);
/// The pause between two notes of the lease, in microseconds.
const REPORT: i64 = 100_000;
/// How long it waits for a signal that is due.
const SIGNAL_LIMIT: Duration = Duration::from_secs(5);
/// The number of former guards' signals that a thread checks.
const FORMER: usize = 64;
/// How long the kept lock stays with its process.
const KEEP: Duration = Duration::from_millis(300);

/// The state that the threads of a worker share.
struct Worker {
    session: ZkSession,
    history: History,
    /// The last session that was noted.
    noted: Mutex<Option<i64>>,
    quiet: AtomicBool,
    /// The number of the next call or hold.
    next: AtomicU64,
    timeout: Duration,
}

/// One thread of a worker.
struct Actor<'w> {
    worker: &'w Worker,
    thread: String,
    random: fastrand::Rng,
    /// The signals of released guards, with the numbers of their holds.
    former: VecDeque<(u64, LostSignal)>,
}

/// A lock that a thread takes.
struct Wanted {
    path: String,
    mode: Mode,
    /// Its candidates join and leave in each call, and their signals become ready when they leave.
    is_election: bool,
    lock: Lock,
}

/// A time that may become long, from its beginning.
struct Timed {
    begun: Instant,
    before: Scheduled,
}

impl Timed {
    fn begin() -> Timed {
        Timed { before: Scheduled::here(), begun: Instant::now() }
    }

    /// How the calling thread, which began it, has spent the time since.
    fn spent(&self) -> Spent {
        let Scheduled { ran, runnable } = self.before.since();
        let micros = |time: Duration| time.as_micros() as i64;
        let control = micros(control::kept_since(self.begun));
        Spent { ran: micros(ran), runnable: micros(runnable), control }
    }

    /// What to note of the call `op`, if it has taken longer than `within`, in microseconds.
    fn late(&self, op: u64, within: i64) -> Option<Note> {
        let is_late = self.begun.elapsed().as_micros() as i64 > within;
        is_late.then(|| Note::Waited { op, spent: self.spent() })
    }
}

/// A guard, and the number of each of its holds.
struct Section<'l> {
    wanted: &'l Wanted,
    guard: Guard<'l>,
    holds: Vec<u64>,
    /// When the hold is over for sure, if the lock has a `max_hold`.
    over: Option<i64>,
    /// Whether its signals were asked for.
    is_watched: bool,
}

pub fn main() -> ExitCode {
    // The workers end, even a stopped one, however the program that injects the faults ends.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows this signal");
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("off")).init();
    control::start();
    let words: Vec<String> = env::args().skip(2).collect();
    let [connect, file, seed, timeout] = &words[..] else { return ExitCode::from(2) };
    let (file, seed): (&Path, u64) = (file.as_ref(), seed.parse().expect("a seed"));
    let history = History::create(file).expect("the history's file");
    let name =
        file.file_name().and_then(|name| name.to_str()).expect("the worker's name").to_owned();
    let timeout = Duration::from_millis(timeout.parse().expect("a timeout"));
    // In a long outage it connects only after the end of the outage.
    let session = loop {
        match ZkSession::connect(Config::new(connect).session_timeout(timeout)) {
            Ok(session) => break session,
            Err(Error::Connect { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    };
    let (noted, quiet, next) = (Mutex::new(None), AtomicBool::new(false), AtomicU64::new(0));
    let worker: &'static Worker =
        Box::leak(Box::new(Worker { session, history, noted, quiet, next, timeout }));
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        worker.quiet.store(true, SeqCst);
    });
    thread::spawn(|| {
        let mut beats = Beats::begin();
        loop {
            worker.history.note(now(), "beat", beats.next());
            thread::sleep(Duration::from_micros(BEAT as u64));
        }
    });
    let mut random = fastrand::Rng::with_seed(seed);
    thread::scope(|scope| {
        for (thread, locks) in worker.locks(&name) {
            let random = random.fork();
            let named = thread::Builder::new().name(thread.clone());
            let act = move || Actor { worker, thread, random, former: VecDeque::new() }.act(&locks);
            named.spawn_scoped(scope, act).expect("a thread");
        }
    });
    let op = worker.number();
    // The close reaches a server within a second, or gives up.
    let within = Some(1_000_000);
    worker.history.note(
        now(),
        "main",
        Note::Ask { op, lock: "/session".to_owned(), mode: None, within, timeout: 0 },
    );
    let timed = Timed::begin();
    let closed = worker.session.close();
    worker.history.note(now(), "main", outcome(op, closed));
    if let Some(late) = timed.late(op, 1_000_000) {
        worker.history.note(now(), "main", late);
    }
    worker.history.note(now(), "main", Note::End);
    ExitCode::SUCCESS
}

/// The note for the end of a call that releases.
fn outcome(op: u64, result: Result<()>) -> Note {
    result.map_or_else(|e| failed(op, &e), |()| Note::Done { op })
}

fn failed(op: u64, e: &Error) -> Note {
    let error = match e {
        Error::Unavailable { .. } => Failure::Unavailable,
        Error::Lost { .. } => Failure::Lost,
        _ => Failure::Other,
    };
    Note::Failed { op, error, text: e.to_string() }
}

impl Worker {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    /// Notes the session, if it is another one than before.
    fn note_session(&self) {
        // The notes of several threads must come in the order of the sessions.
        let mut noted = self.noted.lock().expect("no thread panics with it");
        let session = self.session.status().session_id;
        if let Some(id) = session.filter(|_| *noted != session) {
            self.history.note(now(), "session", Note::Session { id });
            *noted = session;
        }
    }

    /// The threads, and the locks that each of them takes.
    fn locks(&self, name: &str) -> Vec<(String, Vec<Wanted>)> {
        let make = |recipe: Recipe, path: &str| {
            let mode = if recipe == Recipe::Read { Mode::Read } else { Mode::Write };
            let is_election = recipe == Recipe::Leader;
            Wanted {
                path: path.to_owned(),
                mode,
                is_election,
                lock: recipe.make(&self.session, path),
            }
        };
        let mutex = |path: &str, lock| Wanted {
            path: path.to_owned(),
            mode: Mode::Write,
            is_election: false,
            lock,
        };
        let kept = |path: &str| mutex(path, kept(&self.session, path, KEEP));
        let bounded = |release_overdue| {
            let max_hold = Duration::from_micros(MAX_HOLD as u64);
            mutex(BOUNDED, bounded(&self.session, BOUNDED, max_hold, release_overdue))
        };
        let permits = |count| {
            let path = "/semaphore";
            let semaphore =
                ZkSemaphore::new(&self.session, path, PERMITS as u32).expect("a semaphore");
            let lock = Box::new(Several(semaphore, count));
            Wanted { path: path.to_owned(), mode: Mode::Permit, is_election: false, lock }
        };
        // No other process takes the first lock. Only the process that replaces this one after a
        // kill takes the second.
        let heirs = name.split_once('.').map_or(name, |(worker, _)| worker);
        let own = ["own", name, "heirs", heirs];
        let own = own.chunks(2).map(|path| make(Recipe::Mutex, &format!("/{}", path.join("-"))));
        let beside = make(Recipe::Write, &format!("{MULTI}-beside"));
        let rwlock =
            || [Recipe::Read, Recipe::Read, Recipe::Write].map(|recipe| make(recipe, "/rwlock"));
        let mut threads = vec![
            ("semaphore", vec![permits(1), permits(2)]),
            ("multi", vec![make(Recipe::Multi, MULTI), beside]),
            ("exclusive", vec![make(Recipe::Exclusive, "/exclusive")]),
            (history::Wait::ELECTION, vec![make(Recipe::Leader, "/election")]),
            ("keep", vec![kept("/keep")]),
            ("bounded", vec![bounded(false), bounded(true)]),
            ("own", own.collect()),
        ];
        // Two threads hand the lock to each other, or share it.
        for number in ["0", "1"] {
            threads.push((
                if number == "0" { "mutex-0" } else { "mutex-1" },
                vec![make(Recipe::Mutex, "/mutex")],
            ));
            threads.push((if number == "0" { "rwlock-0" } else { "rwlock-1" }, rwlock().into()));
        }
        threads.into_iter().map(|(thread, locks)| (thread.to_owned(), locks)).collect()
    }
}

impl Actor<'_> {
    /// Takes one of the locks again and again. Ends when it has got one after the last fault.
    fn act(&mut self, locks: &[Wanted]) {
        loop {
            let is_quiet = self.is_quiet();
            let wanted = &locks[self.random.usize(..locks.len())];
            if self.round(wanted, locks) && is_quiet {
                return;
            }
            self.look_back();
            let most = if self.thread == "keep" { 150 } else { 60 };
            thread::sleep(Duration::from_millis(self.random.u64(0..most)));
        }
    }

    fn is_quiet(&self) -> bool {
        self.worker.quiet.load(SeqCst)
    }

    fn note(&self, at: i64, note: Note) {
        self.worker.history.note(at, &self.thread, note);
    }

    /// One call, and the hold if it takes the lock; false if it does not.
    fn round(&mut self, wanted: &Wanted, locks: &[Wanted]) -> bool {
        let Some(mut section) = self.ask(wanted) else { return false };
        self.watch(&mut section);
        let reads = locks.iter().find(|lock| lock.mode == Mode::Read);
        if let Some(reads) = reads.filter(|_| wanted.mode == Mode::Write && self.random.bool()) {
            // A writer that downgrades without a gap.
            let reading = self.ask(reads);
            self.let_go(section);
            if let Some(mut reading) = reading {
                self.watch(&mut reading);
                self.let_go(reading);
            }
        } else {
            self.let_go(section);
        }
        true
    }

    fn ask<'l>(&mut self, wanted: &'l Wanted) -> Option<Section<'l>> {
        let step = self.worker.timeout / 6;
        let more = if wanted.is_election { step } else { Duration::ZERO };
        let op = self.worker.number();
        let way = if self.is_quiet() { 0 } else { self.random.u32(0..10) };
        let timeout = Duration::from_millis(self.random.u64(20..2_000));
        let (timed, bound) = (Timed::begin(), Cell::new(None));
        let ask = |within: Option<Duration>, timeout: Duration| {
            let within = within.map(|within| (within + more).as_micros() as i64);
            bound.set(within);
            let (lock, mode) = (wanted.path.clone(), Some(wanted.mode));
            let timeout = timeout.as_micros() as i64;
            self.note(now(), Note::Ask { op, lock, mode, within, timeout });
        };
        let result = match way {
            0..4 => {
                ask(None, Duration::ZERO);
                wanted.lock.lock().map(Some)
            }
            4..6 => {
                ask(Some(step), Duration::ZERO);
                wanted.lock.try_lock().optional()
            }
            _ => {
                ask(Some(timeout), timeout);
                wanted.lock.lock_timeout(timeout).optional()
            }
        };
        if let Some(late) = bound.get().and_then(|within| timed.late(op, within)) {
            self.note(now(), late);
        }
        self.worker.note_session();
        let guard = match result {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                self.note(now(), Note::Taken { op });
                return None;
            }
            Err(e) => {
                self.note(now(), failed(op, &e));
                return None;
            }
        };
        let mut over = None;
        let holds = guard.holds().into_iter().enumerate().map(|(member, held)| {
            let hold = self.worker.number();
            let (at, valid) = (now(), held.is_held());
            // The time is taken before. If it was taken afterwards, a stop in between would make
            // the lease look longer.
            let until = if valid { at + held.valid_for().as_micros() as i64 } else { at };
            // The second member of the multi-lock is a lock that it reads.
            let (lock, mode) = match member {
                1 if wanted.path == MULTI => (format!("{MULTI}-beside"), Mode::Read),
                _ => (wanted.path.clone(), wanted.mode),
            };
            over = (lock == BOUNDED).then_some(at + MAX_HOLD);
            let token = (held.fencing_token().zxid(), held.fencing_token().hand_overs());
            self.note(
                at,
                Note::Got { op, hold, lock, mode, token, until, node: held.path().to_owned() },
            );
            hold
        });
        let holds = holds.collect();
        Some(Section { wanted, guard, holds, over, is_watched: false })
    }

    /// Checks the guard for a while, mostly a short one, or until it is lost.
    fn watch(&mut self, section: &mut Section<'_>) {
        // Locks that no other thread takes can be held for long at no cost. The second thread of a
        // recipe often loses a hold that the first one had before it, or has beside it.
        let among = match &*self.thread {
            // Most of its holds come to their own end.
            "bounded" => 8,
            "own" => 20,
            "mutex-1" | "rwlock-1" => 40,
            _ => 100,
        };
        let longest = match self.random.u32(0..among) {
            _ if self.is_quiet() => 10,
            0..6 => self.worker.timeout.as_millis() as u64 * 3 / 2,
            6..20 => 100,
            _ => 10,
        };
        let length = Duration::from_millis(self.random.u64(0..=longest));
        // Without the signal, the library does not watch a node that is held so briefly.
        section.is_watched = longest > 10 || self.random.bool();
        if !section.is_watched {
            return thread::sleep(length);
        }
        let end = Instant::now() + length;
        let holds = section.guard.holds();
        let watched = section.holds.iter().zip(holds).map(|(hold, held)| Watched::new(*hold, held));
        let mut watched: Vec<_> = watched.collect();
        let first = self.worker.session.status().session_id;
        // Such a thread waits for the signal, and makes no call by which the library would notice
        // the loss. A hold that is valid now belongs to the session that was read before.
        let waits = self.random.bool() && watched.iter().all(|one| one.held.is_held());
        if let (true, Some(over), [one]) = (waits, section.over, &watched[..]) {
            return self.sleep_until_told(one, over, length);
        }
        loop {
            for one in &mut watched {
                let found = if waits { one.wait(&self.worker.session, first) } else { one.ask() };
                match found {
                    Found::Held(at, until) => {
                        if at > one.noted + REPORT || until > one.until + REPORT {
                            self.note(at, Note::Held { hold: one.hold, until });
                            (one.noted, one.until) = (at, until);
                        }
                    }
                    Found::Unknown => {}
                    Found::Void => return self.hear(one),
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK));
        }
    }

    /// A guard is void, so its signal must come.
    fn hear(&self, one: &Watched<'_>) {
        let timed = Timed::begin();
        self.note(now(), Note::Void { hold: one.hold });
        let told = one.wait_for_signal(SIGNAL_LIMIT);
        self.note_told(one, told, now(), timed.spent());
    }

    /// Sleeps for this time, or until the signal comes, without any look at the hold: only the
    /// library's own timer can end it. It is void at the time `over`, when its `max_hold` has
    /// passed.
    fn sleep_until_told(&self, one: &Watched<'_>, over: i64, length: Duration) {
        let timed = Timed::begin();
        let left = Duration::from_micros((over - now()).max(0) as u64);
        let is_due = length >= left;
        let told =
            if is_due { one.wait_for_signal(left + SIGNAL_LIMIT) } else { one.signal.wait(length) };
        let (at, begun) = (now(), Instant::now());
        if told.is_none() && !is_due {
            return;
        }
        self.note(at.min(over), Note::Void { hold: one.hold });
        let late = Duration::from_micros((at - over).max(0) as u64);
        let control = control::kept_since(begun - late).as_micros() as i64;
        self.note_told(one, told, at, Spent { control, ..timed.spent() });
    }

    fn note_told(&self, one: &Watched<'_>, told: Option<LossReason>, at: i64, spent: Spent) {
        if let Some(reason) = told {
            let reason = format!("{reason:?}");
            self.note(at, Note::Lost { hold: one.hold, spent, reason });
        }
        if one.held.is_held() {
            self.note(now(), Note::Revived { hold: one.hold });
        }
    }

    fn let_go(&mut self, section: Section<'_>) {
        let Section { wanted, guard, holds, is_watched, .. } = section;
        for (hold, held) in holds.iter().zip(guard.holds()) {
            if is_watched && !wanted.is_election {
                self.former.push_back((*hold, held.lost()));
            }
            let at = now();
            if held.is_held() {
                let until = at + held.valid_for().as_micros() as i64;
                self.note(at, Note::Held { hold: *hold, until });
            }
        }
        let op = self.worker.number();
        let within = self.worker.timeout / 6 * holds.len() as u32;
        let within = Some(within.as_micros() as i64);
        let lock = wanted.path.clone();
        self.note(now(), Note::Ask { op, lock, mode: None, within, timeout: 0 });
        holds.iter().for_each(|hold| self.note(now(), Note::Free { hold: *hold }));
        let timed = Timed::begin();
        let result = if self.random.bool() {
            guard.unlock()
        } else {
            drop(guard);
            Ok(())
        };
        let at = now();
        holds
            .iter()
            .for_each(|hold| self.note(at, Note::Freed { hold: *hold, held: result.is_ok() }));
        self.note(at, outcome(op, result));
        if let Some(late) = within.and_then(|within| timed.late(op, within)) {
            self.note(now(), late);
        }
        while self.former.len() > FORMER {
            self.former.pop_front();
        }
    }

    /// Checks that no released guard is ever lost.
    fn look_back(&mut self) {
        let (worker, thread) = (self.worker, &self.thread);
        self.former.retain(|(hold, signal)| {
            let late = is_ready(signal);
            if late {
                worker.history.note(now(), thread, Note::Late { hold: *hold });
            }
            !late
        });
    }
}

fn is_ready(signal: &LostSignal) -> bool {
    signal.receiver().try_recv() == Err(TryRecvError::Disconnected)
}

/// A hold that a thread checks.
struct Watched<'g> {
    hold: u64,
    held: &'g Held,
    signal: LostSignal,
    /// The last note about it.
    noted: i64,
    until: i64,
}

enum Found {
    /// Valid at this time, with a lease until that time.
    Held(i64, i64),
    Unknown,
    Void,
}

impl<'g> Watched<'g> {
    fn new(hold: u64, held: &'g Held) -> Watched<'g> {
        Watched { hold, held, signal: held.lost(), noted: 0, until: 0 }
    }

    /// Waits for a signal that is due within this time. A process that was stopped for longer finds
    /// the time over before the library's thread has looked at its clock, so it waits once more.
    fn wait_for_signal(&self, limit: Duration) -> Option<LossReason> {
        self.signal.wait(limit).or_else(|| self.signal.wait(SIGNAL_LIMIT))
    }

    /// Checks the guard.
    fn ask(&self) -> Found {
        let at = now();
        if is_ready(&self.signal) || !self.held.is_held() {
            return Found::Void;
        }
        Found::Held(at, at + self.held.valid_for().as_micros() as i64)
    }

    /// Checks the signal, and the lease of the session `first`, to which the hold belongs.
    fn wait(&self, session: &ZkSession, first: Option<i64>) -> Found {
        let at = now();
        if is_ready(&self.signal) {
            return Found::Void;
        }
        let before = session.status().session_id;
        let left = session.status().lease_remaining;
        match session.status().session_id {
            id if id != first || before != first => Found::Unknown,
            _ if left.is_zero() => Found::Void,
            _ => Found::Held(at, at + left.as_micros() as i64),
        }
    }
}

/// So many permits at once.
struct Several(ZkSemaphore, u32);

impl Lockable for Several {
    fn lock(&self) -> Result<Guard<'_>> {
        Ok(Box::new(self.0.acquire_many(self.1)?))
    }

    fn try_lock(&self) -> Result<Guard<'_>> {
        self.lock_timeout(Duration::ZERO)
    }

    fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_>> {
        self.lock_with(Wait::timeout(timeout))
    }

    fn lock_with(&self, wait: Wait) -> Result<Guard<'_>> {
        Ok(Box::new(self.0.acquire_many_with(self.1, wait)?))
    }

    fn contenders(&self) -> Result<Vec<Contender>> {
        self.0.holders()
    }
}
