//! One connection through the proxy: for each direction a reader, which decides, and a writer,
//! which waits until it may pass.
#[cfg(feature = "tls")]
use super::proxy_tls::{self, Terminated};
use super::{
    op::Request,
    proxy::{Core, Direction, Fault, Passing, Then, Traffic},
    wire::{Framer, Next, Reader},
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

const LEADER_LIMIT: Duration = Duration::from_secs(5);

/// An item from a reader to its writer.
pub(super) struct Item {
    due: Instant,
    act: Act,
    /// The request itself, or the request that this reply answers, for the log and the waits.
    about: Option<Request>,
}

enum Act {
    Pass(Vec<u8>),
    /// The item is lost, and the connection gets this fault.
    Swallow(Then),
    /// The item passes when the hold that begins with it ends.
    Hold(Vec<u8>),
}

impl Item {
    pub fn bytes(bytes: Vec<u8>) -> Item {
        Item { due: Instant::now(), act: Act::Pass(bytes), about: None }
    }
}

/// An end of a connection, over TLS or not.
enum End<'s> {
    Plain(&'s TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<Terminated<'s>>),
}

impl End<'_> {
    #[cfg_attr(not(feature = "tls"), allow(unused_variables))]
    fn new<'s>(core: &Core, socket: &'s TcpStream) -> End<'s> {
        #[cfg(feature = "tls")]
        if let Some(config) = core.tls.as_ref().filter(|_| proxy_tls::begins(socket)) {
            return End::Tls(Box::new(Terminated::new(socket, config.clone())));
        }
        End::Plain(socket)
    }

    /// No more bytes go there.
    fn end(&self) {
        match self {
            End::Plain(socket) => drop(socket.shutdown(Shutdown::Write)),
            #[cfg(feature = "tls")]
            End::Tls(tls) => tls.end(),
        }
    }
}

impl Read for &End<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            End::Plain(socket) => (&mut &**socket).read(buf),
            #[cfg(feature = "tls")]
            End::Tls(tls) => (&mut &**tls).read(buf),
        }
    }
}

impl Write for &End<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            End::Plain(socket) => (&mut &**socket).write(bytes),
            #[cfg(feature = "tls")]
            End::Tls(tls) => (&mut &**tls).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Carries the connection `link` to its end.
pub(super) fn carry(core: &Core, link: u64, client: TcpStream) {
    // In a black hole the proxy does not connect to the server.
    if core.await_passage(link, Direction::ToServer, core.due(Direction::ToServer), false)
        && let Ok(server) = dial(core, link)
    {
        join(core, link, &client, &server);
    }
    core.state().cut(link);
}

/// Connects to the server. A client's connection is cut at once if the server is down. A follower's
/// connection waits a little until its new leader listens. A refused follower would try again, but
/// a follower whose connection is closed believes that the leader has failed, and then all members
/// wait until `initLimit` is over.
fn dial(core: &Core, link: u64) -> io::Result<TcpStream> {
    let end = Instant::now() + LEADER_LIMIT;
    loop {
        let server = TcpStream::connect(core.upstream);
        let wait = matches!(core.traffic, Traffic::Plain)
            && Instant::now() < end
            && core.state().links.contains_key(&link);
        if !wait && let Err(e) = &server {
            log::debug!("proxy to {}: link {link}: not connected: {e}", core.upstream);
        }
        if server.is_ok() || !wait {
            return server;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn join(core: &Core, link: u64, client: &TcpStream, server: &TcpStream) {
    let _ = server.set_nodelay(true);
    let (to_server, for_server) = unbounded();
    let (to_client, for_client) = unbounded();
    {
        let mut state = core.state();
        let (Some(here), Ok(copy)) = (state.links.get_mut(&link), server.try_clone()) else {
            return;
        };
        here.server = Some(copy);
        here.to_client = Some(to_client.clone());
    }
    let client = &End::new(core, client);
    thread::scope(|scope| {
        scope.spawn(move || {
            read_client(core, link, client, &to_server);
        });
        scope.spawn(move || {
            read_server(core, link, server, &to_client);
            // The sender for `inject` would keep the writer waiting.
            if let Some(here) = core.state().links.get_mut(&link) {
                here.to_client = None;
            }
        });
        scope.spawn(move || {
            write(core, link, Direction::ToServer, &for_server, &End::Plain(server));
        });
        scope.spawn(move || write(core, link, Direction::ToClient, &for_client, client));
    });
}

fn write(core: &Core, link: u64, direction: Direction, items: &Receiver<Item>, mut out: &End<'_>) {
    let passing = match direction {
        Direction::ToServer => Passing::Request,
        Direction::ToClient => Passing::Reply,
    };
    for item in items {
        if let (Act::Hold(_), Some(request)) = (&item.act, &item.about) {
            core.inject(link, Then::Hold);
            core.announce(request, Passing::Held, false)
                .into_iter()
                .for_each(|waiter| waiter.tell(request));
        }
        let is_reply = passing == Passing::Reply && item.about.is_some();
        if !core.await_passage(link, direction, item.due, is_reply) {
            return;
        }
        let logged = matches!(item.act, Act::Pass(_) | Act::Hold(_));
        let waiters = item
            .about
            .as_ref()
            .map(|request| core.announce(request, passing, logged))
            .unwrap_or_default();
        let passed = match item.act {
            Act::Pass(bytes) | Act::Hold(bytes) => out.write_all(&bytes).is_ok(),
            Act::Swallow(then) => {
                core.inject(link, then);
                true
            }
        };
        match item.about {
            Some(request) if passed => waiters.into_iter().for_each(|waiter| waiter.tell(&request)),
            Some(request) => core.retract(&request, passing, logged, waiters),
            None => {}
        }
        if !passed {
            return;
        }
    }
    if core.await_passage(link, direction, core.due(direction), false) {
        out.end();
    }
}

/// Reads until the end and gives each piece to `piece`, which answers false when nobody takes them
/// any more.
fn pieces(mut from: impl Read, mut piece: impl FnMut(&[u8]) -> bool) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) if piece(&bytes[..count]) => {}
            Ok(_) => return,
            Err(e) => {
                log::debug!("a reader of the proxy: {e}");
                return;
            }
        }
    }
}

fn read_client(core: &Core, link: u64, client: &End<'_>, to_server: &Sender<Item>) {
    let send = |act, about| {
        to_server.send(Item { due: core.due(Direction::ToServer), act, about }).is_ok()
    };
    match core.traffic {
        Traffic::Plain => pieces(client, |bytes| send(Act::Pass(bytes.to_vec()), None)),
        Traffic::Election { advertise } => {
            let mut greeting = Some(Vec::new());
            pieces(client, |bytes| match &mut greeting {
                None => send(Act::Pass(bytes.to_vec()), None),
                Some(read) => {
                    read.extend(bytes);
                    let Some(changed) = introduce(read, advertise) else {
                        return true;
                    };
                    greeting = None;
                    send(Act::Pass(changed), None)
                }
            });
        }
        Traffic::Clients => {
            let (mut framer, mut first) = (Framer::default(), true);
            pieces(client, |bytes| {
                framer.push(bytes);
                loop {
                    let sent = match framer.next() {
                        Next::Partial => return true,
                        Next::Foreign(bytes) => send(Act::Pass(bytes), None),
                        Next::Frame(frame) => {
                            let request = match std::mem::take(&mut first) {
                                true => Some((None, Request::connect())),
                                false => Request::parse(&frame[4..])
                                    .map(|(xid, request)| (Some(xid), request)),
                            };
                            match request {
                                Some((xid, request)) => {
                                    send(decide(core, link, xid, &request, frame), Some(request))
                                }
                                None => send(Act::Pass(frame), None),
                            }
                        }
                    };
                    if !sent {
                        return false;
                    }
                }
            });
        }
    }
}

/// Decides whether a request passes, and which fault its reply gets.
fn decide(core: &Core, link: u64, xid: Option<i32>, request: &Request, frame: Vec<u8>) -> Act {
    let mut state = core.state();
    let after = match state.take_plan(request) {
        Some(Fault::DropRequest) => return Act::Swallow(Then::Cut),
        Some(Fault::Reply(then)) => Some(then),
        None => None,
    };
    if let Some(here) = state.links.get_mut(&link) {
        here.pending.push_back((xid, request.clone(), after));
    }
    Act::Pass(frame)
}

fn read_server(core: &Core, link: u64, server: &TcpStream, to_client: &Sender<Item>) {
    let send = |due, act, about| to_client.send(Item { due, act, about }).is_ok();
    let (mut framer, mut first) = (Framer::default(), true);
    pieces(server, |bytes| {
        if !matches!(core.traffic, Traffic::Clients) {
            return send(core.due(Direction::ToClient), Act::Pass(bytes.to_vec()), None);
        }
        framer.push(bytes);
        loop {
            // The time is taken before the request counts as answered. A test that sees the
            // answered request and then lets the present replies pass expects that this reply
            // passes, too.
            let due = core.due(Direction::ToClient);
            let sent = match framer.next() {
                Next::Partial => return true,
                Next::Foreign(bytes) => send(due, Act::Pass(bytes), None),
                Next::Frame(frame) => {
                    let event = if first { None } else { event(&frame[4..]) };
                    let (about, then) =
                        answered(core, link, std::mem::take(&mut first), &frame[4..]);
                    let act = match then {
                        None => Act::Pass(frame),
                        Some(Then::Hold) => Act::Hold(frame),
                        Some(then) => Act::Swallow(then),
                    };
                    let sent = send(due, act, about);
                    // Behind all that came before it, so whoever has seen it and ends a hold knows
                    // that the client reads it together with the reply that was held.
                    core.state().events.extend(event);
                    sent
                }
            };
            if !sent {
                return false;
            }
        }
    });
}

/// The request that a reply answers, and the fault planned for the reply.
fn answered(core: &Core, link: u64, first: bool, body: &[u8]) -> (Option<Request>, Option<Then>) {
    let mut state = core.state();
    let xid = if first { None } else { Reader(body).i32() };
    if first {
        state.sessions.extend(session(body));
    }
    let mut find = || {
        let pending = &mut state.links.get_mut(&link)?.pending;
        let at = pending.iter().position(|(awaited, ..)| *awaited == xid)?;
        pending.remove(at)
    };
    match find() {
        Some((_, request, then)) => (Some(request), then),
        None => (None, None), // a watch event
    }
}

/// The node that a watch event is about; None for a reply.
fn event(body: &[u8]) -> Option<String> {
    let mut body = Reader(body);
    body.i32().filter(|xid| *xid == -1)?;
    body.take(8 + 4)?; // the zxid and the error
    body.take(4 + 4)?; // the event's type and the session's state
    body.string()
}

/// The session's id and password in a connect reply; None if the server refused the session.
fn session(body: &[u8]) -> Option<(i64, Vec<u8>)> {
    let mut body = Reader(body);
    body.take(8)?;
    let id = body.i64().filter(|id| *id != 0)?;
    Some((id, body.buffer()?.to_vec()))
}

/// The first bytes of a member's election connection (version, id, `host:port`, and more) with the
/// address replaced; None while they are incomplete.
fn introduce(read: &[u8], advertise: SocketAddr) -> Option<Vec<u8>> {
    let mut rest = Reader(read);
    let head = rest.take(16)?;
    rest.buffer()?;
    let address = advertise.to_string();
    let mut changed = head.to_vec();
    changed.extend((address.len() as i32).to_be_bytes());
    changed.extend(address.as_bytes());
    changed.extend(rest.0);
    Some(changed)
}
