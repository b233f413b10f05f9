//! The queue of a lock, read from its nodes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zk_mutex::ZkSession;
use zk_mutex::zk_session::Stat;

use super::names::{self, Client, Kind, REVOKE};
use super::record::Record;
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
    /// The data of its node. If it was asked to let go, the request has replaced that data, and
    /// this is the data before, where zk-lock has noted it; otherwise it is empty.
    pub data: Vec<u8>,
    /// Somebody has asked it to let go.
    pub is_asked: bool,
    pub stat: Stat,
}

/// A lock at a path, with its contenders.
#[derive(Clone, Debug)]
pub struct Queue {
    pub path: String,
    pub kind: LockKind,
    /// A semaphore's number of permits.
    pub permits: Option<u32>,
    /// The holders, and behind them the waiters, in their order.
    pub contenders: Vec<Contender>,
}

/// The kinds of locks, which do not exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    Mutex,
    ReadWrite,
    Election,
    Semaphore,
    Exclusive,
}

impl LockKind {
    pub fn name(self) -> &'static str {
        match self {
            LockKind::Mutex => "mutex",
            LockKind::ReadWrite => "read/write",
            LockKind::Election => "election",
            LockKind::Semaphore => "semaphore",
            LockKind::Exclusive => "exclusive",
        }
    }

    pub fn with_article(self) -> String {
        let article =
            if matches!(self, LockKind::Election | LockKind::Exclusive) { "an" } else { "a" };
        let noun =
            if matches!(self, LockKind::ReadWrite | LockKind::Exclusive) { " lock" } else { "" };
        format!("{article} {}{noun}", self.name())
    }
}

/// All that stands at one path. By mistake there may be locks of several kinds, which do not
/// exclude each other.
#[derive(Clone, Debug)]
pub struct Standing {
    pub path: String,
    /// A lock of each kind that has contenders. A semaphore is here without contenders too, if the
    /// node has its number.
    pub queues: Vec<Queue>,
    /// The children that belong to none of these locks: other folders, or nodes of anybody.
    pub others: Vec<String>,
}

impl Standing {
    /// Reads what is at a path, behind a `sync`; `None` if there is no such node.
    pub fn read(session: &ZkSession, path: &str) -> Result<Option<Standing>, Failure> {
        zk::catch_up(session)?;
        match zk::children(session, path)? {
            None => Ok(None),
            Some(children) => Standing::of(session, path, &children),
        }
    }

    /// As `read`, but the names of the node's children are known already.
    ///
    /// The names come by one request and each node by another. If a node has gone in between, its
    /// lock may have changed hands, to a contender that the first listing does not have, and would
    /// seem to be free. So the children are listed again then.
    pub fn of(
        session: &ZkSession,
        path: &str,
        children: &[String],
    ) -> Result<Option<Standing>, Failure> {
        let mut listed = children.to_vec();
        for _ in 1..TRIES {
            let mut all_there = true;
            let standing = Standing::look(session, path, &listed, &mut all_there)?;
            if all_there {
                return Ok(standing);
            }
            let Some(now) = zk::children(session, path)? else { return Ok(None) };
            listed = now;
        }
        Standing::look(session, path, &listed, &mut true)
    }

    /// One look. `all_there` becomes false if a node that was listed has gone.
    fn look(
        session: &ZkSession,
        path: &str,
        children: &[String],
        all_there: &mut bool,
    ) -> Result<Option<Standing>, Failure> {
        let Some((data, stat)) = zk::data(session, path)? else { return Ok(None) };
        let queue = |kind, permits, contenders: Vec<Contender>| Queue {
            path: path.to_owned(),
            kind,
            permits,
            contenders,
        };
        let mut queues = Vec::new();
        let named = contenders(session, path, children, all_there)?;
        let (candidates, mut locks): (Vec<Contender>, Vec<Contender>) =
            named.into_iter().partition(|contender| contender.kind == Kind::Candidate);
        if !locks.is_empty() {
            mark_holders(&mut locks);
            let is_shared = locks.iter().any(|one| matches!(one.kind, Kind::Read | Kind::Write));
            let kind = if is_shared { LockKind::ReadWrite } else { LockKind::Mutex };
            queues.push(queue(kind, None, locks));
        }
        if !candidates.is_empty() {
            let mut candidates = candidates;
            mark_holders(&mut candidates);
            queues.push(queue(LockKind::Election, None, candidates));
        }
        let number = std::str::from_utf8(&data).ok().and_then(|text| text.trim().parse().ok());
        let permits = permits(session, path, children, number, all_there)?;
        if !permits.is_empty() || number.is_some() {
            queues.push(queue(LockKind::Semaphore, number, permits));
        }
        // The user may give the lock's path, or that of the exclusive lock's node itself.
        let nodes = children.iter().filter(|child| *child == EXCLUSIVE);
        for node in nodes.map(|child| zk::join(path, child)) {
            queues.extend(
                exclusive(session, &node, all_there)?
                    .map(|one| queue(LockKind::Exclusive, None, vec![one])),
            );
        }
        if children.is_empty() {
            let own = exclusive_of(path, data, stat);
            queues.extend(own.map(|one| queue(LockKind::Exclusive, None, vec![one])));
        }
        recall(session, path, &mut queues)?;
        let is_part = |child: &String| {
            queues.iter().any(|queue| {
                queue.contenders.iter().any(|part| part.name == *child)
                    || queue.kind == LockKind::Semaphore && SEMAPHORE.contains(&child.as_str())
            })
        };
        let others = children.iter().filter(|child| !is_part(child)).cloned().collect();
        Ok(Some(Standing { path: path.to_owned(), queues, others }))
    }

    /// The locks that somebody holds or waits for.
    pub fn in_use(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(|queue| !queue.contenders.is_empty())
    }

    pub fn contenders(&self) -> impl Iterator<Item = &Contender> {
        self.queues.iter().flat_map(|queue| &queue.contenders)
    }

    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders().filter(|contender| contender.holds)
    }
}

impl Queue {
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
            "kind": self.kind.name(),
            "permits": self.permits,
            "holding": self.holders().count(),
            "waiting": self.waiting(),
            "contenders": contenders,
        })
    }
}

/// Gives the contenders that were asked to let go the data that they had before, as far as zk-lock
/// has noted it.
fn recall(session: &ZkSession, path: &str, queues: &mut [Queue]) -> Result<(), Failure> {
    let contenders = queues.iter_mut().flat_map(|queue| &mut queue.contenders);
    let mut asked = contenders.filter(|contender| contender.is_asked).peekable();
    if asked.peek().is_none() {
        return Ok(());
    }
    // A client may make the record and let nobody read it. That must hide no lock.
    let record = match Record::read(session, path) {
        Err(e) if e.kind == "denied" => Record::default(),
        record => record?,
    };
    for contender in asked {
        let before = record.data_before(contender);
        if let (Some(data), Some(name)) = (&before, names::parse(&contender.name)) {
            contender.client = name.client(data);
        }
        contender.data = before.unwrap_or_default();
    }
    Ok(())
}

/// The name of an exclusive lock's node, and the folders of a semaphore.
const EXCLUSIVE: &str = "lock";
pub const SEMAPHORE: [&str; 2] = ["leases", "locks"];

/// Numbers above this carry no order, and no negative number does: ZooKeeper's counter may have
/// stopped at its end, or gone on below zero. The nodes' czxids have the order then.
const UNORDERED_ABOVE: i64 = (1 << 31) - (1 << 20);

/// So often a path is read whose contenders come and go faster than they can be read.
const TRIES: usize = 20;

/// The contenders among these children, in the order of the queue. A node that has gone meanwhile
/// is left out, and `all_there` is false then.
fn contenders(
    session: &ZkSession,
    path: &str,
    children: &[String],
    all_there: &mut bool,
) -> Result<Vec<Contender>, Failure> {
    let mut all = Vec::new();
    for (child, name) in children.iter().filter_map(|child| Some((child, names::parse(child)?))) {
        let path = zk::join(path, child);
        let Some((data, stat)) = zk::data(session, &path)? else {
            *all_there = false;
            continue;
        };
        all.push(Contender {
            path,
            name: child.clone(),
            kind: name.kind,
            client: name.client(&data),
            sequence: name.sequence,
            holds: false,
            is_asked: data == REVOKE,
            data,
            stat,
        });
    }
    // Numbers that carry order were given out before all others.
    all.sort_by_key(|contender| {
        let is_ordered = (0..=UNORDERED_ABOVE).contains(&contender.sequence);
        (!is_ordered, if is_ordered { contender.sequence } else { 0 }, contender.stat.czxid)
    });
    Ok(all)
}

/// The first contender holds, and so do all readers ahead of the first writer.
fn mark_holders(contenders: &mut [Contender]) {
    let mut readers_only = true;
    for (i, contender) in contenders.iter_mut().enumerate() {
        readers_only &= contender.kind == Kind::Read;
        contender.holds = i == 0 || readers_only;
    }
}

/// The permits of a semaphore, and behind them the contenders that wait for some.
///
/// Each child of `leases` counts as a permit, whatever its name is, as it does for Curator and for
/// zk-mutex. The permits of kazoo are nodes without a number in the semaphore's own folder, which
/// are named by hex digits; only the semaphore's number in the folder says that they are permits.
/// (kazoo's waiters stand in another folder.)
fn permits(
    session: &ZkSession,
    path: &str,
    children: &[String],
    number: Option<u32>,
    all_there: &mut bool,
) -> Result<Vec<Contender>, Failure> {
    let mut all = Vec::new();
    let mut is_gone = false;
    let mut add = |path: String, name: &str, client| -> Result<(), Failure> {
        let Some((data, stat)) = zk::data(session, &path)? else {
            is_gone = true;
            return Ok(());
        };
        let known = names::parse(name);
        all.push(Contender {
            path,
            name: name.to_owned(),
            kind: Kind::Permit,
            client: known.map_or(client, |name| name.client(&data)),
            sequence: known.map_or(0, |name| name.sequence),
            holds: true,
            is_asked: data == REVOKE,
            data,
            stat,
        });
        Ok(())
    };
    // The server deletes each of the two folders while it is empty.
    let mut waiting = Vec::new();
    let folders = SEMAPHORE.map(|folder| {
        children.iter().find(|child| *child == folder).map(|child| zk::join(path, child))
    });
    let listed = |folder: &Option<String>| match folder {
        // Without the number the folder may be anybody's, also one that is hidden from us.
        Some(folder) => match zk::children(session, folder) {
            Err(e) if e.kind == "denied" && number.is_none() => Ok(Vec::new()),
            listed => Ok(listed?.unwrap_or_default()),
        },
        None => Ok::<_, Failure>(Vec::new()),
    };
    let [leases, locks] = &folders;
    let taken = listed(leases)?;
    let is_permit =
        |child: &String| names::parse(child).is_some_and(|name| name.kind == Kind::Permit);
    // Without the number, folders of these names may be anybody's.
    if number.is_some() || taken.iter().any(is_permit) {
        for child in taken {
            let folder = leases.as_deref().unwrap_or_default();
            add(zk::join(folder, &child), &child, Client::Unknown)?;
        }
        let folder = locks.as_deref().unwrap_or_default();
        waiting = contenders(session, folder, &listed(locks)?, all_there)?;
    }
    if number.is_some() {
        for child in children.iter().filter(|child| names::is_hex(child)) {
            add(zk::join(path, child), child, Client::Kazoo)?;
        }
    }
    *all_there &= !is_gone;
    all.sort_by_key(|contender| contender.stat.czxid);
    if let (Some(number), Some(first)) = (number, waiting.first()) {
        leave_out_waiters(&mut all, number, first.stat.owner);
    }
    all.append(&mut waiting);
    Ok(all)
}

/// The contender that is first in the queue for permits makes its permit's node before it counts,
/// and waits with it while there are too many. It is listed as a waiter already. A holder keeps its
/// permit also where the number was lowered below those that are taken.
fn leave_out_waiters(permits: &mut Vec<Contender>, number: u32, first: i64) {
    let mut excess = permits.len().saturating_sub(usize::try_from(number).unwrap_or(usize::MAX));
    while let Some(last) = permits.last().filter(|last| excess > 0 && last.stat.owner == first) {
        let _ = last;
        permits.pop();
        excess -= 1;
    }
}

/// The holder of an exclusive lock, whose node this is. If the node has gone since it was listed,
/// `all_there` is false.
fn exclusive(
    session: &ZkSession,
    path: &str,
    all_there: &mut bool,
) -> Result<Option<Contender>, Failure> {
    let read = match zk::data(session, path) {
        // A node of this name may be anybody's.
        Err(e) if e.kind == "denied" => return Ok(None),
        read => read?,
    };
    *all_there &= read.is_some();
    Ok(read.and_then(|(data, stat)| exclusive_of(path, data, stat)))
}

/// The holder of an exclusive lock: its node is an ephemeral one whose data begins with a UUID on a
/// line of its own, as zk-mutex writes it.
fn exclusive_of(path: &str, data: Vec<u8>, stat: Stat) -> Option<Contender> {
    let end = data.iter().position(|byte| *byte == b'\n')?;
    let nonce = std::str::from_utf8(&data[..end]).ok()?;
    (stat.owner != 0 && names::is_uuid(nonce)).then(|| Contender {
        path: path.to_owned(),
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: Kind::Exclusive,
        client: Client::ZkMutex,
        sequence: 0,
        holds: true,
        is_asked: false,
        data: data[end + 1..].to_vec(),
        stat,
    })
}

impl Contender {
    /// For how long its node has been there, by this host's clock.
    pub fn age(&self) -> Duration {
        let created = u64::try_from(self.stat.ctime).unwrap_or(0);
        let created = UNIX_EPOCH + Duration::from_millis(created);
        SystemTime::now().duration_since(created).unwrap_or_default()
    }

    pub fn session(&self) -> String {
        match self.stat.owner {
            0 => "-".to_owned(),
            id => format!("0x{id:x}"),
        }
    }

    /// Host and process, or the data as it is, on one line; and whether it was asked to let go.
    pub fn place(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.data).escape_debug().collect();
        let text = match text.char_indices().nth(60) {
            Some((end, _)) => format!("{}..", &text[..end]),
            None => text,
        };
        match (text.is_empty(), self.is_asked) {
            (true, true) => "(asked to let go)".to_owned(),
            (false, true) => format!("{text} (asked to let go)"),
            (true, false) => "-".to_owned(),
            (false, false) => text,
        }
    }

    /// For a message: host and process, library, session and age.
    pub fn describe(&self) -> String {
        let session = match self.stat.owner {
            0 => "no session: it stays until somebody deletes it".to_owned(),
            id => format!("session 0x{id:x}"),
        };
        let (place, client) = (self.place(), self.client.name());
        format!("{place}, {client}, {session}, queued {} ago", show(self.age()))
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
            "asked_to_let_go": self.is_asked,
            "created_ms": self.stat.ctime,
            "age_ms": u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX),
            "czxid": format!("0x{:x}", self.stat.czxid),
            "data": String::from_utf8_lossy(&self.data),
        })
    }
}
