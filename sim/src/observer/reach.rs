//! A session comes back while servers can be reached.
//!
//! * *Away*: while a majority of the servers takes part, and one of it serves and is reachable for a
//!   process, by an address that the resolver tells it in time, a session that its client and the
//!   leader still have is connected again within [`Bound::away`].
//! * *Lost within reach*: if that lasts for [`Bound::hold`], and nothing else has happened to the
//!   connection of the process meanwhile, its holds are not lost: the session had a connection
//!   again, and time to renew its lease, before the first of them could end.
//! * *Gone address*: a process does not dial an address that no newest answer has.
//! * *Another ensemble*: a session that the leader still has is not given up because a server of
//!   another ensemble does not know it, at an address that the resolver no longer says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zk_mutex_simulated::LossReason;
use zk_sim_runtime::net::{Answer, Connection, Dialling};
use zk_sim_runtime::{ProcessId, as_world, is_alive, now, process_name, stopped_for, this_process};

use super::waits::Down;
use super::{Broken, LATE, Observer, Seen, Setting, report};
use crate::names::{Names, Reach};
use crate::servers::Servers;

const AWAY: &str = "away";
const LOST: &str = "lost within reach";
const GONE: &str = "gone address";
const STRANGERS: &str = "another ensemble";

/// How long a session that its process has dropped may dial, to close itself.
const CLOSES: Duration = Duration::from_secs(1);

/// What the processes were told of the servers' addresses, and what has happened to them.
#[derive(Default)]
pub(super) struct Reaching {
    /// When something last happened to the connection of each process.
    disturbed: BTreeMap<ProcessId, Duration>,
    disturbed_all: Duration,
    /// How long each process had been stopped, and when that changed last.
    stopped: BTreeMap<ProcessId, (Duration, Duration)>,
    answers: BTreeMap<ProcessId, BTreeMap<String, Vec<IpAddr>>>,
    /// The addresses that each process was told before and no more: since when, and how long it had
    /// been stopped by then.
    gone: BTreeMap<ProcessId, BTreeMap<IpAddr, (Duration, Duration)>>,
    /// When each process last let a client go: it was closed, or could not connect. A thread of the
    /// library goes on to close its session, and knows no answers to the look-ups of the next client.
    let_go: BTreeMap<ProcessId, Duration>,
    /// The session that another ensemble did not know last, and whether the process had to know
    /// that the address was gone.
    refused: BTreeMap<ProcessId, (i64, SocketAddr, bool)>,
}

/// How long it may take, in the worst case that the dialer allows.
///
/// With N addresses, m of which take a connection and no session, and s of which are silent: one
/// pass over all addresses takes N times the longest time between two attempts (250 ms), T/6 for
/// each handshake that is not answered, and T/6 for each three silent addresses, since three
/// sockets connect at once. An address that refuses costs no more than its attempt. Between two
/// passes there is a pause of T/8 at most. A pass that was under way when the server came may have
/// passed it by, and may be in a handshake.
pub(super) struct Bound {
    timeout: Duration,
    pass: Duration,
    slowness: u32,
}

impl Bound {
    fn new(setting: &Setting, reach: &Reach) -> Bound {
        let timeout = setting.session_timeout;
        let waits = reach.mute + reach.silent / 3;
        let pass = Duration::from_millis(250) * reach.targets + timeout / 6 * waits;
        Bound { timeout, pass, slowness: setting.slowness() }
    }

    /// The session is back. `is_first`: it was lost while the server could be reached.
    fn away(&self, is_first: bool) -> Duration {
        let first = self.pass + self.timeout / 8 + self.timeout / 16 + LATE;
        let before = if is_first { Duration::ZERO } else { self.pass + self.timeout / 6 };
        self.by_clocks(first + before)
    }

    /// The lease is renewed: a request is sent within T/8, its silence is noticed T/6 later, and when
    /// the session is back the proof takes half a tick, T/12 and some packets.
    fn hold(&self, setting: &Setting) -> Duration {
        let noticed = self.timeout / 8 + self.timeout / 6;
        let renewed = setting.tick / 2 + self.timeout / 12 + self.timeout / 8;
        self.away(false) + self.by_clocks(noticed + renewed)
    }

    /// Clocks of processes drift within their bound.
    fn by_clocks(&self, time: Duration) -> Duration {
        time.mul_f64(1.05) * self.slowness
    }
}

impl Observer {
    /// Something may happen to the connection of this process, or of each process.
    pub fn disturbs(&self, process: Option<ProcessId>) {
        self.seen(|seen| match process {
            Some(process) => drop(seen.reaching.disturbed.insert(process, now())),
            None => seen.reaching.disturbed_all = now(),
        });
    }

    /// The calling process has closed its client, or could not connect.
    pub fn lets_a_client_go(&self) {
        if let Some(process) = this_process() {
            self.seen(|seen| seen.reaching.let_go.insert(process, now()));
        }
    }

    /// A server of another ensemble is about to say that it does not know this session.
    pub fn is_refused_by_others(&self, about: &Connection, session: i64, names: &Names) {
        let (process, at) = (about.process, about.to);
        let lasts = self.seen(|seen| seen.setting.session_timeout / 6);
        let is_gone = names.is_gone(process, at.ip(), lasts);
        self.seen(|seen| {
            // A session that the client has let go is only closed.
            if seen.unserved.may_be_let_go(session, &seen.setting) {
                return;
            }
            if is_gone {
                seen.counts.note(STRANGERS);
            }
            seen.reaching.refused.insert(process, (session, at, is_gone));
        });
    }

    /// Begins to observe what the processes of this run dial.
    pub(super) fn watch_dialling(&self, names: &Names) {
        let (observer, names) = (self.clone(), names.clone());
        zk_sim_runtime::net::watch_dialling(move |process, step| {
            as_world(|| match step {
                Dialling::Answered(name, answer) => {
                    observer.seen(|seen| seen.reaching.answered(process, name, answer));
                }
                Dialling::Dialled(to) if names.is_fixed(to.ip()) => {}
                Dialling::Dialled(to) => report(observer.seen(|seen| seen.dialled(process, to))),
            });
        });
    }

    /// Checks that no session is away for too long, and that no hold is lost within reach.
    pub(super) fn look_at_reach(&self, servers: &Servers, names: &Names) {
        let sessions: BTreeSet<i64> = servers.sessions().into_iter().collect();
        let away = self.seen(|seen| {
            let away = seen.down.iter().filter(|(process, _)| is_alive(**process));
            away.filter_map(|(process, down)| Some((*process, down.since()?))).collect::<Vec<_>>()
        });
        for (process, since) in away {
            let reach = names.reach(servers, process, since);
            report(self.seen(|seen| {
                let down = seen.down.get(&process)?;
                seen.is_away(process, down, reach, &sessions)
            }));
        }
        let holders: BTreeSet<ProcessId> =
            self.seen(|seen| seen.holds.iter().map(|hold| hold.process).collect());
        for process in holders.into_iter().filter(|process| is_alive(*process)) {
            let reach = names.reach(servers, process, Duration::ZERO);
            report(self.seen(|seen| seen.lost_within_reach(process, reach)));
        }
    }
}

impl Seen {
    /// The process has this session on a new connection.
    pub(super) fn is_back(
        &mut self,
        process: ProcessId,
        session: i64,
        reach: Option<Reach>,
        sessions: &BTreeSet<i64>,
    ) -> Option<Broken> {
        let refused = self.reaching.refused.remove(&process);
        if let Some((before, at, true)) = refused
            && before != session
            && self.newest_session.get(&process) == Some(&before)
            && sessions.contains(&before)
            && !self.setting.closes
            && !self.ended_by_others.contains(&before)
        {
            let who = process_name(process);
            let text = format!("{who} gave session {before:#x} up, which {at} did not know");
            return Some((STRANGERS, text));
        }
        let down = self.down.get(&process)?;
        if reach.is_some() && self.may_be_away(process, down, sessions) {
            self.counts.note(AWAY);
        }
        let down = self.down.get(&process)?;
        self.is_away(process, down, reach, sessions)
    }

    /// Whether the session of this process still is to be resumed, and nothing kept the process from
    /// it.
    fn may_be_away(&self, process: ProcessId, down: &Down, sessions: &BTreeSet<i64>) -> bool {
        let session = self.newest_session.get(&process);
        !self.setting.closes
            && session.is_some_and(|session| {
                sessions.contains(session)
                    && !self.over.contains(session)
                    && !self.ended_by_others.contains(session)
            })
            && down.was_running(process)
    }

    fn is_away(
        &self,
        process: ProcessId,
        down: &Down,
        reach: Option<Reach>,
        sessions: &BTreeSet<i64>,
    ) -> Option<Broken> {
        let (reach, since) = (reach?, down.since()?);
        if !self.may_be_away(process, down, sessions) {
            return None;
        }
        let bound = Bound::new(&self.setting, &reach).away(reach.since <= since);
        let away = now().checked_sub(reach.since.max(since))?;
        let text = || {
            format!(
                "{} has had no connection since {since:?}, and could have had one for {away:?}, \
                 {bound:?} at most: {reach:?}",
                process_name(process)
            )
        };
        (away > bound).then(|| (AWAY, text()))
    }

    fn lost_within_reach(&mut self, process: ProcessId, reach: Option<Reach>) -> Option<Broken> {
        let stopped = stopped_for(process);
        let (known, changed) =
            self.reaching.stopped.entry(process).or_insert((stopped, Duration::ZERO));
        if *known != stopped {
            (*known, *changed) = (stopped, now());
        }
        let changed = *changed;
        if self.setting.is_tight || self.setting.may_overlap || self.setting.closes {
            return None;
        }
        let reach = reach?;
        let disturbed = self.reaching.disturbed.get(&process).copied().unwrap_or_default();
        let since = reach.since.max(disturbed).max(self.reaching.disturbed_all).max(changed);
        let bound = Bound::new(&self.setting, &reach).hold(&self.setting);
        // The loss may be as old as the last look. Older ones have been noted.
        let looked = self.setting.session_timeout / 8;
        let mut broken = None;
        for hold in self.holds.iter_mut().filter(|hold| hold.process == process) {
            if now() < since.max(hold.since) + bound + looked || hold.lost.is_some() {
                continue;
            }
            let reason = hold.hold.lost_reason();
            let is_ours =
                hold.hold.session_id().is_some_and(|id| !self.ended_by_others.contains(&id));
            if !is_ours {
                continue;
            }
            if !std::mem::replace(&mut hold.was_in_reach, true) {
                self.counts.note(LOST);
            }
            if matches!(reason, Some(LossReason::LeaseExpired | LossReason::SessionExpired)) {
                let text = format!(
                    "{} is lost to {} ({reason:?}), with servers within reach since {since:?}, \
                     {bound:?} at most: {reach:?}",
                    hold.hold.path,
                    process_name(process)
                );
                broken = broken.or(Some((LOST, text)));
            }
        }
        broken
    }

    /// A process begins to connect to an address that it has from a name.
    fn dialled(&mut self, process: ProcessId, to: SocketAddr) -> Option<Broken> {
        let gone = self.reaching.gone.get(&process).filter(|gone| !gone.is_empty())?;
        let slowness = self.setting.slowness();
        let let_go = self.reaching.let_go.get(&process);
        if let_go.is_some_and(|let_go| now() < *let_go + (CLOSES + LATE) * slowness) {
            return None;
        }
        let broken = gone.get(&to.ip()).filter(|(since, stopped)| {
            now() > *since + LATE * slowness && *stopped == stopped_for(process)
        });
        let broken = broken.map(|(since, _)| {
            format!("{} dials {to}, and was told {since:?} that it is gone", process_name(process))
        });
        self.counts.note(GONE);
        broken.map(|text| (GONE, text))
    }
}

impl Reaching {
    /// A server has taken up a session of this process, which was not given up before.
    pub(super) fn is_taken_up(&mut self, process: ProcessId, session: i64) {
        if self.refused.get(&process).is_some_and(|(refused, ..)| *refused == session) {
            self.refused.remove(&process);
        }
    }

    /// The server at this address knows no session of this process. If that is one of its own
    /// ensemble, the session ends by its word: a leader that is cut off has expired it, say, and the
    /// next leader still has it.
    pub(super) fn is_not_taken_up(&mut self, process: ProcessId, at: SocketAddr) {
        if self.refused.get(&process).is_some_and(|(_, other, _)| *other != at) {
            self.refused.remove(&process);
        }
    }

    /// A look-up has ended. A failure says nothing of the name.
    fn answered(&mut self, process: ProcessId, name: String, answer: Answer) {
        let ips = match answer {
            Answer::Addresses(ips) => ips,
            Answer::NoSuchName => Vec::new(),
            Answer::Failure => return,
        };
        let answers = self.answers.entry(process).or_default();
        let known = |answers: &BTreeMap<String, Vec<IpAddr>>| {
            answers.values().flatten().copied().collect::<BTreeSet<IpAddr>>()
        };
        let before = known(answers);
        answers.insert(name, ips);
        let after = known(answers);
        let gone = self.gone.entry(process).or_default();
        gone.retain(|ip, _| !after.contains(ip));
        let new = before.difference(&after).map(|ip| (*ip, (now(), stopped_for(process))));
        gone.extend(new);
    }
}
