//! Checks what a server sent before the client crate sees it: the crate hangs, panics or aborts on
//! bodies that are not what it expects.

use super::Malformed;
use super::code::{event, op};
use super::record::Reader;

/// The body of a successful reply to `op`.
pub(crate) fn reply(op: i32, body: &[u8]) -> Result<(), Malformed> {
    let mut r = Reader::new(body);
    match op {
        op::CREATE | op::CREATE_CONTAINER => r.string().map(drop),
        op::EXISTS | op::SET_DATA | op::SET_ACL => r.stat().map(drop),
        op::GET_ACL => {
            for _ in 0..r.count(12)? {
                r.i32()?;
                r.string()?;
                r.string()?;
            }
            r.stat().map(drop)
        }
        op::GET_DATA => {
            r.buffer()?;
            r.stat().map(drop)
        }
        op::GET_CHILDREN => children(body).map(drop),
        _ => Ok(()),
    }
}

/// A listing's names.
pub(crate) fn children(body: &[u8]) -> Result<Vec<&str>, Malformed> {
    let mut r = Reader::new(body);
    (0..r.count(4)?).map(|_| r.string()).collect()
}

/// The type and the path of a watch event.
pub(crate) fn watch_event(body: &[u8]) -> Result<(i32, &str), Malformed> {
    let mut r = Reader::new(body);
    let (kind, state) = (r.i32()?, r.i32()?);
    let path = r.string()?;
    if !(event::CREATED..=event::CHILDREN_CHANGED).contains(&kind) || state != event::SYNC_CONNECTED {
        return Err(Malformed("a watch event of unknown type"));
    }
    Ok((kind, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_would_break_the_client_crate() {
        let huge_count = [0x7f, 0xff, 0xff, 0xff];
        assert!(reply(op::GET_CHILDREN, &huge_count).is_err());
        assert!(reply(op::GET_CHILDREN, &[0xff; 4]).is_err());
        assert!(reply(op::CREATE, &[0, 0, 0, 1, 0xff]).is_err());
        assert!(reply(op::EXISTS, &[0; 67]).is_err());
        assert!(reply(op::EXISTS, &[0; 68]).is_ok());
        assert!(reply(op::SET_DATA, &[0; 67]).is_err());
        assert!(reply(op::SET_ACL, &[0; 67]).is_err());
        assert!(reply(op::GET_ACL, &[[0xff; 4].as_slice(), &[0; 68]].concat()).is_err());
        assert!(reply(op::GET_ACL, &[0; 4 + 67]).is_err());
        assert!(reply(op::GET_ACL, &[[0, 0, 0, 1].as_slice(), &[0; 12 + 68]].concat()).is_ok());
        assert!(watch_event(&[0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0]).is_err());
        assert!(watch_event(&[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, b'/']).is_ok());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(
            kind in -20i32..120, bytes in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            let _ = reply(kind, &bytes);
            let _ = watch_event(&bytes);
        }
    }
}
