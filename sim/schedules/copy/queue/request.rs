//! Replaces the library's file: a request for a lock. Here no request to a server fails, no time ends
//! in an outage, and nothing is counted.

use std::cell::Cell;
use std::time::Duration;

use super::name::NodeKey;
use super::Settings;
use crate::error::{Cause, Error, Result};
use zk_session::limit::Limit;
use zk_session::Core;
use zk_session::generation::CallError;
use crate::queue::OnLoss;
use zk_session::world::Instant;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Try,
    Pass,
    Wait,
}

pub struct Call {
    pub op: &'static str,
    begun: Instant,
    is_contended: Cell<bool>,
}

impl Call {
    pub fn new(op: &'static str) -> Self {
        Call { op, begun: Instant::now(), is_contended: Cell::new(false) }
    }

    pub fn begun(&self) -> Instant {
        self.begun
    }

    pub fn found_contention(&self) {
        self.is_contended.set(true);
    }

    pub fn is_contended(&self) -> bool {
        self.is_contended.get()
    }
}

pub struct Request<'a> {
    pub call: &'a Call,
    pub settings: &'a Settings,
    pub mode: Mode,
    pub limit: Limit<'a>,
}

pub struct Callbacks<'a> {
    pub on_blocked: &'a dyn Fn(bool),
    pub on_loss: &'a dyn Fn(NodeKey) -> OnLoss,
}

impl Callbacks<'static> {
    pub const NONE: Self = Callbacks { on_blocked: &|_| (), on_loss: &|_| Box::new(|| ()) };
}

impl Request<'_> {
    pub fn core(&self) -> &Core {
        self.settings.core()
    }

    pub fn limit(&self) -> Limit<'_> {
        self.limit
    }

    pub fn cancelled(&self) -> Error {
        Error::Cancelled { path: self.settings.path.clone() }
    }

    pub fn contended(&self) {
        self.call.found_contention();
    }

    pub fn contended_until_now(&self) {
        self.call.found_contention();
    }

    pub fn long_wait(&self) -> (Option<Duration>, Option<Instant>) {
        (None, None)
    }

    pub fn end_of_time(&self) -> Result<()> {
        if self.call.is_contended() {
            return Ok(());
        }
        let (op, path) = (self.call.op, self.settings.path.clone());
        Err(Error::Unavailable { op, path, cause: Cause::Deadline })
    }
}

pub fn error(op: &'static str, path: String, CallError(code): CallError) -> Error {
    Error::Server { op, path, code: code.to_string() }
}
