//! A recipe of your own, on a session: a barrier, which nobody passes before all have come:
//!
//!     cargo run --example barrier
//!
//! A member that does not come, because it finds no server for example, must not keep the others
//! for ever: each waits for a limited time.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{collections::HashSet, thread, time::Duration};
use zk_session::crossbeam_channel::{after, select};
use zk_session::{Acl, CreateMode, Ephemeral, Error, Session, Watched};

/// Their names, and after how many milliseconds each comes.
const MEMBERS: [(&str, u64); 3] = [("anna", 0), ("bert", 100), ("carla", 200)];
/// How long each waits for the others.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    common::example(barrier)
}

fn barrier(server: &str) -> Result<()> {
    let come = AtomicUsize::new(0);
    let zk = Session::connect(server)?.requests().within(Duration::from_secs(10));
    // A barrier opens once, so each run has one of its own.
    let barrier = zk.create("/barrier-", b"", CreateMode::PersistentSequential, &Acl::Open)?.path;
    let member = |(name, after)| -> Result<()> {
        let session = Session::connect(server)?; // of its own, as if the member were a host
        thread::sleep(Duration::from_millis(after));
        println!("{name} comes, as number {}", come.fetch_add(1, SeqCst) + 1);
        let member = enter(&session, &barrier, name)?;
        let all_have = come.load(SeqCst) == MEMBERS.len();
        common::must(all_have, "a member has passed before all had come")?;
        Ok(member.release()?)
    };
    thread::scope(|scope| {
        let members = MEMBERS.map(|one| scope.spawn(move || member(one)));
        members.into_iter().try_for_each(common::join)
    })?;
    println!("all have passed");
    zk.delete(&format!("{barrier}/open"), None)?;
    Ok(zk.delete(&barrier, None)?)
}

/// Waits until all members have come. This one has come until the result is dropped or lost.
fn enter(session: &Session, barrier: &str, name: &str) -> Result<Ephemeral> {
    let (zk, open) = (session.requests().within(PATIENCE), format!("{barrier}/open"));
    let opened = zk.watch(&open, Watched::Node)?; // before the node is read
    let member = zk.hold(&format!("{barrier}/{name}-"), b"", &Acl::Open)?;
    // A listing behind our own create shows all that were made before it: the last one sees all.
    // The node `open` stays, since the first to pass may be gone before the others look.
    let nodes = zk.children(barrier)?;
    let names = nodes.iter().filter_map(|node| Some(node.rsplit_once('-')?.0));
    if names.collect::<HashSet<_>>().len() >= MEMBERS.len() {
        match zk.create(&open, b"", CreateMode::Persistent, &Acl::Open) {
            Err(e) if !matches!(e, Error::NodeExists { .. }) => return Err(e.into()),
            _ => {}
        }
    }
    let over = after(PATIENCE);
    while zk.exists(&open)?.is_none() {
        select! {
            recv(opened.receiver()) -> event => drop(event?),
            recv(member.lost().receiver()) -> _ => return Err(format!("{name} is lost").into()),
            recv(over) -> _ => {
                return Err(format!("not all have come in {PATIENCE:?}, says {name}").into());
            }
        }
    }
    Ok(member)
}
