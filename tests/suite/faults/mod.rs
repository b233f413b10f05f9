//! Faults over each recipe, of processes, and at random.
pub mod phases;
pub mod process;
pub mod progress;
pub mod random;
pub mod requests;
pub mod third_parties;

pub const TABLES: &[&[crate::support::Test]] = &[
    phases::TESTS,
    phases::EXCLUSIVE,
    process::TESTS,
    progress::TESTS,
    progress::EXCLUSIVE,
    random::TESTS,
    requests::TESTS,
    requests::EXCLUSIVE,
    third_parties::TESTS,
    third_parties::EXCLUSIVE,
];
