//! Faults over each recipe, faults of processes, and random faults.
pub mod contention;
pub mod folders;
pub mod other_kinds;
pub mod phases;
pub mod places;
pub mod process;
pub mod progress;
pub mod random;
pub mod requests;
pub mod third_parties;

crate::support::tables![
    contention,
    folders,
    other_kinds,
    phases,
    places,
    process,
    progress,
    random,
    requests,
    third_parties
];
