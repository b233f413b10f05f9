//! A member that takes no lock, to check that the group's checks notice it.

use crate::ledger::{Deed, Ledger};
use crate::{Failure, Session, Task};
use std::thread;
use std::time::Duration;

pub struct Unlocked;

impl Session for Unlocked {
    fn sections(&self, task: &Task, _thread: u32, ledger: &Ledger) -> Result<(), Failure> {
        // A semaphore must keep out the fourth member, not the second.
        let deed = if task.text("recipe")? == "semaphore" { Deed::Read } else { Deed::Write };
        for _ in 0..task.number("sections")? {
            thread::sleep(Duration::from_millis(1)); // so that it overlaps with the others
            ledger.section(deed, "")?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
