//! A pretend store of accounts that refuses writes under an older fencing token.
//!
//! A lock alone cannot stop a process that was paused past its lease from writing late; the store
//! can, since whoever got the lock meanwhile has a greater token.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zk_mutex::FencingToken;

#[derive(Default)]
pub struct Store(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    balances: HashMap<u32, i64>,
    /// The greatest token seen so far.
    newest: Option<FencingToken>,
}

/// The write came too late: somebody with a newer token has written.
#[derive(Debug)]
pub struct Stale {
    pub token: FencingToken,
    pub newest: FencingToken,
}

impl Store {
    pub fn balance(&self, account: u32) -> i64 {
        self.rows().balances.get(&account).copied().unwrap_or(0)
    }

    pub fn set_balance(
        &self,
        account: u32,
        balance: i64,
        token: FencingToken,
    ) -> Result<(), Stale> {
        let mut rows = self.rows();
        match rows.newest {
            Some(newest) if newest > token => return Err(Stale { token, newest }),
            _ => rows.newest = Some(token),
        }
        rows.balances.insert(account, balance);
        Ok(())
    }

    pub fn total(&self) -> i64 {
        self.rows().balances.values().sum()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store refused token {}: it has seen {}", self.token, self.newest)
    }
}

impl std::error::Error for Stale {}
