//! `zk-lock forget`: removes what a lock that nobody uses has left behind.

use serde_json::json;
use zk_mutex::ZkSession;
use zk_mutex::zk_session::Error;

use super::free::confirmed;
use super::show::nobody;
use crate::cli::{Common, ForgetArgs};
use crate::exit::{Failure, NOTHING};
use crate::nodes::names;
use crate::nodes::queue::{SEMAPHORE, Standing};
use crate::nodes::record::Record;
use crate::output::Output;
use crate::{connect, zk};

/// Deletes the lock's node, and the folders of a semaphore below it. A server deletes no node that
/// has children: so a client that comes meanwhile keeps its lock, and nothing of it is deleted.
pub fn run(common: &Common, args: &ForgetArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let Some(standing) = Standing::read(&session, &args.path)? else {
        return nobody(&session, output, &args.path);
    };
    let path = &args.path;
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some((data, stat)) = zk::data(&session, path)? else {
        return nobody(&session, output, path);
    };
    if stat.owner != 0 || names::parse(name).is_some() {
        return Err(Failure::usage(format!(
            "{path} is the node of one client, and not a lock: it goes with that client's session"
        )));
    }
    if let Some(contender) = standing.contenders().next() {
        let text = format!("{path} is in use, by {} ({})", contender.name, contender.describe());
        output.warn("in_use", &text, json!({"path": path, "contender": contender.json()}));
        return Ok(NOTHING);
    }
    if let Some(other) = standing.others.first() {
        return Err(Failure::usage(format!(
            "{path} has other nodes below it, for instance {other}: it is no lock alone, and \
             nothing was deleted"
        )));
    }
    // A lock's node has no data, and a semaphore's has its number.
    let is_semaphore = !standing.queues.is_empty();
    if !data.is_empty() && !is_semaphore {
        return Err(Failure::usage(format!(
            "the data of {path} is not a lock's: another program uses this node, and nothing was \
             deleted"
        )));
    }
    for folder in SEMAPHORE.map(|folder| zk::join(path, folder)) {
        if zk::data(&session, &folder)?.is_some_and(|(data, _)| !data.is_empty()) {
            return Err(Failure::usage(format!(
                "the data of {folder} is not a lock's: nothing was deleted"
            )));
        }
    }
    // Programs count so. Only a person can tell such a node from a semaphore that nobody has used.
    if is_semaphore && stat.cversion == 0 && args.yes {
        return Err(Failure::usage(format!(
            "the data of {path} is a number, and it never had a child: it may be a program's counter \
             and no semaphore. At a terminal, without --yes, forget asks; a semaphore that was never \
             used may also stay"
        )));
    }
    let what = match std::str::from_utf8(&data).ok().filter(|_| is_semaphore) {
        Some(number) => format!("{path}, an unused semaphore of {} permits", number.trim()),
        None => format!("{path}, an unused lock"),
    };
    let doubt = if is_semaphore && stat.cversion == 0 {
        " But it never had a child: it may be a program's counter."
    } else {
        ""
    };
    if !args.yes
        && !confirmed(
            &format!("forget deletes {what}"),
            &format!("{what}.{doubt} Its next user makes it again."),
            output,
        )?
    {
        output.warn("kept", "nothing was deleted", json!({}));
        return Ok(NOTHING);
    }
    for folder in SEMAPHORE {
        if !delete(&session, &zk::join(path, folder), None, output)? {
            return Ok(NOTHING);
        }
    }
    if !delete(&session, path, Some(stat.version), output)? {
        return Ok(NOTHING);
    }
    if let Err(e) = Record::forget(&session, path) {
        output.warn(
            "not_noted",
            &format!("{}; its history stays", e.message),
            json!({"path": path}),
        );
    }
    output.report("forgotten", json!({"path": path}), &format!("deleted {what}"))?;
    Ok(0)
}

/// Deletes an empty node. False: somebody uses it now.
fn delete(
    session: &ZkSession,
    path: &str,
    version: Option<i32>,
    output: &Output,
) -> Result<bool, Failure> {
    match session.zookeeper().requests().delete(path, version) {
        Ok(()) | Err(Error::NoNode { .. }) => Ok(true),
        Err(Error::NotEmpty { .. } | Error::BadVersion { .. }) => {
            let text = format!("{path} is in use again: it was left as it is");
            output.warn("in_use", &text, json!({"path": path}));
            Ok(false)
        }
        Err(e) => Err(e.into()),
    }
}
