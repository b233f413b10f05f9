//! The tools for SASL do what the scenarios of the client take for granted: shown with
//! Kerberos' own tools. Nothing of ours takes part.
#![deny(dead_code)]

mod tickets;

zk_test_support::tables![tickets];

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(tests, Vec::new)
}
