//! What the server says: replies and events, read to the last byte.
use super::{requests::op, servers::is_39};
use zk_test_support::{
    raw::{Acl, Stat},
    wire::Reader,
};

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub xid: i32,
    pub zxid: i64,
    pub err: i32,
    pub body: Body,
}

/// The body of a reply. Lists whose order ZooKeeper leaves to a hash table are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Empty,
    Path(String),
    Created(String, Stat),
    Stat(Stat),
    Data(Option<Vec<u8>>, Stat),
    Acl(Vec<Acl>, Stat),
    Names(Vec<String>),
    Children(Vec<String>, Stat),
    Results(Vec<Outcome>),
    Number(i32),
    /// The server's token of a login by SASL.
    Token(Option<Vec<u8>>),
    /// Schemes and users.
    Who(Vec<(String, String)>),
    Other(Vec<u8>),
}

/// The result of one part of a multi or multiRead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Create(String),
    Create2(String, Stat),
    Delete,
    SetData(Stat),
    Check,
    Children(Vec<String>),
    Data(Option<Vec<u8>>, Stat),
    Error(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
}

#[derive(Clone, Debug, Eq, PartialOrd, Ord)]
pub struct Event {
    pub kind: Kind,
    pub path: String,
    /// Of an event that is expected mostly [`ANY`].
    pub zxid: i64,
}

/// Stands for each zxid.
pub const ANY: i64 = 0;

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        let is_same = self.zxid == other.zxid || self.zxid == ANY || other.zxid == ANY;
        is_same && (self.kind, &self.path) == (other.kind, &other.path)
    }
}

/// The server's messages, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Reply(Reply),
    Event(Event),
    /// The server has closed the connection.
    Closed,
}

pub fn created(path: &str) -> Event {
    Event { kind: Kind::Created, path: path.to_owned(), zxid: ANY }
}

pub fn deleted(path: &str) -> Event {
    Event { kind: Kind::Deleted, path: path.to_owned(), zxid: ANY }
}

pub fn changed(path: &str) -> Event {
    Event { kind: Kind::DataChanged, path: path.to_owned(), zxid: ANY }
}

pub fn children(path: &str) -> Event {
    Event { kind: Kind::ChildrenChanged, path: path.to_owned(), zxid: ANY }
}

/// Reads a frame without its length. `opcode` returns the operation of the request with this xid.
/// None: the frame is not valid.
pub fn read(frame: &[u8], root: &str, opcode: impl FnOnce(i32) -> Option<i32>) -> Option<Heard> {
    let mut from = Reader(frame);
    let (xid, zxid, err) = (from.i32()?, from.i64()?, from.i32()?);
    let heard = match xid {
        -1 => Heard::Event(event(&mut from, root, zxid).filter(|_| zxid_fits(zxid) && err == 0)?),
        _ => {
            let opcode = opcode(xid)?;
            // Most errors have no body.
            let alone = err != 0 && from.0.is_empty();
            let body = if alone { Body::Empty } else { body(opcode, &mut from, root)? };
            Heard::Reply(Reply { xid, zxid, err, body })
        }
    };
    from.0.is_empty().then_some(heard)
}

/// In 3.8 no event has a zxid; in 3.9 those that a `setWatches` finds missed have none.
fn zxid_fits(zxid: i64) -> bool {
    zxid == -1 || zxid > 0 && is_39()
}

fn event(from: &mut Reader<'_>, root: &str, zxid: i64) -> Option<Event> {
    let kind = match from.i32()? {
        1 => Kind::Created,
        2 => Kind::Deleted,
        3 => Kind::DataChanged,
        4 => Kind::ChildrenChanged,
        _ => return None,
    };
    // Of a client's states, the server knows only "connected".
    (from.i32()? == 3).then_some(())?;
    Some(Event { kind, path: path(from, root)?, zxid })
}

fn body(opcode: i32, from: &mut Reader<'_>, root: &str) -> Option<Body> {
    Some(match opcode {
        op::CREATE | op::SYNC => Body::Path(path(from, root)?),
        op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            Body::Created(path(from, root)?, stat(from)?)
        }
        op::EXISTS | op::SET_DATA | op::SET_ACL | op::CHECK => Body::Stat(stat(from)?),
        op::GET_DATA => Body::Data(nullable(from)?, stat(from)?),
        op::GET_ACL => Body::Acl(list(from, acl)?, stat(from)?),
        op::GET_CHILDREN => Body::Names(names(from)?),
        op::GET_CHILDREN2 => Body::Children(names(from)?, stat(from)?),
        op::MULTI | op::MULTI_READ => Body::Results(outcomes(from, root)?),
        op::GET_EPHEMERALS => {
            let mut paths = list(from, |from| path(from, root))?;
            paths.sort();
            Body::Names(paths)
        }
        op::GET_ALL_CHILDREN_NUMBER | op::ADD_WATCH => Body::Number(from.i32()?),
        op::SASL => Body::Token(nullable(from)?),
        op::WHO_AM_I => {
            let mut who = list(from, |from| Some((from.string()?, from.string()?)))?;
            who.sort();
            Body::Who(who)
        }
        op::PING
        | op::DELETE
        | op::AUTH
        | op::SET_WATCHES
        | op::SET_WATCHES2
        | op::CHECK_WATCHES
        | op::REMOVE_WATCHES
        | op::CLOSE_SESSION => Body::Empty,
        _ => Body::Other(from.take(from.0.len())?.to_vec()),
    })
}

/// The parts of a multi, each behind a `MultiHeader`. The last header says that there are no more.
fn outcomes(from: &mut Reader<'_>, root: &str) -> Option<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    loop {
        let (opcode, done, err) = (from.i32()?, from.take(1)?[0], from.i32()?);
        if done == 1 {
            return (opcode == -1 && err == -1).then_some(outcomes);
        }
        let outcome = match opcode {
            -1 => Outcome::Error(from.i32()?),
            op::CREATE => Outcome::Create(path(from, root)?),
            op::CREATE2 => Outcome::Create2(path(from, root)?, stat(from)?),
            op::DELETE => Outcome::Delete,
            op::SET_DATA => Outcome::SetData(stat(from)?),
            op::CHECK => Outcome::Check,
            op::GET_CHILDREN => Outcome::Children(names(from)?),
            op::GET_DATA => Outcome::Data(nullable(from)?, stat(from)?),
            _ => return None,
        };
        let told = if let Outcome::Error(code) = outcome { code } else { 0 };
        (told == err).then_some(())?;
        outcomes.push(outcome);
    }
}

fn path(from: &mut Reader<'_>, root: &str) -> Option<String> {
    let path = from.string()?;
    Some(match path.strip_prefix(root) {
        Some("") if !root.is_empty() => "/".to_owned(),
        Some(below) if below.starts_with('/') => below.to_owned(),
        _ => path,
    })
}

fn names(from: &mut Reader<'_>) -> Option<Vec<String>> {
    let mut names = list(from, Reader::string)?;
    names.sort();
    Some(names)
}

fn nullable(from: &mut Reader<'_>) -> Option<Option<Vec<u8>>> {
    let null = from.0.starts_with(&[0xff; 4]);
    let bytes = from.buffer()?.to_vec();
    Some((!null).then_some(bytes))
}

/// A count and as many items, each read by `field`.
fn list<'a, T>(
    from: &mut Reader<'a>,
    mut field: impl FnMut(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    (0..from.i32()?).map(|_| field(from)).collect()
}

fn acl(from: &mut Reader<'_>) -> Option<Acl> {
    Some(Acl { perms: from.i32()?, scheme: from.string()?, id: from.string()? })
}

fn stat(from: &mut Reader<'_>) -> Option<Stat> {
    Some(Stat {
        czxid: from.i64()?,
        mzxid: from.i64()?,
        ctime: from.i64()?,
        mtime: from.i64()?,
        version: from.i32()?,
        cversion: from.i32()?,
        aversion: from.i32()?,
        ephemeral_owner: from.i64()?,
        data_length: from.i32()?,
        num_children: from.i32()?,
        pzxid: from.i64()?,
    })
}
