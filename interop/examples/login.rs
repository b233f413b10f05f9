//! Sessions that log in by SASL: a lock that only one user may take.
//!
//!     cargo run -p zk-mutex-interop --example login
//!
//! The program brings a test server that requires a login, as an ensemble of Hadoop's may. The user
//! orders takes a lock whose nodes only orders may touch. The user billing, with a password of its
//! own, is kept out. A wrong password, and no login at all, are errors that say what to check.

use std::time::Duration;

use zk_mutex::{Acl, Config, Error, ZkMutex, ZkSession};
use zk_test_server::TestServer;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATH: &str = "/locks/orders";

fn main() -> Result<()> {
    let server = TestServer::builder()
        .sasl_user("orders", "a long random password")
        .sasl_user("billing", "another long random password")
        .requires_sasl()
        .start()?;
    let servers = server.connect_string();

    let orders = login(&servers, "orders", "a long random password")?;
    let mutex = ZkMutex::builder(&orders, PATH).acl(Acl::CreatorAll).build()?;
    let guard = mutex.lock()?;
    println!("orders holds {PATH} with the token {}", guard.fencing_token());

    let billing = login(&servers, "billing", "another long random password")?;
    match ZkMutex::builder(&billing, PATH).acl(Acl::CreatorAll).build()?.try_lock() {
        Err(e @ Error::NoAuth { .. }) => println!("billing is kept out: {e}"),
        other => return Err(format!("billing is not kept out: {other:?}").into()),
    }

    match login(&servers, "orders", "a guess") {
        Err(e @ Error::Auth { .. }) => println!("a wrong password: {e}"),
        other => return Err(format!("a wrong password: {other:?}").into()),
    }

    // The servers let anybody connect. The first call says that a login is missing.
    let nobody = ZkSession::connect(&servers)?;
    match ZkMutex::new(&nobody, PATH)?.lock_timeout(Duration::from_secs(5)) {
        Err(e @ Error::Auth { .. }) => println!("no login: {e}"),
        other => return Err(format!("no login: {other:?}").into()),
    }

    guard.unlock()?;
    orders.close()?;
    Ok(())
}

fn login(servers: &str, user: &str, password: &str) -> zk_mutex::Result<ZkSession> {
    ZkSession::connect(Config::new(servers).sasl_digest_md5(user, password))
}

#[test]
fn each_login_ends_as_the_example_says() {
    main().unwrap();
}
