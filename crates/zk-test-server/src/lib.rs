//! A ZooKeeper server for tests: in memory, up in a millisecond, and it can be told to misbehave.
//!
//! [`TestServer`] is a ZooKeeper server inside the process: no JVM and nothing to install. It
//! speaks ZooKeeper's protocol on a loopback port, to any client, and does what ZooKeeper 3.8 does.
//! What no real server offers a test: it fails on command, exactly once, at exactly that request.
//!
//! **It is for development and tests only.** It keeps everything in memory and nothing on disk, and
//! it stands alone.
//!
//! ```toml
//! [dev-dependencies]
//! zk-test-server = "0.1"
//! ```
//!
//! The examples on this page use the client of the crate [`zookeeper`](https://docs.rs/zookeeper);
//! any other will do.
//!
//! # An answer that is lost
//!
//! The hardest fault for any client: a create that was applied, but whose answer never came. What
//! does the program make of it?
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_test_server::{Op, TestServer};
//! use zookeeper::{Acl, CreateMode, ZkError, ZooKeeper};
//!
//! let server = TestServer::start()?; // a port of its own: tests can run side by side
//! let client = ZooKeeper::connect(&server.connect_string(), Duration::from_secs(10), |_| ())?;
//! let nodes = server.node_count();
//!
//! server.drop_reply(Op::Create.on("/orders"));
//! let made = client.create("/orders", vec![], Acl::open_unsafe().clone(), CreateMode::Persistent);
//! assert_eq!(made, Err(ZkError::ConnectionLoss)); // the client cannot know
//! assert_eq!(server.pending_faults(), 0, "the fault has struck");
//! assert_eq!(server.node_count(), nodes + 1, "and the node is there");
//! # Ok(())
//! # }
//! ```
//!
//! [`drop_request`](TestServer::drop_request) loses the request instead,
//! [`silence_reply`](TestServer::silence_reply) answers nothing at all,
//! [`hold_requests`](TestServer::hold_requests) keeps requests back until the test lets them go.
//! For the network as a whole: [`cut_connections`](TestServer::cut_connections),
//! [`refuse`](TestServer::refuse), [`black_hole`](TestServer::black_hole) and
//! [`delay`](TestServer::delay); for the server, [`restart`](TestServer::restart) and
//! [`wipe`](TestServer::wipe). Each is in force when its call returns, and stays so until it is
//! ended.
//!
//! # A session that expires
//!
//! What does the program do when its session expires in the middle of its work, and its ephemeral
//! nodes go?
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_test_server::TestServer;
//! use zookeeper::{Acl, CreateMode, ZooKeeper};
//!
//! let server = TestServer::start()?;
//! let client = ZooKeeper::connect(&server.connect_string(), Duration::from_secs(10), |_| ())?;
//! client.create("/worker", vec![], Acl::open_unsafe().clone(), CreateMode::Ephemeral)?;
//!
//! let session = server.sessions()[0].clone();
//! assert_eq!(session.ephemerals, 1);
//! assert!(server.expire_session(session.id));
//! assert!(server.sessions().iter().all(|other| other.id != session.id));
//! # Ok(())
//! # }
//! ```
//!
//! # Time that does not pass
//!
//! On a [virtual clock](TestServerBuilder::virtual_clock) a session of thirty seconds expires when
//! the test says so, not half a minute later, and never by accident on a slow machine:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_test_server::TestServer;
//! use zookeeper::ZooKeeper;
//!
//! let server = TestServer::builder().virtual_clock().start()?;
//! let client = ZooKeeper::connect(&server.connect_string(), Duration::from_secs(30), |_| ())?;
//! client.exists("/", false)?; // it has its session now
//! let session = server.sessions()[0].id;
//! let is_alive = || server.sessions().iter().any(|living| living.id == session);
//!
//! server.advance(Duration::from_secs(20));
//! assert!(is_alive());
//! server.advance(Duration::from_secs(31)); // nothing was heard of it, by the server's clock
//! assert!(!is_alive());
//! # drop(client);
//! # Ok(())
//! # }
//! ```
//!
//! Only the server's clock is virtual: clients measure their own timeouts in real time.
//!
//! # What was asked, and how often
//!
//! The server logs every request that reaches it ([`requests`](TestServer::requests),
//! [`count`](TestServer::count)) and every watch event that it sends
//! ([`events`](TestServer::events)):
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_test_server::{Event, EventKind, Op, TestServer};
//! use zookeeper::{Acl, CreateMode, ZooKeeper};
//!
//! let server = TestServer::start()?;
//! let client = ZooKeeper::connect(&server.connect_string(), Duration::from_secs(10), |_| ())?;
//! client.create("/orders", vec![], Acl::open_unsafe().clone(), CreateMode::Persistent)?;
//!
//! client.exists_w("/orders", |_| ())?;
//! let limit = Duration::from_secs(10);
//! let read = server.wait_request(Op::Exists.on("/orders"), limit);
//! assert!(read.is_some_and(|read| read.watch), "it watches the node");
//!
//! client.delete("/orders", None)?;
//! let is_end = |event: &Event| event.kind == EventKind::Deleted && event.path == "/orders";
//! assert!(server.wait_event(is_end, limit).is_some());
//! assert_eq!(server.count(Op::Create.on("/orders")), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Wait for requests ([`wait_request`](TestServer::wait_request)) or events
//! ([`wait_event`](TestServer::wait_event)), never for time to pass.
//!
//! # Programs in other languages
//!
//! The program `zk-test-server --port 2181` runs the server by itself (`--help` has its flags). It
//! answers the four-letter words `ruok`, `srvr`, `stat`, `mntr`, `dump`, `cons`, `wchs`, `wchp`,
//! `wchc`, `conf`, `envi`, `isro`, `srst` and `crst` on the same port.
//!
//! # Simulations
//!
//! [`ensemble`] has a leader and its followers as a state machine: bytes and the time go in, what
//! is to be done comes out. It is made of the same parts as [`TestServer`].
//!
//! # What is not as in the real server
//!
//! * Nothing is durable: there is no log, there are no snapshots, and with the process all is gone.
//! * It stands alone: no ensemble, no observers, no `reconfig`, no read-only mode.
//! * No TLS and no SASL; for `addAuth`, the schemes `digest` and `ip`.
//! * Quotas are not kept. A connection has at most 64 identities; credentials beyond are refused.
//! * `createTTL` with flags that know no time, and a time of -1, is refused; it ends a real server
//!   3.8.0.
//! * There is no limit to the connections of a client, nor to what the nodes hold: the memory of
//!   the process is the limit.
//! * What clients do not read waits in memory, within limits. With more than 1 MB to be sent, a
//!   connection is not read. It is closed, with a warning in the log, if there is more than 32 MB
//!   (or four times [`max_frame`](TestServerBuilder::max_frame)) for its client to read and it has
//!   taken nothing for two seconds; and if more than 256 MB (or eight times `max_frame`) is unsent
//!   on all connections together, the connection with the most of it.
//! * Up to 1,000 requests, from all connections, are taken in one batch and overlap as they do in
//!   the real server's pipeline; about every 10 ms, be a batch full or not, it looks at all sockets
//!   again.
//! * It serves on one thread: a request is answered before the next batch is read, so less overlaps
//!   than on a busy real server; and no answer waits for a disk.
//! * Of the four-letter words' numbers, latencies are always zero, and what only a JVM or an
//!   ensemble has is left out. `srvr` names it for what it is.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod logging; // first: its macros are for all that follow

mod builder;
mod clock;
mod engine;
pub mod ensemble;
mod faults;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod held;
mod history;
mod info;
mod matcher;
mod net;
mod request;
mod server;
mod words;

pub use builder::TestServerBuilder;
pub use held::HeldRequests;
pub use info::SessionInfo;
pub use matcher::Matcher;
pub use request::{Event, EventKind, Op, Request};
pub use server::TestServer;
