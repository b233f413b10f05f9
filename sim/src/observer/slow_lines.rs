//! A long list on a slow line costs nothing but its own time.
//!
//! The list takes a part of the session timeout there, and all other answers of the session come
//! after its bytes. No fault disturbs the process meanwhile, nor has for two session timeouts.
//!
//! * *Lost on a slow line*: the session keeps its connection, if nothing depends on its lease: no
//!   thread of its process uses a lock, and no hold stands. Otherwise the session may give the
//!   connection up, since the renewal of the lease waits for the list and the lease may have little
//!   left. The next connection renews the lease first, and the hold is kept ("lost without
//!   trouble").
//! * *Long answer*: the list is there within [`ANSWERED`] session timeouts, also if the connection
//!   was given up and the caller had to ask again.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, is_alive, now, process_name, this_process};

use super::{Broken, Observer, Seen, trouble_of};

const LOST: &str = "lost on a slow line";
const LONG: &str = "long answer";

/// The time for a list, in session timeouts. A list takes little more than a quarter. If it was cut
/// short, the caller asks again a twelfth later, and the lease has just been renewed by then.
const ANSWERED: u32 = 1;

/// The slow lines, and what processes do on them.
#[derive(Default)]
pub(super) struct SlowLines {
    /// Since when, and until when, the line of each process is slow.
    lines: BTreeMap<ProcessId, (Duration, Duration)>,
    /// Since when each process waits for its list.
    lists: BTreeMap<ProcessId, Duration>,
    /// When each process last ended to use a lock or to hold it.
    used: BTreeMap<ProcessId, Duration>,
}

impl Observer {
    /// For so long the line from the servers to this process is slow.
    pub fn has_slow_line(&self, process: ProcessId, lasts: Duration) {
        self.seen(|seen| seen.slow_lines.lines.insert(process, (now(), now() + lasts)));
    }

    /// The calling thread begins to list the large folder, and asks again until it has the list.
    pub fn lists_much(&self) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| seen.slow_lines.lists.insert(process, now()));
    }

    /// The calling thread has got the list.
    pub fn has_listed(&self) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| seen.has_listed(process));
    }
}

impl SlowLines {
    /// Whether the line of this process was slow at some time since then.
    pub(super) fn was_slow(&self, process: ProcessId, since: Duration) -> bool {
        self.lines.get(&process).is_some_and(|(from, until)| *from <= now() && *until >= since)
    }

    /// This process ends to use a lock, or to hold it.
    pub(super) fn rests(&mut self, process: ProcessId) {
        self.used.insert(process, now());
    }
}

impl Seen {
    /// Since when this process waits for its list, if nothing but the slow line is in its way.
    fn list_on_slow_line(&self, process: ProcessId) -> Option<Duration> {
        let since = *self.slow_lines.lists.get(&process)?;
        let (from, until) = self.slow_lines.lines.get(&process)?;
        let calm = trouble_of(&self.trouble, process) + self.setting.session_timeout * 2;
        let is_calm = (*from..*until).contains(&since) && since > calm;
        let may_fail = self.setting.may_overlap || self.setting.is_tight;
        (is_calm && !may_fail && is_alive(process)).then_some(since)
    }

    /// Whether nothing depended on the lease of this process from `since` on, nor in the quarter of
    /// a timeout before: a caller that has gone may have asked for a renewal.
    fn needed_no_lease(&self, process: ProcessId, since: Duration) -> bool {
        let used = self.slow_lines.used.get(&process).copied().unwrap_or_default();
        used + self.setting.session_timeout / 4 < since
            && !self.using.keys().any(|(of, _)| *of == process)
            && !self.holds.iter().any(|hold| hold.process == process)
    }

    fn has_listed(&mut self, process: ProcessId) {
        if let Some(since) = self.list_on_slow_line(process) {
            self.counts.note(LONG);
            if self.needed_no_lease(process, since) {
                self.counts.note(LOST);
            }
        }
        self.slow_lines.lists.remove(&process);
    }

    /// Checks that no list waits for too long.
    pub(super) fn list_is_late(&self) -> Option<Broken> {
        let most = self.setting.session_timeout * ANSWERED;
        self.slow_lines.lists.keys().find_map(|process| {
            let since = self.list_on_slow_line(*process)?;
            let text = || format!("{} waits for its list since {since:?}", process_name(*process));
            (now() > since + most).then(|| (LONG, text()))
        })
    }

    /// The session of this process has just lost its connection.
    pub(super) fn is_lost_on_a_slow_line(&self, process: ProcessId) -> Option<Broken> {
        let since = self.list_on_slow_line(process)?;
        let text = || {
            format!(
                "{} lost its connection, and there was nothing but a list, since {since:?}",
                process_name(process)
            )
        };
        self.needed_no_lease(process, since).then(|| (LOST, text()))
    }
}
