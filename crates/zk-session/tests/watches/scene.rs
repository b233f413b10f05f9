//! A session behind a proxy, and another client that goes directly to the server.
use std::time::Duration;
use zk_session::crossbeam_channel::Receiver;
use zk_session::{Config, Session, SessionEvent, Watch, WatchEvent};
use zk_test_support::{Proxy, Raw, Server, raw};

/// Every wait ends long before this, unless something is wrong.
pub const SOON: Duration = Duration::from_secs(30);

/// The node that most scenarios are about.
pub const NODE: &str = "/node";

pub struct Scene {
    pub server: Server,
    pub proxy: Proxy,
    pub session: Session,
    /// The events of the session.
    pub events: Receiver<SessionEvent>,
    /// The other client.
    pub them: Raw,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::of(|config| config)
    }

    /// The same, with other settings of the session.
    pub fn of(set: impl FnOnce(Config) -> Config) -> Scene {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let config = Config::new(proxy.connect_string()).session_timeout(Duration::from_secs(6));
        let session = Session::connect(set(config)).unwrap();
        let them = Raw::connect_timeout(&server.connect_string(), Duration::from_secs(60)).unwrap();
        let events = session.subscribe();
        Scene { server, proxy, session, events, them }
    }

    /// The session has no connection from here on, until [`end_outage`](Self::end_outage).
    pub fn begin_outage(&self) {
        self.proxy.refuse(true);
        self.proxy.cut();
        self.until(&SessionEvent::Suspended);
    }

    pub fn end_outage(&self) {
        self.proxy.refuse(false);
        self.until(&SessionEvent::Reconnected);
    }

    #[track_caller]
    pub fn until(&self, event: &SessionEvent) {
        while self.events.recv_timeout(SOON).expect("the session's event comes") != *event {}
    }

    /// Ends the session at the server.
    pub fn expire(&self) {
        let (id, password) = self.proxy.sessions().pop().expect("a session was made");
        raw::expire(&self.server.connect_string(), id, &password).unwrap();
    }
}

/// The next event of the watch.
#[track_caller]
pub fn told(watch: &Watch) -> WatchEvent {
    watch.next(SOON).expect("the watch tells something")
}
