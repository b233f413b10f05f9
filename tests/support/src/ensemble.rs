//! An ensemble of real servers whose talk with each other goes through fault proxies, so that any
//! member can be cut off.
//!
//! Each member's configuration names the proxies in place of its peers: what member i sends to j
//! passes the proxies i -> j. The address with which a member introduces itself in an election is
//! replaced on its way by that of the proxy leading back to it.
use super::{Proxy, Scratch, Server, own_loopback, proxy::Traffic, server::Builder};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

const QUORUM_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 3;

/// How a member is cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing passes, nothing is closed: the members notice by their timeouts.
    BlackHole,
    /// Connections are closed and refused: the members notice at once.
    Cut,
}

/// The proxies on the way from one member to another.
struct Way {
    from: usize,
    to: usize,
    quorum: Proxy,
    election: Proxy,
}

/// Members are counted from 0; ZooKeeper's own id of member i is i + 1. All end on drop.
pub struct Ensemble {
    members: Vec<Server>,
    ways: Vec<Way>,
}

impl Ensemble {
    /// Members with a tick of 500 ms, so that a follower without its leader notices after 2 s (4
    /// ticks).
    #[track_caller]
    pub fn start(size: usize) -> Ensemble {
        Ensemble::start_with(
            size,
            Server::real().tick(Duration::from_millis(500)).min_session(Duration::from_secs(1)),
        )
    }

    /// Members set up by `builder`; `syncLimit` and `initLimit` can be set with [`Builder::set`].
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
                // A member that looks for a leader in vain asks ever less often, up to once a
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
        members.iter().try_for_each(|server| server.member().await_serving())?;
        Ok(Ensemble { members, ways })
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// A member, to kill, restart, pause or ask. (A restart returns when the member serves, for
    /// which it needs a quorum.)
    pub fn member(&self, member: usize) -> &Server {
        &self.members[member]
    }

    /// From now on each write of a member to a file fails, as on a full disk, until it is
    /// restarted. (Its limit on the size of files becomes zero.)
    pub fn fill_disk(&self, member: usize) {
        self.members[member].member().fill_disk();
    }

    /// Kills all members, starts them again, and returns when all serve.
    #[track_caller]
    pub fn restart_all(&self) {
        self.members.iter().for_each(Server::kill);
        let start = || {
            self.members.iter().try_for_each(|server| server.member().run())?;
            self.members.iter().try_for_each(|server| server.member().await_serving())
        };
        start().unwrap_or_else(|why| panic!("{why}"));
    }

    /// `host:port` of all members.
    pub fn connect_string(&self) -> String {
        let all: Vec<String> = self.members.iter().map(Server::connect_string).collect();
        all.join(",")
    }

    /// The member that leads; waits for an election to end.
    #[track_caller]
    pub fn leader(&self) -> usize {
        super::until("the ensemble has a leader", ELECTION_LIMIT, || {
            self.with_mode("leader").first().copied()
        })
    }

    /// The members that follow at present.
    pub fn followers(&self) -> Vec<usize> {
        self.with_mode("follower")
    }

    /// Whether a member serves clients at present.
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

    /// Undoes `isolate`. What a black hole held passes now.
    pub fn heal(&self, member: usize) {
        for proxy in self.proxies_of(member) {
            proxy.refuse(false);
            proxy.black_hole(false);
        }
    }

    /// The proxies of the connections `from` opens to `to` (quorum and election), for faults of a
    /// test's own making.
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
