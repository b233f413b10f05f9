//! What the scenarios share.

use std::time::Duration;
pub use zk_session::{Acl, Config, CreateMode, Error, Requests, Session, Stat};
pub use zk_test_support::{OpKind, Proxy, Raw, Server, Shared, scenarios, until};

/// Long enough for anything that should happen at once, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// A session that does not expire, even on a busy machine.
#[track_caller]
pub fn session(connect_string: &str) -> Session {
    Session::connect(Config::new(connect_string).connect_timeout(SOON))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The requests of a session in a folder of its own on the shared server.
#[track_caller]
pub fn requests() -> Requests {
    session(&Shared::chroot()).requests().within(SOON)
}

/// Makes a persistent node that everybody may use.
#[track_caller]
pub fn make(zk: &Requests, path: &str, data: &[u8]) -> Stat {
    zk.create(path, data, CreateMode::Persistent, &Acl::Open).unwrap().stat
}

/// A server of the scenario's own behind a proxy, and a session through the proxy.
pub struct Proxied {
    // Fields are dropped in this order: the session before its way to the server.
    pub session: Session,
    pub proxy: Proxy,
    pub server: Server,
}

impl Proxied {
    #[track_caller]
    pub fn start() -> Proxied {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        Proxied { session: session(&proxy.connect_string()), proxy, server }
    }

    pub fn requests(&self) -> Requests {
        self.session.requests().within(SOON)
    }

    /// The state at the server, as another client sees it.
    #[track_caller]
    pub fn raw(&self) -> Raw {
        Raw::connect(&self.server.connect_string()).unwrap()
    }

    /// Cuts the connection and lets no other come up, and waits until the session knows.
    #[track_caller]
    pub fn begin_outage(&self) {
        self.proxy.refuse(true);
        self.proxy.cut();
        self.until_connected(false);
    }

    #[track_caller]
    pub fn end_outage(&self) {
        self.proxy.refuse(false);
        self.until_connected(true);
    }

    #[track_caller]
    fn until_connected(&self, wanted: bool) {
        let is_connected = || self.session.status().state == zk_session::SessionState::Connected;
        until("the session's state", SOON, || (is_connected() == wanted).then_some(()));
    }
}
