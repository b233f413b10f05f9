//! How to test your own code: what does it do when its session expires in the middle of its work,
//! and what when its server dies?
//!
//!     cargo run --example expired_session
//!     cargo test -p zk-mutex-examples --example expired_session
//!
//! Each test has a server of its own in its process, and tells it to fail. (So this example does
//! not look at ZK_CONNECT.) The chapter `guide::testing` shows more faults.

use std::error::Error;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use zk_mutex::{Config, RetryPolicy, ZkMutex, ZkSession};
use zk_test_server::TestServer;

/// How long the work takes.
const WORK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);

/// The code under test: does its work under the lock, and begins again if it loses the lock. Says
/// in which session it begins, and gives the number of attempts.
fn work(session: &ZkSession, begun: Sender<Option<i64>>) -> zk_mutex::Result<u32> {
    let mutex = ZkMutex::new(session, "/zk-mutex/expired_session")?;
    let mut attempts = 0;
    loop {
        let guard = mutex.lock()?; // After a loss, this is a lock in the next session.
        attempts += 1;
        println!("attempt {attempts} under token {}", guard.fencing_token());
        let _ = begun.send(session.status().session_id);
        match guard.lost().wait(WORK) {
            None => return guard.unlock().map(|()| attempts),
            // The reason may be NodeDeleted: an expired session's nodes are deleted.
            Some(reason) => println!("attempt {attempts} is over: {reason}"),
        }
    }
}

#[cfg_attr(test, test)] // in your own crate: #[test]
fn work_begins_again_when_its_session_expires() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start()?; // on a port of its own: tests can run side by side
    let session = ZkSession::connect(server.connect_string())?;
    let (tell, begun) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&session, tell));
        let first = begun.recv_timeout(LIMIT)?.ok_or("no session")?;
        assert!(server.expire_session(first));
        let second = begun.recv_timeout(LIMIT)?.ok_or("no session")?;
        assert_ne!(first, second, "the library has connected a new session");
        assert_eq!(worker.join().expect("no panic"), Ok(2)); // In a test a panic is a failure.
        println!("the second attempt did the work, in a new session");
        Ok(())
    })
}

#[cfg_attr(test, test)]
fn work_ends_with_an_error_when_its_server_dies() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start()?;
    // With the default settings, calls wait in an outage for a minute before they give up.
    let policy = RetryPolicy { max_elapsed: Duration::from_secs(1), ..RetryPolicy::default() };
    let session = ZkSession::connect(Config::new(server.connect_string()).retry_policy(policy))?;
    let (tell, begun) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&session, tell));
        begun.recv_timeout(LIMIT)?;
        server.stop();
        let error = worker.join().expect("no panic").expect_err("nobody answers");
        assert!(matches!(error, zk_mutex::Error::Unavailable { .. }), "{error}");
        println!("the work has ended: {error}");
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    work_begins_again_when_its_session_expires()?;
    work_ends_with_an_error_when_its_server_dies()
}
