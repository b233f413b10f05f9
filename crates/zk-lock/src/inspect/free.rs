//! `zk-lock revoke` and `zk-lock break`: two ways to free a lock.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::json;
use zk_mutex::ZkSession;

use super::queue::{Contender, Queue};
use crate::cli::{BreakArgs, Common, RevokeArgs};
use crate::exit::{Failure, NOTHING};
use crate::output::Output;
use crate::{connect, zk};

/// Asks the holders, or one contender, to let go.
pub fn revoke(common: &Common, args: &RevokeArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(queue) = Queue::read(&session, &args.path)? else {
        return Ok(nobody(output, &args.path));
    };
    let chosen: Vec<&Contender> = match &args.node {
        Some(node) => vec![find(&queue, node)?],
        None => queue.holders().collect(),
    };
    if chosen.is_empty() {
        return Ok(nobody(output, &args.path));
    }
    let mut asked = 0;
    for contender in chosen {
        if session.attempt_revoke(&contender.path)?.is_none() {
            continue; // it has gone by itself
        }
        asked += 1;
        let text = format!("asked to let go: {} ({})", contender.name, contender.describe());
        let value = json!({"event": "asked", "contender": contender.json()});
        output.result(&if output.json { value.to_string() } else { text })?;
    }
    if asked > 0 {
        output.hint(
            "advice",
            "the holder lets go when it will; a command under `zk-lock run` only with --revocable",
            json!({}),
        );
    }
    Ok(if asked > 0 { 0 } else { nobody(output, &args.path) })
}

/// Deletes one node.
pub fn break_lock(common: &Common, args: &BreakArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(queue) = Queue::read(&session, &args.path)? else {
        return Ok(nobody(output, &args.path));
    };
    let contender = find(&queue, &args.node)?;
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(format!(
                "break deletes {} ({}). Nobody is here to ask: say --yes if that is meant",
                contender.path,
                contender.describe()
            )));
        }
        if !confirmed(&session, contender) {
            output.warn("kept", "nothing was deleted", json!({}));
            return Ok(NOTHING);
        }
    }
    // The czxid identifies a node for ever. If another client has made a node of the same name
    // meanwhile, its czxid differs, and that node must stay.
    let path = &contender.path;
    let deleted = match zk::data(&session, path)? {
        Some((_, stat)) if stat.czxid == contender.stat.czxid => {
            zk::delete(&session, path, stat.version)?
        }
        _ => false,
    };
    if !deleted {
        let text = format!("{path} has gone or changed meanwhile: nothing was deleted");
        output.warn("changed", &text, json!({"path": path}));
        return Ok(NOTHING);
    }
    let text = format!("deleted {path}");
    let value = json!({"event": "deleted", "contender": contender.json()});
    output.result(&if output.json { value.to_string() } else { text })?;
    Ok(0)
}

fn confirmed(session: &ZkSession, contender: &Contender) -> bool {
    let meaning = if contender.holds {
        format!(
            "This contender HOLDS the lock. Its client is told within a moment if it watches its \
             node (zk-mutex does, Curator's and kazoo's locks do not); until it stops, two may \
             hold the lock. It is better to end its process: the server then frees the lock after \
             its session timeout (ours is {}), or to ask it with `zk-lock revoke`.",
            crate::time::show(session.status().timeout)
        )
    } else {
        "This contender waits. It loses its place, and its client may queue up again.".to_owned()
    };
    eprintln!("{}\n  {}\n{meaning}", contender.path, contender.describe());
    eprint!("Delete this node? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

fn find<'q>(queue: &'q Queue, node: &str) -> Result<&'q Contender, Failure> {
    let name = node.rsplit('/').next().unwrap_or(node);
    queue.contenders.iter().find(|contender| contender.name == name).ok_or_else(|| {
        let path = &queue.path;
        let text =
            format!("{path} has no contender {name}; `zk-lock show {path}` lists their names");
        Failure::new(NOTHING, "nobody", text)
    })
}

fn nobody(output: &Output, path: &str) -> u8 {
    output.warn("nobody", &format!("nobody holds {path}"), json!({"path": path}));
    NOTHING
}
