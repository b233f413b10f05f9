//! The first half of a request: a write is checked against the tree as it will be when all earlier
//! writes are applied. Then it is numbered and becomes a transaction (`PrepRequestProcessor`).

use super::acl::{self, Acl, Id, Schemes, Wanted, perm};
use super::node::{CONTAINER_OWNER, Kind, MAX_TTL, Stat, ttl_owner};
use super::outstanding::{Change, Outstanding};
use super::request::{Multi, Write};
use super::session::{Owner, Sessions};
use super::tree::{self, NewNode, Tree};
use super::txn::{Stamp, Txn};
use std::collections::BTreeSet;
use std::sync::Arc;
use zk_wire::Malformed;
use zk_wire::code::{err, op};
use zk_wire::path;
use zk_wire::record::Reader;

/// The state that a write is checked against.
pub(crate) struct Prep<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) outstanding: &'a mut Outstanding,
    pub(crate) session: i64,
    /// The server to which the client sent the write.
    pub(crate) owner: Owner,
    pub(crate) who: &'a [Id],
    pub(crate) stamp: Stamp,
    pub(crate) schemes: Schemes,
}

/// Whether a request gets a number.
pub(crate) fn is_write(op: i32) -> bool {
    matches!(
        op,
        op::CREATE
            | op::CREATE2
            | op::CREATE_CONTAINER
            | op::CREATE_TTL
            | op::DELETE
            | op::DELETE_CONTAINER
            | op::SET_DATA
            | op::SET_ACL
            | op::CHECK
            | op::MULTI
            | op::RECONFIG
            | op::CREATE_SESSION
            | op::CLOSE
    )
}

/// The kind of node that `CreateMode.fromFlag` reads from a create's flags.
#[derive(Clone, Copy)]
struct CreateMode {
    ephemeral: bool,
    sequential: bool,
    container: bool,
    ttl: bool,
}

impl CreateMode {
    fn of(flags: i32) -> Result<CreateMode, i32> {
        if !(0..=6).contains(&flags) {
            return Err(err::BAD_ARGUMENTS);
        }
        Ok(CreateMode {
            ephemeral: matches!(flags, 1 | 3),
            sequential: matches!(flags, 2 | 3 | 6),
            container: flags == 4,
            ttl: matches!(flags, 5 | 6),
        })
    }
}

impl Prep<'_> {
    /// The transaction of a write. If the write fails, it is the transaction of the error.
    pub(crate) fn write(mut self, op: i32, body: &[u8]) -> Txn {
        self.try_write(op, body).unwrap_or_else(Txn::Error)
    }

    fn try_write(&mut self, op: i32, body: &[u8]) -> Result<Txn, i32> {
        let garbled = |_: Malformed| err::MARSHALLING_ERROR;
        match op {
            op::CREATE_SESSION => {
                let timeout_ms = Reader::new(body).i32().map_err(garbled)?;
                Ok(Txn::CreateSession { timeout_ms })
            }
            op::CLOSE => Ok(self.close_session()),
            op::DELETE_CONTAINER if self.session == 0 => {
                self.delete_container(&String::from_utf8_lossy(body))
            }
            // For a client's request: the real server takes the request's header for a part of the
            // path.
            op::DELETE_CONTAINER => Err(err::BAD_ARGUMENTS),
            op::RECONFIG => {
                let mut r = Reader::new(body);
                for _ in 0..3 {
                    r.nullable_string().map_err(garbled)?;
                }
                r.i64().map_err(garbled)?;
                Err(err::RECONFIG_DISABLED)
            }
            op::MULTI => match Multi::read(body, self.schemes.brand).map_err(garbled)? {
                Multi::Writes(writes) => Ok(self.multi(writes)),
                Multi::Reads(_) => Err(err::MARSHALLING_ERROR),
            },
            op => {
                // Except for creates, the session is checked before the request is read.
                if !matches!(op, op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL) {
                    self.sessions.check(self.session, self.owner)?;
                }
                self.prepare(Write::read(op, &mut Reader::new(body)).map_err(garbled)?)
            }
        }
    }

    fn prepare(&mut self, write: Write) -> Result<Txn, i32> {
        match write {
            Write::Create { op, path, data, acl, flags, ttl } => {
                self.create(op, path, data, acl, flags, ttl)
            }
            Write::Delete { path, version } => self.delete(path, version),
            Write::SetData { path, data, version } => self.set_data(path, data, version),
            Write::SetAcl { path, acl, version } => self.set_acl(path, acl, version),
            Write::Check { path, version } => self.check(&path, version),
            Write::Timeless { .. } => Err(err::MARSHALLING_ERROR),
        }
    }

    fn multi(&mut self, writes: Vec<Write>) -> Txn {
        let mut before = Some(self.outstanding.before(writes.iter().map(Write::path)));
        let mut txns = Vec::with_capacity(writes.len());
        for write in writes {
            if before.is_none() {
                txns.push(Txn::Error(err::RUNTIME_INCONSISTENCY));
                continue;
            }
            txns.push(match self.prepare(write) {
                Ok(txn) => txn,
                // The whole request cannot be read, so the error is not that of one operation.
                Err(err::MARSHALLING_ERROR) => return Txn::Error(err::MARSHALLING_ERROR),
                Err(code) => {
                    if let Some(before) = before.take() {
                        self.outstanding.roll_back(self.stamp.zxid, before);
                    }
                    Txn::Error(code)
                }
            });
        }
        Txn::Multi(txns)
    }

    fn create(
        &mut self,
        op: i32,
        mut path: String,
        data: Option<Arc<[u8]>>,
        acl: Option<Vec<Wanted>>,
        flags: i32,
        ttl: i64,
    ) -> Result<Txn, i32> {
        let mode = CreateMode::of(flags)?;
        if mode.ttl != (ttl >= 0) || (mode.ttl && !(1..=MAX_TTL).contains(&ttl)) {
            return Err(err::BAD_ARGUMENTS);
        }
        // The real server exits when it gets this request.
        if op == op::CREATE_TTL && !mode.ttl {
            return Err(err::BAD_ARGUMENTS);
        }
        self.sessions.check(self.session, self.owner)?;
        let (parent_path, _) = cut(&path)?;
        let parent_path = parent_path.to_owned();
        let acl = acl::fix_up(acl, self.who, self.schemes)?;
        let (mut parent, mut parent_stat) = self.record(&parent_path)?;
        acl::check(&parent.acl, perm::CREATE, self.who)?;
        let number = parent_stat.cversion;
        if mode.sequential {
            path += &self.schemes.brand.number(number);
        }
        path::check(&path).map_err(|_| err::BAD_ARGUMENTS)?;
        if self.record(&path).is_ok() {
            return Err(err::NODE_EXISTS);
        }
        if Kind::of(parent_stat.owner) == Kind::Ephemeral {
            return Err(err::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let Stamp { zxid, time } = self.stamp;
        parent_stat.cversion = number.wrapping_add(1);
        parent_stat.pzxid = zxid;
        parent.children += 1;
        self.change(parent, parent_stat);
        // Overlapping requests see the kind of the flags; the node that is made has the kind of the
        // operation.
        let seen_owner = match mode {
            CreateMode { container: true, .. } => CONTAINER_OWNER,
            CreateMode { ttl: true, .. } => ttl_owner(ttl),
            CreateMode { ephemeral: true, .. } => self.session,
            _ => 0,
        };
        self.outstanding.add(Change {
            zxid,
            path: path.clone(),
            stat: Some(Stat::new(zxid, time, seen_owner)),
            children: 0,
            acl: Arc::clone(&acl),
        });
        let owner = match op {
            op::CREATE_CONTAINER => CONTAINER_OWNER,
            op::CREATE_TTL => ttl_owner(ttl),
            _ if mode.ephemeral => self.session,
            _ => 0,
        };
        let node = NewNode { path, data, acl, owner, parent_cversion: parent_stat.cversion };
        Ok(Txn::Create { op, node })
    }

    fn delete(&mut self, path: String, version: i32) -> Result<Txn, i32> {
        self.sessions.check(self.session, self.owner)?;
        let parent_path = deletable(&path)?.to_owned();
        let (parent, parent_stat) = self.record(&parent_path)?;
        acl::check(&parent.acl, perm::DELETE, self.who)?;
        let (node, stat) = self.record(&path)?;
        next_version(stat.version, version)?;
        if node.children > 0 {
            return Err(err::NOT_EMPTY);
        }
        Ok(self.going(parent, parent_stat, path))
    }

    fn delete_container(&mut self, path: &str) -> Result<Txn, i32> {
        let parent_path = deletable(path)?.to_owned();
        let (node, stat) = self.record(path)?;
        if node.children > 0 {
            return Err(err::NOT_EMPTY);
        }
        if Kind::of(stat.owner) == Kind::Ephemeral {
            return Err(err::BAD_VERSION);
        }
        let (parent, parent_stat) = self.record(&parent_path)?;
        Ok(self.going(parent, parent_stat, path.to_owned()))
    }

    fn going(&mut self, mut parent: Change, mut parent_stat: Stat, path: String) -> Txn {
        parent.children -= 1;
        parent_stat.pzxid = self.stamp.zxid;
        self.change(parent, parent_stat);
        self.outstanding.add(Change::gone(self.stamp.zxid, path.clone()));
        Txn::Delete { path }
    }

    fn set_data(
        &mut self,
        path: String,
        data: Option<Arc<[u8]>>,
        version: i32,
    ) -> Result<Txn, i32> {
        self.sessions.check(self.session, self.owner)?;
        path::check(&path).map_err(|_| err::BAD_ARGUMENTS)?;
        let (node, mut stat) = self.record(&path)?;
        acl::check(&node.acl, perm::WRITE, self.who)?;
        let version = next_version(stat.version, version)?;
        stat.version = version;
        stat.mtime = self.stamp.time;
        stat.mzxid = self.stamp.zxid;
        self.change(node, stat);
        Ok(Txn::SetData { path, data, version })
    }

    fn set_acl(
        &mut self,
        path: String,
        acl: Option<Vec<Wanted>>,
        version: i32,
    ) -> Result<Txn, i32> {
        self.sessions.check(self.session, self.owner)?;
        path::check(&path).map_err(|_| err::BAD_ARGUMENTS)?;
        let acl: Arc<[Acl]> = acl::fix_up(acl, self.who, self.schemes)?;
        let (node, mut stat) = self.record(&path)?;
        acl::check(&node.acl, perm::ADMIN, self.who)?;
        let version = next_version(stat.aversion, version)?;
        stat.aversion = version;
        // As in the real server, a request that overlaps still sees the old list.
        self.change(node, stat);
        Ok(Txn::SetAcl { path, acl, version })
    }

    /// Lets the next sequential child of `path` have the number `next`.
    pub(crate) fn set_sequence(mut self, path: &str, next: i32) -> Txn {
        match self.record(path) {
            Ok((node, stat)) => {
                self.change(node, Stat { cversion: next, ..stat });
                Txn::SetSequence { path: path.to_owned(), next }
            }
            Err(code) => Txn::Error(code),
        }
    }

    fn check(&mut self, path: &str, version: i32) -> Result<Txn, i32> {
        self.sessions.check(self.session, self.owner)?;
        path::check(path).map_err(|_| err::BAD_ARGUMENTS)?;
        let (node, stat) = self.record(path)?;
        acl::check(&node.acl, perm::READ, self.who)?;
        next_version(stat.version, version)?;
        Ok(Txn::Check)
    }

    fn close_session(&mut self) -> Txn {
        let mut paths: BTreeSet<String> =
            self.tree.ephemerals(self.session).map(|path| path.to_string()).collect();
        for change in self.outstanding.iter() {
            match change.stat {
                None => {
                    paths.remove(&change.path);
                }
                Some(stat) if stat.owner == self.session => {
                    paths.insert(change.path.clone());
                }
                Some(_) => {}
            }
        }
        let zxid = self.stamp.zxid;
        for path in &paths {
            if let Some((parent, mut stat)) =
                tree::split(path).and_then(|(parent, _)| self.record(parent).ok())
            {
                stat.pzxid = zxid;
                self.change(parent, stat);
            }
            self.outstanding.add(Change::gone(zxid, path.clone()));
        }
        Txn::CloseSession { session: self.session, paths: paths.into_iter().collect() }
    }

    /// The node's state after all outstanding changes.
    fn record(&self, path: &str) -> Result<(Change, Stat), i32> {
        let change = match self.outstanding.get(path) {
            Some(change) => (**change).clone(),
            None => self.tree.get(path).map(|node| Change::of(path, node)).ok_or(err::NO_NODE)?,
        };
        let stat = change.stat.ok_or(err::NO_NODE)?;
        Ok((change, stat))
    }

    fn change(&mut self, change: Change, stat: Stat) {
        self.outstanding.add(Change { zxid: self.stamp.zxid, stat: Some(stat), ..change });
    }
}

/// Splits a path into the parent's path and the name, if it has both.
fn cut(path: &str) -> Result<(&str, &str), i32> {
    tree::split(path).filter(|_| !path.contains('\0')).ok_or(err::BAD_ARGUMENTS)
}

/// The parent of a node that may be deleted.
fn deletable(path: &str) -> Result<&str, i32> {
    let (parent, _) = cut(path)?;
    if tree::is_special(path) { Err(err::BAD_ARGUMENTS) } else { Ok(parent) }
}

fn next_version(current: i32, expected: i32) -> Result<i32, i32> {
    if expected != -1 && expected != current {
        return Err(err::BAD_VERSION);
    }
    Ok(current.wrapping_add(1))
}
