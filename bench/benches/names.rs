//! The cost of reading a listing of a lock's queue: `cargo bench -p zk-mutex-bench --bench names`.
//!
//! The names and the rule are private pure functions that use nothing else of the locks. So this
//! bench compiles their two files into itself. A public but hidden module for benches would be a
//! second interface of the library, which some program would begin to use.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use self::queue::name::{Family, Kind, Layout, new_id, prefix};
use self::queue::rule::{Claim, contenders, in_order, verdict};

#[allow(dead_code, unused_imports)] // the bench uses only a part of these files
#[path = "../../src/queue"]
mod queue {
    pub(crate) mod name;
    pub(crate) mod rule;
}

/// A queue of so many contenders, unordered, as a server lists it, and the name of the last
/// contender.
fn listing(size: usize) -> (Vec<String>, String) {
    let child = |number: usize| {
        let id = new_id(Layout::Curator);
        format!("{}{number:010}", prefix(Layout::Curator, Kind::Lock, &id))
    };
    let mut children: Vec<String> = (0..size).map(child).collect();
    let last = children[size - 1].clone();
    children.sort(); // the ids are random
    (children, last)
}

fn names(c: &mut Criterion) {
    let mut group = c.benchmark_group("names");
    for size in [10, 1_000, 10_000] {
        let (children, last) = listing(size);
        let children: Vec<&str> = children.iter().map(String::as_str).collect();
        group.throughput(Throughput::Elements(size as u64));
        group.bench_with_input(BenchmarkId::new("parse", size), &children, |b, children| {
            b.iter(|| contenders(black_box(children), Family::Locks));
        });
        // The work of each waiter at each listing.
        group.bench_with_input(
            BenchmarkId::new("parse and decide", size),
            &children,
            |b, children| {
                b.iter(|| {
                    let (names, _) = contenders(black_box(children), Family::Locks);
                    let verdict = verdict(&names, &last, Claim::Exclusive, &|_| false);
                    black_box(&verdict);
                });
            },
        );
        // The work of `contenders()` for an operator.
        group.bench_with_input(
            BenchmarkId::new("parse and order", size),
            &children,
            |b, children| {
                b.iter(|| {
                    let (mut names, _) = contenders(black_box(children), Family::Locks);
                    in_order(&mut names);
                    black_box(&names);
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, names);
criterion_main!(benches);
