//! How many leases a semaphore has: decimal text in the data of its node, where kazoo's `Semaphore`
//! keeps it too.

use std::sync::Arc;

use crate::limit::Limit;
use crate::queue::MakeNode;
use crate::session::acl::Acl;
use crate::session::generation::{CallError, CreateMode, Generation, Node, Operation};
use crate::world::atomic::{AtomicBool, AtomicU32, Ordering};
use zk_wire::path;

/// More bytes than this are no number that anybody wrote for us.
const LONGEST: usize = 32;

pub(crate) struct Count {
    /// The semaphore's node, its full path.
    path: String,
    acl: Acl,
    /// The number that was seen last; where none was seen, what we were told.
    known: AtomicU32,
    /// `known` is what was seen at the server, or, where the data there is something else, what the
    /// object was told that asked first.
    is_seen: AtomicBool,
    /// For those who take no other number than they were told.
    is_fixed: bool,
    warned: AtomicBool,
}

/// What the data of a semaphore's node is.
#[derive(Debug, PartialEq, Eq)]
enum Text {
    Number(u32),
    Empty,
    /// Somebody else's business.
    Other,
}

impl Count {
    pub(crate) fn new(path: String, acl: Acl, told: u32, is_fixed: bool) -> Self {
        let known = AtomicU32::new(told);
        Count {
            path,
            acl,
            known,
            is_seen: AtomicBool::new(false),
            is_fixed,
            warned: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The number that was seen last.
    pub(crate) fn known(&self) -> u32 {
        self.known.load(Ordering::Acquire)
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Makes the semaphore's node with its number, if it is missing.
    pub(crate) fn maker(count: &Arc<Count>) -> MakeNode {
        let count = count.clone();
        Box::new(move |generation, limit| {
            count.get(generation, count.known(), false, limit).map(drop)
        })
    }

    /// The number, if that is what this read of the node says. If not, [`get`](Self::get) finds it
    /// or makes it so.
    pub(super) fn said(&self, node: &Node) -> Option<u32> {
        match read(&node.data) {
            Text::Number(number) => {
                self.note(number);
                Some(number)
            }
            Text::Empty | Text::Other => None,
        }
    }

    /// Asks for the number; `watch` leaves a watch on the node. A node that is missing is made, and
    /// data that is missing is written: the number that was seen last, or else the one that the
    /// caller was told. Another semaphore object of the path may have been told another number; if
    /// it was never used, its number is nobody's.
    pub(super) fn get(
        &self,
        generation: &Generation,
        told: u32,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<u32, CallError> {
        loop {
            let ours = if self.is_seen.load(Ordering::Acquire) { self.known() } else { told };
            let node = self.node(generation, ours, watch, limit)?;
            if let Some(number) = self.said(&node) {
                return Ok(number);
            }
            match read(&node.data) {
                Text::Number(_) => {}
                Text::Empty => self.write(generation, ours, &node, limit).map(drop)?,
                Text::Other => {
                    if !self.warned.swap(true, Ordering::Relaxed) {
                        warn!(
                            "{}: its data is no number of permits and is left as it is; each client goes by what it was told",
                            self.path
                        );
                    }
                    self.note(ours); // for all objects of the path in this session
                    return Ok(ours);
                }
            }
        }
    }

    /// Changes the number. False: the data is not ours to change.
    pub(super) fn set(
        &self,
        generation: &Generation,
        number: u32,
        limit: &Limit<'_>,
    ) -> Result<bool, CallError> {
        loop {
            let node = self.node(generation, number, false, limit)?;
            let is_so = match read(&node.data) {
                Text::Number(old) => old == number,
                Text::Empty => false,
                Text::Other => return Ok(false),
            };
            if is_so || self.write(generation, number, &node, limit)? {
                self.note(number);
                return Ok(true);
            }
        }
    }

    /// The semaphore's node, which is made with this number if it is missing. It is no container:
    /// that would go while nobody is here, and the number with it. (Where the number is fixed, it
    /// may; it is written into the container then.)
    fn node(
        &self,
        generation: &Generation,
        number: u32,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        loop {
            match generation.read(&self.path, watch, limit) {
                Err(CallError::NoNode) => {}
                read => return read,
            }
            if self.is_fixed {
                generation.make_parents(&self.path, &self.acl, limit)?;
                continue;
            }
            let data = number.to_string();
            let (path, data, acl) = (&self.path, data.as_bytes(), &self.acl);
            let create = Operation::Create { path, data, acl, mode: CreateMode::Persistent };
            match generation.call(create, limit) {
                Ok(_) | Err(CallError::NodeExists) => {}
                Err(CallError::NoNode) => {
                    generation.make_parents(path::parent(&self.path), &self.acl, limit)?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// False: the node has changed since it was read.
    fn write(
        &self,
        generation: &Generation,
        number: u32,
        seen: &Node,
        limit: &Limit<'_>,
    ) -> Result<bool, CallError> {
        let (data, version) = (number.to_string(), Some(seen.stat.version));
        let write = Operation::SetData { path: &self.path, data: data.as_bytes(), version };
        match generation.call(write, limit) {
            Ok(_) => Ok(true),
            Err(CallError::BadVersion | CallError::NoNode) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn note(&self, number: u32) {
        if !self.is_fixed {
            if self.known.swap(number, Ordering::AcqRel) != number {
                debug!("{}: {number} permits", self.path);
            }
            self.is_seen.store(true, Ordering::Release);
        }
    }
}

/// Numbers beyond what we count to are as good as no bound.
fn read(data: &[u8]) -> Text {
    let text = data.trim_ascii();
    if text.is_empty() {
        return Text::Empty;
    }
    if data.len() > LONGEST || !text.iter().all(u8::is_ascii_digit) {
        return Text::Other;
    }
    let digit =
        |number: u32, digit: &u8| number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    Text::Number(text.iter().fold(0, digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_decimal_text_is_a_number() {
        for (data, text) in [
            (&b"3"[..], Text::Number(3)),
            (b"0", Text::Number(0)),
            (b"007\n", Text::Number(7)),
            (b"4294967295", Text::Number(u32::MAX)),
            (b"4294967296", Text::Number(u32::MAX)),
            (b"99999999999999999999999999999999", Text::Number(u32::MAX)),
            (b"", Text::Empty),
            (b" \n", Text::Empty),
            (b"000000000000000000000000000000001", Text::Other),
            (b"-1", Text::Other),
            (b"+1", Text::Other),
            (b"1.5", Text::Other),
            (b"0x3", Text::Other),
            (b"three", Text::Other),
            ("٣".as_bytes(), Text::Other),
            (b"\xff\xfe", Text::Other),
        ] {
            assert_eq!(read(data), text, "{data:?}");
        }
    }

    proptest! {
        #[test]
        fn what_we_write_we_read(number: u32) {
            prop_assert_eq!(read(number.to_string().as_bytes()), Text::Number(number));
        }

        #[test]
        fn garbage_is_read_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&data);
        }
    }
}
