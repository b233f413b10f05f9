//! Sessions: their connections, answers, faults and input.
pub mod acl;
pub mod background;
pub mod blocked;
pub mod faults;
pub mod input;
pub mod late;
pub mod life;
pub mod long_answers;
pub mod observer;
pub mod outages;
pub mod own_answers;
pub mod panics;
pub mod tick;

crate::support::tables![
    acl,
    background,
    blocked,
    faults,
    input,
    late,
    life,
    long_answers,
    observer,
    outages,
    own_answers,
    panics,
    tick,
];
