//! Reads and writes: how long they take, whether they are allowed, and what the servers can do.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use zk_mutex::zk_session::{CreateMode, Created, Error, Requests};
use zk_mutex::{Acl, Permissions, ZkSession};

use super::report::{Findings, Level};
use crate::exit::Failure;
use crate::time::show;
use crate::zk;

/// Makes a node that everybody may use.
pub fn create(
    requests: &Requests,
    path: &str,
    mode: CreateMode,
) -> zk_mutex::zk_session::Result<Created> {
    requests.create(path, b"", mode, &Acl::Open)
}

/// The first part of the names of all nodes that doctor makes.
pub const OWN: &str = "zk-lock-doctor-";

/// The name of a node that no other process makes.
pub fn own_name() -> String {
    format!("{OWN}{}-{}", std::process::id(), crate::time::boot_millis())
}

/// How often a latency is measured, and for how long at most.
const ROUNDS: usize = 20;
const ROUNDS_TAKE: Duration = Duration::from_secs(2);

pub fn reads(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < ROUNDS && start.elapsed() < ROUNDS_TAKE {
        let began = Instant::now();
        zk::data(session, folder)?;
        times.push(began.elapsed());
    }
    latency("read", &mut times, session.status().timeout, findings);
    Ok(())
}

/// Judges these latencies, of which the median is returned.
fn latency(
    check: &'static str,
    times: &mut [Duration],
    timeout: Duration,
    findings: &mut Findings,
) -> Option<Duration> {
    times.sort_unstable();
    let (median, worst) = (times.get(times.len() / 2)?, times.last()?);
    let count = times.len();
    let text =
        format!("a {check} takes {}, the slowest of {count} {}", fine(*median), fine(*worst));
    if *worst > timeout / 10 {
        findings.add(
            check,
            Level::Fault,
            text,
            format!(
                "an idle holder keeps its lock only if answers take less than a tenth of the \
                 session timeout ({}): find out what is slow, or ask for a longer timeout",
                show(timeout / 10)
            ),
        );
    } else if *median > Duration::from_millis(50) {
        let advice = "see the servers' disks (fsync), their garbage collection, and the network";
        findings.add(check, Level::Warning, text, advice);
    } else {
        findings.ok(check, text);
    }
    Some(*median)
}

pub fn fine(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Writes, containers and the clock, by a node that is there for a moment. Returns how long a write
/// takes, if there is one.
pub fn writes(
    session: &ZkSession,
    folder: &str,
    findings: &mut Findings,
) -> Result<Option<Duration>, Failure> {
    let requests = session.zookeeper().requests();
    let path = zk::join(folder, &own_name());
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < ROUNDS && start.elapsed() < ROUNDS_TAKE {
        let began = Instant::now();
        match create(&requests, &path, CreateMode::Ephemeral) {
            Ok(_) => times.push(began.elapsed()),
            Err(Error::NoAuth { .. }) => {
                findings.add(
                    "write",
                    Level::Fault,
                    format!("the ACL of {folder} does not let us create a node"),
                    "give credentials with --auth, or add CREATE and DELETE to its ACL",
                );
                return Ok(None);
            }
            Err(e) => {
                let text = format!("a node below {folder} could not be made: {e}");
                findings.add("write", Level::Fault, text, "see the servers' logs");
                return Ok(None);
            }
        }
        if times.len() == 1 {
            if let Some((_, meta)) = zk::data(session, &path)? {
                clock(meta.ctime, findings);
            }
        }
        if let Err(e) = requests.delete(&path, None) {
            findings.add(
                "write",
                Level::Fault,
                format!("a node below {folder} could be made and not deleted: {e}"),
                "add DELETE to the folder's ACL: a lock cannot be released without it",
            );
            return Ok(None);
        }
    }
    let took = latency("write", &mut times, session.status().timeout, findings);
    match create(&requests, &path, CreateMode::Container) {
        Ok(_) => {
            let _ = requests.delete(&path, None);
            findings
                .ok("containers", "the server has containers: empty lock folders go by themselves");
        }
        Err(e) if e.is_transient() => findings.add(
            "containers",
            Level::Note,
            format!("whether the server has containers is not known: {e}"),
            "run doctor again: locks need them, and ZooKeeper 3.5 or later has them",
        ),
        Err(e) => findings.add(
            "containers",
            Level::Fault,
            format!("the server makes no containers: {e}"),
            "locks need ZooKeeper 3.5 or later",
        ),
    }
    Ok(took)
}

fn clock(created: i64, findings: &mut Findings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created = Duration::from_millis(u64::try_from(created).unwrap_or(0));
    let apart = now.abs_diff(created);
    if apart > Duration::from_secs(2) {
        findings.add(
            "clock",
            Level::Warning,
            format!("this host's clock and the server's are {} apart", show(apart)),
            "locks do not depend on it, but ages and logs do: run NTP on both",
        );
    } else {
        findings.ok("clock", "this host's clock and the server's agree");
    }
}

pub fn acl(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
    let Some(entries) = zk::acl(session, folder)? else { return Ok(()) };
    let is_open = entries.iter().any(|entry| {
        let allows = |permission| entry.permissions | permission == entry.permissions;
        entry.scheme == "world" && (allows(Permissions::DELETE) || allows(Permissions::WRITE))
    });
    if is_open {
        findings.add(
            "acl",
            Level::Warning,
            format!("everybody who reaches the servers may delete locks in {folder}"),
            "give your programs credentials, and their locks an ACL (--auth, --acl creator)",
        );
    } else {
        findings.ok("acl", format!("{folder} is not open to everybody"));
    }
    Ok(())
}
