//! `zk-lock wait`: until locks are free, without taking one.
//!
//! A lock is free when nobody contends for it. One node is watched: the newest contender's, which
//! goes last. Only when it has gone there is something to look at again. Others may have come by
//! then, and are waited for too: a lock that is never free for a moment keeps `wait` waiting.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::ZkSession;
use zk_mutex::zk_session::Watched;

use super::follow::{End, Follow, Notifier};
use super::watch::time_ms;
use crate::cli::{Common, WaitArgs};
use crate::exit::{self, Failure, NOT_OBTAINED, UNREACHABLE};
use crate::nodes::queue::{Contender, LockKind, Standing};
use crate::output::Output;
use crate::time::millis;
use crate::{connect, zk};

/// The watch tells of everything. If servers keep a change from it, this does not wait for ever.
const POLL: Duration = Duration::from_secs(30);

/// What one look has found.
enum Seen {
    /// All are free. Whether each of the paths exists.
    Free(Vec<bool>),
    /// The first of them that is not.
    Held(Standing),
}

pub fn run(common: &Common, args: &WaitArgs, output: &Output) -> Result<u8, Failure> {
    let began = Instant::now();
    let follow = Follow::start(|| connect::session(common), args.timeout, output)?;
    let paths = args.paths.clone();
    let look = move |session: &ZkSession, notifier: &mut Notifier| look(session, notifier, &paths);
    let mut held: Option<Standing> = None;
    let mut exist = Vec::new();
    let end = follow.run(POLL, look, |seen| {
        match seen {
            None => {}
            Some(Seen::Free(all)) => {
                exist = all;
                return Ok(ControlFlow::Break(0));
            }
            Some(Seen::Held(now)) => {
                if held.as_ref().is_none_or(|before| before.path != now.path) {
                    let text = format!("waiting for {}, held by {}", now.path, describe(&now));
                    let fields = json!({"path": now.path, "holders": holders(&now)});
                    output.hint("waiting", &text, fields);
                }
                held = Some(now);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match end {
        End::Seen(code) => {
            for (path, exists) in args.paths.iter().zip(exist) {
                tell_free(path, (exists, held.is_some()), began.elapsed(), output)?;
            }
            Ok(code)
        }
        End::Signal(signal) => Ok(exit::of_signal(signal)),
        End::Over { is_away: true } => {
            let text = "the time is over in an outage, so nobody knows whether the lock is free";
            Err(Failure::new(UNREACHABLE, "unreachable", text))
        }
        End::Over { is_away: false } => {
            if let Some(held) = &held {
                let text = format!("{} is still held by {}", held.path, describe(held));
                let fields = json!({
                    "path": held.path,
                    "paths": args.paths,
                    "held_by": held.holders().map(Contender::json).collect::<Vec<_>>(),
                    "status": NOT_OBTAINED,
                });
                output.warn("not_obtained", &text, fields);
            }
            Ok(NOT_OBTAINED)
        }
    }
}

/// Looks at the paths, one after the other, and watches the first that is held.
fn look(session: &ZkSession, notifier: &mut Notifier, paths: &[String]) -> Result<Seen, Failure> {
    zk::catch_up(session)?;
    let mut exist = Vec::new();
    for path in paths {
        let exists = loop {
            let Some(children) = zk::children(session, path)? else { break false };
            let Some(standing) = Standing::of(session, path, &children)? else { break false };
            let Some(last) = last_to_go(&standing) else { break true };
            notifier.watch(session, &last.path, Watched::Node);
            // It may have gone before it was watched.
            if zk::data(session, &last.path)?.is_some() {
                return Ok(Seen::Held(standing));
            }
        };
        exist.push(exists);
    }
    Ok(Seen::Free(exist))
}

/// A contender before whose end the lock is not free. In a queue that is the last one: a waiter
/// holds the lock before it goes. A waiter of a semaphore has no permit, so there it is the holder
/// of the newest permit.
fn last_to_go(standing: &Standing) -> Option<&Contender> {
    standing.in_use().find_map(|queue| match queue.kind {
        LockKind::Semaphore => queue.holders().last(),
        _ => queue.contenders.last(),
    })
}

fn describe(standing: &Standing) -> String {
    holders(standing).join(" and by ")
}

fn holders(standing: &Standing) -> Vec<String> {
    standing.holders().map(Contender::describe).collect()
}

fn tell_free(
    path: &str,
    (exists, was_held): (bool, bool),
    waited: Duration,
    output: &Output,
) -> Result<(), Failure> {
    if output.json {
        let fields = json!({
            "path": path,
            "time_ms": time_ms(),
            "exists": exists,
            "waited_ms": millis(waited),
        });
        return output.report("free", fields, "");
    }
    // ZooKeeper deletes a lock's node while nobody uses it, so most often there is none.
    let fields = json!({"path": path, "exists": exists});
    if exists || was_held {
        output.hint("free", &format!("{path} is free"), fields);
    } else {
        let text = format!("there is no node {path}: nobody holds that lock, if the path is right");
        output.warn("free", &text, fields);
    }
    Ok(())
}
