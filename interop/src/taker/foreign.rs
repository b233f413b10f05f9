//! The client of the crate `zookeeper-client`, which is not ours.

use crate::{Client, Failure, Task};
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix};

pub struct Foreign {
    client: zookeeper_client::Client,
    runtime: Runtime,
}

impl Foreign {
    pub fn connect(hosts: &str) -> Result<Foreign, Failure> {
        let runtime = Builder::new_multi_thread().enable_time().build()?;
        let client = runtime.block_on(zookeeper_client::Client::connect(hosts))?;
        Ok(Foreign { client, runtime })
    }
}

impl Client for Foreign {
    fn take(&self, task: &Task) -> Result<(), Failure> {
        let (path, shared) = (&task.path, format!("{}/n-", task.path));
        let prefix = match task.recipe.as_str() {
            r#"new_curator(_,"lock-")"# => LockPrefix::new_curator(path, "lock-")?,
            r#"new_curator(_,"latch-")"# => LockPrefix::new_curator(path, "latch-")?,
            r#"new_shared("n-")"# => LockPrefix::new_shared(&shared)?,
            r#"new_custom("x-")"# => {
                LockPrefix::new_custom(format!("{path}/x-{}-", task.id), "x-")?
            }
            other => return Err(format!("zookeeper-client has no recipe {other}").into()),
        };
        let folders = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(folders)?;
        let lock = self.runtime.block_on(self.client.lock(prefix, b"", options))?;
        let _entered = self.runtime.enter(); // the delete is a task
        task.keep(lock, |_| true);
        Ok(())
    }

    fn refuses(&self, _failure: &Failure) -> bool {
        false
    }
}
