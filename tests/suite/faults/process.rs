//! Holders that end suddenly: by a panic, by a kill, by a stop that outlasts the session. Each
//! scenario runs its own part for the child again.
use crate::support::{
    Raw, Server, Shared,
    process::{Process, child},
    scenarios,
    scene::{SOON, config, queue, session, session_of, until_empty},
    until,
};
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{LossReason, OptionalExt, ZkMutex, ZkSession};

const PATH: &str = "/locks/orders";

fn lock_of_a_thread_that_panics_is_released() {
    let at = Shared::chroot();
    let (mine, theirs) = (session(&at), session(&at));
    let (mutex, other) =
        (Arc::new(ZkMutex::new(&mine, PATH).unwrap()), ZkMutex::new(&theirs, PATH).unwrap());
    let id = mine.status().session_id;
    let panics = {
        let mutex = Arc::clone(&mutex);
        thread::spawn(move || {
            let _outer = mutex.lock().unwrap();
            let _inner = mutex.lock().unwrap();
            panic!("while holding");
        })
    };
    assert!(panics.join().is_err());
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    // A panic that is caught on the same thread leaves no hold and poisons nothing.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock().unwrap();
        panic!("while holding");
    }));
    assert!(caught.is_err() && !mutex.is_owned_by_current_thread());
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    assert!(mutex.lock().unwrap().is_held());
    until_empty(&at, PATH);
    assert_eq!(mine.status().session_id, id);
}

/// The child's part: holds the lock until it is killed, and reports whether the hold stood when it
/// woke from a long stop.
fn hold_until_ended(address: &str, timeout: Duration) {
    let session = session_of(address, timeout);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    println!("{}", guard.fencing_token().zxid());
    let mut last = Instant::now();
    loop {
        // This is the first use of the guard after the stop, and the only one.
        let held = guard.is_held();
        let slept = last.elapsed();
        last = Instant::now();
        if slept > timeout {
            println!("{held} {:?} {}", guard.lost_reason(), guard.check().is_err());
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn lock_of_a_process_that_is_killed_is_released_by_the_server() {
    let timeout = Duration::from_secs(2);
    if let Some(address) = child() {
        return hold_until_ended(&address, timeout);
    }
    let at = Shared::chroot();
    let here = "lock_of_a_process_that_is_killed_is_released_by_the_server";
    let mut holder = Process::start(module_path!(), here, &at, &[]);
    let token: i64 = holder.says().parse().unwrap();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert!(mutex.try_lock().optional().unwrap().is_none());
    holder.signal("-KILL");
    let guard = mutex
        .lock_timeout(timeout * 2 + SOON)
        .optional()
        .unwrap()
        .expect("the server ended its session");
    assert!(guard.fencing_token().zxid() > token);
    guard.unlock().unwrap();
    until_empty(&at, PATH);
}

fn process_stopped_past_its_session_wakes_without_the_lock() {
    let timeout = Duration::from_secs(2);
    if let Some(address) = child() {
        return hold_until_ended(&address, timeout);
    }
    let at = Shared::chroot();
    let here = "process_stopped_past_its_session_wakes_without_the_lock";
    let mut sleeper = Process::start(module_path!(), here, &at, &[]);
    let token: i64 = sleeper.says().parse().unwrap();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert!(mutex.try_lock().optional().unwrap().is_none());
    sleeper.signal("-STOP");
    let guard = mutex
        .lock_timeout(timeout * 2 + SOON)
        .optional()
        .unwrap()
        .expect("the server ended its session");
    assert!(guard.fencing_token().zxid() > token, "the store can refuse the sleeper's writes");
    thread::sleep(timeout); // longer than the child's limit for a long stop
    sleeper.signal("-CONT");
    let said = sleeper.says();
    // The clock ends the hold in any case; the server's notification may come first.
    let reasons = [LossReason::LeaseExpired, LossReason::SessionExpired];
    assert!(reasons.iter().any(|reason| said == format!("false Some({reason:?}) true")), "{said}");
    sleeper.ends_well();
    assert!(guard.is_held());
    guard.unlock().unwrap();
    until_empty(&at, PATH);
}

/// One of several processes: threads that count in a file until they are stopped. Prints the
/// session's id before and after, the number of sections and the number of lost holds.
fn count(address: &str) {
    let (file, stop) = (env::var("COUNTER").unwrap(), env::var("STOP").unwrap());
    let session =
        ZkSession::connect(config(address).session_timeout(Duration::from_secs(40))).unwrap();
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let before = session.status().session_id;
    println!("ready");
    let (sections, lost) = thread::scope(|scope| {
        let work = || {
            let (mut sections, mut lost) = (0_u64, 0_u64);
            while !std::path::Path::new(&stop).exists() {
                let guard = mutex.lock().unwrap();
                let number: u64 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
                thread::sleep(Duration::from_millis(1));
                std::fs::write(&file, format!("{}\n", number + 1)).unwrap();
                sections += 1;
                lost += u64::from(!guard.is_held());
            }
            (sections, lost)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold((0, 0), |(s, l), (a, b)| (s + a, l + b))
    });
    assert_eq!(session.status().session_id, before, "the same session");
    session.close().unwrap();
    println!("{sections} {lost}");
}

fn four_processes_count_exactly_while_the_server_is_killed_and_restarted_ten_times() {
    if let Some(address) = child() {
        return count(&address);
    }
    let server = Server::start();
    let scratch = crate::support::Scratch::new("counter");
    let (file, stop) = (scratch.path().join("counter"), scratch.path().join("stop"));
    std::fs::write(&file, "0\n").unwrap();
    let vars = [("COUNTER", file.to_str().unwrap()), ("STOP", stop.to_str().unwrap())];
    let here = "four_processes_count_exactly_while_the_server_is_killed_and_restarted_ten_times";
    let mut processes: Vec<Process> = (0..4)
        .map(|_| Process::start(module_path!(), here, &server.connect_string(), &vars))
        .collect();
    processes.iter_mut().for_each(|process| assert_eq!(process.says(), "ready"));
    let counted =
        || std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let from = until("the counter can be read", SOON, counted);
        until("the count goes on", Duration::from_secs(30), || {
            counted().filter(|now| *now > from + 20)
        });
        let start = Instant::now();
        server.restart();
        longest = longest.max(start.elapsed());
    }
    assert!(
        longest < Duration::from_secs(10),
        "an outage of {longest:?} is not under T/4, so this run shows nothing"
    );
    std::fs::write(&stop, "").unwrap();
    let said: Vec<String> = processes.iter_mut().map(Process::says).collect();
    println!("{said:?}, the longest outage {longest:?}");
    let mut sections = 0;
    for line in &said {
        let (passed, lost) = line.split_once(' ').unwrap();
        assert_eq!(lost, "0");
        sections += passed.parse::<u64>().unwrap();
    }
    assert_eq!(counted(), Some(sections), "exact");
    processes.into_iter().for_each(Process::ends_well);
    assert!(queue(&server.connect_string(), PATH).is_empty());
    Raw::connect(&server.connect_string()).unwrap().ping().unwrap();
}

scenarios![
    lock_of_a_thread_that_panics_is_released,
    lock_of_a_process_that_is_killed_is_released_by_the_server,
    process_stopped_past_its_session_wakes_without_the_lock,
    four_processes_count_exactly_while_the_server_is_killed_and_restarted_ten_times within 240,
];
