//! The number of a semaphore's permits: decimal text in the data of its node, where kazoo's
//! `Semaphore` keeps it too.

use std::sync::Arc;

use crate::queue::MakeNode;
use crate::queue::memory::{Fact, Memory};
use zk_session::Acl;
use zk_session::unstable::{CallError, CreateMode, Generation, Limit, Node, Operation};
use zk_session::world::atomic::{AtomicBool, AtomicU32, Ordering};
use zk_wire::path;

/// Longer data is no number that a client wrote for a semaphore.
const LONGEST: usize = 32;

pub(crate) struct Count {
    /// The semaphore's node, its full path.
    path: String,
    acl: Acl,
    /// The number that was seen last at the server. Before that, or if the data there is no number,
    /// the number that a user's object was given.
    known: AtomicU32,
    /// Whether `known` is settled: it was seen at the server; or the data there is no number, and
    /// `known` is the number of the object that read it first.
    is_seen: AtomicBool,
    /// Whether the semaphore takes no other number than the given one.
    is_fixed: bool,
    /// What the log was told of the number already.
    memory: Arc<Memory>,
}

/// The number, as it was read.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    pub(crate) permits: u32,
    /// The node was written since it was made. So this is not merely the number of the program that
    /// came first: somebody has set it.
    pub(crate) is_set: bool,
}

/// The meaning of the data of a semaphore's node.
#[derive(Debug, PartialEq, Eq)]
enum Text {
    Number(u32),
    Empty,
    /// The data is no number and belongs to somebody else.
    Other,
}

impl Count {
    pub(crate) fn new(
        path: String,
        acl: Acl,
        given: u32,
        is_fixed: bool,
        memory: Arc<Memory>,
    ) -> Self {
        let (known, is_seen) = (AtomicU32::new(given), AtomicBool::new(false));
        Count { path, acl, known, is_seen, is_fixed, memory }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The number that was seen last.
    pub(crate) fn known(&self) -> u32 {
        self.known.load(Ordering::Acquire)
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Makes the semaphore's node with its number, if it is missing.
    pub(crate) fn maker(count: &Arc<Count>) -> MakeNode {
        let count = count.clone();
        Box::new(move |generation, limit| {
            count.get(generation, count.known(), false, limit).map(drop)
        })
    }

    /// The number in the node that was read, if its data is one. If not, use [`get`](Self::get),
    /// which finds the number or writes it.
    pub(super) fn said(&self, node: &Node) -> Option<Number> {
        match read(&node.data) {
            Text::Number(permits) => {
                let (before, is_set) = (self.note(permits), node.stat.version > 0);
                let change = || Fact::NumberSet(node.stat.mzxid);
                if before != permits && is_set && self.memory.is_new(&self.path, change()) {
                    warn!(
                        "{}: its node says {permits} permits, and this client went by {before}: somebody has set another number, which counts from now on",
                        self.path
                    );
                }
                Some(Number { permits, is_set })
            }
            Text::Empty | Text::Other => None,
        }
    }

    /// Reads the number; `watch` leaves a watch on the node. A missing node is made, and missing
    /// data is written: with the number that was seen last, or else with `given`, the caller's.
    /// (Another object of the path may have been given another number. As long as that object has
    /// not been used, its number does not count.)
    pub(super) fn get(
        &self,
        generation: &Generation,
        given: u32,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Number, CallError> {
        loop {
            let ours = if self.is_seen.load(Ordering::Acquire) { self.known() } else { given };
            let node = self.node(generation, ours, watch, limit)?;
            if let Some(number) = self.said(&node) {
                return Ok(number);
            }
            match read(&node.data) {
                Text::Number(_) => {}
                Text::Empty => self.write(generation, ours, &node, limit).map(drop)?,
                Text::Other => {
                    if self.memory.is_new(&self.path, Fact::NoNumber) {
                        warn!(
                            "{}: its data is no number of permits and is left as it is; each client uses the number that it was given",
                            self.path
                        );
                    }
                    self.note(ours); // for all objects of the path in this session
                    return Ok(Number { permits: ours, is_set: false });
                }
            }
        }
    }

    /// Writes the number. False: the data belongs to somebody else.
    ///
    /// It is written also if it is there already. An earlier write of this session may have got no
    /// answer, and may still be done (zk-session's `machine/removal.rs` says how). Each write gives
    /// the node another version, and the late write, which names the version before, is refused
    /// then. Otherwise the number would change again behind a call that was acknowledged.
    pub(super) fn set(
        &self,
        generation: &Generation,
        number: u32,
        limit: &Limit<'_>,
    ) -> Result<bool, CallError> {
        loop {
            let node = self.node(generation, number, false, limit)?;
            if read(&node.data) == Text::Other {
                return Ok(false);
            }
            if self.write(generation, number, &node, limit)? {
                self.note(number);
                return Ok(true);
            }
        }
    }

    /// Reads the semaphore's node, and makes it with this number if it is missing. It is no
    /// container: the server would delete that when no client is there, and the number with it. (If
    /// the number is fixed it may be lost, because each client writes it again.)
    ///
    /// The read travels behind a `sync`. Otherwise a number that another client has set, and has
    /// told this one, could be refused as inconsistent, or be taken for a number that need not be
    /// set any more.
    fn node(
        &self,
        generation: &Generation,
        number: u32,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        loop {
            match generation.synced_read(&self.path, watch, limit) {
                Err(CallError::NoNode) => {}
                read => return read,
            }
            let (path, data, acl) = (&self.path, number.to_string(), &self.acl);
            if self.is_fixed {
                let read = [(Operation::GetData { path, watch }, None)];
                generation.flight_in(path, None, acl, &read, limit)?;
                continue;
            }
            let (data, mode) = (data.as_bytes(), CreateMode::Persistent);
            let create = [(Operation::Create { path, data, acl, mode }, None)];
            let flight = generation.flight_in(path::parent(path), None, acl, &create, limit);
            match flight?.take(0) {
                Ok(_) | Err(CallError::NodeExists) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes the number over the data that was read. False: the node has changed since.
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

    /// Takes the number that is at the server. Gives the one that was known before.
    fn note(&self, number: u32) -> u32 {
        if self.is_fixed {
            return number;
        }
        let before = self.known.swap(number, Ordering::AcqRel);
        self.is_seen.store(true, Ordering::Release);
        before
    }
}

/// A number above `u32::MAX` is read as that: nobody reaches such a bound.
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
        fn a_number_that_we_write_is_read_back(number: u32) {
            prop_assert_eq!(read(number.to_string().as_bytes()), Text::Number(number));
        }

        #[test]
        fn garbage_is_read_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&data);
        }
    }
}
