"""kazoo as a client of the matrix (tests/clients/matrix): kazoo_taker.py HOST:PORT.
interop/src/taker/main.rs has the orders and the answers."""

import logging
import sys
import threading

from kazoo.client import KazooClient

SOON = 30.0  # seconds: the longest wait for a connection


def say(ident, what):
    sys.stdout.write("%s %s\n" % (ident, what.replace("\n", " ")))
    sys.stdout.flush()


def take(client, ident, recipe, path, release):
    def keep():
        say(ident, "held")
        release.wait()

    try:
        if recipe == "Election":
            client.Election(path, ident).run(keep)
        else:
            lock = {
                "Lock": client.Lock,
                "ReadLock": client.ReadLock,
                "WriteLock": client.WriteLock,
                "Semaphore": client.Semaphore,
            }[recipe]
            with lock(path, ident):
                keep()
        say(ident, "released")
    except Exception as error:
        say(ident, "failed %r" % error)


def main(hosts):
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    client = KazooClient(hosts=hosts, timeout=15.0, logger=logger)
    client.start(timeout=SOON)
    releases = {}
    for line in sys.stdin:
        deed, ident, *rest = line.split()
        if deed == "release":
            releases[ident].set()
            continue
        releases[ident] = threading.Event()
        threading.Thread(
            target=take, args=(client, ident, *rest, releases[ident]), daemon=True
        ).start()


if __name__ == "__main__":
    main(sys.argv[1])
