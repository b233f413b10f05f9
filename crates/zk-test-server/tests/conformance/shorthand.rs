//! Short forms of requests, with the usual values for the rest.
use super::requests::{Create, Req, mode, op};
use zk_test_support::raw::Acl;

/// An empty persistent node with the open ACL, by the opcode create.
pub fn create(path: &str) -> Req {
    let (path, data, acl) = (path.to_owned(), Some(Vec::new()), Some(open()));
    Req::Create(Create { op: op::CREATE, path, data, acl, flags: mode::PERSISTENT, ttl: 0 })
}

pub fn create2(path: &str) -> Req {
    create(path).op(op::CREATE2)
}

pub fn ephemeral(path: &str) -> Req {
    create(path).flags(mode::EPHEMERAL)
}

pub fn sequential(path: &str) -> Req {
    create(path).flags(mode::SEQUENTIAL)
}

pub fn container(path: &str) -> Req {
    create(path).op(op::CREATE_CONTAINER).flags(mode::CONTAINER)
}

/// `ttl` in milliseconds.
pub fn create_ttl(path: &str, ttl: i64) -> Req {
    create(path).op(op::CREATE_TTL).flags(mode::TTL).change(|create| create.ttl = ttl)
}

pub fn delete(path: &str) -> Req {
    delete_version(path, -1)
}

pub fn delete_version(path: &str, version: i32) -> Req {
    Req::Delete { path: path.to_owned(), version }
}

pub fn exists(path: &str) -> Req {
    Req::Exists { path: path.to_owned(), watch: false }
}

pub fn get_data(path: &str) -> Req {
    Req::GetData { path: path.to_owned(), watch: false }
}

pub fn get_children(path: &str) -> Req {
    Req::GetChildren { path: path.to_owned(), watch: false }
}

pub fn get_children2(path: &str) -> Req {
    Req::GetChildren2 { path: path.to_owned(), watch: false }
}

pub fn watch_exists(path: &str) -> Req {
    Req::Exists { path: path.to_owned(), watch: true }
}

pub fn watch_data(path: &str) -> Req {
    Req::GetData { path: path.to_owned(), watch: true }
}

pub fn watch_children(path: &str) -> Req {
    Req::GetChildren { path: path.to_owned(), watch: true }
}

pub fn set_data(path: &str, data: &[u8]) -> Req {
    set_data_version(path, data, -1)
}

pub fn set_data_version(path: &str, data: &[u8], version: i32) -> Req {
    Req::SetData { path: path.to_owned(), data: Some(data.to_vec()), version }
}

pub fn get_acl(path: &str) -> Req {
    Req::GetAcl { path: path.to_owned() }
}

pub fn set_acl(path: &str, acl: &[Acl]) -> Req {
    set_acl_version(path, acl, -1)
}

pub fn set_acl_version(path: &str, acl: &[Acl], version: i32) -> Req {
    Req::SetAcl { path: path.to_owned(), acl: Some(acl.to_vec()), version }
}

pub fn sync(path: &str) -> Req {
    Req::Sync { path: path.to_owned() }
}

pub fn check(path: &str, version: i32) -> Req {
    Req::Check { path: path.to_owned(), version }
}

pub fn auth(scheme: &str, auth: &str) -> Req {
    Req::Auth { scheme: scheme.to_owned(), auth: auth.as_bytes().to_vec() }
}

pub fn add_watch(path: &str, mode: i32) -> Req {
    Req::AddWatch { path: path.to_owned(), mode }
}

pub fn remove_watches(path: &str, kind: i32) -> Req {
    Req::RemoveWatches { path: path.to_owned(), kind }
}

pub fn check_watches(path: &str, kind: i32) -> Req {
    Req::CheckWatches { path: path.to_owned(), kind }
}

pub fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
}

/// All permissions for everybody.
pub fn open() -> Vec<Acl> {
    vec![acl(31, "world", "anyone")]
}
