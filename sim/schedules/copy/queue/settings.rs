//! Replaces the library's file: those settings of a lock that matter inside one process.

use crate::session::ZkSession;

pub struct Settings {
    pub session: ZkSession,
    pub path: String,
}
