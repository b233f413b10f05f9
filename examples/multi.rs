//! Two accounts, each under a lock of its own, and transfers that need both locks at once:
//!
//!     cargo run --example multi
//!
//! One teller moves money from the first account to the second, the other teller moves money back.
//! Each names its locks in an order of its own. With single locks that is a deadlock; a multi-lock
//! takes its members in one order everywhere.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkMultiLock, ZkMutex, ZkSession};

const PATHS: [&str; 2] = ["/zk-mutex/bank/account-1", "/zk-mutex/bank/account-2"];
const TRANSFERS: i64 = 25;

fn main() -> ExitCode {
    common::example(multi)
}

fn multi(server: &str) -> Result<()> {
    let accounts = [AtomicI64::new(1000), AtomicI64::new(1000)];
    thread::scope(|scope| {
        let there = scope.spawn(|| transfer(server, &accounts, 0, 1, 10));
        let back = scope.spawn(|| transfer(server, &accounts, 1, 0, 4));
        [there, back].into_iter().try_for_each(common::join)
    })?;
    let [first, second] = accounts.map(AtomicI64::into_inner);
    println!("{} transfers; the accounts have {first} and {second}", 2 * TRANSFERS);
    assert_eq!((first, second), (1000 - 6 * TRANSFERS, 1000 + 6 * TRANSFERS));
    Ok(())
}

/// One teller's transfers of this amount, from one account to the other.
fn transfer(
    server: &str,
    accounts: &[AtomicI64; 2],
    from: usize,
    to: usize,
    amount: i64,
) -> Result<()> {
    let session = ZkSession::connect(server)?; // of its own, as if the teller were a host
    let mutex = |account: usize| ZkMutex::new(&session, PATHS[account]);
    let both = ZkMultiLock::new([mutex(from)?, mutex(to)?])?;
    for _ in 0..TRANSFERS {
        let guard = both.lock()?; // all of them, or none
        let (source, target) = (accounts[from].load(SeqCst), accounts[to].load(SeqCst));
        thread::sleep(Duration::from_millis(2));
        guard.check()?; // Both locks are still held.
        accounts[from].store(source - amount, SeqCst);
        accounts[to].store(target + amount, SeqCst);
    }
    session.close()?;
    Ok(())
}
