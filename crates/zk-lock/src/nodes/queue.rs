//! The queue of a lock, read from its nodes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zk_mutex::ZkSession;
use zk_mutex::zk_session::Stat;

use super::names::{self, Client, Kind, REVOKE};
use crate::exit::Failure;
use crate::time::show;
use crate::zk;

/// A node in a lock's queue.
#[derive(Clone, Debug)]
pub struct Contender {
    pub path: String,
    pub name: String,
    pub kind: Kind,
    pub client: Client,
    pub sequence: i64,
    pub holds: bool,
    pub data: Vec<u8>,
    pub stat: Stat,
}

/// A lock at a path, with its contenders.
#[derive(Clone, Debug)]
pub struct Queue {
    pub path: String,
    pub kind: &'static str,
    /// A semaphore's number of permits.
    pub permits: Option<u32>,
    /// The holders, and behind them the waiters, in their order.
    pub contenders: Vec<Contender>,
}

impl Queue {
    /// Reads the lock at a path; `None` if no lock is there.
    pub fn read(session: &ZkSession, path: &str) -> Result<Option<Queue>, Failure> {
        zk::catch_up(session)?;
        match zk::children(session, path)? {
            None => Ok(None),
            Some(children) => Queue::of(session, path, &children),
        }
    }

    /// As `read`, but the names of the node's children are known already.
    pub fn of(
        session: &ZkSession,
        path: &str,
        children: &[String],
    ) -> Result<Option<Queue>, Failure> {
        if children.is_empty() {
            return exclusive(session, path);
        }
        if children.iter().any(|child| child == "leases") {
            return semaphore(session, path);
        }
        if children.iter().any(|child| names::is_hex(child)) {
            return kazoo_semaphore(session, path, children);
        }
        let mut contenders = contenders(session, path, children)?;
        if contenders.is_empty() {
            return Ok(None);
        }
        mark_holders(&mut contenders);
        let has = |kind| contenders.iter().any(|contender: &Contender| contender.kind == kind);
        let kind = if has(Kind::Candidate) {
            "election"
        } else if has(Kind::Read) || has(Kind::Write) {
            "read/write"
        } else {
            "mutex"
        };
        Ok(Some(Queue { path: path.to_owned(), kind, permits: None, contenders }))
    }

    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(|contender| contender.holds)
    }

    pub fn waiting(&self) -> usize {
        self.contenders.iter().filter(|contender| !contender.holds).count()
    }

    pub fn json(&self) -> Value {
        let contenders: Vec<Value> = self.contenders.iter().map(Contender::json).collect();
        json!({
            "path": self.path,
            "kind": self.kind,
            "permits": self.permits,
            "holders": self.holders().count(),
            "waiting": self.waiting(),
            "contenders": contenders,
        })
    }
}

/// The contenders among these children, in the order of the queue. A node that goes meanwhile is
/// left out.
fn contenders(
    session: &ZkSession,
    path: &str,
    children: &[String],
) -> Result<Vec<Contender>, Failure> {
    let mut all = Vec::new();
    for (child, name) in children.iter().filter_map(|child| Some((child, names::parse(child)?))) {
        let path = zk::join(path, child);
        let Some((data, stat)) = zk::data(session, &path)? else { continue };
        all.push(Contender {
            path,
            name: child.clone(),
            kind: name.kind,
            client: name.client(&data),
            sequence: name.sequence,
            holds: false,
            data,
            stat,
        });
    }
    all.sort_by_key(|contender| (contender.sequence, contender.stat.czxid));
    Ok(all)
}

/// The first contender holds, and so do all readers ahead of the first writer. The candidates of an
/// election stand in a queue of their own.
fn mark_holders(contenders: &mut [Contender]) {
    let mut readers_only = true;
    for (i, contender) in
        contenders.iter_mut().filter(|contender| contender.kind != Kind::Candidate).enumerate()
    {
        readers_only &= contender.kind == Kind::Read;
        contender.holds = i == 0 || readers_only;
    }
    let leader = contenders.iter_mut().find(|contender| contender.kind == Kind::Candidate);
    if let Some(leader) = leader {
        leader.holds = true;
    }
}

fn semaphore(session: &ZkSession, path: &str) -> Result<Option<Queue>, Failure> {
    let (leases, locks) = (zk::join(path, "leases"), zk::join(path, "locks"));
    let listed = zk::children(session, &leases)?.unwrap_or_default();
    let mut all = contenders(session, &leases, &listed)?;
    all.iter_mut().for_each(|contender| contender.holds = true);
    let listed = zk::children(session, &locks)?.unwrap_or_default();
    all.extend(contenders(session, &locks, &listed)?);
    let number = zk::data(session, path)?
        .and_then(|(data, _)| std::str::from_utf8(&data).ok()?.trim().parse().ok());
    Ok(Some(Queue { path: path.to_owned(), kind: "semaphore", permits: number, contenders: all }))
}

/// A semaphore of kazoo's: its leases are nodes without a number, which are named by hex digits,
/// and the number of leases stands in the folder. (The waiters stand in another folder.)
fn kazoo_semaphore(
    session: &ZkSession,
    path: &str,
    children: &[String],
) -> Result<Option<Queue>, Failure> {
    let number = zk::data(session, path)?
        .and_then(|(data, _)| std::str::from_utf8(&data).ok()?.trim().parse().ok());
    if number.is_none() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for child in children.iter().filter(|child| names::is_hex(child)) {
        let path = zk::join(path, child);
        let Some((data, stat)) = zk::data(session, &path)? else { continue };
        let (kind, client, name) = (Kind::Permit, Client::Kazoo, child.clone());
        all.push(Contender { path, name, kind, client, sequence: 0, holds: true, data, stat });
    }
    all.sort_by_key(|contender| contender.stat.czxid);
    Ok(Some(Queue { path: path.to_owned(), kind: "semaphore", permits: number, contenders: all }))
}

/// A lock that is the node itself: an ephemeral node whose data begins with a UUID on a line of its
/// own, as zk-mutex writes it.
fn exclusive(session: &ZkSession, path: &str) -> Result<Option<Queue>, Failure> {
    let Some((data, stat)) = zk::data(session, path)? else { return Ok(None) };
    let line = data.iter().position(|byte| *byte == b'\n');
    let nonce = line.and_then(|end| std::str::from_utf8(&data[..end]).ok());
    let (Some(end), true, true) = (line, stat.owner != 0, nonce.is_some_and(names::is_uuid)) else {
        return Ok(None);
    };
    let holder = Contender {
        path: path.to_owned(),
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: Kind::Exclusive,
        client: Client::ZkMutex,
        sequence: 0,
        holds: true,
        data: data[end + 1..].to_vec(),
        stat,
    };
    let contenders = vec![holder];
    Ok(Some(Queue { path: path.to_owned(), kind: "exclusive", permits: None, contenders }))
}

impl Contender {
    /// For how long its node has been there, by this host's clock.
    pub fn age(&self) -> Duration {
        let created = u64::try_from(self.stat.ctime).unwrap_or(0);
        let created = UNIX_EPOCH + Duration::from_millis(created);
        SystemTime::now().duration_since(created).unwrap_or_default()
    }

    pub fn is_asked_to_let_go(&self) -> bool {
        self.data == REVOKE
    }

    pub fn session(&self) -> String {
        match self.stat.owner {
            0 => "-".to_owned(),
            id => format!("0x{id:x}"),
        }
    }

    /// Host and process, or the data as it is, on one line.
    pub fn place(&self) -> String {
        if self.is_asked_to_let_go() {
            return "(asked to let go)".to_owned();
        }
        if self.data.is_empty() {
            return "-".to_owned();
        }
        let text: String = String::from_utf8_lossy(&self.data).escape_debug().collect();
        match text.char_indices().nth(60) {
            Some((end, _)) => format!("{}..", &text[..end]),
            None => text,
        }
    }

    /// For a message: host and process, library, session and age.
    pub fn describe(&self) -> String {
        let session = match self.stat.owner {
            0 => "no session: it stays until somebody deletes it".to_owned(),
            id => format!("session 0x{id:x}"),
        };
        let (place, client) = (self.place(), self.client.name());
        format!("{place}, {client}, {session}, for {}", show(self.age()))
    }

    pub fn json(&self) -> Value {
        let pid = names::host_and_pid(&self.data).map(|(_, pid)| pid);
        json!({
            "node": self.name,
            "path": self.path,
            "kind": self.kind.name(),
            "client": self.client.name(),
            "sequence": self.sequence,
            "holds": self.holds,
            "host": names::host(&self.data),
            "pid": pid,
            "session": self.session(),
            "persistent": self.stat.owner == 0,
            "asked_to_let_go": self.is_asked_to_let_go(),
            "created_ms": self.stat.ctime,
            "age_ms": u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX),
            "czxid": format!("0x{:x}", self.stat.czxid),
            "data": String::from_utf8_lossy(&self.data),
        })
    }
}
