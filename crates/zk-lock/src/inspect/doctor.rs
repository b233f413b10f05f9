//! `zk-lock doctor`: checks the ensemble, and gives advice for each finding.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use zk_mutex::zk_session::{CreateMode, Created, Error, Requests};
use zk_mutex::{Acl, Permissions, ZkSession};

use super::servers;
use crate::cli::{Common, DoctorArgs};
use crate::exit::{Failure, NOTHING};
use crate::nodes::names::Client;
use crate::nodes::queue::Standing;
use crate::output::Output;
use crate::time::show;
use crate::{connect, zk};

/// A server without a quorum answers each four-letter word that asks for its state with this.
const NOT_SERVING: &str = "not currently serving requests";
/// The mode of a server without a quorum that was started with `readonlymode.enabled`.
const READ_ONLY: &str = "read-only";
/// How long the session to one host may take.
const HOST_LIMIT: Duration = Duration::from_secs(5);

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
    let config = connect::config(common, args.session)?;
    let servers = common.connect.as_deref().unwrap_or_default();
    let hosts = check_hosts(servers, &mut findings);
    match ZkSession::connect(config) {
        Ok(session) => {
            let examined = examine(&session, args, servers, &hosts, &mut findings);
            let _ = session.close();
            let examined =
                examined.and_then(|()| one_ensemble(common, args, &hosts.serving, &mut findings));
            if let Err(failure) = examined {
                let advice = "the checks behind this were not made";
                findings.add("session", Level::Fault, failure.message, advice);
            }
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

/// The results of the check of each server that later checks need.
#[derive(Default)]
struct Hosts {
    /// The hosts that accept connections, and do not say that they cannot serve.
    serving: Vec<String>,
    /// The server that leads and serves clients, if one says so.
    leader: Option<String>,
    /// A server stands alone: it leads nobody, and serves clients.
    stands_alone: bool,
    /// The settings of each server that allows `conf`.
    settings: Vec<(String, String)>,
}

/// Checks each server by itself.
fn check_hosts(connect: &str, findings: &mut Findings) -> Hosts {
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
    let (mut versions, mut checked) = (Vec::new(), Hosts::default());
    let (mut silent, mut follows, mut all_tell) = (Vec::new(), false, true);
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
            all_tell = false;
            findings.add(
                "reachable",
                Level::Note,
                format!("{host} accepts connections ({}) and tells nothing of itself", show(took)),
                "allow it: 4lw.commands.whitelist=srvr,conf,wchp,cons in zoo.cfg (a port for TLS only \
                 tells nothing; with client.portUnification it does)",
            );
            checked.serving.push(host.clone());
            continue;
        };
        if answer.starts_with("HTTP/") {
            findings.add(
                "reachable",
                Level::Fault,
                format!("{host} speaks HTTP: this port is not for ZooKeeper's clients"),
                "name the clientPort of zoo.cfg (usually 2181), not the admin server's port",
            );
            continue;
        }
        if answer.contains(NOT_SERVING) {
            silent.push(host);
            continue;
        }
        let version = value(&answer, "Zookeeper version:").unwrap_or_default();
        let short = version.split([',', ' ']).next().unwrap_or_default().to_owned();
        let mode = value(&answer, "Mode:").unwrap_or("unknown");
        judge_server(host, &short, mode, &answer, findings);
        versions.push(short);
        if mode != READ_ONLY {
            checked.serving.push(host.clone());
        }
        follows |= mode == "follower";
        checked.stands_alone |= mode == "standalone";
        if mode == "leader" {
            checked.leader = Some(host.clone());
        }
        checked.settings.extend(servers::ask(host, "conf").map(|conf| (host.clone(), conf)));
    }
    let lacks_leader = follows && all_tell && checked.leader.is_none();
    silent_servers(&silent, lacks_leader, findings);
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
    checked
}

/// The servers that run and serve nobody. If `lacks_leader`, servers follow a leader that has told
/// nothing of itself: one of these may be that leader.
fn silent_servers(silent: &[&String], lacks_leader: bool, findings: &mut Findings) {
    for host in silent {
        if lacks_leader && silent.len() == 1 {
            findings.add(
                "quorum",
                Level::Note,
                format!("{host} runs and serves no clients, while others follow a leader"),
                "it is well if the servers have leaderServes=no and this one leads: the word mntr \
                 on its admin server says so; otherwise it is in no quorum, and its log says why",
            );
            continue;
        }
        findings.add(
            "quorum",
            Level::Fault,
            format!("{host} runs and serves nobody: it is in no quorum"),
            "start the other servers, and see that they reach each other on the ports of the \
             server.N lines in zoo.cfg; its log says which server it misses",
        );
    }
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
    if mode == READ_ONLY {
        findings.add(
            "quorum",
            Level::Fault,
            format!("{host} is read-only: it is in no quorum, and no lock can be taken there"),
            "start the other servers, and see that they reach each other; its log says which \
             server it misses",
        );
    }
    let outstanding = value(answer, "Outstanding:").and_then(|count| count.parse::<u64>().ok());
    if let Some(count) = outstanding.filter(|count| *count > 50) {
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
    hosts: &Hosts,
    findings: &mut Findings,
) -> Result<(), Failure> {
    timeouts(session, args, hosts, findings);
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
    let folder = zk::nearest(session, &args.path)?;
    if folder != args.path {
        let text = format!("{} does not exist yet; {folder} is judged instead", args.path);
        findings.add("path", Level::Note, text, "the first lock makes it");
    }
    reads(session, &folder, findings)?;
    if let Some(write) = writes(session, &folder, findings)? {
        upkeep(session.status().timeout, write, hosts, findings);
    }
    acl(session, &folder, findings)?;
    clients(session, &args.path, findings)
}

/// The granted timeout, the servers' tick, and whether all servers have the same limits.
fn timeouts(session: &ZkSession, args: &DoctorArgs, hosts: &Hosts, findings: &mut Findings) {
    let Hosts { settings, .. } = hosts;
    for key in ["tickTime=", "minSessionTimeout=", "maxSessionTimeout="] {
        let mut told = settings.iter().filter_map(|(host, conf)| Some((host, value(conf, key)?)));
        let Some((first, wanted)) = told.next() else { continue };
        if let Some((other, has)) = told.find(|(_, has)| *has != wanted) {
            findings.add(
                "timeout",
                Level::Fault,
                format!("{first} has {key}{wanted}, and {other} has {key}{has}"),
                "give all servers the same: a session that moves to a server with a shorter \
                 timeout may end before its lease, and then two could hold a lock",
            );
        }
    }
    let granted = session.status().timeout;
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
        let found = settings.iter().find_map(|(_, conf)| value(conf, key))?;
        found.parse().ok().map(Duration::from_millis)
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
             (Config::server_tick)",
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

/// The value of a line of a server's answer that begins with `key`.
fn value<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Whether each host gives a session, and all are servers of one ensemble. A session to one host
/// makes a node for the time of the check, and a session to each other host tries to make the same
/// node. The leader decides about each create, so a server of the same ensemble refuses it, also
/// while its own copy of the tree is behind.
fn one_ensemble(
    common: &Common,
    args: &DoctorArgs,
    hosts: &[String],
    findings: &mut Findings,
) -> Result<(), Failure> {
    if hosts.len() < 2 {
        return Ok(()); // the other checks have had a session to this server
    }
    let mut sessions = Vec::new();
    for host in hosts {
        sessions.extend(session_at(common, args, host, findings)?.map(|session| (host, session)));
    }
    let name = own_name();
    let mut made = None;
    for (host, session) in &sessions {
        let path = zk::join(&zk::nearest(session, &args.path)?, &name);
        // A failure has its finding: the ACL of the path, or a chroot that is not there.
        if create(&session.zookeeper().requests(), &path, CreateMode::Ephemeral).is_ok() {
            made = Some((*host, path));
            break;
        }
    }
    let Some((reference, path)) = made else { return Ok(()) };
    let mut is_one = sessions.len() == hosts.len();
    for (host, session) in sessions.iter().filter(|(host, _)| *host != reference) {
        let text = match create(&session.zookeeper().requests(), &path, CreateMode::Ephemeral) {
            Err(Error::NodeExists { .. }) => continue,
            // The end of the session deletes the node that was made.
            Ok(_) | Err(Error::NoNode { .. }) => format!(
                "{host} and {reference} belong to different ensembles: {reference} has a node that \
                 {host} does not have. Two could hold a lock"
            ),
            Err(e) => format!("{host} could not make a node: {e}"),
        };
        is_one = false;
        let advice = "name the servers of one ensemble in the connect string; if they should be \
                      one, compare the server.N lines in their zoo.cfg";
        findings.add("ensemble", Level::Fault, text, advice);
    }
    if is_one {
        findings.ok("ensemble", "all servers belong to one ensemble");
    }
    for (_, session) in &sessions {
        let _ = session.close();
    }
    Ok(())
}

/// A session to one host of the connect string; `None` if the host gives none, which is a finding.
fn session_at(
    common: &Common,
    args: &DoctorArgs,
    host: &str,
    findings: &mut Findings,
) -> Result<Option<ZkSession>, Failure> {
    let chroot = servers::chroot(common.connect.as_deref().unwrap_or_default());
    let common = Common {
        connect: Some(format!("{host}{chroot}")),
        connect_timeout: common.connect_timeout.min(HOST_LIMIT),
        ..common.clone()
    };
    match ZkSession::connect(connect::config(&common, args.session)?) {
        Ok(session) => Ok(Some(session)),
        Err(e) => {
            findings.add(
                "serving",
                Level::Fault,
                format!("{host} accepts connections and gives no session: {e}"),
                "see its log: it may be in no quorum, be overloaded, or refuse more connections \
                 of one host (maxClientCnxns in zoo.cfg)",
            );
            Ok(None)
        }
    }
}

/// Makes a node that everybody may use.
fn create(
    requests: &Requests,
    path: &str,
    mode: CreateMode,
) -> zk_mutex::zk_session::Result<Created> {
    requests.create(path, b"", mode, &Acl::Open)
}

/// The name of a node that no other process makes.
fn own_name() -> String {
    format!("zk-lock-doctor-{}-{}", std::process::id(), crate::time::boot_millis())
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

/// What sessions cost the servers while nothing else happens: the figures of the library's chapter
/// on costs. `answer` is how long a write takes.
fn upkeep(timeout: Duration, answer: Duration, hosts: &Hosts, findings: &mut Findings) {
    let t = show(timeout);
    let text = if answer > timeout / 32 {
        format!(
            "answers take more than {}, so a session that holds locks sends 16 requests in each \
             {t}, and some of them are writes; others send 4 and no write",
            fine(timeout / 32)
        )
    } else {
        format!(
            "in each {t}, a session that holds nothing sends 4 requests and no write, and one \
             that holds locks 8 requests, and 1.6 of them are writes"
        )
    };
    if hosts.stands_alone {
        return findings.ok("upkeep", text);
    }
    let state = "state it (Config::leader_serves): then they write nothing while others write";
    let advice = match &hosts.leader {
        Some(leader) => format!(
            "if many sessions hold locks: {leader} leads and serves clients; set leaderServes=no on \
             all servers first, and when all run with it, {state}"
        ),
        None => {
            format!("if many sessions hold locks, and all servers have leaderServes=no, {state}")
        }
    };
    findings.add("upkeep", Level::Ok, text, advice);
}

fn fine(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Writes, containers and the clock, by a node that is there for a moment. Returns how long a write
/// takes, if there is one.
fn writes(
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

fn acl(session: &ZkSession, folder: &str, findings: &mut Findings) -> Result<(), Failure> {
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

/// Clients that do not exclude each other.
fn clients(session: &ZkSession, path: &str, findings: &mut Findings) -> Result<(), Failure> {
    let Some(queue) = Standing::read(session, path)? else { return Ok(()) };
    let has = |clients: &[Client]| queue.contenders().any(|one| clients.contains(&one.client));
    let has_kazoos_names = has(&[Client::Kazoo, Client::KazooOrZkMutex]);
    let has_curators_names = queue.contenders().any(|one| one.name.starts_with("_c_"));
    let advice = "give kazoo's Lock extra_lock_patterns=[\"-lock-\"], and Curator's clients \
                  another path";
    if has_kazoos_names && has(&[Client::Curator]) {
        let text = format!("kazoo and Curator contend for {path}, and do not exclude each other");
        findings.add("clients", Level::Fault, text, advice);
    } else if has_kazoos_names && has_curators_names {
        let text = format!("kazoo contends for {path} with clients whose names it may not know");
        findings.add("clients", Level::Warning, text, advice);
    }
    if let Some(stuck) = queue.holders().find(|holder| holder.stat.owner == 0) {
        findings.add(
            "clients",
            Level::Note,
            format!("{} outlives all sessions: {}", stuck.path, stuck.describe()),
            "another client made it so; if its work is over, delete it with `zk-lock break`",
        );
    }
    Ok(())
}

fn report(findings: &Findings, output: &Output) -> Result<u8, Failure> {
    for Finding { check, level, text, advice } in &findings.0 {
        if output.json {
            let level = level.name().to_lowercase();
            let fields = json!({"check": check, "level": level, "text": text, "advice": advice});
            output.report("finding", fields, "")?;
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
