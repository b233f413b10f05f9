//! `zk-lock revoke` and `zk-lock break`: two ways to free a lock.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::json;
use zk_mutex::ZkSession;

use super::servers::ServerAnswers;
use super::show::nobody;
use crate::cli::{BreakArgs, Common, RevokeArgs};
use crate::exit::{Failure, NOTHING};
use crate::nodes::names::{Client, Kind};
use crate::nodes::queue::{Contender, Standing};
use crate::nodes::record::Record;
use crate::output::{Output, lines};
use crate::time::show;
use crate::{connect, zk};

/// Asks the holders, or one contender, to let go.
pub fn revoke(common: &Common, args: &RevokeArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(standing) = Standing::read(&session, &args.path)? else {
        return nobody(&session, output, &args.path);
    };
    let chosen: Vec<&Contender> = match &args.node {
        Some(node) => vec![find(&standing, node)?],
        None => standing.holders().collect(),
    };
    if chosen.is_empty() {
        return not_held(&session, output, &args.path);
    }
    let (chosen, deaf): (Vec<&Contender>, Vec<&Contender>) =
        chosen.into_iter().partition(|one| can_hear(one));
    for one in &deaf {
        let text = format!(
            "{} ({}) was not asked: its client does not listen, and the request would overwrite \
             its data. End its process",
            one.name,
            one.describe()
        );
        output.warn("not_asked", &text, json!({"contender": one.json()}));
    }
    if chosen.is_empty() {
        return Ok(NOTHING);
    }
    // The request overwrites the only copy of the data.
    let noted = Record::update(&session, &args.path, |record| {
        chosen.iter().for_each(|contender| record.note_asked(contender));
    });
    if let Err(e) = noted {
        let text = format!("{}; `show` will not say who was asked", e.message);
        output.warn("not_noted", &text, json!({"path": args.path}));
    }
    let mut asked = 0;
    for contender in chosen {
        if session.attempt_revoke(&contender.path)?.is_none() {
            continue; // it has gone by itself
        }
        asked += 1;
        let text = format!("asked to let go: {} ({})", contender.name, contender.describe());
        output.report("asked", json!({"contender": contender.json()}), &text)?;
    }
    if asked > 0 {
        output.hint(
            "advice",
            "the holder lets go when it will; a command under `zk-lock run` only with --revocable",
            json!({}),
        );
    }
    if asked > 0 { Ok(0) } else { not_held(&session, output, &args.path) }
}

/// Whether the client may look for the request. kazoo and go-zookeeper never do. Of Curator only
/// locks do, if their program wants it; semaphores do not, and the data of a `LeaderLatch` is its
/// participant's id.
fn can_hear(contender: &Contender) -> bool {
    match contender.client {
        Client::Kazoo | Client::GoZookeeper => false,
        Client::Curator => !matches!(contender.kind, Kind::Candidate | Kind::Permit),
        Client::ZkMutex | Client::KazooOrZkMutex | Client::Unknown => true,
    }
}

/// Says that there is nobody to ask, and whether others wait.
fn not_held(session: &ZkSession, output: &Output, path: &str) -> Result<u8, Failure> {
    let now = Standing::read(session, path)?;
    let count = now.iter().flat_map(Standing::contenders).count();
    if count == 0 {
        return nobody(session, output, path);
    }
    let text =
        format!("nobody was asked: the holder of {path} has let go, and {count} contend now");
    output.warn("not_held", &text, json!({}));
    Ok(NOTHING)
}

/// Deletes one node.
pub fn break_lock(common: &Common, args: &BreakArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(standing) = Standing::read(&session, &args.path)? else {
        return nobody(&session, output, &args.path);
    };
    let contender = find(&standing, &args.node)?;
    if !args.yes {
        let deed = format!("break deletes {} ({})", contender.path, contender.describe());
        let meaning = meaning_of_break(common, contender);
        let text = format!("{}\n  {}\n{meaning}", contender.path, contender.describe());
        if !confirmed(&deed, &text, output)? {
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
    output.report("deleted", json!({"contender": contender.json()}), &text)?;
    Ok(0)
}

fn meaning_of_break(common: &Common, contender: &Contender) -> String {
    if !contender.holds {
        return "This contender waits. It loses its place, and its client may queue up again."
            .to_owned();
    }
    let servers = ServerAnswers::read(common);
    let timeout = match servers.timeout_of(&contender.session()) {
        Some(timeout) => format!("which is {}", show(timeout)),
        None => "which no server tells (the word cons does, while the client is connected)".into(),
    };
    format!(
        "This contender HOLDS the lock. Its client is told within a moment if it watches its node \
         (zk-mutex does, Curator's and kazoo's locks do not); until it stops, two may hold the \
         lock. It is better to end its process: the server then frees the lock after its session \
         timeout, {timeout}. Or ask it with `zk-lock revoke`."
    )
}

/// Asks the person in front of the terminal whether a node is to be deleted, of which `text` tells.
/// An error if nobody is there, or if a program reads the lines: `deed` says what was to be done.
pub fn confirmed(deed: &str, text: &str, output: &Output) -> Result<bool, Failure> {
    if output.json || !std::io::stdin().is_terminal() {
        let text = format!("{deed}. Nobody is here to ask: say --yes if that is meant");
        return Err(Failure::usage(text));
    }
    eprintln!("{}", lines(text));
    eprint!("Delete this node? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn find<'q>(standing: &'q Standing, node: &str) -> Result<&'q Contender, Failure> {
    let name = node.rsplit('/').next().unwrap_or(node);
    standing.contenders().find(|contender| contender.name == name).ok_or_else(|| {
        let path = &standing.path;
        let text =
            format!("{path} has no contender {name}; `zk-lock show {path}` lists their names");
        Failure::new(NOTHING, "nobody", text)
    })
}
