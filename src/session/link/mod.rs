//! The link: joins the client crate, over loopback inside this process, to the ensemble.
//!
//! Seen from the crate nothing ever breaks; seen from the session everything that happens is
//! reported, in time. One thread per session; see `machine` for the decisions, `pump` for the
//! sockets, `dial` for whom to connect to, `chores` for what the link does on its own account.

mod chores;
mod dial;
mod door;
mod machine;
mod pump;
mod removal;
mod tombstone;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use mio::net::TcpListener;
use mio::{Poll, Waker};

pub(crate) use chores::Chore;
pub(crate) use machine::{LinkEvent, Settings};
pub(crate) use removal::Removal;

use dial::Dialer;
use machine::Machine;
use pump::Pump;

use super::config::RetryPolicy;
use super::connect_string::Host;
use super::shared::Shared;
use crate::clock::BootTime;
use crate::error::LossReason;

/// How long the client crate, started right after the link, may take to connect to it.
const DOOR: Duration = Duration::from_secs(10);

enum Command {
    Chore(Chore),
    /// Renew the lease by a write in this directory, and say when it is fresh.
    Prove(String, Sender<Outcome>),
    /// A hold wants to be watched.
    Wake,
    /// End the session at the server, then here; hear whether the server knows.
    Close(Sender<bool>),
    Resolved(dial::Resolved),
}

/// Tells a running link what to do, from any thread, without blocking.
#[derive(Clone)]
pub(crate) struct Link {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

/// How a chore ended: ZooKeeper's error code if it was refused for good. No answer at all (the
/// sender is dropped) means that the session was lost first.
pub(crate) type Outcome = Result<(), i32>;

/// Where the link's events go.
pub(crate) type Report = Box<dyn Fn(LinkEvent) + Send>;

/// What the client crate needs in order to reach its link.
pub(crate) struct Address {
    pub(crate) connect_string: String,
    pub(crate) secret: Duration,
    given_up: Arc<AtomicBool>,
}

impl Address {
    /// No client will come: the link need not wait for one.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}

impl Link {
    /// Starts a link's thread, which ends when the receiver is disconnected. It begins to connect once the client crate has come in by the door.
    pub(crate) fn start(
        number: u64,
        settings: Settings,
        hosts: Vec<Host>,
        policy: RetryPolicy,
        shared: Arc<Shared>,
        report: Report,
    ) -> io::Result<(Link, Address, Receiver<Infallible>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), pump::WAKER)?);
        let (commands, inbox) = unbounded();
        let link = Link { commands, waker };
        let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        // 30 random bits, and bit 30 set: a timeout that nobody would ask for by chance.
        let secret = (1 << 30) | (uuid::Uuid::new_v4().as_u128() & 0x3fff_ffff) as i32;
        let given_up = Arc::new(AtomicBool::new(false));
        let address = Address {
            given_up: given_up.clone(),
            connect_string: listener.local_addr()?.to_string(),
            secret: Duration::from_millis(u64::from(secret.unsigned_abs())),
        };
        let now = BootTime::now();
        let mut pump = Pump {
            poll,
            machine: Machine::new(settings, shared.clone(), now),
            dialer: Dialer::new(hosts, policy, now),
            shared,
            commands: inbox,
            handle: link.clone(),
            report,
        };
        let (alive, ended) = bounded(0);
        let name = format!("zkm-link-{number}");
        std::thread::Builder::new().name(name).spawn(move || {
            let _alive = alive;
            let end = catch_unwind(AssertUnwindSafe(|| {
                let (client, first) = door::admit(&mut listener, secret, DOOR, &given_up)?;
                pump.run(client, &first)
            }));
            if !matches!(end, Ok(Ok(()))) && !given_up.load(Ordering::Acquire) {
                if !pump.machine.is_over() {
                    error!("the ZooKeeper connection thread failed ({end:?}); a new session follows");
                    pump.shared.lease.end(LossReason::Internal);
                    (pump.report)(LinkEvent::Lost(LossReason::Internal));
                }
                tombstone::stand(&listener);
            }
        })?;
        Ok((link, address, ended))
    }

    fn send(&self, command: Command) {
        // Both fail only once the link is gone, and dropping the command tells whoever waits for it.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }

    pub(crate) fn chore(&self, chore: Chore) {
        self.send(Command::Chore(chore));
    }

    /// Renews the lease by a write in `dir`. `done` hears when it is fresh; its sender is dropped if
    /// the connection is lost first.
    pub(crate) fn prove(&self, dir: String, done: Sender<Outcome>) {
        self.send(Command::Prove(dir, done));
    }

    pub(crate) fn wake(&self) {
        self.send(Command::Wake);
    }

    pub(crate) fn close(&self) -> Receiver<bool> {
        let (done, told) = bounded(1);
        self.send(Command::Close(done));
        told
    }
}
