//! The loopback end: lets the application use a `zookeeper::ZooKeeper` client on the lock's
//! session.
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

use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, ZooKeeper};

use crate::logging::contained;
use crate::world::spawn_own;
use machine::ClientMachine;
use thread::Loopback;
use zk_wire::code::err;

/// Submits a request to the session: the number of its answer, the operation, and the body without
/// the header. It must not block. If the session has ended, the request gets its answer from
/// `ClientEnd::ended`.
pub(crate) type Submit = Box<dyn Fn(u64, i32, Vec<u8>) + Send>;

/// The clients of one session at the server: at most one is open at a time, and none until the
/// application asks for it.
pub(crate) struct ClientEnd {
    /// The number of the generation, for the thread's name.
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
    /// The error code for all requests, once the session is over.
    ended: Option<i32>,
}

struct RunningClient {
    client: Weak<ZooKeeper>,
    loopback: Arc<Loopback>,
}

impl ClientEnd {
    /// Starts no client yet.
    pub(crate) fn new(number: u64) -> Self {
        ClientEnd { number, starting: Mutex::new(()), state: Mutex::default() }
    }

    /// The client that is open, or a new one, whose requests go to `submit`. `chroot` is empty, or
    /// a path without a slash at its end; it is the same in each call.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the session is over; otherwise the operating system gave no socket or no
    /// thread.
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
        // This is set before the client can send a request, so that no answer is lost.
        self.state.lock().running =
            Some(RunningClient { client: Weak::new(), loopback: loopback.clone() });
        // The client panics if the operating system refuses a socket or an epoll instance.
        let connect_string = format!("{address}{chroot}");
        let client = match contained(|| ZooKeeper::connect(&connect_string, secret, no_watcher)) {
            Some(Ok(client)) => Arc::new(client),
            Some(Err(e)) => return Err(loopback.give_up(&e.to_string())),
            None => return Err(loopback.give_up("its start panicked")),
        };
        if !loopback.is_admitted() {
            // The drop of the crate's client waits for an answer to its close, which may never come.
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

    // The event loop calls these, in the order in which the server sent. None of them blocks.

    /// The answer to a request that was submitted under this number.
    pub(crate) fn answer(&self, number: u64, err: i32, zxid: i64, body: &[u8]) {
        self.update(|machine| machine.answer(number, err, zxid, body));
    }

    /// A watch event of the server; it may be of one of the library's own watches.
    pub(crate) fn event(&self, kind: i32, path: &str) {
        self.update(|machine| machine.event(kind, path));
    }

    /// Another connection carries the session: the watches of the earlier one are gone.
    pub(crate) fn reconnected(&self) {
        self.update(ClientMachine::set_watches_again);
    }

    /// The session is over: every request of the client, also each later one, gets this code.
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
    /// The session can answer no more, so the client's requests end.
    fn drop(&mut self) {
        self.ended(err::SESSION_EXPIRED);
    }
}

/// The client's default watcher does nothing: the application uses the calls that take a watcher.
fn no_watcher(_: WatchedEvent) {}
