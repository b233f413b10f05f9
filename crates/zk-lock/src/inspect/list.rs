//! `zk-lock ls`: which locks there are, and which are over a limit.

use serde_json::json;

use super::limits::{Found, Limits};
use super::overview;
use crate::cli::{Common, LsArgs};
use crate::exit::{DENIED, Failure, NOTHING};
use crate::nodes::since::Since;
use crate::nodes::tree::Tree;
use crate::output::{Output, table};
use crate::time::show;
use crate::{connect, zk};

pub fn run(common: &Common, args: &LsArgs, output: &Output) -> Result<u8, Failure> {
    if args.watch {
        return overview::run(common, args, output);
    }
    let session = connect::session(common)?;
    let tree = Tree::read(&session, &args.path)?;
    for hidden in &tree.hidden {
        tell_hidden(hidden, output);
    }
    let limits = Limits::of(&args.limits);
    let found = limits.pick(tree.queues, &Since::default());
    if output.json {
        for one in &found {
            output.report("lock", limits.json(one), "")?;
        }
    } else if !found.is_empty() {
        output.result(&render(&found, &limits))?;
    }
    if !tree.exists {
        let nearest = zk::nearest(&session, &args.path)?;
        let text = format!(
            "there is no node {}, and so no lock below it; the nearest node that exists is \
             {nearest}",
            args.path
        );
        let fields = json!({"path": args.path, "exists": false, "nearest": nearest});
        output.warn("no_path", &text, fields);
    } else if found.is_empty() && tree.hidden.is_empty() {
        output.hint("empty", &nothing(args, &limits), json!({"path": args.path}));
    }
    match (limits.are_set(), found.is_empty(), tree.hidden.len()) {
        (false, false, _) | (_, true, 0) => Ok(0),
        (true, false, _) => Ok(NOTHING),
        // Not all is well only because nothing is seen.
        (are_set, true, count) => {
            let what = if are_set { "over a limit" } else { "in use" };
            let text = format!(
                "no lock that this client can see is {what}, but {count} of the nodes are hidden \
                 from it, and what is below them"
            );
            Err(Failure::new(DENIED, "denied", text))
        }
    }
}

/// Says that a node's ACL hides it.
pub fn tell_hidden((path, why): &(String, String), output: &Output) {
    output.warn("denied", &format!("{path} is left out: {why}"), json!({"path": path}));
}

/// What is said if there is no lock to show.
pub fn nothing(args: &LsArgs, limits: &Limits) -> String {
    let what = if limits.are_set() { "over a limit" } else { "in use" };
    format!("no lock is {what} below {}", args.path)
}

/// The locks as a table.
pub fn render(found: &[Found], limits: &Limits) -> String {
    let mut heads = vec!["LOCK", "KIND", "HELD BY", "FOR", "WAITING"];
    if limits.are_set() {
        heads.push("OVER");
    }
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect()];
    for one in found {
        let queue = &one.queue;
        let mut row = vec![
            queue.path.clone(),
            queue.kind.name().to_owned(),
            held_by(one).unwrap_or_else(|| "-".to_owned()),
            one.held.map_or_else(|| "-".to_owned(), show),
            queue.waiting().to_string(),
        ];
        if limits.are_set() {
            row.push(one.over.join(" "));
        }
        rows.push(row);
    }
    table(&rows)
}

/// One of the holders, and how many more there are.
pub fn held_by(found: &Found) -> Option<String> {
    let mut holders = found.queue.holders();
    let first = holders.next()?;
    // Some clients write nothing into their nodes: then the client and its session are named.
    let place = match (first.data.is_empty(), first.is_asked) {
        (true, false) => format!("{}, session {}", first.client.name(), first.session()),
        _ => first.place(),
    };
    Some(match holders.count() {
        0 => place,
        more => format!("{place} and {more} more"),
    })
}
