//! The embedded test server by itself, for programs in any language:
//!
//!     cargo run --example server -- --port 2181
//!
//! When it serves, it prints one line: where to connect. It keeps everything in memory and runs until it is
//! killed. For development and tests only.

#[path = "../common/mod.rs"]
#[allow(dead_code)] // it connects to nothing
mod common;

use common::{Args, Flag, say};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use zk_mutex::testing::TestServer;

const ABOUT: &str = "a ZooKeeper server in memory, for development and tests; runs until it is killed";

const FLAGS: &[Flag] = &[
    ("--port", "N", "the port to listen on; 0 is any that is free (default 2181)"),
    ("--host", "IP", "the address to listen on (default 127.0.0.1: only this host can connect)"),
    ("--tick", "MS", "ZooKeeper's tickTime: sessions expire at multiples of it (default 2000)"),
    ("--min-session", "MS", "the shortest session timeout granted (default two ticks)"),
    ("--max-session", "MS", "the longest session timeout granted (default twenty ticks)"),
    ("--container-check", "MS", "how often containers and TTL nodes are looked at (default 60000)"),
];

fn main() -> ExitCode {
    let args = Args::parse("server", ABOUT, FLAGS);
    let host = match args.text("--host").map(str::parse::<IpAddr>) {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(Ok(host)) => host,
        Some(Err(_)) => args.refuse("--host wants an IP address"),
    };
    let millis = |flag, default: u32| Duration::from_millis(args.positive(flag, default).into());
    let tick: u32 = args.positive("--tick", 2000);
    common::show_log("warn");
    let server = TestServer::builder()
        .host(host)
        .port(args.number("--port").unwrap_or(2181))
        .tick(Duration::from_millis(tick.into()))
        .min_session_timeout(millis("--min-session", tick.saturating_mul(2)))
        .max_session_timeout(millis("--max-session", tick.saturating_mul(20)))
        .container_check_interval(millis("--container-check", 60_000))
        .start();
    match server {
        Ok(server) => {
            say!("{}", server.connect_string());
            loop {
                thread::park();
            }
        }
        Err(error) if error.kind() == ErrorKind::InvalidInput => args.refuse(&error.to_string()),
        Err(error) => {
            eprintln!("server: cannot serve: {error}");
            ExitCode::FAILURE
        }
    }
}
