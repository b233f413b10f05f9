//! The loopback end: lets the application use a `zookeeper::ZooKeeper` client on the lock's
//! session.
//!
//! The client believes that it talks to a server that never fails. It talks, over a loopback
//! connection inside this process, to a thread of ours, which hands its requests to the session and
//! gives it the session's answers and the events of its watches. `machine` has the decisions,
//! `watches` the client's watches, `accept` lets the right client in, `thread` moves the bytes.
//!
//! Nothing here can hold up the session. Its event loop only puts answers into memory. That memory
//! is bounded, because each thread of the application waits for one answer at a time and each watch
//! fires once.

mod accept;
mod machine;
mod thread;
mod watches;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, ZooKeeper};

use crate::logging::contained;
use machine::ClientMachine;
use thread::Loopback;
use zk_wire::code::err;

/// Hands a request to the session: a number for its answer, the operation, and the body without its
/// header. It must not block. Where the session has ended, `ClientEnd::ended` answers.
pub(crate) type Submit = Box<dyn Fn(u64, i32, Vec<u8>) + Send>;

/// The clients of one session at the server: at most one that is open at a time, none until the
/// application asks for it.
pub(crate) struct ClientEnd {
    /// The generation, for the thread's name.
    number: u64,
    /// Held while a client is started, so that two callers get the same.
    starting: Mutex<()>,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    running: Option<RunningClient>,
    /// How many clients were started.
    started: u64,
    /// The session is over; the code that says so.
    ended: Option<i32>,
}

struct RunningClient {
    client: Weak<ZooKeeper>,
    loopback: Arc<Loopback>,
}

impl ClientEnd {
    /// Nothing is started.
    pub(crate) fn new(number: u64) -> Self {
        ClientEnd { number, starting: Mutex::new(()), state: Mutex::default() }
    }

    /// The client that is open, or a new one, whose requests go to `submit`. `chroot` is empty, or
    /// a path without a slash at its end; it is the same in each call.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the session is over; otherwise the machine gave no socket or no thread.
    pub(crate) fn client(&self, chroot: &str, submit: Submit) -> io::Result<Arc<ZooKeeper>> {
        let _one_at_a_time = self.starting.lock();
        let first = {
            let mut state = self.state.lock();
            if state.ended.is_some() {
                return Err(io::ErrorKind::NotConnected.into());
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
            state.started << 32
        };
        let (loopback, address, secret) =
            Loopback::start(self.number, ClientMachine::new(chroot.to_owned(), first), submit)?;
        // Before the client can ask anything: an answer must find its way.
        self.state.lock().running =
            Some(RunningClient { client: Weak::new(), loopback: loopback.clone() });
        // The client unwraps what the machine may refuse: a socket, an epoll instance.
        let connect_string = format!("{address}{chroot}");
        let client = match contained(|| ZooKeeper::connect(&connect_string, secret, no_watcher)) {
            Some(Ok(client)) => Arc::new(client),
            Some(Err(e)) => return Err(loopback.give_up(&e.to_string())),
            None => return Err(loopback.give_up("its start panicked")),
        };
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

    // What the event loop calls, in the order of what the server sent. None of it blocks.

    /// The answer to a request that was submitted under this number.
    pub(crate) fn answer(&self, number: u64, err: i32, zxid: i64, body: &[u8]) {
        self.update(|machine| machine.answer(number, err, zxid, body));
    }

    /// A watch event of the server; some are of the library's own watches.
    pub(crate) fn event(&self, kind: i32, path: &str) {
        self.update(|machine| machine.event(kind, path));
    }

    /// The session was taken up on another connection: the watches of the one before are gone.
    pub(crate) fn reconnected(&self) {
        self.update(ClientMachine::set_watches_again);
    }

    /// The session is over: this answers every request of the client, also of later ones.
    pub(crate) fn ended(&self, code: i32) {
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
    /// Nobody answers the client any more.
    fn drop(&mut self) {
        self.ended(err::SESSION_EXPIRED);
    }
}

/// The client's default watcher. The application uses the calls that take a watcher.
fn no_watcher(_: WatchedEvent) {}
