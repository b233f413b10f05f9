//! Requests that change no node: reads, watches, and requests about the client's own session
//! (`FinalRequestProcessor`).

use super::ConnId;
use super::acl::{self, Id, perm};
use super::node::Node;
use super::request::{Multi, Read, Watched, path, path_and_code, paths};
use super::txn::Store;
use super::watch::{Event, Mode, Which};
use crate::Brand;
use std::sync::Arc;
use zk_wire::Malformed;
use zk_wire::code::{err, event, op};
use zk_wire::record::{Reader, Writer};

/// The error of a request that fails.
pub(crate) struct Failed {
    pub(crate) code: i32,
    /// Whether the error comes with the answer to an empty multi.
    pub(crate) empty_multi: bool,
}

impl From<i32> for Failed {
    fn from(code: i32) -> Failed {
        Failed { code, empty_multi: false }
    }
}

impl From<Malformed> for Failed {
    fn from(_: Malformed) -> Failed {
        err::MARSHALLING_ERROR.into()
    }
}

type Result<T> = std::result::Result<T, Failed>;

/// The longest answer to a multiRead. A small request can read a large node many times; a longer
/// answer could not be sent anyway.
const MAX_ANSWER: usize = 32 << 20;

/// One client's request.
pub(crate) struct Reading<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) conn: ConnId,
    pub(crate) session: i64,
    pub(crate) who: &'a [Id],
    /// The events of watches that fire while this request sets them.
    pub(crate) events: &'a mut Vec<Event>,
}

impl Reading<'_> {
    /// Adds the answer's body to `w`.
    pub(crate) fn answer(mut self, op: i32, body: &[u8], w: Writer) -> Result<Writer> {
        let mut r = Reader::new(body);
        match op {
            op::PING => Ok(w),
            op::SYNC => {
                let path = r.nullable_string()?;
                Ok(nullable(w, path.as_deref().map(str::as_bytes)))
            }
            op::EXISTS => self.exists(body, w),
            op::GET_DATA => {
                let Watched { path, watch } = Watched::read(body)?;
                let node = self.readable(&path)?;
                let w = data_and_stat(node, self.store.brand, w);
                if watch {
                    self.store.watches.data.add(&path, self.conn, Mode::OneShot);
                }
                Ok(w)
            }
            op::GET_CHILDREN | op::GET_CHILDREN2 => {
                let Watched { path, watch } = Watched::read(body)?;
                let node = self.readable(&path)?;
                let w = names(node, w);
                let w = if op == op::GET_CHILDREN2 {
                    node.client_stat(self.store.brand).write(w)
                } else {
                    w
                };
                if watch {
                    self.store.watches.children.add(&path, self.conn, Mode::OneShot);
                }
                Ok(w)
            }
            op::GET_ALL_CHILDREN_NUMBER => {
                let path = path(&mut r)?;
                self.readable(&path)?;
                Ok(w.i32(i32::try_from(self.store.tree.count_below(&path)).unwrap_or(i32::MAX)))
            }
            op::GET_ACL => self.acl(&path(&mut r)?, w),
            op::GET_EPHEMERALS => {
                let prefix = r.nullable_string()?.unwrap_or_default();
                let all = matches!(prefix.trim(), "" | "/");
                let owned = self.store.tree.ephemerals(self.session);
                let meant: Vec<_> = owned.filter(|path| all || path.starts_with(&prefix)).collect();
                let w = w.i32(meant.len() as i32);
                Ok(meant.into_iter().fold(w, |w, path| w.buffer(path.as_bytes())))
            }
            op::WHO_AM_I => {
                let w = w.i32(self.who.len() as i32);
                let write = |w: Writer, id: &Id| {
                    w.buffer(id.scheme.as_bytes()).buffer(id.user().as_bytes())
                };
                Ok(self.who.iter().fold(w, write))
            }
            op::MULTI_READ => self.multi(body, w),
            op::SET_WATCHES | op::SET_WATCHES2 => self.set_watches(op, body, w),
            op::ADD_WATCH => {
                let (path, mode) = path_and_code(body)?;
                let mode = Mode::of(mode).ok_or(err::MARSHALLING_ERROR)?;
                self.store.watches.add(&path, self.conn, mode);
                Ok(w.i32(0))
            }
            op::CHECK_WATCHES | op::REMOVE_WATCHES => {
                let (path, which) = path_and_code(body)?;
                let which = Which::of(which, self.store.brand).ok_or(err::MARSHALLING_ERROR)?;
                let watches = &mut self.store.watches;
                let found = match op {
                    op::CHECK_WATCHES => {
                        watches.contains(&path, which, self.conn).ok_or(err::MARSHALLING_ERROR)?
                    }
                    _ => watches.remove(&path, which, self.conn),
                };
                if found { Ok(w) } else { Err(err::NO_WATCHER.into()) }
            }
            _ => Err(err::UNIMPLEMENTED.into()),
        }
    }

    fn exists(&mut self, body: &[u8], w: Writer) -> Result<Writer> {
        let Watched { path, watch } = Watched::read(body)?;
        if path.contains('\0') {
            return Err(err::BAD_ARGUMENTS.into());
        }
        if self.store.brand.exists_needs_read() {
            if let Some(node) = self.store.tree.get(&path) {
                acl::check(&node.acl, perm::READ, self.who)?;
            }
        }
        if watch {
            self.store.watches.data.add(&path, self.conn, Mode::OneShot);
        }
        let node = self.store.tree.get(&path).ok_or(err::NO_NODE)?;
        Ok(node.client_stat(self.store.brand).write(w))
    }

    fn acl(&self, path: &str, w: Writer) -> Result<Writer> {
        let node = self.store.tree.get(path).ok_or(err::NO_NODE)?;
        acl::check(&node.acl, perm::READ | perm::ADMIN, self.who)?;
        let w = match acl::check(&node.acl, perm::ADMIN, self.who) {
            Ok(()) => acl::write_list(w, node.acl.iter()),
            Err(_) => acl::write_list(w, acl::masked(&node.acl).iter()),
        };
        Ok(node.client_stat(self.store.brand).write(w))
    }

    fn multi(&self, body: &[u8], mut w: Writer) -> Result<Writer> {
        let reads = match Multi::read(body, self.store.brand)? {
            Multi::Reads(reads) => reads,
            Multi::Writes(writes) if writes.is_empty() => Vec::new(),
            // The real server notices this only after it has begun its answer.
            Multi::Writes(_) => {
                return Err(Failed { code: err::MARSHALLING_ERROR, empty_multi: true });
            }
        };
        for read in reads {
            if w.length() > MAX_ANSWER {
                // The real server would sooner or later run out of memory here.
                warn!("test server: a multiRead of {:#x} asks for too much", self.session);
                return Err(err::MARSHALLING_ERROR.into());
            }
            let (op, path) = match &read {
                Read::Children(path) => (op::GET_CHILDREN, path),
                Read::Data(path) => (op::GET_DATA, path),
            };
            w = match self.readable(path) {
                Ok(node) if op == op::GET_DATA => {
                    data_and_stat(node, self.store.brand, multi_header(w, op))
                }
                Ok(node) => names(node, multi_header(w, op)),
                Err(failed) => multi_error(w, failed.code),
            };
        }
        Ok(multi_end(w))
    }

    /// Sets the watches of a client that has reconnected. Events that the client has missed are
    /// sent at once.
    fn set_watches(&mut self, op: i32, body: &[u8], w: Writer) -> Result<Writer> {
        let mut r = Reader::new(body);
        let since = r.i64()?;
        let (data, exist, child) = (paths(&mut r)?, paths(&mut r)?, paths(&mut r)?);
        let (persistent, recursive) = match op {
            op::SET_WATCHES2 => (paths(&mut r)?, paths(&mut r)?),
            _ => (Vec::new(), Vec::new()),
        };
        let Store { tree, watches, .. } = &mut *self.store;
        let conn = self.conn;
        let mut fire = |kind, path: String| {
            self.events.push(Event { conn, kind, path: Arc::from(path), acl: None });
        };
        for path in data {
            match tree.get(&path) {
                None => fire(event::DELETED, path),
                Some(node) if node.stat.mzxid > since => fire(event::DATA_CHANGED, path),
                Some(_) => watches.data.add(&path, conn, Mode::OneShot),
            }
        }
        for path in exist {
            match tree.get(&path) {
                Some(_) => fire(event::CREATED, path),
                None => watches.data.add(&path, conn, Mode::OneShot),
            }
        }
        for path in child {
            match tree.get(&path) {
                None => fire(event::DELETED, path),
                Some(node) if node.stat.pzxid > since => fire(event::CHILDREN_CHANGED, path),
                Some(_) => watches.children.add(&path, conn, Mode::OneShot),
            }
        }
        persistent.iter().for_each(|path| watches.add(path, conn, Mode::Persistent));
        recursive.iter().for_each(|path| watches.add(path, conn, Mode::Recursive));
        Ok(w)
    }

    /// The node, if this client may read it.
    fn readable(&self, path: &str) -> Result<&Node> {
        let node = self.store.tree.get(path).ok_or(err::NO_NODE)?;
        acl::check(&node.acl, perm::READ, self.who)?;
        Ok(node)
    }
}

/// Jute's null is written as the length -1.
fn nullable(w: Writer, bytes: Option<&[u8]>) -> Writer {
    match bytes {
        Some(bytes) => w.buffer(bytes),
        None => w.i32(-1),
    }
}

fn data_and_stat(node: &Node, brand: Brand, w: Writer) -> Writer {
    node.client_stat(brand).write(nullable(w, node.data.as_deref()))
}

fn names(node: &Node, w: Writer) -> Writer {
    let w = w.i32(node.children.len() as i32); // far fewer than i32 can count: they are in memory
    node.children.iter().fold(w, |w, name| w.buffer(name.as_bytes()))
}

/// The header before each result of a multi.
pub(crate) fn multi_header(w: Writer, op: i32) -> Writer {
    w.i32(op).bool(false).i32(0)
}

pub(crate) fn multi_error(w: Writer, code: i32) -> Writer {
    w.i32(op::ERROR).bool(false).i32(code).i32(code)
}

pub(crate) fn multi_end(w: Writer) -> Writer {
    w.i32(-1).bool(true).i32(-1)
}
