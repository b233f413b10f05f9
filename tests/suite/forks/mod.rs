//! Forks: a forked child has nothing of its parent's session, and does it no harm.
pub mod program;

use self::program::Case;
use crate::support::{Shared, scenarios, until};
use std::{
    env,
    process::{Command, Stdio},
    time::Duration,
};

/// Plays a case in a process of its own, which forks.
#[track_caller]
fn play(case: Case) {
    let mut process = Command::new(env::current_exe().unwrap())
        .args([program::NAME, case.name(), &Shared::chroot()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let ended = until("the program ends", Duration::from_secs(120), || process.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
}

/// A scenario for each case, under the case's name.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        $(fn $name() {
            play(program::case(stringify!($name)).expect("it is in the program's list"));
        })+

        scenarios![$($name),+];
    };
}

cases![
    mutex,
    read,
    write,
    permit,
    leader,
    multi,
    exclusive,
    downgraded,
    semaphore_mutex,
    permits_together,
    candidate,
    runner_that_leads,
    kept_node,
    signals_of_a_multi_lock,
    signals_that_threads_wait_for,
    last_handle,
    session_of_its_own,
    lines_of_the_log,
    child_of_a_child,
    busy_parent,
];
