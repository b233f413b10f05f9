//! Reads the requests of clients from their bytes (zookeeper.jute, `MultiOperationRecord`).

use super::acl::{self, Wanted};
use crate::Brand;
use std::sync::Arc;
use zk_wire::Malformed;
use zk_wire::code::op;
use zk_wire::record::Reader;

type Result<T> = std::result::Result<T, Malformed>;

const NULL: Malformed = Malformed("a null string");

/// Why ZooKeeper 3.9 refuses a multi before it numbers it.
const NULL_ACL: Malformed = Malformed("a null ACL in a multi");

/// A path: the real server fails at a null one, as at a truncated record.
pub(crate) fn path(r: &mut Reader<'_>) -> Result<String> {
    r.nullable_string()?.ok_or(NULL)
}

/// A vector of paths.
pub(crate) fn paths(r: &mut Reader<'_>) -> Result<Vec<String>> {
    r.nullable_vector(path)?.ok_or(NULL)
}

fn data(r: &mut Reader<'_>) -> Result<Option<Arc<[u8]>>> {
    Ok(r.nullable_buffer()?.map(Arc::from))
}

/// A path and whether to watch it: exists, getData, getChildren, getChildren2.
pub(crate) struct Watched {
    pub(crate) path: String,
    pub(crate) watch: bool,
}

impl Watched {
    pub(crate) fn read(body: &[u8]) -> Result<Watched> {
        let mut r = Reader::new(body);
        Ok(Watched { path: path(&mut r)?, watch: r.bool()? })
    }
}

/// A path and a number: removeWatches, checkWatches, addWatch.
pub(crate) fn path_and_code(body: &[u8]) -> Result<(String, i32)> {
    let mut r = Reader::new(body);
    Ok((path(&mut r)?, r.i32()?))
}

/// A write, or one of a multi.
#[derive(Debug)]
pub(crate) enum Write {
    Create {
        op: i32,
        path: String,
        data: Option<Arc<[u8]>>,
        acl: Option<Vec<Wanted>>,
        flags: i32,
        ttl: i64,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Arc<[u8]>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Option<Vec<Wanted>>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
    /// A multi's create of a node with a time to live, but without the time. The real server fails
    /// at it.
    Timeless {
        path: String,
    },
}

impl Write {
    pub(crate) fn read(op: i32, r: &mut Reader<'_>) -> Result<Write> {
        Ok(match op {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                let (path, data, acl) = (path(r)?, data(r)?, acl::read_list(r)?);
                let (flags, ttl) = (r.i32()?, if op == op::CREATE_TTL { r.i64()? } else { -1 });
                Write::Create { op, path, data, acl, flags, ttl }
            }
            op::DELETE => Write::Delete { path: path(r)?, version: r.i32()? },
            op::SET_DATA => Write::SetData { path: path(r)?, data: data(r)?, version: r.i32()? },
            op::SET_ACL => {
                Write::SetAcl { path: path(r)?, acl: acl::read_list(r)?, version: r.i32()? }
            }
            op::CHECK => Write::Check { path: path(r)?, version: r.i32()? },
            _ => return Err(Malformed("not a write")),
        })
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Write::Create { path, .. }
            | Write::Delete { path, .. }
            | Write::SetData { path, .. }
            | Write::SetAcl { path, .. }
            | Write::Check { path, .. }
            | Write::Timeless { path } => path,
        }
    }

    /// As an operation of a multi: `Op.create` takes the kind of node from the flags, so that in
    /// 3.8 a create2 is a create.
    fn in_multi(self, brand: Brand) -> Result<Write> {
        let Write::Create { op, path, data, acl, flags, ttl } = self else {
            return Ok(self);
        };
        let is_strict = brand.is_strict_in_multi() && op != op::CREATE_TTL;
        if is_strict && !(0..=4).contains(&flags) {
            return Err(Malformed("flags that do not fit the operation"));
        }
        if is_strict && acl.is_none() {
            return Err(NULL_ACL);
        }
        let op = match (op, flags) {
            (op::CREATE_TTL, 5 | 6) => op::CREATE_TTL,
            (_, 5 | 6) => return Ok(Write::Timeless { path }),
            (_, 4) => op::CREATE_CONTAINER,
            (op::CREATE2 | op::CREATE_CONTAINER, _) if brand.is_strict_in_multi() => op,
            _ => op::CREATE,
        };
        let ttl = if op == op::CREATE_TTL { ttl } else { -1 };
        Ok(Write::Create { op, path, data, acl, flags, ttl })
    }
}

/// A read of a multiRead.
pub(crate) enum Read {
    Children(String),
    Data(String),
}

/// Whether a client's write is refused before it gets a zxid.
pub(crate) fn is_unnumbered(op: i32, body: &[u8], brand: Brand) -> bool {
    if !brand.reads_before_numbering() {
        return false;
    }
    match op {
        op::MULTI => matches!(Multi::read(body, brand), Err(NULL_ACL)),
        op::CREATE_SESSION | op::CLOSE | op::RECONFIG => false,
        // Also a `deleteContainer`, which is for the server itself.
        op => Write::read(op, &mut Reader::new(body)).is_err(),
    }
}

/// The operations of a multi: writes or reads, never both.
pub(crate) enum Multi {
    Writes(Vec<Write>),
    Reads(Vec<Read>),
}

impl Multi {
    pub(crate) fn read(body: &[u8], brand: Brand) -> Result<Multi> {
        let mut r = Reader::new(body);
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        loop {
            let (op, done, _err) = (r.i32()?, r.bool()?, r.i32()?);
            if done {
                break;
            }
            match op {
                op::GET_CHILDREN | op::GET_DATA => {
                    let path = path(&mut r)?;
                    r.bool()?; // a multi sets no watches
                    reads.push(if op == op::GET_DATA {
                        Read::Data(path)
                    } else {
                        Read::Children(path)
                    });
                }
                op::SET_ACL => return Err(Malformed("an operation that a multi cannot do")),
                op => writes.push(Write::read(op, &mut r)?.in_multi(brand)?),
            }
            if !writes.is_empty() && !reads.is_empty() {
                return Err(Malformed("reads and writes in one multi"));
            }
        }
        Ok(if reads.is_empty() { Multi::Writes(writes) } else { Multi::Reads(reads) })
    }
}
