"""Runs the groups: mixed_groups [--broken] HOST:PORT [GROUP..]; tests/clients/mixed says more."""

import logging
import os
import signal
import sys
import tempfile
import time
import uuid

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

import arguments
from crew import Failed, Members
from ledger import Replay, Violation
from selfcheck import check_the_checks

LIMIT = 120  # seconds for a group, which takes a few
SOON = 30.0  # seconds: the longest wait for the server
# The processes of each client: the numbers of sessions, and of threads for each session.
PROCESSES = [{"sessions": 2, "threads": 1}, {"sessions": 1, "threads": 2}]
THREADS = sum(process["sessions"] * process["threads"] for process in PROCESSES)
UNLOCKED = "unlocked"  # the member that takes no lock


class Place:
    """The nodes in which a group queues. They are made before and stay: empty containers would be
    deleted, and their sequence numbers would start again."""

    def __init__(self, zk, group):
        self._zk, self.path = zk, "/mixed-%s/%s" % (uuid.uuid4().hex, group.name)
        # A semaphore queues for its mutex, and its leases are children of another node.
        self._parents = [self.path]
        if group.recipe.startswith("semaphore"):
            self._parents = ["%s/%s" % (self.path, name) for name in ("locks", "leases")]
        for parent in self._parents:
            zk.ensure_path(parent)

    def check_is_empty(self):
        """Waits until all nodes are deleted; some are deleted in the background."""
        end = time.monotonic() + SOON
        while True:
            left = [name for parent in self._parents for name in self._zk.get_children(parent)]
            if not left:
                return
            if time.monotonic() > end:
                raise Failed("nodes left behind: %s" % ", ".join(left))
            time.sleep(0.01)

    def remove(self):
        self._zk.delete(os.path.dirname(self.path), recursive=True)


def per_thread(group):
    """The number of sections of each thread; with a read/write lock a third of them write."""
    sections = -(-arguments.sections() // (THREADS * len(group.crews)))
    return -(-sections // 3) * 3 if group.recipe == "rwlock" else sections


def start(members, group, broken, task):
    for crew in group.crews:
        for number, process in enumerate(PROCESSES):
            options = {**task, **group.options, **crew.options, **process}
            members.start("%s-%d" % (crew.client, number), crew.client, options)
    if broken:
        # As many members as may be inside, so that any other one is too many.
        members.start(
            UNLOCKED + "-0", UNLOCKED, {**task, "sessions": 1, "threads": group.leases or 1}
        )


def judge(group, directory, sections):
    """A description of the sections; raises if a check fails."""
    with open(os.path.join(directory, "ledger")) as notes:
        tally = Replay(group.leases).follow(notes.read().splitlines())
    for crew in group.crews:
        done = tally.sections[crew.client]
        if done != THREADS * sections:
            raise Violation("%s noted %d sections of %d" % (crew.client, done, THREADS * sections))
    total = THREADS * sections * len(group.crews)
    with open(os.path.join(directory, "counter")) as counter:
        count = int(counter.read())
    due = 0 if group.leases else total // 3 if group.recipe == "rwlock" else total
    due += 0 if group.leases else tally.sections[UNLOCKED]
    if (count, tally.writes) != (due, due):
        raise Violation(
            "the counter says %d, the ledger %d writes, %d were due" % (count, tally.writes, due)
        )
    several = len(group.crews) > 1
    if several and tally.turns < total // 10:
        raise Violation("the clients did not contend: only %d turns" % tally.turns)
    words = ", ".join("%s %d" % (crew.client, tally.sections[crew.client]) for crew in group.crews)
    said = [
        "%d sections of %d client%s (%s)" % (total, len(group.crews), "s" if several else "", words)
    ]
    if not group.leases:
        said += ["counter %d" % count, "in queue order"]
    if several:
        said.append("%d times from one client to another" % tally.turns)
    if group.leases or group.recipe == "rwlock":
        if tally.most < (group.leases or 2) or several and not tally.company:
            raise Violation(
                "never enough were inside at once, or of one client only: at most %d" % tally.most
            )
        at_once = "at most %d inside at once" % tally.most
        said.append(
            at_once + (", %d times beside another client's" % tally.company if several else "")
        )
    if tally.stays:
        said.append("%d writers stayed to read" % tally.stays)
    return ", ".join(said)


def run(zk, server, group, broken):
    """Runs the group and returns one line about it."""
    place, sections = Place(zk, group), per_thread(group)
    try:
        with tempfile.TemporaryDirectory(prefix="mixed-") as directory, Members() as members:
            with open(os.path.join(directory, "counter"), "w") as counter:
                counter.write("%010d\n" % 0)
            with open(os.path.join(directory, "ledger"), "w"):
                pass
            task = {"connect": server, "path": place.path, "dir": directory, "recipe": group.recipe}
            start(members, group, broken, dict(task, sections=sections, pause=group.pause))
            took = members.run(LIMIT)
            said = judge(group, directory, sections)
            place.check_is_empty()
    finally:
        place.remove()
    return "%s: %s (%.1f s)" % (group.name, said, took)


def show(zk, server, group, broken):
    """Whether the group ended as expected."""
    try:
        said = run(zk, server, group, broken)
    except (Failed, Violation) as what:
        noticed = broken and isinstance(what, Violation)
        print("%s %s: %s" % ("noticed" if noticed else "FAIL", group.name, what), flush=True)
        return noticed
    print(
        "%s %s" % ("FAIL, a member without a lock was not noticed:" if broken else "ok  ", said),
        flush=True,
    )
    return not broken


def main(words):
    broken, server, groups = arguments.parse(words)
    check_the_checks()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # every `with` cleans up
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)  # kazoo would warn at each try to connect
    zk = KazooClient(hosts=server, timeout=15.0, logger=logger)
    try:
        zk.start(timeout=SOON)
    except KazooTimeoutError:
        sys.exit("mixed: no ZooKeeper answers at %s" % server)
    good = all(show(zk, server, group, broken) for group in groups)
    zk.stop()
    zk.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
