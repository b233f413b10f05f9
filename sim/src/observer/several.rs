//! A call for several locks that has lost one of them ends soon.
//!
//! It cannot succeed any more, and while it waits for the next member it keeps the others from
//! everybody. So it has to end whatever the network does: at once, and within the time of a single
//! step at the latest.

use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_sim_runtime::library::this_thread;
use zk_sim_runtime::thread::ThreadId;
use zk_sim_runtime::{ProcessId, is_alive, now, process_name, stopped_for, this_process};

use super::{Broken, Observer, Seen, report};

const IN_VAIN: &str = "waits in vain";

/// A call for several locks as one.
pub(super) struct Several {
    process: ProcessId,
    since: Duration,
    /// The member that was found to be lost first: its path, when that was found, and how long the
    /// process had been stopped by then.
    lost: Option<(String, Duration, Duration)>,
}

impl Observer {
    /// The calling thread begins to wait for several locks as one.
    pub fn waits_for_several(&self) {
        let (Some(process), thread) = (this_process(), this_thread()) else { return };
        self.seen(|seen| {
            seen.several.insert(thread, Several { process, since: now(), lost: None });
        });
    }

    /// The wait of the calling thread for several locks has ended.
    pub fn waited_for_several(&self) {
        let own = this_thread();
        report(self.seen(|seen| {
            let call = seen.several.remove(&own)?;
            seen.in_vain(&call)
        }));
    }
}

impl Seen {
    /// The thread of a call for several locks releases a hold that was lost: this ends the call.
    pub(super) fn count_lost_members(&mut self, thread: ThreadId, hold: &Observed) {
        if self.several.contains_key(&thread) && hold.lost_reason().is_some() {
            self.counts.note(IN_VAIN);
        }
    }

    /// Checks that no call goes on although it has lost a member.
    pub(super) fn wait_in_vain(&mut self) -> Option<Broken> {
        self.several.retain(|_, call| is_alive(call.process));
        let mut all = std::mem::take(&mut self.several);
        let mut broken = None;
        for (thread, call) in &mut all {
            if call.lost.is_none() {
                let mut holds = self.holds.iter().filter(|hold| {
                    hold.thread == *thread
                        && hold.since >= call.since
                        // Who loses its place in that queue begins anew.
                        && !hold.is_of_a_queue_for_permits(&self.setting.places)
                });
                // Only the mark is final.
                call.lost = holds
                    .find(|hold| hold.hold.lost_reason().is_some())
                    .map(|hold| (hold.hold.path.clone(), now(), stopped_for(call.process)));
            }
            broken = broken.or_else(|| self.in_vain(call));
        }
        self.several = all;
        broken
    }

    fn in_vain(&self, call: &Several) -> Option<Broken> {
        let (path, since, before) = call.lost.as_ref()?;
        let stopped = stopped_for(call.process) - *before;
        // The process's clock may be slower than the world's.
        let step = self.setting.session_timeout / 6 + super::LATE;
        let limit = step * self.setting.slowness() * 2 + stopped;
        let who = process_name(call.process);
        let text = format!(
            "{path} is lost to {who} since {since:?}, and a call that had taken it goes on to wait \
             for another lock"
        );
        (now() > *since + limit).then_some((IN_VAIN, text))
    }
}
