//! What a watch tells, by the looks of the machine: `teller` compares a look with the one before,
//! and `event` says what follows.

pub(crate) mod event;
pub(crate) mod teller;
