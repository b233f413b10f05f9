//! The loopback connection and its thread. The thread admits the client, moves bytes between its
//! socket and the machine, and submits its requests. The machine makes the decisions.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::Submit;
use super::accept::Accept;
use super::machine::{ClientMachine, Submission};
use zk_session::unstable::{read_some, write_some};
use zk_session::world::{Mutex, spawn_own};
use zk_wire::record::ConnectReply;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const CANDIDATE: Token = Token(2);
const CLIENT: Token = Token(3);

/// How long the client may take to connect; it is started right after the thread.
const CONNECT_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });

/// How long the orphan responder waits for a client whose connection has failed.
const END_CLIENT_WITHIN: Duration = Duration::from_secs(4);

/// The state that the session and the thread share. A thread that holds the lock of `machine` takes
/// no other lock, because the event loop takes it while it holds locks of the session.
pub(super) struct Loopback {
    pub(super) machine: Mutex<ClientMachine>,
    waker: Waker,
    /// Gets a message when the client was admitted, and is disconnected when the thread has ended.
    admitted: Receiver<()>,
}

impl Loopback {
    /// Opens a port, and starts the thread that serves the client. Gives the port's address and the
    /// secret: the session timeout that the client must request.
    pub(super) fn start(
        number: u64,
        machine: ClientMachine,
        submit: Submit,
    ) -> io::Result<(Arc<Loopback>, SocketAddr, Duration)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        // 30 random bits, with bit 30 set: no other client requests this timeout by chance.
        let secret = (1 << 30) | (uuid::Uuid::new_v4().as_u128() & 0x3fff_ffff) as i32;
        let (admits, admitted) = bounded(1);
        let loopback = Arc::new(Loopback { machine: Mutex::new(machine), waker, admitted });
        let accept = Some(Accept::new(listener, secret));
        let mut thread =
            LoopbackThread { loopback: loopback.clone(), poll, submit, accept, client: None };
        let body = move || thread.run(address, &admits);
        spawn_own(format!("zkm-client-{number}"), body)?;
        Ok((loopback, address, Duration::from_millis(u64::from(secret.unsigned_abs()))))
    }

    /// Gives the machine an event, and wakes the thread if there is new work for it.
    pub(super) fn update(&self, news: impl FnOnce(&mut ClientMachine)) {
        let has_work = {
            let mut machine = self.machine.lock();
            if machine.is_closed() {
                return;
            }
            let had_work = machine.has_work();
            news(&mut machine);
            !had_work && machine.has_work()
        };
        if has_work {
            self.wake();
        }
    }

    /// Waits until the client was admitted. False: it will not be.
    ///
    /// Until then the application must not use the client. The crate's io thread registers the
    /// channel of the client's requests, and then connects. A request that comes while it registers
    /// can be missed: nothing wakes the io thread for it, and the call blocks for ever.
    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.recv().is_ok()
    }

    /// Closes the machine because the client did not start; gives the error for the application.
    pub(super) fn give_up(&self, why: &str) -> io::Error {
        self.machine.lock().close();
        self.wake();
        io::Error::other(format!("the client did not start: {why}"))
    }

    fn wake(&self) {
        let _ = self.waker.wake(); // it fails only if the thread has ended
    }
}

struct LoopbackThread {
    loopback: Arc<Loopback>,
    poll: Poll,
    submit: Submit,
    /// `None` once the client is admitted: then the port is closed.
    accept: Option<Accept>,
    /// The admitted client. It is a field so that it outlives a panic of `serve`.
    client: Option<ClientStream>,
}

struct ClientStream {
    stream: TcpStream,
    out: Vec<u8>,
}

impl LoopbackThread {
    fn run(&mut self, address: SocketAddr, admits: &Sender<()>) {
        let end = catch_unwind(AssertUnwindSafe(|| {
            let Some(first) = self.admit()? else { return Ok(()) };
            let _ = admits.send(()); // there is room for it
            self.serve(&first)
        }));
        self.loopback.machine.lock().close();
        if !matches!(end, Ok(Ok(()))) {
            error!(
                "the loopback connection of the ZooKeeper client failed ({end:?}); the client is closed"
            );
            self.end_client(address);
        }
    }

    /// Waits for the client, and gives its first bytes; `None` if no client will come.
    fn admit(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut events = Events::with_capacity(64);
        let until = Instant::now() + CONNECT_WITHIN;
        let Some(accept) = &mut self.accept else { return Ok(None) };
        self.poll.registry().register(accept.listener(), LISTENER, Interest::READABLE)?;
        loop {
            if self.loopback.machine.lock().is_closed() {
                return Ok(None);
            }
            if let Some((mut stream, first)) =
                accept.admit(self.poll.registry(), CANDIDATE, until)?
            {
                let _ = stream.set_nodelay(true); // without it there is only more latency
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(&mut stream, CLIENT, interest)?;
                self.client = Some(ClientStream { stream, out: Vec::new() });
                self.accept = None;
                return Ok(Some(first));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the client did not connect"));
            }
            wait(&mut self.poll, &mut events, Some(left))?;
        }
    }

    /// Serves the client until the client closes itself.
    fn serve(&mut self, first: &[u8]) -> io::Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let (mut events, mut buf) = (Events::with_capacity(8), vec![0; 64 << 10]);
        let machine = &self.loopback.machine;
        client.take(machine, first)?;
        loop {
            // This takes all work at once: a thread that adds to waiting work does not wake this
            // thread.
            let (submissions, warnings) = {
                let mut machine = machine.lock();
                client.out.append(&mut machine.to_client);
                (std::mem::take(&mut machine.submissions), std::mem::take(&mut machine.warnings))
            };
            for warning in warnings {
                warn!("{warning}");
            }
            for Submission { number, op, body } in submissions {
                (self.submit)(number, op, body);
            }
            let mut is_open = write_some(&mut client.stream, &mut client.out).map(|()| true);
            if matches!(is_open, Ok(true)) {
                wait(&mut self.poll, &mut events, None)?;
                if events.iter().any(|event| event.token() == CLIENT) {
                    is_open = client.read(machine, &mut buf);
                }
            }
            match is_open {
                Ok(true) => {}
                // The client has closed itself, and has got its answer.
                _ if machine.lock().is_closed() => return Ok(()),
                Ok(false) => return Err(io::Error::other("it was cut")),
                Err(e) => return Err(e),
            }
        }
    }

    /// The orphan responder: ends the threads of a client whose connection has failed. Otherwise
    /// the client would dial our closed port for ever, at full speed. If the client is granted a
    /// session timeout below a second, and then cut, it takes its session for expired and ends.
    fn end_client(&mut self, address: SocketAddr) {
        let until = Instant::now() + END_CLIENT_WITHIN;
        self.accept = None;
        // Usually no other process has got our port, because the client's connection is still bound
        // to it.
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Err(e) => return error!("the client cannot be ended, its port is taken ({e})"),
            }
        };
        self.client = None; // the client dials again at once
        let reply = ConnectReply { timeout_ms: 900, session_id: 1, password: vec![0; 16] }.frame();
        while Instant::now() < until {
            if let Ok((mut peer, _)) = listener.accept() {
                // The request comes soon: the client writes as soon as it is connected.
                std::thread::sleep(Duration::from_millis(20));
                let _ = peer.read(&mut [0; 256]);
                let _ = peer.write(&reply);
            }
            // No client yet, or no file descriptor is left.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl ClientStream {
    fn take(&mut self, machine: &Mutex<ClientMachine>, bytes: &[u8]) -> io::Result<()> {
        let taken = machine.lock().client_bytes(bytes);
        taken.map_err(|e| io::Error::new(ErrorKind::InvalidData, e.0))
    }

    /// Reads all there is; `false` at the end of the stream.
    fn read(&mut self, machine: &Mutex<ClientMachine>, buf: &mut [u8]) -> io::Result<bool> {
        loop {
            match read_some(&mut self.stream, buf)? {
                Some(0) => return Ok(false),
                Some(n) => self.take(machine, &buf[..n])?,
                None => return Ok(true),
            }
        }
    }
}

fn wait(poll: &mut Poll, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, limit) {
        Err(e) if e.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        done => done,
    }
}
