//! What this suite asks of servers beyond `Server::start()`, in one place.
use crate::support::Server;
use std::{env, time::Duration};

/// Set to `real`, random sequences compare two real servers: whether the real one answers the same twice.
const PAIR_VAR: &str = "ZK_CONFORMANCE_PAIR";

/// Two fresh servers of the same setup to compare, and their names.
pub fn pair() -> ([Server; 2], [&'static str; 2]) {
    let (other, name) = match env::var(PAIR_VAR).as_deref() {
        Ok("real") => (Server::real(), "another real server"),
        _ => (Server::embedded(), "the embedded server"),
    };
    // Nothing happens behind the sequences' back.
    let start = |builder: crate::support::server::Builder| {
        builder.container_check(Duration::from_secs(86_400)).start()
    };
    ([start(Server::real()), start(other)], ["the real server", name])
}
