//! Watches the command and the lock, and ends the command in time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::crossbeam_channel::Select;

use super::child::{Child, Status};
use super::hold::Hold;
use super::plan::Plan;
use super::signals::{self, Signals};
use crate::exit::{Failure, LOST};
use crate::output::Output;
use crate::time::show;

/// Nothing that has no event of its own is noticed later than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// While the group is to end, in which processes may be that are no children of ours.
const SHORT_PAUSE: Duration = Duration::from_millis(10);
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

struct Ending {
    why: Why,
    since: Instant,
    killed: Option<Instant>,
}

/// Runs the prepared command to its end; gives the exit status. However this returns, no process
/// of the command is left, as far as the kernel ends it.
pub fn supervise(
    hold: &dyn Hold,
    plan: &Plan,
    since: Instant,
    variables: &[(String, String)],
    mut child: Child,
    signals: &Signals,
    output: &Output,
) -> Result<u8, Failure> {
    match watch(hold, plan, since, variables, &mut child, signals, output) {
        Ok(code) => {
            child.finish(plan);
            Ok(code)
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
    variables: &[(String, String)],
    child: &mut Child,
    signals: &Signals,
    output: &Output,
) -> Result<u8, Failure> {
    let lost = hold.lost();
    let revokes = hold.revoke_requests();
    let mut is_asked_for = false;
    let mut ending: Option<Ending> = None;
    let mut is_to_go_on = false;
    // The shortest time in which the command can be ended.
    let needed = plan.grace + plan.margin;
    if hold.valid_until().is_none_or(|end| end <= Instant::now() + needed) {
        let reason = reason(hold);
        return Err(Failure::new(LOST, "lost", format!("{} was lost: {reason}", hold.name())));
    }
    // Those that came while the lock was waited for are not the command's.
    while signals.events.try_recv().is_ok() {}
    if let Some(signal) = signals.ending() {
        return Err(Failure::signalled(signal));
    }
    signals.has_command.store(true, Ordering::SeqCst);
    child.begin()?;
    loop {
        while let Ok(signal) = signals.events.try_recv() {
            if signal == signals::STOP && child.status.is_none() {
                child.stop_it_too();
                is_to_go_on = true;
            } else if signals::is_passed_on(signal) && child.status.is_none() {
                let name = signals::name(signal);
                output.note("passed_on", &format!("{name} goes to the command"), json!({}));
                child.signal(signal);
            }
        }
        child.reap(plan);
        is_to_go_on |= child.stop_with_it();
        let now = Instant::now();
        let end = hold.valid_until();
        child.guard.lease(end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now)));
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
                output.warn("revoke_requested", &text, json!({}));
            }
        }
        let is_short = end.is_none_or(|end| end <= now + needed);
        let why = if is_short {
            Some(Why::Loss)
        } else if child.status.is_some() {
            Some(Why::LeftBehind)
        } else if plan.max_hold.is_some_and(|most| now >= since + most) {
            Some(Why::MaxHold)
        } else if is_asked_for && plan.revocable {
            Some(Why::Revoked)
        } else {
            None
        };
        if let Some(why) = why {
            let begun = ending.get_or_insert_with(|| {
                // The signal comes first: a write to stderr blocks if that is a full pipe.
                child.end(plan.signal);
                tell(hold, plan, why, end.map(|end| end.saturating_duration_since(now)), output);
                Ending { why, since: now, killed: None }
            });
            // The lock may go while the command is being ended for another reason.
            if (begun.why != why || begun.since == now) && why == Why::Loss {
                begun.why = Why::Loss;
                run_on_loss(&reason(hold), plan, variables, child, output);
            }
        } else if is_to_go_on {
            child.go_on();
        }
        is_to_go_on = false;

        let mut wake = now + LONGEST_PAUSE;
        match &mut ending {
            None => {
                wake = wake.min(end.map_or(now, |end| end - needed));
                if let Some(most) = plan.max_hold {
                    wake = wake.min(since + most);
                }
            }
            Some(Ending { killed: Some(killed), .. }) => {
                if end.is_none() && now >= *killed + KILL_TIMEOUT {
                    let text = "a process of the command does not end, not even by SIGKILL";
                    output.warn("left_behind", text, json!({"group": child.pid.as_raw_nonzero()}));
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
                    output.warn("killed", text, json!({"group": child.pid.as_raw_nonzero()}));
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
    let status = child.status;
    // The guard may have ended it while this process was stopped.
    let is_told = ending.is_some_and(|ending| ending.why == Why::Loss);
    let is_lost = is_told
        || child.was_ended_by_guard()
        || matches!(status, Some(Status::Signalled(_))) && hold.valid_until().is_none();
    if is_lost && !is_told {
        let reason = late_reason(hold);
        let text = format!("{}: the command was killed, {reason}", hold.name());
        output.warn("lost", &text, json!({"reason": reason}));
        run_on_loss(&reason, plan, variables, child, output);
    }
    let status = status.map_or(LOST, Status::code);
    let code = if is_lost { LOST } else { status };
    let fields = json!({"status": code, "command_status": status});
    output.note("ended", &format!("the command has ended with the status {status}"), fields);
    Ok(code)
}

/// Starts the command of --on-loss, if there is one.
fn run_on_loss(
    reason: &str,
    plan: &Plan,
    variables: &[(String, String)],
    child: &mut Child,
    output: &Output,
) {
    if let Err(e) = child.run_on_loss(&plan.on_loss, variables, reason) {
        let text = format!("--on-loss {}: {e}", plan.on_loss.join(" "));
        output.warn("on_loss_failed", &text, json!({}));
    }
}

/// Why the lock is lost, or is about to be.
fn reason(hold: &dyn Hold) -> String {
    match hold.lost_reason() {
        Some(reason) => reason.to_string(),
        None => "ZooKeeper has not answered for so long that the lease runs out".to_owned(),
    }
}

/// Why the command is gone before this process has ended it.
fn late_reason(hold: &dyn Hold) -> String {
    match hold.valid_until() {
        // The lease was renewed meanwhile, or has not ended yet.
        Some(_) => "zk-lock got no processor until the lease was about to end".to_owned(),
        None => reason(hold),
    }
}

fn tell(hold: &dyn Hold, plan: &Plan, why: Why, left: Option<Duration>, output: &Output) {
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
        "reason": if why == Why::Loss { Some(reason(hold)) } else { None },
    });
    match why {
        Why::Loss if left.is_some() => {
            let text = format!(
                "ZooKeeper does not answer, and the lease of {name} ends in {}: {then}",
                show(left.unwrap_or_default())
            );
            output.warn("losing", &text, fields);
        }
        Why::Loss => {
            output.warn("lost", &format!("{name} is lost, {}: {then}", reason(hold)), fields);
        }
        Why::MaxHold => {
            let most = show(plan.max_hold.unwrap_or_default());
            let text = format!("{name} has been held for {most} (--max-hold): {then}");
            output.warn("max_hold", &text, fields);
        }
        Why::Revoked => {
            output.warn("revoked", &format!("somebody asks for {name}: {then}"), fields);
        }
        Why::LeftBehind => {
            let text = format!("the command has ended and left processes behind: {signal} to them");
            output.note("left_behind", &text, fields);
        }
    }
}

/// Holds on for --min-hold after the command has ended. A signal ends that: the work is done.
pub fn keep_for_min_hold(
    hold: &dyn Hold,
    plan: &Plan,
    since: Instant,
    signals: &Signals,
    output: &Output,
) {
    let Some(until) = plan.min_hold.map(|least| since + least) else { return };
    if hold.valid_until().is_none() {
        return; // there was a message about the loss
    }
    let lost = hold.lost();
    // A signal that was passed on to the command was meant for zk-lock too.
    while Instant::now() < until && signals.ending().is_none() {
        while signals.events.try_recv().is_ok() {}
        if hold.valid_until().is_none() {
            let text = format!("{} was lost before --min-hold was over", hold.name());
            output.warn("min_hold_cut", &text, json!({}));
            return;
        }
        let mut select = Select::new();
        select.recv(&signals.events);
        select.recv(lost.receiver());
        let _ = select.ready_deadline(until);
    }
}
