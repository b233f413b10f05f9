//! The cost of a lock inside one process, while its node is held and nothing is sent: `cargo bench
//! -p zk-mutex-bench --bench local`.
//!
//! All calls go through the public interface of the library, on the embedded server.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use zk_mutex::{ZkMutex, ZkRwLock, ZkSession};
use zk_test_server::TestServer;

/// A lock and an unlock by a thread that holds the lock already.
fn re_entry(c: &mut Criterion) {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(server.connect_string()).unwrap();
    let mutex = ZkMutex::new(&session, "/mutex").unwrap();
    let rwlock = ZkRwLock::new(&session, "/rwlock").unwrap();
    let mut group = c.benchmark_group("re-entry");
    {
        let _held = mutex.lock().unwrap();
        group.bench_function("mutex", |b| {
            b.iter(|| {
                let guard = mutex.lock().unwrap();
                black_box(&guard);
            });
        });
        group.bench_function("mutex, try_lock", |b| {
            b.iter(|| {
                let guard = mutex.try_lock().unwrap();
                black_box(&guard);
            });
        });
    }
    {
        let _held = rwlock.write().unwrap();
        group.bench_function("write", |b| {
            b.iter(|| {
                let guard = rwlock.write().unwrap();
                black_box(&guard);
            });
        });
    }
    {
        let _held = rwlock.read().unwrap();
        group.bench_function("read", |b| {
            b.iter(|| {
                let guard = rwlock.read().unwrap();
                black_box(&guard);
            });
        });
    }
    group.finish();
}

/// The check that a holder makes before each step of its work.
fn is_held(c: &mut Criterion) {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(server.connect_string()).unwrap();
    let mutex = ZkMutex::new(&session, "/mutex").unwrap();
    let guard = mutex.lock().unwrap();
    c.bench_function("is_held", |b| b.iter(|| black_box(guard.is_held())));
}

/// One cycle of lock and unlock among threads that contend for one lock. The bound on the hand-over
/// is an hour, so that the node stays and each cycle is a hand-over from thread to thread.
fn hand_over(c: &mut Criterion) {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(server.connect_string()).unwrap();
    let mutex =
        ZkMutex::builder(&session, "/mutex").hand_over(Duration::from_secs(3_600)).build().unwrap();
    let mut group = c.benchmark_group("hand-over");
    for threads in [2, 8, 32] {
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter_custom(|cycles| contend(&mutex, threads, cycles));
        });
    }
    group.finish();
}

/// The time in which the threads complete so many cycles together.
fn contend(mutex: &ZkMutex, threads: u64, cycles: u64) -> Duration {
    // All threads queue while this one holds the lock. The first cycle is the hand-over from this
    // thread.
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

criterion_group!(benches, re_entry, is_held, hand_over);
criterion_main!(benches);
