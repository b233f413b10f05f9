//! Tests of the simulated world itself, with small programs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::library::*;
use crate::net::{self, Answer, ConnId, Flow, Service, Side};
use crate::{
    Call, Config, Death, Policy, ProcessId, ProcessSettings, Report, Step, Touch, after, at_step,
    call_begins, call_ends, clock_of, finish, hold_thread, kill, now, process, resume, run,
    set_drift, sleep_host, spawn, stop, stopped_for, this_process,
};

const MS: Duration = Duration::from_millis(1);

fn host(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

/// A process on a host of its own.
fn start(number: u8, main: impl FnOnce() + Send + 'static) -> ProcessId {
    spawn(ProcessSettings::new(&format!("p{number}"), host(number)), main)
}

fn fork(body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(body)
}

/// A policy that never takes the processor from a thread. So an action of the world at a certain
/// time finds the threads at the expected place.
fn calm(seed: u64) -> Config {
    let policy = Policy { run_length: 3, preempt_one_in: 0, longest_preemption: Duration::ZERO };
    Config { policy: Some(policy), ..Config::seed(seed) }
}

/// Runs one process, whose end is the end of the run.
fn alone(seed: u64, main: impl FnOnce() + Send + 'static) -> Report {
    run(Config::seed(seed), || {
        start(1, move || {
            main();
            finish();
        });
    })
}

#[track_caller]
fn good(report: &Report) {
    assert!(report.failures.is_empty(), "{:?}\n{}", report.failures, report.threads.join("\n"));
}

fn counts_under_a_mutex(seed: u64) -> (Report, u64) {
    let most = Arc::new(AtomicU64::new(0));
    let seen = most.clone();
    let report = alone(seed, move || {
        let count = Arc::new(Mutex::new(0));
        let add = |count: Arc<Mutex<u64>>| {
            move || {
                for _ in 0..100 {
                    let mut count = count.lock();
                    let before = *count;
                    thread::yield_now();
                    *count = before + 1;
                }
            }
        };
        let threads: Vec<_> = (0..3).map(|_| fork(add(count.clone()))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        seen.store(*count.lock(), Ordering::Relaxed);
    });
    (report, most.load(Ordering::Relaxed))
}

#[test]
fn a_mutex_excludes_and_the_same_seed_is_the_same_run() {
    let mut hashes = BTreeSet::new();
    for seed in 0..50 {
        let (first, count) = counts_under_a_mutex(seed);
        good(&first);
        assert_eq!(count, 300);
        let (again, _) = counts_under_a_mutex(seed);
        assert_eq!((first.hash, first.steps, first.time), (again.hash, again.steps, again.time));
        hashes.insert(first.hash);
    }
    assert!(hashes.len() > 45, "different seeds are different runs");
}

#[test]
fn threads_that_share_without_a_mutex_interleave() {
    let lost = (0..50).any(|seed| {
        let count = Arc::new(AtomicU64::new(0));
        let shared = count.clone();
        good(&alone(seed, move || {
            let add = |count: Arc<AtomicU64>| {
                move || {
                    let before = count.load(Ordering::Relaxed);
                    Instant::now();
                    count.store(before + 1, Ordering::Relaxed);
                }
            };
            let threads: Vec<_> = (0..2).map(|_| fork(add(shared.clone()))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }));
        count.load(Ordering::Relaxed) == 1
    });
    assert!(lost);
}

/// A thread that checks the state before it registers sleeps through a change that comes in
/// between.
#[test]
fn a_lost_wake_up_is_found_as_a_deadlock() {
    let found = (0..100).any(|seed| {
        let report = alone(seed, || {
            let (is_done, waiter) =
                (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(None::<Sender<()>>)));
            let (done, waits) = (is_done.clone(), waiter.clone());
            let thread = fork(move || {
                *done.lock() = true;
                if let Some(waiter) = waits.lock().take() {
                    let _ = waiter.send(());
                }
            });
            if !*is_done.lock() {
                let (sender, receiver) = bounded(1);
                *waiter.lock() = Some(sender);
                let _ = receiver.recv();
            }
            thread.join().unwrap();
        });
        report.failures.iter().any(|failure| failure.kind == "deadlock")
            && report.threads.iter().any(|thread| thread.contains("waits for channel"))
    });
    assert!(found);
}

#[test]
fn a_mutex_that_is_taken_twice_is_reported() {
    let report = alone(1, || {
        let mutex = Mutex::new(());
        let _first = mutex.lock();
        drop(mutex.lock());
    });
    assert_eq!(report.failures[0].kind, "deadlock");
    assert!(report.failures[0].text.contains("second time"));
}

/// The test runs in a process of its own, which the watchdog ends.
#[test]
fn a_thread_without_scheduling_points_is_reported() {
    const STUCK: &str = "ZK_SIM_STUCK";
    if std::env::var_os(STUCK).is_some() {
        let config = Config { watchdog: Some(100 * MS), ..Config::seed(1) };
        run(config, || {
            start(1, || {
                let busy = thread::Builder::new().name("busy".to_owned());
                let _ = busy.spawn(|| {
                    loop {
                        std::hint::spin_loop();
                    }
                });
                thread::sleep(MS);
            });
        });
    }
    let name = "tests::a_thread_without_scheduling_points_is_reported";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--nocapture"]).env(STUCK, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("busy: Runnable") && told.contains("main: Blocked its sleep"), "{told}");
}

#[test]
fn a_panic_is_reported_with_its_thread() {
    let report = alone(1, || {
        let thread =
            thread::Builder::new().name("clumsy".to_owned()).spawn(|| panic!("oh")).unwrap();
        let _ = thread.join();
    });
    assert_eq!(report.failures[0].kind, "panic");
    assert!(report.failures[0].text.contains("clumsy"), "{}", report.failures[0].text);
}

#[test]
fn channels_keep_the_order_and_report_their_end() {
    for seed in 0..50 {
        good(&alone(seed, || {
            let (sender, receiver) = bounded(2);
            let second = sender.clone();
            let threads = [(sender, 0), (second, 100)].map(|(sender, from)| {
                fork(move || (from..from + 50).for_each(|number| sender.send(number).unwrap()))
            });
            let all: Vec<i32> = receiver.iter().collect();
            let (low, high): (Vec<_>, Vec<_>) = all.into_iter().partition(|number| *number < 100);
            assert_eq!((low, high), ((0..50).collect(), (100..150).collect()));
            assert!(receiver.try_recv().is_err_and(|e| e.is_disconnected()));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let (sender, receiver) = unbounded();
            drop(receiver);
            assert!(sender.try_send(1).is_err_and(|e| e.is_disconnected()));
        }));
    }
}

#[test]
fn a_select_is_ready_by_whichever_comes_first() {
    for seed in 0..50 {
        good(&alone(seed, || {
            let (sender, receiver) = bounded::<u8>(1);
            let (end, ended) = bounded::<u8>(0);
            let nothing = never::<u8>();
            let thread = fork(move || {
                thread::sleep(3 * MS);
                sender.send(7).unwrap();
                thread::sleep(MS);
                drop(end);
            });
            let mut select = Select::new();
            let numbers = [select.recv(&nothing), select.recv(&receiver), select.recv(&ended)];
            assert_eq!(numbers, [0, 1, 2]);
            let deadline = Instant::now() + MS;
            assert!(select.ready_deadline(deadline).is_err());
            assert_eq!(select.ready(), 1);
            assert_eq!(receiver.try_recv(), Ok(7));
            let mut select = Select::new();
            select.recv(&nothing);
            select.recv(&ended);
            assert_eq!(select.ready(), 1);
            thread.join().unwrap();
        }));
    }
}

#[test]
fn a_timeout_ends_at_its_nanosecond() {
    for seed in 0..20 {
        good(&alone(seed, || {
            let (_sender, receiver) = bounded::<()>(1);
            let start = now();
            thread::sleep(Duration::from_nanos(123_456_789));
            // The sleep itself is a step and takes a microsecond.
            let slept = now() - start;
            assert!(
                slept >= Duration::from_nanos(123_456_789) && slept < Duration::from_millis(150),
                "{slept:?}"
            );
            let deadline = Instant::now() + Duration::from_nanos(1_000_007);
            assert!(receiver.recv_deadline(deadline).is_err_and(|e| e.is_timeout()));
            assert!(Instant::now() > deadline);
        }));
    }
    let mut config = Config::seed(1);
    config.policy =
        Some(Policy { run_length: 1_000, preempt_one_in: 0, longest_preemption: Duration::ZERO });
    good(&run(config, || {
        start(1, || {
            let (_sender, receiver) = bounded::<()>(1);
            let deadline = Instant::now() + Duration::from_nanos(1_234_567);
            assert!(receiver.recv_deadline(deadline).is_err());
            assert_eq!(
                Instant::now() - deadline,
                Duration::from_micros(1),
                "the reading is the next step"
            );
            finish();
        });
    }));
}

#[test]
fn a_loop_on_the_clock_ends() {
    let report = alone(1, || {
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {}
    });
    good(&report);
    assert!(report.time >= Duration::from_millis(20) && report.time < Duration::from_millis(50));
}

#[test]
fn each_process_has_its_own_clock_and_it_may_drift() {
    good(&run(Config::seed(1), || {
        let settings = ProcessSettings {
            clock: Duration::from_secs(5),
            drift_ppm: 100_000,
            ..ProcessSettings::new("fast", host(1))
        };
        let process = spawn(settings, || {
            assert!(boot_time() < Duration::from_millis(5_100));
            thread::sleep(Duration::from_secs(11));
            let passed = now();
            assert!(
                passed >= Duration::from_secs(10) && passed < Duration::from_millis(10_100),
                "{passed:?}"
            );
            // now at half the rate, and the host sleeps for a minute
            thread::sleep(Duration::from_secs(10));
            let passed = now();
            assert!(
                passed >= Duration::from_secs(89) && passed < Duration::from_millis(90_200),
                "{passed:?}"
            );
            let boot = boot_time();
            assert!(
                boot > Duration::from_secs(5 + 21 + 30) && boot < Duration::from_secs(57),
                "{boot:?}"
            );
            finish();
        });
        after(Duration::from_millis(10_500), move || {
            let before = clock_of(process);
            set_drift(process, -500_000);
            assert_eq!(clock_of(process), before);
        });
        // Two sleeps that overlap: one minute altogether.
        after(Duration::from_millis(10_700), move || sleep_host(process, Duration::from_secs(40)));
        after(Duration::from_millis(20_700), move || sleep_host(process, Duration::from_secs(50)));
    }));
}

/// Two threads that note the time of each of their turns, the second a thread of its own kind. The
/// first reads a clock in each turn, and then takes and leaves a mutex.
fn turns(seed: u64, act: impl FnOnce(ProcessId) + 'static) -> [Vec<Duration>; 2] {
    let seen: [Arc<parking_lot::Mutex<Vec<Duration>>>; 2] = Default::default();
    let all = seen.clone();
    good(&run(calm(seed), move || {
        let process = start(1, move || {
            let [first, second] = all;
            let beside = thread::spawn_own("beside".to_owned(), move || {
                for _ in 0..50 {
                    thread::sleep(MS);
                    second.lock().push(now());
                }
            });
            let mutex = Mutex::new(());
            for _ in 0..50 {
                thread::sleep(MS);
                let read = Instant::now();
                drop(mutex.lock());
                first.lock().push(now());
                assert!(Instant::now() >= read);
            }
            beside.unwrap().join().unwrap();
            finish();
        });
        act(process);
    }));
    seen.map(|all| all.lock().clone())
}

/// The number of the turn after which a thread rested for at least this time.
fn rest(turns: &[Duration], least: Duration) -> Vec<usize> {
    let is_rest = |(_, two): &(usize, &[Duration])| two[1] - two[0] >= least;
    turns.windows(2).enumerate().filter(is_rest).map(|(at, _)| at + 1).collect()
}

#[test]
fn a_process_is_stopped_at_its_step_and_a_thread_alone() {
    // A turn of the first thread unlocks its mutex at the 2nd, 4th, .. operation on a mutex.
    let step = |nth| Step { touch: Touch::Mutex, is_own: Some(false), nth, then: 0 };
    for seed in 0..20 {
        let [first, second] = turns(seed, move |process| {
            at_step(process, step(9), move |_| {
                stop(process);
                after(MS * 30, move || {
                    assert_eq!(stopped_for(process), MS * 30);
                    resume(process);
                });
            });
        });
        assert_eq!(rest(&first, MS * 20), [4], "{first:?}");
        assert_eq!(rest(&second, MS * 20).len(), 1, "{second:?}");

        let [first, second] = turns(seed, move |process| {
            at_step(process, step(9), move |thread| hold_thread(thread, MS * 30));
            after(MS * 45, move || assert_eq!(stopped_for(process), MS * 30));
        });
        assert_eq!(rest(&first, MS * 20), [4], "{first:?}");
        assert!(rest(&second, MS * 20).is_empty(), "{second:?}");
    }
}

#[test]
fn a_step_is_counted_by_what_it_touches_and_by_its_thread() {
    for (touch, is_own, nth, turn) in [
        // Two readings in each turn, and none of them for the end of a sleep.
        (Touch::Clock, Some(false), 7, 3),
        // The other thread sleeps, and does nothing else that is counted.
        (Touch::Clock, Some(true), 1, 50),
        (Touch::Channel, None, 1, 50),
    ] {
        let [first, _] = turns(1, move |process| {
            at_step(process, Step { touch, is_own, nth, then: 0 }, |thread| {
                hold_thread(thread, MS * 30)
            });
        });
        let expected = if turn < 50 { vec![turn] } else { Vec::new() };
        assert_eq!(rest(&first, MS * 20), expected, "{touch:?} {is_own:?}: {first:?}");
    }
}

#[test]
fn further_steps_are_counted_of_the_thread_that_has_come_to_the_first_one() {
    for then in [1, 2, 5] {
        let held = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let own = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (all, begins) = (held.clone(), own.clone());
        good(&alone(7, move || {
            let process = this_process().unwrap();
            let step = Step { touch: Touch::Call(Call::Take), is_own: None, nth: 2, then };
            at_step(process, step, move |thread| all.lock().push(thread));
            let other = fork(|| (0..50).for_each(|_| thread::yield_now()));
            let begun = fork(move || {
                call_begins(Call::LetGo);
                call_begins(Call::Take);
                thread::yield_now();
                call_begins(Call::Take);
                (0..50).for_each(|_| thread::yield_now());
                call_ends();
                begins.lock().push(this_thread());
            });
            other.join().unwrap();
            begun.join().unwrap();
            assert_eq!(*held.lock(), *own.lock());
            assert_eq!(held.lock().len(), 1);
        }));
    }
}

static PER_PROCESS: LazyLock<Mutex<u32>> = LazyLock::new(Mutex::default);

#[test]
fn each_process_has_its_own_statics() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let all = seen.clone();
    good(&run(Config::seed(3), || {
        for number in 1..=3 {
            let all = all.clone();
            start(number, move || {
                let threads: Vec<_> =
                    (0..number).map(|_| fork(|| *PER_PROCESS.lock() += 1)).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                all.lock().push((number, *PER_PROCESS.lock()));
            });
        }
        after(Duration::from_secs(1), finish);
    }));
    let mut seen = seen.lock().clone();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 1), (2, 2), (3, 3)]);
}

/// A process that counts every millisecond.
fn ticking(number: u8) -> (ProcessId, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let ticks = count.clone();
    let process = start(number, move || {
        let other = ticks.clone();
        fork(move || {
            loop {
                thread::sleep(MS);
                other.fetch_add(1, Ordering::Relaxed);
            }
        });
        loop {
            thread::sleep(MS);
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    });
    (process, count)
}

#[test]
fn a_stopped_process_does_nothing_until_it_goes_on_and_a_killed_one_never_again() {
    good(&run(calm(5), || {
        let (stopped, count) = ticking(1);
        let (killed, last) = ticking(2);
        after(100 * MS, move || {
            stop(stopped);
            kill(killed, Death::Killed);
            let (at, end) = (count.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
            assert!(at > 150 && end > 150, "{at} {end}");
            after(1_000 * MS, move || {
                assert_eq!(count.load(Ordering::Relaxed), at);
                resume(stopped);
                after(100 * MS, move || {
                    assert!(count.load(Ordering::Relaxed) > at + 150);
                    assert_eq!(last.load(Ordering::Relaxed), end);
                    finish();
                });
            });
        });
    }));
}

#[test]
fn the_end_of_main_ends_the_process() {
    good(&run(Config::seed(5), || {
        let process = start(1, || {
            fork(|| {
                loop {
                    thread::sleep(MS);
                }
            });
            thread::sleep(10 * MS);
        });
        after(20 * MS, move || {
            assert!(!process::is_alive(process));
            finish();
        });
    }));
}

// ---- the network ----

/// A service that answers each byte with the next one, and closes after a 9.
#[derive(Default)]
struct Echo {
    opened: Vec<ConnId>,
    closed: Vec<ConnId>,
    heard: Vec<u8>,
}

impl Service for Echo {
    fn opened(&mut self, conn: ConnId, _: SocketAddr, _: SocketAddr) {
        self.opened.push(conn);
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.heard.extend(bytes);
        net::send(conn, bytes.iter().map(|byte| byte.wrapping_add(1)).collect());
        if bytes.contains(&9) {
            net::close(conn);
        }
    }

    fn closed(&mut self, conn: ConnId) {
        self.closed.push(conn);
    }
}

fn server() -> SocketAddr {
    SocketAddr::new(host(100), 2181)
}

fn echo() -> Rc<RefCell<Echo>> {
    let service = Rc::new(RefCell::new(Echo::default()));
    net::listen(server(), service.clone());
    service
}

const SOCKET: Token = Token(1);

struct Client {
    poll: Poll,
    socket: TcpStream,
}

impl Client {
    fn connect() -> Client {
        let poll = Poll::new().unwrap();
        let mut socket = TcpStream::connect(server()).unwrap();
        poll.registry()
            .register(&mut socket, SOCKET, Interest::READABLE | Interest::WRITABLE)
            .unwrap();
        Client { poll, socket }
    }

    /// Waits for an event, for a second at most.
    fn event(&mut self) -> bool {
        let mut events = Events::with_capacity(4);
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match self.poll.poll(&mut events, Some(until - Instant::now())) {
                Err(e) => assert_eq!(e.kind(), ErrorKind::Interrupted),
                Ok(()) if events.iter().next().is_some() => return true,
                Ok(()) if Instant::now() >= until => return false,
                Ok(()) => {}
            }
        }
    }

    fn connected(mut self) -> Client {
        while self.socket.peer_addr().is_err() {
            assert!(self.event());
        }
        self
    }

    /// Reads exactly so many bytes, or returns the error or the end that comes before.
    fn read(&mut self, length: usize) -> Result<Vec<u8>, ErrorKind> {
        let mut all = Vec::new();
        while all.len() < length {
            let mut buf = [0; 64];
            match (&self.socket).read(&mut buf) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof),
                Ok(n) => all.extend(&buf[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if !self.event() {
                        return Err(ErrorKind::TimedOut);
                    }
                }
                Err(e) => return Err(e.kind()),
            }
        }
        Ok(all)
    }

    fn write(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = (&self.socket).write(rest).unwrap();
            rest = &rest[n..];
        }
    }
}

#[test]
fn bytes_pass_in_order_in_both_directions_and_ends_are_reported() {
    for seed in 0..50 {
        let report = run(calm(seed), || {
            let service = echo();
            start(1, || {
                let mut client = Client::connect().connected();
                client.write(&[1, 2, 3]);
                client.write(&[4, 5]);
                assert_eq!(client.read(5), Ok(vec![2, 3, 4, 5, 6]));
                drop(client);
                let mut client = Client::connect().connected();
                client.write(&[9]);
                assert_eq!(client.read(1), Ok(vec![10]));
                assert_eq!(client.read(1), Err(ErrorKind::UnexpectedEof));
                thread::sleep(10 * MS);
            });
            after(Duration::from_secs(1), move || {
                assert_eq!(service.borrow().heard, [1, 2, 3, 4, 5, 9]);
                assert_eq!((service.borrow().opened.len(), service.borrow().closed.len()), (2, 1));
                assert!(net::connections().is_empty());
                finish();
            });
        });
        good(&report);
    }
}

#[test]
fn a_fault_of_a_connection_shows_at_its_ends_and_at_no_other_connection() {
    for seed in 0..20 {
        good(&run(calm(seed), || {
            let service = echo();
            start(1, || {
                let mut cut = Client::connect().connected();
                let mut deaf = Client::connect().connected();
                let mut left = Client::connect().connected();
                thread::sleep(10 * MS); // the world cuts the connections meanwhile
                assert_eq!(cut.read(1), Err(ErrorKind::ConnectionReset));
                deaf.write(&[1]);
                assert_eq!(
                    deaf.read(1),
                    Err(ErrorKind::TimedOut),
                    "the server's end is closed, and the service gets nothing"
                );
                assert_eq!(left.read(1), Err(ErrorKind::ConnectionReset));
                finish();
            });
            after(7 * MS, move || {
                let conns = net::connections();
                assert_eq!(conns.len(), 3);
                net::cut(conns[0].id);
                net::half_open(conns[1].id, Side::Server);
                net::half_open(conns[2].id, Side::Client);
                after(2 * MS, move || {
                    let mut closed = service.borrow().closed.clone();
                    closed.sort_unstable();
                    assert_eq!(closed, [conns[0].id, conns[1].id]);
                });
            });
        }));
    }
}

#[test]
fn a_frozen_link_delivers_later_and_a_hole_never() {
    let up = (host(1), host(100));
    for seed in 0..20 {
        good(&run(calm(seed), move || {
            echo();
            start(1, || {
                let mut client = Client::connect().connected();
                thread::sleep(10 * MS); // the link is frozen meanwhile
                client.write(&[1]);
                client.write(&[2]);
                assert_eq!(client.read(1), Err(ErrorKind::TimedOut));
                thread::sleep(Duration::from_secs(1)); // the link is open again
                assert_eq!(client.read(2), Ok(vec![2, 3]));
                thread::sleep(Duration::from_secs(4)); // the link is a hole
                client.write(&[3]);
                thread::sleep(Duration::from_secs(4)); // the link is open again
                client.write(&[4]);
                assert_eq!(client.read(1), Err(ErrorKind::TimedOut));
                let mut client = Client::connect().connected();
                client.write(&[5]);
                assert_eq!(client.read(1), Ok(vec![6]));
                finish();
            });
            after(8 * MS, move || net::set_flow(up.0, up.1, Flow::Frozen));
            after(Duration::from_secs(2), move || net::set_flow(up.0, up.1, Flow::Open));
            after(Duration::from_secs(5), move || net::set_flow(up.0, up.1, Flow::Hole));
            after(Duration::from_secs(8), move || net::set_flow(up.0, up.1, Flow::Open));
        }));
    }
}

#[test]
fn a_killed_process_resets_its_connections_and_one_without_power_does_not() {
    good(&run(calm(1), || {
        let service = echo();
        let processes = [1, 2].map(|number| {
            start(number, || {
                let _client = Client::connect().connected();
                thread::sleep(Duration::from_secs(100));
            })
        });
        after(100 * MS, move || {
            kill(processes[0], Death::Killed);
            kill(processes[1], Death::PowerLost);
        });
        after(200 * MS, move || {
            assert_eq!(service.borrow().opened.len(), 2);
            assert_eq!(service.borrow().closed.len(), 1);
            finish();
        });
    }));
}

#[test]
fn an_address_without_a_service_refuses_and_a_server_that_goes_resets() {
    good(&run(calm(1), || {
        echo();
        start(1, || {
            let mut client = Client::connect().connected();
            thread::sleep(10 * MS);
            assert_eq!(client.read(1), Err(ErrorKind::ConnectionReset));
            let mut client = Client::connect();
            while client.event() {
                if let Some(e) = client.socket.take_error().unwrap() {
                    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
                    finish();
                }
            }
            panic!("the service got bytes that no client has sent");
        });
        after(5 * MS, || net::server_gone(server(), false));
    }));
}

#[test]
fn a_full_buffer_takes_no_more_until_there_is_room() {
    good(&run(calm(2), || {
        echo();
        start(1, || {
            let mut client = Client::connect().connected();
            thread::sleep(10 * MS);
            let mut written = 0;
            let full = loop {
                match (&client.socket).write(&[0; 10_000]) {
                    Ok(n) => written += n,
                    Err(e) => break e.kind(),
                }
            };
            assert_eq!((full, written), (ErrorKind::WouldBlock, 64 << 10));
            while client.event() {
                if (&client.socket).write(&[0]).is_ok() {
                    finish();
                }
            }
        });
        after(8 * MS, || net::set_flow(host(1), host(100), Flow::Frozen));
        after(500 * MS, || net::set_flow(host(1), host(100), Flow::Open));
    }));
}

#[test]
fn names_resolve_as_the_world_says() {
    good(&run(calm(1), || {
        let silent: IpAddr = "fd00::7".parse().unwrap();
        net::set_name("zk.example", Answer::Addresses(vec![host(7), silent, host(8)]), 5 * MS);
        net::set_name("zk.failing", Answer::Failure, MS);
        start(1, move || {
            let start = Instant::now();
            let mut addrs = resolve("zk.example", 2181).unwrap();
            assert_eq!(addrs[0], SocketAddr::new(silent, 2181));
            addrs.sort();
            assert_eq!(addrs, [host(7), host(8), silent].map(|ip| SocketAddr::new(ip, 2181)));
            assert!(start.elapsed() >= 5 * MS);
            let kind = |name| resolve(name, 1).unwrap_err().kind();
            assert_eq!(kind("nowhere"), ErrorKind::NotFound);
            assert_eq!(kind("zk.failing"), ErrorKind::Other);
            finish();
        });
    }));
}

#[test]
fn a_look_up_ends_late_and_with_the_answer_of_its_end() {
    good(&run(calm(1), || {
        let set = |ip| net::set_name("zk", Answer::Addresses(vec![host(ip)]), MS);
        net::set_name("zk", Answer::NoSuchName, 80 * MS);
        after(20 * MS, move || set(7));
        start(1, move || {
            let late = thread::spawn(move || {
                let addrs = resolve("zk", 1).unwrap();
                assert_eq!(addrs, [SocketAddr::new(host(8), 1)]);
            });
            thread::sleep(30 * MS);
            let process = this_process().unwrap();
            assert_eq!(net::prompt_since(process, "zk", 5 * MS), None);
            assert_eq!(resolve("zk", 1).unwrap(), [SocketAddr::new(host(7), 1)]);
            set(8);
            late.join().unwrap();
            assert!(net::prompt_since(process, "zk", 5 * MS) >= Some(80 * MS));
            finish();
        });
    }));
}

#[test]
fn a_slow_line_carries_so_many_bytes_in_a_second() {
    good(&run(calm(1), || {
        net::set_rate(server().ip(), host(1), Some(1_000));
        echo();
        start(1, || {
            let mut client = Client::connect().connected();
            let start = Instant::now();
            client.write(&[7; 500]);
            assert_eq!(client.read(500), Ok(vec![8; 500]));
            assert!(start.elapsed() >= 490 * MS && start.elapsed() < 600 * MS);
            finish();
        });
    }));
}

#[test]
fn several_sockets_connect_at_once_in_one_poll() {
    for seed in 0..20 {
        good(&run(calm(seed), || {
            echo();
            let silent: IpAddr = "fd00::1".parse().unwrap();
            net::set_host_down(silent, true);
            start(1, move || {
                let mut poll = Poll::new().unwrap();
                let to = [SocketAddr::new(silent, 2181), SocketAddr::new(host(7), 2181), server()];
                let both = Interest::READABLE | Interest::WRITABLE;
                let open = |(number, to)| {
                    let mut socket = TcpStream::connect(to).unwrap();
                    poll.registry().register(&mut socket, Token(number), both).unwrap();
                    socket
                };
                let sockets: Vec<TcpStream> = (1..).zip(to).map(open).collect();
                let mut seen = BTreeSet::new();
                let mut events = Events::with_capacity(4);
                let until = Instant::now() + 50 * MS;
                while Instant::now() < until {
                    let _ = poll.poll(&mut events, Some(until - Instant::now()));
                    seen.extend(events.iter().map(|event| event.token()));
                }
                assert_eq!(seen, BTreeSet::from([Token(2), Token(3)]));
                assert!(sockets[0].take_error().unwrap().is_none());
                assert!(sockets[1].take_error().unwrap().is_some());
                // The socket of an attempt that is the first to end becomes the connection's.
                socket::reregister(&sockets[2], poll.registry(), Token(9), both).unwrap();
                while poll.poll(&mut events, None).is_err() {}
                assert_eq!(Vec::from_iter(events.iter().map(|event| event.token())), [Token(9)]);
                finish();
            });
        }));
    }
}

#[test]
fn a_waker_ends_the_wait_of_a_poll() {
    for seed in 0..20 {
        good(&alone(seed, || {
            let mut poll = Poll::new().unwrap();
            let waker = Waker::new(poll.registry(), Token(0)).unwrap();
            let thread = fork(move || waker.wake().unwrap());
            let mut events = Events::with_capacity(1);
            while poll.poll(&mut events, None).is_err() {}
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(0)]);
            thread.join().unwrap();
        }));
    }
}
