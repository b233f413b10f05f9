//! `zk-lock show`: the queue of one lock.

use serde_json::json;

use super::queue::{Contender, Queue};
use super::servers::ServerAnswers;
use crate::cli::{Common, PathArgs};
use crate::connect;
use crate::exit::{Failure, NOTHING};
use crate::output::{Output, table};
use crate::time::show;

pub fn run(common: &Common, args: &PathArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(queue) = Queue::read(&session, &args.path)? else {
        let text = format!("nobody holds {0} or waits for it; `zk-lock ls` lists locks", args.path);
        output.warn("nobody", &text, json!({"path": args.path}));
        return Ok(NOTHING);
    };
    let servers = ServerAnswers::read(common.connect.as_deref().unwrap_or_default());
    if output.json {
        let mut all = queue.json();
        for (value, contender) in
            all["contenders"].as_array_mut().into_iter().flatten().zip(&queue.contenders)
        {
            value["watched_by"] = json!(servers.watchers_of(&contender.path));
            value["address"] = json!(servers.address_of(&contender.session()));
        }
        output.result(&all.to_string())?;
        return Ok(0);
    }
    output.result(&render(&queue, Some(&servers)))?;
    for (word, is_missing, of) in [
        ("wchp", !servers.tell_watches(), "watches"),
        ("cons", !servers.tell_addresses(), "connections"),
    ] {
        if is_missing {
            let text = format!("no server answers {word}, which lists its {of}: is it allowed?");
            output.note(&format!("no_{of}"), &text, json!({}));
        }
    }
    Ok(0)
}

/// The queue as a table. Without the servers' answers, the columns that need them are left out.
pub fn render(queue: &Queue, servers: Option<&ServerAnswers>) -> String {
    let permits =
        queue.permits.map_or_else(String::new, |permits| format!(" of {permits} permits"));
    let (holders, waiting) = (queue.holders().count(), queue.waiting());
    let title = format!(
        "{}: {}{permits}, {holders} hold{} it, {waiting} wait{}",
        queue.path,
        queue.kind,
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
    let nothing = if servers.tell_addresses() { "-" } else { "?" };
    servers.address_of(&contender.session()).unwrap_or(nothing).to_owned()
}

fn watchers(servers: &ServerAnswers, contender: &Contender) -> String {
    match servers.watchers_of(&contender.path) {
        None => "?".to_owned(),
        Some(all) if all.is_empty() => "-".to_owned(),
        Some(all) => all.join(" "),
    }
}
