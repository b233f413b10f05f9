//! A table in SQLite that refuses writers with an old fencing token: the statement of
//! `FencingToken`'s documentation, run by `cargo run -p zk-mutex-interop --example sql`.
//!
//! It is not among the library's examples, because Cargo would then compile SQLite before each of
//! them.

use std::error::Error;
use std::time::Duration;

use rusqlite::{Connection, named_params};
use zk_mutex::{FencingToken, ZkMutex, ZkSession};
use zk_test_server::TestServer;

const UPDATE: &str = include_str!("../../src/fencing.sql");

struct Accounts(Connection);

impl Accounts {
    /// One account without money and without a writer.
    fn new() -> rusqlite::Result<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(
            "CREATE TABLE accounts (
                 id INTEGER PRIMARY KEY,
                 balance INTEGER NOT NULL,
                 fence BLOB NOT NULL CHECK (length(fence) = 16)
             );
             INSERT INTO accounts VALUES (7, 0, zeroblob(16));",
        )?;
        Ok(Accounts(database))
    }

    /// Returns false if a writer with a newer token has written before.
    fn set_balance(&self, id: i64, balance: i64, token: FencingToken) -> rusqlite::Result<bool> {
        let parameters =
            named_params! { ":id": id, ":balance": balance, ":fence": token.to_bytes() };
        Ok(self.0.execute(UPDATE, parameters)? == 1)
    }

    /// An account's balance, and the token of its last writer.
    fn read(&self, id: i64) -> rusqlite::Result<(i64, FencingToken)> {
        self.0.query_row("SELECT balance, fence FROM accounts WHERE id = ?", [id], |row| {
            Ok((row.get(0)?, FencingToken::from_bytes(row.get(1)?)))
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (accounts, server) = (Accounts::new()?, TestServer::start()?);
    let connect = || ZkSession::connect(server.connect_string());
    let (ours, theirs) = (connect()?, connect()?);
    let (mutex, other) =
        (ZkMutex::new(&ours, "/locks/account-7")?, ZkMutex::new(&theirs, "/locks/account-7")?);

    let guard = mutex.lock()?;
    assert!(accounts.set_balance(7, 100, guard.fencing_token())?);
    assert!(
        accounts.set_balance(7, 110, guard.fencing_token())?,
        "a holder may write more than once"
    );

    // This process sleeps for too long, and does not check its guard before it goes on.
    server.expire_session(ours.status().session_id.ok_or("no session")?);
    let next = other.lock_timeout(Duration::from_secs(20))?;
    assert!(accounts.set_balance(7, 90, next.fencing_token())?);

    let was_late = !accounts.set_balance(7, 120, guard.fencing_token())?;
    assert!(was_late, "an older token than the account has seen");
    let (balance, fence) = accounts.read(7)?;
    assert_eq!((balance, fence), (90, next.fencing_token()));
    println!("{} came too late; the balance is {balance}, by {fence}", guard.fencing_token());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_whose_time_is_over_is_refused() {
        main().unwrap();
    }

    /// A token of this zxid and number of hand-overs.
    fn token(zxid: u64, hand_over: u64) -> FencingToken {
        FencingToken::from_bytes(
            (u128::from(zxid | 1 << 63) << 64 | u128::from(hand_over)).to_be_bytes(),
        )
    }

    #[test]
    fn a_table_takes_each_token_that_is_not_older() {
        let tokens = [
            (0, 0),
            (0, 1),
            (1, 0),
            (0xff, 0xff),
            (0x100, 0),
            (0x2_0000_0017, 0),
            (0x2_0000_0017, 256),
        ]
        .map(|(zxid, hand_over)| token(zxid, hand_over));
        for newest in tokens {
            for token in tokens {
                let accounts = Accounts::new().unwrap();
                assert!(accounts.set_balance(7, 1, newest).unwrap());
                assert_eq!(
                    accounts.set_balance(7, 2, token).unwrap(),
                    token >= newest,
                    "{token} {newest}"
                );
                let kept = if token >= newest { (2, token) } else { (1, newest) };
                assert_eq!(accounts.read(7).unwrap(), kept);
            }
        }
    }
}
