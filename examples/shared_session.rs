//! A service registration and a lock in one session:
//!
//!     cargo run --features client --example shared_session
//!
//! It is for programs that use the crate `zookeeper` already: `session.client()` gives its client
//! on the lock's session. The host's registration and its lock then belong to one session at the
//! server, and end together: no host stays registered after its lock is lost.

mod common;

use common::Result;
use std::process::ExitCode;
use zk_mutex::zookeeper::{Acl, CreateMode, ZkError};
use zk_mutex::{ZkMutex, ZkSession};

const HOSTS: &str = "/zk-mutex-hosts";
const LOCK: &str = "/zk-mutex/shared_session";

fn main() -> ExitCode {
    common::example(share)
}

fn share(server: &str) -> Result<()> {
    let session = ZkSession::connect(server)?;
    let client = session.client()?;

    let acl = Acl::open_unsafe().clone();
    match client.create(HOSTS, Vec::new(), acl.clone(), CreateMode::Container) {
        Ok(_) | Err(ZkError::NodeExists) => {}
        Err(error) => return Err(error.into()),
    }
    let host = format!("{HOSTS}/host-");
    let host = client.create(&host, b"10.0.0.7".into(), acl, CreateMode::EphemeralSequential)?;
    let mutex = ZkMutex::new(&session, LOCK)?;
    let guard = mutex.lock()?;

    let id = session.status().session_id.ok_or("no session")?;
    let owner = client.get_data(&host, false)?.1.ephemeral_owner;
    let holder = mutex.holders()?.first().map(|holder| holder.session_id);
    println!("{host} is registered by session 0x{owner:x}, and {LOCK} is locked by it");
    common::must((owner, holder) == (id, Some(id)), "they are not of one session")?;

    session.close()?; // the end of both
    let other = ZkSession::connect(server)?;
    let is_gone = other.client()?.exists(&host, false)?.is_none();
    common::must(is_gone, "the host is still registered")?;
    let reason = guard.lost_reason().ok_or("the lock is still held")?;
    println!("{host} is gone, and the lock is lost: {reason}");
    Ok(())
}
