//! What an observer costs: `cargo bench -p zk-mutex-bench --bench observed`.
//!
//! The same cycles of lock and release without an observer, with one that does nothing, and with
//! `MetricsObserver` and the recorder of the Prometheus exporter, as a program has it. Everything
//! goes through the public face of the library, on the embedded server.
//!
//! One block of cycles differs from the next by more than an observer costs. So all sessions run a
//! block in each round, in another order each time, and what counts is the ratio of two blocks of
//! one round. The second session without an observer shows what such a ratio is by chance.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use zk_mutex::{MetricsObserver, Observer, SessionBuilder, ZkMutex, ZkSession};
use zk_test_server::TestServer;

struct Nothing;

impl Observer for Nothing {}

/// How the session is observed.
type Observed = fn(SessionBuilder) -> SessionBuilder;

const OBSERVERS: [(&str, Observed); 4] = [
    ("none", |builder| builder),
    ("none again", |builder| builder),
    ("nothing", |builder| builder.observer(Nothing)),
    ("metrics", |builder| builder.observer(MetricsObserver::default())),
];

/// How long so many cycles with this mutex take.
type Cycles = fn(&ZkMutex, u64) -> Duration;

fn main() {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &[1e-3, 1e-2, 1e-1, 1.0])
        .expect("the buckets are some")
        .install_recorder()
        .expect("there is no other recorder");
    let server = TestServer::start().expect("a server");
    let sessions = OBSERVERS.map(|(name, observe)| {
        let builder = observe(ZkSession::builder(server.connect_string()));
        (name, builder.connect().expect("a session"))
    });
    compare(&sessions, "lock and release", 200, 100, alone);
    // Blocks of hand-overs differ by a half: which thread runs where is chance.
    let hand_over: Cycles = |mutex, cycles| contend(mutex, 8, cycles);
    compare(&sessions, "hand-over, 8 threads", 4_000, 250, hand_over);
    compare(&sessions, "re-entry", 200, 100_000, |mutex, cycles| {
        let _held = mutex.lock().unwrap();
        alone(mutex, cycles)
    });
}

/// Runs the rounds, and prints the median and the quartiles of the ratios to the first session.
fn compare(sessions: &[(&str, ZkSession)], what: &str, rounds: usize, cycles: u64, run: Cycles) {
    let mutexes: Vec<_> = sessions
        .iter()
        .map(|(name, session)| {
            let path = format!("/{what}/{name}");
            let builder = ZkMutex::builder(session, &path).name("bench");
            builder.hand_over(Duration::from_secs(3_600)).build().unwrap()
        })
        .collect();
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); mutexes.len()];
    let warm_up = rounds / 10; // these do not count
    for round in 0..warm_up + rounds {
        for place in 0..mutexes.len() {
            let which = (round + place) % mutexes.len();
            let time = run(&mutexes[which], cycles).as_secs_f64() / cycles as f64;
            if round >= warm_up {
                took[which].push(time);
            }
        }
    }
    let base = &took[0];
    println!("{what}: {:.2} us a cycle without an observer", quartiles(base.clone())[1] * 1e6);
    for ((name, _), times) in sessions.iter().zip(&took).skip(1) {
        let ratios = times.iter().zip(base).map(|(time, base)| time / base).collect();
        let [low, median, high] = quartiles(ratios);
        println!("    {name:10} {median:.3} x (half of the rounds: {low:.3} to {high:.3})");
    }
}

fn quartiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| all[all.len() * quarter / 4])
}

fn alone(mutex: &ZkMutex, cycles: u64) -> Duration {
    let start = Instant::now();
    (0..cycles).for_each(|_| drop(black_box(mutex.lock().unwrap())));
    start.elapsed()
}

/// How long it takes the threads to go through so many cycles together.
fn contend(mutex: &ZkMutex, threads: u64, cycles: u64) -> Duration {
    let held = mutex.lock().unwrap();
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                let own = cycles / threads + u64::from(thread < cycles % threads);
                scope.spawn(move || {
                    for _ in 0..own {
                        drop(black_box(mutex.lock().unwrap()));
                    }
                })
            })
            .collect();
        let start = Instant::now();
        drop(held);
        all.into_iter().for_each(|thread| thread.join().unwrap());
        start.elapsed()
    })
}
