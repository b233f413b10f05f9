//! Metrics: `export`, which serves those of all locks, and `run --metrics-file`; and the rules and
//! the dashboard that are made for them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use zk_test_server::{Op, TestServer};
use zk_test_support::Proxy;
use zk_test_support::raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT};

use crate::support::{
    Ended, LIMIT, Notes, Raw, Running, Signal, children, run, server, until, zk_lock,
};

const LOCK: &str = "/locks/orders";
const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
const GET: &str = "GET /metrics HTTP/1.1\r\nHost: h7\r\n\r\n";

fn raw(server: &TestServer) -> Raw {
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    raw
}

fn contend(raw: &mut Raw, folder: &str, mark: &str) -> String {
    raw.mkdirs(folder).expect("folders");
    let path = format!("{folder}/_c_{UUID}-{mark}");
    raw.create(&path, b"h7:1", EPHEMERAL_SEQUENTIAL).expect("a node")
}

/// An exporter that runs, and where it serves.
pub struct Exporter {
    running: Running,
    notes: Notes,
    address: String,
}

impl Exporter {
    fn start(server: &TestServer, arguments: &[&str]) -> Exporter {
        let listen = ["--json", "export", "--listen", "127.0.0.1:0", "--every", "100ms"];
        Exporter::of(zk_lock(server, &[&listen, arguments].concat()))
    }

    pub fn of(mut command: Command) -> Exporter {
        let notes = Notes::new();
        command.stderr(File::create(notes.path("err")).expect("a file"));
        let running = Running::start(command);
        let address = until("it listens", LIMIT, || {
            let text = notes.read("err")?;
            let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            let said = lines.find(|line: &Value| line["event"] == "listening")?;
            said["address"].as_str().map(str::to_owned)
        });
        Exporter { running, notes, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        stream
    }

    /// The whole answer to what is sent.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).expect("it reads");
        answer(stream)
    }

    pub fn page(&self) -> String {
        let answer = self.ask(GET.as_bytes());
        let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
        page.to_owned()
    }

    /// The page, once it has this line.
    fn wait(&self, line: &str) -> String {
        self.wait_all(&[line])
    }

    fn wait_all(&self, lines: &[&str]) -> String {
        let has = |page: &str, line| page.lines().any(|known| known == line);
        until(&format!("{lines:?}"), LIMIT, || {
            Some(self.page()).filter(|page| lines.iter().all(|line| has(page, *line)))
        })
    }
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The value on the line that begins like this.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn an_exporter_serves_the_queues_and_the_ages_of_all_locks() {
    let server = server();
    let mut raw = raw(&server);
    let exporter = Exporter::start(&server, &["/locks"]);
    assert_eq!(value(&exporter.wait("zk_lock_up 1"), "zk_lock_locks"), Some(0.0));
    let first = contend(&mut raw, LOCK, "lock-");
    contend(&mut raw, LOCK, "lock-");
    raw.create("/locks/dl", b"4", PERSISTENT).expect("a node");
    contend(&mut raw, "/locks/dl/leases", "lease-");
    contend(&mut raw, "/locks/leader", "latch-");
    contend(&mut raw, "/elsewhere", "lock-");
    // Whoever may make a node chooses its name.
    let hostile = "/locks/a\"b\\c} 1 \u{202e}é";
    contend(&mut raw, hostile, "lock-");
    // A look at all locks is no snapshot, so the first with all of them may lack a contender.
    let lines = [
        "zk_lock_holders{kind=\"mutex\",path=\"/locks/orders\"} 1",
        "zk_lock_waiting{kind=\"mutex\",path=\"/locks/orders\"} 1",
        "zk_lock_waiting{kind=\"semaphore\",path=\"/locks/dl\"} 0",
        "zk_lock_permits{path=\"/locks/dl\"} 4",
        "zk_lock_permits_taken{path=\"/locks/dl\"} 1",
        "zk_lock_holders{kind=\"election\",path=\"/locks/leader\"} 1",
        "zk_lock_holders{kind=\"mutex\",path=\"/locks/a\\\"b\\\\c} 1 \u{202e}é\"} 1",
        "zk_lock_locks_left_out 0",
        "zk_lock_nodes_hidden 0",
        "zk_lock_locks 4",
    ];
    let page = exporter.wait_all(&lines);
    assert!(!page.contains("/elsewhere"), "{page}");
    let holder = "zk_lock_oldest_holder_age_seconds{kind=\"mutex\",path=\"/locks/orders\"}";
    let waiter = "zk_lock_oldest_waiter_age_seconds{kind=\"mutex\",path=\"/locks/orders\"}";
    let age = |series| value(&page, series).expect("an age");
    // The two joined the queue in one millisecond, perhaps; their ages are read one by one.
    assert!(age(holder) + 0.1 > age(waiter) && age(waiter) >= 0.0, "{page}");
    let read = value(&page, "zk_lock_last_read_timestamp_seconds").expect("a time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    assert!((now - 600.0..=now).contains(&read), "{read} {now}");

    raw.delete(&first).expect("it is there");
    let next = "zk_lock_waiting{kind=\"mutex\",path=\"/locks/orders\"} 0";
    assert_eq!(value(&exporter.wait(next), waiter), None, "nobody waits");
    exporter.running.signal(Signal::TERM);
    assert_eq!(exporter.running.end().code, 0);
}

#[test]
fn an_exporter_that_cannot_ask_zookeeper_says_so_and_nothing_of_the_locks() {
    let server = server();
    let proxy = Proxy::start(server.address());
    let mut raw = raw(&server);
    contend(&mut raw, LOCK, "lock-");
    // It is there before ZooKeeper.
    proxy.refuse(true);
    let at = proxy.connect_string();
    let exporter = Exporter::start(&server, &["-c", &at]);
    let page = exporter.page();
    assert_eq!(value(&page, "zk_lock_up"), Some(0.0), "{page}");
    assert!(!page.contains(LOCK), "{page}");
    proxy.refuse(false);
    assert!(exporter.wait("zk_lock_up 1").contains(LOCK));
    proxy.refuse(true);
    proxy.cut();
    let page = exporter.wait("zk_lock_up 0");
    assert!(!page.contains(LOCK) && !page.contains("zk_lock_locks"), "{page}");
    assert!(value(&page, "zk_lock_last_read_timestamp_seconds").is_some(), "{page}");
    proxy.refuse(false);
    assert!(exporter.wait("zk_lock_up 1").contains(LOCK));
    let said = exporter.notes.read("err").expect("lines");
    assert!(said.contains("does not answer") && said.contains("answers again"), "{said}");
}

#[test]
fn an_exporter_reads_at_its_own_pace_whoever_asks() {
    let server = server();
    let mut raw = raw(&server);
    let own = raw.session_id();
    for i in 0..3 {
        contend(&mut raw, &format!("/locks/{i}"), "lock-");
    }
    contend(&mut raw, "/locks/1", "lock-");
    let listen = ["--json", "export", "--listen", "127.0.0.1:0", "--every", "1h", "/locks"];
    let most = ["--max-locks", "1"];
    let exporter = Exporter::of(zk_lock(&server, &[&listen[..], &most].concat()));
    // The lock with the longest queue is the one that is not left out.
    let page = exporter.wait("zk_lock_locks_left_out 2");
    assert_eq!(value(&page, "zk_lock_waiting{kind=\"mutex\",path=\"/locks/1\"}"), Some(1.0));
    assert_eq!(page.matches("zk_lock_holders{").count(), 1, "{page}");
    for _ in 0..20 {
        exporter.page();
    }
    let reads = server.requests();
    let reads = reads.iter().filter(|one| one.session != own && one.op == Op::GetChildren);
    assert_eq!(reads.filter(|one| one.path.as_deref() == Some("/locks")).count(), 1);
}

#[test]
fn an_exporter_refuses_what_is_no_request_for_the_page() {
    let server = server();
    let exporter = Exporter::start(&server, &[]);
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9_000));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(65));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 404),
        ("GET /metrics/../etc HTTP/1.1\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        ("GET /metrics\r\n\r\n", 400),
        ("GET /metrics HTTP/9.9\r\n\r\n", 400),
        (&long, 431),
        (&many, 431),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
    ] {
        let answer = exporter.ask(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let head = exporter.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    // A request may come in pieces, and a client may be gone.
    let mut slow = exporter.connect();
    for byte in GET.as_bytes() {
        slow.write_all(std::slice::from_ref(byte)).expect("it reads");
    }
    assert!(answer(slow).contains("zk_lock_up"));
    let gone = exporter.connect();
    gone.shutdown(Shutdown::Both).expect("it is open");
    for wrong in ["h7", "127.0.0.1", "127.0.0.1:port", ":9469"] {
        let ended = run(&server, &["export", "--listen", wrong]);
        assert_eq!(ended.code, 64, "{wrong}: {ended:?}");
    }
    let taken = run(&server, &["export", "--listen", &exporter.address]);
    assert!(taken.code == 71 && taken.err.contains(&exporter.address), "{taken:?}");
}

/// More clients than are served at once, and each of them says next to nothing.
#[test]
fn clients_that_keep_their_connections_do_not_keep_others_out() {
    let server = server();
    let exporter = Exporter::start(&server, &[]);
    let began = Instant::now();
    let idle: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = exporter.connect();
            stream.write_all(b"GET /metr").expect("it reads");
            stream
        })
        .collect();
    let page = exporter.page();
    assert!(page.contains("zk_lock_up"), "{page}");
    let took = began.elapsed();
    assert!(took < LIMIT, "{took:?}");
    let ends: Vec<String> = idle.into_iter().map(answer).collect();
    assert!(ends.iter().all(|end| end.starts_with("HTTP/1.1 408 ")), "{ends:?}");
}

/// Where nobody listens: the address belongs to nobody else.
fn dead_address() -> String {
    format!("{}:1", zk_test_support::own_loopback())
}

/// What is written of a run.
fn metrics_of(notes: &Notes, name: &str) -> impl Fn(&str) -> Option<f64> + use<> {
    let page = notes.read(name).unwrap_or_default();
    move |metric: &str| value(&page, &format!("zk_lock_run_{metric}{{path=\"{LOCK}\"}}"))
}

fn run_with(server: &TestServer, file: &str, more: &[&str], script: &str) -> Ended {
    let arguments = [&["run", "--metrics-file", file], more, &[LOCK, "--", "sh", "-c", script]];
    run(server, &arguments.concat())
}

#[test]
fn a_run_writes_how_it_has_ended_for_node_exporter() {
    let server = server();
    let notes = Notes::new();
    let path = notes.path("job.prom");
    let file = path.to_str().expect("text");
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    assert_eq!(run_with(&server, file, &[], "true").code, 0);
    let first = metrics_of(&notes, "job.prom");
    assert_eq!((first("status"), first("lost")), (Some(0.0), Some(0.0)));
    assert!(first("end_timestamp_seconds") >= Some(before));
    assert_eq!(first("end_timestamp_seconds"), first("last_success_timestamp_seconds"));
    assert!(first("waited_seconds") > Some(0.0) && first("held_seconds") > Some(0.0));
    let all: Vec<_> = path.parent().expect("a folder").read_dir().expect("a folder").collect();
    assert_eq!(all.len(), 1, "nothing is left beside it: {all:?}");

    // A run that fails is the last run, and that of the success before is still known.
    assert_eq!(run_with(&server, file, &[], "exit 5").code, 5);
    let second = metrics_of(&notes, "job.prom");
    assert_eq!(second("status"), Some(5.0));
    assert!(second("end_timestamp_seconds") >= first("end_timestamp_seconds"));
    let success = "last_success_timestamp_seconds";
    assert_eq!(second(success), first(success));

    // A run that has lost its lock.
    let script = notes.script("echo $$ > $D/child; exec sleep 300");
    let arguments = ["run", "--metrics-file", file, LOCK, "--", "sh", "-c", &script];
    let holder = Running::start(zk_lock(&server, &arguments));
    notes.wait_pid("child");
    // Others held the lock: the command has not run, so this is no run.
    let text = notes.read("job.prom");
    assert_eq!(run_with(&server, file, &["--try"], "true").code, 124);
    assert_eq!(notes.read("job.prom"), text);
    let mut raw = raw(&server);
    let node = children(&server, LOCK).remove(0);
    raw.delete(&format!("{LOCK}/{node}")).expect("it is there");
    assert_eq!(holder.end().code, 123);
    let third = metrics_of(&notes, "job.prom");
    assert_eq!((third("status"), third("lost")), (Some(123.0), Some(1.0)));
    assert_eq!(third(success), first(success));

    // No server: there is no run either, but somebody should see that.
    let dead = dead_address();
    let gone = ["-c", &dead, "--connect-timeout", "100ms"];
    assert_eq!(run_with(&server, file, &gone, "true").code, 69);
    let fourth = metrics_of(&notes, "job.prom");
    assert_eq!((fourth("status"), fourth("held_seconds")), (Some(69.0), Some(0.0)));
}

#[test]
fn a_metrics_file_that_cannot_be_written_changes_no_status() {
    let server = server();
    let notes = Notes::new();
    std::fs::create_dir(notes.path("folder")).expect("a folder");
    for name in ["nowhere/job.prom", "folder"] {
        let path = notes.path(name);
        let ended = run_with(&server, path.to_str().expect("text"), &[], "exit 5");
        assert_eq!(ended.code, 5, "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
        assert!(ended.err.contains("--metrics-file "), "{ended:?}");
    }
    let left: Vec<_> = notes.path("").read_dir().expect("a folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// The names of our metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(is_other).filter(|word| word.starts_with("zk_lock_")).collect()
}

#[test]
fn the_rules_and_the_dashboard_are_about_metrics_that_there_are() {
    let server = server();
    let mut raw = raw(&server);
    contend(&mut raw, LOCK, "lock-");
    contend(&mut raw, LOCK, "lock-");
    raw.create("/sem", b"2", PERSISTENT).expect("a node");
    contend(&mut raw, "/sem/leases", "lease-");
    let exporter = Exporter::start(&server, &[]);
    let served = exporter.wait("zk_lock_locks 2");
    let notes = Notes::new();
    let file = notes.path("job.prom");
    let file = file.to_str().expect("text");
    assert_eq!(run(&server, &["run", "--metrics-file", file, "/job", "--", "true"]).code, 0);
    let written = notes.read("job.prom").expect("a file");
    let known: BTreeSet<&str> = served
        .lines()
        .chain(written.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert_eq!(known.len(), 18, "{known:?}");
    let rules = names(include_str!("../../monitoring/rules.yaml"));
    let dashboard = include_str!("../../monitoring/dashboard.json");
    assert!(serde_json::from_str::<Value>(dashboard).is_ok());
    for (what, used) in [("rules", rules), ("dashboard", names(dashboard))] {
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty() && used.len() > 6, "{what}: {unknown:?}");
    }
}
