//! What a call that failed means to the user.

use crate::error::{Cause, Error};
use crate::session::core::Core;
use crate::session::generation::CallError;

/// Of a lock being taken; `path` is a full one.
pub(crate) fn failure(core: &Core, path: &str, e: CallError) -> Error {
    failure_of("lock", core, path, e)
}

pub(super) fn failure_of(op: &'static str, core: &Core, path: &str, e: CallError) -> Error {
    let path = core.shown(path).to_owned();
    let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
    match e {
        CallError::ConnectionLoss | CallError::Expired => unavailable(Cause::ConnectionLost),
        CallError::Deadline => unavailable(Cause::Deadline),
        CallError::Cancelled => Error::Cancelled { path },
        CallError::NoAuth => Error::NoAuth { op, path },
        CallError::AuthFailed => Error::Auth { op, path },
        CallError::NoNode => Error::Server { op, path, code: "NoNode".into() },
        CallError::NodeExists => Error::Server { op, path, code: "NodeExists".into() },
        CallError::BadVersion => Error::Server { op, path, code: "BadVersion".into() },
        CallError::Other(code) => Error::Server { op, path, code },
    }
}
