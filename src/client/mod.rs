//! The bridge to the `zookeeper` crate, behind the feature `client`: the loopback end, which lets
//! the application use a `zookeeper::ZooKeeper` client on the lock's session.
//!
//! The bridge is a leaf. Nothing else in the library names that crate or the bridge, and of the
//! session the bridge uses only the functions that `session::raw` lists.
//!
//! For the client, the loopback end is a server that never fails. The client is connected, inside
//! this process, to a thread of ours. That thread submits the client's requests to the session, and
//! sends the session's answers and the events of the client's watches to the client. `machine`
//! makes the decisions, `watches` keeps the client's watches, `accept` admits only the right
//! client, `thread` moves the bytes.
//!
//! Nothing here can delay the session: its event loop only puts answers into memory. That memory is
//! bounded, because each thread of the application waits for one answer at a time and each watch
//! fires once.

mod accept;
mod machine;
mod thread;
mod watches;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use zookeeper::{WatchedEvent, ZooKeeper};

use crate::error::{Cause, Error, Result};
use crate::session::ZkSession;
use machine::ClientMachine;
use thread::Loopback;
use zk_session::unstable::{Generation, Limit, PerProcess, RawNews, Retry, contained};
use zk_session::world::{
    Instant, LazyLock, Mutex, Receiver, RecvTimeoutError, Sender, bounded, holds_no_lock, spawn_own,
};
use zk_wire::code::err;

/// Submits a request to the session: the number of its answer, the operation, and the body without
/// the header. It must not block. If the session has ended, the request gets its answer from
/// `ClientEnd::ended`.
type Submit = Box<dyn Fn(u64, i32, Vec<u8>) + Send>;

impl ZkSession {
    /// The application's own client on this session: a [`zookeeper::ZooKeeper`], for what is not a
    /// lock (to register a service, to read configuration, to publish who leads). A process then
    /// has one session at the server, and a node that it makes here as ephemeral lives exactly as
    /// long as its locks do.
    ///
    /// As long as the client exists, every call returns the same client. Like other calls, this one
    /// waits until the session is connected, as long as the [`RetryPolicy`] allows. The client's
    /// paths are below the chroot of the connect string.
    ///
    /// # For whom
    ///
    /// For programs that use the crate `zookeeper` (0.8) already. In a new program do not use it:
    /// the compiler announces that a coming version of Rust rejects the crate's code, which relies
    /// on the fallback of the never type in two places (`cargo report future-incompatibilities`
    /// shows them). From then on a program with the feature `client` compiles only with a release
    /// of the crate that is mended, or with a `[patch]` of its own. That is why the feature is no
    /// default. Nothing else in this library needs the crate.
    ///
    /// # Outages
    ///
    /// The client does not see connections come and go: its state stays `Connected`. A call returns
    /// `ConnectionLoss` after a sixth of the session timeout at the latest. Then it is unknown
    /// whether a write was done. Watches survive: after a reconnection they are set again, and the
    /// changes during the outage are delivered.
    ///
    /// # The end of the session
    ///
    /// When the session is lost or closed, every call of its client returns `SessionExpired`, and
    /// its watches never fire again. Its ephemeral nodes are deleted with the session. The client
    /// does not report this by itself: [`subscribe`](Self::subscribe) to the session's events, and
    /// at [`SessionEvent::Connected`] call `client` again. That returns a client of the new
    /// session. A client does not keep the session open.
    ///
    /// # Closing
    ///
    /// The drop of the last `Arc` of the client ends its threads and nothing else. The session and
    /// its locks stay, and so do the ephemeral nodes that the client made. A later call of this
    /// method returns a new client. (The client's own `close` does the same, but then the crate
    /// logs an error when the closed client is dropped.)
    ///
    /// # Watches
    ///
    /// Use the calls that take a watcher (`get_data_w`, `exists_w`, `get_children_w`). The calls
    /// with a flag (`exists(path, true)`) set a watch whose events nobody receives. The crate keeps
    /// the watcher of a call that failed, and calls it at the next event of that path from another
    /// watch. A watcher runs on the client's event thread. It may make calls, but the watchers
    /// after it wait until it returns. A state listener (`add_listener`) runs on the client's io
    /// thread: a call from there blocks for ever.
    ///
    /// # What differs from a client with a session of its own
    ///
    /// `add_auth`, `add_watch` and `remove_watches` return `Unimplemented`. Credentials belong to
    /// the session ([`Config::auth`]), which presents them on each connection. A persistent
    /// watch (`add_watch`) would miss changes in an outage without a sign. And `remove_watches`
    /// would also remove the watches of locks on the same node. (After a `remove_watches`, refused
    /// or not, the crate forgets other watchers of that path.) A request of 1 MiB or more returns
    /// `BadArguments` and is not sent: a server would cut the connection. An answer of more than 16
    /// MiB is `APIError`. A shorter answer of many MiB delays the locks' answers behind it on a
    /// slow line. `Container` makes a container, where the crate alone makes a persistent node.
    ///
    /// # Threads and port
    ///
    /// The first call starts four threads: three of the crate (`event`, `io`, and a timer thread
    /// without a name), and `zkm-client-N`. They use a loopback connection in this process. Its
    /// port listens only until the client has connected, and no other connection is accepted. A
    /// client that is stuck, or that does not read, delays only itself, never a lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when the session is not connected in time, when this machine gives no
    /// thread or socket, or when another thread takes longer than a sixth of the session timeout to
    /// start the client; [`Error::Closed`] and [`Error::Auth`] as from a lock.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use zk_mutex::zookeeper::{Acl, CreateMode};
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
    /// let client = session.client()?;
    /// let acl = Acl::open_unsafe().clone();
    /// client.create("/hosts/h7", b"10.0.0.7:80".to_vec(), acl, CreateMode::Ephemeral)?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?; // of the same session
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`RetryPolicy`]: crate::RetryPolicy
    /// [`Config::auth`]: crate::Config::auth
    /// [`SessionEvent::Connected`]: crate::SessionEvent::Connected
    pub fn client(&self) -> Result<Arc<ZooKeeper>> {
        let (core, op, retry) = (self.core(), "client", Retry::since(Instant::now()));
        loop {
            let generation = core.connected(op, "", &Limit::NONE, &retry)?;
            // A weak reference: the client does not keep the session open.
            let session = Arc::downgrade(&generation);
            let submit = move |number, op, body: Vec<u8>| {
                if let Some(session) = session.upgrade() {
                    session.submit_raw(number, op, &body);
                }
            };
            let end = ClientEnd::of(core.number(), &generation);
            return match end.client(core.chroot(), Box::new(submit), core.operation_timeout()) {
                // The session was lost just now. The next session gets a client.
                Err(e) if e.kind() == ErrorKind::NotConnected => {
                    core.failed(&retry);
                    continue;
                }
                Err(e) => {
                    let cause = Cause::Resources(format!("socket or thread for the client ({e})"));
                    Err(Error::Unavailable { op, path: String::new(), cause })
                }
                Ok(client) => Ok(client),
            };
        }
    }
}

/// The loopback ends of this process, by the numbers of the session and of the generation. A
/// session does not know the bridge, so they are found here. An end lives as long as its
/// generation, whose listener it is.
static ENDS: LazyLock<PerProcess<Mutex<Ends>>> = LazyLock::new(PerProcess::default);

type Ends = BTreeMap<(u64, u64), Weak<ClientEnd>>;

/// The clients of one session at the server: at most one is open at a time, and none until the
/// application asks for it.
struct ClientEnd {
    /// The number of the generation, for the thread's name.
    number: u64,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    running: Option<RunningClient>,
    /// While a thread starts a client: disconnected when it has ended that. Others wait, so that
    /// they get the same client. No lock is held meanwhile: the crate calls the application's
    /// logger.
    starting: Option<Receiver<Infallible>>,
    /// How many clients were started.
    started: u64,
    /// The error code for all requests, once the session is over.
    ended: Option<i32>,
}

struct RunningClient {
    client: Weak<ZooKeeper>,
    loopback: Arc<Loopback>,
}

impl ClientEnd {
    /// The end of this generation, which may have no client yet.
    fn of(session: u64, generation: &Generation) -> Arc<Self> {
        let number = generation.number;
        // The end listens before another thread can find it here and send a request.
        let mut ends = ENDS.get().lock();
        if let Some(end) = ends.get(&(session, number)).and_then(Weak::upgrade) {
            return end;
        }
        ends.retain(|_, end| end.strong_count() > 0);
        let end = Arc::new(ClientEnd { number, state: Mutex::default() });
        ends.insert((session, number), Arc::downgrade(&end));
        let listening = end.clone();
        generation.listen(Arc::new(move |news| listening.hear(news)));
        end
    }

    /// The client that is open, or a new one, whose requests go to `submit`. `chroot` is empty, or
    /// a path without a slash at its end; it is the same in each call. `longest`: how long to wait
    /// for another thread that starts the client.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the session is over, `TimedOut` if another thread starts the client for
    /// too long; otherwise the operating system gave no socket or no thread.
    fn client(
        &self,
        chroot: &str,
        submit: Submit,
        longest: Duration,
    ) -> io::Result<Arc<ZooKeeper>> {
        let (first, _starting) = loop {
            let mut state = self.state.lock();
            if state.ended.is_some() {
                return Err(ErrorKind::NotConnected.into());
            }
            if let Some(starting) = state.starting.clone() {
                drop(state);
                if let Err(RecvTimeoutError::Timeout) = starting.recv_timeout(longest) {
                    let why = "another thread has not started it yet";
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                continue;
            }
            let open = state
                .running
                .as_ref()
                .filter(|running| !running.loopback.machine.lock().is_closed());
            if let Some(client) = open.and_then(|running| running.client.upgrade()) {
                return Ok(client);
            }
            // The answers to an earlier client must not be taken for answers to this one.
            state.started += 1;
            let (ends, starting) = bounded(0);
            state.starting = Some(starting);
            break (state.started << 32, Starting { end: self, _ends: ends });
        };
        let (loopback, address, secret) =
            Loopback::start(self.number, ClientMachine::new(chroot.to_owned(), first), submit)?;
        // This is set before the client can send a request, so that no answer is lost.
        self.state.lock().running =
            Some(RunningClient { client: Weak::new(), loopback: loopback.clone() });
        // The client panics if the operating system refuses a socket or an epoll instance.
        let connect_string = format!("{address}{chroot}");
        debug_assert!(holds_no_lock());
        let client = match contained(|| ZooKeeper::connect(&connect_string, secret, no_watcher)) {
            Some(Ok(client)) => Arc::new(client),
            Some(Err(e)) => return Err(loopback.give_up(&e.to_string())),
            None => return Err(loopback.give_up("its start panicked")),
        };
        if !loopback.is_admitted() {
            // The drop of the crate's client waits for an answer to its close, which may never
            // come.
            let _ = spawn_own("zkm-client-end".into(), move || drop(client));
            return Err(loopback.give_up("it did not connect"));
        }
        let mut state = self.state.lock();
        if let Some(running) = &mut state.running {
            running.client = Arc::downgrade(&client);
        }
        // The session may have ended meanwhile.
        if let Some(code) = state.ended {
            loopback.update(|machine| machine.ended(code));
        }
        Ok(client)
    }

    /// Takes the generation's news, in the order in which the server has sent it. This does not
    /// block.
    fn hear(&self, news: RawNews<'_>) {
        match news {
            RawNews::Answered { number, err, zxid, body } => {
                self.update(|machine| machine.answer(number, err, zxid, body));
            }
            // It may be of one of the library's own watches.
            RawNews::Watch { kind, path } => self.update(|machine| machine.event(kind, path)),
            RawNews::Reconnected => self.update(ClientMachine::set_watches_again),
            RawNews::Ended(code) => self.ended(code),
        }
    }

    /// The session is over: every request of the client, also each later one, gets this code.
    fn ended(&self, code: i32) {
        self.state.lock().ended.get_or_insert(code);
        self.update(|machine| machine.ended(code));
    }

    fn update(&self, news: impl FnOnce(&mut ClientMachine)) {
        if let Some(running) = &self.state.lock().running {
            running.loopback.update(news);
        }
    }
}

impl Drop for ClientEnd {
    /// The session can answer no more, so the client's requests end.
    fn drop(&mut self) {
        self.ended(err::SESSION_EXPIRED);
    }
}

/// Its drop says that this thread starts no client any more.
struct Starting<'a> {
    end: &'a ClientEnd,
    _ends: Sender<Infallible>,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.end.state.lock().starting = None;
    }
}

/// The client's default watcher does nothing: the application uses the calls that take a watcher.
fn no_watcher(_: WatchedEvent) {}
