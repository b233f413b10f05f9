//! Other clients of the same protocol, written in Rust, against both servers and beside this
//! library. Each scenario runs in a process of its own (`zk-test-support`).
#![deny(dead_code)]

mod foreign;
mod support;

fn main() -> std::process::ExitCode {
    support::runner::main(foreign::tests, Vec::new)
}
