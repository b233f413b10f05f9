//! The limits of the embedded test server: pipelined creates per second, and the memory of a crowd
//! of waiting nodes.
//!
//!     cargo run --release -p zk-mutex-bench --bin load
//!
//! The server runs in a process of its own, so that its processor time and its memory can be
//! measured. With `--connect` another server is loaded instead, and only the rate is measured.

mod served;

use served::Served;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zk_mutex_bench::raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT, Raw, SEQUENTIAL};
use zk_mutex_bench::{positive, say, text};

const HELP: &str = "\
loads a server with pipelined creates and with a crowd of waiting nodes

Flags:
  --connect HOST:PORT  a server of yours (default: an embedded one, in a process of its own)
  --creates N          creates to send, pipelined, on one connection (default 100000)
  --sessions N         sessions that wait (default 500)
  --nodes N            their nodes, each watching the one before it (default 1000)
  --serve              be the server (this is how the program starts it)
  --help               this text";

fn main() -> ExitCode {
    let (mut connect, mut creates, mut serve) = (None, 100_000, false);
    let mut crowd = Crowd { sessions: 500, nodes: 1000 };
    zk_mutex_bench::flags("load", HELP, |flag, parser| {
        match flag {
            "connect" => connect = Some(text(parser)?),
            "creates" => creates = positive(parser)?,
            "sessions" => crowd.sessions = positive(parser)?,
            "nodes" => crowd.nodes = positive(parser)?,
            "serve" => serve = true,
            _ => return Ok(false),
        }
        Ok(true)
    });
    if serve {
        return served::serve();
    }
    match run(connect.as_deref(), creates, &crowd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Crowd {
    sessions: usize,
    nodes: usize,
}

fn run(connect: Option<&str>, creates: usize, crowd: &Crowd) -> io::Result<()> {
    let load = |address: &str, server: Option<&Served>| {
        wait(address, server, crowd)?;
        create(address, server, creates)
    };
    match connect {
        Some(address) => load(address, None),
        None => {
            let server = Served::start()?;
            load(server.address(), Some(&server))
        }
    }
}

/// Lets the crowd connect and wait.
fn wait(address: &str, server: Option<&Served>, crowd: &Crowd) -> io::Result<()> {
    let mut sessions =
        (0..crowd.sessions).map(|_| Raw::connect(address)).collect::<io::Result<Vec<_>>>()?;
    let first = sessions.first_mut().ok_or(io::ErrorKind::InvalidInput)?;
    let queue = first.create("/load-", PERSISTENT | SEQUENTIAL)?;
    let mut before: Option<String> = None;
    for turn in 0..crowd.nodes {
        let at = turn % sessions.len();
        let session = sessions.get_mut(at).ok_or(io::ErrorKind::InvalidInput)?;
        let node = session.create(
            &format!("{queue}/_c_00000000-0000-0000-0000-000000000000-lock-"),
            EPHEMERAL_SEQUENTIAL,
        )?;
        if let Some(before) = before.replace(node) {
            session.watch(&before)?;
        }
    }
    let memory = server.and_then(Served::memory);
    let told =
        memory.map_or_else(|| "unknown".into(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6));
    say!(
        "{} sessions with {} waiting nodes: the server's memory is {told}",
        crowd.sessions,
        crowd.nodes
    );
    sessions.into_iter().try_for_each(Raw::close)
}

fn create(address: &str, server: Option<&Served>, count: usize) -> io::Result<()> {
    let mut client = Raw::connect(address)?;
    let root = client.create("/load-", PERSISTENT | SEQUENTIAL)?;
    let (began, busy_before) = (Instant::now(), server.and_then(Served::busy));
    client.create_pipelined(&format!("{root}/n-"), PERSISTENT | SEQUENTIAL, count)?;
    let took = began.elapsed();
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    say!("{count} pipelined creates: {:.0} a second", rate(took));
    if let Some(busy) =
        server.and_then(Served::busy).zip(busy_before).map(|(after, before)| after - before)
    {
        say!(
            "the server was busy for {:.2} s of them: {:.0} creates a second of one core",
            busy.as_secs_f64(),
            rate(busy)
        );
    }
    client.close()
}
