//! A store that the locks protect: it refuses a fencing token lower than the highest it has seen.

use std::collections::{BTreeMap, BTreeSet};

/// One value for each lock, with its writers' nodes and tokens.
pub struct Store<T>(BTreeMap<String, Value<T>>);

struct Value<T> {
    newest: T,
    /// The node of the last writer.
    writer: String,
    /// The nodes of the writers before the last one.
    earlier: BTreeSet<String>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The store has the writer's value now.
    Taken,
    /// The store has seen a higher token.
    Refused,
    /// The store took the value, although another holder has written since this writer's last
    /// write. The tokens do not protect the store.
    Stale,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store(BTreeMap::new())
    }
}

impl<T: Copy + Ord> Store<T> {
    /// Whether another node has written under this lock since this one wrote last. A write of this
    /// one is late then: it is refused, or stale.
    pub fn has_earlier(&self, lock: &str, node: &str) -> bool {
        self.0.get(lock).is_some_and(|value| value.earlier.contains(node))
    }

    /// A holder of this lock, with this node, writes and shows its token.
    pub fn write(&mut self, lock: &str, node: &str, token: T) -> Written {
        let Some(value) = self.0.get_mut(lock) else {
            let value = Value { newest: token, writer: node.to_owned(), earlier: BTreeSet::new() };
            self.0.insert(lock.to_owned(), value);
            return Written::Taken;
        };
        if token < value.newest {
            return Written::Refused;
        }
        value.newest = token;
        if value.writer != node {
            value.earlier.insert(std::mem::replace(&mut value.writer, node.to_owned()));
        }
        if value.earlier.contains(node) { Written::Stale } else { Written::Taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_writes_again_until_the_next_one_has_written() {
        let mut store = Store::default();
        assert_eq!(store.write("/a", "one", 1), Written::Taken);
        assert_eq!(store.write("/a", "one", 1), Written::Taken);
        assert_eq!(store.write("/a", "two", 3), Written::Taken);
        assert!(store.has_earlier("/a", "one") && !store.has_earlier("/a", "two"));
        assert_eq!(store.write("/a", "one", 2), Written::Refused);
        assert_eq!(store.write("/b", "one", 2), Written::Taken);
    }

    #[test]
    fn a_token_that_lets_an_earlier_holder_write_again_is_found() {
        let mut store = Store::default();
        assert_eq!(store.write("/a", "one", 7), Written::Taken);
        assert_eq!(store.write("/a", "two", 7), Written::Taken);
        assert_eq!(store.write("/a", "one", 7), Written::Stale);
    }
}
