//! An ensemble of real servers. All messages between them go through fault proxies, so that any
//! member can be cut off.
//!
//! Each member's configuration names the proxies instead of the peers: messages from member i to j
//! go through the proxies i -> j. In an election a member sends its own address; the proxy replaces
//! it by the address of the proxy that leads back to this member.
use super::{Proxy, Scratch, Server, own_loopback, proxy::Traffic, server::Builder};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

const QUORUM_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 3;

/// How a member is cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing passes and nothing is closed: the members notice by their timeouts.
    BlackHole,
    /// Connections are closed and refused: the members notice at once.
    Cut,
}

/// The proxies from one member to another.
struct Way {
    from: usize,
    to: usize,
    quorum: Proxy,
    election: Proxy,
}

/// Members are counted from 0; ZooKeeper's own id of member i is i + 1. All members end on drop.
pub struct Ensemble {
    members: Vec<Server>,
    leader_serves: bool,
    ways: Vec<Way>,
}

impl Ensemble {
    /// Members with a tick of 500 ms, so that a follower notices the loss of its leader after 2 s
    /// (4 ticks).
    #[track_caller]
    pub fn start(size: usize) -> Ensemble {
        Ensemble::start_with(
            size,
            Server::real().tick(Duration::from_millis(500)).min_session(Duration::from_secs(1)),
        )
    }

    /// Members with the settings of `builder`; [`Builder::set`] can set `syncLimit` and
    /// `initLimit`.
    #[track_caller]
    pub fn start_with(size: usize, builder: Builder) -> Ensemble {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            match Ensemble::try_start(size, &builder) {
                Ok(ensemble) => return ensemble,
                Err(e) => why = e,
            }
        }
        panic!("{why}")
    }

    fn try_start(size: usize, builder: &Builder) -> Result<Ensemble, String> {
        assert!((1..=9).contains(&size), "an ensemble has 1 to 9 members here");
        let [_, b, c, _] = own_loopback().octets();
        let net = |host: usize| Ipv4Addr::new(127, b, c, host as u8);
        let host = |member: usize| net(member + 1);
        let between = |from: usize, to: usize| net(10 * (from + 1) + to + 1);

        let mut ways = Vec::new();
        for (from, to) in (0..size)
            .flat_map(|from| (0..size).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
        {
            let open = |port: u16, traffic| {
                let listen = SocketAddr::from((between(from, to), port));
                Proxy::open(listen, SocketAddr::from((host(to), port)), traffic)
                    .map_err(|e| format!("a proxy at {listen}: {e}"))
            };
            let advertise = SocketAddr::from((between(to, from), ELECTION_PORT));
            let quorum = open(QUORUM_PORT, Traffic::Plain)?;
            let election = open(ELECTION_PORT, Traffic::Election { advertise })?;
            ways.push(Way { from, to, quorum, election });
        }

        let mut members = Vec::new();
        for member in 0..size {
            let mut builder = builder
                .clone()
                .or_set("initLimit", 10)
                .or_set("syncLimit", 4)
                // A member that finds no leader repeats its votes ever more slowly, at last once a
                // minute.
                .property("zookeeper.fastleader.maxNotificationInterval", 500);
            for peer in 0..size {
                let at = if peer == member { host(peer) } else { between(member, peer) };
                builder = builder.set(
                    &format!("server.{}", peer + 1),
                    format!("{at}:{QUORUM_PORT}:{ELECTION_PORT}"),
                );
            }
            let server = builder.prepare(Scratch::new("member"), host(member))?;
            let id = server.member().dir().path().join("data/myid");
            fs::write(id, (member + 1).to_string()).map_err(|e| format!("myid: {e}"))?;
            server.member().run()?;
            members.push(server);
        }
        let ensemble = Ensemble { members, leader_serves: builder.leader_serves(), ways };
        ensemble.await_serving()?;
        Ok(ensemble)
    }

    /// Waits until all members serve clients, but for a leader that serves nobody.
    fn await_serving(&self) -> Result<(), String> {
        if self.leader_serves {
            return self.members.iter().try_for_each(|server| server.member().await_serving());
        }
        let end = Instant::now() + ELECTION_LIMIT;
        while self.followers().len() + 1 < self.size() {
            if Instant::now() >= end {
                return Err(format!(
                    "no {} members follow after {ELECTION_LIMIT:?}",
                    self.size() - 1
                ));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// A member, to kill, restart, pause or query. (A restart returns when the member serves, and
    /// for this it needs a quorum.)
    pub fn member(&self, member: usize) -> &Server {
        &self.members[member]
    }

    /// Makes each write of a member to a file fail until its restart, as on a full disk. (The limit
    /// on the size of its files becomes zero.)
    pub fn fill_disk(&self, member: usize) {
        self.members[member].member().fill_disk();
    }

    /// Kills all members, starts them again, and returns when all of them serve.
    #[track_caller]
    pub fn restart_all(&self) {
        self.members.iter().for_each(Server::kill);
        let start = || {
            self.members.iter().try_for_each(|server| server.member().run())?;
            self.await_serving()
        };
        start().unwrap_or_else(|why| panic!("{why}"));
    }

    /// The addresses (`host:port`) of all members.
    pub fn connect_string(&self) -> String {
        let all: Vec<String> = self.members.iter().map(Server::connect_string).collect();
        all.join(",")
    }

    /// The member that leads. Waits for the end of an election.
    #[track_caller]
    pub fn leader(&self) -> usize {
        super::until("the ensemble has a leader", ELECTION_LIMIT, || {
            if self.leader_serves {
                return self.with_mode("leader").first().copied();
            }
            // It does not say that it leads. All others follow it.
            let followers = self.followers();
            let mut others = (0..self.size()).filter(|member| !followers.contains(member));
            others.next().filter(|_| others.next().is_none())
        })
    }

    /// The members that follow now.
    pub fn followers(&self) -> Vec<usize> {
        self.with_mode("follower")
    }

    /// Whether a member serves clients now.
    pub fn serves(&self, member: usize) -> bool {
        self.members[member].mode().is_some()
    }

    /// Cuts a member off from all others, in both directions. Its clients still reach it.
    pub fn isolate(&self, member: usize, how: Isolation) {
        for proxy in self.proxies_of(member) {
            match how {
                Isolation::BlackHole => proxy.black_hole(true),
                Isolation::Cut => {
                    proxy.refuse(true);
                    proxy.cut();
                }
            }
        }
    }

    /// Ends `isolate`. Messages that a black hole held pass now.
    pub fn heal(&self, member: usize) {
        for proxy in self.proxies_of(member) {
            proxy.refuse(false);
            proxy.black_hole(false);
        }
    }

    /// The proxies of the connections that `from` opens to `to` (quorum and election), for other
    /// faults.
    #[track_caller]
    pub fn way(&self, from: usize, to: usize) -> [&Proxy; 2] {
        let way =
            self.ways.iter().find(|way| (way.from, way.to) == (from, to)).expect("two members");
        [&way.quorum, &way.election]
    }

    fn proxies_of(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        let ways = self.ways.iter().filter(move |way| way.from == member || way.to == member);
        ways.flat_map(|way| [&way.quorum, &way.election])
    }

    fn with_mode(&self, mode: &str) -> Vec<usize> {
        (0..self.size())
            .filter(|member| self.members[*member].mode().as_deref() == Some(mode))
            .collect()
    }
}
