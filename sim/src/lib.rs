//! zk-mutex in a simulated world: several processes run the library, on a virtual clock, over a
//! network in memory, against an ensemble of ZooKeeper servers that is made of the embedded
//! server's engine. Faults are injected by a plan that a seed makes. An observer checks the
//! library's guarantees. `tests/simulate` runs seeds; one seed is one run, which replays exactly.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `scenario.rs` | one seed from beginning to end: the world, the phases, the checks at the end |
//! | `servers.rs` | the ensemble in the simulated network |
//! | `operator.rs` | an operator's requests to a server |
//! | `workload/` | the calls that the processes make |
//! | `faults.rs` | the kinds of faults, and the plan of a seed |
//! | `observer/` | the checks |
//! | `store.rs` | the store that the locks protect by their fencing tokens |
//! | `file.rs` | a scenario as a file |
//! | `tool/` | `tests/simulate`: one seed, many seeds, and the fewest faults with which one fails |

pub mod faults;
pub mod file;
pub mod observer;
pub mod operator;
pub mod scenario;
pub mod servers;
pub mod store;
pub mod workload;

use std::net::IpAddr;
use std::time::Duration;

use zk_sim_runtime::{Rng, note};

/// The host of the process with this number.
pub fn client_host(number: usize) -> IpAddr {
    [10, 0, 1, u8::try_from(number).unwrap_or(u8::MAX)].into()
}

/// The host of the server with this number.
pub fn server_host(number: usize) -> IpAddr {
    [10, 0, 0, u8::try_from(number).unwrap_or(u8::MAX)].into()
}

/// A random time between `least` and `most`. On a logarithmic scale all lengths are equally likely.
pub fn between(rng: &mut Rng, least: Duration, most: Duration) -> Duration {
    let (low, high) = (least.as_secs_f64().max(1e-9).ln(), most.as_secs_f64().max(1e-9).ln());
    Duration::from_secs_f64((low + rng.f64() * (high - low)).exp())
}

/// A logger that writes the library's log into the trace.
pub struct TraceLog;

impl log::Log for TraceLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        note(&format!("{}: {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}
