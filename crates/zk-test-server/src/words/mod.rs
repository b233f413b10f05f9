//! The four-letter words, in the real server's formats (`org.apache.zookeeper.server.command`).
//! Keys that have no meaning here (JVM, quorum, snapshots) are left out.

mod date;
mod dump;

use std::fmt::{Arguments, Write};
use std::net::SocketAddr;

use super::engine::{ConnId, Engine};

/// The name of the version in `srvr`, and the version. Clients read the first numbers, and people
/// the rest.
fn version(engine: &Engine) -> (&'static str, String) {
    let (name, version) = engine.settings().brand.version();
    (name, format!("{version}-zk-mutex-test-server-{}", env!("CARGO_PKG_VERSION")))
}

/// All words that the real server knows.
const KNOWN: [&[u8; 4]; 18] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"envi", b"gtmk", b"hash", b"isro", b"mntr",
    b"ruok", b"srst", b"srvr", b"stat", b"stmk", b"wchc", b"wchp", b"wchs",
];

pub(super) fn is_word(bytes: &[u8; 4]) -> bool {
    KNOWN.contains(&bytes)
}

/// The connection that sent the word, and the server's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) conn: ConnId,
    pub(super) address: SocketAddr,
}

/// The answer to one of the known words.
pub(super) fn answer(engine: &mut Engine, word: [u8; 4], asked: Asked) -> String {
    let mut text = Text(String::new());
    match &word {
        b"ruok" => text.0.push_str("imok"),
        b"isro" => text.0.push_str("rw"),
        b"srvr" => server(engine, None, &mut text),
        b"stat" => server(engine, Some(asked.conn), &mut text),
        b"mntr" => monitor(engine, &mut text),
        b"conf" => config(engine, asked.address, &mut text),
        b"envi" => environment(engine, &mut text),
        b"cons" => {
            dump::connections(engine, asked.conn, true, &mut text);
            text.line(format_args!(""));
        }
        b"dump" => dump::all(engine, &mut text),
        b"wchs" => dump::watch_summary(engine, &mut text),
        b"wchp" => dump::watches_by_path(engine, &mut text),
        b"wchc" => dump::watches_by_session(engine, &mut text),
        b"srst" => {
            engine.reset_packets();
            text.line(format_args!("Server stats reset."));
        }
        b"crst" => {
            engine.reset_connection_packets();
            text.line(format_args!("Connection stats reset."));
        }
        other => text.line(format_args!(
            "{} is not executed because it is not in the whitelist.",
            String::from_utf8_lossy(other)
        )),
    }
    text.0
}

/// Collects lines.
struct Text(String);

impl Text {
    fn line(&mut self, line: Arguments<'_>) {
        self.add(line);
        self.0.push('\n');
    }

    fn add(&mut self, part: Arguments<'_>) {
        let _ = self.0.write_fmt(part); // writing into a string cannot fail
    }
}

/// The answer to `srvr`, and, with the clients, to `stat`. Requests are answered within the
/// millisecond in which they are read, so the latency is zero.
fn server(engine: &Engine, with_clients: Option<ConnId>, text: &mut Text) {
    let (name, version) = version(engine);
    text.line(format_args!("{name}: {version}"));
    if let Some(asking) = with_clients {
        text.line(format_args!("Clients:"));
        dump::connections(engine, asking, false, text);
        text.line(format_args!(""));
    }
    let (received, sent) = engine.packets();
    text.line(format_args!("Latency min/avg/max: 0/0.0/0"));
    text.line(format_args!("Received: {received}"));
    text.line(format_args!("Sent: {sent}"));
    text.line(format_args!("Connections: {}", engine.connections().len()));
    text.line(format_args!("Outstanding: 0"));
    text.line(format_args!("Zxid: {:#x}", engine.last_zxid()));
    text.line(format_args!("Mode: standalone"));
    text.line(format_args!("Node count: {}", engine.node_count()));
}

fn monitor(engine: &Engine, text: &mut Text) {
    let (received, sent) = engine.packets();
    let mut line = |key: &str, value: Arguments<'_>| text.line(format_args!("zk_{key}\t{value}"));
    line("version", format_args!("{}", version(engine).1));
    line("server_state", format_args!("standalone"));
    line("ephemerals_count", format_args!("{}", engine.ephemeral_count()));
    line("num_alive_connections", format_args!("{}", engine.connections().len()));
    line("avg_latency", format_args!("0.0"));
    line("outstanding_requests", format_args!("0"));
    line("znode_count", format_args!("{}", engine.node_count()));
    line("global_sessions", format_args!("{}", engine.sessions().len()));
    line("packets_sent", format_args!("{sent}"));
    line("packets_received", format_args!("{received}"));
    line("connection_drop_probability", format_args!("0.0"));
    line("watch_count", format_args!("{}", engine.watch_count()));
    line("min_latency", format_args!("0"));
    line("approximate_data_size", format_args!("{}", engine.data_size()));
    line("local_sessions", format_args!("0"));
    line("uptime", format_args!("{}", engine.now().as_millis()));
    line("max_latency", format_args!("0"));
}

fn config(engine: &Engine, address: SocketAddr, text: &mut Text) {
    let settings = engine.settings();
    text.line(format_args!("clientPort={}", address.port()));
    text.line(format_args!("secureClientPort=-1"));
    text.line(format_args!("dataDir="));
    text.line(format_args!("dataDirSize=0"));
    text.line(format_args!("dataLogDir="));
    text.line(format_args!("dataLogSize=0"));
    text.line(format_args!("tickTime={}", settings.tick.as_millis()));
    text.line(format_args!("maxClientCnxns=0"));
    text.line(format_args!("minSessionTimeout={}", settings.min_session.as_millis()));
    text.line(format_args!("maxSessionTimeout={}", settings.max_session.as_millis()));
    text.line(format_args!("clientPortListenBacklog=-1"));
    text.line(format_args!("serverId=0"));
}

fn environment(engine: &Engine, text: &mut Text) {
    text.line(format_args!("Environment:"));
    text.line(format_args!("zookeeper.version={}", version(engine).1));
    text.line(format_args!("host.name=localhost"));
    text.line(format_args!("os.name={}", std::env::consts::OS));
    text.line(format_args!("os.arch={}", std::env::consts::ARCH));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Brand;
    use crate::engine::{Identity, Settings};
    use std::time::Duration;

    fn ask(engine: &mut Engine, word: &[u8; 4]) -> String {
        answer(engine, *word, Asked { conn: 7, address: ([127, 0, 0, 1], 2181).into() })
    }

    #[test]
    fn every_word_has_an_answer() {
        let tick = Duration::from_millis(250);
        let (min_session, max_session) = (2 * tick, 20 * tick);
        let brand = Brand::ZooKeeper38;
        let settings = Settings {
            brand,
            tick,
            min_session,
            max_session,
            reap_interval: tick,
            super_digest: None,
            sasl: Default::default(),
        };
        let mut engine =
            Engine::new(settings, Identity { server: 0, epoch: 1_700_000_000_000, secret: 7 });
        engine.accept(7, ([127, 0, 0, 1], 40_000).into());
        engine.count_word(7);
        for word in KNOWN {
            assert!(is_word(word) && !ask(&mut engine, word).is_empty());
        }
        assert!(!is_word(b"GET "));
        assert_eq!(ask(&mut engine, b"ruok"), "imok");
        assert_eq!(ask(&mut engine, b"cons"), " /127.0.0.1:40000[0](queued=0,recved=0,sent=0)\n\n");
        assert_eq!(ask(&mut engine, b"wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
        let answer = ask(&mut engine, b"mntr");
        assert!(
            answer.contains("zk_znode_count\t5\n")
                && answer.contains("zk_server_state\tstandalone\n")
        );
        assert!(ask(&mut engine, b"srvr").contains("\nMode: standalone\n"));
        assert!(ask(&mut engine, b"conf").contains("\ntickTime=250\n"));
        assert!(ask(&mut engine, b"envi").contains("\nzookeeper.version=3.8.0-"));
        assert!(ask(&mut engine, b"hash").contains("not in the whitelist"));
    }
}
