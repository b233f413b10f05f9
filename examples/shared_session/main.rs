//! One session for everything: registers this process as a service with the client crate, and takes
//! a lock, on the same session. The server's list of ephemeral nodes then shows both under one
//! session, and both go with it.
//!
//!     cargo run --example shared_session
//!     cargo run --example shared_session -- --connect 127.0.0.1:2181

#[path = "../common/mod.rs"]
mod common;

use common::{Args, CONNECT, say};
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{self, ExitCode};
use zk_mutex::zookeeper::{Acl, CreateMode, ZkError, ZooKeeper};
use zk_mutex::{ZkMutex, ZkSession};

const ABOUT: &str = "a service registration and a lock on one session";

fn main() -> ExitCode {
    let args = Args::parse(
        "shared_session",
        ABOUT,
        &[CONNECT, ("--path", "P", "default /zk-mutex/shared_session")],
    );
    let path = args.path("/zk-mutex/shared_session");
    let servers = args.servers(&[]);
    common::show_log("warn");
    match run(servers.connect_string(), path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<zk_mutex::Error>() {
            Some(error) => common::failure("shared_session", error),
            None => {
                eprintln!("shared_session: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(connect: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let session = ZkSession::connect(connect)?;
    let client = session.client()?;
    let registration = register(&client, &format!("{path}/hosts"))?;
    let mutex = ZkMutex::new(&session, &format!("{path}/lock"))?;
    let guard = mutex.lock()?;
    let id = session.session_id().unwrap_or(0);
    say!("registered as {registration}, and locked {path}/lock, on session 0x{id:x}");
    show_ephemerals(connect, id);

    // The client goes; the session stays, and with it the lock and the registration.
    drop(client);
    guard.check()?;
    let is_registered = session.client()?.exists(&registration, false)?.is_some();
    say!("after the client has gone: locked {}, registered {is_registered}", guard.is_held());
    guard.unlock()?;
    // This ends both.
    session.close()?;
    Ok(())
}

/// Makes an ephemeral node for this process, and what is missing above it.
fn register(client: &ZooKeeper, hosts: &str) -> Result<String, ZkError> {
    let ends = hosts.match_indices('/').map(|(at, _)| at).skip(1).chain([hosts.len()]);
    for end in ends {
        match client.create(
            &hosts[..end],
            Vec::new(),
            Acl::open_unsafe().clone(),
            CreateMode::Container,
        ) {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(e) => return Err(e),
        }
    }
    let data = format!("pid {}", process::id()).into_bytes();
    client.create(
        &format!("{hosts}/host-"),
        data,
        Acl::open_unsafe().clone(),
        CreateMode::EphemeralSequential,
    )
}

/// Shows what the server knows of this session, if it answers the four-letter word `dump`.
fn show_ephemerals(connect: &str, id: i64) {
    let server = connect.split([',', '/']).next().unwrap_or_default();
    let mut dump = String::new();
    let asked = TcpStream::connect(server).and_then(|mut stream| {
        stream.write_all(b"dump")?;
        stream.read_to_string(&mut dump)
    });
    let head = format!("0x{id:x}:");
    let ours: Vec<&str> = dump.lines().skip_while(|line| line.trim() != head).collect();
    match asked {
        Ok(_) if !ours.is_empty() => {
            say!("the server's dump of session {head}");
            for line in ours.iter().skip(1).take_while(|line| line.trim_start().starts_with('/')) {
                say!("    {}", line.trim());
            }
        }
        _ => say!("(the server gives no dump: allow it by 4lw.commands.whitelist)"),
    }
}
