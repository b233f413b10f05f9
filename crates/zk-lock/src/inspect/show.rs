//! `zk-lock show`: the queue of one lock.

use serde_json::json;

use zk_mutex::ZkSession;

use super::servers::ServerAnswers;
use crate::cli::{Common, PathArgs};
use crate::exit::{Failure, NOTHING};
use crate::nodes::names;
use crate::nodes::queue::{Contender, LockKind, Queue, Standing};
use crate::output::{Output, table};
use crate::time::show;
use crate::{connect, zk};

pub fn run(common: &Common, args: &PathArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let standing = Standing::read(&session, &args.path)?;
    let has_more = standing.as_ref().is_some_and(|standing| !standing.others.is_empty());
    let Some(standing) = standing.filter(|standing| standing.in_use().next().is_some()) else {
        let code = nobody(&session, output, &args.path)?;
        if has_more {
            let text = format!("it has nodes of its own below it: see `zk-lock ls {}`", args.path);
            output.hint("advice", &text, json!({}));
        }
        return Ok(code);
    };
    let servers = ServerAnswers::read(common);
    if output.json {
        for queue in standing.in_use() {
            let mut all = queue.json();
            for (value, contender) in
                all["contenders"].as_array_mut().into_iter().flatten().zip(&queue.contenders)
            {
                value["watched_by"] = json!(servers.watchers_of(&contender.path));
                value["address"] = json!(servers.address_of(&contender.session()));
            }
            output.report("lock", all, "")?;
        }
    } else {
        output.result(&render(&standing, Some(&servers)))?;
    }
    warn_of_kinds(&standing, output);
    if output.json {
        return Ok(0);
    }
    for (word, silence, of) in
        [("wchp", servers.no_watches(), "watches"), ("cons", servers.no_addresses(), "connections")]
    {
        if let Some(why) = silence {
            let text = format!("no server answers {word}, which lists its {of} ({why})");
            output.note(&format!("no_{of}"), &text, json!({}));
        }
    }
    Ok(0)
}

/// Says that nobody holds a lock, and whether its node exists. The server deletes a lock's node
/// when nobody has used it for a while, and a path with a slip in it does not exist either: so the
/// nearest node above it is named.
pub fn nobody(session: &ZkSession, output: &Output, path: &str) -> Result<u8, Failure> {
    let nearest = zk::nearest(session, path)?;
    if nearest == path {
        let text = format!("nobody holds {path} or waits for it: it is free");
        output.warn("free", &text, json!({"path": path, "exists": true}));
    } else {
        let text = format!(
            "there is no node {path}: nobody holds that lock, if the path is right; the nearest \
             node that exists is {nearest}"
        );
        output.warn("no_path", &text, json!({"path": path, "exists": false, "nearest": nearest}));
    }
    Ok(NOTHING)
}

/// Warns if locks that do not exclude each other are in use at one path.
pub fn warn_of_kinds(standing: &Standing, output: &Output) {
    let kinds: Vec<&str> = standing.in_use().map(|queue| queue.kind.name()).collect();
    if kinds.len() > 1 {
        let (path, all) = (&standing.path, kinds.join(" and "));
        let text = format!("{path} is used as {all}, which do not exclude each other");
        output.warn("kinds", &text, json!({"path": path, "kinds": kinds}));
    }
    for queue in standing.in_use().filter(|queue| queue.kind != LockKind::Semaphore) {
        let is_kazoos =
            |one: &Contender| names::parse(&one.name).is_some_and(names::Name::is_kazoos);
        let kazoos = queue.contenders.iter().filter(|one| is_kazoos(one)).count();
        if kazoos > 0 && kazoos < queue.contenders.len() {
            let text = format!(
                "{} has names of Curator and of kazoo: Curator's clients do not wait for kazoo's, \
                 and kazoo's wait for Curator's only with extra_lock_patterns; one that waits here \
                 may hold all the same",
                standing.path
            );
            output.warn("mixed_names", &text, json!({}));
        }
    }
}

/// All locks at the path as tables.
pub fn render(standing: &Standing, servers: Option<&ServerAnswers>) -> String {
    let all: Vec<String> = standing.in_use().map(|queue| render_queue(queue, servers)).collect();
    all.join("\n\n")
}

/// The queue as a table. Without the servers' answers, the columns that need them are left out.
fn render_queue(queue: &Queue, servers: Option<&ServerAnswers>) -> String {
    let permits =
        queue.permits.map_or_else(String::new, |permits| format!(" of {permits} permits"));
    let (holders, waiting) = (queue.holders().count(), queue.waiting());
    let title = format!(
        "{}: {}{permits}, {holders} hold{} it, {waiting} wait{}",
        queue.path,
        queue.kind.name(),
        if holders == 1 { "s" } else { "" },
        if waiting == 1 { "s" } else { "" },
    );
    let heads = ["", "KIND", "CLIENT", "HOST:PID OR DATA", "ADDRESS", "SESSION", "AGE"];
    let heads = heads.into_iter().chain(["WATCHED BY", "NODE"]);
    let is_shown = |head: &str| servers.is_some() || !matches!(head, "ADDRESS" | "WATCHED BY");
    let mut rows = vec![heads.filter(|head| is_shown(head)).map(str::to_owned).collect()];
    for contender in &queue.contenders {
        let mut row = vec![
            if contender.holds { "holds" } else { "waits" }.to_owned(),
            contender.kind.name().to_owned(),
            contender.client.name().to_owned(),
            contender.place(),
        ];
        row.extend(servers.map(|servers| address(servers, contender)));
        row.extend([contender.session(), show(contender.age())]);
        row.extend(servers.map(|servers| watchers(servers, contender)));
        row.push(contender.name.clone());
        rows.push(row);
    }
    format!("{title}\n{}", table(&rows))
}

fn address(servers: &ServerAnswers, contender: &Contender) -> String {
    // A port tells only of its own connections, and the client may have come through another.
    servers.address_of(&contender.session()).unwrap_or("?").to_owned()
}

fn watchers(servers: &ServerAnswers, contender: &Contender) -> String {
    match servers.watchers_of(&contender.path) {
        None => "?".to_owned(),
        Some(all) if all.is_empty() => "nobody".to_owned(),
        Some(all) => all.join(" "),
    }
}
