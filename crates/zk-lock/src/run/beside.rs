//! Refuses to run beside a client that would not exclude the command's lock.

use serde_json::json;
use zk_mutex::{Layout, ZkSession};

use crate::cli::{LayoutArg, RunArgs};
use crate::exit::{Failure, USAGE};
use crate::nodes::conflict;
use crate::nodes::queue::LockKind;
use crate::output::Output;

/// The layout of the names of the run's nodes.
pub fn layout(args: &RunArgs) -> Layout {
    match args.layout {
        LayoutArg::Curator => Layout::Curator,
        LayoutArg::Kazoo => Layout::Kazoo,
    }
}

/// An error if one of the paths of `run` belongs to others.
pub fn check(session: &ZkSession, args: &RunArgs, output: &Output) -> Result<(), Failure> {
    let kind = match (args.permits, args.read || args.write) {
        (Some(_), _) => LockKind::Semaphore,
        (None, true) => LockKind::ReadWrite,
        (None, false) => LockKind::Mutex,
    };
    args.paths
        .iter()
        .try_for_each(|path| check_path(session, path, kind, layout(args), args.force, output))
}

/// An error if the path belongs to locks of another kind, or to clients that do not wait for names
/// of this layout. `is_forced`: of the latter, only a line tells.
pub fn check_path(
    session: &ZkSession,
    path: &str,
    kind: LockKind,
    layout: Layout,
    is_forced: bool,
    output: &Output,
) -> Result<(), Failure> {
    let Some(found) = conflict::find(session, path, kind, layout)? else { return Ok(()) };
    if is_forced && found.may_be_well {
        let text = format!("{}: running all the same (--force)", found.what);
        output.warn("beside", &text, json!({"path": path}));
        return Ok(());
    }
    let text = format!("{}. Nothing excludes the two: {}", found.what, found.advice);
    Err(Failure::new(USAGE, "beside", text))
}
