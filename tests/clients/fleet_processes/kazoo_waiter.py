"""Waits for kazoo's Lock until SIGTERM ends it: kazoo_waiter HOST:PORT PATH IDENTIFIER. The
identifier "host:pid" is replaced by this host and this process. It prints its session and the data
of its node, one "NAME VALUE" a line. It prints "held" if it gets the lock, which would be wrong."""

import logging
import os
import signal
import sys

from kazoo.client import KazooClient


def main(connect, path, identifier):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # by way of `finally`
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    if identifier == "host:pid":
        identifier = "%s:%d" % (os.uname().nodename, os.getpid())
    client = KazooClient(hosts=connect, timeout=30.0, logger=logger)
    try:
        client.start(timeout=60.0)
        print("session 0x%x" % client.client_id[0], flush=True)
        print("data %s" % identifier, flush=True)
        # With this pattern it waits also for the nodes of this repository's library and of Curator.
        client.Lock(path, identifier, extra_lock_patterns=["-lock-"]).acquire()
        print("held", flush=True)
        signal.pause()
    finally:
        client.stop()  # closes the session, and with it the node goes
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
