//! Watches the command and the lock, and ends the command in time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::crossbeam_channel::Select;

use super::child::{Child, Status};
use super::guard::{Deed, Ending};
use super::hold::Hold;
use super::plan::Plan;
use super::reports::{Moment, Reports};
use crate::exit::Failure;
use crate::signals::{self, Signals};
use crate::time::{boot_millis, millis, show};

/// Nothing that has no event of its own is noticed later than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// While the group is to end, in which processes may be that are no children of ours.
const SHORT_PAUSE: Duration = Duration::from_millis(10);
/// This thread looks each second. If it comes so much later, it was stopped, or got no processor.
const PAUSED: Duration = Duration::from_secs(2);
/// After SIGKILL, where the lock is lost already: a process that the kernel does not let go is left
/// behind then.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the group is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The lock is lost, or is about to be.
    Loss,
    MaxHold,
    Revoked,
    /// The command has ended and left processes behind.
    LeftBehind,
}

struct Begun {
    why: Why,
    since: Instant,
    killed: Option<Instant>,
}

/// How the command has ended.
pub struct Outcome {
    /// The exit status of zk-lock.
    pub code: u8,
    /// Why, if the lock was lost, or was about to be, before the command had ended.
    pub lost: Option<String>,
}

/// Runs the prepared command to its end. However this returns, no process of the command is left,
/// as far as the kernel ends it.
pub fn supervise(
    hold: &dyn Hold,
    plan: &Plan,
    since: Instant,
    mut child: Child,
    signals: &Signals,
    reports: &Reports,
) -> Result<Outcome, Failure> {
    match watch(hold, plan, since, &mut child, signals, reports) {
        Ok(outcome) => {
            child.finish();
            Ok(outcome)
        }
        Err(failure) => {
            child.abort();
            Err(failure)
        }
    }
}

fn watch(
    hold: &dyn Hold,
    plan: &Plan,
    since: Instant,
    child: &mut Child,
    signals: &Signals,
    reports: &Reports,
) -> Result<Outcome, Failure> {
    let lost = hold.lost();
    let revokes = hold.revoke_requests();
    let mut is_asked_for = false;
    let mut ending: Option<Begun> = None;
    let mut told: Option<String> = None;
    let mut is_to_go_on = false;
    // The shortest time in which the command can be ended.
    let needed = plan.grace + plan.margin;
    // The guard hears of a renewed lease from this thread. With a session of 6 s there are 0.8 s
    // for that, from the renewal to the time at which it would act on the lease that it knows.
    let look = LONGEST_PAUSE.min(plan.margin * 5 / 2);
    let mut lease = Lease::new();
    let Some(end) = lease.look(hold).filter(|end| *end > Instant::now() + needed) else {
        let text = format!("{} was lost: {}", hold.name(), lease.reason(hold));
        return Err(Failure::new(plan.loss_status, "lost", text));
    };
    // Those that came while the lock was waited for are not the command's.
    while signals.events.try_recv().is_ok() {}
    if let Some(signal) = signals.ending() {
        return Err(Failure::signalled(signal));
    }
    signals.has_command.store(true, Ordering::SeqCst);
    // From its first moment on the command has a guard that knows when the lease ends.
    child.guard.lease(end.saturating_duration_since(Instant::now()));
    child.begin()?;
    // Whether the lock was held when the command was found to have ended.
    let mut ended_in_time = None;
    loop {
        while let Ok(signal) = signals.events.try_recv() {
            if signal == signals::STOP && child.status.is_none() {
                child.stop_it_too();
                is_to_go_on = true;
            } else if signals::is_passed_on(signal) && child.status.is_none() {
                let name = signals::name(signal);
                reports.note("passed_on", &format!("{name} goes to the command"), json!({}));
                child.signal(signal);
            }
        }
        child.reap();
        is_to_go_on |= child.stop_with_it();
        let now = Instant::now();
        let end = lease.look(hold);
        match end {
            Some(end) => child.guard.lease(end.saturating_duration_since(now)),
            // The guard hears of a loss first that zk-lock ends the command, or it would do so in
            // its place.
            None if ending.as_ref().is_some_and(|begun| begun.why == Why::Loss) => {
                child.guard.lease(Duration::ZERO);
            }
            None => {}
        }
        if child.status.is_some() && ended_in_time.is_none() {
            ended_in_time = Some(end.is_some());
        }
        if child.group_is_gone() {
            break;
        }

        if !is_asked_for && revokes.iter().any(|request| request.is_requested()) {
            is_asked_for = true;
            if !plan.revocable {
                let text = format!(
                    "somebody asks for {} (zk-lock revoke); with --revocable that would end the \
                     command",
                    hold.name()
                );
                reports.warn("revoke_requested", &text, json!({}));
            }
        }
        let is_short = end.is_none_or(|end| end <= now + needed);
        let why = if child.status.is_some() {
            Some(Why::LeftBehind)
        } else if is_short {
            Some(Why::Loss)
        } else if plan.max_hold.is_some_and(|most| now >= since + most) {
            Some(Why::MaxHold)
        } else if is_asked_for && plan.revocable {
            Some(Why::Revoked)
        } else {
            None
        };
        if let Some(why) = why {
            // The lock may go while the command is being ended for another reason.
            let is_new_loss =
                why == Why::Loss && ending.as_ref().is_none_or(|begun| begun.why != Why::Loss);
            if is_new_loss && ending.is_some() {
                child.guard.ending(Ending::Loss);
            }
            let begun = ending.get_or_insert_with(|| {
                child.end(if why == Why::Loss { Ending::Loss } else { Ending::Other });
                let left = end.map(|end| end.saturating_duration_since(now));
                tell(hold, plan, why, left, &lease, reports);
                Begun { why, since: now, killed: None }
            });
            if is_new_loss {
                begun.why = Why::Loss;
                let reason = lease.reason(hold);
                run_on_loss(&reason, plan, child, reports);
                told = Some(reason);
            }
        } else if is_to_go_on {
            child.go_on();
        }
        is_to_go_on = false;

        let mut wake = now + look;
        match &mut ending {
            None => {
                wake = wake.min(end.map_or(now, |end| end - needed));
                if let Some(most) = plan.max_hold {
                    wake = wake.min(since + most);
                }
            }
            Some(Begun { killed: Some(killed), .. }) => {
                if end.is_none() && now >= *killed + KILL_TIMEOUT {
                    let text = "a process of the command does not end, not even by SIGKILL";
                    reports.warn("left_behind", text, json!({"group": child.pid.as_raw_nonzero()}));
                    break;
                }
                child.kill();
                wake = now + SHORT_PAUSE;
            }
            Some(ending) => {
                let kill_at =
                    end.map_or(now, |end| (ending.since + plan.grace).min(end - plan.margin));
                if now >= kill_at {
                    child.kill();
                    ending.killed = Some(now);
                    let text = "SIGKILL to the command's process group";
                    reports.warn("killed", text, json!({"group": child.pid.as_raw_nonzero()}));
                }
                wake = kill_at.max(now).min(now + SHORT_PAUSE);
            }
        }
        let mut select = Select::new();
        select.recv(&signals.events);
        if end.is_some() {
            select.recv(lost.receiver());
        }
        if !is_asked_for {
            revokes.iter().for_each(|request| {
                select.recv(request.receiver());
            });
        }
        let _ = select.ready_deadline(wake);
    }
    signals.has_command.store(false, Ordering::SeqCst);
    // The guard may have ended it while this process was stopped.
    let found = match child.deed() {
        Some(Deed::Ended { at, cause }) => {
            Some((at, cause.text().to_owned(), "the guard has ended the command"))
        }
        Some(Deed::FoundEnded) => None,
        None if ended_in_time == Some(true) => None,
        None => {
            Some((lease.lost_at(), lease.reason(hold), "the command has ended, perhaps after that"))
        }
    };
    if let Some((at, reason, what)) = found.filter(|_| told.is_none()) {
        let text = format!("{}: {what}: {reason}", hold.name());
        reports.loss(at, "lost", &text, json!({"reason": reason}));
        run_on_loss(&reason, plan, child, reports);
        told = Some(reason);
    }
    let status = child.status.map_or(plan.loss_status, Status::code);
    let code = if told.is_some() { plan.loss_status } else { status };
    let fields = json!({"status": code, "command_status": status});
    reports.note("ended", &format!("the command has ended with the status {status}"), fields);
    Ok(Outcome { code, lost: told })
}

/// Starts the command of --on-loss, if there is one, and nobody has started it.
fn run_on_loss(reason: &str, plan: &Plan, child: &mut Child, reports: &Reports) {
    if let Err(e) = child.run_on_loss(reason) {
        let text = format!("--on-loss {}: {e}", plan.on_loss.join(" "));
        reports.warn("on_loss_failed", &text, json!({}));
    }
}

/// What this thread has seen of the lease, and when.
struct Lease {
    /// The end of the lease as it was known last.
    end: Moment,
    looked: Moment,
    /// The time between the last two looks.
    pause: Duration,
}

impl Lease {
    fn new() -> Lease {
        let now = boot_millis();
        Lease { end: now, looked: now, pause: Duration::ZERO }
    }

    /// Until when the lock is held; `None` if it is lost.
    fn look(&mut self, hold: &dyn Hold) -> Option<Instant> {
        let now = boot_millis();
        self.pause = Duration::from_millis(now.saturating_sub(self.looked));
        self.looked = now;
        let end = hold.valid_until();
        if let Some(end) = end {
            self.end = now + millis(end.saturating_duration_since(Instant::now()));
        }
        end
    }

    /// When the lock, which is lost, went, as far as it is known.
    fn lost_at(&self) -> Moment {
        self.end.min(boot_millis())
    }

    /// Why the lock is lost, or is about to be.
    fn reason(&self, hold: &dyn Hold) -> String {
        match (hold.lost_reason(), self.pause) {
            (Some(reason), pause) if pause >= PAUSED => {
                format!("zk-lock did not run for {}, and {reason}", show(pause))
            }
            (None, pause) if pause >= PAUSED => {
                format!("zk-lock did not run for {}, and the lease runs out", show(pause))
            }
            (Some(reason), _) => reason.to_string(),
            (None, _) => {
                "ZooKeeper has not answered for so long that the lease runs out".to_owned()
            }
        }
    }
}

fn tell(
    hold: &dyn Hold,
    plan: &Plan,
    why: Why,
    left: Option<Duration>,
    lease: &Lease,
    reports: &Reports,
) {
    let (name, signal) = (hold.name(), signals::name(plan.signal));
    let grace = left.map(|left| left.saturating_sub(plan.margin).min(plan.grace));
    let then = match grace {
        Some(grace) if !grace.is_zero() => {
            format!("{signal} to the command, and SIGKILL {} later", show(grace))
        }
        _ => "the command is killed".to_owned(),
    };
    let fields = json!({
        "grace_ms": grace.unwrap_or_default().as_millis(),
        "lease_left_ms": left.unwrap_or_default().as_millis(),
        "reason": if why == Why::Loss { Some(lease.reason(hold)) } else { None },
    });
    match why {
        Why::Loss if left.is_some() => {
            let text = format!(
                "ZooKeeper does not answer, and the lease of {name} ends in {}: {then}",
                show(left.unwrap_or_default())
            );
            reports.loss(boot_millis(), "losing", &text, fields);
        }
        Why::Loss => {
            let text = format!("{name} is lost, {}: {then}", lease.reason(hold));
            reports.loss(lease.lost_at(), "lost", &text, fields);
        }
        Why::MaxHold => {
            let most = show(plan.max_hold.unwrap_or_default());
            let text = format!("{name} has been held for {most} (--max-hold): {then}");
            reports.warn("max_hold", &text, fields);
        }
        Why::Revoked => {
            reports.warn("revoked", &format!("somebody asks for {name}: {then}"), fields);
        }
        Why::LeftBehind => {
            let text = format!("the command has ended and left processes behind: {signal} to them");
            reports.note("left_behind", &text, fields);
        }
    }
}

/// Holds on for --min-hold after the command has ended. A signal ends that: the work is done.
pub fn keep_for_min_hold(
    hold: &dyn Hold,
    plan: &Plan,
    since: Instant,
    signals: &Signals,
    reports: &Reports,
) {
    let Some(until) = plan.min_hold.map(|least| since + least) else { return };
    let lost = hold.lost();
    let mut lease = Lease::new();
    // A signal that was passed on to the command was meant for zk-lock too.
    while Instant::now() < until && signals.ending().is_none() {
        while signals.events.try_recv().is_ok() {}
        if lease.look(hold).is_none() {
            let reason = lease.reason(hold);
            let text = format!("{} was lost before --min-hold was over: {reason}", hold.name());
            reports.warn_of(lease.lost_at(), "min_hold_cut", &text, json!({}));
            return;
        }
        let mut select = Select::new();
        select.recv(&signals.events);
        select.recv(lost.receiver());
        let _ = select.ready_deadline(until.min(Instant::now() + LONGEST_PAUSE));
    }
}
