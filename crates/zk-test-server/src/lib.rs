//! A ZooKeeper server for tests. It runs in memory, starts in a millisecond, and fails when the
//! test wants it to.
//!
//! [`TestServer`] is a ZooKeeper server inside the process: no JVM and nothing to install. It
//! speaks ZooKeeper's protocol on a loopback port, to any client, and answers as ZooKeeper 3.8
//! does, or as another [`Brand`] of server. A test can tell it to fail exactly once, at exactly one
//! request. No real server can do that.
//!
//! **It is for development and tests only.** It is a single server, and keeps everything in memory
//! and nothing on disk.
//!
//! ```toml
//! [dev-dependencies]
//! zk-test-server = "0.1"
//! ```
//!
//! The examples on this page use the client of the crate [`zookeeper`](https://docs.rs/zookeeper).
//! Any other client works as well.
//!
//! # An answer that is lost
//!
//! The hardest fault for any client is a create that the server has applied, but whose answer never
//! arrives. What does the program do then?
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
//! assert_eq!(server.pending_faults(), 0, "the fault was injected");
//! assert_eq!(server.node_count(), nodes + 1, "and the node is there");
//! # Ok(())
//! # }
//! ```
//!
//! All faults:
//!
//! | call | what fails |
//! | --- | --- |
//! | [`drop_reply`](TestServer::drop_reply) | one answer is lost, and the connection is closed |
//! | [`silence_reply`](TestServer::silence_reply) | one answer is lost, and the connection stays open and silent |
//! | [`drop_request`](TestServer::drop_request) | one request is lost, and the connection is closed |
//! | [`hold_requests`](TestServer::hold_requests) | requests wait until the test lets them go |
//! | [`cut_connections`](TestServer::cut_connections) | all connections are closed |
//! | [`refuse`](TestServer::refuse) | new connections are refused |
//! | [`black_hole`](TestServer::black_hole) | connections stay open, and nothing passes |
//! | [`delay`](TestServer::delay) | every answer and event is sent later |
//! | [`expire_session`](TestServer::expire_session) | a session expires |
//! | [`restart`](TestServer::restart), [`wipe`](TestServer::wipe) | the server stops and starts again, with its data or without |
//!
//! The first three faults happen once, at the next request that matches. The others are in force
//! when their call returns; those that last go on until the test ends them.
//!
//! # A session that expires
//!
//! What does the program do when its session expires in the middle of its work, and the server
//! deletes its ephemeral nodes?
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
//! the test says so. The test does not wait for half a minute, and no session expires by accident
//! on a slow machine:
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
//! server.advance(Duration::from_secs(31)); // its client was silent for too long
//! assert!(!is_alive());
//! # drop(client);
//! # Ok(())
//! # }
//! ```
//!
//! Only the server's clock is virtual: clients measure their own timeouts in real time.
//!
//! # Which requests came, and how many
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
//! [`ensemble`] has a leader and its followers as a state machine. Its input is the bytes that
//! arrive and the time. Its outputs are the bytes to send and the connections to close. It is made
//! of the same parts as [`TestServer`].
//!
//! # Differences from the real server
//!
//! * Nothing is durable. There is no log and no snapshot, and all data is gone when the process
//!   ends.
//! * It is a single server: there is no ensemble, no observer, no `reconfig` and no read-only mode.
//! * SASL needs the feature `sasl`, and is DIGEST-MD5 alone, without Kerberos: see
//!   `TestServerBuilder::sasl_user`. For `addAuth` there are the schemes `digest` and `ip`. TLS
//!   needs the feature `tls`, and then ACLs may have entries of the scheme `x509`, whether the
//!   server serves over TLS or not.
//! * Quotas are not enforced. A connection has at most 64 identities, without that of its
//!   login by SASL; further credentials are refused.
//! * `createTTL` is refused if its flags allow no time to live and the time is -1. Such a request
//!   makes a real server 3.8.0 exit.
//! * The number of a client's connections and the size of all nodes are limited only by the memory
//!   of the process.
//! * Answers that a client does not read wait in memory, within limits. While more than 1 MB waits
//!   for one connection, the server does not read from this connection. The server closes it, with
//!   a warning in the log, if more than 32 MB (or four times
//!   [`max_frame`](TestServerBuilder::max_frame)) waits and the client has read nothing for two
//!   seconds. If more than 256 MB (or eight times `max_frame`) waits on all connections together,
//!   the server closes the connection for which most waits.
//! * The server takes up to 1,000 requests, from all connections, in one batch. The requests of a
//!   batch overlap as they do in the real server's pipeline. About every 10 ms it polls all
//!   sockets again, whether the batch is full or not.
//! * It serves on one thread, and answers a batch before it reads the next one. So fewer requests
//!   overlap than on a busy real server. No answer waits for a disk.
//! * In the answers to four-letter words, latencies are always zero, and numbers that only a JVM or
//!   an ensemble has are left out. `srvr` says that this is a test server.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod logging; // first: its macros are for all that follow

mod brand;
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

pub use brand::Brand;
pub use builder::TestServerBuilder;
pub use held::HeldRequests;
pub use info::SessionInfo;
pub use matcher::Matcher;
#[cfg(feature = "tls")]
pub use net::tls::ServerTls;
pub use request::{Event, EventKind, Op, Request};
pub use server::TestServer;
