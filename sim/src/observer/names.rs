//! Reads the names of nodes. This is a second implementation, because the library's own reader and
//! order may be wrong.

/// The access that other contenders still have while a node is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No other contender may hold the lock: a mutex, a write lock.
    Exclusive,
    /// Other readers may hold the lock.
    Shared,
    /// No other candidate may lead.
    Leader,
    /// As many contenders may hold it as the semaphore has permits.
    Permit,
    /// No other session may hold the node of this name.
    Name,
}

/// A node of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The folder of the lock's nodes; for `Name` the node itself.
    pub lock: String,
    /// The requested access.
    pub mode: Mode,
    /// The number at the end of its name, which is its place in the queue.
    pub number: i64,
}

/// The marks between the id and the number.
const MARKS: [(&str, Mode); 7] = [
    ("-lock-", Mode::Exclusive),
    ("__lock__", Mode::Exclusive),
    ("__rlock__", Mode::Shared),
    ("-__WRIT__", Mode::Exclusive),
    ("-__READ__", Mode::Shared),
    ("-latch-", Mode::Leader),
    ("-lease-", Mode::Permit),
];

/// Numbers above this do not order nodes.
const LAST_ORDERED: i64 = (1 << 31) - (1 << 20);

impl Node {
    /// Reads a path. A node without a number is held by its name.
    pub fn of(path: &str) -> Node {
        Node::numbered(path).unwrap_or_else(|| Node {
            lock: path.to_owned(),
            mode: Mode::Name,
            number: 0,
        })
    }

    /// A node whose name ends with a number; `None` if it belongs to no queue and to no leases.
    pub fn numbered(path: &str) -> Option<Node> {
        let (folder, child) = path.rsplit_once('/')?;
        // From the end: this is asked of each change, and a search for each mark would be slow.
        let head = child.trim_end_matches(|last: char| last.is_ascii_digit());
        let (_, number) = child.split_at(head.len());
        let number = number.parse::<i64>().ok()?;
        let (mode, number) =
            MARKS.iter().find_map(|(mark, mode)| match head.strip_suffix(mark) {
                Some(_) => Some((*mode, number)),
                None => head.strip_suffix('-')?.ends_with(mark).then_some((*mode, -number)),
            })?;
        Some(Node { lock: folder.to_owned(), mode, number })
    }

    /// Whether this node waits for a node with this access that is ahead of it in its queue.
    pub fn waits_for(&self, other: Mode) -> bool {
        match self.mode {
            Mode::Shared => matches!(other, Mode::Exclusive),
            Mode::Exclusive => matches!(other, Mode::Exclusive | Mode::Shared),
            Mode::Leader => other == Mode::Leader,
            Mode::Permit | Mode::Name => false,
        }
    }
}

/// Whether this node, by its path, was made to read.
pub fn is_shared(path: &str) -> bool {
    Node::of(path).mode == Mode::Shared
}

/// Whether the first node, with its number and czxid, is ahead of the second.
pub fn is_ahead(first: (i64, i64), second: (i64, i64)) -> bool {
    let is_ordered = |number: i64| (0..=LAST_ORDERED).contains(&number);
    match (is_ordered(first.0), is_ordered(second.0)) {
        (true, true) => first.0 < second.0,
        (true, false) => true,
        (false, true) => false,
        (false, false) => first.1 < second.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_mode_and_the_place_of_its_node() {
        let node = |path: &str| {
            let Node { lock, mode, number } = Node::of(path);
            (lock, mode, number)
        };
        let id = "_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
        let at = |rest: &str| node(&format!("/l/{id}{rest}"));
        assert_eq!(at("-lock-0000000031"), ("/l".into(), Mode::Exclusive, 31));
        assert_eq!(at("-lock--000000031"), ("/l".into(), Mode::Exclusive, -31));
        assert_eq!(at("-__READ__2147483647"), ("/l".into(), Mode::Shared, i64::from(i32::MAX)));
        assert_eq!(at("-__WRIT__0000000000"), ("/l".into(), Mode::Exclusive, 0));
        assert_eq!(at("-latch-0000000007"), ("/l".into(), Mode::Leader, 7));
        assert_eq!(at("-lease-0000000007"), ("/l".into(), Mode::Permit, 7));
        let kazoo = |mark: &str| node(&format!("/l/514e5a831836450cb1a56c741e990fd8{mark}"));
        assert_eq!(kazoo("__lock__0000000007"), ("/l".into(), Mode::Exclusive, 7));
        assert_eq!(kazoo("__rlock__0000000007"), ("/l".into(), Mode::Shared, 7));
        assert_eq!(node("/l/lock"), ("/l/lock".into(), Mode::Name, 0));
        assert_eq!(Node::numbered("/l/lock"), None);
    }

    #[test]
    fn numbers_order_until_they_are_used_up_and_then_the_transactions_do() {
        assert!(is_ahead((9, 5), (10, 4)));
        assert!(!is_ahead((10, 4), (9, 5)));
        assert!(is_ahead((9, 5), (-9, 4)));
        assert!(!is_ahead((i64::from(i32::MAX), 3), (9, 5)));
        assert!(is_ahead((i64::from(i32::MAX), 3), (-9, 4)));
    }
}
