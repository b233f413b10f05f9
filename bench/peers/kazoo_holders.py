"""Sessions of kazoo, each of which holds a lock: kazoo_holders HOSTS SESSIONS TIMEOUT_MS. It does
what bench/src/bin/fleet.rs does: it prints "begin" and waits for a line. Then it makes its
sessions, prints "ready", and keeps them until its input is closed."""

import logging
import sys

from kazoo.client import KazooClient


def main(hosts, sessions, timeout):
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    print("begin", flush=True)
    sys.stdin.readline()
    clients = []
    for number in range(int(sessions)):
        client = KazooClient(hosts=hosts, timeout=int(timeout) / 1000, logger=logger)
        clients.append(client)
        client.start(timeout=60.0)
        client.Lock("/zk-mutex/fleet/%d" % number).acquire()
    print("ready", flush=True)
    sys.stdin.read()
    for client in clients:
        client.stop()  # closes the session, and with it the node goes
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
