//! `zk-lock permits`: how many permits a semaphore has.

use serde_json::json;
use zk_mutex::ZkSemaphore;

use super::show::nobody;
use crate::cli::{Common, PermitsArgs};
use crate::connect;
use crate::exit::Failure;
use crate::nodes::names::Client;
use crate::nodes::queue::{LockKind, Queue, Standing};
use crate::output::Output;

pub fn run(common: &Common, args: &PermitsArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let is_semaphore = |queue: &&Queue| queue.kind == LockKind::Semaphore;
    if let Some(number) = args.number {
        let before = Standing::read(&session, &args.path)?;
        let stands = before.as_ref().is_some_and(|one| one.queues.iter().any(|q| is_semaphore(&q)));
        let is_taken = |one: &Standing| !one.others.is_empty() || one.in_use().next().is_some();
        if !stands && before.as_ref().is_some_and(is_taken) {
            return Err(Failure::usage(format!(
                "{} is no semaphore, and others use it: give the semaphore a path of its own",
                args.path
            )));
        }
        if !stands && !args.create {
            // A slip in a path, or the path of another lock, must not become a semaphore.
            return Err(Failure::usage(format!(
                "there is no semaphore {}: --create makes one",
                args.path
            )));
        }
        let kazoos = before.iter().flat_map(Standing::contenders);
        if kazoos.into_iter().any(|one| one.client == Client::Kazoo) {
            return Err(Failure::usage(format!(
                "{} is used by kazoo, whose clients end with an error where the number is not their \
                 own max_leases: change it in their program",
                args.path
            )));
        }
        // The number of the object counts only until it has seen that of the node.
        let semaphore = ZkSemaphore::new(&session, &args.path, number.max(1))?;
        semaphore.set_permits(number)?;
    }
    let Some(standing) = Standing::read(&session, &args.path)? else {
        return nobody(&session, output, &args.path);
    };
    let Some(semaphore) = standing.queues.iter().find(is_semaphore) else {
        return Err(Failure::usage(format!("{} is no semaphore", args.path)));
    };
    let (taken, waiting) = (semaphore.holders().count(), semaphore.waiting());
    if output.json {
        let fields = json!({
            "path": args.path, "permits": semaphore.permits, "holding": taken, "waiting": waiting,
        });
        output.report("permits", fields, "")?;
        return Ok(0);
    }
    let number = match semaphore.permits {
        Some(1) => "1 permit".to_owned(),
        Some(number) => format!("{number} permits"),
        None => "an unknown number of permits (its node does not say)".to_owned(),
    };
    let pause = if semaphore.permits == Some(0) { ", so it is paused" } else { "" };
    let waits = if waiting == 1 { "waits" } else { "wait" };
    output.result(&format!("{}: {number}{pause}, {taken} taken, {waiting} {waits}", args.path))?;
    Ok(0)
}
