//! A model of who owns a session, checked exhaustively. `tests/ownership` at the top of the
//! repository builds and runs it.
//!
//! The client is the library's own machine (zk-session's `machine/`, with `heard.rs` and the
//! end of the lease in `lease.rs`): bytes and times go in, bytes and outputs come out. `build.rs`
//! copies these files to a place where their types can be cloned and hashed. The servers are
//! written for this model (`world.rs`): a leader, two followers, the streams between them that
//! stop, go on and break, the leader's table of sessions, and one folder of nodes.
//!
//! The search (`search.rs`) plays all histories of a few actions, the shortest first, and asks
//! after each action:
//!
//! * Does a node exist that no caller wants, and that the session has forgotten? (G4)
//! * If such a node exists and the session knows it: is it gone after two more session timeouts
//!   without faults? (G4)
//! * Has a request of ours deleted the node of another client, or of our own next lock? (G1)
//! * Does the lease end later than T - T/12 after the leader heard of the session? (G1)
//!
//! No history may be found for the rule of today. For each weaker rule (`rules.rs`), which is a copy
//! of the machine with a piece of text replaced, the search must find one, and prints the shortest.
//!
//! The search is our own, 90 lines: the machine cannot be compared or hashed in the library itself,
//! so a checker such as the crate `stateright` would need the same copies.
//!
//! # What the model relies on
//!
//! Class and method of ZooKeeper 3.8. Where 3.5 to 3.9 differ, it is said.
//!
//! | what | where |
//! | --- | --- |
//! | A follower sends a REVALIDATE for each connect request, from the thread that serves the request, and remembers one connection for each session: the next answer completes it. | `Learner.validateSession`, `Learner.revalidate`, `pendingRevalidations`; `LearnerZooKeeperServer.revalidateSession` |
//! | A server does nothing for a session before it has read a connect request. So sockets that the client has opened at other servers meanwhile are no part of the model. The client sends one connect request at a time, and may give it up at any moment to send the next one. | `NIOServerCnxn.readConnectRequest`, `ZooKeeperServer.processConnectRequest` |
//! | The leader takes the sender of a REVALIDATE as the owner, and counts it as a sign of life. | `Leader.revalidateSession` (3.5: in `LearnerHandler.run`), `SessionTrackerImpl.setOwner` |
//! | At the leader itself a connect request makes the leader the owner at once. | `LeaderZooKeeperServer.revalidateSession` |
//! | A write that comes through another server than the owner is refused. That is a transaction, too. If nobody is the owner, the sender becomes it. | `PrepRequestProcessor.pRequest`, `SessionTrackerImpl.checkSession` |
//! | The owner is a stream of a server and not the server: after it has joined anew it is another owner. | `LearnerHandler.run`: `si.setOwner(this)` |
//! | A server that has to answer SESSION_MOVED closes the connection in the place of an answer. | `FinalRequestProcessor.processRequest`: `sendCloseSession` |
//! | A follower's `sync` is answered whoever is the owner. The leader's own clients are refused all requests, reads and pings too, when the session has moved. | `ProposalRequestProcessor.processRequest` with `LearnerSyncRequest`; `PrepRequestProcessor.pRequest`: `case OpCode.sync` and below |
//! | Requests of a follower's clients wait in a queue for the thread that writes them to the leader. REVALIDATEs and answers to pings do not wait there, and may pass them. | `FollowerRequestProcessor.run`, `Learner.writePacket` (since 3.6 optionally with a queue behind it, `zookeeper.learner.asyncSending`) |
//! | At the leader, too, a connect request may pass requests of an earlier connection. | `ZooKeeperServer.processConnectRequest` runs on the socket's thread; `RequestThrottler` (since 3.6) and `PrepRequestProcessor` have queues |
//! | A new connection at the same server ends the session's earlier one there; requests that the server has read are done all the same. | `ServerCnxnFactory.closeSession` |
//! | A connect request that has seen a newer zxid than the server is refused. | `ZooKeeperServer.processConnectRequest` |
//! | A session's requests are answered in their order; a read waits for the writes before it. | `CommitProcessor.run` |
//! | The leader hears of a session by a REVALIDATE, by requests of its own clients, and by the answers to its pings, half a tick apart; a forwarded request does not count. | `LearnerHandler.run`: `case Leader.PING`; `Learner.ping`, `LearnerSessionTracker.snapshot`; `ZooKeeperServer.touch` |
//! | The leader expires a session at the latest T and a tick after it last heard of it. | `SessionTrackerImpl.run`, `ExpiryQueue.roundToNextInterval` |
//! | A new leader has no owners, and counts each session's timeout anew. | `SessionTrackerImpl`, made by `LeaderZooKeeperServer.createSessionTracker` |
//! | A server that loses its leader closes its clients' connections, and forgets the requests that it has not sent. | `Follower.shutdown`, `FollowerRequestProcessor.shutdown` |
//! | Until an old leader hears of the new one, it completes handshakes, and answers reads, pings and `sync`s. | `Leader.lead` (it looks every half tick), `Leader.processSync` |
//! | A stream that stands still breaks after syncLimit ticks: here, after the time that the library assumes at most (`removal::late_bound`). | `Learner.syncWithLeader` and `LearnerHandler.run`: `setSoTimeout` |
//!
//! # What is left out
//!
//! Observers, local sessions, eager ACL checks (`heard/search.rs` has these), clocks that differ
//! (also there), a leader's write without a quorum, the time that packets take. Packets wait only
//! in streams that stand still. In the scopes without time no time passes, so the machine sends no
//! pings there. After the leader has expired the session a history goes no further.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

mod client;
#[allow(dead_code)] // only `build.rs` uses the edits
mod rules;
mod scope;
mod search;
mod world;

use rules::{WEAKER, Weaker};
use scope::{SCOPES, Scope};
use search::{Outcome, search};

include!(concat!(env!("OUT_DIR"), "/copies.rs"));

/// What a search shall find.
struct Job {
    scope: &'static Scope,
    /// `None`: the rule of today, for which nothing may be found. Otherwise words of what goes
    /// wrong.
    weaker: Option<(&'static Weaker, &'static str)>,
    depth: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let all = match jobs(&args) {
        Ok(all) => all,
        Err(what) => {
            eprintln!("{what}\nzk-mutex-ownership [RULE [SCOPE [DEPTH]]]");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let (queue, failed) = (Mutex::new(all), Mutex::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                loop {
                    let Some(job) = queue.lock().expect("no panic").pop_front() else { return };
                    if !did(&job) {
                        *failed.lock().expect("no panic") += 1;
                    }
                }
            });
        }
    });
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    if *failed.lock().expect("no panic") > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// By default all that CI searches: the rule of today first, because that takes long.
fn jobs(args: &[String]) -> Result<VecDeque<Job>, String> {
    let depth = args.get(2).map(|depth| depth.parse().map_err(|_| "DEPTH is a number"));
    let depth = depth.transpose()?;
    let named = |at: usize, name: &str| args.get(at).is_none_or(|arg| arg == name);
    let mut all = VecDeque::new();
    for scope in SCOPES.iter().filter(|scope| named(1, scope.name) && named(0, "today")) {
        all.push_back(Job { scope, weaker: None, depth: depth.unwrap_or(scope.depth) });
    }
    for rule in WEAKER.iter().filter(|rule| named(0, rule.name)) {
        for (name, words) in rule.found_in.iter().filter(|(name, _)| named(1, name)) {
            let scope = SCOPES.iter().find(|scope| scope.name == *name);
            let scope = scope.ok_or(format!("{}: no scope {name}", rule.name))?;
            let weaker = Some((rule, *words));
            all.push_back(Job { scope, weaker, depth: depth.unwrap_or(scope.depth) });
        }
    }
    if all.is_empty() { Err("there is nothing to search".into()) } else { Ok(all) }
}

/// Searches, and prints what was found in one piece. False if it is not what shall be found.
fn did(job: &Job) -> bool {
    let Job { scope, weaker, depth } = job;
    let begun = Instant::now();
    let rule = weaker.map_or("today", |(rule, _)| rule.name);
    let Outcome { found, states, steps } = search(scope, rule, *depth);
    let took = begun.elapsed().as_secs_f64();
    let effort = format!("{states} states, {steps} steps, {took:.1} s");
    let mut text = match weaker {
        None => format!("today, {}: all histories of {depth} actions: {effort}\n", scope.name),
        Some((rule, _)) => format!("{}, {} ({}): {effort}\n", rule.name, scope.name, rule.what),
    };
    let is_right = match (&found, weaker) {
        (None, None) => true,
        (Some(found), Some((_, words))) => found.wrong.contains(words),
        _ => false,
    };
    if let Some(found) = &found {
        text += &format!("    the client makes its session at server {}", found.start.at);
        text += &format!(", {} ms after a ping of the leader\n", found.start.after_ping);
        for action in found.start.done.iter().chain(&found.history) {
            text += &format!("    {action}\n");
        }
        text += &format!("  => {}\n", found.wrong);
    }
    if !is_right {
        text += match weaker {
            None => "  A HISTORY WAS FOUND FOR THE RULE OF TODAY\n",
            Some(_) => "  THE HISTORY THAT SHOWS THIS WAS NOT FOUND\n",
        };
    }
    println!("{}", text.trim_end());
    is_right
}
