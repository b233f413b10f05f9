//! The cost of a request to a server on the same host: `cargo bench -p zk-mutex-bench --bench
//! connection`.
//!
//! These benches use the public interface and the embedded server over loopback: they measure the
//! machine, the sockets, the threads that wake each other, and the server together. (`machine.rs`
//! measures the machine alone.)
//! They serve to compare one version of the library with another.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zk_mutex::{OptionalExt, ZkMutex, ZkSemaphore, ZkSession};
use zk_test_server::TestServer;

/// A create with its listing in one flight, and a delete.
fn lock_and_release(c: &mut Criterion) {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(server.connect_string()).unwrap();
    let mutex = ZkMutex::new(&session, "/mutex").unwrap();
    let kept =
        ZkMutex::builder(&session, "/kept").keep(Duration::from_secs(3_600)).build().unwrap();
    let mut group = c.benchmark_group("lock and release, embedded server");
    group.bench_function("drop", |b| b.iter(|| drop(black_box(mutex.lock().unwrap()))));
    group.bench_function("unlock", |b| {
        b.iter(|| black_box(mutex.lock().unwrap()).unlock().unwrap())
    });
    // Nothing is sent: the part of the cost that is neither the connection nor the server.
    group.bench_function("kept", |b| b.iter(|| drop(black_box(kept.lock().unwrap()))));
    group.finish();
}

/// One flight with a listing of so many names, without success: all permits are taken.
fn listing(c: &mut Criterion) {
    let server = TestServer::start().unwrap();
    let sessions = [(); 2].map(|()| ZkSession::connect(server.connect_string()).unwrap());
    let mut group = c.benchmark_group("listing, embedded server");
    for size in [10, 1_000] {
        let [ours, theirs] = [0, 1]
            .map(|i| ZkSemaphore::new(&sessions[i], format!("/semaphore-{size}"), size).unwrap());
        let _held = theirs.acquire_many(size).unwrap();
        group.throughput(Throughput::Elements(size.into()));
        group.bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter(|| assert!(ours.try_acquire().optional().unwrap().is_none()));
        });
    }
    group.finish();
}

criterion_group!(benches, lock_and_release, listing);
criterion_main!(benches);
