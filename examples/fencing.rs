//! A store that refuses a write which comes too late, by the writer's fencing token:
//!
//!     cargo run --example fencing
//!
//! A worker is paused in the middle of its work until its session has ended. Another worker takes
//! the lock and writes. Then the first one wakes and writes too. No lock can prevent that; the
//! store can, because each holder of the lock has a greater token than all holders before it.
//! (`interop/examples/sql.rs` does the same with a table in SQLite.)

mod common;

use common::Result;
use std::process::ExitCode;
use zk_mutex::{FencingToken, ZkMutex, ZkSession};

const PATH: &str = "/zk-mutex/fencing";

/// What the lock protects. It keeps the newest token beside the value.
#[derive(Default)]
struct Store {
    value: String,
    newest: Option<FencingToken>,
}

impl Store {
    /// Writes, unless somebody with a newer token has written before. Equal tokens are fine: a
    /// holder may write more than once.
    fn write(&mut self, value: &str, token: FencingToken) -> bool {
        let accepted = self.newest.is_none_or(|newest| newest <= token);
        println!("{value:?} under token {token}: {}", if accepted { "written" } else { "refused" });
        if accepted {
            self.value = value.to_owned();
            self.newest = Some(token);
        }
        accepted
    }
}

fn main() -> ExitCode {
    common::example(fencing)
}

fn fencing(server: &str) -> Result<()> {
    let mut store = Store::default();
    let (one, two) = (ZkSession::connect(server)?, ZkSession::connect(server)?); // of two hosts

    let guard = ZkMutex::new(&one, PATH)?.lock()?;
    assert!(store.write("by the first worker", guard.fencing_token()));
    guard.check()?; // The first worker has the lock, and goes on to its second write.

    one.close()?; // This stands for a pause that is longer than the session lives.
    let next = ZkMutex::new(&two, PATH)?.lock()?;
    assert!(store.write("by the second worker", next.fencing_token()));

    assert!(!store.write("by the first worker, too late", guard.fencing_token()));
    println!("the store has what was written {}", store.value);
    assert_eq!(store.value, "by the second worker");
    Ok(())
}
