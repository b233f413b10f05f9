//! Replaces the library's file: errors of requests, and the end of a call's time. Here no request
//! fails, and no time ends in an outage.

use crate::error::{Cause, Error, Result};
use crate::session::Core;
use crate::session::generation::CallError;
use crate::wait::UserCall;

pub fn end_of_time(
    call: &UserCall,
    _core: &Core,
    path: &str,
    _is_held_here: impl FnOnce() -> bool,
) -> Result<()> {
    if call.is_contended() {
        return Ok(());
    }
    Err(Error::Unavailable { op: call.op, path: path.to_owned(), cause: Cause::Deadline })
}

pub fn error(op: &'static str, path: String, CallError(code): CallError) -> Error {
    Error::Server { op, path, code: code.to_string() }
}
