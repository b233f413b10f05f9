//! Rounds in which the holder's process is stopped and its follower is cut off from the leader.
//!
//! A plan lists all actions of a round; a seed makes a random one. The holder is a process of its
//! own, whose session knows only the isolated follower. It notes until when each guard was held and
//! when its lease was to end. A raw client at the leader notes when the leader removed each node,
//! and a rival notes when it held the lock. All times are of the boot-time clock, which the
//! processes of a host share.
//!
//! Two could hold the lock at once, which is an overlap, if the leader removed a node before the
//! lease of its guard ended, if a guard was held after its node was removed, or if the holder and
//! the rival held at once.
use crate::support::{
    Direction, Ensemble, Isolation, Raw, Server,
    contend::Over,
    process::Process,
    raw,
    scene::{config, session_of},
    until,
};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    env, fmt,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{Held, OptionalExt, ZkMutex, ZkMutexGuard, ZkSession};

const CHROOT: &str = "/app";
/// What other clients make and delete all the time.
const WRITTEN: &str = "/written";
/// The pause between two checks of a guard.
const LOOK: Duration = Duration::from_millis(1);
/// The pause between two reports of the holder, in microseconds, unless its lease has grown.
const REPORT: i64 = 50_000;
/// Leases whose ends differ by less than this, in microseconds, count as the same lease.
const SAME: i64 = 2_000;
/// The time for a server's answer on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The setup of an ensemble, and the session timeout of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setup {
    pub timeout: Duration,
    pub tick: Duration,
    /// `enableEagerACLCheck`: a follower itself answers NoAuth.
    pub eager: bool,
    /// The leader serves clients. If not (`leaderServes=no`), the holder's session states that, and
    /// other clients write all the time: their writes renew its lease.
    pub leader_serves: bool,
}

/// The work of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It holds the lock all the time.
    Idle,
    /// It locks as soon as it notices that it was stopped.
    OnWaking,
    /// It locks and unlocks all the time.
    Busy,
}

const HOLDERS: [(Holder, &str); 3] =
    [(Holder::Idle, "idle"), (Holder::OnWaking, "on-waking"), (Holder::Busy, "busy")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// SIGSTOP and SIGCONT to the holder's process.
    Stop,
    Continue,
    /// Waits until the holder's lease has grown after its stop, for one session timeout at most.
    AwaitProof,
    /// Cuts the follower off in all directions.
    BlackHole,
    /// Nothing passes in one direction: `ToServer` is from the follower to the leader.
    Hold(Direction),
    Release(Direction),
    /// Ends all isolation.
    Heal,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub setup: Setup,
    pub holder: Holder,
    /// The follower that is isolated.
    pub follower: usize,
    /// Whether the rival is at the leader, or at the other follower.
    pub rival_at_leader: bool,
    /// The actions with their times since the holder was ready. An `AwaitProof` delays the actions
    /// after it.
    pub acts: Vec<(Duration, Act)>,
}

impl Plan {
    /// The plan of a seed. Most plans have the shortest session timeout.
    pub fn of(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed);
        let timeout = Duration::from_secs(match random.u32(0..20) {
            0..=13 => 4,
            14..=17 => 10,
            _ => 20,
        });
        let tick = timeout / if random.bool() { 2 } else { 10 };
        let mut setup = Setup { timeout, tick, eager: random.bool(), leader_serves: true };
        let holder = match random.u32(0..20) {
            0..=8 => Holder::Idle,
            9..=15 => Holder::OnWaking,
            _ => Holder::Busy,
        };
        let mut part = |from: f64, to: f64| timeout.mul_f64(from + random.f64() * (to - from));
        let (first, length) = (part(0.3, 1.3), part(0.1, 1.2));
        let (gap, second, second_length) = (part(0.0, 0.2), part(0.02, 0.4), part(0.1, 1.2));
        let (late, stall, open, healed) =
            (part(0.0, 0.6), part(0.1, 0.6), part(0.0, 0.1), part(0.3, 1.3));
        let mut acts = Vec::new();
        let mut stop = |from: Duration, length: Duration| {
            acts.extend([(from, Act::Stop), (from + length, Act::Continue)]);
            from + length
        };
        // The time of the isolation, and the end of the first stop.
        let (mut awaits, fraction, when) = (false, random.f64(), random.u32(0..9));
        let (isolated, end) = match when {
            0 if holder != Holder::OnWaking => (first, first),
            1 | 2 if holder != Holder::OnWaking => {
                let end = stop(first, length);
                (first + length.mul_f64(fraction), end)
            }
            3 | 4 if holder != Holder::OnWaking => (first, stop(first + late, length)),
            _ => {
                let end = stop(first, length);
                awaits = random.bool();
                (end + if awaits { gap / 10 } else { gap }, end)
            }
        };
        if random.u32(0..10) < 3 {
            stop(isolated.max(end) + second, second_length);
        }
        if awaits {
            acts.push((end, Act::AwaitProof));
        }
        let mut direction =
            || if random.u32(0..3) > 0 { Direction::ToServer } else { Direction::ToClient };
        let (one, other) = (direction(), direction());
        let mut over = isolated;
        match random.u32(0..6) {
            0..=2 => acts.push((isolated, Act::BlackHole)),
            3 => acts.push((isolated, Act::Hold(one))),
            // One direction stalls. Then it passes again, and one direction is cut, at once or a
            // little later.
            _ => {
                let released = isolated + stall;
                over = if one == other || random.bool() { released + open } else { released };
                acts.push((isolated, Act::Hold(one)));
                if over == released {
                    acts.push((over, Act::Hold(other)));
                }
                acts.push((released, Act::Release(one)));
                if over != released {
                    acts.push((over, Act::Hold(other)));
                }
            }
        }
        if random.u32(0..4) == 0 {
            acts.push((over + healed, Act::Heal));
        }
        acts.sort_by_key(|(at, _)| *at);
        let (follower, at_leader) = (random.usize(0..2), random.u32(0..3) > 0);
        setup.leader_serves = random.bool();
        let rival_at_leader = at_leader && setup.leader_serves;
        Plan { setup, holder, follower, rival_at_leader, acts }
    }

    /// If the leader expires the holder, it has done so this long after the last action.
    fn outlasts(&self) -> Duration {
        let Setup { timeout, tick, .. } = self.setup;
        if self.acts.iter().any(|(_, act)| *act == Act::Heal) {
            timeout / 2
        } else {
            timeout + tick * 2 + Duration::from_secs(1)
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { timeout, tick, eager, leader_serves } = self.setup;
        let holder =
            HOLDERS.iter().find(|(holder, _)| *holder == self.holder).map_or("", |(_, name)| name);
        let rival = if self.rival_at_leader { "leader" } else { "follower" };
        let (t, tick) = (timeout.as_millis(), tick.as_millis());
        write!(
            f,
            "T={t} tick={tick} eager={eager} leader-serves={leader_serves} holder={holder} \
             follower={} rival={rival} acts=",
            self.follower
        )?;
        for (i, (at, act)) in self.acts.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}:", at.as_millis())?;
            match act {
                Act::Stop => write!(f, "stop")?,
                Act::Continue => write!(f, "continue")?,
                Act::AwaitProof => write!(f, "await-proof")?,
                Act::BlackHole => write!(f, "black-hole")?,
                Act::Hold(Direction::ToServer) => write!(f, "hold-to-leader")?,
                Act::Hold(Direction::ToClient) => write!(f, "hold-from-leader")?,
                Act::Release(Direction::ToServer) => write!(f, "release-to-leader")?,
                Act::Release(Direction::ToClient) => write!(f, "release-from-leader")?,
                Act::Heal => write!(f, "heal")?,
            }
        }
        Ok(())
    }
}

/// Three members. The rounds of one setup use them one after the other.
pub struct Members {
    ensemble: Ensemble,
    setup: Setup,
    rounds: AtomicUsize,
}

/// The result of a round.
#[derive(Debug)]
pub struct Outcome {
    /// Whether the holder held the lock at any time.
    pub held: bool,
    /// Whether the leader removed a node that the holder had not released.
    pub expired: bool,
    /// The time from the end of the lease to that removal, in milliseconds; below zero is an error.
    pub margin: Option<f64>,
    /// How long two held the lock, or could have, in milliseconds.
    pub overlap: Option<f64>,
    /// All holds, in milliseconds since the first one.
    pub seen: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = match (self.overlap, self.expired) {
            (Some(_), _) => "overlap",
            (None, true) => "expired",
            (None, false) if self.held => "kept",
            (None, false) => "never-held",
        };
        write!(f, "result={result}")?;
        self.margin.map_or(Ok(()), |margin| write!(f, " margin={margin:.1}"))?;
        self.overlap.map_or(Ok(()), |overlap| write!(f, " overlap={overlap:.1}"))
    }
}

/// The boot-time clock in microseconds.
fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// A time in which a guard was certainly held: its start was taken after the grant, its end before
/// the last call of `is_held()` that returned true.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: i64,
    last: i64,
}

// ---- the holder's process ----

/// The holder's part, in a process of its own, until it is killed.
pub fn hold(address: &str) {
    let var = |name: &str| env::var(name).expect("a round sets it");
    let timeout = Duration::from_millis(var("TIMEOUT").parse().unwrap());
    let holder = HOLDERS.iter().find(|(_, name)| *name == var("HOLDER")).unwrap().0;
    let session = ZkSession::connect(
        config(address)
            .session_timeout(timeout)
            .connect_timeout(LIMIT)
            .leader_serves(var("LEADER_SERVES") == "true"),
    )
    .unwrap();
    assert_eq!(session.status().timeout, timeout);
    let mutex = ZkMutex::new(&session, var("LOCK")).unwrap();
    let ready = || println!("ready");
    match holder {
        Holder::Idle => {
            let guard = mutex.lock().unwrap();
            let from = now();
            ready();
            watch(&guard, from, None);
            rest(&guard)
        }
        Holder::OnWaking => {
            drop(mutex.lock().unwrap()); // makes the parents
            ready();
            let mut last = now();
            while now() - last < timeout.as_micros() as i64 / 12 {
                last = now();
                thread::sleep(LOOK);
            }
            let guard = granted(&mutex);
            watch(&guard, now(), None);
            rest(&guard)
        }
        Holder::Busy => {
            let mut random = fastrand::Rng::with_seed(1);
            drop(mutex.lock().unwrap());
            ready();
            loop {
                let guard = granted(&mutex);
                let longest = if random.bool() { Duration::from_millis(50) } else { timeout / 2 };
                let length = longest.mul_f64(random.f64());
                if !watch(&guard, now(), Some(Instant::now() + length)) {
                    rest(&guard);
                }
                let _ = guard.unlock(); // in an outage the release is not confirmed
            }
        }
    }
}

/// Takes the lock. If the session is lost meanwhile, a new one follows.
fn granted(mutex: &ZkMutex) -> ZkMutexGuard {
    loop {
        match mutex.lock() {
            Ok(guard) => return guard,
            Err(e) => log::debug!("the holder: {e}"),
        }
        thread::sleep(LOOK);
    }
}

/// Keeps a lost guard for ever, so that only the server removes its node.
fn rest(_guard: &Held) -> ! {
    loop {
        thread::park();
    }
}

/// Reports how long the guard is held. Returns false when it is lost, true at the `end`.
fn watch(guard: &Held, from: i64, end: Option<Instant>) -> bool {
    let (mut last, mut lease, mut said, mut new) = (from, from, 0, true);
    let say = |word: &str, last: i64, lease: i64| {
        println!("{word} {} {from} {last} {lease}", guard.path())
    };
    loop {
        let before = now();
        if !guard.is_held() {
            say("lost", last, lease);
            return false;
        }
        last = before;
        // The time is taken before. If it was taken afterwards, a stop in between would make the
        // lease look longer.
        let ends = before + guard.valid_for().as_micros() as i64;
        new |= ends > lease + SAME;
        lease = lease.max(ends);
        if end.is_some_and(|end| Instant::now() >= end) {
            // This is reported before the node is deleted. So a removal without this report is the
            // leader's.
            say("free", last, lease);
            return true;
        }
        if new || last - said > REPORT {
            say("held", last, lease);
            (said, new) = (last, false);
        }
        thread::sleep(LOOK);
    }
}

/// The holder's reports about one guard.
#[derive(Debug)]
struct Hold {
    span: Span,
    lease: i64,
    word: String,
}

/// All reports of the holder.
#[derive(Default)]
struct Said {
    holds: BTreeMap<String, Hold>,
    /// The time at which the holder last found its lease longer than before.
    proven: i64,
}

impl Said {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [word, node, from, last, lease] = words[..] else { panic!("the holder said {line:?}") };
        let number = |word: &str| word.parse::<i64>().unwrap();
        let hold = Hold {
            span: Span { from: number(from), last: number(last) },
            lease: number(lease),
            word: word.to_owned(),
        };
        if self.holds.get(node).is_none_or(|before| before.lease + SAME < hold.lease) {
            self.proven = hold.span.last;
        }
        self.holds.insert(node.to_owned(), hold);
    }

    /// Whether the leader has removed every node that the holder had not released.
    fn is_expired(&self, removed: &BTreeMap<String, i64>) -> bool {
        let mut kept = self.holds.iter().filter(|(_, hold)| hold.word != "free").peekable();
        kept.peek().is_some()
            && kept.all(|(node, _)| removed.contains_key(&format!("{CHROOT}{node}")))
    }

    /// Reads the holder's reports until `until`.
    fn listen(&mut self, lines: &Receiver<String>, until: Instant) {
        loop {
            match lines.recv_deadline(until) {
                Ok(line) => self.take(&line),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => panic!("the holder ended"),
            }
        }
    }
}

// ---- the leader's side ----

/// The time at which the leader removed each node.
type Removed = Mutex<BTreeMap<String, i64>>;

/// Notes each removal below the path that the client watches.
fn note_removals(mut raw: Raw, removed: &Removed, stop: &AtomicBool) {
    let mut pinged = Instant::now();
    while !stop.load(SeqCst) {
        if let Some((raw::DELETED, node)) = raw.next_event(Duration::from_millis(20)) {
            let at = now();
            removed.lock().entry(node).or_insert(at);
        }
        if pinged.elapsed() > Duration::from_secs(5) {
            raw.ping().unwrap();
            pinged = Instant::now();
        }
    }
}

/// Writes several times in each session timeout, so that each `sync` of the holder is followed by a
/// write of somebody else.
fn write_on(mut raw: Raw, timeout: Duration, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        raw.create(WRITTEN, b"", raw::PERSISTENT).unwrap();
        raw.delete(WRITTEN).unwrap();
        thread::sleep(timeout / 32);
    }
}

/// Takes the lock again and again. With `keeps` it keeps the lock until the end of the round.
fn contend(mutex: &ZkMutex, keeps: bool, stop: &AtomicBool) -> Vec<Span> {
    let mut spans = Vec::new();
    while !stop.load(SeqCst) {
        let Ok(Some(guard)) = mutex.lock_timeout(Duration::from_millis(500)).optional() else {
            continue;
        };
        let from = now();
        let start = Instant::now();
        loop {
            let before = now();
            if !guard.is_held() {
                break;
            }
            match spans.last_mut() {
                Some(Span { from: same, last }) if *same == from => *last = before,
                _ => spans.push(Span { from, last: before }),
            }
            if stop.load(SeqCst) || (!keeps && start.elapsed() > Duration::from_millis(20)) {
                break;
            }
            thread::sleep(LOOK);
        }
    }
    spans
}

impl Members {
    pub fn start(setup: Setup) -> Members {
        let Setup { timeout, tick, eager, leader_serves } = setup;
        let ticks = |time: Duration| time.as_millis() / tick.as_millis();
        let server = Server::real()
            .tick(tick)
            .min_session(tick * 2)
            // A follower without its leader serves clients long after the leader has expired their
            // sessions.
            .set("syncLimit", ticks(timeout * 10))
            .set("initLimit", ticks(LIMIT))
            .property("zookeeper.enableEagerACLCheck", eager);
        let server = if leader_serves { server } else { server.leader_serves_nobody() };
        let ensemble = Ensemble::start_with(3, server);
        let first = ensemble.followers()[0];
        let mut raw = Raw::connect(&ensemble.member(first).connect_string()).unwrap();
        raw.mkdirs(&format!("{CHROOT}/locks")).unwrap();
        raw.set_acl(CHROOT, 1 | 4).unwrap(); // read and create, not delete
        Members { ensemble, setup, rounds: AtomicUsize::new(0) }
    }

    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// Plays a round. `module` and `scenario` name the scenario that calls [`hold`] in a child.
    pub fn play(&self, plan: &Plan, module: &str, scenario: &str) -> Outcome {
        assert_eq!(plan.setup, self.setup);
        let leader = self.ensemble.leader();
        let follower = self.ensemble.followers()[plan.follower];
        let other = 3 - leader - follower;
        let rival_at = if plan.rival_at_leader { leader } else { other };
        // A follower hears of a removal a little later than the leader does it.
        let Setup { leader_serves, .. } = self.setup;
        let watched_at = if leader_serves { leader } else { other };
        let at =
            |member: usize| format!("{}{CHROOT}", self.ensemble.member(member).connect_string());
        let path = format!("/locks/{}", self.rounds.fetch_add(1, SeqCst));
        let timeout = self.setup.timeout;
        let rivals = session_of(&at(rival_at), timeout);
        let rival = ZkMutex::new(&rivals, &path).unwrap();
        let mut raw = Raw::connect(&at(watched_at)).unwrap();
        raw.watch_all_below(&format!("{CHROOT}{path}")).unwrap();
        let (stop, removed) = (&AtomicBool::new(false), &Removed::default());
        let (said, spans) = thread::scope(|scope| {
            let all = Over(stop);
            scope.spawn(move || note_removals(raw, removed, stop));
            if !leader_serves {
                let raw = Raw::connect(&self.ensemble.member(other).connect_string()).unwrap();
                scope.spawn(move || write_on(raw, timeout, stop));
            }
            let name = HOLDERS.iter().find(|(holder, _)| *holder == plan.holder).unwrap().1;
            let millis = timeout.as_millis().to_string();
            let vars = [
                ("TIMEOUT", millis.as_str()),
                ("LEADER_SERVES", if leader_serves { "true" } else { "false" }),
                ("HOLDER", name),
                ("LOCK", &path),
            ];
            let mut holder = Process::start(module, scenario, &at(follower), &vars);
            assert_eq!(holder.says(), "ready");
            let (begin, begins) = bounded(1);
            let keeps = plan.holder != Holder::Busy;
            let contender = scope.spawn(move || {
                begins.recv().map_or_else(|_| Vec::new(), |()| contend(&rival, keeps, stop))
            });
            if !keeps {
                begin.send(()).unwrap();
            }
            let mut said = Said::default();
            let (mut start, mut woken) = (Instant::now(), 0);
            for (after, act) in &plan.acts {
                said.listen(holder.lines(), start + *after);
                match act {
                    Act::Stop => holder.signal("-STOP"),
                    Act::Continue => {
                        woken = now();
                        holder.signal("-CONT");
                    }
                    Act::AwaitProof => {
                        let begun = Instant::now();
                        while said.proven < woken && begun.elapsed() < timeout {
                            said.listen(holder.lines(), Instant::now() + LOOK);
                        }
                        start += begun.elapsed();
                    }
                    Act::BlackHole => self.ensemble.isolate(follower, Isolation::BlackHole),
                    Act::Hold(direction) => {
                        self.ensemble.way(follower, leader)[0].hold(*direction, true)
                    }
                    Act::Release(direction) => {
                        self.ensemble.way(follower, leader)[0].hold(*direction, false)
                    }
                    Act::Heal => self.ensemble.heal(follower),
                }
                if matches!(act, Act::BlackHole | Act::Hold(_)) {
                    let _ = begin.try_send(()); // a second report is not needed
                }
            }
            // The round lasts until the leader has expired the holder, and longer if the guard is
            // still held then.
            let end = Instant::now() + plan.outlasts();
            while Instant::now() < end && !said.is_expired(&removed.lock()) {
                said.listen(holder.lines(), Instant::now() + LOOK * 10);
            }
            let end = Instant::now() + timeout / 2;
            while Instant::now() < end && said.holds.values().any(|hold| hold.word == "held") {
                said.listen(holder.lines(), Instant::now() + LOOK * 10);
            }
            // Time for the rival to get the lock.
            said.listen(holder.lines(), Instant::now() + timeout / 20);
            holder.kill();
            holder.lines().iter().for_each(|line| said.take(&line));
            drop((all, begin));
            (said, contender.join().unwrap())
        });
        self.heal(follower);
        judge(&said, &removed.lock(), &spans)
    }

    /// Returns when the follower has rejoined the ensemble.
    fn heal(&self, follower: usize) {
        self.ensemble.heal(follower);
        let address = self.ensemble.member(follower).connect_string();
        until("the follower takes sessions again", LIMIT, || Raw::connect(&address).ok());
        until("both others follow", LIMIT, || (self.ensemble.followers().len() == 2).then_some(()));
    }
}

fn judge(said: &Said, removed: &BTreeMap<String, i64>, spans: &[Span]) -> Outcome {
    let (mut expired, mut margin, mut overlap) = (false, None::<i64>, None::<i64>);
    for (node, hold) in &said.holds {
        if let Some(removal) = removed.get(&format!("{CHROOT}{node}")) {
            if hold.word != "free" {
                expired = true;
                margin = Some(
                    margin.map_or(removal - hold.lease, |margin| margin.min(removal - hold.lease)),
                );
            }
            if hold.span.last >= *removal {
                overlap = overlap.max(Some(hold.span.last - removal));
            }
        }
        for theirs in spans {
            let both = hold.span.last.min(theirs.last) - hold.span.from.max(theirs.from);
            if both >= 0 {
                overlap = overlap.max(Some(both));
            }
        }
    }
    if let Some(margin) = margin.filter(|margin| *margin < 0) {
        overlap = overlap.max(Some(-margin));
    }
    let relative = said
        .holds
        .values()
        .map(|hold| hold.span.from)
        .chain(spans.iter().map(|span| span.from))
        .min();
    let since = |at: i64| (at - relative.unwrap_or(at)) / 1000;
    let seen = said.holds.iter().map(|(node, hold)| {
        let Hold { span, lease, word } = hold;
        let removal = removed.get(&format!("{CHROOT}{node}")).map(|at| since(*at));
        format!(
            "{node}: from {} to {}, lease to {}, {word}, removed {removal:?}",
            since(span.from),
            since(span.last),
            since(*lease)
        )
    });
    let rival = spans
        .iter()
        .map(|span| format!("rival: from {} to {}", since(span.from), since(span.last)));
    let seen: Vec<String> = seen.chain(rival).collect();
    let millis = |micros: i64| micros as f64 / 1000.0;
    let held = !said.holds.is_empty();
    Outcome {
        held,
        expired,
        margin: margin.map(millis),
        overlap: overlap.map(millis),
        seen: seen.join("\n"),
    }
}
