//! Replaces the library's file: errors of requests. Here no request fails.

use crate::error::Error;
use crate::session::generation::CallError;

pub fn error(op: &'static str, path: String, CallError(code): CallError) -> Error {
    Error::Server { op, path, code: code.to_string() }
}
