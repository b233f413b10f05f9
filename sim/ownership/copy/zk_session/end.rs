//! The end of the machine at which the model drives it, in the place of the event loop and the
//! generation. It carries out the outputs as they do, and calls `tick` after each event.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;
use crate::acl::Acl;
use crate::machine::codec::{CreateMode, Operation, Reply};
use crate::lease::LeaseState;
use outside::client::{Client, Lock, NOOP, Said, T};

/// The machine, with what its owner knows.
struct End {
    machine: Machine,
    lease: LeaseState,
    /// A hold depends on the lease.
    is_holder: bool,
    /// The next call of `tick`.
    next: Option<BootTime>,
    said: Vec<Said>,
}

pub(crate) fn new() -> Box<dyn Client> {
    let config = MachineConfig::new(Duration::from_millis(T), NOOP.into());
    let machine = Machine::new(config, BootTime::default());
    let lease = LeaseState { timeout: Duration::ZERO, heard: None };
    Box::new(End { machine, lease, is_holder: false, next: None, said: Vec::new() })
}

fn at(ms: u64) -> BootTime {
    BootTime::default() + Duration::from_millis(ms)
}

fn ms(at: BootTime) -> u64 {
    // Up to the next millisecond: the event loop wakes up when a time has come.
    at.since(BootTime::default()).as_micros().div_ceil(1000) as u64
}

impl End {
    /// The event loop works until nothing is due.
    fn work(&mut self, now: BootTime) {
        for _ in 0..6 {
            self.carry_out();
            let end = self.lease.ends().filter(|end| self.is_holder && now < *end);
            self.next = self.machine.tick(LeaseStatus { end, is_fresh: false }, now);
            self.carry_out();
            if self.next.is_none_or(|next| next > now) {
                break;
            }
        }
        if self.machine.cut.take().is_some() {
            self.said.push(Said::Cut);
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.machine.outputs.pop_front() {
            match output {
                Output::Granted { timeout, sent, .. } => {
                    self.lease = LeaseState { timeout, heard: Some(sent) };
                }
                Output::Heard(at) => self.lease.heard = self.lease.heard.max(Some(at)),
                Output::Answered(number, mut answers) => {
                    let made = match answers.all.swap_remove(0) {
                        Ok(Reply::Created(path, stat)) => Some((path, stat.czxid)),
                        _ => None,
                    };
                    self.said.push(Said::Answered(number, made));
                }
                Output::Lost(reason) => self.said.push(Said::Lost(format!("{reason:?}"))),
                _ => {}
            }
        }
    }
}

impl Client for End {
    fn copied(&self) -> Box<dyn Client> {
        let m = &self.machine;
        let machine = Machine {
            config: MachineConfig::new(Duration::from_millis(T), NOOP.into()),
            phase: m.phase,
            session: m.session.clone(),
            ending: m.ending.clone(),
            batches: m.batches.clone(),
            unsent: m.unsent.clone(),
            outstanding: m.outstanding.clone(),
            background: m.background.clone(),
            heard: m.heard.clone(),
            proof: m.proof.clone(),
            looks: m.looks.clone(),
            // The sessions of the model have no login that could be refused.
            refused_here: None,
            refusal: None,
            // Between two events these are empty.
            from_server: Frames::default(),
            to_server: Vec::new(),
            cut: None,
            outputs: VecDeque::new(),
            ..*m
        };
        let said = Vec::new();
        Box::new(End { machine, lease: self.lease.clone(), said, ..*self })
    }

    fn hash(&self, h: &mut DefaultHasher) {
        let Machine { phase, session, ending, zxid, batches, unsent, outstanding, .. } =
            &self.machine;
        let Machine { background, heard, proof, last_sent, last_ordered, up_since, .. } =
            &self.machine;
        let Machine { is_new, is_proven, next_xid, taken_up, .. } = &self.machine;
        // Left out: `epoch` and `last_number`, which only count, `partial_at`, and `looks`, of which
        // there are none.
        (phase, session, ending, zxid, batches, unsent, outstanding).hash(h);
        (background, heard, proof, last_sent, last_ordered, up_since).hash(h);
        (is_new, is_proven, next_xid, taken_up, &self.lease, self.is_holder).hash(h);
    }

    fn dial(&mut self, now: u64) -> Vec<u8> {
        self.hang_up(now);
        // The xids of a connection may begin anywhere. So fewer states differ.
        self.machine.next_xid = 1;
        let bound = self.machine.timeout() / 6;
        self.machine.connected(Dialled { bound, is_believed: true }, at(now));
        self.sent()
    }

    fn hang_up(&mut self, now: u64) {
        if !self.machine.wants_connection() {
            self.machine.server_gone("the connection broke", at(now));
        }
        self.work(at(now));
    }

    fn bytes(&mut self, bytes: &[u8], now: u64) {
        self.machine.server_bytes(bytes, at(now));
        self.work(at(now));
    }

    fn wake(&mut self, now: u64) {
        self.work(at(now));
    }

    fn next(&self) -> Option<u64> {
        self.next.map(ms)
    }

    fn sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.machine.to_server)
    }

    fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    fn lock(&mut self, lock: &Lock, now: u64) -> u64 {
        let mut batch = Batch::new();
        let data = lock.data();
        let (path, acl) = (lock.path.as_str(), &Acl::Open);
        if lock.is_named {
            let mode = CreateMode::EphemeralSequential;
            let create = Operation::Create { path, data: &data, acl, mode };
            batch.push(&create, Some(Removal::of_create(path, &lock.id)));
            let dir = zk_wire::path::parent(path);
            batch.push(&Operation::GetChildren { path: dir, watch: false }, None);
        } else {
            let create = Operation::Create { path, data: &data, acl, mode: CreateMode::Ephemeral };
            let removal = Removal::signed(path.to_owned(), lock.id.clone(), None);
            batch.push(&create, Some(removal));
        }
        let number = self.machine.submit(batch, at(now)).expect("the session lives");
        self.work(at(now));
        number
    }

    fn abandon(&mut self, number: u64, now: u64) {
        self.machine.abandon(number, at(now));
        self.work(at(now));
    }

    fn release(&mut self, lock: &Lock, path: &str, czxid: i64, now: u64) {
        let removal = match lock.is_named {
            true => Removal::named(path.to_owned(), lock.id.clone()),
            false => Removal::signed(path.to_owned(), lock.id.clone(), Some(czxid)),
        };
        self.machine.add_task(Task::Remove(removal), at(now));
        self.work(at(now));
    }

    fn hold(&mut self) {
        self.is_holder = true;
    }

    fn is_up(&self) -> bool {
        self.machine.is_up()
    }

    fn was_let_go(&self, now: u64) -> bool {
        let timeout = self.machine.timeout();
        self.machine.unserved_since().is_some_and(|since| at(now) >= since + timeout)
    }

    fn is_pending(&self, id: &str) -> bool {
        self.machine.pending_deletes().contains(id)
    }

    fn lease_end(&self) -> Option<u64> {
        self.lease.ends().map(|end| end.since(BootTime::default()).as_millis() as u64)
    }
}
