//! The tools for SASL do what the scenarios of the client take for granted: shown with ZooKeeper's
//! own client in Java and with Kerberos' own tools. Nothing of ours takes part.
#![deny(dead_code)]

mod digest;
mod kerberos;
mod tickets;

zk_test_support::tables![digest, kerberos, tickets];

#[track_caller]
fn assert_says(said: &str, part: &str) {
    assert!(said.contains(part), "no {part:?} in:\n{said}");
}

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(tests, Vec::new)
}
