//! The scheduler: it chooses the thread that runs, moves the clock, and ends the run.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use generator::{Generator, Gn};

use crate::chance::{self, Rng};
use crate::net::Net;
use crate::process::{Process, ProcessId};
use crate::steps::{Awaited, Touch};
use crate::trace::{Op, Trace};

/// The virtual time of one scheduling point, in nanoseconds.
const STEP: u64 = 1_000;

/// The stack of a simulated thread, in machine words. Only the used part takes memory.
const STACK: usize = 0x1_0000;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// All random choices are made from this seed.
    pub seed: u64,
    /// The run ends at this time of the virtual clock.
    pub time_limit: Duration,
    /// Whether a panic on a simulated thread is a failure of the run.
    pub panics_fail: bool,
    /// How long, in real time, a thread may run without a scheduling point.
    pub watchdog: Option<Duration>,
    /// Prints each step to the standard error as it happens.
    pub verbose: bool,
    /// For each of these texts, the lines of the trace that contain it are counted.
    pub count: Vec<String>,
    /// How threads take turns. By default the seed chooses the policy, too.
    pub policy: Option<Policy>,
}

impl Config {
    /// The usual settings, with this seed.
    pub fn seed(seed: u64) -> Config {
        Config {
            seed,
            time_limit: Duration::from_secs(3600),
            panics_fail: true,
            watchdog: Some(Duration::from_secs(20)),
            verbose: false,
            count: Vec::new(),
            policy: None,
        }
    }
}

/// How threads take turns.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// After how many steps, on average, another thread may be chosen.
    pub run_length: u32,
    /// At one in so many choices a thread loses the processor for a while; 0 is never.
    pub preempt_one_in: u32,
    /// The longest time without the processor.
    pub longest_preemption: Duration,
}

impl Policy {
    fn random(rng: &mut Rng) -> Policy {
        let pick = |rng: &mut Rng, of: &[u32]| of[rng.usize(..of.len())];
        Policy {
            run_length: pick(rng, &[1, 2, 5, 20, 100]),
            preempt_one_in: pick(rng, &[0, 30, 300, 3_000]),
            longest_preemption: Duration::from_micros(pick(rng, &[50, 1_000, 20_000]).into()),
        }
    }
}

/// A failure of a run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The short name of the check that failed.
    pub kind: String,
    /// A description of the failure.
    pub text: String,
    /// The virtual time of the failure.
    pub at: Duration,
    /// The step of the failure.
    pub step: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?} (step {}): {}", self.kind, self.at, self.step, self.text)
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// The number of scheduling points.
    pub steps: u64,
    /// The number of times that another thread was chosen.
    pub switches: u64,
    /// The virtual clock at the end.
    pub time: Duration,
    /// A hash over all steps. Two runs with the same hash had the same steps.
    pub hash: u64,
    /// The failures; the first one ended the run.
    pub failures: Vec<Failure>,
    /// For each text of [`Config::count`], the number of lines that contain it.
    pub counted: Vec<(String, u64)>,
    /// The last steps and notes of the run.
    pub trace: Vec<String>,
    /// Each thread, with the object that it waits for.
    pub threads: Vec<String>,
}

pub(crate) type Tid = usize;

type Coroutine = Generator<'static, (), ()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runnable,
    Blocked,
    Finished,
}

pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) process: ProcessId,
    pub(crate) state: State,
    /// The number of its waits. It shows that a timer belongs to an earlier wait.
    wait: u64,
    /// The end of its wait, on its process's clock.
    deadline: Option<u64>,
    has_timed_out: bool,
    /// How often the thread has lost the processor, and has not got it back.
    preemptions: u32,
    waits_for: (&'static str, u64),
    /// See `thread::spawn_own`.
    pub(crate) is_own: bool,
    /// See `steps::call_begins`.
    pub(crate) is_in_call: bool,
}

enum Act {
    /// The deadline of a thread's wait.
    Timer {
        thread: Tid,
        wait: u64,
    },
    /// A preempted thread has the processor again.
    Regain(Tid),
    Call(Box<dyn FnOnce()>),
}

struct Event {
    at: u64,
    sequence: u64,
    act: Act,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The state that the watchdog reads. The watchdog is another thread of the operating system.
#[derive(Default)]
struct Board {
    step: AtomicU64,
    threads: parking_lot::Mutex<Vec<(String, State, &'static str, u64)>>,
    current: AtomicU64,
    is_over: parking_lot::Mutex<bool>,
    over: parking_lot::Condvar,
}

pub(crate) struct Sim {
    config: Config,
    policy: Policy,
    pub(crate) now: Cell<u64>,
    step: Cell<u64>,
    switches: Cell<u64>,
    /// The running thread; none while the world acts.
    current: Cell<Option<Tid>>,
    /// The number of steps until another thread may be chosen.
    run_left: Cell<u32>,
    next_event: Cell<u64>,
    sequence: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Event>>>,
    pub(crate) threads: RefCell<Vec<Thread>>,
    coroutines: RefCell<Vec<Option<Coroutine>>>,
    /// The threads that can run now: neither stopped nor preempted.
    runnable: RefCell<Vec<Tid>>,
    pub(crate) processes: RefCell<Vec<Process>>,
    /// The acts that wait for a step of a process.
    pub(crate) awaited: RefCell<Vec<Awaited>>,
    schedule_rng: RefCell<Rng>,
    pub(crate) library_rng: RefCell<Rng>,
    pub(crate) net_rng: RefCell<Rng>,
    world_rng: RefCell<Rng>,
    pub(crate) net: RefCell<Net>,
    pub(crate) trace: RefCell<Trace>,
    failures: RefCell<Vec<Failure>>,
    is_over: Cell<bool>,
    next_object: Cell<u64>,
    observer: RefCell<Option<Box<dyn FnMut()>>>,
    board: Arc<Board>,
}

thread_local! {
    static SIM: RefCell<Option<Rc<Sim>>> = const { RefCell::new(None) };
}

/// Calls `f` with the run of this thread of the operating system.
pub(crate) fn with<T>(f: impl FnOnce(&Sim) -> T) -> T {
    try_with(f).expect("used outside a simulation")
}

/// As `with`, but `None` outside a run: values may be dropped after it.
pub(crate) fn try_with<T>(f: impl FnOnce(&Sim) -> T) -> Option<T> {
    let sim = SIM.with(|sim| sim.borrow().clone())?;
    Some(f(&sim))
}

/// Runs a simulation: `setup` makes its processes and the rest of its world. The run then goes on
/// until its end.
///
/// There is one run at a time on each thread of the operating system. The memory of killed
/// processes is leaked.
pub fn run(config: Config, setup: impl FnOnce()) -> Report {
    catch_panics();
    let sim = Rc::new(Sim::new(config));
    let before = SIM.with(|current| current.replace(Some(sim.clone())));
    assert!(before.is_none(), "a simulation inside a simulation");
    let watchdog =
        sim.config.watchdog.map(|limit| watch(sim.board.clone(), sim.config.seed, limit));
    setup();
    sim.drive();
    *sim.board.is_over.lock() = true;
    sim.board.over.notify_all();
    SIM.with(|current| current.replace(None));
    watchdog.into_iter().for_each(|watchdog| drop(watchdog.join()));
    let report = sim.report();
    std::mem::forget(sim); // unwinding the stacks in it would run their threads again
    report
}

impl Sim {
    fn new(config: Config) -> Sim {
        let mut schedule_rng = chance::stream(config.seed, 1);
        let policy = config.policy.unwrap_or_else(|| Policy::random(&mut schedule_rng));
        Sim {
            policy,
            now: Cell::new(0),
            step: Cell::new(0),
            switches: Cell::new(0),
            current: Cell::new(None),
            run_left: Cell::new(1),
            next_event: Cell::new(u64::MAX),
            sequence: Cell::new(0),
            queue: RefCell::default(),
            threads: RefCell::default(),
            coroutines: RefCell::default(),
            runnable: RefCell::default(),
            processes: RefCell::default(),
            awaited: RefCell::default(),
            schedule_rng: RefCell::new(schedule_rng),
            library_rng: RefCell::new(chance::stream(config.seed, 2)),
            net_rng: RefCell::new(chance::stream(config.seed, 3)),
            world_rng: RefCell::new(chance::stream(config.seed, 4)),
            net: RefCell::default(),
            trace: RefCell::new(Trace::new(config.verbose, config.count.clone())),
            failures: RefCell::default(),
            is_over: Cell::new(false),
            next_object: Cell::new(1),
            observer: RefCell::new(None),
            board: Arc::default(),
            config,
        }
    }

    // ---- actions of the running thread ----

    /// A scheduling point: another thread may be chosen here. While the world acts, this does
    /// nothing.
    pub(crate) fn point(&self, op: Op, object: u64) {
        let Some(thread) = self.current.get() else { return };
        self.step.set(self.step.get() + 1);
        self.now.set(self.now.get() + STEP);
        self.board.step.store(self.step.get(), Ordering::Relaxed);
        self.record(thread, op, object);
        self.observe();
        if std::thread::panicking() {
            return; // a thread that unwinds is not interrupted
        }
        let left = self.run_left.get() - 1;
        self.run_left.set(left);
        let is_awaited = !self.awaited.borrow().is_empty() && self.reach(thread, op);
        let has_time = left > 0 && self.now.get() < self.next_event.get();
        if has_time && !is_awaited && !self.is_over.get() {
            return;
        }
        if left == 0 {
            self.maybe_preempt(thread);
        }
        self.give_way();
    }

    fn record(&self, thread: Tid, op: Op, object: u64) {
        self.trace.borrow_mut().record(self.step.get(), self.now.get(), thread, op, object);
    }

    pub(crate) fn note(&self, text: &str) {
        self.trace.borrow_mut().note(self.step.get(), self.now.get(), self.current.get(), text);
    }

    fn observe(&self) {
        if let Ok(mut observer) = self.observer.try_borrow_mut()
            && let Some(observer) = &mut *observer
        {
            self.act(observer);
        }
    }

    /// Runs this as a part of the world, without a step of the running thread.
    pub(crate) fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        let current = self.current.take();
        let value = act();
        self.current.set(current);
        value
    }

    fn maybe_preempt(&self, thread: Tid) {
        let mut rng = self.schedule_rng.borrow_mut();
        self.run_left.set(rng.u32(1..=self.policy.run_length.saturating_mul(2).max(2) - 1));
        let one_in = self.policy.preempt_one_in;
        if one_in == 0 || rng.u32(..one_in) != 0 {
            return;
        }
        let longest = u64::try_from(self.policy.longest_preemption.as_nanos()).unwrap_or(u64::MAX);
        let pause = chance::log_uniform(&mut rng, 2 * STEP, longest);
        drop(rng);
        self.preempt(thread, pause);
    }

    /// Takes the processor from the thread for this time.
    pub(crate) fn preempt(&self, thread: Tid, pause: u64) {
        self.threads.borrow_mut()[thread].preemptions += 1;
        self.unlist(thread);
        self.record(thread, Op::Preempted, pause);
        self.put(self.now.get().saturating_add(pause), Act::Regain(thread));
    }

    /// Switches to the scheduler. It returns when the scheduler chooses this thread again.
    // the form with a scope cannot be called from below the thread's first function
    #[allow(deprecated)]
    fn give_way(&self) {
        generator::yield_with(());
    }

    /// Waits until `wake` names this thread, or until its process's clock shows `deadline`. Returns
    /// true at the deadline.
    pub(crate) fn block(&self, what: &'static str, object: u64, deadline: Option<u64>) -> bool {
        let Some(current) = self.current.get() else {
            panic!("the world must not block: {what} {object}");
        };
        let timer = {
            let mut threads = self.threads.borrow_mut();
            let thread = &mut threads[current];
            thread.state = State::Blocked;
            thread.wait += 1;
            (thread.deadline, thread.has_timed_out) = (deadline, false);
            thread.waits_for = (what, object);
            deadline.map(|at| {
                (self.processes.borrow()[thread.process.0].clock.global_at(at), thread.wait)
            })
        };
        self.pin(current, State::Blocked, what, object);
        self.unlist(current);
        self.record(current, Op::Block, object);
        if let Some((at, wait)) = timer {
            self.put(at, Act::Timer { thread: current, wait });
        }
        self.give_way();
        let Thread { has_timed_out, is_in_call, .. } = self.threads.borrow()[current];
        if is_in_call {
            self.marks(if has_timed_out { Touch::TimedOut } else { Touch::Woken });
        }
        has_timed_out
    }

    fn pin(&self, thread: Tid, state: State, what: &'static str, object: u64) {
        if let Some(line) = self.board.threads.lock().get_mut(thread) {
            (line.1, line.2, line.3) = (state, what, object);
        }
    }

    /// Ends the thread at once: it never runs again.
    pub(crate) fn vanish(&self) -> ! {
        loop {
            self.give_way();
        }
    }

    pub(crate) fn current(&self) -> Option<Tid> {
        self.current.get()
    }

    pub(crate) fn current_process(&self) -> Option<ProcessId> {
        self.current.get().map(|thread| self.threads.borrow()[thread].process)
    }

    // ---- making threads runnable ----

    /// Ends the wait of the thread, if it waits.
    pub(crate) fn wake(&self, thread: Tid) {
        let mut threads = self.threads.borrow_mut();
        let waiting = &mut threads[thread];
        if waiting.state != State::Blocked {
            return;
        }
        waiting.state = State::Runnable;
        waiting.deadline = None;
        drop(threads);
        self.pin(thread, State::Runnable, "", 0);
        self.list(thread);
    }

    pub(crate) fn wake_all(&self, threads: &[Tid]) {
        threads.iter().for_each(|thread| self.wake(*thread));
    }

    /// Adds the thread to those that can be chosen, if it is not stopped and not preempted.
    pub(crate) fn list(&self, thread: Tid) {
        let threads = self.threads.borrow();
        let Thread { state, process, preemptions, .. } = &threads[thread];
        let has_processor = *preemptions == 0 && self.processes.borrow()[process.0].runs();
        if *state == State::Runnable && has_processor {
            let mut runnable = self.runnable.borrow_mut();
            if !runnable.contains(&thread) {
                runnable.push(thread);
            }
        }
    }

    pub(crate) fn unlist(&self, thread: Tid) {
        self.runnable.borrow_mut().retain(|other| *other != thread);
    }

    pub(crate) fn threads_of(&self, process: ProcessId) -> Vec<Tid> {
        let threads = self.threads.borrow();
        (0..threads.len()).filter(|thread| threads[*thread].process == process).collect()
    }

    /// Sets new timers after the process's clock was set: its threads wait until other times of the
    /// world.
    pub(crate) fn set_timers_again(&self, process: ProcessId) {
        for thread in self.threads_of(process) {
            self.set_timer(thread);
        }
    }

    fn set_timer(&self, thread: Tid) {
        let threads = self.threads.borrow();
        let Thread { state: State::Blocked, deadline: Some(deadline), process, wait, .. } =
            threads[thread]
        else {
            return;
        };
        drop(threads);
        let at = self.processes.borrow()[process.0].clock.global_at(deadline);
        self.put(at.max(self.now.get()), Act::Timer { thread, wait });
    }

    pub(crate) fn start(
        &self,
        name: String,
        process: ProcessId,
        body: Box<dyn FnOnce() + Send>,
    ) -> Tid {
        let mut threads = self.threads.borrow_mut();
        let thread = threads.len();
        self.board.threads.lock().push((name.clone(), State::Runnable, "", 0));
        threads.push(Thread {
            name,
            process,
            state: State::Runnable,
            wait: 0,
            deadline: None,
            has_timed_out: false,
            preemptions: 0,
            waits_for: ("", 0),
            is_own: false,
            is_in_call: false,
        });
        drop(threads);
        let mut body = Some(AssertUnwindSafe(body));
        self.coroutines.borrow_mut().push(Some(Gn::new_opt(STACK, move || {
            if let Some(body) = body.take() {
                // The hook has reported the panic, and `body` has kept it for the thread that
                // joins.
                let _ = catch_unwind(AssertUnwindSafe(|| (body.0)()));
            }
        })));
        self.list(thread);
        thread
    }

    pub(crate) fn new_object(&self) -> u64 {
        let object = self.next_object.get();
        self.next_object.set(object + 1);
        object
    }

    fn put(&self, at: u64, act: Act) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.queue.borrow_mut().push(Reverse(Event { at, sequence, act }));
        self.next_event.set(self.next_event.get().min(at));
    }

    pub(crate) fn call_at(&self, at: u64, act: impl FnOnce() + 'static) {
        self.put(at.max(self.now.get()), Act::Call(Box::new(act)));
    }

    // ---- the main loop ----

    fn drive(&self) {
        let limit = u64::try_from(self.config.time_limit.as_nanos()).unwrap_or(u64::MAX);
        while !self.is_over.get() {
            if let Some(act) = self.take_due() {
                self.perform(act);
                continue;
            }
            if self.now.get() >= limit {
                return;
            }
            let next = {
                let runnable = self.runnable.borrow();
                let at = |rng: &mut Rng| {
                    if runnable.len() > 1 { rng.usize(..runnable.len()) } else { 0 }
                };
                runnable.get(at(&mut self.schedule_rng.borrow_mut())).copied()
            };
            match next {
                Some(thread) => self.resume(thread),
                None if self.next_event.get() == u64::MAX => {
                    self.fail("deadlock", "no thread can run, and nothing will happen".to_owned());
                }
                None => self.now.set(self.next_event.get().min(limit)),
            }
        }
    }

    fn take_due(&self) -> Option<Act> {
        if self.now.get() < self.next_event.get() {
            return None;
        }
        let mut queue = self.queue.borrow_mut();
        let due = queue.peek().is_some_and(|event| event.0.at <= self.now.get());
        let act = if due { queue.pop().map(|event| event.0.act) } else { None };
        self.next_event.set(queue.peek().map_or(u64::MAX, |event| event.0.at));
        act
    }

    fn perform(&self, act: Act) {
        match act {
            Act::Timer { thread, wait } => {
                let mut threads = self.threads.borrow_mut();
                let Thread { state, deadline, process, wait: current, has_timed_out, .. } =
                    &mut threads[thread];
                let (State::Blocked, Some(deadline), true) = (*state, *deadline, wait == *current)
                else {
                    return;
                };
                let is_due =
                    self.processes.borrow()[process.0].clock.monotonic(self.now.get()) >= deadline;
                *has_timed_out = is_due;
                drop(threads);
                if is_due { self.wake(thread) } else { self.set_timer(thread) }
            }
            Act::Regain(thread) => {
                self.threads.borrow_mut()[thread].preemptions -= 1;
                self.list(thread);
            }
            Act::Call(act) => act(),
        }
    }

    fn resume(&self, thread: Tid) {
        let coroutine = self.coroutines.borrow_mut()[thread].take();
        let Some(mut coroutine) = coroutine else { return };
        self.switches.set(self.switches.get() + 1);
        self.board.current.store(thread as u64, Ordering::Relaxed);
        self.current.set(Some(thread));
        coroutine.resume();
        self.current.set(None);
        if coroutine.is_done() {
            self.threads.borrow_mut()[thread].state = State::Finished;
            self.pin(thread, State::Finished, "", 0);
            self.unlist(thread);
        } else {
            self.coroutines.borrow_mut()[thread] = Some(coroutine);
        }
    }

    pub(crate) fn fail(&self, kind: &str, text: String) {
        let failure = Failure {
            kind: kind.to_owned(),
            text,
            at: Duration::from_nanos(self.now.get()),
            step: self.step.get(),
        };
        self.failures.borrow_mut().push(failure);
        self.is_over.set(true);
    }

    fn report(&self) -> Report {
        let trace = self.trace.borrow();
        let threads = self.threads.borrow();
        let processes = self.processes.borrow();
        Report {
            seed: self.config.seed,
            steps: self.step.get(),
            switches: self.switches.get(),
            time: Duration::from_nanos(self.now.get()),
            hash: trace.hash(),
            failures: self.failures.borrow().clone(),
            counted: trace.counted().to_vec(),
            trace: trace.lines(|thread| {
                let Thread { name, process, .. } = &threads[thread];
                format!("{}/{name}", processes[process.0].name)
            }),
            threads: threads
                .iter()
                .map(
                    |Thread {
                         name,
                         process,
                         state,
                         waits_for: (what, object),
                         preemptions,
                         ..
                     }| {
                        let process = &processes[process.0];
                        let state = match state {
                            State::Blocked => format!("waits for {what} {object}"),
                            State::Runnable if *preemptions > 0 => "has no processor".to_owned(),
                            State::Runnable => "can run".to_owned(),
                            State::Finished => "has ended".to_owned(),
                        };
                        format!("{}/{name}: {state}{}", process.name, process.describe())
                    },
                )
                .collect(),
        }
    }
}

// ---- interface for the makers of a world ----

/// The time since the run began, which is on no process's clock.
pub fn now() -> Duration {
    with(|sim| Duration::from_nanos(sim.now.get()))
}

/// Calls `act` after this pause. It runs between two steps of the threads and must not block.
pub fn after(pause: Duration, act: impl FnOnce() + 'static) {
    at(now() + pause, act);
}

/// Calls `act` at that time, or at once if the time has passed.
pub fn at(time: Duration, act: impl FnOnce() + 'static) {
    with(|sim| sim.call_at(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), act));
}

/// Random numbers for the makers of the world, for example to choose faults.
pub fn rng<T>(draw: impl FnOnce(&mut Rng) -> T) -> T {
    with(|sim| draw(&mut sim.world_rng.borrow_mut()))
}

/// Runs `act` as a part of the world: between two steps of the threads, without a step of its own.
/// It must not wait for anything that a simulated thread may hold. Observers use this when a thread
/// reports something to them.
pub fn as_world<T>(act: impl FnOnce() -> T) -> T {
    let Some(sim) = SIM.with(|sim| sim.borrow().clone()) else { return act() };
    sim.act(act)
}

/// Calls `observer` at every scheduling point, after the step. It must be quick and must not block.
pub fn on_step(observer: impl FnMut() + 'static) {
    with(|sim| *sim.observer.borrow_mut() = Some(Box::new(observer)));
}

/// Ends the run. It is a success unless a failure was reported before.
pub fn finish() {
    with(|sim| sim.is_over.set(true));
}

/// Reports a failure, which ends the run.
pub fn fail(kind: &str, text: impl Into<String>) {
    with(|sim| sim.fail(kind, text.into()));
}

/// Whether the caller is inside a run.
pub fn is_running() -> bool {
    SIM.with(|sim| sim.borrow().is_some())
}

/// The number of steps and of thread switches so far.
pub fn stats() -> (u64, u64) {
    with(|sim| (sim.step.get(), sim.switches.get()))
}

/// A scheduling point of the calling thread.
pub(crate) fn point(op: Op, object: u64) {
    try_with(|sim| sim.point(op, object));
}

pub(crate) fn new_object() -> u64 {
    try_with(Sim::new_object).unwrap_or(0)
}

/// Reports panics of simulated threads with the threads' names, and lets the run fail.
fn catch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let told = SIM.with(|sim| {
                let sim = sim.try_borrow().ok()?.clone()?;
                let thread = sim.current.get()?;
                let name = sim.threads.try_borrow().ok()?[thread].name.clone();
                let text = format!("{name}: {info}");
                sim.trace.try_borrow_mut().ok()?.note(
                    sim.step.get(),
                    sim.now.get(),
                    Some(thread),
                    &text,
                );
                if sim.config.panics_fail {
                    sim.failures.try_borrow().ok()?;
                    sim.fail("panic", text);
                }
                Some(())
            });
            if told.is_none() {
                before(info);
            }
        }));
    });
}

/// Ends the process of the operating system if there is no scheduling point for this time in real
/// time.
fn watch(board: Arc<Board>, seed: u64, limit: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut last = None;
        loop {
            let mut is_over = board.is_over.lock();
            if !*is_over {
                board.over.wait_for(&mut is_over, limit);
            }
            if *is_over {
                return;
            }
            let step = board.step.load(Ordering::Relaxed);
            if last.replace(step) != Some(step) {
                continue;
            }
            eprintln!(
                "seed {seed}: no scheduling point since step {step}, for {limit:?} of real time"
            );
            let running = board.current.load(Ordering::Relaxed);
            for (number, (name, state, what, object)) in board.threads.lock().iter().enumerate() {
                let mark = if number as u64 == running { "  <- runs" } else { "" };
                eprintln!("  {name}: {state:?} {what} {object}{mark}");
            }
            std::process::exit(3);
        }
    })
}
