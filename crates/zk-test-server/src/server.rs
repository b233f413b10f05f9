//! [`TestServer`]: the server as a test uses it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::builder::TestServerBuilder;
use super::clock::Clock;
use super::engine::Settings;
use super::faults::Plan;
use super::held::HeldRequests;
use super::history::Search;
use super::info::SessionInfo;
use super::matcher::Matcher;
use super::net::{Options, Shared};
use super::request::{Event, Request};

/// A ZooKeeper server in this process, in memory, which fails when a test wants it to; see the
/// [page](crate) about testing with it. Dropping it stops it.
///
/// It is `Send` and `Sync`: share it by reference or in an `Arc`. If a method changes something,
/// the change is in force when the method returns.
#[derive(Debug)]
#[must_use = "it stops when dropped"]
pub struct TestServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    keep_data: bool,
}

impl TestServer {
    /// Starts a server with the default settings on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// As [`TestServerBuilder::start`].
    pub fn start() -> io::Result<TestServer> {
        TestServer::builder().start()
    }

    /// A builder, for a server with settings of its own.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::new()
    }

    pub(super) fn new(
        wanted: SocketAddr,
        clock: Clock,
        settings: Settings,
        options: Options,
        keep_data: bool,
    ) -> io::Result<TestServer> {
        let (shared, thread, address) = Shared::start(wanted, clock, settings, options)?;
        Ok(TestServer { shared, thread: Some(thread), address, keep_data })
    }

    /// The connect string for clients: `"127.0.0.1:41873"`. For a server that listens on all
    /// addresses, this is a loopback address.
    pub fn connect_string(&self) -> String {
        let host = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        SocketAddr::new(host, self.address.port()).to_string()
    }

    /// The address and the port that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, closes the port and waits for the server's thread to end. The same as
    /// a drop.
    pub fn stop(self) {
        drop(self);
    }

    /// Moves the [virtual clock](TestServerBuilder::virtual_clock) of the server forward by `time`.
    ///
    /// The server first serves the requests that clients have sent before, also on new connections.
    /// Then it does everything that becomes due in this time, in order. A session expires if its
    /// client was silent for the session timeout on this clock. Empty containers are deleted, and
    /// so are nodes whose time to live is over. All this is done when the call returns.
    ///
    /// Clients send their heartbeats by their own, real clocks. So one step that is longer than a
    /// session timeout expires that session, although its client lives. To keep a session alive,
    /// take shorter steps, and wait for the client's next [`Op::Ping`](super::Op::Ping) between two
    /// steps.
    ///
    /// # Panics
    ///
    /// If the server's clock is real.
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        let is_virtual = self.shared.act(|core| core.advance(time));
        assert!(
            is_virtual,
            "advance() needs a server with a virtual clock: TestServer::builder().virtual_clock()"
        );
    }

    /// Expires a session, as if its client had been silent for the session timeout. The session's
    /// ephemeral nodes are deleted, the watches on them fire, and its connection is closed. The
    /// client learns of the expiry when it connects again. Requests that clients have sent before
    /// are served first. Returns `false` if there is no such session.
    ///
    /// No real server expires a session that it has just heard, so a client that counts with a lease
    /// learns of this only by the server's news: for a moment two clients may hold one lock. To see
    /// a lease end first, let the server be silent with [`black_hole`](Self::black_hole).
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.act(|core| core.expire(id))
    }

    /// Closes every connection, also those that the server has not accepted yet. Requests that
    /// clients have sent before are served first, unless another fault prevents it. Answers that
    /// were not sent yet are lost. The sessions go on until they expire, and a client that connects
    /// again gets its session back.
    pub fn cut_connections(&self) {
        self.shared.act(|core| core.cut_connections());
    }

    /// With `true`, refuses new connections, as a host does on which no server runs; `false` ends
    /// this. Meanwhile the server keeps its port (on Linux; on other systems another process might
    /// take it). Existing connections stay open and are served. To test a server that is down, call
    /// [`cut_connections`](Self::cut_connections) too: sessions then expire unless the server
    /// accepts connections again in time.
    pub fn refuse(&self, refuse: bool) {
        self.shared.act(|core| core.refuse(refuse));
    }

    /// With `true`, lets no byte through in either direction; `false` ends this. Connections stay
    /// open, and new ones are accepted, but the server reads nothing and sends nothing. Clients see
    /// no error, only silence. The server receives nothing for their sessions, so these expire.
    /// When the fault ends, the bytes that waited on both sides pass.
    pub fn black_hole(&self, black_hole: bool) {
        self.shared.act(|core| core.black_hole(black_hole));
    }

    /// Sends every answer, event and close later by `delay`, in the same order. The delay is in
    /// real time, also if the server's clock is virtual. [`Duration::ZERO`] ends the fault:
    /// everything that still waits is sent at once. Requests are applied without delay; only their
    /// answers are late.
    ///
    /// Answers that wait are kept in memory. While more than a megabyte waits for one connection,
    /// the server does not read from this connection.
    pub fn delay(&self, delay: Duration) {
        self.shared.act(|core| core.set_delay(delay));
    }

    /// Plans a fault for the next matching request: the server applies the request, and then closes
    /// the connection instead of sending the answer. The client sees the end of its connection, and
    /// cannot know whether the request was applied.
    ///
    /// Answers and events before this answer are sent. Requests behind it on the same connection
    /// are not served, even if they were sent together with it. The fault is also injected into a
    /// request that has no answer. Each call plans one fault. Several planned faults are injected
    /// one after the other, each into a matching request of its own.
    pub fn drop_reply(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::DropReply, matcher.into());
    }

    /// As [`drop_reply`](Self::drop_reply), but the connection stays open and silent. From then on
    /// the server sends nothing on it, and throws away what arrives on it, until the client closes
    /// it, or [`cut_connections`](Self::cut_connections) or [`restart`](Self::restart) does. The
    /// client sees a request that is never answered. Other connections are served.
    pub fn silence_reply(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::SilenceReply, matcher.into());
    }

    /// Plans a fault for the next matching request: the server does not apply the request, and
    /// closes the connection. Requests behind it on the same connection are not served. The client
    /// cannot tell this from [`drop_reply`](Self::drop_reply). The request is in the
    /// [log](Self::requests), with [`applied`](Request::applied) false.
    pub fn drop_request(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::DropRequest, matcher.into());
    }

    fn plan(&self, plan: Plan, matcher: Matcher) {
        self.shared.act(|core| core.faults.plan(plan, matcher));
    }

    /// Holds matching requests back until the handle is dropped. Requests that follow a held one on
    /// the same connection wait behind it. The client sees a slow server. The server reads nothing
    /// more from such a connection, so the client's session may expire meanwhile. When the handle
    /// is dropped, the requests are served in the order in which they came; the drop returns when
    /// this is done, unless another fault prevents it. A request is in the [log](Self::requests)
    /// once it is served.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use zk_test_server::{Op, TestServer};
    /// use zookeeper::{Acl, CreateMode, ZooKeeper};
    ///
    /// let server = TestServer::start()?;
    /// let client = ZooKeeper::connect(&server.connect_string(), Duration::from_secs(10), |_| ())?;
    ///
    /// let held = server.hold_requests(Op::Create.on("/orders"));
    /// std::thread::scope(|scope| {
    ///     let open = Acl::open_unsafe().clone();
    ///     let maker = scope.spawn(|| client.create("/orders", vec![], open, CreateMode::Persistent));
    ///     assert!(held.wait(Duration::from_secs(10)), "the request is there");
    ///     drop(held); // and now it is served
    ///     maker.join().expect("no panic")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_requests(&self, matcher: impl Into<Matcher>) -> HeldRequests {
        let matcher = matcher.into();
        let id = self.shared.act(|core| core.faults.hold(matcher));
        HeldRequests::new(&self.shared, id)
    }

    /// How many planned faults ([`drop_reply`](Self::drop_reply),
    /// [`silence_reply`](Self::silence_reply), [`drop_request`](Self::drop_request)) were not
    /// injected yet. If one is left at the end of a test, no request matched it, and the test has
    /// not tested that fault.
    pub fn pending_faults(&self) -> usize {
        self.shared.look(|core| core.faults.planned())
    }

    /// Stops the server and starts it again. Requests that clients have sent before are served
    /// first. Then every connection is closed, and connections that come before the new start are
    /// refused. Nodes and sessions stay, unless [`keep_data`](TestServerBuilder::keep_data) is
    /// false, and each session has its whole timeout again. Watches are gone, and clients set them
    /// again. Planned faults and the log stay.
    pub fn restart(&self) {
        self.shared.act(|core| core.restart(self.keep_data));
    }

    /// As [`restart`](Self::restart), but all nodes and sessions are gone. If a client has seen a
    /// higher zxid than the new server has, the server refuses its session, as ZooKeeper does; the
    /// client has to connect as a new client.
    pub fn wipe(&self) {
        self.shared.act(|core| core.restart(false));
    }

    /// Gives the next sequential child of `parent` the number `next`. With it a test can see what
    /// happens near 2147483647, where the counter ends.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no node `parent`.
    pub fn set_sequence(&self, parent: &str, next: i32) -> io::Result<()> {
        match self.shared.act(|core| core.engine.set_sequence(parent, next)) {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::NotFound, format!("there is no node {parent}"))),
        }
    }

    /// The requests that reached the server, oldest first; the log forgets the oldest beyond its
    /// [capacity](TestServerBuilder::log_capacity).
    pub fn requests(&self) -> Vec<Request> {
        self.shared.look(|core| core.history.requests().cloned().collect())
    }

    /// The watch events that the server sent, oldest first; the log forgets the oldest beyond its
    /// [capacity](TestServerBuilder::log_capacity). An event that a fault kept from its client is
    /// here all the same.
    pub fn events(&self) -> Vec<Event> {
        self.shared.look(|core| core.history.events().cloned().collect())
    }

    /// How many requests in the log match.
    pub fn count(&self, matcher: impl Into<Matcher>) -> usize {
        let matcher = matcher.into();
        self.shared.look(|core| core.history.count(&matcher))
    }

    /// Empties the log of requests and that of events.
    pub fn clear_log(&self) {
        self.shared.act(|core| core.history.clear());
    }

    /// The first matching request in the log; if there is none yet, waits for it. `None` if no such
    /// request came in time. When this returns, the request has been applied and answered, unless a
    /// fault prevents it.
    #[must_use = "None if there was no such request in time"]
    pub fn wait_request(&self, matcher: impl Into<Matcher>, timeout: Duration) -> Option<Request> {
        let mut search = Search::new(matcher.into());
        self.shared.wait(timeout, |core| core.history.find(&mut search).cloned())
    }

    /// The first watch event in the log for which `is_it` returns true; if there is none yet, waits
    /// for it. `None` if no such event was sent in time.
    #[must_use = "None if there was no such event in time"]
    pub fn wait_event(&self, is_it: impl Fn(&Event) -> bool, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now().checked_add(timeout);
        let mut seen = 0;
        loop {
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            // The caller's function runs without the server's lock, because it may call the server.
            let (all, new) = self.shared.wait(left, |core| core.events_after(seen))?;
            if let Some(found) = new.into_iter().find(|event| is_it(event)) {
                return Some(found);
            }
            seen = all;
        }
    }

    /// The sessions that have not ended, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.look(|core| core.engine.sessions())
    }

    /// How many watches are set (`zk_watch_count`).
    pub fn watch_count(&self) -> usize {
        self.shared.look(|core| core.engine.watch_count())
    }

    /// How many nodes there are (`zk_znode_count`), with those that an empty server has.
    pub fn node_count(&self) -> usize {
        self.shared.look(|core| core.engine.node_count())
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        self.shared.look(|core| core.connection_count())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shared.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("test server: the server's thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_shared() {
        fn check<T: Send + Sync>() {}
        check::<TestServer>();
        check::<HeldRequests>();
    }

    #[test]
    fn a_server_that_listens_everywhere_names_an_address_that_one_can_connect_to() {
        let server = TestServer::builder().host(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).start().unwrap();
        assert!(server.address().ip().is_unspecified());
        assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.address().port()));
    }
}
