//! The servers of this suite, beyond `Server::start()`.
use std::env;
use zk_test_server::Brand;
use zk_test_support::{Server, brand};

/// With the value `real`, random sequences compare two real servers. This shows whether the real
/// server answers the same twice.
const PAIR_VAR: &str = "ZK_CONFORMANCE_PAIR";

/// Two fresh servers of the same setup to compare, and their names.
pub fn pair() -> ([Server; 2], [&'static str; 2]) {
    let (other, name) = match env::var(PAIR_VAR).as_deref() {
        Ok("real") => (Server::real(), "another real server"),
        _ => (Server::embedded(), "the embedded server"),
    };
    ([Server::real().start(), other.start()], ["the real server", name])
}

/// Whether the servers are of ZooKeeper 3.9, which answers otherwise in what `Brand::ZooKeeper39`
/// lists.
pub fn is_39() -> bool {
    brand::current() == Brand::ZooKeeper39
}
