//! A client's connection, as the engine sees it (`ServerCnxn`).

use super::acl::Id;
use super::sasl::Login;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The connection has sent nothing yet.
    New,
    /// Its session is being made.
    Connecting,
    Open,
    /// The connection is to be closed; further requests are ignored.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
    pub(crate) session: i64,
    pub(crate) timeout: Duration,
    /// The client knows nothing of read-only servers, so its answer has no such flag.
    pub(crate) old_client: bool,
    pub(crate) who: Arc<Vec<Id>>,
    pub(crate) login: Login,
    pub(crate) since: Duration,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) last: Last,
}

/// The last operation answered, for the four-letter words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) op: &'static str,
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) at: Duration,
}

impl Conn {
    pub(crate) fn new(peer: SocketAddr, now: Duration) -> Conn {
        Conn {
            peer,
            state: State::New,
            session: 0,
            timeout: Duration::ZERO,
            old_client: false,
            who: Arc::new(vec![Id::ip(peer.ip())]),
            login: Login::default(),
            since: now,
            received: 0,
            sent: 0,
            last: Last { op: "NA", xid: 0, zxid: -1, at: now },
        }
    }

    pub(crate) fn add_identity(&mut self, id: Id) {
        if !self.who.contains(&id) {
            Arc::make_mut(&mut self.who).push(id);
        }
    }
}
