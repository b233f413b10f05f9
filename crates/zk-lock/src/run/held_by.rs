//! Who holds a lock that this process did not get.

use std::time::Duration;

use serde_json::{Value, json};
use zk_mutex::ZkSession;
use zk_mutex::crossbeam_channel::bounded;

use crate::nodes::names::Kind;
use crate::nodes::queue::{Contender, Standing};
use crate::output::Output;

/// The wait is over, so the question may not take long, whatever the network does.
const LIMIT: Duration = Duration::from_secs(2);

/// More holders than these are only counted: a semaphore may have many.
const SHOWN: usize = 8;

/// Says that others have the lock at this path, and who they are as far as they can be read now.
/// `sentence` is what is certain already.
pub fn tell(session: &ZkSession, path: &str, sentence: &str, mut fields: Value, output: &Output) {
    let (holders, is_paused) = read(session, path).unzip();
    fields["path"] = json!(path);
    fields["held_by"] = match &holders {
        Some(holders) => holders.iter().map(Contender::json).collect(),
        None => Value::Null,
    };
    let who = holders.map_or_else(String::new, |holders| {
        if holders.is_empty() && is_paused == Some(true) {
            return ": the semaphore has 0 permits, it is paused".to_owned();
        }
        describe(holders.iter().map(|one| {
            let waits = if one.holds { "" } else { " that waits" };
            format!("{}{waits}, {}", one.kind.name(), one.describe())
        }))
    });
    output.warn("not_obtained", &format!("{sentence}{who}"), fields);
}

/// The holders that belong to other sessions, and whether it is a semaphore without permits; `None`
/// if they cannot be read soon.
fn read(session: &ZkSession, path: &str) -> Option<(Vec<Contender>, bool)> {
    let (tell, told) = bounded(1);
    let (session, path) = (session.clone(), path.to_owned());
    let read = move || {
        let Ok(standing) = Standing::read(&session, &path) else { return };
        let own = session.status().session_id;
        let holders = standing.iter().flat_map(Standing::holders);
        let others = holders.filter(|one| Some(one.stat.owner) != own);
        let mut others: Vec<Contender> = others.cloned().collect();
        // A reader does not wait for readers, but for the writer that waits ahead of it.
        if !others.is_empty() && others.iter().all(|one| one.kind == Kind::Read) {
            let waiting = standing.iter().flat_map(Standing::contenders);
            let mut waiting = waiting.filter(|one| !one.holds && one.kind != Kind::Read);
            others.extend(waiting.find(|one| Some(one.stat.owner) != own).cloned());
        }
        let queues = standing.iter().flat_map(|standing| &standing.queues);
        let is_paused = queues.into_iter().any(|queue| queue.permits == Some(0));
        let _ = tell.send((others, is_paused));
    };
    // Nothing joins this thread, because an outage can block it.
    std::thread::Builder::new().name("held-by".into()).spawn(read).ok()?;
    told.recv_timeout(LIMIT).ok()
}

/// Behind "is held by others".
fn describe(holders: impl ExactSizeIterator<Item = String>) -> String {
    let more = holders.len().saturating_sub(SHOWN);
    if holders.len() == 0 {
        return ", who have let go since".to_owned();
    }
    let mut all = holders.take(SHOWN).collect::<Vec<_>>().join("; ");
    if more > 0 {
        all.push_str(&format!("; and {more} more"));
    }
    format!(": {all}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_holders_are_counted() {
        let holders = |count: usize| describe((0..count).map(|i| format!("mutex, h{i}:1")));
        assert_eq!(holders(0), ", who have let go since");
        assert_eq!(holders(2), ": mutex, h0:1; mutex, h1:1");
        assert!(holders(11).ends_with("; mutex, h7:1; and 3 more"));
    }
}
