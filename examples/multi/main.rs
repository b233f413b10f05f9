//! A bank whose tellers move money between accounts, each account under a lock of its own:
//!
//!     cargo run --example multi
//!
//! A transfer needs the locks of all its accounts at once. Each teller names them in an order of
//! its own, which would soon be a deadlock with single locks; a multi-lock takes them in one order
//! everywhere. Now and then an auditor locks the whole bank and counts: the sum never changes.

#[path = "../common/mod.rs"]
mod common;

use common::{Args, CONNECT, Flag, say};
use log::warn;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkMultiLock, ZkMutex, ZkSession};

const ABOUT: &str = "tellers move money between accounts; exit code 0 if none was made or lost";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the locks' folder (default /zk-mutex/bank)"),
    ("--accounts", "N", "accounts, at least 2 (default 5)"),
    ("--tellers", "N", "threads that move money, each with a session of its own (default 4)"),
    ("--rounds", "N", "transfers of each teller (default 25)"),
    ("--hold", "MS", "how long a transfer lasts (default 2)"),
];

/// What every account begins with.
const DEPOSIT: i64 = 1000;
/// Of the accounts, and of the tellers.
const MOST: u32 = 1000;

fn main() -> ExitCode {
    let args = Args::parse("multi", ABOUT, FLAGS);
    let accounts = args.count("--accounts", 5, MOST);
    if accounts < 2 {
        args.refuse("--accounts must be at least 2");
    }
    let bank = Bank {
        path: args.path("/zk-mutex/bank").to_owned(),
        balances: (0..accounts).map(|_| AtomicI64::new(DEPOSIT)).collect(),
        rounds: args.positive("--rounds", 25),
        hold: Duration::from_millis(u64::from(args.number::<u32>("--hold").unwrap_or(2))),
        transfers: AtomicU32::new(0),
        wrong_audits: AtomicU32::new(0),
    };
    let tellers = args.count("--tellers", 4, MOST);
    let servers = args.servers(&[]);
    common::show_log("warn");
    match bank.run(servers.connect_string(), tellers) {
        Ok(code) => code,
        Err(error) => common::failure("multi", &error),
    }
}

struct Bank {
    path: String,
    /// Read and written with some time in between, with nothing but the locks to protect it.
    balances: Vec<AtomicI64>,
    rounds: u32,
    hold: Duration,
    transfers: AtomicU32,
    wrong_audits: AtomicU32,
}

impl Bank {
    fn run(&self, connect: &str, tellers: u32) -> zk_mutex::Result<ExitCode> {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..tellers).map(|_| scope.spawn(|| self.work(connect))).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        let (sum, wrong) = (self.sum(), self.wrong_audits.load(SeqCst));
        let (transfers, due) =
            (self.transfers.load(SeqCst), u64::from(tellers) * u64::from(self.rounds));
        say!(
            "{transfers} transfers between {} accounts, {sum} in the bank, {wrong} wrong audits",
            self.balances.len()
        );
        let is_exact = sum == self.deposits() && u64::from(transfers) == due && wrong == 0;
        Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn work(&self, connect: &str) -> zk_mutex::Result<()> {
        let session = ZkSession::connect(connect)?;
        let lock =
            |account: usize| ZkMutex::new(&session, &format!("{}/account-{account}", self.path));
        let locks = (0..self.balances.len()).map(lock).collect::<zk_mutex::Result<Vec<_>>>()?;
        let whole = ZkMultiLock::new(&locks)?;
        let mut accounts: Vec<usize> = (0..locks.len()).collect();
        for round in 0..self.rounds {
            fastrand::shuffle(&mut accounts);
            let (from, to) = (accounts[0], accounts[1]);
            let both = ZkMultiLock::new([&locks[from], &locks[to]])?;
            let guard = both.lock()?;
            self.transfer(from, to, fastrand::i64(1..=100));
            if let Err(error) = guard.unlock() {
                warn!("unlock: {error}"); // The transfer is done; the library sees to the nodes.
            }
            if round % 10 == 9 {
                let _everything = whole.lock()?;
                if self.sum() != self.deposits() {
                    self.wrong_audits.fetch_add(1, SeqCst);
                }
            }
        }
        if let Err(error) = session.close() {
            warn!("{error}"); // Nor does this undo anything.
        }
        Ok(())
    }

    fn transfer(&self, from: usize, to: usize, amount: i64) {
        let (had, other) = (self.balances[from].load(SeqCst), self.balances[to].load(SeqCst));
        thread::sleep(self.hold);
        self.balances[from].store(had - amount, SeqCst);
        self.balances[to].store(other + amount, SeqCst);
        self.transfers.fetch_add(1, SeqCst);
    }

    fn sum(&self) -> i64 {
        self.balances.iter().map(|balance| balance.load(SeqCst)).sum()
    }

    fn deposits(&self) -> i64 {
        self.balances.iter().map(|_| DEPOSIT).sum()
    }
}
