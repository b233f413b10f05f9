//! The servers one by one, by their four-letter words, where they answer them.

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
    (!answer.trim().is_empty() && !answer.contains("is not executed because")).then_some(answer)
}

fn connect(host: &str) -> Result<TcpStream, String> {
    let mut addresses =
        host.to_socket_addrs().map_err(|e| format!("its name cannot be resolved: {e}"))?;
    let address = addresses.next().ok_or("its name has no address")?;
    TcpStream::connect_timeout(&address, LIMIT).map_err(|e| e.to_string())
}

/// The sessions that watch a node, of all servers that tell (`wchp`); `None` if none does.
pub fn watchers(connect: &str) -> Option<Vec<(String, String)>> {
    let answers: Vec<String> = hosts(connect).iter().filter_map(|host| ask(host, "wchp")).collect();
    if answers.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for answer in answers {
        let mut path = String::new();
        for line in answer.lines() {
            match line.strip_prefix('\t') {
                Some(session) => all.push((path.clone(), session.trim().to_owned())),
                None => line.clone_into(&mut path),
            }
        }
    }
    Some(all)
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
}
