//! The tools of all scenarios: the runner, servers (real and embedded), a fault proxy and a raw
//! client. It does not know the lock library; the tools for the library are in
//! `tests/suite/support`.
pub mod ask;
pub mod brand;
mod child;
pub mod control;
mod embedded;
pub mod ensemble;
mod java;
pub mod java_client;
pub mod kdc;
pub mod logged;
pub mod op;
pub mod own;
#[cfg(feature = "tls")]
pub mod pki;
mod program;
pub mod proxy;
mod proxy_link;
#[cfg(feature = "tls")]
pub mod proxy_tls;
pub mod raw;
mod real;
mod residue;
pub mod runner;
pub mod sasl;
mod scratch;
pub mod server;
pub mod shared;
mod snapshot;
pub mod stub;
pub mod tls;
pub mod variant;
pub mod wait;
pub mod wire;

pub use control::{assert_lasted, at_best};
pub use ensemble::{Ensemble, Isolation};
pub use kdc::Kdc;
pub use op::{OpKind, Request, Which};
pub use proxy::{Direction, Proxy};
pub use raw::Raw;
pub use runner::Test;
pub use scratch::{Scratch, VAR as SCRATCH_VAR};
pub use server::Server;
pub use shared::Shared;
pub use stub::Stub;
pub use variant::{On, Variant};
pub use wait::until;

use std::net::Ipv4Addr;

/// A loopback address that no other process uses (on Linux all of 127/8 is loopback). With an
/// address of its own a server keeps its ports while it is down, and a closed listener can be bound
/// again, because no outgoing connection gets one of these ports.
pub fn own_loopback() -> Ipv4Addr {
    let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
    let [c, ..] = uuid::Uuid::new_v4().into_bytes();
    Ipv4Addr::new(127, a.clamp(1, 254), b, c.clamp(1, 254))
}
