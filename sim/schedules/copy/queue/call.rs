//! What a request that failed means to a user, in the place of the real one: no request fails here.

use crate::error::Error;
use crate::session::generation::CallError;

pub fn error(op: &'static str, path: String, CallError(code): CallError) -> Error {
    Error::Server { op, path, code: code.to_string() }
}
