"""The cells of the matrix: one of our locks and one of another client meet at one path."""

from takers import OURS, SOON, Failed

EXCLUDES = "waits"  # the second gets the lock when the first has released it
REFUSED = "refused"  # our call ends with `Error::InvalidConfig`
SHARES = "shares"  # both hold, as readers may
LOGGED = "holds, logged"  # both hold, and our next call logs an error
FAILS = "fails"  # their call ends with an error of theirs
BESIDE = "holds"  # both hold, and neither client notices

DEFAULT = {
    "mutex": "`ZkMutex`",
    "read": "`ZkRwLock::read`",
    "write": "`ZkRwLock::write`",
    "semaphore": "`ZkSemaphore`",
    "semaphore-mutex": "`ZkSemaphoreMutex`",
    "election": "`ZkElection`",
    "exclusive": "`ZkExclusiveLock`",
}
KAZOO = {
    "mutex-kazoo": "`ZkMutex`",
    "read-kazoo": "`ZkRwLock::read`",
    "write-kazoo": "`ZkRwLock::write`",
}
THEIRS = {
    "Curator": [
        "InterProcessMutex",
        "readLock",
        "writeLock",
        "InterProcessSemaphoreV2",
        "InterProcessSemaphoreMutex",
        "LeaderLatch",
        "LeaderSelector",
    ],
    "kazoo": ["Lock", "ReadLock", "WriteLock", "Semaphore", "Election"],
    "zookeeper-client": [
        'new_curator(_,"lock-")',
        'new_curator(_,"latch-")',
        'new_shared("n-")',
        'new_custom("x-")',
    ],
    "go-zookeeper": ["Lock"],
}


class Cell:
    """Whether `second` gets its lock while `first` has its own. Each is a client and a recipe."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __str__(self):
        return "%s %s, then %s %s" % (*self.first, *self.second)

    def try_out(self, takers, path, expected):
        """What happens. The table's word, if there is one, says only how long to wait for it."""
        first, second = takers[self.first[0]], takers[self.second[0]]
        name = path.replace("/", "_")
        held, late, third = name + "-first", name + "-second", name + "-third"
        first.take(held, self.first[1], path)
        first.expect(held, "held")
        second.take(late, self.second[1], path)
        is_to_wait = expected in (None, EXCLUDES)
        answer = second.answer(late, second.patience() if is_to_wait else SOON)
        if first.client == OURS and not first.holds(held):
            raise Failed("%s: the first has lost its lock" % self)
        if answer is None:
            first.release(held)
            second.expect(late, "held")
            second.release(late)
            return EXCLUDES
        if answer.startswith("refused"):
            # The error says whose node it is, and since when.
            if path not in answer or "session 0x" not in answer or ", for " not in answer:
                raise Failed("%s: the error does not describe the node: %s" % (self, answer))
            first.release(held)
            return REFUSED
        if answer.startswith("failed"):
            if second.client == OURS:
                raise Failed("%s: %s" % (self, answer))
            first.release(held)
            return FAILS
        if answer != "held":
            raise Failed("%s: %s" % (self, answer))
        if first.client != OURS:
            is_logged = False
        else:
            first.take(third, self.first[1], path)
            limit = SOON if expected == LOGGED else first.patience()
            is_logged = first.has_logged_error(path, limit)
        second.release(late)
        first.release(held)
        if first.client == OURS and first.answer(third, SOON) == "held":
            first.release(third)
        if is_logged:
            return LOGGED
        reads = all("read" in recipe.lower() for _, recipe in (self.first, self.second))
        return SHARES if reads else BESIDE


def pair(client, recipe, ours):
    """The two cells of a place in the table: theirs comes second, and ours does."""
    return Cell((OURS, ours), (client, recipe)), Cell((client, recipe), (OURS, ours))
