//! `zk-lock doctor`: looks the ensemble over, and says what to do about each finding.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use zk_mutex::ZkSession;
use zk_mutex::zookeeper::{Acl, CreateMode, Permission, ZkError};

use super::names::Client;
use super::queue::Queue;
use super::servers;
use crate::cli::{Common, DoctorArgs};
use crate::exit::{Failure, NOTHING};
use crate::output::Output;
use crate::time::show;
use crate::{connect, zk};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    /// Worth knowing.
    Note,
    /// It works, but not as well or as safely as it could.
    Warning,
    /// Locks do not work, or are not safe.
    Fault,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Fault => "FAULT",
        }
    }
}

struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    advice: String,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Level::Ok, text, "");
    }

    fn add(
        &mut self,
        check: &'static str,
        level: Level,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.0.push(Finding { check, level, text: text.into(), advice: advice.into() });
    }
}

pub fn run(common: &Common, args: &DoctorArgs, output: &Output) -> Result<u8, Failure> {
    let mut findings = Findings::default();
    let builder = connect::builder(common, args.session)?;
    let servers = common.connect.as_deref().unwrap_or_default();
    let conf = hosts(servers, &mut findings);
    match builder.connect() {
        Ok(session) => {
            if let Err(failure) = examine(&session, args, servers, &conf, &mut findings) {
                let advice = "the checks behind this were not made";
                findings.add("session", Level::Fault, failure.message, advice);
            }
            let _ = session.close();
        }
        Err(e) => {
            let failure = Failure::from(e);
            findings.add("session", Level::Fault, failure.message, "nothing else can be checked");
        }
    }
    findings.add(
        "tls",
        Level::Note,
        "connections are not encrypted: this version has no TLS",
        "keep ZooKeeper in a network of its own, or tunnel it",
    );
    report(&findings, output)
}

/// Each server by itself. Gives the settings that the first of them tells.
fn hosts(connect: &str, findings: &mut Findings) -> Option<String> {
    let hosts = servers::hosts(connect);
    match hosts.len() {
        1 => findings.add(
            "servers",
            Level::Warning,
            "the connect string names one server",
            "name all servers of the ensemble: with one, its restart is an outage",
        ),
        count if count % 2 == 0 => findings.add(
            "servers",
            Level::Warning,
            format!("the connect string names {count} servers"),
            "an ensemble of an even number survives no more failures than with one server less; \
             name all servers, or add one",
        ),
        count => findings.ok("servers", format!("{count} servers are named")),
    }
    let (mut versions, mut conf) = (Vec::new(), None);
    for host in &hosts {
        let took = match servers::dial(host) {
            Ok(took) => took,
            Err(why) => {
                findings.add(
                    "reachable",
                    Level::Fault,
                    format!("{host}: {why}"),
                    "start the server, open the port, or correct the connect string",
                );
                continue;
            }
        };
        let Some(answer) = servers::ask(host, "srvr") else {
            findings.add(
                "reachable",
                Level::Note,
                format!("{host} accepts connections ({}) and tells nothing of itself", show(took)),
                "allow it: 4lw.commands.whitelist=srvr,conf,wchp in zoo.cfg (a port for TLS only \
                 tells nothing; with client.portUnification it does)",
            );
            continue;
        };
        let value = |key: &str| {
            answer.lines().find_map(|line| line.strip_prefix(key)).map(|v| v.trim().to_owned())
        };
        let version = value("Zookeeper version:").unwrap_or_default();
        let short = version.split([',', ' ']).next().unwrap_or_default().to_owned();
        let mode = value("Mode:").unwrap_or_else(|| "unknown".to_owned());
        judge_server(host, &short, &mode, &answer, findings);
        versions.push(short);
        conf = conf.or_else(|| servers::ask(host, "conf"));
    }
    versions.sort();
    versions.dedup();
    if versions.len() > 1 {
        findings.add(
            "version",
            Level::Warning,
            format!("the servers have different versions: {}", versions.join(", ")),
            "finish the upgrade",
        );
    }
    conf
}

fn judge_server(host: &str, version: &str, mode: &str, answer: &str, findings: &mut Findings) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < (3, 5) && major != 0 {
        findings.add(
            "version",
            Level::Fault,
            format!("{host} has version {version}"),
            "locks need ZooKeeper 3.5 or later: upgrade",
        );
    } else {
        findings.ok("version", format!("{host} has version {version}, mode {mode}"));
    }
    if mode == "observer" {
        findings.add(
            "mode",
            Level::Warning,
            format!("{host} is an observer"),
            "behind an observer master (observerMasterPort) leases are too long: connect lock \
             sessions to voting servers",
        );
    }
    let outstanding = answer.lines().find_map(|line| line.strip_prefix("Outstanding: "));
    if let Some(count) = outstanding.and_then(|n| n.trim().parse::<u64>().ok()).filter(|n| *n > 50)
    {
        findings.add(
            "load",
            Level::Warning,
            format!("{host} has {count} requests that wait"),
            "it is overloaded: see its disk and its garbage collection",
        );
    }
}

fn examine(
    session: &ZkSession,
    args: &DoctorArgs,
    connect: &str,
    conf: &Option<String>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    timeouts(session, args, conf, findings);
    // Without the chroot nothing else can be read or written.
    if zk::data(session, "/")?.is_none() {
        findings.add(
            "chroot",
            Level::Fault,
            format!("the chroot {} does not exist", servers::chroot(connect)),
            "create it, or correct the connect string: clients with another chroot have other \
             locks",
        );
        return Ok(());
    }
    let folder = nearest(session, &args.path)?;
    if folder != args.path {
        let text = format!("{} does not exist yet; {folder} is judged instead", args.path);
        findings.add("path", Level::Note, text, "the first lock makes it");
    }
    reads(session, &folder, findings)?;
    writes(session, &folder, findings)?;
    acl(session, &folder, findings)?;
    clients(session, &args.path, findings)
}

/// The granted timeout, and the servers' tick.
fn timeouts(
    session: &ZkSession,
    args: &DoctorArgs,
    conf: &Option<String>,
    findings: &mut Findings,
) {
    let granted = session.timeout();
    if granted == args.session {
        findings.ok("timeout", format!("a session timeout of {} is granted", show(granted)));
    } else {
        findings.add(
            "timeout",
            Level::Warning,
            format!(
                "a session timeout of {} was asked for, and {} is granted",
                show(args.session),
                show(granted)
            ),
            "ask for what the servers grant, or change minSessionTimeout or maxSessionTimeout in \
             zoo.cfg",
        );
    }
    if granted < Duration::from_secs(4) {
        findings.add(
            "timeout",
            Level::Warning,
            format!("with a session timeout of {} a short pause loses locks", show(granted)),
            "10 s or more suit most programs",
        );
    }
    let setting = |key: &str| -> Option<Duration> {
        let line = conf.as_deref()?.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok().map(Duration::from_millis)
    };
    let (Some(tick), least) = (setting("tickTime="), setting("minSessionTimeout=")) else {
        findings.add(
            "tick",
            Level::Note,
            "no server tells its tick",
            "see that the session timeout is at least two ticks (tickTime in zoo.cfg)",
        );
        return;
    };
    if tick * 2 > granted {
        findings.add(
            "tick",
            Level::Fault,
            format!(
                "the tick is {}, more than half of the session timeout, {}: two could hold a lock",
                show(tick),
                show(granted)
            ),
            "ask for a session timeout of two ticks or more, or state the tick \
             (SessionBuilder::server_tick)",
        );
    } else if least.is_some_and(|least| least < tick * 2) {
        findings.add(
            "tick",
            Level::Warning,
            format!(
                "minSessionTimeout ({}) is below two ticks ({})",
                show(least.unwrap_or_default()),
                show(tick * 2)
            ),
            "a program that asks for less than two ticks is not safe unless it states the tick; \
             remove minSessionTimeout",
        );
    } else {
        findings.ok("tick", format!("the tick is {}", show(tick)));
    }
}

/// The path itself, or the nearest node above it that is there.
fn nearest(session: &ZkSession, path: &str) -> Result<String, Failure> {
    let mut path = path.trim_end_matches('/');
    while !path.is_empty() {
        if zk::data(session, path)?.is_some() {
            return Ok(path.to_owned());
        }
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    Ok("/".to_owned())
}

/// How often a latency is measured, and for how long at most.
const ROUNDS: usize = 20;
const ROUNDS_TAKE: Duration = Duration::from_secs(2);

fn reads(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < ROUNDS && start.elapsed() < ROUNDS_TAKE {
        let began = Instant::now();
        zk::data(session, folder)?;
        times.push(began.elapsed());
    }
    latency("read", &mut times, session.timeout(), findings);
    Ok(())
}

fn latency(
    check: &'static str,
    times: &mut [Duration],
    timeout: Duration,
    findings: &mut Findings,
) {
    times.sort_unstable();
    let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) else { return };
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
}

fn fine(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Writes, containers and the clock, by a node that is there for a moment.
fn writes(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
    let client = session.client()?;
    let name = format!("zk-lock-doctor-{}-{}", std::process::id(), crate::time::boot_millis());
    let path = zk::join(folder, &name);
    let open = || Acl::open_unsafe().clone();
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < ROUNDS && start.elapsed() < ROUNDS_TAKE {
        let began = Instant::now();
        match client.create(&path, Vec::new(), open(), CreateMode::Ephemeral) {
            Ok(_) => times.push(began.elapsed()),
            Err(ZkError::NoAuth) => {
                findings.add(
                    "write",
                    Level::Fault,
                    format!("the ACL of {folder} does not let us create a node"),
                    "give credentials with --auth, or add CREATE and DELETE to its ACL",
                );
                return Ok(());
            }
            Err(e) => {
                let text = format!("a node below {folder} could not be made: {e:?}");
                findings.add("write", Level::Fault, text, "see the servers' logs");
                return Ok(());
            }
        }
        if times.len() == 1 {
            if let Some((_, meta)) = zk::data(session, &path)? {
                clock(meta.ctime, findings);
            }
        }
        if let Err(e) = client.delete(&path, None) {
            findings.add(
                "write",
                Level::Fault,
                format!("a node below {folder} could be made and not deleted: {e:?}"),
                "add DELETE to the folder's ACL: a lock cannot be released without it",
            );
            return Ok(());
        }
    }
    latency("write", &mut times, session.timeout(), findings);
    match client.create(&path, Vec::new(), open(), CreateMode::Container) {
        Ok(_) => {
            let _ = client.delete(&path, None);
            findings
                .ok("containers", "the server has containers: empty lock folders go by themselves");
        }
        Err(e) => findings.add(
            "containers",
            Level::Fault,
            format!("the server makes no containers: {e:?}"),
            "locks need ZooKeeper 3.5 or later",
        ),
    }
    Ok(())
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

fn acl(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
    let Some(entries) = zk::acl(session, folder)? else { return Ok(()) };
    let is_open = entries.iter().any(|entry| {
        entry.scheme == "world"
            && entry.perms.can(Permission::DELETE) | entry.perms.can(Permission::WRITE)
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

/// Clients that do not exclude each other.
fn clients(session: &ZkSession, path: &str, findings: &mut Findings) -> Result<(), Failure> {
    let Some(queue) = Queue::read(session, path)? else { return Ok(()) };
    let has = |client| queue.contenders.iter().any(|contender| contender.client == client);
    let has_curators_names = queue.contenders.iter().any(|one| one.name.starts_with("_c_"));
    let advice = "give kazoo's Lock extra_lock_patterns=[\"-lock-\"], and Curator's clients \
                  another path";
    if has(Client::Kazoo) && has(Client::Curator) {
        let text = format!("kazoo and Curator contend for {path}, and do not exclude each other");
        findings.add("clients", Level::Fault, text, advice);
    } else if has(Client::Kazoo) && has_curators_names {
        let text = format!("kazoo contends for {path} with clients whose names it may not know");
        findings.add("clients", Level::Warning, text, advice);
    }
    if let Some(stuck) = queue.holders().find(|holder| holder.stat.owner == 0) {
        findings.add(
            "clients",
            Level::Note,
            format!("{} outlives all sessions: {}", stuck.path, stuck.describe()),
            "release it by its name (ZkMutex::release_persistent), or with `zk-lock break`",
        );
    }
    Ok(())
}

fn report(findings: &Findings, output: &Output) -> Result<u8, Failure> {
    for Finding { check, level, text, advice } in &findings.0 {
        if output.json {
            let level = level.name().to_lowercase();
            let value = json!({"check": check, "level": level, "text": text, "advice": advice});
            output.result(&value.to_string())?;
            continue;
        }
        output.result(&format!("{:<8} {check:<11} {text}", level.name()))?;
        if !advice.is_empty() {
            output.result(&format!("{:20} -> {advice}", ""))?;
        }
    }
    let has_fault = findings.0.iter().any(|finding| finding.level == Level::Fault);
    Ok(if has_fault { NOTHING } else { 0 })
}
