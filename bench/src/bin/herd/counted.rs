//! The server's own counts: the watches that are set, and the watch events that were sent.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use zk_test_server::TestServer;

/// If no count changes for this long, all effects of a release are over.
const QUIET: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(30);
const LIMIT: Duration = Duration::from_secs(60);

/// `ServerMetrics` of ZooKeeper 3.6 and later, which `mntr` shows: the sum of the watches that
/// fired at each change.
const SUMS: [&str; 2] = ["zk_sum_node_deleted_watch_count", "zk_sum_node_children_watch_count"];
const WATCHES: &str = "zk_watch_count";

pub enum Counter<'a> {
    /// The embedded server, which logs every event.
    Embedded(&'a TestServer),
    /// A real server, which is queried by `mntr`.
    Real(String),
}

impl Counter<'_> {
    pub fn describe(&self) -> String {
        match self {
            Counter::Embedded(_) => "the embedded server's log of what it sent".to_owned(),
            Counter::Real(host) => {
                format!("{} of {host} (`mntr`; all its clients)", SUMS.join(" + "))
            }
        }
    }

    /// Begins a new count: the embedded server's log would forget the oldest events.
    pub fn clear(&self) {
        if let Counter::Embedded(server) = self {
            server.clear_log();
        }
    }

    /// The numbers of set watches and of sent events, once neither changes any more.
    pub fn settled(&self) -> io::Result<(u64, u64)> {
        let deadline = Instant::now() + LIMIT;
        let (mut seen, mut since) = (self.now()?, Instant::now());
        while since.elapsed() < QUIET && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
            let now = self.now()?;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(seen)
    }

    fn now(&self) -> io::Result<(u64, u64)> {
        match self {
            Counter::Embedded(server) => {
                Ok((server.watch_count() as u64, server.events().len() as u64))
            }
            Counter::Real(host) => {
                let text = monitor(host)?;
                let value = |key: &str| {
                    let line =
                        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
                    line.and_then(|value| value.trim().parse::<f64>().ok())
                        .map(|value| value as u64)
                };
                let sum = SUMS.iter().map(|key| value(key)).sum::<Option<u64>>();
                value(WATCHES).zip(sum).ok_or_else(|| {
                    io::Error::other(format!(
                        "{host} does not report this: it must be ZooKeeper 3.6 or later, with 4lw.commands.whitelist=mntr"
                    ))
                })
            }
        }
    }
}

fn monitor(host: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host)?;
    stream.write_all(b"mntr")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
