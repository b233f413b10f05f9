//! Watches that survive reconnections: a node, or the list of its children, as a channel of events.
//!
//! The machine looks at the node (`machine/looks.rs`); `sight/` compares the looks, and says which
//! events follow.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::{LossReason, Result};
use crate::generation::Generation;
use crate::limit::{Ended, Limit};
use crate::machine::Watched;
use crate::machine::codec::{CallError, error};
use crate::path::full_path;
use crate::process::Process;
use crate::requests::Requests;
use crate::retry::Retry;
use crate::sight::event::WatchEvent;
use crate::sight::teller::{OP, Teller};
use crate::world::{Instant, LazyLock, Receiver, bounded};
use zk_wire::code::op;

/// A watch on a node that goes on until this value is dropped or the session is lost;
/// [`Requests::watch`] makes it.
///
/// # What is told
///
/// The session looks at the node when the watch is made, whenever a server tells of a change, and
/// on each new connection. It compares what it sees with what it has told last: by the transactions
/// that made and changed the node, so that a node that was deleted and made anew is not mistaken
/// for the old one. Therefore:
///
/// * A change in an outage is told when there is a connection again. Nothing is told twice.
/// * Several changes may come as one event: each event says that the node is different from what it
///   was at the event before, and not how often it has changed. What happens and is undone between
///   two looks (a node is made and deleted again) may not be told at all. A change of an ACL is not
///   told.
/// * An event says that there is something new, and not what. Read the node after the event; the
///   read shows this change, and perhaps later ones, whose events then come behind.
/// * Changes by this session are told as well.
/// * Servers hide a change from a session that the node's ACL does not allow to read it at that
///   moment, and the watch at the server is used up. Then this change and those after it are told
///   on the next connection only.
///
/// Each look is one request: for [`Watched::Node`] a short one, whatever data the node has; for
/// [`Watched::Children`] the server sends the names of all children.
///
/// # Slow receivers
///
/// At most 16 events wait to be received. If more come, the oldest are dropped, so that the newest,
/// and with them [`WatchEvent::Lost`], are always there.
///
/// # The end
///
/// A watch belongs to one session at the server, and does not keep the [`Session`](crate::Session)
/// open. When that session is lost or closed, the last event is [`WatchEvent::Lost`]. Watch again
/// then, and read the node anew: what happened in between is not known.
///
/// ```no_run
/// # fn reload() {}
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::{Session, WatchEvent, Watched};
///
/// let session = Session::connect("127.0.0.1:2181")?;
/// loop {
///     let watch = session.requests().watch("/config", Watched::Node)?; // before the node is read
///     reload();
///     for event in watch.receiver() {
///         match event {
///             WatchEvent::Lost(_) => break, // watch in the next session
///             WatchEvent::Refused(e) => eprintln!("{e}"),
///             _ => reload(),
///         }
///     }
/// }
/// # }
/// ```
#[must_use = "the watch ends when it is dropped"]
pub struct Watch {
    teller: Arc<Teller>,
    events: Receiver<WatchEvent>,
    generation: Weak<Generation>,
    number: u64,
    process: Process,
}

/// A channel that is disconnected: the receiver of all watches of a parent in its forked child. The
/// parent's own channel could be locked for ever.
static ENDED: LazyLock<Receiver<WatchEvent>> = LazyLock::new(|| bounded(0).1);

impl Watch {
    /// The events, for `select!` with other channels. The channel is disconnected behind
    /// [`WatchEvent::Lost`], when the watch is dropped, and in a forked child.
    pub fn receiver(&self) -> &Receiver<WatchEvent> {
        if self.process.is_forked() { &ENDED } else { &self.events }
    }

    /// The next event. `None`: none has come within `timeout`. When the session is lost, each
    /// further call gives [`WatchEvent::Lost`] again, at once; in a forked child as well. For one
    /// event only, drop the watch behind it.
    pub fn next(&self, timeout: Duration) -> Option<WatchEvent> {
        if self.process.is_forked() {
            return Some(WatchEvent::Lost(LossReason::Forked));
        }
        match Limit::after(timeout).recv(&self.events) {
            Ended::Got(event) => Some(event),
            Ended::Disconnected => self.teller.loss().map(WatchEvent::Lost),
            Ended::Deadline | Ended::Cancelled => None,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.process.is_forked() {
            std::mem::forget(self.teller.clone());
            return;
        }
        self.teller.end();
        if let Some(generation) = self.generation.upgrade() {
            generation.end_watch(self.number);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("path", &self.teller.path())
            .field("what", &self.teller.what())
            .finish_non_exhaustive()
    }
}

impl Requests {
    /// Watches a node, or the list of its children, until the result is dropped. The node need not
    /// exist.
    ///
    /// The watch is set when this returns: every change after that is told, and so is every change
    /// after a read that begins later. So watch first, and read then. The limits of the call are
    /// for the time until the watch is set.
    ///
    /// # Errors
    ///
    /// Those of all calls ([`Requests`]).
    pub fn watch(&self, path: &str, what: Watched) -> Result<Watch> {
        let (core, begun) = (self.core(), Instant::now());
        core.process().check(OP, path)?;
        let full = full_path(core.chroot(), path)?;
        let (limit, retry) = (self.limit(begun), Retry::since(begun));
        let failed = |e| error(OP, path.to_owned(), e);
        loop {
            let generation = core.connected(OP, path, &limit, &retry)?;
            let (teller, events, is_set) = Teller::new(path, what);
            if let Some(number) = generation.watch(&full, what, teller.clone()) {
                let process = core.process().clone();
                let weak = Arc::downgrade(&generation);
                let watch = Watch { teller, events, generation: weak, number, process };
                loop {
                    match limit.or_after(generation.operation_timeout()).recv(&is_set) {
                        Ended::Got(Ok(())) => return Ok(watch),
                        Ended::Got(Err(code)) => {
                            return Err(failed(CallError::of(op::GET_DATA, code)));
                        }
                        Ended::Cancelled => return Err(failed(CallError::Cancelled)),
                        Ended::Disconnected => break,
                        Ended::Deadline if limit.is_past() => {
                            return Err(failed(CallError::Deadline));
                        }
                        Ended::Deadline => {}
                    }
                    // The connection was lost, or many looks are due before this one, which keeps
                    // its place among them as long as the session lives.
                    core.failed(&retry);
                    if core.connected(OP, path, &limit, &retry)?.number != generation.number {
                        break;
                    }
                }
            }
            core.failed(&retry);
        }
    }
}
