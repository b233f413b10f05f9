//! `zk-lock ls`: which locks there are.

use serde_json::json;
use zk_mutex::ZkSession;

use super::queue::Queue;
use crate::cli::{Common, LsArgs};
use crate::exit::Failure;
use crate::output::{Output, table};
use crate::time::show;
use crate::{connect, zk};

pub fn run(common: &Common, args: &LsArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    zk::catch_up(&session)?;
    let mut found = Vec::new();
    walk(&session, &args.path, &mut found, output)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    if output.json {
        for queue in &found {
            output.result(&queue.json().to_string())?;
        }
        return Ok(0);
    }
    if found.is_empty() {
        output.hint("empty", &format!("no lock is in use below {}", args.path), json!({}));
        return Ok(0);
    }
    let mut rows = vec![["LOCK", "KIND", "HELD BY", "FOR", "WAITING"].map(str::to_owned).to_vec()];
    for queue in &found {
        let mut holders = queue.holders();
        let (place, age) = match holders.next() {
            Some(first) => (first.place(), show(first.age())),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let place = match holders.count() {
            0 => place,
            more => format!("{place} and {more} more"),
        };
        let waiting = queue.waiting().to_string();
        rows.push(vec![queue.path.clone(), queue.kind.to_owned(), place, age, waiting]);
    }
    output.result(&table(&rows))?;
    Ok(0)
}

/// All below a node, without recursion: the tree is not ours, and may be deep.
fn walk(
    session: &ZkSession,
    path: &str,
    found: &mut Vec<Queue>,
    output: &Output,
) -> Result<(), Failure> {
    let mut todo = vec![path.to_owned()];
    while let Some(path) = todo.pop() {
        let read = zk::children(session, &path).and_then(|children| {
            let Some(children) = children else { return Ok(None) };
            Ok(Some((Queue::of(session, &path, &children)?, children)))
        });
        match read {
            Ok(None) => {}
            Ok(Some((Some(queue), children))) => {
                // Below a lock there may be others: /locks can be a lock and a folder.
                let is_part =
                    |child: &String| queue.contenders.iter().any(|part| part.name == *child);
                let of_semaphore =
                    |child: &str| queue.kind == "semaphore" && matches!(child, "leases" | "locks");
                let others = children.iter().filter(|c| !is_part(c) && !of_semaphore(c.as_str()));
                todo.extend(others.map(|child| zk::join(&path, child)));
                if !queue.contenders.is_empty() {
                    found.push(queue);
                }
            }
            Ok(Some((None, children))) => {
                let others = children.iter().filter(|child| path != "/" || *child != "zookeeper");
                todo.extend(others.map(|child| zk::join(&path, child)));
            }
            // A node that its ACL hides from us does not end the list.
            Err(e) if e.kind == "denied" => {
                output.warn("denied", &format!("{path} is left out: {}", e.message), json!({}));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
