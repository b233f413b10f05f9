//! Watches and ephemeral nodes under the lease, on the embedded server and the real one. Each
//! scenario runs in a process of its own (`zk-test-support`).
#![deny(dead_code)]

mod changes;
mod ends;
mod holds;
mod outages;
mod refusals;
mod scene;

zk_test_support::tables![changes, ends, holds, outages, refusals];

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(tests, Vec::new)
}
