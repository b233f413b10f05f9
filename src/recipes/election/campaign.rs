//! The campaign of one candidate: it queues until it leads, and again for each further term. It
//! goes on through outages and lost sessions, and has one node at a time.
//!
//! A candidate's thread (`state.rs`) and a runner ([`Campaign::run`]) use it.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::leadership::{HeldTerm, Leadership};
use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::local::registry::Shared;
use crate::queue::Settings;
use crate::queue::name::{self, Kind};
use crate::queue::request::error;
use crate::queue::request::{Call, Mode, until_got};
use crate::queue::tally::{CallTally, LockTally};
use crate::queue::{Callbacks, HeldNode, Queue, Request, rule};
use crate::recipes::calls::InQueue;
use zk_session::CancelToken;
use zk_session::unstable::{CallError, Core, Ended, Limit, Process, Retry};
use zk_session::world::{HashSet, Instant, Mutex, holds_no_lock, never};

/// The first pause between two checks of a node whose create may still be on its way; each further
/// pause is twice as long.
const PAUSE: Duration = Duration::from_millis(5);

/// What the server needs to know of a candidate.
#[derive(Clone)]
pub(super) struct Campaign {
    /// Its data is the candidate's id.
    pub(super) settings: Arc<Settings>,
    pub(super) shared: Shared<SharedElection>,
}

/// What all elections of one path on one session share.
pub(super) struct SharedElection {
    /// The queue of candidates.
    pub(super) queue: Queue,
    pub(super) tally: Arc<LockTally>,
}

impl InQueue for Campaign {
    fn queue(&self) -> (&Queue, &Core) {
        (&self.shared.queue, self.settings.core())
    }
}

impl Campaign {
    /// The process that has the session.
    pub(super) fn process(&self) -> &Process {
        self.settings.process()
    }

    /// Queues until this candidate leads, through outages and lost sessions. `on_blocked(true)` is
    /// called when the server shows that somebody is ahead, and `on_blocked(false)` when this is
    /// not known any more. `on_retry` is called with each failure after which it tries again.
    ///
    /// Fails only if another attempt cannot help: if it is cancelled, the session is closed, or
    /// access is denied.
    pub(super) fn elect(
        &self,
        cancel: &CancelToken,
        created_nodes: &CreatedNodes,
        on_blocked: &dyn Fn(bool),
        on_retry: &dyn Fn(&Error),
    ) -> Result<(HeldTerm, FencingToken)> {
        self.process().check("run", &self.settings.path)?;
        let call = Call::new("campaign");
        until_got(|| {
            self.shared.tally.count(&call, |tally| {
                let callbacks = Callbacks {
                    on_id: &|id| created_nodes.add(self.settings.core(), id),
                    on_blocked,
                    on_retry,
                    ..Callbacks::NONE
                };
                self.stand(&call, Limit::cancelled_by(cancel), tally, &callbacks).map(Some)
            })
        })
    }

    fn stand(
        &self,
        call: &Call,
        limit: Limit<'_>,
        tally: &CallTally<'_>,
        callbacks: &Callbacks<'_>,
    ) -> Result<(HeldTerm, FencingToken)> {
        let (mut logged, mut refusals) = (None, 0);
        loop {
            let request = Request::new(call, &self.settings, Mode::Wait, limit, tally).enduring();
            request.check_cancelled()?;
            let queue = &self.shared.queue;
            let elected = match queue.acquire(&request, Kind::Latch, callbacks, &mut None) {
                Ok(node) => Ok(node.and_then(|node| self.begin(node, &request))),
                Err(e) => Err(e),
            };
            match elected {
                Ok(Some(elected)) => return Ok(elected),
                Ok(None) => {} // the node was lost before the term began
                Err(e @ (Error::Unavailable { .. } | Error::Server { .. })) => {
                    if logged.as_ref() != Some(&e) {
                        warn!("election {}: {e}; the candidate tries again", self.settings.path);
                        logged = Some(e.clone());
                    }
                    (callbacks.on_retry)(&e);
                    // An outage ends by itself. After a refusal somebody must change something at
                    // the server, and each attempt makes and deletes a node: so the attempts become
                    // less and less frequent.
                    refusals = if matches!(e, Error::Server { .. }) { refusals + 1 } else { 0 };
                    self.pause(refusals, &request)?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether another candidate is ahead of the one that has made these nodes. The listing travels
    /// behind a `sync`. False if there is no answer.
    pub(super) fn is_behind(&self, created_nodes: &CreatedNodes, limit: &Limit<'_>) -> bool {
        let Some(generation) = self.settings.core().generation() else { return false };
        let queue = &self.shared.queue;
        let Ok(listed) = generation.synced_children(queue.dir(), limit) else { return false };
        let id_of = |name: &str| name::parse(name).map_or("", |name| name.id).to_owned();
        let mut names = listed.children.names();
        names.retain(|name| !listed.pending.contains(&id_of(name)));
        // If the numbers carry no order, all candidates are chosen, and any other may be ahead. This
        // may log, so it comes before the lock.
        let ahead = queue.choose(&names, rule::keep_holders);
        let ours = created_nodes.0.lock();
        ahead.iter().any(|name| !ours.contains(&id_of(name)))
    }

    /// Makes a held node a term. `None`: the node is lost.
    fn begin(&self, node: HeldNode, request: &Request<'_>) -> Option<(HeldTerm, FencingToken)> {
        if !node.is_held() {
            return None;
        }
        let path = self.settings.shown(node.path()).to_owned();
        let token = FencingToken::new(node.leased().czxid(), 0);
        let tally = request.tally.acquired(&node, &[]);
        let term = HeldTerm::new(node, path.clone(), tally);
        term.node().ask_for_watch();
        info!("{path}: elected, token {token}");
        Some((term, token))
    }

    /// Waits for T/8. After the second refusal in a row, and after each further one, the time
    /// doubles, up to 8 T.
    fn pause(&self, refusals: u32, request: &Request<'_>) -> Result<()> {
        let timeout = self.settings.session.status().timeout;
        let until = Instant::now() + timeout / 8 * (1 << refusals.saturating_sub(1).min(6));
        match request.limit().or_at(until).recv(&never::<Infallible>()) {
            Ended::Cancelled => Err(request.cancelled()),
            _ => Ok(()),
        }
    }

    /// The runner: stands for election, and calls `lead` in each term, until it returns `Break`.
    pub(super) fn run<T>(
        &self,
        cancel: &CancelToken,
        mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<T> {
        let created_nodes = CreatedNodes::default();
        loop {
            // The drop of `term` ends the term, also after a panic.
            let (term, _) = self.elect(cancel, &created_nodes, &|_| (), &|_| ())?;
            let leadership = term.view();
            if cancel.is_cancelled() {
                return Err(Error::Cancelled { path: self.settings.path.clone() });
            }
            // The term may have ended since it began.
            if !leadership.is_held() {
                continue;
            }
            debug_assert!(holds_no_lock());
            if let ControlFlow::Break(value) = lead(&leadership) {
                return Ok(value);
            }
        }
    }
}

/// The nodes that one candidate has made, by their ids. Nodes that were deleted long ago are left
/// out.
#[derive(Default)]
pub(super) struct CreatedNodes(Mutex<HashSet<String>>);

impl CreatedNodes {
    /// Notes that a node with this id is about to be made.
    pub(super) fn add(&self, core: &Core, id: &str) {
        let pending =
            core.generation().map(|generation| generation.pending_deletes()).unwrap_or_default();
        let mut ids = self.0.lock();
        ids.retain(|id| pending.contains(id));
        ids.insert(id.to_owned());
    }

    /// Waits until all of these nodes that should be deleted are gone. A lost session takes its
    /// nodes with it.
    pub(super) fn until_gone(&self, campaign: &Campaign) -> Result<()> {
        let Settings { session, path, .. } = &*campaign.settings;
        let core = session.core();
        let limit = &Limit::after(core.operation_timeout());
        let Some(generation) = core.generation() else { return Ok(()) };
        let going = &generation.deletes_under_way() & &*self.0.lock();
        let (mut pause, retry) = (PAUSE, Retry::enduring());
        while !generation.lease.is_over() && !going.is_disjoint(&generation.deletes_under_way()) {
            // The connection sends its requests in order. So once a write of its own is
            // acknowledged, most earlier deletes are done; the loop checks that.
            match core.connected("leave", path, limit, &retry) {
                Ok(generation) => drop(generation.prove(limit)),
                Err(zk_session::Error::Closed { .. }) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            if limit.is_past() {
                return Err(error("leave", path.clone(), CallError::ConnectionLoss));
            }
            if !going.is_disjoint(&generation.deletes_under_way()) {
                limit.or_at(Instant::now() + pause).recv(&never::<Infallible>());
                pause *= 2;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ZkElection, ZkSession};
    use log::Level;
    use std::sync::Once;
    use zk_session::unstable::Removal;
    use zk_test_server::{Op, TestServer};
    use zk_test_support::raw::{EPHEMERAL, PERSISTENT};
    use zk_test_support::{Raw, logged};

    /// An earlier node of the candidate is still to be deleted when it makes the next one. `leave`
    /// waits for both.
    #[test]
    fn a_node_on_its_way_out_is_not_forgotten_for_the_next_one() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let core = session.core();
        let _held = server.hold_requests(Op::Delete.on("/e/first"));
        let removal = Removal::named("/e/first".into(), "first".into());
        core.generation().unwrap().remove(removal);
        let created = CreatedNodes::default();
        ["gone", "first", "second", "third"].iter().for_each(|id| created.add(core, id));
        let kept: HashSet<String> = ["first", "third"].map(str::to_owned).into_iter().collect();
        assert_eq!(*created.0.lock(), kept);
    }

    /// The election's node may have no children, and later its listing is too long. The operator is
    /// told what is wrong now.
    #[test]
    fn another_refusal_is_logged_too() {
        static LOG: Once = Once::new();
        LOG.call_once(|| logged::install(env_logger::Builder::new().build()));
        let server = TestServer::start().unwrap();
        let mut raw = Raw::connect(&server.connect_string()).unwrap();
        raw.create("/refused", b"", EPHEMERAL).unwrap();
        // A pause is an eighth of this. A sixth is enough to list the children below.
        let config = Config::new(server.connect_string()).session_timeout(Duration::from_secs(10));
        let session = ZkSession::connect(config).unwrap();
        let election = ZkElection::new(&session, "/refused").unwrap();
        let (cancel, raw, told) = (CancelToken::new(), Mutex::new(raw), Mutex::new(Vec::new()));
        let on_retry = |e: &Error| {
            let (mut told, mut raw) = (told.lock(), raw.lock());
            told.push(format!("election /refused: {e}; the candidate tries again"));
            if told.len() > 1 {
                return cancel.cancel();
            }
            raw.delete("/refused").unwrap();
            raw.create("/refused", b"", PERSISTENT).unwrap();
            // Together their names have more than 16 MiB.
            for child in 10..27 {
                let path = format!("/refused/{child}{}", "x".repeat(1_000_000));
                raw.create(&path, b"", PERSISTENT).unwrap();
            }
        };
        let created = CreatedNodes::default();
        let ended = election.campaign.elect(&cancel, &created, &|_| (), &on_retry);
        assert!(matches!(ended, Err(Error::Cancelled { .. })));
        let told = told.lock();
        assert!(
            told[0].contains("NoChildrenForEphemerals") && told[1].contains("16 MiB"),
            "{:?}",
            *told
        );
        assert_eq!(logged::logged(Level::Warn, "election /refused: "), *told);
    }
}
