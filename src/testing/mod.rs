//! Testing your program: an embedded ZooKeeper server that can be told to misbehave.
//!
//! [`TestServer`] is a ZooKeeper server inside the process: no JVM, nothing to install, up in a
//! millisecond. It speaks ZooKeeper's protocol on a loopback port, to this library and to any other client,
//! and does what ZooKeeper 3.8 does. What no real server offers a test: it fails on command, exactly once,
//! at exactly that request.
//!
//! **It is for development and tests only.** It keeps everything in memory and nothing on disk, it
//! stands alone, and nothing in this library uses it unless you say so. It is behind the feature
//! `testing`:
//!
//! ```toml
//! [dev-dependencies]
//! zk-mutex = { version = "0.1", features = ["testing"] }
//! ```
//!
//! # A lock that is lost
//!
//! What does the program do when its session expires in the middle of its work?
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_mutex::testing::TestServer;
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let server = TestServer::start()?; // a port of its own: tests can run side by side
//! let session = ZkSession::connect(&server.connect_string())?;
//! let mutex = ZkMutex::new(&session, "/locks/orders")?;
//! let guard = mutex.lock()?;
//! let lost = guard.lost();
//! assert!(guard.is_held());
//!
//! let id = session.session_id().ok_or("no session")?;
//! assert!(server.expire_session(id));
//!
//! assert!(lost.wait(Duration::from_secs(10)).is_some());
//! assert!(!guard.is_held());
//! println!("{:?}", guard.lost_reason()); // its node went with the session: whichever was heard of first
//! # Ok(())
//! # }
//! ```
//!
//! # An answer that is lost
//!
//! The hardest fault for any client: a create that was applied, but whose answer never came. Did it leave a
//! node that nobody owns?
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use zk_mutex::testing::{Op, TestServer};
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let server = TestServer::start()?;
//! let session = ZkSession::connect(&server.connect_string())?;
//! let mutex = ZkMutex::new(&session, "/locks/orders")?;
//! drop(mutex.lock()?); // makes the parents
//!
//! server.drop_reply(Op::Create.on("/locks/orders/"));
//! let guard = mutex.lock()?; // recovers, and holds the lock
//! assert_eq!(server.pending_faults(), 0, "the fault has struck");
//! assert!(guard.is_held());
//! # Ok(())
//! # }
//! ```
//!
//! [`drop_request`](TestServer::drop_request) loses the request instead,
//! [`silence_reply`](TestServer::silence_reply) answers nothing at all,
//! [`hold_requests`](TestServer::hold_requests) keeps requests back until the test lets them go. For
//! the network as a whole: [`cut_connections`](TestServer::cut_connections),
//! [`refuse`](TestServer::refuse), [`black_hole`](TestServer::black_hole) and
//! [`delay`](TestServer::delay); for the server, [`restart`](TestServer::restart) and
//! [`wipe`](TestServer::wipe). Each is in force when its call returns, and stays so until it is ended.
//!
//! # Time that does not pass
//!
//! On a [virtual clock](TestServerBuilder::virtual_clock) a session of thirty seconds expires when the test
//! says so, not half a minute later, and never by accident on a slow machine:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_mutex::testing::TestServer;
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let server = TestServer::builder().virtual_clock().start()?;
//! let session = ZkSession::builder(server.connect_string())
//!     .session_timeout(Duration::from_secs(30))
//!     .connect()?;
//! let mutex = ZkMutex::new(&session, "/locks/orders")?;
//! let guard = mutex.lock()?;
//!
//! server.advance(Duration::from_secs(20));
//! assert_eq!(server.sessions().len(), 1);
//! server.advance(Duration::from_secs(31)); // nothing was heard of it, by the server's clock
//! assert!(guard.lost().wait(Duration::from_secs(10)).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Only the server's clock is virtual: clients measure their own timeouts in real time.
//!
//! # What was asked, and how often
//!
//! The server logs every request that reaches it and every watch event that it sends:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zk_mutex::testing::{Event, Op, TestServer};
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let server = TestServer::start()?;
//! let one = ZkSession::connect(&server.connect_string())?;
//! let two = ZkSession::connect(&server.connect_string())?;
//! let (held, wanted) = (ZkMutex::new(&one, "/locks/a")?, ZkMutex::new(&two, "/locks/a")?);
//! let guard = held.lock()?;
//! let ahead = guard.path().to_owned();
//! server.clear_log();
//!
//! let second = two.session_id().ok_or("no session")?;
//! std::thread::scope(|scope| {
//!     let waiter = scope.spawn(|| wanted.lock().map(drop));
//!     let limit = Duration::from_secs(10);
//!     let read = server.wait_request(Op::GetData.on(&ahead).session(second), limit);
//!     assert!(read.is_some_and(|read| read.watch), "it watches the one ahead");
//!     drop(guard);
//!     waiter.join().expect("no panic")
//! })?;
//! let to_second = |event: &Event| event.path == ahead && event.session == second;
//! assert_eq!(server.events().into_iter().filter(to_second).count(), 1, "one watch, one event");
//! # Ok(())
//! # }
//! ```
//!
//! Wait for requests ([`wait_request`](TestServer::wait_request)) or events
//! ([`wait_event`](TestServer::wait_event)), never for time to pass.
//!
//! # Programs in other languages
//!
//! `cargo run --example server -- --port 2181` in this library's repository runs the server by itself. It
//! answers the four-letter words `ruok`, `srvr`, `stat`, `mntr`, `dump`, `cons`, `wchs`, `wchp`, `wchc`,
//! `conf`, `envi`, `isro`, `srst` and `crst` on the same port.
//!
//! # What is not as in the real server
//!
//! * Nothing is durable: there is no log, there are no snapshots, and with the process all is gone.
//! * It stands alone: no ensemble, no observers, no `reconfig`, no read-only mode.
//! * No TLS and no SASL; for `addAuth`, the schemes `digest` and `ip`.
//! * Quotas are not kept. A connection has at most 64 identities; credentials beyond are refused.
//! * `createTTL` with flags that know no time, and a time of -1, is refused; it ends a real server 3.8.0.
//! * There is no limit to the connections of a client, nor to what the nodes hold: the memory of the
//!   process is the limit.
//! * What clients do not read waits in memory, within limits. With more than 1 MB to be sent, a connection
//!   is not read. It is closed, with a warning in the log, if there is more than 32 MB (or four times
//!   [`max_frame`](TestServerBuilder::max_frame)) for its client to read and it has taken nothing for two
//!   seconds; and if more than 256 MB (or eight times `max_frame`) is unsent on all connections together,
//!   the connection with the most of it.
//! * Up to 1,000 requests, from all connections, are taken in one batch and overlap as they do in the real
//!   server's pipeline; about every 10 ms, be a batch full or not, it looks at all sockets again.
//! * It serves on one thread: a request is answered before the next batch is read, so less overlaps than
//!   on a busy real server; and no answer waits for a disk.
//! * Of the four-letter words' numbers, latencies are always zero, and what only a JVM or an ensemble has is
//!   left out. `srvr` names it for what it is.

mod builder;
mod clock;
pub(crate) mod engine;
#[cfg(any(test, zk_sim))]
pub mod ensemble;
mod faults;
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
