//! This crate.

use crate::{Client, Failure, Task};
use zk_mutex::{
    Error, Layout, ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex,
    ZkSession,
};

pub struct Ours {
    hosts: String,
}

impl Ours {
    pub fn new(hosts: String) -> Ours {
        Ours { hosts }
    }
}

impl Client for Ours {
    /// Each lock has a session of its own: within one session a second lock would be refused, or
    /// wait, without a question to the server.
    fn take(&self, task: &Task) -> Result<(), Failure> {
        let session = ZkSession::connect(&self.hosts)?;
        let path = &task.path;
        let (recipe, layout) = match task.recipe.strip_suffix("-kazoo") {
            Some(recipe) => (recipe, Layout::Kazoo),
            None => (task.recipe.as_str(), Layout::Curator),
        };
        match recipe {
            "mutex" => {
                let lock = ZkMutex::builder(&session, path).layout(layout).build()?;
                task.keep(lock.lock()?, |guard| guard.check().is_ok());
            }
            "read" => {
                let lock = ZkRwLock::builder(&session, path).layout(layout).build()?;
                task.keep(lock.read()?, |guard| guard.check().is_ok());
            }
            "write" => {
                let lock = ZkRwLock::builder(&session, path).layout(layout).build()?;
                task.keep(lock.write()?, |guard| guard.check().is_ok());
            }
            "semaphore" => {
                let lock = ZkSemaphore::new(&session, path, 1)?;
                task.keep(lock.acquire()?, |permit| permit.check().is_ok());
            }
            "semaphore-mutex" => {
                let lock = ZkSemaphoreMutex::new(&session, path)?;
                task.keep(lock.lock()?, |guard| guard.check().is_ok());
            }
            "election" => {
                let candidate = ZkElection::new(&session, path)?.join()?;
                task.keep(candidate.wait_leader()?, |leadership| leadership.check().is_ok());
            }
            "exclusive" => {
                let lock = ZkExclusiveLock::new(&session, path)?;
                task.keep(lock.lock()?, |guard| guard.check().is_ok());
            }
            other => return Err(format!("we have no recipe {other}").into()),
        }
        Ok(session.close()?)
    }

    fn refuses(&self, failure: &Failure) -> bool {
        matches!(failure.downcast_ref(), Some(Error::InvalidConfig { .. }))
    }
}
