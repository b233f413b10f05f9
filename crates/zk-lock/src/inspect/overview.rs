//! `zk-lock ls --watch`: all locks below a path, as they change.
//!
//! Nothing tells of changes anywhere in a tree, and a watch on each folder would read at each lock
//! and unlock. So the whole tree is read again and again; `follow.rs` bounds how often.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Instant;

use serde_json::json;
use zk_mutex::ZkSession;

use super::follow::{Follow, Notifier};
use super::limits::{Found, Limits};
use super::list;
use super::watch::{clock, time_ms};
use crate::cli::{Common, LsArgs};
use crate::connect;
use crate::exit::Failure;
use crate::nodes::queue::LockKind;
use crate::nodes::since::Since;
use crate::nodes::tree::Tree;
use crate::output::Output;
use crate::time::show;

pub fn run(common: &Common, args: &LsArgs, output: &Output) -> Result<u8, Failure> {
    let limits = Limits::of(&args.limits);
    let follow = Follow::start(|| connect::session(common), args.duration, output)?;
    let path = args.path.clone();
    let look = move |session: &ZkSession, _: &mut Notifier| {
        Ok((Instant::now(), Tree::read(session, &path)?))
    };
    let is_screen = !output.json && io::stdout().is_terminal();
    let (mut since, mut hidden, mut before) = Default::default();
    let end = follow.run(args.every, look, |looked| {
        let Some((began, tree)) = looked else { return Ok(ControlFlow::Continue(())) };
        tell_newly_hidden(&mut hidden, tree.hidden, output);
        Since::note(&mut since, &tree.queues, began);
        let found = limits.pick(tree.queues, &since);
        if is_screen {
            let text = match found.is_empty() {
                true => list::nothing(args, &limits),
                false => fitted(&list::render(&found, &limits), rows()),
            };
            output.screen(&format!("{text}\n\n(ctrl-c ends)"))?;
        } else {
            tell_changes(&mut before, &found, &limits, output)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end.code())
}

/// Each hidden node is told once.
fn tell_newly_hidden(known: &mut HashSet<String>, now: Vec<(String, String)>, output: &Output) {
    for hidden in now {
        if !known.contains(&hidden.0) {
            list::tell_hidden(&hidden, output);
            known.insert(hidden.0);
        }
    }
}

/// The first lines of a table, as many as a screen with so many rows has room for.
fn fitted(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // Below the table stand an empty line, the line about ctrl-c, and the cursor.
    let room = rows.saturating_sub(4).max(2);
    if lines.len() <= room + 1 {
        return text.to_owned();
    }
    format!("{}\nand {} more", lines[..room].join("\n"), lines.len() - room)
}

/// How many rows the terminal has.
fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row);
    if size == 0 { 24 } else { usize::from(size) }
}

/// What is seen of a lock: who holds it and waits for it, and the limits that it is over.
type Seen = (Vec<(String, bool, i32)>, Vec<&'static str>);

/// A line for each lock that has changed, and for each that is not there any more.
fn tell_changes(
    before: &mut BTreeMap<(String, &'static str), Seen>,
    found: &[Found],
    limits: &Limits,
    output: &Output,
) -> Result<(), Failure> {
    let mut now = BTreeMap::new();
    for one in found {
        let queue = &one.queue;
        let contenders = queue.contenders.iter();
        let contenders = contenders.map(|one| (one.path.clone(), one.holds, one.stat.version));
        let seen = (contenders.collect::<Vec<_>>(), one.over.clone());
        let key = (queue.path.clone(), queue.kind.name());
        if before.get(&key) != Some(&seen) {
            tell_lock(one, limits, output)?;
        }
        now.insert(key, seen);
    }
    for (path, kind) in before.keys().filter(|key| !now.contains_key(key)) {
        // With limits it may be in use as before.
        let event = if limits.are_set() { "within_limits" } else { "free" };
        let fields = json!({"path": path, "kind": kind, "time_ms": time_ms()});
        let text = format!("{} {path} {kind} {}", clock(), event.replace('_', " "));
        output.report(event, fields, &text)?;
    }
    *before = now;
    Ok(())
}

fn tell_lock(found: &Found, limits: &Limits, output: &Output) -> Result<(), Failure> {
    let mut fields = limits.json(found);
    fields["time_ms"] = json!(time_ms());
    let queue = &found.queue;
    let verb = if queue.kind == LockKind::Election { "led by" } else { "held by" };
    let held = match (list::held_by(found), found.held) {
        (Some(by), Some(time)) => format!("{verb} {by} for {}", show(time)),
        _ => "held by nobody".to_owned(),
    };
    let (path, kind, waiting) = (&queue.path, queue.kind.name(), queue.waiting());
    let over = match found.over.as_slice() {
        [] => String::new(),
        over => format!(", over {}", over.join(" and ")),
    };
    let text = format!("{} {path} {kind} {held}, waiting: {waiting}{over}", clock());
    output.report("lock", fields, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_long_for_the_screen_says_how_much_is_missing() {
        let table = "LOCK\na\nb\nc\nd\ne";
        assert_eq!(fitted(table, 24), table);
        assert_eq!(fitted(table, 9), table);
        assert_eq!(fitted(table, 8), "LOCK\na\nb\nc\nand 2 more");
        assert_eq!(fitted(table, 0), "LOCK\na\nand 4 more");
    }
}
