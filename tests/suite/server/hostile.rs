//! Hostile clients at the embedded server: the bad connection is closed with a log line, memory
//! stays bounded, and other clients are served.
use crate::support::{
    Raw, at_best, brand,
    logged::logged,
    raw::{EPHEMERAL, PERSISTENT, SEQUENTIAL},
    scenarios,
    scene::SOON,
    until,
    wire::{Reader, Writer},
};
use crossbeam_channel::{RecvTimeoutError, bounded};
use log::Level;
use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use zk_test_server::TestServer;

const MB: usize = 1 << 20;
/// No answer takes longer than this, whatever a hostile client does, on a busy machine and without
/// optimization.
const PROMPT: Duration = Duration::from_secs(15);

/// A session timeout that does not matter.
const LONG: Duration = Duration::from_secs(3600);

/// The server, and a client that sends only valid requests.
struct Stage {
    server: TestServer,
    at: String,
    good: Raw,
    rounds: usize,
    /// The longest wait of another client.
    worst: Duration,
}

impl Stage {
    fn new() -> Stage {
        Stage::on(brand::embedded().max_session_timeout(LONG).start().unwrap())
    }

    fn on(server: TestServer) -> Stage {
        let at = server.connect_string();
        let mut good = Raw::connect_timeout(&at, LONG).unwrap();
        good.create("/good", b"", PERSISTENT).unwrap();
        Stage { server, at, good, rounds: 0, worst: Duration::ZERO }
    }

    /// Checks that the good client and a new client are served promptly.
    #[track_caller]
    fn serves(&mut self) {
        let start = Instant::now();
        self.rounds += 1;
        let path = format!("/good/{}", self.rounds);
        self.good.create(&path, b"data", PERSISTENT).unwrap();
        assert_eq!(self.good.get_data(&path).unwrap().0, b"data");
        let waited = at_best(start);
        let start = Instant::now();
        let mut new = Raw::connect(&self.at).unwrap();
        assert!(new.exists(&path).unwrap().is_some());
        self.worst = self.worst.max(waited).max(at_best(start));
        assert!(self.worst < PROMPT, "another client waited for {:?}", self.worst);
    }

    fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// A connection with a session. From now on it sends only the given bytes, and no pings.
    fn session(&self) -> TcpStream {
        let mut stream = self.dial();
        stream.write_all(&hello(LONG.as_millis() as i32)).unwrap();
        let welcome = frame(&mut stream).unwrap().expect("a session");
        assert_ne!(Reader(&welcome[8..]).i64(), Some(0));
        stream
    }
}

pub fn hello(timeout: i32) -> Vec<u8> {
    Writer::new().i32(0).i64(0).i32(timeout).i64(0).buffer(&[0; 16]).bool(false).frame()
}

/// The next frame; None at any end of the stream.
pub fn frame(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let gone = |e: &io::Error| {
        matches!(
            e.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        )
    };
    match stream.read_exact(&mut length) {
        Err(e) if gone(&e) => return Ok(None),
        read => read?,
    }
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// Waits until the server has closed the connection; returns the error codes of the replies before.
#[track_caller]
fn until_hung_up(stream: &mut TcpStream, what: &str) -> Vec<i32> {
    let mut codes = Vec::new();
    loop {
        match frame(stream) {
            Ok(Some(reply)) => codes.extend(Reader(&reply[12..]).i32()),
            Ok(None) => return codes,
            Err(e) => panic!("{what}: the server has not closed the connection: {e}"),
        }
    }
}

/// The log lines of one connection (by its client's address).
fn said_of(stream: &TcpStream) -> Vec<String> {
    logged(Level::Warn, &stream.local_addr().unwrap().to_string())
}

/// The resident memory of this process.
fn memory() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The greatest growth of the resident memory while `watched` runs.
fn growth<T>(watched: impl FnOnce() -> T) -> (usize, T) {
    let before = memory();
    thread::scope(|scope| {
        let (running, ended) = bounded::<()>(0);
        let watch = scope.spawn(move || {
            let mut most = memory();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(5))
            {
                most = most.max(memory());
            }
            most
        });
        let result = watched();
        drop(running);
        (watch.join().unwrap().saturating_sub(before), result)
    })
}

// ---- bytes that are not requests ----

fn negative_and_huge_lengths_end_the_connection() {
    let mut stage = Stage::new();
    let lengths = [-1, i32::MIN, i32::MAX, 0x10_0000, -2_000_000_000];
    let (grown, ()) = growth(|| {
        for length in lengths {
            for mut bad in [stage.dial(), stage.session()] {
                bad.write_all(&length.to_be_bytes()).unwrap();
                let _ = bad.write_all(&[7; 100]);
                until_hung_up(&mut bad, &format!("a length of {length}"));
                assert_eq!(said_of(&bad).len(), 1, "a length of {length}");
            }
            stage.serves();
        }
    });
    assert!(grown < 16 * MB, "{grown}");
}

fn protocols_of_others_end_the_connection() {
    let mut stage = Stage::new();
    let words: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // the begin of a TLS handshake
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"ruokruok\xff\xff\xff\xff",
    ];
    for words in words {
        let mut bad = stage.dial();
        bad.write_all(words).unwrap();
        let mut answer = Vec::new();
        let ended = bad.read_to_end(&mut answer);
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
        if words.starts_with(b"ruok") {
            assert_eq!(answer, b"imok");
        } else {
            assert_eq!(said_of(&bad).len(), 1);
        }
    }
    stage.serves();
}

fn truncated_connect_requests_end_the_connection() {
    let mut stage = Stage::new();
    let whole = hello(30_000)[4..].to_vec();
    for length in 0..whole.len() - 1 {
        let mut bad = stage.dial();
        bad.write_all(&(length as i32).to_be_bytes()).unwrap();
        bad.write_all(&whole[..length]).unwrap();
        until_hung_up(&mut bad, &format!("{length} bytes of a connect request"));
        assert_eq!(said_of(&bad).len(), 1);
    }
    // A password of impossible length.
    for length in [-2, i32::MIN, i32::MAX, 1000] {
        let mut bad = stage.dial();
        bad.write_all(&Writer::new().i32(0).i64(0).i32(4000).i64(0).i32(length).i64(0).frame())
            .unwrap();
        until_hung_up(&mut bad, &format!("a password of {length} bytes"));
        assert_eq!(said_of(&bad).len(), 1);
    }
    // Clients that send a part of one and close the connection.
    for length in 0..whole.len() {
        let mut bad = stage.dial();
        bad.write_all(&hello(30_000)[..length]).unwrap();
    }
    stage.serves();
    until("one connection", SOON, || (stage.server.connection_count() == 1).then_some(()));
    assert_eq!(stage.server.sessions().len(), 1);
}

fn requests_without_a_header_end_the_connection() {
    let mut stage = Stage::new();
    for length in 0..8 {
        let mut bad = stage.session();
        bad.write_all(&[&[0, 0, 0, length as u8][..], &vec![0; length]].concat()).unwrap();
        until_hung_up(&mut bad, &format!("a request of {length} bytes"));
        assert_eq!(said_of(&bad).len(), 1);
        stage.serves();
    }
}

fn unknown_requests_end_the_connection() {
    const UNIMPLEMENTED: i32 = -6;
    let mut stage = Stage::new();
    for opcode in [10, 23, 99, 108, 4242, -2, i32::MIN, i32::MAX] {
        let mut bad = stage.session();
        let before = logged(Level::Warn, "").len();
        bad.write_all(&Writer::new().i32(1).i32(opcode).string("/good").frame()).unwrap();
        assert_eq!(
            until_hung_up(&mut bad, &format!("opcode {opcode}")),
            [UNIMPLEMENTED],
            "opcode {opcode}"
        );
        assert_eq!(logged(Level::Warn, "").len(), before + 1, "opcode {opcode}");
        stage.serves();
    }
}

/// Requests with an invalid body are refused, and need no memory, whatever length they claim.
fn truncated_and_boastful_requests_are_refused() {
    let mut stage = Stage::new();
    let create = || Writer::new().i32(1).i32(1).string("/n").buffer(b"data");
    let acl = || create().i32(1).i32(31).string("world").string("anyone").i32(0);
    let boasts: Vec<(&str, Writer)> = vec![
        ("a path of 2 GB", Writer::new().i32(1).i32(4).i32(i32::MAX)),
        ("a path of negative length", Writer::new().i32(1).i32(4).i32(-7)),
        ("no path", Writer::new().i32(1).i32(4).i32(-1)),
        (
            "a path that is no text",
            Writer::new().i32(1).i32(4).buffer(&[b'/', 0xff, 0xfe]).bool(false),
        ),
        ("data of 2 GB", Writer::new().i32(1).i32(1).string("/n").i32(i32::MAX)),
        ("two thousand million ACLs", create().i32(i32::MAX)),
        ("a negative number of ACLs", create().i32(-9)),
        ("an ACL too few", create().i32(2).i32(31).string("world").string("anyone").i32(0)),
        ("watches without number", Writer::new().i32(-8).i32(101).i64(0).i32(i32::MAX)),
        (
            "a transaction without end",
            Writer::new().i32(1).i32(14).i32(13).bool(false).i32(-1).string("/n"),
        ),
        (
            "a transaction of nothing known",
            Writer::new().i32(1).i32(14).i32(77).bool(false).i32(-1),
        ),
    ];
    let whole = acl().frame();
    let cut = (12..whole.len() - 4).map(|length| {
        let body = &whole[4..length];
        ("a create that was cut short", [&(body.len() as i32).to_be_bytes()[..], body].concat())
    });
    let all: Vec<_> =
        boasts.into_iter().map(|(what, writer)| (what, writer.frame())).chain(cut).collect();
    let (grown, ()) = growth(|| {
        for (what, words) in all {
            let mut bad = stage.session();
            bad.write_all(&words).unwrap();
            // The answer is an error, or the end of the connection.
            if let Some(reply) = frame(&mut bad).unwrap() {
                let code = Reader(&reply[12..]).i32().unwrap();
                assert!(code < 0, "{what}: answered with {code}");
            } else {
                assert_eq!(said_of(&bad).len(), 1, "{what}");
            }
        }
        stage.serves();
    });
    assert!(grown < 16 * MB, "{grown}");
    assert_eq!(stage.good.children("/").unwrap(), ["good", "zookeeper"], "no node was made");
}

fn garbage_harms_nobody() {
    let mut stage = Stage::new();
    let mut random = fastrand::Rng::with_seed(20_251_121);
    let (grown, ()) = growth(|| {
        for round in 0..400 {
            let mut bad = if round % 2 == 0 { stage.dial() } else { stage.session() };
            for _ in 0..random.usize(1..6) {
                let words: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
                // Most frames have a correct length, and many an operation that exists.
                let words = match random.u8(..3) {
                    0 => words,
                    1 => Writer::new()
                        .i32(random.i32(..))
                        .i32(random.i32(-12..110))
                        .string("/good")
                        .buffer(&words)
                        .frame(),
                    _ => [&(words.len() as i32).to_be_bytes()[..], &words].concat(),
                };
                if bad.write_all(&words).is_err() {
                    break;
                }
            }
            if round % 50 == 0 {
                stage.serves();
            }
        }
        stage.serves();
    });
    assert!(grown < 64 * MB, "{grown}");
    until("one connection", SOON, || (stage.server.connection_count() == 1).then_some(()));
    assert!(stage.good.exists("/good").unwrap().is_some());
}

// ---- slow clients ----

fn slow_loris_delays_no_other_client_and_is_closed() {
    let server = brand::embedded()
        .tick(Duration::from_millis(500))
        .min_session_timeout(Duration::from_secs(1))
        .start()
        .unwrap();
    let mut stage = Stage::on(server);
    // Half of them send their connect request byte by byte; the others have a session and a request
    // that never becomes complete.
    let mut slow: Vec<TcpStream> = (0..50).map(|_| stage.dial()).collect();
    for _ in 0..50 {
        let mut stream = stage.dial();
        stream.write_all(&hello(1000)).unwrap();
        slow.push(stream);
    }
    let request = Writer::new().i32(1).i32(4).string(&"/n".repeat(200)).frame();
    let greeting = [&1000_i32.to_be_bytes()[..], &[0; 1000]].concat();
    let start = Instant::now();
    let (grown, closed) = growth(|| {
        let mut next = 0;
        until("the server closes the slow connections", Duration::from_secs(60), || {
            let mut open = 0;
            for (i, stream) in slow.iter_mut().enumerate() {
                let byte = if i < 50 { greeting[next] } else { request[next.min(200)] };
                open += usize::from(stream.write_all(&[byte]).is_ok());
            }
            next += 1;
            if next % 10 == 0 {
                stage.serves();
            }
            thread::sleep(Duration::from_millis(50)); // the clients are slow
            (open == 0).then(|| start.elapsed())
        })
    });
    println!("all closed after {closed:?}");
    assert!(grown < 16 * MB, "{grown}");
    until("one connection", SOON, || (stage.server.connection_count() == 1).then_some(()));
    for stream in &slow[..50] {
        assert_eq!(logged(Level::Info, &stream.local_addr().unwrap().to_string()).len(), 1);
    }
    assert!(logged(Level::Info, "has expired").len() >= 50);
}

/// Is set in the process with the raised limit of descriptors.
const RAISED_VAR: &str = "ZK_MUTEX_TEST_RAISED";

/// Runs the scenario in a process with so many descriptors, if this one has fewer. Returns true if
/// it has done so.
fn ran_with_descriptors(wanted: usize) -> bool {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most =
        line.split_whitespace().nth(3).and_then(|most| most.parse().ok()).unwrap_or(usize::MAX);
    if most >= wanted {
        return false;
    }
    assert!(
        env::var_os(RAISED_VAR).is_none(),
        "ulimit -n {wanted} had no effect: the limit is {most}"
    );
    let script = r#"ulimit -n "$1" || exit 7; exec "$0""#;
    let ended = Command::new("sh")
        .args(["-c", script])
        .arg(env::current_exe().unwrap())
        .arg(wanted.to_string())
        .env(RAISED_VAR, "1")
        .status()
        .unwrap();
    assert_ne!(
        ended.code(),
        Some(7),
        "this scenario needs {wanted} descriptors, and may not have more than {most}: raise ulimit -Hn"
    );
    assert!(ended.success(), "{ended}");
    true
}

fn a_thousand_idle_connections_cost_little_and_disturb_no_other() {
    if ran_with_descriptors(2_500) {
        return;
    }
    let server = brand::embedded().max_session_timeout(Duration::from_secs(300)).start().unwrap();
    let mut stage = Stage::on(server);
    let (grown, idle) = growth(|| {
        let mut idle: Vec<TcpStream> = (0..500).map(|_| stage.dial()).collect();
        for _ in 0..500 {
            let mut stream = stage.dial();
            stream.write_all(&hello(300_000)).unwrap();
            frame(&mut stream).unwrap().expect("a session");
            idle.push(stream);
        }
        stage.serves();
        idle
    });
    assert!(stage.server.connection_count() >= 1001, "{}", stage.server.connection_count());
    println!("1,000 connections, 500 with a session: {} KiB", grown / 1024);
    assert!(grown < 32 * MB, "{grown}");
    let start = Instant::now();
    for _ in 0..1000 {
        stage.good.ping().unwrap();
    }
    println!("1,000 pings beside them: {:?}", start.elapsed());
    assert!(at_best(start) < SOON);
    drop(idle);
    until("one connection", SOON, || (stage.server.connection_count() == 1).then_some(()));
    stage.serves();
}

// ---- floods ----

fn flood_of_creates_is_answered_in_order_and_others_are_served() {
    const CREATES: usize = 100_000;
    let mut stage = Stage::new();
    stage.good.create("/flood", b"", PERSISTENT).unwrap();
    let bad = stage.session();
    let (grown, rounds) = growth(|| {
        thread::scope(|scope| {
            let (mut reads, mut writes) = (bad.try_clone().unwrap(), bad.try_clone().unwrap());
            scope.spawn(move || {
                let mut packet = Vec::new();
                for xid in 1..=CREATES as i32 {
                    let create = Writer::new().i32(xid).i32(1).string("/flood/n-").buffer(b"");
                    packet.extend(
                        create
                            .i32(1)
                            .i32(31)
                            .string("world")
                            .string("anyone")
                            .i32(SEQUENTIAL)
                            .frame(),
                    );
                    if packet.len() > 60_000 || xid == CREATES as i32 {
                        writes.write_all(&packet).unwrap();
                        packet.clear();
                    }
                }
            });
            let answers = scope.spawn(move || {
                for xid in 1..=CREATES as i32 {
                    let reply = frame(&mut reads).unwrap().expect("an answer to each");
                    assert_eq!(
                        (Reader(&reply).i32(), Reader(&reply[12..]).i32()),
                        (Some(xid), Some(0))
                    );
                }
            });
            let mut rounds = 0;
            while !answers.is_finished() {
                stage.serves();
                rounds += 1;
            }
            answers.join().unwrap();
            rounds
        })
    });
    println!("{CREATES} creates: {} KiB; others waited {:?} at most", grown / 1024, stage.worst);
    assert_eq!(stage.good.exists("/flood").unwrap().unwrap().num_children as usize, CREATES);
    assert!(grown < CREATES * 1000, "{} bytes for each node", grown / CREATES);
    assert!(rounds > 2, "the others were served {rounds} times in all");
}

/// Writes without ever reading, until the other side takes no more or closes the connection.
/// Returns the number of bytes written.
fn stuff(mut stream: &TcpStream, words: &[u8], most: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut written = 0;
    while written < most {
        match stream.write(words) {
            Ok(bytes) => written += bytes,
            Err(_) => break,
        }
    }
    written
}

fn client_that_asks_for_much_and_reads_nothing_costs_little() {
    let mut stage = Stage::new();
    stage.good.create("/big", &vec![7; 1_000_000], PERSISTENT).unwrap();
    let bad = [stage.session(), stage.session(), stage.session()];
    let ask: Vec<u8> = (1..=100)
        .flat_map(|xid| Writer::new().i32(xid).i32(4).string("/big").bool(false).frame())
        .collect();
    let (grown, written) = growth(|| {
        let written: usize = thread::scope(|scope| {
            let floods = bad.each_ref().map(|bad| scope.spawn(|| stuff(bad, &ask, 64 * MB)));
            while floods.iter().any(|flood| !flood.is_finished()) {
                stage.serves();
            }
            floods.into_iter().map(|flood| flood.join().unwrap()).sum()
        });
        stage.serves();
        written
    });
    println!(
        "asked for {} MB, read nothing: {} KiB; others waited {:?}",
        written / 21,
        grown / 1024,
        stage.worst
    );
    // The server does not read the requests from the sockets: these, with their buffers in the
    // kernel, are full long before the end.
    assert!(written < 3 * 32 * MB, "the server has taken {written} bytes");
    assert!(grown < 64 * MB, "{grown}");
    drop(bad);
    until("one connection", SOON, || (stage.server.connection_count() == 1).then_some(()));
}

fn client_that_watches_everything_and_reads_nothing_is_closed() {
    let mut stage = Stage::new();
    let mut bad = stage.session();
    bad.write_all(&Writer::new().i32(1).i32(106).string("/").i32(1).frame()).unwrap();
    assert_eq!(frame(&mut bad).unwrap().map(|reply| Reader(&reply[12..]).i32()), Some(Some(0)));
    let path = format!("/{}", "x".repeat(100_000));
    stage.good.create(&path, b"", PERSISTENT).unwrap();
    let (grown, ()) = growth(|| {
        let mut sets = 0;
        until("the server closes the connection", Duration::from_secs(60), || {
            for _ in 0..20 {
                stage.good.set_data(&path, b"").unwrap();
            }
            sets += 20;
            assert!(sets < 5000, "500 MB of events, and the connection is still there");
            (stage.server.connection_count() == 1).then_some(())
        });
        println!("closed after {sets} events of 100 KB");
    });
    assert_eq!(said_of(&bad).len(), 1, "{:?}", logged(Level::Warn, ""));
    assert!(grown < 128 * MB, "{grown}");
    stage.serves();
}

/// The client reads more slowly than the server writes, but all the time.
fn client_that_reads_gets_it_all() {
    const EVENTS: usize = 40_000;
    let mut stage = Stage::new();
    let mut reader = stage.session();
    reader.write_all(&Writer::new().i32(1).i32(106).string("/").i32(1).frame()).unwrap();
    assert!(frame(&mut reader).unwrap().is_some());
    // all nodes of a session are deleted before the first event is sent
    reader.set_read_timeout(None).unwrap();
    let mut owner = Raw::connect(&stage.at).unwrap();
    let path = format!("/{}", "x".repeat(1000));
    thread::scope(|scope| {
        // Each create and each delete sends one event; the change of the parent sends no second
        // one.
        let events = scope.spawn(move || {
            let mut seen = 0;
            while seen < 2 * EVENTS {
                let event = frame(&mut reader)
                    .unwrap()
                    .unwrap_or_else(|| panic!("cut after {seen} events"));
                seen += usize::from(event.len() > 1000);
            }
        });
        owner.create_many(&path, b"", EPHEMERAL | SEQUENTIAL, EVENTS).unwrap();
        assert!(stage.server.expire_session(owner.session_id())); // the second half of them at once
        events.join().unwrap();
    });
    owner.abandon();
    stage.serves();
}

fn large_answer_is_no_flood() {
    let server = brand::embedded().max_frame(64 * MB).start().unwrap();
    let mut client = Raw::connect(&server.connect_string()).unwrap();
    client.create("/big", &vec![7; 34 * MB], PERSISTENT).unwrap();
    assert_eq!(client.get_data("/big").unwrap().0.len(), 34 * MB);
}

fn many_sessions_that_come_and_go_leave_nothing() {
    let mut stage = Stage::new();
    let round = |stage: &mut Stage| {
        for _ in 0..500 {
            let mut client = Raw::connect(&stage.at).unwrap();
            client.create("/good/e", b"", EPHEMERAL).unwrap();
            client.close_session().unwrap();
        }
        stage.serves();
    };
    round(&mut stage);
    let (grown, ()) = growth(|| (0..3).for_each(|_| round(&mut stage)));
    assert!(grown < 8 * MB, "{grown}");
    assert_eq!(stage.server.sessions().len(), 1);
}

scenarios![on embedded;
    negative_and_huge_lengths_end_the_connection,
    protocols_of_others_end_the_connection,
    truncated_connect_requests_end_the_connection,
    requests_without_a_header_end_the_connection,
    unknown_requests_end_the_connection,
    truncated_and_boastful_requests_are_refused,
    garbage_harms_nobody,
    slow_loris_delays_no_other_client_and_is_closed,
    a_thousand_idle_connections_cost_little_and_disturb_no_other,
    flood_of_creates_is_answered_in_order_and_others_are_served,
    client_that_asks_for_much_and_reads_nothing_costs_little,
    client_that_watches_everything_and_reads_nothing_is_closed,
    client_that_reads_gets_it_all within 300,
    large_answer_is_no_flood,
    many_sessions_that_come_and_go_leave_nothing,
];
