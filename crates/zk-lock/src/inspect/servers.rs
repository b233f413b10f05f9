//! What the servers tell of their clients, by the four-letter words that they allow.

use std::collections::HashMap;
use std::time::Duration;

use super::words::Words;
use crate::cli::Common;

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

/// The servers' answers about their clients, as far as they allow these four-letter words.
pub struct ServerAnswers {
    chroot: String,
    /// Each watched path with a session that watches it (`wchp`), or why no server tells it.
    watches: Result<Vec<(String, String)>, String>,
    /// Whether all servers of the connect string tell it: another one may have more.
    all_tell_watches: bool,
    /// The connection of each session's client (`cons`), or why no server tells it.
    connections: Result<HashMap<String, Connection>, String>,
}

impl ServerAnswers {
    pub fn read(common: &Common) -> ServerAnswers {
        let connect = common.connect.as_deref().unwrap_or_default();
        let (hosts, words) = (hosts(connect), Words::new(common));
        let mut all_tell_watches = true;
        let mut all = |word| {
            let (mut answers, mut why) = (Vec::new(), String::new());
            for host in &hosts {
                match words.ask(host, word) {
                    Ok(answer) => answers.push(answer),
                    Err(silence) => {
                        all_tell_watches &= word != "wchp";
                        why = format!("{host}: {}", silence.why());
                    }
                }
            }
            if answers.is_empty() { Err(why) } else { Ok(answers) }
        };
        let by_session = |answers: Vec<String>| {
            let all = answers.iter().flat_map(|answer| connections(answer));
            all.map(|one| (one.session.clone(), one)).collect()
        };
        let watches = all("wchp").map(|all| all.iter().flat_map(|one| watches(one)).collect());
        let connections = all("cons").map(by_session);
        ServerAnswers { chroot: chroot(connect).to_owned(), watches, all_tell_watches, connections }
    }

    /// Why no server tells the watches.
    pub fn no_watches(&self) -> Option<&str> {
        self.watches.as_ref().err().map(String::as_str)
    }

    /// Why no server tells the addresses.
    pub fn no_addresses(&self) -> Option<&str> {
        self.connections.as_ref().err().map(String::as_str)
    }

    /// The sessions that watch a node; `None` if that is not known.
    pub fn watchers_of(&self, path: &str) -> Option<Vec<&str>> {
        let full = format!("{}{path}", self.chroot);
        let of_node = |all: &&(String, String)| all.0 == full;
        let all = self.watches.as_ref().ok()?.iter().filter(of_node);
        let all: Vec<&str> = all.map(|(_, session)| session.as_str()).collect();
        (self.all_tell_watches || !all.is_empty()).then_some(all)
    }

    /// The address of a session's client, while it is connected.
    pub fn address_of(&self, session: &str) -> Option<&str> {
        Some(&self.connections.as_ref().ok()?.get(session)?.address)
    }

    /// A session's timeout, while its client is connected.
    pub fn timeout_of(&self, session: &str) -> Option<Duration> {
        self.connections.as_ref().ok()?.get(session)?.timeout
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

/// A client's connection that has a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub session: String,
    pub address: String,
    pub timeout: Option<Duration>,
}

/// The connections that have a session, in an answer to `cons`.
pub fn connections(answer: &str) -> impl Iterator<Item = Connection> + '_ {
    answer.lines().filter_map(connection)
}

/// A line of `cons`: ` /10.0.0.7:40000[1](queued=0,..,sid=0x10a0001,..,to=30000,..)`.
fn connection(line: &str) -> Option<Connection> {
    let (address, rest) = line.trim().strip_prefix('/')?.rsplit_once('[')?;
    let (_, fields) = rest.split_once('(')?;
    let field = |key: &str| {
        let mut all = fields.trim_end_matches(')').split(',');
        all.find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    };
    let timeout = field("to").and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    Some(Connection { session: field("sid")?.to_owned(), address: address.to_owned(), timeout })
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
    fn a_connection_has_a_session_an_address_and_a_timeout() {
        let line = " /10.0.0.7:40000[1](queued=0,recved=9,sent=9,sid=0x10a0001,lop=PING,to=30000)";
        let connected = |session: &str, address: &str, seconds: Option<u64>| {
            let (session, address) = (session.to_owned(), address.to_owned());
            Some(Connection { session, address, timeout: seconds.map(Duration::from_secs) })
        };
        assert_eq!(connection(line), connected("0x10a0001", "10.0.0.7:40000", Some(30)));
        let ipv6 = " /[0:0:0:0:0:0:0:1]:40000[1](queued=0,recved=1,sent=1,sid=0x7)";
        assert_eq!(connection(ipv6), connected("0x7", "[0:0:0:0:0:0:0:1]:40000", None));
        for none in ["", " /10.0.0.7:40000[0](queued=0,recved=1,sent=0)", "[sid=0x1"] {
            assert_eq!(connection(none), None, "{none}");
        }
    }
}
