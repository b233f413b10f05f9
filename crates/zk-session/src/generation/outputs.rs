//! What the event loop calls: it carries out the outputs of the connection's machine. When it learns
//! that a held node is lost, it marks the node before any thread can take the lock because of that.

use std::sync::Arc;

use super::{Folder, Generation, LeasedNode, Watcher};
use crate::clock::BootTime;
use crate::connection::{Connection, Owner};
use crate::event::{Notice, SessionEvent};
use crate::lease;
use crate::machine::{LeaseStatus, Output, WatchedNode, code_of};
#[cfg(zk_sim)]
use crate::observed::{self, News};
use crate::raw::RawNews;
use crate::world::atomic::Ordering;
use std::time::Duration;
use zk_wire::code::event;

impl Owner for Generation {
    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_light(&self, output: &Output) -> bool {
        matches!(output, Output::Heard(_) | Output::RoundTrip { .. } | Output::Watch { .. })
    }

    fn take_output(&self, output: Output) {
        match output {
            Output::Granted { session_id, timeout, sent } => {
                let _ = self.session_id.set(session_id);
                self.granted(timeout);
                self.lease.begin(timeout, sent);
            }
            Output::Shortened { timeout } => {
                self.granted(timeout);
                self.lease.shorten(timeout, BootTime::now());
            }
            Output::Attached { epoch, is_first } => {
                self.epoch.store(epoch, Ordering::Release);
                #[cfg(zk_sim)]
                self.show(|session| News::Attached { session, epoch });
                if !is_first {
                    self.raw.tell(RawNews::Reconnected);
                }
                (self.of_core.report)(match (is_first, self.session_id()) {
                    (true, Some(session_id)) => {
                        SessionEvent::Connected { session_id, timeout: self.timeout() }
                    }
                    _ => SessionEvent::Reconnected,
                });
            }
            Output::Refused(reason) => drop(self.refusal.set(reason)),
            Output::Suspended => {
                #[cfg(zk_sim)]
                self.show(|session| News::Detached { session, is_over: false });
                (self.of_core.report)(SessionEvent::Suspended);
            }
            Output::Lost(reason) => {
                self.lease.end(reason);
                #[cfg(zk_sim)]
                self.show(|session| News::Detached { session, is_over: true });
                self.raw.tell(RawNews::Ended(code_of(reason)));
                self.callbacks.take_tellers().iter().for_each(|teller| teller.lost(reason));
                (self.of_core.report)(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => {
                let now = BootTime::now();
                self.report_margin(now);
                self.notify_later(self.lease.extend(at, now));
            }
            Output::RoundTrip { op, took } => {
                if let Some(tell) = &self.of_core.tell {
                    tell(Notice::Answered(op, took));
                }
            }
            Output::RawAnswered { number, err, zxid, body } => {
                self.raw.tell(RawNews::Answered { number, err, zxid, body: &body });
            }
            Output::Watch { kind, path } => self.watch_event(kind, &path),
            Output::HoldRead(watched, seen) => self.hold_read(&watched, seen),
            Output::Pruned(path) => self.of_core.parents.gone(&path),
            Output::MayPrune { task, path, stat } => {
                let may = self.of_core.parents.is_ours(&path, &stat);
                self.connection.with(|machine, now| machine.may_prune(task, may, now));
            }
            Output::FolderListed(number, listed) => {
                let Some(Watcher::Folder(folder)) = self.callbacks.watcher(number) else { return };
                let goes_on = match &listed {
                    Some((children, pending)) => {
                        folder.notify(Folder::Listed { names: children.names(), pending })
                    }
                    None => {
                        folder.notify(Folder::Changed);
                        false
                    }
                };
                if !goes_on {
                    self.end_watch(number);
                }
            }
            Output::Looked(number, seen) => {
                if let Some(Watcher::Node(teller)) = self.callbacks.watcher(number) {
                    teller.looked(seen.as_ref().map(Option::as_ref).map_err(|code| *code));
                }
            }
            Output::Log(level, text) => match level {
                log::Level::Error => error!("{text}"),
                log::Level::Warn => warn!("{text}"),
                log::Level::Info => info!("{text}"),
                log::Level::Debug | log::Level::Trace => debug!("{text}"),
            },
            // The connection has passed these on to their callers, and to the mechanism of SASL.
            Output::Answered(..) | Output::Done(..) | Output::Closed(_) | Output::Sasl(_) => {}
        }
    }

    fn tell_losses(&self) {
        let lost = std::mem::take(&mut *self.lost.lock());
        lease::notify_lost(&lost);
    }

    fn run_timers(&self, now: BootTime) -> Option<BootTime> {
        let next_look = self.delete_empty_parents(now);
        self.callbacks.run_timers(now).into_iter().chain(next_look).min()
    }

    fn lease(&self, now: BootTime) -> LeaseStatus {
        LeaseStatus { end: self.lease.needed_end(), is_fresh: self.lease.is_fresh(now) }
    }

    fn to_watch(&self, epoch: u64, now: BootTime) -> Vec<WatchedNode> {
        let watched = |node: Arc<LeasedNode>| WatchedNode {
            path: node.path().to_owned(),
            czxid: node.czxid(),
        };
        self.lease.to_watch(epoch, now).into_iter().map(watched).collect()
    }

    fn next_watch(&self, epoch: u64) -> Option<BootTime> {
        self.lease.next_watch(epoch)
    }
}

impl Generation {
    /// Notifies the simulation's observer of what has happened to the session.
    #[cfg(zk_sim)]
    fn show(&self, news: impl FnOnce(i64) -> News) {
        if let Some(session) = self.session_id() {
            observed::notify(|| news(session));
        }
    }

    /// A held node was read, and a watch was set on it: `seen` is the node that was there. If the
    /// held node was released meanwhile, nothing happens.
    fn hold_read(&self, watched: &WatchedNode, seen: Option<(i64, Vec<u8>)>) {
        let held = self.lease.leased_node(&watched.path);
        let Some(node) = held.filter(|node| node.czxid() == watched.czxid) else { return };
        match seen {
            Some((czxid, data)) if node.is_node(czxid) => node.listener().read(&data),
            _ => self.lease.node_gone(&node, BootTime::now()),
        }
    }

    fn granted(&self, timeout: Duration) {
        self.timeout_ms
            .store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Reports how much of the lease is left, before it is renewed.
    fn report_margin(&self, now: BootTime) {
        let Some(tell) = &self.of_core.tell else { return };
        // Each write of a lock renews the lease too. A renewal that comes late comes long after the
        // one before, so it is never left out.
        if now.since(self.margin_reported.get()) < self.timeout() / 12 {
            return;
        }
        if let Some(end) = self.lease.needed_end() {
            self.margin_reported.set(now);
            tell(Notice::LeaseMargin(end.since(now)));
        }
    }

    /// Notifies the threads that wait for an event of this node.
    fn watch_event(&self, kind: i32, path: &str) {
        let is_gone = kind == event::DELETED;
        // The node is marked as lost before the waiters are notified. In the other order a waiter
        // of this process could take the lock while our guard still says that it is held.
        if is_gone {
            self.held_node_gone(path);
        }
        self.nodes.notify(path, is_gone);
        self.raw.tell(RawNews::Watch { kind, path });
        // The same again after the notification. A caller may have put its node under the lease in
        // between, after the first try did not find the node there. A caller that does so before
        // this second try has its node marked here. A caller that does so later finds the
        // notification.
        if is_gone {
            self.held_node_gone(path);
        } else if let Some(node) = self.lease.leased_node(path) {
            self.lease.rearm(&node);
            self.connection.wake(); // the event loop sets the watch
        }
    }

    /// Marks this node as lost, if it is held.
    fn held_node_gone(&self, path: &str) {
        if let Some(node) = self.lease.leased_node(path) {
            self.notify_later(self.lease.mark_gone(&node, BootTime::now()));
        }
    }

    /// Lets the event loop notify the holders of these nodes, which are marked as lost.
    fn notify_later(&self, mut lost: Vec<Arc<LeasedNode>>) {
        if !lost.is_empty() {
            self.lost.lock().append(&mut lost);
            self.connection.wake();
        }
    }
}
