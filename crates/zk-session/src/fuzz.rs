//! The fuzz targets of the session: see [`zk_wire::fuzz`]. A target takes any bytes, as an answer
//! of a server or a connect string, and panics if the session breaks a rule. The tests below replay
//! the corpus on stable Rust.

use crate::acl::{Acl, AclEntry};
use crate::connect_string::{ConnectString, Host};
use crate::machine::codec::{self, CallError, Reply};
use crate::machine::hostile;
use zk_wire::code::{err, event, op};
use zk_wire::fuzz::{Script, Target};
use zk_wire::path;
use zk_wire::record::{Stat, watch_event};

/// Each target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("connect_answers", hostile::connect_answers),
    ("connect_strings", connect_strings),
    ("connection", hostile::connection),
    ("replies", replies),
    ("watch_events", hostile::watch_events),
];

/// The operations whose answers are decoded, and two whose answers are not. The inputs name an
/// operation by its place, so a new one comes last.
const OPERATIONS: [i32; 14] = [
    op::CREATE,
    op::CREATE2,
    op::CREATE_CONTAINER,
    op::EXISTS,
    op::SET_DATA,
    op::SET_ACL,
    op::GET_DATA,
    op::GET_CHILDREN,
    op::GET_ACL,
    op::SYNC,
    op::DELETE,
    op::CREATE_TTL,
    op::MULTI,
    op::GET_CHILDREN2,
];

/// The answer to one request: its decoded content is in its bytes, and more bytes after it change
/// nothing.
fn replies(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (op, code, body) = (script.pick(&OPERATIONS), script.word(), script.rest());
    let _ = CallError::of(op, code);
    assert!(!err::name(code).is_empty());
    if let Ok((kind, path)) = codec::watch_event(body) {
        assert!((event::CREATED..=event::CHILDREN_CHANGED).contains(&kind));
        assert!(path.is_empty() || body.starts_with(&watch_event(kind, path)));
    }
    let Ok(reply) = codec::decode(op, body) else { return };
    let fits_operation = match (&reply, op) {
        (
            Reply::Created(path, stat),
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL,
        ) => path.len() <= body.len() && (op != op::CREATE || *stat == Stat::default()),
        (Reply::Stat(_), op::EXISTS | op::SET_DATA | op::SET_ACL) => body.len() >= 68,
        (Reply::Acl(entries, _), op::GET_ACL) => {
            let length = |entry: &AclEntry| 12 + entry.scheme.len() + entry.id.len();
            let length = entries.iter().map(length).sum::<usize>();
            // A list that a session sets is read as the same list.
            Acl::Custom(entries.clone()).encoded_len() == length + 4
                && length + 4 + 68 <= body.len()
        }
        (Reply::Multi(results), op::MULTI) => {
            let length = |result: &Result<Reply, i32>| match result {
                Err(_) => 9 + 4,
                Ok(Reply::Created(path, _)) => 9 + 4 + path.len(),
                Ok(Reply::Stat(_)) => 9 + 68,
                Ok(Reply::Done) => 9,
                Ok(other) => panic!("{other:?} in a multi"),
            };
            results.iter().map(length).sum::<usize>() + 9 <= body.len()
        }
        (Reply::Node(node), op::GET_DATA) => {
            let _ = crate::nonce::split(&node.data);
            node.data.len() + 72 <= body.len()
        }
        (Reply::Children(listing), op::GET_CHILDREN) => {
            let names = listing.names();
            names.iter().map(|name| name.len() + 4).sum::<usize>() + 4 <= body.len()
                && codec::children(body) == Ok(names)
        }
        (Reply::Listed(_), op::GET_CHILDREN2) => body.len() >= 4 + 68,
        (Reply::Done, op::SYNC | op::DELETE) => true,
        _ => false,
    };
    assert!(fits_operation, "{reply:?} to {op}");
    let longer = codec::decode(op, &[body, &[7]].concat());
    match (reply, longer) {
        (Reply::Children(a), Ok(Reply::Children(b))) => assert_eq!(a.names(), b.names()),
        (a, Ok(b)) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        (_, Err(e)) => panic!("{e:?}"),
    }
}

/// A connect string is parsed or refused. A parsed one, formatted again, is parsed as the same.
fn connect_strings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match ConnectString::parse(&text) {
        Ok(parsed) => {
            assert!(!parsed.hosts.is_empty() && parsed.hosts.len() <= 128);
            assert!(parsed.hosts.iter().all(|host| host.port != 0 && !host.name.is_empty()));
            assert!(parsed.chroot.is_empty() || path::check(&parsed.chroot).is_ok());
            assert_ne!(parsed.chroot, "/");
            let shown: Vec<String> = parsed.hosts.iter().map(Host::to_string).collect();
            assert!(shown.iter().enumerate().all(|(at, host)| !shown[..at].contains(host)));
            let again = ConnectString::parse(&(shown.join(",") + &parsed.chroot));
            assert_eq!(again.ok(), Some(parsed), "{text:?}");
        }
        Err(e) => assert!(e.to_string().len() < 1000, "{e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a test for each target, so that they run in parallel and a failure names its target.
    macro_rules! hostile {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    let (_, target) = TARGETS.iter().find(|(of, _)| *of == stringify!($name)).unwrap();
                    zk_wire::fuzz::replay(stringify!($name), *target);
                }
            )*

            #[test]
            fn each_target_has_a_test() {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, [$(stringify!($name)),*]);
            }
        };
    }

    hostile! { connect_answers connect_strings connection replies watch_events }
}
