//! `zk-lock ls`: which locks there are.

use serde_json::json;
use zk_mutex::ZkSession;

use crate::cli::{Common, LsArgs};
use crate::exit::Failure;
use crate::nodes::queue::{Queue, Standing};
use crate::nodes::record::TOP;
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
            output.report("lock", queue.json(), "")?;
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
        rows.push(vec![queue.path.clone(), queue.kind.name().to_owned(), place, age, waiting]);
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
        let read = zk::children(session, &path).and_then(|children| match children {
            Some(children) => Standing::of(session, &path, &children),
            None => Ok(None),
        });
        match read {
            Ok(None) => {}
            Ok(Some(standing)) => {
                // Below a lock there may be others: /locks can be a lock and a folder.
                let others = standing.others.iter();
                let others = others
                    .filter(|child| path != "/" || !["zookeeper", TOP].contains(&child.as_str()));
                todo.extend(others.map(|child| zk::join(&path, child)));
                found.extend(standing.in_use().cloned());
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
