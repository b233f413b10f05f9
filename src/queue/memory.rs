//! What the locks of a session remember of a path, also while no lock object of the path lives: a
//! program may make a lock object for each call.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use zk_session::world::{HashSet, Mutex};

/// So many facts are remembered at least, and twice as many at most: those that were used last.
/// They take about 1 MB then. If a fact is forgotten, the log has a line again, or a number of
/// permits is read once more.
const ROOM: usize = 32_768;

/// Something that holds for a path in a session.
#[derive(Hash)]
pub(crate) enum Fact {
    // ---- the log says so ----
    /// Some children are no contenders.
    Junk,
    /// Clients queue here that do not all exclude each other.
    Mixed,
    /// A lock of another kind has come.
    Stranger,
    /// More than half of the sequence numbers are used up.
    HalfUsed,
    /// The sequence numbers carry no order any more.
    NoOrder,
    /// The data of a semaphore's node is no number.
    NoNumber,
    /// This transaction has changed the number of permits.
    NumberSet(i64),

    /// The ACL of this folder has let the session delete.
    MayDelete,
    /// A semaphore that was given this number of permits may go by the number in its node.
    Agreed(u32),
}

/// The memory of a session.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Facts>);

/// The hashes of facts with their paths: paths may be long. That two of them have one hash is so
/// unlikely that it is left out of account.
#[derive(Default)]
struct Facts {
    new: HashSet<u64>,
    /// What was new when `new` was full.
    old: HashSet<u64>,
}

impl Memory {
    /// Remembers the fact. True if it was not known.
    pub(crate) fn is_new(&self, path: &str, fact: Fact) -> bool {
        let (fact, mut facts) = (hash(path, &fact), self.0.lock());
        if facts.new.contains(&fact) {
            return false;
        }
        let was_known = facts.old.contains(&fact);
        if facts.new.len() == ROOM {
            facts.old = mem::take(&mut facts.new);
        }
        facts.new.insert(fact);
        !was_known
    }

    pub(crate) fn knows(&self, path: &str, fact: Fact) -> bool {
        let (fact, facts) = (hash(path, &fact), self.0.lock());
        facts.new.contains(&fact) || facts.old.contains(&fact)
    }
}

fn hash(path: &str, fact: &Fact) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, fact).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_new_once_for_each_path() {
        let memory = Memory::default();
        for path in ["/a", "/b"] {
            assert!(!memory.knows(path, Fact::Junk));
            let new = [(); 2].map(|()| memory.is_new(path, Fact::Junk));
            assert_eq!((new, memory.knows(path, Fact::Junk)), ([true, false], true));
        }
        let numbers = [4, 8, 4].map(|number| memory.is_new("/a", Fact::Agreed(number)));
        assert_eq!(numbers, [true, true, false]);
        assert!(memory.is_new("/a", Fact::NumberSet(4)), "of another kind");
    }

    #[test]
    fn what_is_used_is_remembered_and_the_rest_is_forgotten() {
        let memory = Memory::default();
        let (paths, used) = (ROOM * 5, "/used");
        assert!(memory.is_new(used, Fact::Junk));
        for number in 0..paths {
            assert!(memory.is_new(&format!("/l/{number}"), Fact::Junk));
            assert!(!memory.is_new(used, Fact::Junk), "{number}");
        }
        let last = paths - ROOM / 2;
        assert!(!memory.is_new(&format!("/l/{last}"), Fact::Junk));
        assert!(!memory.knows("/l/0", Fact::Junk), "it is bounded");
        let facts = memory.0.lock();
        assert!(facts.new.len() <= ROOM && facts.old.len() <= ROOM);
    }
}
