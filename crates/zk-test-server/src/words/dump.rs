//! The four-letter words with long answers: connections, sessions, ephemeral nodes, watches.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Text, date};
use crate::engine::{ConnId, Engine};

/// `zookeeper.nio.sessionlessCnxnTimeout`, which is also the real server's step for the expiry of
/// connections.
const CONNECTION_STEP: Duration = Duration::from_secs(10);

/// The answer to `cons`; in its short form, a part of the answer to `stat`.
pub(super) fn connections(engine: &Engine, asking: ConnId, fully: bool, text: &mut Text) {
    for (id, conn) in engine.connections() {
        let interest = u8::from(id != asking);
        text.add(format_args!(
            " /{}[{interest}](queued=0,recved={},sent={}",
            conn.peer, conn.received, conn.sent
        ));
        if fully && conn.session != 0 {
            text.add(format_args!(
                ",sid={:#x},lop={},est={},to={}",
                conn.session,
                conn.last.op,
                engine.wall_ms_at(conn.since),
                conn.timeout.as_millis()
            ));
            if conn.last.xid >= 0 {
                text.add(format_args!(",lcxid={:#x}", conn.last.xid));
            }
            text.add(format_args!(
                ",lzxid={:#x},lresp={},llat=0,minlat=0,avglat=0,maxlat=0",
                conn.last.zxid,
                conn.last.at.as_millis()
            ));
        }
        text.line(format_args!(")"));
    }
}

/// The answer to `dump`.
pub(super) fn all(engine: &Engine, text: &mut Text) {
    text.line(format_args!("SessionTracker dump:"));
    let sessions = engine.session_expiries();
    text.add(format_args!("Session "));
    sets(engine, &sessions, |session| format!("{session:#x}"), text);
    text.line(format_args!("ephemeral nodes dump:"));
    let ephemerals = engine.ephemerals();
    text.line(format_args!("Sessions with Ephemerals ({}):", ephemerals.len()));
    for (session, paths) in &ephemerals {
        text.line(format_args!("{session:#x}:"));
        for path in paths {
            text.line(format_args!("\t{path}"));
        }
    }
    text.line(format_args!("Connections dump:"));
    text.add(format_args!("Connections "));
    let mut connections: BTreeMap<Duration, Vec<String>> = BTreeMap::new();
    for (_, conn) in engine.connections() {
        let timeout = if conn.session == 0 { CONNECTION_STEP } else { conn.timeout };
        let end = conn.last.at.max(conn.since).saturating_add(timeout).as_secs();
        let step = CONNECTION_STEP.as_secs();
        let bucket = Duration::from_secs((end / step + 1).saturating_mul(step));
        let connection = format!("ip: /{} sessionId: {:#x}", conn.peer, conn.session);
        connections.entry(bucket).or_default().push(connection);
    }
    sets(engine, &connections, Clone::clone, text);
}

/// Lists the items that expire together (`ExpiryQueue.dump`).
fn sets<T>(
    engine: &Engine,
    sets: &BTreeMap<Duration, Vec<T>>,
    name: impl Fn(&T) -> String,
    text: &mut Text,
) {
    text.line(format_args!(
        "Sets ({})/({}):",
        sets.len(),
        sets.values().map(Vec::len).sum::<usize>()
    ));
    for (at, items) in sets {
        text.line(format_args!("{} expire at {}:", items.len(), date::utc(engine.wall_ms_at(*at))));
        for item in items {
            text.line(format_args!("\t{}", name(item)));
        }
    }
}

/// The answer to `wchs`.
pub(super) fn watch_summary(engine: &Engine, text: &mut Text) {
    let watches = engine.data_watches();
    text.line(format_args!(
        "{} connections watching {} paths",
        watches.by_conn().len(),
        watches.by_path().len()
    ));
    text.line(format_args!("Total watches:{}", watches.len()));
}

/// The answer to `wchp`.
pub(super) fn watches_by_path(engine: &Engine, text: &mut Text) {
    let by_path: BTreeMap<_, _> = engine.data_watches().by_path().iter().collect();
    for (path, conns) in by_path {
        text.line(format_args!("{path}"));
        for conn in conns.keys() {
            text.line(format_args!("\t{:#x}", engine.session_of(*conn)));
        }
    }
    text.line(format_args!(""));
}

/// The answer to `wchc`.
pub(super) fn watches_by_session(engine: &Engine, text: &mut Text) {
    let by_conn: BTreeMap<_, _> = engine.data_watches().by_conn().iter().collect();
    for (conn, paths) in by_conn {
        text.line(format_args!("{:#x}", engine.session_of(*conn)));
        let mut paths: Vec<_> = paths.iter().collect();
        paths.sort_unstable();
        for path in paths {
            text.line(format_args!("\t{path}"));
        }
    }
    text.line(format_args!(""));
}
