//! The callers that wait for the machine, by the numbers that it has given them.

use super::Connection;
use crate::clock::BootTime;
use crate::machine::codec::CallError;
use crate::machine::{Answers, Batch, Machine, Outcome, Output, Removal};
use crate::world::{HashMap, Receiver, Sender, bounded};

#[derive(Default)]
pub(super) struct Callers {
    batches: HashMap<u64, Sender<Answers>>,
    /// The callers of removals and of renewals of the lease.
    outcomes: HashMap<u64, Sender<Outcome>>,
    /// The callers of `close`.
    closes: Vec<Sender<bool>>,
}

impl Connection {
    /// Sends these requests together. Gives the number of the batch, and where its answers will
    /// come.
    pub(crate) fn submit(&self, batch: Batch) -> Result<(u64, Receiver<Answers>), CallError> {
        let (caller, answers) = bounded(1);
        let submit = |machine: &mut Machine, now| {
            let number = machine.submit(batch, now)?;
            // No thread can carry out an output before this thread lets the machine go.
            self.callers.lock().batches.insert(number, caller);
            Ok(number)
        };
        Ok((self.with(submit)?, answers))
    }

    /// The caller of a batch leaves before the answers come. `Some`: they had come before. Then it
    /// gets them from its channel, where another thread may still be sending them; that thread does
    /// nothing before that which can block.
    pub(crate) fn leave(
        &self,
        number: u64,
        answers: &Receiver<Answers>,
    ) -> Option<Result<Answers, CallError>> {
        if self.with(|machine, now| machine.abandon(number, now)) {
            self.callers.lock().batches.remove(&number);
            return None;
        }
        // The answers may still be in the queue of outputs, and the event loop may get no processor
        // to carry them out. This thread takes them from there.
        if let Some(answers) = self.with(|machine, _| machine.take_answers(number)) {
            self.callers.lock().batches.remove(&number);
            return Some(Ok(answers));
        }
        Some(answers.recv().map_err(|_| CallError::Expired))
    }

    /// Takes requests back that were not sent: no server ever gets them, and no answers come.
    /// False: they were sent, or are answered.
    pub(crate) fn withdraw(&self, number: u64) -> bool {
        let is_withdrawn = self.with(|machine, _| machine.withdraw(number));
        if is_withdrawn {
            self.callers.lock().batches.remove(&number);
        }
        is_withdrawn
    }

    /// Removes a node of ours. The receiver is disconnected if the session is lost, and the node
    /// with it.
    pub(crate) fn remove(&self, removal: Removal) -> Receiver<Outcome> {
        self.await_outcome(|machine, now| machine.remove(removal, now))
    }

    /// Tries a delete in `dir` again that an ACL has refused, if there is one. Gives where its
    /// outcome will come, and the path of the node.
    pub(crate) fn retry_refused(&self, dir: &str) -> Option<(Receiver<Outcome>, String)> {
        if !self.with(|machine, _| machine.has_refused(dir)) {
            return None;
        }
        let mut node = None;
        let outcome = self.await_outcome(|machine, now| {
            let (number, path) = machine.retry_refused(dir, now)?;
            node = Some(path);
            Some(number)
        });
        Some((outcome, node?))
    }

    /// Renews the lease. The receiver is disconnected if there is no connection.
    pub(crate) fn prove(&self) -> Receiver<Outcome> {
        self.await_outcome(Machine::prove)
    }

    fn await_outcome(
        &self,
        begin: impl FnOnce(&mut Machine, BootTime) -> Option<u64>,
    ) -> Receiver<Outcome> {
        let (caller, outcome) = bounded(1);
        self.with(|machine, now| {
            if let Some(number) = begin(machine, now) {
                self.callers.lock().outcomes.insert(number, caller);
            }
        });
        outcome
    }

    /// Closes the session, after the machine has taken what `before` gives it. The receiver gets
    /// whether the server knows.
    pub(crate) fn close(&self, before: impl FnOnce(&mut Machine, BootTime)) -> Receiver<bool> {
        let (caller, told) = bounded(1);
        self.with(|machine, now| {
            before(machine, now);
            match machine.close(now) {
                Some(server_knows) => {
                    let _ = caller.try_send(server_knows);
                }
                None => self.callers.lock().closes.push(caller),
            }
        });
        told
    }

    /// Passes an output on to the caller for whom it is; gives back any other. If the caller has
    /// left, its answer is dropped.
    pub(super) fn answer(&self, output: Output) -> Option<Output> {
        match output {
            Output::Answered(number, answers) => {
                let caller = self.callers.lock().batches.remove(&number);
                if let Some(caller) = caller {
                    let _ = caller.try_send(answers);
                }
            }
            Output::Done(number, outcome) => {
                let caller = self.callers.lock().outcomes.remove(&number);
                if let Some(caller) = caller {
                    let _ = caller.try_send(outcome);
                }
            }
            Output::Closed(server_knows) => {
                let callers = std::mem::take(&mut self.callers.lock().closes);
                for caller in callers {
                    let _ = caller.try_send(server_knows);
                }
            }
            Output::Lost(_) => {
                drop(std::mem::take(&mut self.callers.lock().outcomes));
                return Some(output);
            }
            other => return Some(other),
        }
        None
    }

    /// Disconnects the callers that still wait: no answer comes any more.
    pub(super) fn drop_callers(&self) {
        drop(std::mem::take(&mut *self.callers.lock()));
    }

    /// How many callers wait.
    #[cfg(any(feature = "test", zk_sim))]
    pub(crate) fn waiting_callers(&self) -> usize {
        let callers = self.callers.lock();
        callers.batches.len() + callers.outcomes.len() + callers.closes.len()
    }
}
