//! The storm: processes of the library on real servers under real faults. Their histories are
//! checked afterwards.
//!
//! `tests/storm` runs it for a given time; the suite plays a short one. The workers (`worker.rs`)
//! are processes that take locks of all recipes and note what they observe (`history.rs`). The
//! program injects the faults of a plan (`plan.rs`): it kills and stops workers and servers, and
//! lets the proxies between them lose, delay and cut. In between are calms, in which calls must not
//! fail. At the end each thread takes its lock once more, the remaining nodes are listed, and the
//! checker (`checker.rs`) checks the histories.

mod beats;
mod checker;
mod history;
mod made_up;
mod plan;
pub mod program;
pub mod worker;

use crate::support::{Direction, Ensemble, Proxy, Raw, Scratch, Server, Test, raw, scenarios};
use beats::Beats;
use checker::{Judge, KINDS, Latest, Looked, Verdict};
use history::{BEAT, History, Note, PROGRAM, Spent, now};
use plan::{Next, Sequence, ServerFault, WorkerFault};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const WORKERS: usize = 5;
/// The sessions' paths are below this node.
const CHROOT: &str = "/storm";
/// After a storm of this length there is a calm of the same length, some time after the last fault.
const PHASE: Duration = Duration::from_secs(40);
const CALM: Duration = Duration::from_secs(3);
/// The pause between two requests of a client without the library.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a worker may take to take its locks once more and end. No call waits longer than 60 s
/// for a server.
const END: Duration = Duration::from_secs(90);

/// The settings of a storm.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub seed: u64,
    pub length: Duration,
    /// The number of servers.
    pub members: usize,
}

impl Settings {
    /// The session timeout of the workers. The lease on a single server assumes nothing about its
    /// pauses; the lease on an ensemble allows for pauses of its leader that are shorter than T/12.
    fn timeout(&self) -> Duration {
        Duration::from_secs(if self.members == 1 { 3 } else { 4 })
    }
}

/// The state that the sequences share.
struct Storm<'s> {
    settings: Settings,
    ensemble: &'s Ensemble,
    dir: &'s Path,
    history: History,
    barrier: Barrier,
}

/// Ends the process if its thread panics, because the other sequences would wait for this one for
/// ever.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// How the names begin of the servers' logs that are kept with the histories of a violation.
const LOG_OF_A_SERVER: &str = "log-of-server-";

/// Plays a storm, and leaves the histories in `dir`.
fn play(settings: Settings, dir: &Path) -> Verdict {
    let tick = Duration::from_millis(500);
    let builder = Server::real().tick(tick).min_session(tick * 2);
    let ensemble = Ensemble::start_with(settings.members, builder);
    let mut raw = Raw::connect(&ensemble.member(0).connect_string()).expect("a raw client");
    raw.mkdirs(CHROOT).expect("the chroot is made");
    drop(raw);
    let history = History::create(&dir.join(PROGRAM)).expect("the program's history");
    let barrier = Barrier::new(WORKERS + 1);
    let storm = Storm { settings, ensemble: &ensemble, dir, history, barrier };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut beats = Beats::begin();
            while !over.load(SeqCst) {
                storm.note(beats.next());
                thread::sleep(Duration::from_micros(BEAT as u64));
            }
        });
        let sequences: Vec<_> = (0..WORKERS)
            .map(|number| {
                let storm = &storm;
                scope.spawn(move || WorkerSequence::new(storm, number).run())
            })
            .collect();
        storm.run_servers();
        for sequence in sequences {
            sequence.join().expect("a sequence that panics ends the process");
        }
        over.store(true, SeqCst);
    });
    storm.list_nodes();
    let verdict = judge(dir);
    if !verdict.violations.is_empty() {
        for member in 0..ensemble.size() {
            let log = dir.join(format!("{LOG_OF_A_SERVER}{member}"));
            fs::write(log, ensemble.member(member).log()).expect("a server's log");
        }
    }
    verdict
}

/// Checks the histories in this directory.
fn judge(dir: &Path) -> Verdict {
    let mut judge = Judge::default();
    for entry in fs::read_dir(dir).expect("the histories") {
        let path = entry.expect("the histories").path();
        let name =
            path.file_name().and_then(|name| name.to_str()).expect("a history's name").to_owned();
        if name.starts_with(LOG_OF_A_SERVER) {
            continue;
        }
        judge.take(&name, &fs::read_to_string(&path).expect("a history"));
    }
    judge.verdict()
}

/// The line of JSON at the end. `about` is its beginning.
fn summary(about: &str, verdict: &Verdict) -> String {
    fn object<'m>(pairs: impl Iterator<Item = (&'m str, usize)>) -> String {
        let pairs: Vec<String> = pairs.map(|(key, count)| format!("\"{key}\":{count}")).collect();
        format!("{{{}}}", pairs.join(","))
    }
    fn map(map: &BTreeMap<String, usize>) -> String {
        object(map.iter().map(|(key, count)| (&**key, *count)))
    }
    fn late(of: &str, latest: Latest) -> String {
        let Latest { count, late, spent, asleep, at_best } = latest;
        let Spent { ran, runnable, control } = spent;
        let all = [
            ("ms", late),
            ("ran_ms", ran),
            ("runnable_ms", runnable),
            ("asleep_ms", asleep),
            ("control_ms", control),
        ];
        let all = all.map(|(name, micros)| (name, (micros / 1000).max(0) as usize));
        format!(
            "\"late_{of}\":{count},\"latest_of_{of}\":{},\"latest_of_{of}_at_best_ms\":{}",
            object(all.into_iter()),
            at_best / 1000
        )
    }
    let Verdict { violations, acquisitions, faults, lost, taken, unavailable, .. } = verdict;
    let Verdict { excused, deadlines, in_calms, bare, slow_bare, calls, signals, .. } = verdict;
    let looked = |of: &str, looked: &Looked| {
        let Looked { at, could_find } = looked;
        format!("\"{of}\":{at},\"{of}_that_could_be_found\":{could_find}")
    };
    let of_kind = |kind: &str| violations.iter().filter(|(found, _)| *found == kind).count();
    format!(
        "{{{about}\"faults\":{},\"faults_in_all\":{},\"acquisitions\":{},\"acquisitions_in_all\":{},\
         \"taken\":{taken},\"unavailable\":{unavailable},\"excused_in_calms\":{excused},\
         \"bare\":{bare},\"slow_bare\":{slow_bare},{},{},\"holds_lost\":{},{},{},\
         \"violations\":{},\"violations_in_all\":{}}}",
        map(faults),
        faults.values().sum::<usize>(),
        map(acquisitions),
        acquisitions.values().sum::<usize>(),
        looked("deadlines", deadlines),
        looked("calls_in_calms", in_calms),
        map(lost),
        late("calls", *calls),
        late("signals", *signals),
        object(KINDS.iter().map(|kind| (*kind, of_kind(kind)))),
        violations.len()
    )
}

impl Storm<'_> {
    fn note(&self, note: Note) {
        self.history.note(now(), "storm", note);
    }

    /// The number of storms that are followed by a calm.
    fn phases(&self) -> u32 {
        self.settings.length.div_duration_f64(PHASE).round().max(1.0) as u32
    }

    /// Sleeps for this time, but not beyond the end of the phase; false if the end was reached.
    fn sleep(&self, length: Duration, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        thread::sleep(length.min(left));
        length < left
    }

    /// Plays all phases of one sequence.
    fn phases_of(&self, mut next: impl FnMut(Instant) -> bool, calm: impl Fn(bool)) {
        for phase in 1..=self.phases() {
            let end = Instant::now() + self.settings.length / self.phases();
            while next(end) {}
            self.barrier.wait();
            calm(phase == self.phases());
            self.barrier.wait();
        }
    }

    /// The servers' sequence, which also announces the calms.
    fn run_servers(&self) {
        let _end_on_panic = EndOnPanic;
        let Settings { seed, members, .. } = self.settings;
        let timeout = self.settings.timeout();
        let mut sequence = Sequence::new(seed, WORKERS, timeout, members);
        let next = |end| {
            let Next { pause, fault, lasts, member } = sequence.next_of_servers();
            if !self.sleep(pause, end) {
                return false;
            }
            let member = member.unwrap_or_default();
            let (kind, target) = (fault.kind(), format!("server-{member}"));
            self.note(Note::Fault { kind: kind.to_owned(), target: target.clone() });
            self.inject_into_server(fault, member, lasts);
            self.note(Note::Healed { kind: kind.to_owned(), target });
            true
        };
        self.phases_of(next, |is_last| {
            // Sessions and connections recover meanwhile.
            thread::sleep(timeout + Duration::from_secs(1));
            let end = Instant::now() + CALM;
            self.note(Note::Calm { until: now() + CALM.as_micros() as i64 });
            thread::scope(|scope| {
                for member in 0..self.settings.members {
                    scope.spawn(move || self.ask_barely(member, end));
                }
            });
            if is_last {
                self.note(Note::Quiet);
            }
        });
    }

    /// Asks this server until `end` as a client without the library does, through a proxy as each
    /// worker has one.
    fn ask_barely(&self, member: usize, end: Instant) {
        let proxy = Proxy::start(self.ensemble.member(member).address());
        let ask = || {
            let mut raw = Raw::connect(&proxy.connect_string())?;
            raw.set_data(CHROOT, b"")?;
            raw.close_session()
        };
        while Instant::now() < end {
            let begun = now();
            let answered = ask().is_ok();
            self.note(Note::Bare { took: now() - begun, answered });
            thread::sleep(PAUSE);
        }
    }

    /// Begins a fault and ends it.
    fn inject_into_server(&self, fault: ServerFault, member: usize, lasts: Duration) {
        let server = self.ensemble.member(member);
        let others = (0..self.settings.members).filter(|other| *other != member);
        let ways = others.flat_map(|other| {
            [(self.ensemble.way(member, other), true), (self.ensemble.way(other, member), false)]
        });
        match fault {
            ServerFault::Kill => {
                server.kill();
                thread::sleep(lasts);
                server.restart();
            }
            ServerFault::Stop => {
                server.pause();
                thread::sleep(lasts);
                server.resume();
            }
            ServerFault::DiskFull => {
                self.ensemble.fill_disk(member);
                thread::sleep(lasts);
                server.restart();
            }
            ServerFault::RollingRestart => {
                (0..self.settings.members)
                    .for_each(|member| self.ensemble.member(member).restart());
            }
            ServerFault::StopAll => {
                let all = || (0..self.settings.members).map(|member| self.ensemble.member(member));
                all().for_each(Server::pause);
                thread::sleep(lasts);
                all().for_each(Server::resume);
            }
            ServerFault::KillAll => self.ensemble.restart_all(),
            ServerFault::Isolate(how) => {
                self.ensemble.isolate(member, how);
                thread::sleep(lasts);
                self.ensemble.heal(member);
            }
            ServerFault::OneWay(direction) => {
                let hold = |on| {
                    for (proxies, is_ours) in ways.clone() {
                        // The messages to the member, or those from it.
                        let direction = match (direction, is_ours) {
                            (direction, true) => direction,
                            (Direction::ToServer, false) => Direction::ToClient,
                            (Direction::ToClient, false) => Direction::ToServer,
                        };
                        proxies.iter().for_each(|proxy| proxy.hold(direction, on));
                    }
                };
                hold(true);
                thread::sleep(lasts);
                hold(false);
            }
            ServerFault::Delay(by) => {
                let delay = |by| {
                    ways.clone()
                        .for_each(|(proxies, _)| proxies.iter().for_each(|proxy| proxy.delay(by)))
                };
                delay(by);
                thread::sleep(lasts);
                delay(Duration::ZERO);
            }
        }
    }

    /// Notes the remaining nodes of locks. Sessions of killed workers expire meanwhile.
    fn list_nodes(&self) {
        let end = Instant::now() + self.settings.timeout() * 2 + Duration::from_secs(20);
        let left = loop {
            let is_last = Instant::now() >= end;
            match self.nodes() {
                Ok(left) if left.is_empty() || is_last => break left,
                Err(e) if is_last => panic!("no answer although there are no faults: {e}"),
                _ => thread::sleep(Duration::from_millis(100)),
            }
        };
        left.into_iter().for_each(|node| self.note(Note::Left { node }));
        self.note(Note::Listed);
    }

    /// All nodes below the chroot that are not folders.
    fn nodes(&self) -> raw::Result<Vec<String>> {
        let mut raw = Raw::connect(&self.ensemble.member(0).connect_string())?;
        raw.sync()?;
        let (mut folders, mut left) = (vec![CHROOT.to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for name in raw.children(&folder)? {
                let node = format!("{folder}/{name}");
                match raw.exists(&node)? {
                    Some(stat) if stat.ephemeral_owner != 0 || name.starts_with("_c_") => {
                        left.push(node)
                    }
                    Some(_) => folders.push(node),
                    None => {}
                }
            }
        }
        raw.close_session()?;
        Ok(left)
    }
}

/// The faults of one worker, whose process is started again after each kill.
struct WorkerSequence<'s> {
    storm: &'s Storm<'s>,
    sequence: Sequence,
    number: usize,
    /// The number of workers before this one.
    lives: u32,
    /// The proxies to the servers.
    ways: Vec<Proxy>,
    process: Child,
}

impl<'s> WorkerSequence<'s> {
    fn new(storm: &'s Storm<'s>, number: usize) -> WorkerSequence<'s> {
        let members = storm.settings.members;
        let mut sequence =
            Sequence::new(storm.settings.seed, number, storm.settings.timeout(), members);
        let ways: Vec<_> = (0..members)
            .map(|member| Proxy::start(storm.ensemble.member(member).address()))
            .collect();
        let process = start(storm, &format!("worker-{number}.0"), &ways, sequence.seed());
        WorkerSequence { storm, sequence, number, lives: 0, ways, process }
    }

    fn run(mut self) {
        let _end_on_panic = EndOnPanic;
        let storm = self.storm;
        storm.phases_of(|end| self.next(end), |_| {});
        let how = match self.finish() {
            Some(status) if status.success() => return,
            Some(status) => format!("ended with {status}"),
            None => format!("has not ended after {END:?}"),
        };
        storm.note(Note::Stuck { worker: self.name(), how });
    }

    fn name(&self) -> String {
        format!("worker-{}.{}", self.number, self.lives)
    }

    /// Begins the next fault and ends it; false if the phase ends before.
    fn next(&mut self, end: Instant) -> bool {
        let Next { pause, fault, lasts, member } = self.sequence.next_of_worker();
        if !self.storm.sleep(pause, end) {
            return false;
        }
        let (kind, worker) = (fault.kind().to_owned(), self.name());
        self.storm.note(Note::Fault { kind: kind.clone(), target: worker.clone() });
        let is_hit = |way: &usize| member.is_none_or(|member| member == *way);
        let set = |on| {
            (0..self.ways.len()).filter(is_hit).for_each(|way| set(&self.ways[way], fault, on))
        };
        match fault {
            WorkerFault::Stop => {
                self.signal(Signal::STOP);
                thread::sleep(lasts);
                self.signal(Signal::CONT);
            }
            WorkerFault::Kill => {
                let ended = self.kill();
                // A worker that had already ended by itself must be reported.
                if ended.signal() == Some(Signal::KILL.as_raw()) {
                    self.storm.note(Note::Killed { worker: worker.clone() });
                }
                thread::sleep(lasts);
                self.lives += 1;
                let seed = self.sequence.seed();
                self.process = start(self.storm, &self.name(), &self.ways, seed);
            }
            _ => {
                set(true);
                if !fault.is_over_at_once() {
                    thread::sleep(lasts);
                    set(false);
                }
            }
        }
        self.storm.note(Note::Healed { kind, target: worker });
        true
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        // The process is not waited for yet, so that no other process gets its id.
        kill_process(pid.expect("a process id"), signal).expect("the worker can be sent a signal");
    }

    fn kill(&mut self) -> ExitStatus {
        self.process.kill().and_then(|()| self.process.wait()).expect("the worker can be killed")
    }

    /// Lets the worker end; None if it does not.
    fn finish(&mut self) -> Option<ExitStatus> {
        drop(self.process.stdin.take());
        let end = Instant::now() + END;
        while Instant::now() < end {
            if let Some(status) = self.process.try_wait().expect("the worker can be waited for") {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.kill();
        None
    }
}

/// Starts a worker that reaches the servers through these proxies.
fn start(storm: &Storm<'_>, name: &str, ways: &[Proxy], seed: u64) -> Child {
    let hosts: Vec<String> = ways.iter().map(Proxy::connect_string).collect();
    Command::new(env::current_exe().expect("our own file"))
        .args([worker::NAME, &format!("{}{CHROOT}", hosts.join(","))])
        .arg(storm.dir.join(name))
        .args([seed.to_string(), storm.settings.timeout().as_millis().to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a worker starts")
}

/// Begins or ends a fault of one proxy.
fn set(way: &Proxy, fault: WorkerFault, on: bool) {
    match fault {
        WorkerFault::Cut => way.cut(),
        WorkerFault::Refuse => {
            way.refuse(on);
            way.cut();
        }
        WorkerFault::Hole => way.black_hole(on),
        WorkerFault::OneWay(direction) => way.hold(direction, on),
        WorkerFault::Freeze => way.freeze(),
        WorkerFault::HalfOpen => way.half_open(),
        WorkerFault::Delay(by) => way.delay(if on { by } else { Duration::ZERO }),
        WorkerFault::LostReply(kind) if on => way.drop_reply(kind),
        WorkerFault::LostRequest(kind) if on => way.drop_request(kind),
        WorkerFault::LostReply(_) | WorkerFault::LostRequest(_) => way.forget_plans(),
        WorkerFault::Stop | WorkerFault::Kill => unreachable!("a fault of the process"),
    }
}

/// `tests/storm` runs this scenario with other settings.
fn processes_under_faults_are_not_seen_to_break_a_guarantee() {
    let settings = program::settings();
    let dir = Scratch::new("storm");
    let verdict = play(settings, dir.path());
    for (kind, what) in verdict.violations.iter().take(100) {
        println!("{kind}: {what}");
    }
    let Settings { seed, length, members } = settings;
    let about = format!("\"seconds\":{},\"seed\":{seed},\"servers\":{members},", length.as_secs());
    println!("{}", summary(&about, &verdict));
    if !verdict.violations.is_empty() {
        let kept = program::keep(settings, dir.path());
        panic!("{} violations; the histories are in {}", verdict.violations.len(), kept.display());
    }
}

pub fn tests() -> Vec<Test> {
    let mut all = scenarios![@list processes_under_faults_are_not_seen_to_break_a_guarantee on real within 240];
    all.extend(made_up::tests());
    all
}
