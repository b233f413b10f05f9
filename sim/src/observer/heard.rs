//! What the processes have heard about the run's locks: when a process heard that a node of its own
//! is made.

use std::collections::BTreeMap;

use zk_sim_runtime::ProcessId;
use zk_wire::code::op;

use super::Seen;

/// What a client has asked on one connection and has not heard of: the path of each request, and of
/// each create its node's, before the server adds a number to it.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<i32, (String, Option<String>)>);

impl Asked {
    /// The client sends this request.
    pub(super) fn sends(&mut self, frame: &[u8]) {
        let mut rest = frame;
        let Some((xid, code)) = int(&mut rest).zip(int(&mut rest)) else { return };
        let asked = match code {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
                text(&mut rest).map(|path| (path.clone(), Some(path)))
            }
            op::GET_DATA | op::EXISTS | op::GET_CHILDREN | op::GET_CHILDREN2 => {
                text(&mut rest).map(|path| (path, None))
            }
            op::MULTI => last_create(&mut rest).map(|path| (path.clone(), Some(path))),
            _ => None,
        };
        if let Some(asked) = asked {
            self.0.insert(xid, asked);
        }
    }

    /// A server's answer has come. Gives what was asked, and whether it is done.
    pub(super) fn hears(&mut self, frame: &[u8]) -> Option<(String, Option<String>)> {
        let mut rest = frame;
        let (path, made) = self.0.remove(&int(&mut rest)?)?;
        let _zxid = (int(&mut rest)?, int(&mut rest)?);
        let is_done = int(&mut rest)? == 0;
        Some((path, made.filter(|_| is_done)))
    }
}

impl Seen {
    /// This answer about a node has come to a process: it is made, or was looked at.
    pub(super) fn has_heard(&mut self, process: ProcessId, path: &str, made: Option<&str>) {
        let is_below = |lock: &str| {
            path.strip_prefix(lock).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let place = self.setting.places.iter().find(|place| is_below(&place.path));
        let Some(lock) = place.map(|place| place.path.clone()) else { return };
        if let Some(made) = made {
            self.order.is_known(process, &lock, made);
        }
    }
}

fn int(rest: &mut &[u8]) -> Option<i32> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(i32::from_be_bytes(*first))
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(int(rest)?.max(0)).ok()?;
    let (first, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(first)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(bytes(rest)?.to_vec()).ok()
}

/// The path of the last create among the requests of a `multi`.
fn last_create(rest: &mut &[u8]) -> Option<String> {
    let mut last = None;
    loop {
        let code = int(rest)?;
        let (is_last, after) =
            rest.split_first_chunk::<5>().map(|(head, after)| (head[0] != 0, after))?;
        *rest = after;
        if is_last {
            return last;
        }
        let path = text(rest)?;
        match code {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
                bytes(rest)?;
                for _ in 0..int(rest)?.max(0) {
                    int(rest)?;
                    (bytes(rest)?, bytes(rest)?);
                }
                int(rest)?;
                last = Some(path);
            }
            op::CHECK | op::DELETE => drop(int(rest)?),
            op::SET_DATA => {
                bytes(rest)?;
                int(rest)?;
            }
            _ => return last,
        }
    }
}
