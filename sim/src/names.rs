//! The names by which processes find the servers, and what else may be found at their addresses.
//!
//! A connect string has addresses, names, or both. The resolver knows which members a name stands
//! for. When a member moves to another address, the name goes on having the old one until the
//! answer is published. Look-ups may be late, or fail, for a while.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::net::{self, Answer, ConnId, Service};
use zk_sim_runtime::{ProcessId, after, host_of, note, now};
use zk_wire::frame::Frames;
use zk_wire::record::{ConnectReply, ConnectRequest};

use crate::observer::Observer;
use crate::server_host;
use crate::servers::Servers;

/// A name in a connect string.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Name {
    /// The name itself.
    pub name: String,
    /// The members that it stands for.
    pub members: Vec<usize>,
    /// Its other addresses, of hosts that swallow all packets.
    #[serde(default)]
    pub silent: Vec<IpAddr>,
}

/// What is wrong with the look-ups of a name.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum LookUps {
    /// They take so long.
    Late(Duration),
    /// They say that there is no such name.
    NoSuchName,
    /// They fail, after this time.
    Fail(Duration),
}

/// The port of all servers.
const PORT: u16 = 2181;

/// How long a look-up takes usually.
const USUAL: Duration = Duration::from_millis(2);

/// The names of a run. All parts of the world that act on them share this handle.
#[derive(Clone)]
pub struct Names(Rc<RefCell<Inner>>);

struct Inner {
    names: Vec<Name>,
    /// The addresses of the connect string.
    fixed: Vec<IpAddr>,
    /// The address of each member, as the resolver knows it.
    published: Vec<Option<IpAddr>>,
    /// What is wrong with each name, and until when.
    troubles: Vec<Option<(LookUps, Duration)>>,
    /// How often each member has moved.
    moves: Vec<u8>,
}

/// Where a process could connect to now, and since when that has been so.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Since when the same majority of the servers has taken part, with its leader, and one of them
    /// could be reached by an address that the resolver says.
    pub since: Duration,
    /// The number of addresses.
    pub targets: u32,
    /// How many of the others let a connection come about, or did so a while ago.
    pub mute: u32,
    /// How many of them have been silent all the time. The others refuse at once.
    pub silent: u32,
}

impl Names {
    /// The names of this connect string, for so many members.
    pub fn new(names: &[Name], connect_string: &str, members: usize) -> Names {
        let hosts = connect_string.split('/').next().unwrap_or_default().split(',');
        let fixed = hosts.filter_map(|host| host.parse::<SocketAddr>().ok());
        let inner = Inner {
            names: names.to_vec(),
            fixed: fixed.map(|at| at.ip()).collect(),
            published: (0..members).map(|member| Some(server_host(member))).collect(),
            troubles: vec![None; names.len()],
            moves: vec![0; members],
        };
        for ip in names.iter().flat_map(|name| &name.silent) {
            net::set_host_down(*ip, true);
        }
        let this = Names(Rc::new(RefCell::new(inner)));
        this.tell();
        this
    }

    /// The next address of a member that moves.
    pub fn next_host(&self, member: usize) -> IpAddr {
        let mut inner = self.0.borrow_mut();
        inner.moves[member] = inner.moves[member].wrapping_add(1);
        let moves = inner.moves[member];
        [10, 1, moves, u8::try_from(member).unwrap_or(u8::MAX)].into()
    }

    /// From now on the resolver says this address of a member, or none.
    pub fn publish(&self, member: usize, host: Option<IpAddr>) {
        self.0.borrow_mut().published[member] = host;
        self.tell();
    }

    /// Something is wrong with the look-ups of a name for a while.
    pub fn trouble(&self, name: usize, trouble: LookUps, lasts: Duration) {
        {
            let mut inner = self.0.borrow_mut();
            let count = inner.names.len();
            if count == 0 {
                return;
            }
            inner.troubles[name % count] = Some((trouble, now() + lasts));
        }
        self.tell();
        let this = self.clone();
        after(lasts, move || this.tell());
    }

    /// Tells the resolver what it has to say.
    fn tell(&self) {
        let mut inner = self.0.borrow_mut();
        let Inner { names, published, troubles, .. } = &mut *inner;
        for (name, trouble) in names.iter().zip(troubles) {
            *trouble = trouble.filter(|(_, until)| *until > now());
            let members = name.members.iter().filter_map(|member| published[*member]);
            let ips: Vec<IpAddr> = name.silent.iter().copied().chain(members).collect();
            let is_empty = ips.len() == name.silent.len();
            let usual = if is_empty { Answer::NoSuchName } else { Answer::Addresses(ips) };
            let (answer, takes) = match trouble {
                None => (usual, USUAL),
                Some((LookUps::Late(takes), _)) => (usual, *takes),
                Some((LookUps::NoSuchName, _)) => (Answer::NoSuchName, USUAL),
                Some((LookUps::Fail(takes), _)) => (Answer::Failure, *takes),
            };
            net::set_name(&name.name, answer, takes);
        }
    }

    /// The addresses that a process is told now.
    fn targets(&self) -> BTreeSet<IpAddr> {
        let inner = self.0.borrow();
        let named = inner.names.iter().flat_map(|name| net::addresses_of(&name.name));
        inner.fixed.iter().copied().chain(named).collect()
    }

    /// Whether the process has this address from its connect string, without a name.
    pub fn is_fixed(&self, ip: IpAddr) -> bool {
        self.0.borrow().fixed.contains(&ip)
    }

    /// Whether no name has this address, and each look-up of this process has said that for so long.
    pub fn is_gone(&self, process: ProcessId, ip: IpAddr, lasts: Duration) -> bool {
        let is_prompt = |name: &Name| {
            net::prompt_since(process, &name.name, USUAL).is_some_and(|since| since + lasts < now())
        };
        !self.targets().contains(&ip) && self.0.borrow().names.iter().all(is_prompt)
    }

    /// Since when each look-up of this process says this address.
    fn told_since(&self, process: ProcessId, ip: IpAddr) -> Option<Duration> {
        let inner = self.0.borrow();
        if inner.fixed.contains(&ip) {
            return Some(Duration::ZERO);
        }
        let since = |name: &Name| {
            let prompt = net::prompt_since(process, &name.name, USUAL)?;
            Some(net::named_since(&name.name, ip)?.max(prompt))
        };
        inner.names.iter().filter_map(since).min()
    }

    /// Where this process could connect to, if there is a majority, and one of it can be reached.
    /// Hosts that have been silent since `silent_since` have taken no connection.
    pub fn reach(
        &self,
        servers: &Servers,
        process: ProcessId,
        silent_since: Duration,
    ) -> Option<Reach> {
        let client = host_of(process);
        let (quorum_since, leader) = (servers.quorum_since()?, servers.leader()?);
        let good = |member: usize| {
            let at = servers.address(member);
            let parts = [
                servers.serves_since(member),
                net::listens_since(at),
                self.told_since(process, at.ip()),
                net::both_ways_since(client, at.ip()),
            ];
            let all: Option<Vec<Duration>> = parts.into_iter().collect();
            Some((all?.into_iter().max()?, at.ip()))
        };
        let dialled = (0..servers.count()).filter(|n| servers.leader_serves() || *n != leader);
        let mut all: Vec<(Duration, IpAddr)> = dialled.filter_map(good).collect();
        all.sort_unstable();
        let (first, _) = all.first()?;
        let since = quorum_since.max(*first);
        let mut reach = Reach { since, targets: 0, mute: 0, silent: 0 };
        for ip in self.targets() {
            reach.targets += 1;
            if all.iter().any(|(_, good)| *good == ip) {
                continue;
            }
            let ways = [net::way(client, ip), net::way(ip, client)];
            let is_silent = ways.iter().any(|way| !way.is_open && way.since <= silent_since);
            let refuses = ways.iter().all(|way| way.is_open)
                && net::listens_since(SocketAddr::new(ip, PORT)).is_none();
            if is_silent {
                reach.silent += 1;
            } else if !refuses {
                reach.mute += 1;
            }
        }
        Some(reach)
    }
}

/// A host that accepts connections and answers nothing.
pub struct Mute;

impl Service for Mute {
    fn opened(&mut self, _: ConnId, _: SocketAddr, _: SocketAddr) {}

    fn bytes(&mut self, _: ConnId, _: &[u8]) {}

    fn closed(&mut self, _: ConnId) {}
}

/// A server of another ensemble. It knows no session of ours. It makes none either: a client that
/// has taken it for one of ours would have locks there.
pub struct Stranger {
    names: Names,
    observer: Observer,
    frames: Vec<(ConnId, Frames)>,
}

impl Stranger {
    /// Lets one accept connections at this address.
    pub fn listen(ip: IpAddr, names: Names, observer: Observer) {
        note(&format!("{ip} belongs to another ensemble"));
        net::set_host_down(ip, false);
        let stranger = Stranger { names, observer, frames: Vec::new() };
        net::listen(SocketAddr::new(ip, PORT), Rc::new(RefCell::new(stranger)));
    }
}

impl Service for Stranger {
    fn opened(&mut self, conn: ConnId, _: SocketAddr, _: SocketAddr) {
        self.frames.push((conn, Frames::default()));
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some((_, frames)) = self.frames.iter_mut().find(|(open, _)| *open == conn) else {
            return;
        };
        frames.push(bytes);
        let Ok(Some(frame)) = frames.next() else { return };
        let session = ConnectRequest::read(frame).map_or(0, |(request, _)| request.session_id);
        self.frames.retain(|(open, _)| *open != conn);
        if session != 0 {
            let all = net::connections();
            if let Some(about) = all.iter().find(|about| about.id == conn) {
                note(&format!("another ensemble knows no session {session:#x}"));
                self.observer.is_refused_by_others(about, session, &self.names);
            }
            let reply = ConnectReply { timeout_ms: 0, session_id: 0, password: vec![0; 16] };
            net::send(conn, reply.frame());
        }
        net::close(conn);
    }

    fn closed(&mut self, conn: ConnId) {
        self.frames.retain(|(open, _)| *open != conn);
    }
}
