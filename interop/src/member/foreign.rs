//! The client of the `zookeeper-client` crate, which is not ours.

use crate::ledger::{Deed, Ledger};
use crate::{Failure, Session, Task};
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Handle};
use zookeeper_client::{Acls, Client, LockOptions, LockPrefix, SessionState};

/// A session of this client.
struct Foreign {
    client: Client,
    runtime: Handle,
    /// Runs the client's background work, such as the deletion of a lock's node, until the session
    /// is closed.
    background: JoinHandle<()>,
}

pub fn connect(task: &Task) -> Result<Box<dyn Session>, Failure> {
    match task.text("recipe")? {
        "mutex" => {}
        other => return Err(format!("zookeeper-client has no recipe {other}").into()),
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let client = runtime.block_on(Client::connect(task.text("connect")?))?;
    let (handle, mut states) = (runtime.handle().clone(), client.state_watcher());
    let background = thread::spawn(move || {
        runtime.block_on(async { while states.changed().await != SessionState::Closed {} });
    });
    Ok(Box::new(Foreign { client, runtime: handle, background }))
}

impl Session for Foreign {
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        let (path, sections) = (task.text("path")?, task.number("sections")?);
        self.runtime.block_on(async {
            for _ in 0..sections {
                let options = LockOptions::new(Acls::anyone_all());
                let prefix = LockPrefix::new_curator(path, "lock-")?;
                let lock = self.client.lock(prefix, ledger.who(), options).await?;
                ledger.section(Deed::Write, lock.lock_path())?;
            }
            Ok(())
        })
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        drop(self.client);
        self.background.join().map_err(|_| "a thread panicked".into())
    }
}
