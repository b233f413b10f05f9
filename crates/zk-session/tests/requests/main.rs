//! What a program sees of the requests on its session: nodes, several writes at once, and outages.
//!
//! A scenario runs in a process of its own, on the embedded server and on the real ZooKeeper unless
//! its table says otherwise. `cargo test` runs it on the embedded server, `tests/run` on both.
#![deny(dead_code)]

mod multis;
mod nodes;
mod outages;
mod support;

zk_test_support::tables![multis, nodes, outages];

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(tests, Vec::new)
}
