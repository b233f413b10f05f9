//! `zk-lock watch`: a queue as it changes, and `elect --observe`: the leader.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use zk_mutex::ZkSession;
use zk_mutex::zk_session::Watched;

use super::follow::{Follow, Notifier};
use super::show;
use crate::cli::{Common, WatchArgs};
use crate::connect;
use crate::exit::Failure;
use crate::nodes::names::Kind;
use crate::nodes::queue::{Contender, Standing};
use crate::output::Output;
use crate::time::millis;

/// A change is noticed after this time at the latest: a change of a contender's data has no event.
const POLL: Duration = Duration::from_secs(1);

/// Each time the queue has changed, `changed` gets the queue before and the queue now.
fn follow(
    common: &Common,
    args: &WatchArgs,
    output: &Output,
    mut changed: impl FnMut(Option<&Standing>, Option<&Standing>) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let follow = Follow::start(|| connect::session(common), args.duration, output)?;
    let path = args.path.clone();
    let look = move |session: &ZkSession, notifier: &mut Notifier| {
        notifier.watch(session, &path, Watched::Children);
        Standing::read(session, &path)
    };
    let key = |standing: &Option<Standing>| {
        let all = standing.iter().flat_map(Standing::contenders);
        all.map(|one| (one.path.clone(), one.holds, one.stat.version)).collect::<Vec<_>>()
    };
    let mut before: Option<Option<Standing>> = None;
    let end = follow.run(POLL, look, |now| {
        let Some(now) = now else { return Ok(ControlFlow::Continue(())) };
        if before.as_ref().is_none_or(|before| key(before) != key(&now)) {
            changed(before.as_ref().and_then(Option::as_ref), now.as_ref())?;
            before = Some(now);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end.code())
}

pub fn run(common: &Common, args: &WatchArgs, output: &Output) -> Result<u8, Failure> {
    let is_screen = !output.json && std::io::stdout().is_terminal();
    follow(common, args, output, |before, now| {
        if is_screen {
            let text = match now.filter(|standing| standing.in_use().next().is_some()) {
                Some(standing) => show::render(standing, None),
                None => format!("{}: nobody holds it or waits for it", args.path),
            };
            return output.screen(&format!("{text}\n\n(ctrl-c ends)"));
        }
        for (event, contender) in changes(before, now) {
            line(output, &args.path, event, contender)?;
        }
        if now.is_none_or(|standing| standing.in_use().next().is_none()) {
            let fields = json!({"path": args.path, "time_ms": time_ms()});
            output.report("free", fields, &format!("{} free", clock()))?;
        }
        Ok(())
    })
}

/// The leader, each time that it changes.
pub fn observe(common: &Common, args: &WatchArgs, output: &Output) -> Result<u8, Failure> {
    let mut known: Option<Option<String>> = None;
    follow(common, args, output, |_, now| {
        let leader =
            now.and_then(|standing| standing.holders().find(|one| one.kind == Kind::Candidate));
        let path = leader.map(|leader| leader.path.clone());
        if known.as_ref() == Some(&path) {
            return Ok(());
        }
        known = Some(path);
        match leader {
            Some(leader) => line(output, &args.path, "leads", leader),
            None => {
                let fields = json!({"path": args.path, "time_ms": time_ms()});
                output.report("no_leader", fields, &format!("{} nobody leads", clock()))
            }
        }
    })
}

/// The event of each contender that has changed.
fn changes<'q>(
    before: Option<&'q Standing>,
    now: Option<&'q Standing>,
) -> Vec<(&'static str, &'q Contender)> {
    let all = |standing: Option<&'q Standing>| standing.into_iter().flat_map(Standing::contenders);
    let old: HashMap<&str, &Contender> =
        all(before).map(|contender| (contender.path.as_str(), contender)).collect();
    let new: HashMap<&str, &Contender> =
        all(now).map(|contender| (contender.path.as_str(), contender)).collect();
    let gone = all(before).filter(|contender| !new.contains_key(contender.path.as_str()));
    let mut changes: Vec<_> = gone.map(|contender| ("gone", contender)).collect();
    for contender in all(now) {
        match old.get(contender.path.as_str()) {
            None if contender.holds => changes.push(("holds", contender)),
            None => changes.push(("waits", contender)),
            Some(before) if !before.holds && contender.holds => changes.push(("holds", contender)),
            Some(before) if !before.is_asked && contender.is_asked => {
                changes.push(("asked", contender));
            }
            Some(_) => {}
        }
    }
    changes
}

fn line(output: &Output, path: &str, event: &str, contender: &Contender) -> Result<(), Failure> {
    let (kind, who) = (contender.kind.name(), contender.describe());
    let text = format!("{} {event:<6} {kind:<9} {} ({who})", clock(), contender.name);
    let fields = json!({"path": path, "time_ms": time_ms(), "contender": contender.json()});
    output.report(event, fields, &text)
}

pub fn time_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The time of the day, in UTC.
pub fn clock() -> String {
    let seconds = time_ms() / 1_000;
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
