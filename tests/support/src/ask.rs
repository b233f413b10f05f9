//! Four-letter words: a server's information about itself, on its client port.
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The time for one answer.
pub const LIMIT: Duration = Duration::from_secs(5);

/// The answer to a four-letter word.
pub fn four_letter(address: SocketAddr, word: &str, limit: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// `standalone`, `leader` or `follower`; None while the server does not serve.
pub fn mode(address: SocketAddr, limit: Duration) -> Option<String> {
    let answer = four_letter(address, "srvr", limit).ok()?;
    Some(answer.lines().find_map(|line| line.strip_prefix("Mode: "))?.trim().to_owned())
}

/// A number of the answer to `mntr`.
#[track_caller]
pub fn metric(address: SocketAddr, name: &str) -> i64 {
    let answer = four_letter(address, "mntr", LIMIT).expect("the server answers mntr");
    let find = |line: &str| {
        line.split_once('\t').filter(|(key, _)| *key == name)?.1.trim().parse::<f64>().ok()
    };
    answer
        .lines()
        .find_map(find)
        .map_or_else(|| panic!("no {name} in\n{answer}"), |value| value as i64)
}
