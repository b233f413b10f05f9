//! Four-letter words: the answers that programs and people read.
use super::{
    answers::{Heard, changed},
    checks::{heard, is_39},
    client::Client,
    requests::*,
};
use std::collections::{BTreeMap, BTreeSet};
use zk_test_support::{Server, Shared, scenarios};

scenarios![
    ruok_says_imok,
    packets_are_counted,
    each_word_reports_one_scene,
    words_are_known_on_a_new_connection_only
];

fn each_word_reports_one_scene() {
    let server = Server::start();
    let address = &server.connect_string();
    let (one, two) = scene(address);
    srvr_reports_the_server(address);
    dump_lists_sessions_and_their_nodes(address, &one, &two);
    cons_lists_connections(address, &one, &two);
    mntr_counts(address, one, two);
    wchs_and_wchp_list_data_watches(address);
}

/// Two clients, each with an ephemeral node, and five watches: three of data, two of children.
fn scene(address: &str) -> (Client, Client) {
    let (mut one, mut two) = (Client::connect(address), Client::connect(address));
    one.good(&ephemeral("/e"));
    two.good(&ephemeral("/f"));
    one.good(&watch_data("/e"));
    two.good(&watch_data("/e"));
    two.good(&watch_children("/e"));
    one.good(&add_watch("/x", RECURSIVE_WATCH));
    (one, two)
}

/// The whole answer, up to the end of the connection.
#[track_caller]
fn ask(address: &str, word: &str) -> String {
    let mut connection = Client::silent(address);
    connection.say(word.as_bytes());
    String::from_utf8(connection.raw()).expect("text")
}

/// `(name, value)` of each line, split at the first `at`.
fn table<'a>(answer: &'a str, at: &str) -> Vec<(&'a str, &'a str)> {
    let pair =
        |line: &'a str| line.split_once(at).unwrap_or_else(|| panic!("no {at:?} in {line:?}"));
    answer.lines().map(pair).collect()
}

fn hex(id: i64) -> String {
    format!("0x{id:x}")
}

fn ruok_says_imok() {
    let address = &Shared::connect_string();
    assert_eq!(ask(address, "ruok"), "imok");
    // The word may come in pieces.
    let mut silent = Client::silent(address);
    silent.say(b"ru");
    assert_eq!(ask(address, "ruok"), "imok");
    silent.say(b"ok");
    assert_eq!(silent.raw(), b"imok");
}

/// As far as the servers of the run say the same.
fn version() -> &'static str {
    if is_39() { "3.9." } else { "3.8." }
}

fn srvr_reports_the_server(address: &str) {
    let answer = ask(address, "srvr");
    let lines = table(&answer, ": ");
    let names = Vec::from_iter(lines.iter().map(|(name, _)| *name));
    let all = [
        "Zookeeper version",
        "Latency min/avg/max",
        "Received",
        "Sent",
        "Connections",
        "Outstanding",
        "Zxid",
        "Mode",
        "Node count",
    ];
    assert_eq!(names, all);
    let value = BTreeMap::from_iter(lines);
    assert!(value["Zookeeper version"].starts_with(version()), "{answer}");
    assert_eq!(value["Latency min/avg/max"].split('/').count(), 3);
    // The asking connection is counted, too, and the root is counted twice. There are two sessions
    // and two creates.
    let told = ["Connections", "Outstanding", "Zxid", "Mode", "Node count"].map(|name| value[name]);
    assert_eq!(told, ["3", "0", "0x4", "standalone", "7"]);
    assert!(
        value["Received"].parse::<u32>().is_ok() && value["Sent"].parse::<u32>().is_ok(),
        "{answer}"
    );
}

fn mntr_counts(address: &str, one: Client, mut two: Client) {
    let expected = |address: &str, expected: &[(&str, &str)]| {
        let answer = ask(address, "mntr");
        let told = BTreeMap::from_iter(table(&answer, "\t"));
        for (name, value) in expected {
            assert_eq!(told.get(name), Some(value), "{name}");
        }
        for name in [
            "avg_latency",
            "min_latency",
            "max_latency",
            "packets_received",
            "packets_sent",
            "uptime",
        ] {
            let value = told[format!("zk_{name}").as_str()];
            assert!(value.parse::<f64>().is_ok(), "{name} is {value}");
        }
        assert!(told["zk_version"].starts_with(version()), "{}", told["zk_version"]);
    };
    expected(
        address,
        &[
            ("zk_server_state", "standalone"),
            ("zk_znode_count", "7"),
            // A recursive watch counts twice in 3.8.
            ("zk_watch_count", if is_39() { "4" } else { "5" }),
            ("zk_ephemerals_count", "2"),
            ("zk_num_alive_connections", "3"),
            ("zk_global_sessions", "2"),
            ("zk_local_sessions", "0"),
            ("zk_outstanding_requests", "0"),
            // The lengths of all paths and data: /, /zookeeper, its quota and config, /e, /f.
            ("zk_approximate_data_size", "48"),
        ],
    );
    drop(one);
    two.good(&create("/g").data(b"four"));
    let changed = [
        ("zk_znode_count", "7"),
        ("zk_watch_count", "0"),
        ("zk_ephemerals_count", "1"),
        ("zk_num_alive_connections", "2"),
        ("zk_global_sessions", "1"),
        ("zk_approximate_data_size", "52"),
    ];
    expected(address, &changed);
}

/// Received packets are counted exactly, and these words are packets too. (Sent packets are counted
/// in pieces, some of them later.)
fn packets_are_counted() {
    let server = Server::start();
    let address = &server.connect_string();
    let counts = || {
        let answer = ask(address, "mntr");
        let told = BTreeMap::from_iter(table(&answer, "\t"));
        ["zk_packets_received", "zk_packets_sent"]
            .map(|name| told[name].parse::<i64>().expect(name))
    };
    let [received, sent] = counts();
    let mut client = Client::connect(address);
    client.good(&create("/a"));
    client.good(&watch_data("/a"));
    client.good(&set_data("/a", b""));
    heard(&mut client, &[changed("/a")]);
    let [now_received, now_sent] = counts();
    assert_eq!(now_received - received, 5 + 1);
    assert!(now_sent - sent >= 5, "{sent}, then {now_sent}");
}

fn dump_lists_sessions_and_their_nodes(address: &str, one: &Client, two: &Client) {
    let answer = ask(address, "dump");
    let (sessions, rest) = answer.split_once("ephemeral nodes dump:\n").expect(&answer);
    let (nodes, connections) = rest.split_once("Connections dump:\n").expect(&answer);
    assert!(sessions.starts_with("SessionTracker dump:\nSession Sets ("), "{answer}");
    let ids = BTreeSet::from_iter(sessions.lines().filter_map(|line| line.strip_prefix('\t')));
    let both = [hex(one.id()), hex(two.id())];
    assert_eq!(ids, BTreeSet::from_iter(both.iter().map(String::as_str)));
    let [mine, theirs] = &both;
    let node_lines = BTreeSet::from_iter(nodes.lines());
    let (one_first, two_first) = (format!("{mine}:\n\t/e\n"), format!("{theirs}:\n\t/f\n"));
    assert!(nodes.contains(&one_first) && nodes.contains(&two_first), "{nodes}");
    assert_eq!(
        (nodes.lines().next(), node_lines.len()),
        (Some("Sessions with Ephemerals (2):"), 5)
    );
    for id in both {
        assert!(connections.contains(&format!(" sessionId: {id}")), "{answer}");
    }
}

fn cons_lists_connections(address: &str, one: &Client, two: &Client) {
    let answer = ask(address, "cons");
    let mut known = BTreeMap::new();
    for line in answer.lines().filter(|line| !line.is_empty()) {
        // " /127.0.0.1:56250[1](queued=0,recved=4,...)"
        let (address, fields) = line.split_once('(').expect(line);
        assert!(address.starts_with(" /127.") && address.ends_with(']'), "{line}");
        let fields = fields
            .strip_suffix(')')
            .expect(line)
            .split(',')
            .map(|field| field.split_once('=').expect(line));
        let fields = BTreeMap::from_iter(fields);
        // The asking connection has no session.
        if let Some(id) = fields.get("sid") {
            known.insert((*id).to_owned(), fields);
        } else {
            assert_eq!(Vec::from_iter(fields.keys().copied()), ["queued", "recved", "sent"]);
        }
    }
    assert_eq!(answer.lines().filter(|line| !line.is_empty()).count(), 3);
    for (client, last) in [(&one, "ADDW"), (&two, "GETC")] {
        let fields = &known[&hex(client.id())];
        let told =
            ["queued", "recved", "sent", "lop", "to", "lcxid", "lzxid"].map(|name| fields[name]);
        assert_eq!(told, ["0", "4", "4", last, "30000", "0x3", "0x4"]);
        for name in ["est", "lresp", "llat", "minlat", "avglat", "maxlat"] {
            assert!(fields[name].parse::<i64>().is_ok(), "{name} is {}", fields[name]);
        }
    }
}

fn wchs_and_wchp_list_data_watches(address: &str) {
    let (mut one, two) = scene(address);
    assert_eq!(ask(address, "wchs"), "2 connections watching 2 paths\nTotal watches:3\n");
    let watched = |address: &str| {
        let answer = ask(address, "wchp");
        let mut paths = BTreeMap::<String, BTreeSet<String>>::new();
        let mut at = "";
        for line in answer.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix('\t') {
                Some(id) => drop(paths.entry(at.to_owned()).or_default().insert(id.to_owned())),
                None => at = line,
            }
        }
        paths
    };
    let (mine, theirs) = (hex(one.id()), hex(two.id()));
    let of = |ids: &[&String]| BTreeSet::from_iter(ids.iter().map(|id| (*id).clone()));
    let expected = [("/e".to_owned(), of(&[&mine, &theirs])), ("/x".to_owned(), of(&[&mine]))];
    assert_eq!(watched(address), BTreeMap::from(expected));
    one.good(&set_data("/e", b""));
    one.good(&remove_watches("/x", ANY_WATCHES));
    let answer = ask(address, "wchs");
    assert!(answer.ends_with(" connections watching 0 paths\nTotal watches:0\n"), "{answer}");
    assert_eq!(ask(address, "wchp"), "\n");
}

fn words_are_known_on_a_new_connection_only() {
    let address = &Shared::connect_string();
    let mut client = Client::connect(address);
    client.say(b"ruok");
    assert_eq!(client.next(), Heard::Closed);
    for unknown in [b"xxxx", b"RUOK", b"\x7f\0\0\0"] {
        let mut silent = Client::silent(address);
        silent.say(unknown);
        assert_eq!(silent.next(), Heard::Closed);
    }
}
