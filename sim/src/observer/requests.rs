//! A session does not chatter: what it sends has a reason.
//!
//! The reasons are the calls of its process, the events of its watches, a new connection, and its
//! own clock. The requests of each process are counted from the last reason on: the begin or the
//! end of a call, an event that has arrived, the first message on a connection. Each of them can
//! cause a number of requests that does not grow with time. And the clock causes so many in each
//! session timeout, whatever the delay of the network is. One request after the other without a
//! pause is more than that on any network.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::net::{self, ConnId, Connection, Side};
use zk_sim_runtime::{ProcessId, as_world, now, process_name, this_process};
use zk_wire::frame::Frames;

use super::heard::Asked;
use super::{Broken, Observer, Seen, report};

const TOO_MANY: &str = "too many requests";

/// So many requests one reason may cause. In 21 seeds and all plans none caused more than 56: a new
/// connection on which much has to be looked at and deleted. A session that sends the next request
/// as soon as it may reaches thousands in a part of its timeout.
const OF_ONE_REASON: f64 = 512.0;

/// So many requests a session may send in each session timeout without another reason. A session
/// that holds something and can prove its lease only by writes of its own sends about 24.
const OF_THE_CLOCK: f64 = 64.0;

/// The connections of one process that are remembered.
const REMEMBERED: usize = 8;

/// The xid of an event.
const EVENT: i32 = -1;

/// What the clients send and hear.
#[derive(Default)]
pub(super) struct Traffic {
    streams: BTreeMap<ProcessId, BTreeMap<ConnId, Streams>>,
    sent: BTreeMap<ProcessId, Sent>,
}

#[derive(Default)]
struct Streams {
    up: Frames,
    down: Frames,
    /// The client has asked for a session, and for what since then.
    has_asked: bool,
    asked: Asked,
    /// A server has said something on it; and the session that it has taken up.
    is_greeted: bool,
    session: Option<i64>,
}

/// The requests of a process since the last reason.
struct Sent {
    since: Duration,
    requests: u32,
    is_counted: bool,
}

impl Observer {
    /// Begins to observe what the clients of this run send.
    pub(super) fn watch_requests(&self) {
        let observer = self.clone();
        net::watch_clients(move |about, from, bytes| {
            as_world(|| report(observer.seen(|seen| seen.bytes(about, from, bytes))));
        });
    }

    /// A call of this process begins or ends.
    pub fn calls(&self) {
        if let Some(process) = this_process() {
            self.seen(|seen| seen.traffic.has_reason(process));
        }
    }
}

impl Traffic {
    fn has_reason(&mut self, process: ProcessId) {
        self.sent.insert(process, Sent { since: now(), requests: 0, is_counted: false });
    }
}

impl Seen {
    fn bytes(&mut self, about: &Connection, from: Side, bytes: &[u8]) -> Option<Broken> {
        let all = self.traffic.streams.entry(about.process).or_default();
        let is_new = !all.contains_key(&about.id);
        if is_new && all.len() >= REMEMBERED {
            all.pop_first();
        }
        let streams = all.entry(about.id).or_default();
        let Streams { up, down, has_asked, asked, is_greeted, session } = streams;
        let frames = if from == Side::Client { up } else { down };
        frames.push(bytes);
        let (mut requests, mut has_event, mut heard) = (0, false, Vec::new());
        while let Ok(Some(frame)) = frames.next() {
            let xid = frame.first_chunk().map(|xid| i32::from_be_bytes(*xid));
            match from {
                Side::Client => {
                    requests += 1;
                    if std::mem::replace(has_asked, true) {
                        asked.sends(frame, &self.setting.places);
                    }
                }
                Side::Server if !std::mem::replace(is_greeted, true) => {
                    *session = self.unserved.greets(about.process, frame, &self.setting);
                    match session {
                        Some(session) => self.reaching.is_taken_up(about.process, *session),
                        None => self.reaching.is_not_taken_up(about.process, about.to),
                    }
                }
                Side::Server => {
                    has_event |= xid == Some(EVENT);
                    heard.extend(asked.hears(frame));
                    if let Some(session) = session {
                        self.unserved.says(*session, xid, &self.setting);
                    }
                }
            }
        }
        for lock in heard {
            self.has_heard(about.process, lock);
        }
        if is_new || has_event {
            self.traffic.has_reason(about.process);
        }
        if requests > 0 { self.sends(about.process, requests) } else { None }
    }

    fn sends(&mut self, process: ProcessId, requests: u32) -> Option<Broken> {
        let sent = self.traffic.sent.get_mut(&process)?;
        sent.requests += requests;
        let lasted = now() - sent.since;
        let timeouts = lasted.as_secs_f64() / self.setting.shortest_timeout.as_secs_f64();
        // By then no other reason than the clock is left.
        if timeouts > 0.125 && !std::mem::replace(&mut sent.is_counted, true) {
            self.counts.note(TOO_MANY);
        }
        let text = format!(
            "{} has sent {} requests in {lasted:?}, and there was no call and no event",
            process_name(process),
            sent.requests
        );
        let most = OF_ONE_REASON + timeouts * OF_THE_CLOCK;
        (f64::from(sent.requests) > most).then_some((TOO_MANY, text))
    }
}
