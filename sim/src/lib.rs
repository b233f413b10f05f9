//! zk-mutex in a simulated world: several processes run the library, on a virtual clock, over a
//! network in memory, against an ensemble of ZooKeeper servers that is made of the embedded
//! server's engine. Faults are injected by a plan that a seed makes. An observer checks the
//! library's guarantees. `tests/simulate` runs seeds; one seed is one run, which replays exactly.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `scenario.rs` | one seed from beginning to end: the world, the phases, the checks at the end |
//! | `servers.rs` | the ensemble in the simulated network |
//! | `visitors.rs` | contenders of other client libraries |
//! | `names.rs` | the names of the servers, and the hosts at their former addresses |
//! | `operator.rs` | an operator's requests to a server |
//! | `workload/` | the calls that the processes make |
//! | `faults.rs` | the kinds of faults, and the plan of a seed |
//! | `last_words.rs` | one of the faults: a leader that hears the last of a holder |
//! | `late_handshakes.rs` | one of the faults: requests that come late to the leader |
//! | `observer/` | the checks |
//! | `store.rs` | the store that the locks protect by their fencing tokens |
//! | `file.rs` | a scenario as a file |
//! | `tool/` | `tests/simulate`: one seed, many seeds, and the fewest faults with which one fails |

pub mod faults;
pub mod file;
mod last_words;
mod late_handshakes;
pub mod names;
pub mod observer;
pub mod operator;
pub mod scenario;
pub mod servers;
pub mod store;
pub mod visitors;
pub mod workload;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, Rng, note, now, this_process, thread};

/// The host of the process with this number.
pub fn client_host(number: usize) -> IpAddr {
    [10, 0, 1, u8::try_from(number).unwrap_or(u8::MAX)].into()
}

/// The host of the server with this number, until it moves.
pub fn server_host(number: usize) -> IpAddr {
    [10, 0, 0, u8::try_from(number).unwrap_or(u8::MAX)].into()
}

/// A random time between `least` and `most`. On a logarithmic scale all lengths are equally likely.
pub fn between(rng: &mut Rng, least: Duration, most: Duration) -> Duration {
    let (low, high) = (least.as_secs_f64().max(1e-9).ln(), most.as_secs_f64().max(1e-9).ln());
    Duration::from_secs_f64((low + rng.f64() * (high - low)).exp())
}

thread_local! {
    /// Until when the code of the application that the library calls blocks in each process, in the
    /// world's time.
    static BLOCKED: RefCell<BTreeMap<ProcessId, Duration>> = const { RefCell::new(BTreeMap::new()) };
}

/// The logger and the observers of this process block for this time.
pub(crate) fn block_foreign_code(process: ProcessId, lasts: Duration) {
    let until = now() + lasts;
    BLOCKED.with_borrow_mut(|all| {
        let blocked = all.entry(process).or_default();
        *blocked = until.max(*blocked);
    });
}

/// A new run begins, in which nothing blocks.
pub(crate) fn unblock_foreign_code() {
    BLOCKED.with_borrow_mut(BTreeMap::clear);
}

/// The logger or an observer is called on this thread, and blocks for as long as it has to.
pub(crate) fn foreign_code() {
    let until = || BLOCKED.with_borrow(|all| all.get(&this_process()?).copied());
    while let Some(left) = until().and_then(|until| until.checked_sub(now())) {
        if left.is_zero() {
            return;
        }
        thread::sleep(left);
    }
}

/// A logger that writes the library's log into the trace. If it has to block, it blocks the threads
/// of the library. What a call logs on the thread of its caller is not the library's concern.
pub struct TraceLog;

impl log::Log for TraceLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        note(&format!("{}: {}", record.level(), record.args()));
        if thread::is_own_thread() {
            foreign_code();
        }
    }

    fn flush(&self) {}
}
