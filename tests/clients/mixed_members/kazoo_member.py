"""A member of a mixed group (tests/clients/mixed) that uses kazoo.
interop/src/member/main.rs has the options of a member."""

import logging
import os
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient

SOON = 30.0  # seconds: the longest wait for a connection


class Ledger:
    """One thread's access to the group's files: the counter, and the notes of entries and exits."""

    def __init__(self, task, thread):
        self._counter = os.path.join(task["dir"], "counter")
        # Each line is written at once, so the lines of all members have the order of their
        # writes.
        self._lines = os.open(os.path.join(task["dir"], "ledger"), os.O_WRONLY | os.O_APPEND)
        self.who = "%s.%d" % (task["name"], thread)
        self._pause = (
            int(task["pause"]) / 1e6
        )  # seconds: the shortest time of a section

    def section(self, deed, node):
        """Runs one section. `node` is the name of the node that holds the lock. The ledger notes
        its sequence number, which is the place in the queue."""
        count = self._count()
        self._note("+", deed, node, count)
        time.sleep(self._pause)
        if deed == "write":
            # Reading and writing are two steps on purpose: only the lock keeps them together.
            self._set_count(count + 1)
            self._note("-", deed, node, count + 1)
        else:
            self._note("-", deed, node, self._count())

    def _count(self):
        with open(self._counter) as file:
            return int(file.read())

    def _set_count(self, count):
        """Writes over the old digits, so that the file is never empty, even if the lock fails."""
        file = os.open(self._counter, os.O_WRONLY)
        os.write(file, b"%010d\n" % count)
        os.close(file)

    def _note(self, sign, deed, node, count):
        os.write(
            self._lines,
            b"%s %s %s %s %d\n"
            % (sign.encode(), deed.encode(), node[-10:].encode(), self.who.encode(), count),
        )


def writes(section, thread):
    """Whether a section writes, if the recipe has readers: every third does, and no two threads
    write in step."""
    return (section + thread) % 3 == 0


def patterns(task, *kinds):
    """The ends of other clients' names that kazoo should respect, beside its own."""
    return [task[kind] for kind in kinds if kind in task]


def mutex(client, task, thread, ledger):
    lock = client.Lock(task["path"], ledger.who, extra_lock_patterns=patterns(task, "writes"))
    for _ in range(int(task["sections"])):
        with lock:
            ledger.section("write", lock.node)


def rwlock(client, task, thread, ledger):
    reading = client.ReadLock(
        task["path"], ledger.who, extra_lock_patterns=patterns(task, "writes")
    )
    writing = client.WriteLock(
        task["path"], ledger.who, extra_lock_patterns=patterns(task, "writes", "reads")
    )
    for section in range(int(task["sections"])):
        deed, lock = ("write", writing) if writes(section, thread) else ("read", reading)
        with lock:
            ledger.section(deed, lock.node)


RECIPES = {"mutex": mutex, "rwlock": rwlock}


def connect(hosts):
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    client = KazooClient(hosts=hosts, timeout=15.0, logger=logger)
    client.start(timeout=SOON)
    return client


def main(arguments):
    task = dict(word.split("=", 1) for word in arguments)
    sections = RECIPES[task["recipe"]]
    clients = [connect(task["connect"]) for _ in range(int(task["sessions"]))]
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise RuntimeError("the group is not to begin")
    failures, threads = [], []

    def run(client, number):
        try:
            sections(client, task, number, Ledger(task, number))
        except BaseException:
            failures.append(traceback.format_exc())

    for client in clients:
        for _ in range(int(task["threads"])):
            threads.append(threading.Thread(target=run, args=(client, len(threads))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.stop()
        client.close()
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
