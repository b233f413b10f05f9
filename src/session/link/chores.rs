//! The link's own errands: deletes that must happen, proofs for the lease, watches on held nodes.
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
use crate::session::hold::Hold;
use crate::session::shared::Shared;
use crate::session::wire::code::{err, op};
use crate::session::wire::record::{Reader, Writer};
use crate::session::wire::{Malformed, check};

pub(crate) enum Chore {
    /// Delete our node `path`, whose id is `id`; then try to delete its parent too, if asked.
    Delete { path: String, id: String, renew_parent: bool, done: Option<Sender<Outcome>> },
    /// A create with this id was not acknowledged: find its node under `parent` and delete it.
    Sweep { parent: String, id: String },
    /// Delete a node with a fixed name, if it is ours.
    Remove(Removal),
    /// Delete this empty node, once, whatever the answer.
    Prune { path: String },
    /// Get a write acknowledged, so that the lease is fresh.
    Prove { done: Sender<Outcome> },
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

pub(super) struct Chores {
    noop: String,
    next: u64,
    all: HashMap<u64, Entry>,
    waiting: VecDeque<u64>,
}

impl Chores {
    /// `noop` is a path that never exists: deleting it is a write without an effect.
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
            Chore::Prove { .. } | Chore::Sweep { .. } => (op::DELETE, self.noop(xid)),
            Chore::Remove(removal) => removal.request(xid, || self.noop(xid)),
            Chore::Watch { hold } => (op::GET_DATA, path(op::GET_DATA, hold.path()).bool(true).frame()),
        })
    }

    /// The write without an effect.
    pub(super) fn noop(&self, xid: i32) -> Vec<u8> {
        Writer::request(xid, op::DELETE).buffer(self.noop.as_bytes()).i32(-1).frame()
    }

    /// Takes the answer to a chore.
    pub(super) fn reply(
        &mut self,
        id: u64,
        code: i32,
        body: &[u8],
        now: BootTime,
        pause: Duration,
        shared: &Shared,
    ) -> Result<(), Malformed> {
        let Some(mut entry) = self.all.remove(&id) else { return Ok(()) };
        let refused = matches!(code, err::NO_AUTH | err::AUTH_FAILED);
        match &mut entry.chore {
            Chore::Delete { path, id: node, renew_parent, done } => match code {
                err::OK | err::NO_NODE => {
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
                    self.requeue(id, entry, now + pause * SLOWLY);
                    return Ok(());
                }
                _ => {}
            },
            Chore::Sweep { parent, id: node } => match (entry.proven, code) {
                (false, code) if err::is_committed(code) => {
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
                    let (parent, node) = (parent.clone(), node.clone());
                    self.swept(&parent, node, &children, now, shared);
                    return Ok(());
                }
                (true, err::NO_NODE) => {
                    shared.remove_debris(node);
                    return Ok(());
                }
                (true, _) if refused => {
                    if !entry.warned {
                        warn!(
                            "{parent}: may not be listed; a node of ours with id {node} may stay there until the session ends"
                        );
                    }
                    entry.warned = true;
                    self.requeue(id, entry, now + pause * SLOWLY);
                    return Ok(());
                }
                _ => {}
            },
            Chore::Remove(removal) => match removal.reply(code, body, shared) {
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
                            "{path}: our node could not be deleted (ZooKeeper error {code}); trying on, it goes at the latest with the session"
                        );
                    }
                    entry.warned = true;
                    finish(removal.done(), Err(code));
                    self.requeue(id, entry, now + pause * SLOWLY);
                    return Ok(());
                }
                Ok(Next::Later) => {}
                Err(e) => {
                    self.requeue(id, entry, now); // the connection is cut for it, the chore stays
                    return Err(e);
                }
            },
            Chore::Prune { .. } => return Ok(()),
            Chore::Prove { done } => {
                if err::is_committed(code) {
                    finish(Some(done.clone()), Ok(()));
                    return Ok(());
                }
            }
            Chore::Watch { hold } => match code {
                err::OK => {
                    let mut r = Reader::new(body);
                    let data = r.buffer()?;
                    if hold.seen(r.stat()?) {
                        hold.told(data);
                    } else {
                        shared.lease.gone(hold);
                    }
                    return Ok(());
                }
                err::NO_NODE => {
                    shared.lease.gone(hold);
                    return Ok(());
                }
                _ if refused => {
                    warn!("{}: our node may not be watched (ZooKeeper error {code})", hold.path());
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
    fn swept(&mut self, parent: &str, id: String, children: &[&str], now: BootTime, shared: &Shared) {
        match children.iter().find(|name| name.contains(&id)) {
            Some(name) => {
                debug!("{parent}/{name}: created, its reply was lost; deleting it");
                let path = format!("{parent}/{name}");
                self.add(Chore::Delete { path, id, renew_parent: false, done: None }, now);
            }
            None => shared.remove_debris(&id),
        }
    }

    /// The connection is gone: what was sent on it goes again on the next one, from the start.
    pub(super) fn cut(&mut self, now: BootTime) {
        self.all.retain(|_, entry| {
            entry.proven = false;
            entry.not_before = now;
            if let Chore::Remove(removal) = &mut entry.chore {
                removal.restart();
            }
            // Watches are set anew by the next connection; a proof is asked for by somebody who
            // must hear that it did not come.
            !matches!(entry.chore, Chore::Watch { .. } | Chore::Prove { .. } | Chore::Prune { .. })
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

/// Whoever asked may have gone; that is their right.
fn finish(done: Option<Sender<Outcome>>, outcome: Outcome) {
    if let Some(done) = done {
        let _ = done.try_send(outcome);
    }
}
