//! Plays a random sequence to one server.
use super::{
    super::{
        answers::Heard,
        checks::{AUTH_FAILED, UNIMPLEMENTED},
        client::{Client, Hello},
        requests::{Req, auth, exists, get_acl, get_children2, get_data, op},
    },
    generator::{self, Act},
    normal::Normal,
    vocabulary::Vocabulary,
};
use std::{collections::BTreeSet, fmt, sync::Mutex};
use zk_test_support::Server;

/// An act and the messages that followed it, in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    pub act: String,
    /// The opcodes of its requests.
    pub opcodes: Vec<i32>,
    pub heard: Vec<Heard>,
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.act)?;
        self.heard.iter().try_for_each(|heard| write!(f, "\n      {heard:?}"))
    }
}

pub fn play(server: &Server, seed: u64, acts: usize, played: &Mutex<Vec<Played>>) {
    let address = server.connect_string();
    let mut words = Vocabulary::new(seed);
    let mut clients = Vec::from_iter((0..words.rng.usize(2..4)).map(|_| Client::connect(&address)));
    let base = clients[0].good(&Req::Ping).zxid;
    let normal = Normal { base, sessions: clients.iter().map(Client::id).collect() };
    let mut player = Player { address, words, clients: Vec::new(), normal, played };
    player.clients.append(&mut clients);
    let opening = generator::opening(&player.words.top);
    player.play(Act::Ask { client: 0, requests: opening });
    for _ in 0..acts {
        let act = generator::act(&mut player.words, player.clients.len());
        player.play(act);
    }
    player.finish(server);
}

struct Player<'a> {
    address: String,
    words: Vocabulary,
    clients: Vec<Client>,
    normal: Normal,
    played: &'a Mutex<Vec<Played>>,
}

impl Player<'_> {
    fn play(&mut self, act: Act) {
        let said = self.readable(&act);
        match act {
            Act::Ask { client, requests } => {
                let heard = self.ask(client, &requests);
                let closed = heard.last() == Some(&Heard::Closed);
                self.note(said, requests.iter().map(Req::opcode).collect(), heard);
                if closed {
                    self.move_to_new(client);
                }
            }
            Act::Close { client } => self.close(client, said),
            Act::Move { client, right } => {
                let heard = self.drain(client);
                self.note(said, Vec::new(), heard);
                if !right {
                    let mut hello = Hello::again(&self.clients[client]);
                    hello.password[0] ^= 1;
                    let mut refused = hello.say(&self.address).expect("a refusal");
                    assert_eq!((refused.id(), refused.welcome.timeout), (0, 0), "a wrong password");
                    assert_eq!(refused.rest(), []);
                }
                self.move_to_new(client);
            }
        }
    }

    /// The act with zxids that mean the same on every server.
    fn readable(&self, act: &Act) -> String {
        let mut act = act.clone();
        if let Act::Ask { requests, .. } = &mut act {
            for request in requests {
                if let Req::SetWatches(watches) = request {
                    watches.seen = self.normal.zxid(watches.seen);
                }
            }
        }
        format!("{act:?}")
    }

    /// Sends the requests, and reads until each is answered or the connection is closed.
    fn ask(&mut self, client: usize, requests: &[Req]) -> Vec<Heard> {
        self.clients[client].send(requests);
        if let [Req::Check { .. }] = requests {
            // A request that succeeds here gets no answer. The answer to a ping behind it shows
            // that it was served.
            self.clients[client].send(&[Req::Ping]);
            let mut heard = self.answers(client, 1);
            if self.clients[client].unanswered().contains(&op::PING) {
                heard.extend(self.answers(client, 1));
            }
            self.clients[client].forget();
            return heard;
        }
        let heard = self.answers(client, requests.len());
        let replies = heard.iter().filter_map(|heard| match heard {
            Heard::Reply(reply) => Some(reply),
            _ => None,
        });
        for (request, reply) in requests.iter().zip(replies) {
            self.words.learn(request, reply);
        }
        heard
    }

    /// So many answers, and the events before them.
    fn answers(&mut self, client: usize, mut count: usize) -> Vec<Heard> {
        let mut heard = Vec::new();
        let mut replies = 0;
        while replies < count {
            let next = self.clients[client].next();
            if let Heard::Reply(reply) = &next {
                replies += 1;
                // The end of the connection follows this answer.
                if matches!(reply.err, UNIMPLEMENTED | AUTH_FAILED) {
                    count = usize::MAX;
                }
            }
            heard.push(next);
            if heard.last() == Some(&Heard::Closed) {
                break;
            }
        }
        heard
    }

    fn drain(&mut self, client: usize) -> Vec<Heard> {
        self.ask(client, &[Req::Ping])
    }

    fn note(&mut self, act: String, opcodes: Vec<i32>, heard: Vec<Heard>) {
        let heard = heard.into_iter().map(|heard| self.normal.heard(heard)).collect();
        self.played.lock().expect("nobody else plays").push(Played { act, opcodes, heard });
    }

    /// Moves the session to a new connection; the messages on the former one are ignored.
    fn move_to_new(&mut self, client: usize) {
        let old = &self.clients[client];
        let moved = Hello::again(old).say(&self.address).expect("a welcome");
        assert_eq!(moved.welcome, old.welcome);
        assert_eq!(self.clients[client].rest(), []);
        self.clients[client] = moved;
        self.note(format!("client {client} comes back"), vec![op::CREATE_SESSION], Vec::new());
    }

    /// Closes a session. The nodes of a session are deleted in the order of a hash table, so the
    /// events of the close are sorted, apart from earlier events.
    fn close(&mut self, client: usize, said: String) {
        self.drain_all(|heard| heard);
        let mut heard = self.ask(client, &[Req::CloseSession]);
        heard.extend(self.clients[client].rest());
        heard.push(Heard::Closed);
        self.note(said, vec![op::CLOSE_SESSION], sorted(heard));
        self.clients[client] = Client::connect(&self.address);
        self.normal.sessions.push(self.clients[client].id());
        self.drain_all(sorted);
    }

    /// Reads all messages that have come for all clients.
    fn drain_all(&mut self, order: fn(Vec<Heard>) -> Vec<Heard>) {
        for client in &mut self.clients {
            client.send(&[Req::Ping]);
        }
        for client in 0..self.clients.len() {
            let heard = order(self.answers(client, 1));
            self.note(format!("client {client} looks"), Vec::new(), heard);
        }
    }

    /// Compares every node that the sequence may have made and the server's counts, first with the
    /// sessions and then without them.
    fn finish(&mut self, server: &Server) {
        self.drain_all(|heard| heard);
        self.tree(server, "before the sessions end");
        for client in 0..self.clients.len() {
            let mut heard = self.ask(client, &[Req::CloseSession]);
            heard.extend(self.clients[client].rest());
            self.note(format!("client {client} leaves"), vec![op::CLOSE_SESSION], sorted(heard));
        }
        self.tree(server, "without the sessions");
    }

    fn tree(&mut self, server: &Server, when: &str) {
        let answer = server.four_letter("mntr").expect("an answer to mntr");
        let counts =
            ["zk_znode_count", "zk_ephemerals_count", "zk_watch_count", "zk_approximate_data_size"];
        let told = Vec::from_iter(
            answer.lines().filter(|line| counts.iter().any(|name| line.starts_with(name))),
        );
        let told = BTreeSet::from_iter(told);
        assert_eq!(told.len(), counts.len(), "{answer}");
        self.note(format!("{told:?} {when}"), Vec::new(), Vec::new());
        let mut walker = Client::connect(&self.address);
        walker.good(&auth("digest", "alice:wonder"));
        walker.good(&auth("digest", "bob:builder"));
        let of = |path: &String| [exists(path), get_data(path), get_children2(path), get_acl(path)];
        let paths = self.words.all_paths();
        walker.send(&Vec::from_iter(paths.iter().flat_map(of)));
        for path in paths {
            let opcodes = Vec::from_iter(of(&path).iter().map(Req::opcode));
            let heard = Vec::from_iter(opcodes.iter().map(|_| walker.next()));
            self.note(format!("{path} {when}"), opcodes, heard);
        }
        walker.close();
    }
}

/// The events in an order that can be compared, and the other messages after them.
fn sorted(heard: Vec<Heard>) -> Vec<Heard> {
    let (mut events, mut rest) = (Vec::new(), Vec::new());
    for heard in heard {
        match heard {
            Heard::Event(event) => events.push(event),
            other => rest.push(other),
        }
    }
    events.sort();
    events.into_iter().map(Heard::Event).chain(rest).collect()
}
