//! What the examples share: where they find a server.

use std::{env, io, mem};
use zk_test_server::TestServer;

/// The result of whatever may fail in an example, also in its threads.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Where to connect to: the servers that the environment variable ZK_CONNECT names, or else an
/// embedded test server, which runs until this process ends.
pub fn server() -> io::Result<String> {
    if let Some(servers) = env::var("ZK_CONNECT").ok().filter(|servers| !servers.is_empty()) {
        eprintln!("this runs on ZK_CONNECT, {servers}");
        return Ok(servers);
    }
    let server = TestServer::start()?;
    let address = server.connect_string();
    eprintln!("there is no ZK_CONNECT, so this runs on an embedded test server, {address}");
    mem::forget(server); // It would stop here if it were dropped.
    Ok(address)
}
