//! The cost of what the machine of a connection decides, without sockets, threads and a server:
//! `cargo bench -p zk-mutex-bench --bench machine`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zk_session::unstable::Bench;

/// A create and a listing in one flight, with their answers: what one call for a lock sends.
fn create_and_list(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine: create and list");
    for size in [1_usize, 10, 1_000] {
        let names: Vec<String> = (0..size)
            .map(|number| format!("_c_{}-lock-{number:010}", uuid::Uuid::new_v4()))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut machine = Bench::up();
        group.throughput(Throughput::Elements(size as u64));
        group.bench_with_input(BenchmarkId::from_parameter(size), &names, |b, names| {
            b.iter(|| black_box(machine.create_and_list(black_box(names))));
        });
    }
    group.finish();
}

criterion_group!(benches, create_and_list);
criterion_main!(benches);
