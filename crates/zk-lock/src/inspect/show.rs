//! `zk-lock show`: the queue of one lock.

use serde_json::json;

use super::queue::Queue;
use super::servers;
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
    let connect = common.connect.as_deref().unwrap_or_default();
    let watchers = servers::watchers(connect);
    let watchers_of = |path: &str| {
        let full = format!("{}{path}", servers::chroot(connect));
        let of = |all: &Vec<(String, String)>| {
            let of_node = all.iter().filter(|(watched, _)| *watched == full);
            of_node.map(|(_, session)| session.clone()).collect::<Vec<_>>()
        };
        watchers.as_ref().map(of)
    };
    if output.json {
        let mut all = queue.json();
        for (value, contender) in
            all["contenders"].as_array_mut().into_iter().flatten().zip(&queue.contenders)
        {
            value["watched_by"] = json!(watchers_of(&contender.path));
        }
        output.result(&all.to_string())?;
        return Ok(0);
    }
    output.result(&render(&queue, &watchers_of))?;
    if watchers.is_none() {
        output.note("no_watches", "no server tells who watches (wchp is not allowed)", json!({}));
    }
    Ok(0)
}

/// The queue as a table.
pub fn render(queue: &Queue, watchers_of: &dyn Fn(&str) -> Option<Vec<String>>) -> String {
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
    let heads = ["", "KIND", "CLIENT", "HOST:PID OR DATA", "SESSION", "AGE", "WATCHED BY", "NODE"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for contender in &queue.contenders {
        let watchers = watchers_of(&contender.path).map_or_else(
            || "?".to_owned(),
            |all| {
                if all.is_empty() { "-".to_owned() } else { all.join(" ") }
            },
        );
        rows.push(vec![
            if contender.holds { "holds" } else { "waits" }.to_owned(),
            contender.kind.name().to_owned(),
            contender.client.name().to_owned(),
            contender.place(),
            contender.session(),
            show(contender.age()),
            watchers,
            contender.name.clone(),
        ]);
    }
    format!("{title}\n{}", table(&rows))
}
