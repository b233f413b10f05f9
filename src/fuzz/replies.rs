//! What a server answers to a request, as bytes.

use crate::session::connection::codec::{self, CallError, Reply};
use zk_wire::code::{err, event, op};
use zk_wire::fuzz::Script;
use zk_wire::record::Writer;

/// The operations whose answers are decoded, and one whose answers are not.
const OPERATIONS: [i32; 11] = [
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
];

/// The answer to one request: what it says is in its bytes, and nothing behind it changes that.
pub(super) fn replies(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (op, code, body) = (script.pick(&OPERATIONS), script.word(), script.rest());
    let _ = CallError::of_code(code);
    assert!(!err::name(code).is_empty());
    if let Ok((kind, path)) = codec::watch_event(body) {
        assert!((event::CREATED..=event::CHILDREN_CHANGED).contains(&kind));
        let again =
            Writer::bare().i32(kind).i32(event::SYNC_CONNECTED).buffer(path.as_bytes()).frame();
        assert!(path.is_empty() || body.starts_with(&again[4..]));
    }
    let Ok(reply) = codec::decode(op, body) else { return };
    let is_of_its_kind = match (&reply, op) {
        (Reply::Created(path, _), op::CREATE | op::CREATE2 | op::CREATE_CONTAINER) => {
            path.len() <= body.len()
        }
        (Reply::Stat(_), op::EXISTS | op::SET_DATA | op::SET_ACL | op::GET_ACL) => body.len() >= 68,
        (Reply::Node(node), op::GET_DATA) => {
            let _ = node.created();
            let _ = crate::session::nonce::split(&node.data);
            node.data.len() + 72 <= body.len()
        }
        (Reply::Children(listing), op::GET_CHILDREN) => {
            let names = listing.names();
            names.iter().map(|name| name.len() + 4).sum::<usize>() + 4 <= body.len()
                && codec::children(body) == Ok(names)
        }
        (Reply::Done, op::SYNC | op::DELETE) => true,
        _ => false,
    };
    assert!(is_of_its_kind, "{reply:?} to {op}");
    let longer = codec::decode(op, &[body, &[7]].concat());
    match (reply, longer) {
        (Reply::Children(a), Ok(Reply::Children(b))) => assert_eq!(a.names(), b.names()),
        (a, Ok(b)) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        (_, Err(e)) => panic!("{e:?}"),
    }
}
