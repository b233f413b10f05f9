//! [`TestServer`]: what a test holds in its hand.

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

/// A ZooKeeper server in this process, in memory, that can be told to misbehave; see the
/// [page](crate) about testing with it. Dropping it stops it.
///
/// It is `Send` and `Sync`: share it by reference or in an `Arc`. A method that changes something
/// has done it when it returns.
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

    /// Begins to describe a server.
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

    /// What clients connect to: `"127.0.0.1:41873"`. For a server that listens everywhere, a
    /// loopback address.
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

    /// Lets the time of a server with a [virtual clock](TestServerBuilder::virtual_clock) go on by
    /// `time`.
    ///
    /// What clients had sent before is served first, on new connections too. Then all that falls
    /// due on the way happens in its order: sessions that were not heard of for their timeout, on
    /// this clock, expire at their ticks; containers and nodes with a time to live are reaped. It
    /// has happened when this returns.
    ///
    /// Clients send their heartbeats by their own clocks: one step longer than the timeout of a
    /// session expires it, however well its client is. To let some live, go in shorter steps, and
    /// wait for their next [`Op::Ping`](super::Op::Ping) in between.
    ///
    /// # Panics
    ///
    /// On a server whose clock is real.
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        let is_virtual = self.shared.act(|core| core.advance(time));
        assert!(
            is_virtual,
            "advance() needs a server with a virtual clock: TestServer::builder().virtual_clock()"
        );
    }

    /// Lets a session expire as if its time had come: its ephemeral nodes are deleted, watches on
    /// them strike, its connection is closed. Its client learns of the expiry when it connects
    /// again. What clients had sent before is served first. `false`: no such session lives.
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.act(|core| core.expire(id))
    }

    /// Closes every connection, those that it had not yet accepted included. What clients had sent
    /// before is served first, as far as no other fault stands in the way; what was not sent to
    /// them yet is lost. Sessions live on until they expire, and clients that connect again get
    /// them back.
    pub fn cut_connections(&self) {
        self.shared.act(|core| core.cut_connections());
    }

    /// Refuses new connections, as a host does on which no server runs, until called with `false`.
    /// The port stays the server's own meanwhile (elsewhere than on Linux, somebody else might take
    /// it). The connections there are stay, and are served:
    /// [`cut_connections`](Self::cut_connections) as well makes it a dead server, whose sessions
    /// expire unless it comes back in time.
    pub fn refuse(&self, refuse: bool) {
        self.shared.act(|core| core.refuse(refuse));
    }

    /// Lets nothing through, in either direction, until called with `false`: connections stay open,
    /// and new ones are taken, but no byte is read and none is sent. Clients see no error, only
    /// silence. Sessions are not heard of and expire in time. When it ends, what waited on both
    /// sides passes.
    pub fn black_hole(&self, black_hole: bool) {
        self.shared.act(|core| core.black_hole(black_hole));
    }

    /// Sends every answer, every event and every close that much later, in their order; in real
    /// time also where the clock is virtual. [`Duration::ZERO`] ends it: what still waited is sent
    /// at once. Requests are applied without delay: only that is heard of later.
    ///
    /// What waits is kept in memory, and a connection with more than a megabyte of it is not read.
    pub fn delay(&self, delay: Duration) {
        self.shared.act(|core| core.set_delay(delay));
    }

    /// Plans that the next matching request is applied, and its answer lost: in its place the
    /// connection is closed. The client sees its connection end, and cannot know whether the
    /// request was applied.
    ///
    /// Answers and events before it are sent; nothing behind it on its connection is served, were
    /// it sent along with it. A request that is never answered is struck all the same. Each call
    /// plans one strike; several strike one after the other.
    pub fn drop_reply(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::DropReply, matcher.into());
    }

    /// The same, but the connection stays open, and silent: from then on nothing is sent to it, and
    /// what it sends is thrown away, until its client closes it, or
    /// [`cut_connections`](Self::cut_connections) or [`restart`](Self::restart) does. The client
    /// sees a request that is never answered. Others are served.
    pub fn silence_reply(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::SilenceReply, matcher.into());
    }

    /// Plans that the next matching request is lost on its way: it is not applied, and its
    /// connection is closed in its place. Nothing behind it on that connection is served. To the
    /// client that is no different from [`drop_reply`](Self::drop_reply). It is in the
    /// [log](Self::requests), with [`applied`](Request::applied) false.
    pub fn drop_request(&self, matcher: impl Into<Matcher>) {
        self.plan(Plan::DropRequest, matcher.into());
    }

    fn plan(&self, plan: Plan, matcher: Matcher) {
        self.shared.act(|core| core.faults.plan(plan, matcher));
    }

    /// Holds matching requests back, from now on and until the handle is dropped; what follows one
    /// on its connection waits behind it. So their sessions, not being heard of, may expire
    /// meanwhile; to the client the server is slow. When the handle is dropped, they are served in
    /// the order in which they came, and have been when the drop returns, as far as no other fault
    /// stands in the way. They are in the [log](Self::requests) once they are served.
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

    /// How many of the planned strikes ([`drop_reply`](Self::drop_reply),
    /// [`silence_reply`](Self::silence_reply), [`drop_request`](Self::drop_request)) have not
    /// struck yet. A test that ends with one left has not tested what it meant to.
    pub fn pending_faults(&self) -> usize {
        self.shared.look(|core| core.faults.planned())
    }

    /// Kills the server and starts it again. What clients had sent before is served first. Then
    /// every connection is closed; those that come meanwhile are refused. Nodes and sessions are as
    /// they were (without [`keep_data`](TestServerBuilder::keep_data): gone), each session with its
    /// whole timeout before it; watches are gone, and clients set them again. Planned faults and
    /// the log stay.
    pub fn restart(&self) {
        self.shared.act(|core| core.restart(self.keep_data));
    }

    /// As [`restart`](Self::restart), but all nodes and sessions are gone. A client that has seen
    /// more of the former life than there is of the new one is refused, as ZooKeeper does it, until
    /// it begins anew.
    pub fn wipe(&self) {
        self.shared.act(|core| core.restart(false));
    }

    /// Lets the next sequential child of `parent` have the number `next`: to see what happens near
    /// 2147483647, where the counter ends.
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
    /// [capacity](TestServerBuilder::log_capacity). One that a fault kept from its client is here
    /// all the same.
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

    /// The first matching request in the log; if there is none yet, waits for it. `None` if none
    /// came in time. When this returns, the request has been applied and answered, as far as no
    /// fault stands in the way.
    #[must_use = "None if there was no such request in time"]
    pub fn wait_request(&self, matcher: impl Into<Matcher>, timeout: Duration) -> Option<Request> {
        let mut search = Search::new(matcher.into());
        self.shared.wait(timeout, |core| core.history.find(&mut search).cloned())
    }

    /// The first watch event in the log of which `is_it` says so; if there is none yet, waits for
    /// it. `None` if none was sent in time.
    #[must_use = "None if there was no such event in time"]
    pub fn wait_event(&self, is_it: impl Fn(&Event) -> bool, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now().checked_add(timeout);
        let mut seen = 0;
        loop {
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            // What the caller says runs without the lock: it may ask the server.
            let (all, new) = self.shared.wait(left, |core| core.events_after(seen))?;
            if let Some(found) = new.into_iter().find(|event| is_it(event)) {
                return Some(found);
            }
            seen = all;
        }
    }

    /// The sessions that live, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.look(|core| core.engine.sessions())
    }

    /// How many watches are set (`zk_watch_count`).
    pub fn watch_count(&self) -> usize {
        self.shared.look(|core| core.engine.watch_count())
    }

    /// How many nodes there are (`zk_znode_count`), those included that an empty server has.
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
            error!("test server: its thread panicked");
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
