//! What an observer costs: `cargo bench -p zk-mutex-bench --bench observed`.
//!
//! The same cycles of lock and release without an observer, with one that does nothing, and with
//! `MetricsObserver` and the recorder of the Prometheus exporter, as a program has it. Everything
//! goes through the public face of the library, on the embedded server.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use zk_mutex::{MetricsObserver, Observer, SessionBuilder, ZkMutex, ZkSession};
use zk_test_server::TestServer;

struct Nothing;

impl Observer for Nothing {}

/// How the session is observed.
type Observed = fn(SessionBuilder) -> SessionBuilder;

const OBSERVERS: [(&str, Observed); 3] = [
    ("none", |builder| builder),
    ("nothing", |builder| builder.observer(Nothing)),
    ("metrics", |builder| builder.observer(MetricsObserver::new())),
];

fn observed(c: &mut Criterion) {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &[1e-3, 1e-2, 1e-1, 1.0])
        .unwrap()
        .install_recorder()
        .unwrap();
    let server = TestServer::start().unwrap();
    let builder = || ZkSession::builder(server.connect_string());
    let sessions = OBSERVERS.map(|(name, observe)| (name, observe(builder()).connect().unwrap()));
    let each = |c: &mut Criterion,
                what: &str,
                bench: fn(&mut BenchmarkGroup<'_, WallTime>, &str, &ZkSession)| {
        let mut group = c.benchmark_group(what);
        sessions.iter().for_each(|(name, session)| bench(&mut group, name, session));
        group.finish();
    };
    each(c, "observed: lock and release", |group, name, session| {
        let mutex = ZkMutex::builder(session, &format!("/{name}")).name("bench").build().unwrap();
        group.bench_function(name, |b| b.iter(|| drop(black_box(mutex.lock().unwrap()))));
    });
    each(c, "observed: hand-over, 8 threads", |group, name, session| {
        let builder = ZkMutex::builder(session, &format!("/{name}-threads")).name("bench");
        let mutex = builder.hand_over(Duration::from_secs(3_600)).build().unwrap();
        group.bench_function(name, |b| b.iter_custom(|cycles| contend(&mutex, 8, cycles)));
    });
    each(c, "observed: re-entry", |group, name, session| {
        let mutex = ZkMutex::builder(session, &format!("/{name}-again")).build().unwrap();
        let _held = mutex.lock().unwrap();
        group.bench_function(name, |b| b.iter(|| drop(black_box(mutex.lock().unwrap()))));
    });
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

criterion_group!(benches, observed);
criterion_main!(benches);
