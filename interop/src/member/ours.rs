//! This crate.

use crate::ledger::{Deed, Ledger};
use crate::{Failure, Session, Task};
use std::time::Duration;
use zk_mutex::{Layout, ZkElection, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession};

/// One of our sessions, and the lock that its threads share.
struct Ours<L> {
    session: ZkSession,
    lock: L,
}

/// Each section must have a node, and so a number, of its own.
const NO_HAND_OVER: Duration = Duration::ZERO;

pub fn connect(task: &Task) -> Result<Box<dyn Session>, Failure> {
    let session = ZkSession::connect(task.text("connect")?)?;
    let path = task.text("path")?;
    let layout = match task.text("layout")? {
        "curator" => Layout::Curator,
        "kazoo" => Layout::Kazoo,
        other => return Err(format!("there is no layout {other}").into()),
    };
    Ok(match task.text("recipe")? {
        "mutex" => {
            let lock =
                ZkMutex::builder(&session, path).layout(layout).hand_over(NO_HAND_OVER).build()?;
            Box::new(Ours { session, lock })
        }
        "rwlock" => {
            let lock =
                ZkRwLock::builder(&session, path).layout(layout).hand_over(NO_HAND_OVER).build()?;
            Box::new(Ours { session, lock })
        }
        "semaphore" => {
            let permits = task.number("leases")?;
            let lock =
                ZkSemaphore::builder(&session, path, permits).hand_over(NO_HAND_OVER).build()?;
            Box::new(Ours { session, lock })
        }
        "semaphore-mutex" => {
            let lock = ZkSemaphoreMutex::builder(&session, path).hand_over(NO_HAND_OVER).build()?;
            Box::new(Ours { session, lock })
        }
        "election" => {
            let lock = ZkElection::new(&session, path)?;
            Box::new(Ours { session, lock })
        }
        other => return Err(format!("we have no recipe {other}").into()),
    })
}

/// The use of a lock by a thread.
trait Lock: Sync {
    fn sections(&self, task: &Task, thread: u32, ledger: &Ledger) -> Result<(), Failure>;
}

impl<L: Lock> Session for Ours<L> {
    fn sections(&self, task: &Task, thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        self.lock.sections(task, thread, ledger)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.session.close()?)
    }
}

impl Lock for ZkMutex {
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        for _ in 0..task.number("sections")? {
            let guard = self.lock()?;
            ledger.section(Deed::Write, guard.path())?;
            guard.check()?;
        }
        Ok(())
    }
}

impl Lock for ZkRwLock {
    fn sections(&self, task: &Task, thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        for section in 0..task.number("sections")? {
            if Task::writes(section, thread) {
                let guard = self.write()?;
                ledger.section(Deed::Write, guard.path())?;
                guard.check()?;
                if section % 2 == 0 {
                    let staying = self.read()?;
                    drop(guard);
                    ledger.section(Deed::Stay, staying.path())?;
                    staying.check()?;
                }
            } else {
                let guard = self.read()?;
                ledger.section(Deed::Read, guard.path())?;
                guard.check()?;
            }
        }
        Ok(())
    }
}

impl Lock for ZkSemaphore {
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        for _ in 0..task.number("sections")? {
            let permit = self.acquire()?;
            ledger.section(Deed::Read, permit.path())?;
            permit.check()?;
        }
        Ok(())
    }
}

impl Lock for ZkSemaphoreMutex {
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        for _ in 0..task.number("sections")? {
            let guard = self.lock()?;
            ledger.section(Deed::Write, guard.path())?;
            guard.check()?;
        }
        Ok(())
    }
}

impl Lock for ZkElection {
    /// Joins the election anew for each section, and leaves after the section.
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        for _ in 0..task.number("sections")? {
            let candidate = self.join()?;
            let leadership = candidate.wait_leader()?;
            ledger.section(Deed::Write, leadership.path())?;
            leadership.check()?;
            candidate.leave()?;
        }
        Ok(())
    }
}
