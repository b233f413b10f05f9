//! Transactions: writes that were checked and numbered, and their application
//! (`DataTree.processTxn`).

use super::acl::Acl;
use super::node::ClientStat;
use super::tree::{NewNode, Tree, split};
use super::watch::{Event, Place, Watches};
use crate::Brand;
use std::sync::Arc;
use zk_wire::code::{err, op};

#[derive(Clone, Debug)]
pub(crate) enum Txn {
    /// `op` is the operation of the request. It decides on the shape of the answer.
    Create {
        op: i32,
        node: NewNode,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Option<Arc<[u8]>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Arc<[Acl]>,
        version: i32,
    },
    Check,
    CreateSession {
        /// All servers of an ensemble keep the timeouts of all sessions.
        timeout_ms: i32,
    },
    CloseSession {
        session: i64,
        paths: Vec<String>,
    },
    Error(i32),
    Multi(Vec<Txn>),
    /// An action of a simulation: the next sequential child gets the number `next`.
    SetSequence {
        path: String,
        next: i32,
    },
}

/// The result of a transaction.
#[derive(Debug)]
pub(crate) enum Done {
    Created { op: i32, path: String, stat: Option<ClientStat> },
    Deleted,
    DataSet(ClientStat),
    AclSet(ClientStat),
    Checked,
    Session,
    Failed(i32),
    Multi(Vec<Done>),
}

impl Done {
    /// Whether the client has moved to another server meanwhile.
    pub(crate) fn is_moved(&self) -> bool {
        match self {
            Done::Failed(code) => *code == err::SESSION_MOVED,
            Done::Multi(done) => done.iter().any(Done::is_moved),
            _ => false,
        }
    }
}

/// The number and the time of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: i64,
    pub(crate) time: i64,
}

/// The tree and the watches on it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    pub(crate) brand: Brand,
}

impl Store {
    pub(crate) fn apply(&mut self, txn: Txn, stamp: Stamp, events: &mut Vec<Event>) -> Done {
        let done = match txn {
            Txn::Create { op, node } => self.create(op, node, stamp, events),
            Txn::Delete { path } => self.delete(&path, stamp.zxid, events).map(|()| Done::Deleted),
            Txn::SetData { path, data, version } => {
                self.set_data(&path, data, version, stamp, events)
            }
            Txn::SetAcl { path, acl, version } => self.set_acl(&path, acl, version),
            Txn::Check => Ok(Done::Checked),
            Txn::CreateSession { .. } => Ok(Done::Session),
            Txn::CloseSession { session, paths } => {
                for path in paths {
                    if self.delete(&path, stamp.zxid, events).is_err() {
                        debug!(
                            "test server: {path} of closed session {session:#x} was gone already"
                        );
                    }
                }
                Ok(Done::Session)
            }
            Txn::Error(code) => Err(code),
            Txn::SetSequence { path, next } => {
                self.tree.set_sequence(&path, next);
                Ok(Done::Checked)
            }
            Txn::Multi(txns) => return self.multi(txns, stamp, events),
        };
        done.unwrap_or_else(Done::Failed)
    }

    fn create(
        &mut self,
        op: i32,
        node: NewNode,
        stamp: Stamp,
        events: &mut Vec<Event>,
    ) -> Result<Done, i32> {
        let (path, acl) = (node.path.clone(), Arc::clone(&node.acl));
        self.tree.create(node, stamp.zxid, stamp.time)?;
        let shape_with_stat = op != op::CREATE;
        let stat = shape_with_stat.then(|| self.stat(&path)).transpose()?;
        let (parent, parent_acl) = self.parent(&path)?;
        let parent = Place { path: parent, acl: &parent_acl };
        self.watches.created(Place { path: &path, acl: &acl }, parent, events);
        Ok(Done::Created { op, path, stat })
    }

    fn delete(&mut self, path: &str, zxid: i64, events: &mut Vec<Event>) -> Result<(), i32> {
        let acl = self.tree.delete(path, zxid)?.acl;
        let (parent, parent_acl) = self.parent(path)?;
        let parent = Place { path: parent, acl: &parent_acl };
        self.watches.deleted(Place { path, acl: &acl }, parent, events);
        Ok(())
    }

    /// The parent's path and ACL.
    fn parent<'p>(&self, path: &'p str) -> Result<(&'p str, Arc<[Acl]>), i32> {
        let (parent, _) = split(path).ok_or(err::BAD_ARGUMENTS)?;
        let acl = self.tree.get(parent).map(|node| Arc::clone(&node.acl)).ok_or(err::NO_NODE)?;
        Ok((parent, acl))
    }

    fn set_data(
        &mut self,
        path: &str,
        data: Option<Arc<[u8]>>,
        version: i32,
        stamp: Stamp,
        events: &mut Vec<Event>,
    ) -> Result<Done, i32> {
        let node = self.tree.get_mut(path).ok_or(err::NO_NODE)?;
        node.data = data;
        node.stat.mtime = stamp.time;
        node.stat.mzxid = stamp.zxid;
        node.stat.version = version;
        let stat = node.client_stat(self.brand);
        self.watches.data_changed(Place { path, acl: &node.acl }, events);
        Ok(Done::DataSet(stat))
    }

    fn set_acl(&mut self, path: &str, acl: Arc<[Acl]>, version: i32) -> Result<Done, i32> {
        let node = self.tree.get_mut(path).ok_or(err::NO_NODE)?;
        node.acl = acl;
        node.stat.aversion = version;
        Ok(Done::AclSet(node.client_stat(self.brand)))
    }

    /// Applies all operations, or none if a check found one of them wrong. Then each is answered
    /// with an error; it is 0 for the operations before the wrong one.
    fn multi(&mut self, txns: Vec<Txn>, stamp: Stamp, events: &mut Vec<Event>) -> Done {
        let failed = txns.iter().any(|txn| matches!(txn, Txn::Error(_)));
        let apply = |txn| match txn {
            Txn::Error(code) => Done::Failed(code),
            _ if failed => Done::Failed(err::OK),
            txn => self.apply(txn, stamp, events),
        };
        Done::Multi(txns.into_iter().map(apply).collect())
    }

    fn stat(&self, path: &str) -> Result<ClientStat, i32> {
        self.tree.get(path).map(|node| node.client_stat(self.brand)).ok_or(err::NO_NODE)
    }
}
