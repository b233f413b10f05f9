//! Each server of the connect string by itself, and whether all are servers of one ensemble.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_mutex::ZkSession;
use zk_mutex::zk_session::{CreateMode, Error};

use super::super::servers;
use super::super::words::{self, Silence, Words};
use super::nodes::{create, own_name};
use super::report::{Findings, Level};
use crate::cli::{Common, DoctorArgs};
use crate::exit::Failure;
use crate::time::show;
use crate::{connect, zk};

/// A server without a quorum answers each four-letter word that asks for its state with this.
const NOT_SERVING: &str = "not currently serving requests";
/// The mode of a server without a quorum that was started with `readonlymode.enabled`.
const READ_ONLY: &str = "read-only";
/// How long the session to one host may take.
const HOST_LIMIT: Duration = Duration::from_secs(5);

/// The results of the check of each server that later checks need.
#[derive(Default)]
pub struct Hosts {
    /// The hosts that accept connections, and do not say that they cannot serve.
    pub serving: Vec<String>,
    /// Those of them that do not answer as a server does, and why.
    pub silent: Vec<(String, String)>,
    /// The server that leads and serves clients, if one says so.
    pub leader: Option<String>,
    /// A server stands alone: it leads nobody, and serves clients.
    pub stands_alone: bool,
    /// The settings of each server that allows `conf`.
    pub settings: Vec<(String, String)>,
    /// Why a server does not tell its settings, if one does not.
    pub no_settings: Option<String>,
    /// The sessions that are connected, each with its timeout; without those of servers that do
    /// not allow `cons`.
    pub sessions: BTreeMap<String, Option<Duration>>,
    /// Why a server does not tell its sessions, if one does not.
    pub no_sessions: Option<String>,
}

/// Checks each server by itself.
pub fn check_hosts(common: &Common, findings: &mut Findings) -> Hosts {
    let hosts = servers::hosts(common.connect.as_deref().unwrap_or_default());
    let words = Words::new(common);
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
        let took = match words::dial(host) {
            Ok(took) => took,
            Err(why) => {
                let text = format!("{host}: {why}");
                checked.no_settings = Some(text.clone());
                checked.no_sessions = Some(text.clone());
                findings.add(
                    "reachable",
                    Level::Fault,
                    text,
                    "start the server, open the port, or correct the connect string",
                );
                continue;
            }
        };
        let answer = match words.ask(host, "srvr") {
            Ok(answer) => answer,
            Err(silence) => {
                all_tell = false;
                let (took, why) = (show(took), silence.why());
                let text = format!(
                    "{host} accepts connections ({took}), and its state is not known: {why}"
                );
                findings.add("reachable", Level::Note, text, silence.advice());
                checked.no_settings = Some(format!("{host}: {why}"));
                checked.no_sessions = Some(format!("{host}: {why}"));
                checked.serving.push(host.clone());
                if !matches!(silence, Silence::NotAllowed(_)) {
                    checked.silent.push((host.clone(), why));
                }
                continue;
            }
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
        match words.ask(host, "conf") {
            Ok(settings) => checked.settings.push((host.clone(), settings)),
            Err(silence) => checked.no_settings = Some(format!("{host}: {}", silence.why())),
        }
        match words.ask(host, "cons") {
            Ok(answer) => {
                let all = servers::connections(&answer).map(|one| (one.session, one.timeout));
                checked.sessions.extend(all);
            }
            Err(silence) => checked.no_sessions = Some(format!("{host}: {}", silence.why())),
        }
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

/// The value of a line of a server's answer that begins with `key`.
pub fn value<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Whether each host gives a session, and all are servers of one ensemble. A session to one host
/// makes a node for the time of the check, and a session to each other host tries to make the same
/// node. The leader decides about each create, so a server of the same ensemble refuses it, also
/// while its own copy of the tree is behind.
pub fn one_ensemble(
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
            Err(e @ Error::Auth { .. }) => {
                is_one = false;
                login_refused(host, e.into(), findings);
                continue;
            }
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

/// A session was refused by a server that it reached first. Tries each host by itself: others may
/// let this client in.
pub fn logins(
    common: &Common,
    args: &DoctorArgs,
    hosts: &[String],
    findings: &mut Findings,
) -> Result<(), Failure> {
    for host in hosts {
        if let Some(session) = session_at(common, args, host, findings)? {
            let _ = session.close();
            findings.ok("login", format!("{host} takes the login of this client"));
        }
    }
    Ok(())
}

fn login_refused(host: &str, why: Failure, findings: &mut Findings) {
    let text = format!("{host} does not let this client in: {}", why.message);
    let advice = "if other servers of the ensemble do, compare the section Server of their JAAS \
                  files: a session that comes to this one has to go on to another";
    findings.add("login", Level::Fault, text, advice);
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
    let config = connect::config(&common, args.session)?.create_chroot();
    match ZkSession::connect(config) {
        Ok(session) => Ok(Some(session)),
        Err(e @ zk_mutex::Error::Auth { .. }) => {
            login_refused(host, e.into(), findings);
            Ok(None)
        }
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
