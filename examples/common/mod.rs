//! What the examples share: where they find a server, and how they end.
#![allow(dead_code)] // Not every example uses everything.

use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::{env, error, panic};
use zk_test_server::TestServer;

/// The result of whatever may fail in an example, also in its threads.
pub type Result<T> = std::result::Result<T, Box<dyn error::Error + Send + Sync>>;

/// Runs an example on the servers that the environment variable ZK_CONNECT names, or else on an
/// embedded test server. If the example fails, this says why, in words, and the exit code is 1. If
/// the command line is wrong, it says how to run the example, and the exit code is 2.
pub fn example(run: impl FnOnce(&str) -> Result<()>) -> ExitCode {
    if env::args_os().len() > 1 {
        eprintln!("examples take no arguments");
        return usage();
    }
    let Err(error) = on_a_server(run) else { return ExitCode::SUCCESS };
    eprintln!("this example has failed: {error}");
    let refused = (error.downcast_ref::<zk_mutex::Error>(), error.downcast_ref());
    match refused {
        (Some(zk_mutex::Error::InvalidConfig { what: "connect string", .. }), _)
        | (_, Some(zk_session::Error::InvalidConfig { what: "connect string", .. })) => usage(),
        _ => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    let name = env!("CARGO_CRATE_NAME");
    let feature = if name == "shared_session" { "--features client " } else { "" };
    eprintln!("usage: [ZK_CONNECT=HOST:PORT,..] cargo run {feature}--example {name}");
    ExitCode::from(2)
}

fn on_a_server(run: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    if let Some(servers) = zk_connect() {
        eprintln!("this runs on ZK_CONNECT, {servers}");
        return run(&servers);
    }
    let server = TestServer::start()?;
    let address = server.connect_string();
    eprintln!("there is no ZK_CONNECT, so this runs on an embedded test server, {address}");
    run(&address)
}

/// The servers that ZK_CONNECT names.
pub fn zk_connect() -> Option<String> {
    env::var("ZK_CONNECT").ok().filter(|servers| !servers.is_empty())
}

/// What a thread has returned. If it has panicked, the panic goes on here.
pub fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|reason| panic::resume_unwind(reason))
}

/// An error that says `what`, unless it is so.
pub fn must(is_so: bool, what: &str) -> Result<()> {
    if is_so { Ok(()) } else { Err(what.into()) }
}
