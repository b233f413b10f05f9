//! What sessions cost the servers while nothing else happens: the figures of the library's chapter
//! on costs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ensemble::Hosts;
use super::nodes::fine;
use super::report::{Findings, Level};
use super::survey::Survey;
use crate::nodes::names::Client;
use crate::nodes::queue::{Contender, Queue};
use crate::time::show;

/// What a session sends in each session timeout: one that holds nothing, and one that holds locks.
const IDLE_REQUESTS: f64 = 4.0;
const HOLDER_REQUESTS: f64 = 8.0;
const HOLDER_WRITES: f64 = 1.6;
/// Where answers are later than a 32nd of the session timeout, a holder sends twice as many.
const SLOW: u32 = 32;

/// Of one session. `answer` is how long a write takes.
pub fn of_a_session(timeout: Duration, answer: Duration, hosts: &Hosts, findings: &mut Findings) {
    let t = show(timeout);
    let text = if answer > timeout / SLOW {
        format!(
            "answers take more than {}, so a session that holds locks sends {} requests in each \
             {t}, and some of them are writes; others send {IDLE_REQUESTS} and no write",
            fine(timeout / SLOW),
            2.0 * HOLDER_REQUESTS
        )
    } else {
        format!(
            "in each {t}, a session that holds nothing sends {IDLE_REQUESTS} requests and no \
             write, and one that holds locks {HOLDER_REQUESTS} requests, and {HOLDER_WRITES} of \
             them are writes"
        )
    };
    if hosts.stands_alone {
        return findings.ok("upkeep", text);
    }
    let state = "state it (Config::leader_serves): then they write nothing while others write";
    let advice = match &hosts.leader {
        Some(leader) => format!(
            "if many sessions hold locks: {leader} leads and serves clients; set leaderServes=no \
             on all servers first, and when all run with it, {state}"
        ),
        None => {
            format!("if many sessions hold locks, and all servers have leaderServes=no, {state}")
        }
    };
    findings.add("upkeep", Level::Ok, text, advice);
}

/// Of the fleet: of all sessions that hold locks below this path, and of those that are connected
/// beside them. A session whose timeout no server tells counts with `timeout`.
pub fn of_the_fleet(
    path: &str,
    survey: &Survey,
    timeout: Duration,
    answer: Duration,
    hosts: &Hosts,
    findings: &mut Findings,
) {
    let holders = |is_ours: bool| -> BTreeSet<String> {
        let holders = survey.queues().flat_map(Queue::holders).filter(|one| one.stat.owner != 0);
        let holders = holders.filter(|one| {
            matches!(one.client, Client::ZkMutex | Client::KazooOrZkMutex) == is_ours
        });
        holders.map(Contender::session).collect()
    };
    let (ours, others) = (holders(true), holders(false));
    let is_idle = |session: &&String| !ours.contains(*session) && !others.contains(*session);
    let idle: Vec<&String> = hosts.sessions.keys().filter(is_idle).collect();
    // So often in a second passes the timeout of one of these sessions.
    let rate = |sessions: &mut dyn Iterator<Item = &String>| {
        sessions.fold(0.0, |sum, session| {
            let told = hosts.sessions.get(session).copied().flatten();
            sum + 1.0 / told.unwrap_or(timeout).as_secs_f64().max(0.001)
        })
    };
    let mut text = match (survey.queues().count(), survey.is_cut) {
        (0, false) => format!("no lock is in use below {path}"),
        (1, false) => format!("1 lock is in use below {path}"),
        (locks, false) => format!("{locks} locks are in use below {path}"),
        (locks, true) => format!("{locks} locks in use were found below {path} in time"),
    };
    if !ours.is_empty() {
        let held = rate(&mut ours.iter());
        let (requests, writes) = if answer > timeout / SLOW {
            (2.0 * HOLDER_REQUESTS, "some of them writes".to_owned())
        } else {
            (HOLDER_REQUESTS, format!("{:.2} of them writes", held * HOLDER_WRITES))
        };
        text += &format!(
            ", held by {} of zk-mutex, which send {:.2} requests a second for that, {writes}",
            count(ours.len()),
            held * requests
        );
    }
    if !others.is_empty() {
        text += &format!("; other clients hold locks with {}", count(others.len()));
    }
    text += &match (&hosts.no_sessions, idle.len()) {
        (Some(why), _) => format!("; how many more are connected is not known ({why})"),
        (None, 0) => "; no other client is connected to the ports that were asked".to_owned(),
        (None, more) => format!(
            "; {} more, if all are of zk-mutex and hold nothing elsewhere, send {:.2}",
            count(more),
            rate(&mut idle.into_iter()) * IDLE_REQUESTS
        ),
    };
    findings.ok("upkeep", text);
}

fn count(sessions: usize) -> String {
    format!("{sessions} session{}", if sessions == 1 { "" } else { "s" })
}
