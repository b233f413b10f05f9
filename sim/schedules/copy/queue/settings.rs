//! Replaces the library's file: those settings of a lock that matter inside one process.

use std::time::Duration;

use crate::session::ZkSession;

pub struct Settings {
    pub session: ZkSession,
    pub path: String,
    pub hand_over: Duration,
    pub keep: Duration,
}
