//! Contenders count up one value, first without the lock and then with it:
//!
//!     cargo run --example contend
//!     ZK_CONNECT=127.0.0.1:2181 cargo run --example contend
//!
//! The first runs on an embedded test server, the second on ZooKeeper; start two of those at once,
//! and they contend with each other. In each section a contender reads the value, works, and writes
//! the value plus one. If another contender reads it in between, an update is lost. Only the lock
//! keeps them apart.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use zk_mutex::{FencingToken, ZkMutex, ZkSession};

const PATH: &str = "/zk-mutex/contend";
const CONTENDERS: usize = 4;
const SECTIONS: usize = 100; // of all contenders together
const WORK: Duration = Duration::from_millis(20); // in each section

fn main() -> ExitCode {
    env_logger::init(); // RUST_LOG=debug shows each step of the library
    common::example(contend)
}

fn contend(server: &str) -> Result<()> {
    let count = without_the_lock();
    let lost = SECTIONS - count;
    println!("without the lock: {SECTIONS} sections count to {count}; {lost} updates are lost");
    let (count, contenders) = with_the_lock(server)?;
    println!("with the lock:    {SECTIONS} sections count to {count}");

    for (number, contender) in (1..).zip(&contenders) {
        let (sections, wait) = (contender.tokens.len(), contender.longest_wait.as_millis());
        println!("contender {number}: {sections} sections, longest wait {wait} ms");
    }
    // In the order in which they counted.
    let mut tokens: Vec<_> = contenders.into_iter().flat_map(|one| one.tokens).collect();
    tokens.sort_by_key(|(number, _)| *number);
    if let [(_, first), .., (_, last)] = tokens[..] {
        println!("fencing tokens: {first} in the first section, then growing, {last} in the last");
    }
    common::must(count == SECTIONS, "updates were lost under the lock")?;
    let grow = tokens.is_sorted_by(|(_, earlier), (_, later)| earlier < later);
    common::must(grow, "a token was not greater than the one before")?;

    let real = common::zk_connect().unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    println!(
        "\nTo see two processes contend on a real server, run this in two terminals at once:\n"
    );
    println!("    ZK_CONNECT={real} cargo run --example contend\n");
    println!("Both count right, and each waits longer: for the sections of the other one, too.");
    Ok(())
}

/// What the contenders count to without the lock.
fn without_the_lock() -> usize {
    let (count, all) = (AtomicUsize::new(0), Barrier::new(CONTENDERS));
    let contender = || {
        for _ in 0..SECTIONS / CONTENDERS {
            let number = count.load(Relaxed);
            // Nothing keeps the others out. Here all of them come in between, so that it is certain
            // what is lost, and no matter of luck.
            all.wait();
            count.store(number + 1, Relaxed);
        }
    };
    thread::scope(|scope| (0..CONTENDERS).for_each(|_| drop(scope.spawn(contender))));
    count.into_inner()
}

/// What one contender had of the lock.
#[derive(Default)]
struct Contender {
    longest_wait: Duration,
    /// One for each of its sections, with the number to which it counted there.
    tokens: Vec<(usize, FencingToken)>,
}

/// What the contenders count to with the lock, and what each had of it.
fn with_the_lock(server: &str) -> Result<(usize, Vec<Contender>)> {
    let (count, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let contender = || -> Result<Contender> {
        let session = ZkSession::connect(server)?; // of its own, as if each were a process
        let mutex = ZkMutex::new(&session, PATH)?;
        let mut own = Contender::default();
        while begun.fetch_add(1, Relaxed) < SECTIONS {
            let asked = Instant::now();
            let guard = mutex.lock()?; // blocks, as long as it takes
            own.longest_wait = own.longest_wait.max(asked.elapsed());
            let number = count.load(Relaxed);
            thread::sleep(WORK);
            guard.check()?; // right before the write: a lock that was lost protects nothing
            count.store(number + 1, Relaxed);
            own.tokens.push((number + 1, guard.fencing_token()));
        } // the guard goes, and with it the lock
        session.close()?;
        Ok(own)
    };
    let contenders = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONTENDERS).map(|_| scope.spawn(contender)).collect();
        threads.into_iter().map(common::join).collect::<Result<_>>()
    })?;
    Ok((count.into_inner(), contenders))
}
