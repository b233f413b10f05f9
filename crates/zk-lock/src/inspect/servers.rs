//! Each server by itself: its answers to the four-letter words that it allows.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(2);

/// The hosts of a connect string, each with its port.
pub fn hosts(connect: &str) -> Vec<String> {
    let list = connect.split('/').next().unwrap_or_default();
    let with_port = |host: &str| {
        let after_brackets = host.rsplit(']').next().unwrap_or(host);
        if after_brackets.contains(':') { host.to_owned() } else { format!("{host}:2181") }
    };
    list.split(',').map(str::trim).filter(|host| !host.is_empty()).map(with_port).collect()
}

/// The chroot of a connect string, or "".
pub fn chroot(connect: &str) -> &str {
    let start = connect.find('/').unwrap_or(connect.len());
    connect[start..].trim_end_matches('/')
}

/// How long it takes to connect to a server, or why that fails.
pub fn dial(host: &str) -> Result<Duration, String> {
    let began = Instant::now();
    connect(host).map(|_| began.elapsed())
}

/// The answer to a four-letter word; `None` if the server gives none, or does not allow it.
pub fn ask(host: &str, word: &str) -> Option<String> {
    let mut stream = connect(host).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_write_timeout(Some(LIMIT)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    let _ = stream.take(16 << 20).read_to_string(&mut answer);
    (!answer.is_empty() && !answer.contains("is not executed because")).then_some(answer)
}

fn connect(host: &str) -> Result<TcpStream, String> {
    let mut addresses =
        host.to_socket_addrs().map_err(|e| format!("its name cannot be resolved: {e}"))?;
    let address = addresses.next().ok_or("its name has no address")?;
    TcpStream::connect_timeout(&address, LIMIT).map_err(|e| e.to_string())
}

/// The servers' answers about their clients, as far as they allow these four-letter words.
pub struct ServerAnswers {
    chroot: String,
    /// Each watched path with a session that watches it (`wchp`); `None` if no server answers.
    watches: Option<Vec<(String, String)>>,
    /// The connection of each session's client (`cons`); `None` if no server answers.
    connections: Option<HashMap<String, Connection>>,
}

impl ServerAnswers {
    pub fn read(connect: &str) -> ServerAnswers {
        let hosts = hosts(connect);
        let all = |word| {
            let answers: Vec<String> = hosts.iter().filter_map(|host| ask(host, word)).collect();
            (!answers.is_empty()).then_some(answers)
        };
        let connections = |answers: Vec<String>| {
            answers.iter().flat_map(|answer| answer.lines()).filter_map(connection).collect()
        };
        ServerAnswers {
            chroot: chroot(connect).to_owned(),
            watches: all("wchp")
                .map(|answers| answers.iter().flat_map(|one| watches(one)).collect()),
            connections: all("cons").map(connections),
        }
    }

    pub fn tell_watches(&self) -> bool {
        self.watches.is_some()
    }

    pub fn tell_addresses(&self) -> bool {
        self.connections.is_some()
    }

    /// The sessions that watch a node.
    pub fn watchers_of(&self, path: &str) -> Option<Vec<&str>> {
        let full = format!("{}{path}", self.chroot);
        let of_node = |all: &&(String, String)| all.0 == full;
        let all = self.watches.as_ref()?.iter().filter(of_node);
        Some(all.map(|(_, session)| session.as_str()).collect())
    }

    /// The address of a session's client, while it is connected.
    pub fn address_of(&self, session: &str) -> Option<&str> {
        Some(&self.connections.as_ref()?.get(session)?.address)
    }

    /// A session's timeout, while its client is connected.
    pub fn timeout_of(&self, session: &str) -> Option<Duration> {
        self.connections.as_ref()?.get(session)?.timeout
    }
}

/// The answer to `wchp`: a path on a line, and below it the sessions that watch it, each behind a
/// tab.
fn watches(answer: &str) -> Vec<(String, String)> {
    let (mut all, mut path) = (Vec::new(), "");
    for line in answer.lines() {
        match line.strip_prefix('\t') {
            Some(session) => all.push((path.to_owned(), session.trim().to_owned())),
            None => path = line,
        }
    }
    all
}

/// The connection of a client, as its server tells of it.
#[derive(Debug, PartialEq, Eq)]
struct Connection {
    address: String,
    /// The session timeout.
    timeout: Option<Duration>,
}

/// The session in a line of `cons`, and its connection:
/// ` /10.0.0.7:40000[1](queued=0,..,sid=0x10a0001,..,to=30000,..)`. A connection that has no session
/// yet gives `None`.
fn connection(line: &str) -> Option<(String, Connection)> {
    let (address, rest) = line.trim().strip_prefix('/')?.rsplit_once('[')?;
    let (_, rest) = rest.split_once('(')?;
    let of = |key: &str| {
        let all = rest.trim_end_matches(')').split(',').filter_map(|one| one.split_once('='));
        all.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
    };
    let timeout = of("to").and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    let connection = Connection { address: address.to_owned(), timeout };
    Some((of("sid")?.to_owned(), connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_string_has_hosts_and_a_chroot() {
        assert_eq!(hosts("a,b:1, [::1] ,[::1]:7/app"), ["a:2181", "b:1", "[::1]:2181", "[::1]:7"]);
        assert_eq!(chroot("a,b:1/app/x"), "/app/x");
        assert_eq!((chroot("a"), chroot("a/")), ("", ""));
    }

    #[test]
    fn a_connection_has_a_session_and_an_address() {
        let line = " /10.0.0.7:40000[1](queued=0,recved=9,sent=9,sid=0x10a0001,lop=PING,to=30000)";
        let read = |session: &str, address: &str, timeout: Option<u64>| {
            let (address, timeout) = (address.to_owned(), timeout.map(Duration::from_millis));
            Some((session.to_owned(), Connection { address, timeout }))
        };
        assert_eq!(connection(line), read("0x10a0001", "10.0.0.7:40000", Some(30_000)));
        let ipv6 = " /[0:0:0:0:0:0:0:1]:40000[1](queued=0,recved=1,sent=1,sid=0x7)";
        assert_eq!(connection(ipv6), read("0x7", "[0:0:0:0:0:0:0:1]:40000", None));
        for none in ["", " /10.0.0.7:40000[0](queued=0,recved=1,sent=0)", "[sid=0x1"] {
            assert_eq!(connection(none), None, "{none}");
        }
    }
}
