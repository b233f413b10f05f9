//! The link's own errands: deletes that must happen, and watches on held nodes.
//!
//! They belong to the link because they must survive what callers do not: a release is not waited
//! for, an abandoned create has no caller left. A delete is sent again on each connection until it
//! is acknowledged or the session is gone at the server (design: nothing is orphaned).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::Outcome;
use super::removal::{Next, Removal};
use crate::clock::BootTime;
use crate::error::TOO_LONG_ADVICE;
use crate::session::hold::Hold;
use crate::session::path;
use crate::session::shared::Shared;
use crate::session::wire::code::{err, op};
use crate::session::wire::record::{Reader, Writer};
use crate::session::wire::{Malformed, check};

pub(crate) enum Chore {
    /// Delete our node `path`, whose id is `id`; then try to delete its parent too, if asked.
    Delete { path: String, id: String, renew_parent: bool, done: Option<Sender<Outcome>> },
    /// A create of the node `prefix`, or of that and the server's number, was not acknowledged:
    /// find the node under `parent` and delete it. `id` is the part of the name that is ours alone.
    Sweep { parent: String, prefix: String, id: String },
    /// Delete a node with a fixed name, if it is ours.
    Remove(Removal),
    /// Delete this empty node, once, whatever the answer.
    Prune { path: String },
    /// Watch a held node.
    Watch { hold: Arc<Hold> },
}

struct Entry {
    chore: Chore,
    not_before: BootTime,
    /// For a sweep: a write made after the lost create was acknowledged on this connection.
    proven: bool,
    warned: bool,
}

/// How many times the usual pause a chore waits that was refused: somebody must change an ACL first.
const SLOWLY: u32 = 8;

/// The same, where the answer was longer than a frame may be: each try costs the connection megabytes,
/// and somebody must clean up first.
const SELDOM: u32 = 64;

pub(super) struct Chores {
    /// The name of a node that never exists: deleting it is a write without an effect.
    noop: String,
    next: u64,
    all: HashMap<u64, Entry>,
    waiting: VecDeque<u64>,
}

impl Chores {
    pub(super) fn new(noop: String) -> Self {
        Chores { noop, next: 0, all: HashMap::new(), waiting: VecDeque::new() }
    }

    pub(super) fn add(&mut self, chore: Chore, now: BootTime) {
        self.next += 1;
        self.all.insert(self.next, Entry { chore, not_before: now, proven: false, warned: false });
        self.waiting.push_back(self.next);
    }

    /// The chores to send now.
    pub(super) fn due(&mut self, now: BootTime) -> Vec<u64> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (all, mut due) = (&self.all, Vec::new());
        self.waiting.retain(|id| match all.get(id) {
            Some(entry) if entry.not_before <= now => {
                due.push(*id);
                false
            }
            Some(_) => true,
            None => false,
        });
        due
    }

    /// When the next delayed chore is due.
    pub(super) fn next_time(&self) -> Option<BootTime> {
        self.waiting.iter().filter_map(|id| self.all.get(id)).map(|e| e.not_before).min()
    }

    /// The operation and the frame of a chore.
    pub(super) fn request(&self, id: u64, xid: i32) -> Option<(i32, Vec<u8>)> {
        let entry = self.all.get(&id)?;
        let path = |op: i32, path: &str| Writer::request(xid, op).buffer(path.as_bytes());
        Some(match &entry.chore {
            Chore::Delete { path: p, .. } | Chore::Prune { path: p } => {
                (op::DELETE, path(op::DELETE, p).i32(-1).frame())
            }
            Chore::Sweep { parent, .. } if entry.proven => {
                (op::GET_CHILDREN, path(op::GET_CHILDREN, parent).bool(false).frame())
            }
            Chore::Sweep { parent, .. } => (op::DELETE, self.noop(xid, parent)),
            Chore::Remove(removal) => removal.request(xid, || self.noop(xid, path::parent(removal.path()))),
            Chore::Watch { hold } => (op::GET_DATA, path(op::GET_DATA, hold.path()).bool(true).frame()),
        })
    }

    /// The write without an effect, in a directory of our locks: there an ACL allows us to delete.
    pub(super) fn noop(&self, xid: i32, dir: &str) -> Vec<u8> {
        let path = path::join(dir, &self.noop);
        Writer::request(xid, op::DELETE).buffer(path.as_bytes()).i32(-1).frame()
    }

    /// Takes the answer to a chore. `is_written`: it is a write, and the leader has acknowledged it;
    /// the same code from a server that is alone shows nothing.
    pub(super) fn reply(
        &mut self,
        id: u64,
        (code, is_written): (i32, bool),
        body: &[u8],
        now: BootTime,
        pause: Duration,
        shared: &Shared,
    ) -> Result<(), Malformed> {
        let Some(mut entry) = self.all.remove(&id) else { return Ok(()) };
        let refused = matches!(code, err::NO_AUTH | err::AUTH_FAILED | err::TOO_LONG);
        let slowly = now + pause * if code == err::TOO_LONG { SELDOM } else { SLOWLY };
        match &mut entry.chore {
            Chore::Delete { path, id: node, renew_parent, done } => match code {
                err::OK | err::NO_NODE if is_written => {
                    shared.remove_debris(node);
                    if *renew_parent {
                        let parent = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
                        self.add(Chore::Prune { path: parent }, now);
                    }
                    finish(done.take(), Ok(()));
                    return Ok(());
                }
                _ if refused || code == err::NOT_EMPTY => {
                    if !entry.warned {
                        warn!(
                            "{path}: our node could not be deleted (ZooKeeper error {code}); trying on, it goes at the latest with the session"
                        );
                    }
                    entry.warned = true;
                    finish(done.take(), Err(code));
                    // It stays debris, so that it never blocks us.
                    self.requeue(id, entry, slowly);
                    return Ok(());
                }
                _ => {}
            },
            Chore::Sweep { parent, prefix, id: node } => match (entry.proven, code) {
                (false, _) if is_written => {
                    entry.proven = true;
                    self.requeue(id, entry, now);
                    return Ok(());
                }
                (true, err::OK) => {
                    let children = match check::children(body) {
                        Ok(children) => children,
                        Err(e) => {
                            // The connection ends for it; the sweep does not.
                            self.requeue(id, entry, now);
                            return Err(e);
                        }
                    };
                    let name = children.iter().find(|name| is_made_by(prefix, name));
                    self.swept(parent, node, name.copied(), now, shared);
                    return Ok(());
                }
                (true, err::NO_NODE) => {
                    shared.remove_debris(node);
                    return Ok(());
                }
                (true, _) if refused => {
                    if !entry.warned {
                        warn!(
                            "{parent}: may not be listed ({}); a node of ours with id {node} may stay there until the session ends",
                            reason(code)
                        );
                    }
                    entry.warned = true;
                    self.requeue(id, entry, slowly);
                    return Ok(());
                }
                _ => {}
            },
            Chore::Remove(removal) => match removal.reply((code, is_written), body, shared) {
                Ok(Next::Now) => {
                    self.requeue(id, entry, now);
                    return Ok(());
                }
                Ok(Next::Gone) => {
                    shared.remove_debris(removal.nonce());
                    finish(removal.done(), Ok(()));
                    return Ok(());
                }
                Ok(Next::Refused) => {
                    if !entry.warned {
                        let path = removal.path();
                        warn!(
                            "{path}: our node could not be deleted ({}); trying on, it goes at the latest with the session",
                            reason(code)
                        );
                    }
                    entry.warned = true;
                    finish(removal.done(), Err(code));
                    self.requeue(id, entry, slowly);
                    return Ok(());
                }
                Ok(Next::Later) => {}
                Err(e) => {
                    self.requeue(id, entry, now); // the connection is cut for it, the chore stays
                    return Err(e);
                }
            },
            Chore::Prune { .. } => return Ok(()),
            Chore::Watch { hold } => match code {
                err::OK => {
                    let mut r = Reader::new(body);
                    let data = r.buffer()?;
                    if hold.seen(r.stat()?) {
                        hold.told(data);
                    } else {
                        shared.lease.gone(hold, now);
                    }
                    return Ok(());
                }
                err::NO_NODE => {
                    shared.lease.gone(hold, now);
                    return Ok(());
                }
                _ if refused => {
                    warn!("{}: our node may not be watched ({})", hold.path(), reason(code));
                    return Ok(());
                }
                _ => {}
            },
        }
        // Anything else (throttled, moved) passes: again, a little later.
        self.requeue(id, entry, now + pause);
        Ok(())
    }

    fn requeue(&mut self, id: u64, mut entry: Entry, not_before: BootTime) {
        entry.not_before = not_before;
        self.all.insert(id, entry);
        self.waiting.push_back(id);
    }

    /// The listing shows whether the node of a lost create exists.
    fn swept(&mut self, parent: &str, id: &str, name: Option<&str>, now: BootTime, shared: &Shared) {
        match name {
            Some(name) => {
                let path = path::join(parent, name);
                debug!("{path}: created, its reply was lost; deleting it");
                self.add(Chore::Delete { path, id: id.to_owned(), renew_parent: false, done: None }, now);
            }
            None => shared.remove_debris(id),
        }
    }

    /// The connection is gone: what was sent on it goes again on the next one, from the start.
    pub(super) fn cut(&mut self, now: BootTime) {
        self.all.retain(|_, entry| {
            entry.proven = false;
            // One that was refused waits on: another connection would bring the same answer.
            if !entry.warned {
                entry.not_before = now;
            }
            if let Chore::Remove(removal) = &mut entry.chore {
                removal.restart();
            }
            // Watches are set anew by the next connection.
            !matches!(entry.chore, Chore::Watch { .. } | Chore::Prune { .. })
        });
        let mut ids: Vec<u64> = self.all.keys().copied().collect();
        ids.sort_unstable();
        self.waiting = ids.into();
    }

    /// The session ends, and with it every ephemeral node that was to be deleted. (Those that outlive it are deleted by the goodbye.)
    pub(super) fn drop_all(&mut self) {
        self.all.clear();
        self.waiting.clear();
    }
}

/// Whether a create of `prefix`, numbered by the server or not, can have made the node `name`.
fn is_made_by(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        number.strip_prefix('-').unwrap_or(number).bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Why a chore was refused, and what to do.
fn reason(code: i32) -> String {
    match code {
        err::TOO_LONG => TOO_LONG_ADVICE.to_owned(),
        _ => format!("ZooKeeper error {code}"),
    }
}

/// Whoever asked may have gone; that is their right.
fn finish(done: Option<Sender<Outcome>>, outcome: Outcome) {
    if let Some(done) = done {
        let _ = done.try_send(outcome);
    }
}
