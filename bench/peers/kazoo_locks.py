"""kazoo's locks as a peer of bench/compare; bench/src/protocol.rs says what the two agree on. Each
thread has a lock object of its own."""

import concurrent.futures
import json
import logging
import os
import sys
import threading
import time

from kazoo.client import KazooClient

now = time.monotonic_ns
SETTLE = 0.3  # seconds


class Peer:
    def __init__(self, hosts, workload, *settings):
        self.hosts, self.workload = hosts, workload
        self.settings = dict(setting.split("=", 1) for setting in settings)
        self.path = self.settings.get("path", "/bench/lock")
        self.threads = self.number("threads", 1)
        self.clients = []
        self.counter = 0  # only the lock protects it

    def number(self, key, otherwise):
        return int(self.settings.get(key, otherwise))

    def connect(self):
        logger = logging.getLogger("kazoo")
        logger.setLevel(logging.ERROR)
        client = KazooClient(hosts=self.hosts, timeout=30.0, logger=logger)
        client.start(timeout=60.0)
        self.clients.append(client)
        return client

    def close(self):
        """Otherwise the servers would end the sessions during the next measurement."""
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda client: client.stop(), self.clients))

    def lock(self, client, path):
        return (client.ReadLock if self.workload == "readers" else client.Lock)(path)

    def cycle(self, lock, counts=True):
        """One acquire and release: when each was called, and had returned."""
        acquire = now()
        lock.acquire()
        acquired = now()
        if counts:
            self.counter += 1
        release = now()
        lock.release()
        return acquire, acquired, release, now()

    def warm(self, client):
        lock = self.lock(client, f"{self.path}-warm-{os.getpid()}")
        for _ in range(self.number("warm", 500)):
            self.cycle(lock, counts=False)

    def start(self, work):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(self.threads)]
        for thread in threads:
            thread.start()
        return threads

    def loop(self):
        client, reads, cycles = self.connect(), self.workload == "readers", []
        self.warm(client)
        mark("ready")
        start, most = now(), self.number("max", sys.maxsize)
        end = start + self.number("ms", 3_600_000) * 1_000_000

        def work(_):
            lock, own = self.lock(client, self.path), []
            while len(own) < most and now() < end:
                own.append(self.cycle(lock, counts=not reads))
            cycles.extend(own)

        for thread in self.start(work):
            thread.join()
        self.report(cycles, start, {} if reads else dict(exact=self.counter == len(cycles)))

    def drain(self):
        """A holder and many waiters with one cycle each. The holder has a session of its own."""
        sessions, cycles = min(self.number("sessions", 8), self.threads), []
        clients = [self.connect() for _ in range(sessions)]
        holding = self.connect()
        self.warm(holding)
        held = self.lock(holding, self.path)
        held.acquire()
        mark("ready")

        def work(number):
            lock = self.lock(clients[number % sessions], self.path)
            cycles.append(self.cycle(lock))

        threads = self.start(work)
        while len(holding.get_children(self.path)) <= self.threads:
            time.sleep(0.02)
        time.sleep(SETTLE)
        mark("queued")
        start = now()
        held.release()
        for thread in threads:
            thread.join()
        self.report(cycles, start, dict(sessions=sessions, exact=self.counter == len(cycles)))

    def report(self, cycles, start, more):
        if "events" in self.settings:
            with open(self.settings["events"], "w") as file:
                file.writelines("%d %d %d %d\n" % cycle for cycle in cycles)
        seconds = (max(cycle[3] for cycle in cycles) - start) / 1e9
        acquiring = [cycle[1] - cycle[0] for cycle in cycles]
        line = dict(
            threads=self.threads,
            ops=len(cycles),
            seconds=round(seconds, 3),
            ops_per_s=round(len(cycles) / seconds, 1),
            p50_us=percentile(acquiring, 0.5),
            p99_us=percentile(acquiring, 0.99),
            rel_p50_us=percentile([cycle[3] - cycle[2] for cycle in cycles], 0.5),
        )
        print(json.dumps(dict(line, **more)), flush=True)


def mark(name):
    print("MARK", name, flush=True)
    sys.stdin.readline()


def percentile(ns, q):
    return round(sorted(ns)[min(len(ns) - 1, int(len(ns) * q))] / 1000, 1)


def main():
    peer = Peer(*sys.argv[1:])
    if peer.workload in ("uncontended", "contended", "readers"):
        peer.loop()
    elif peer.workload == "waiters":
        peer.drain()
    else:
        sys.exit(3)
    print("DONE", flush=True)
    sys.stdin.read()
    peer.close()


if __name__ == "__main__":
    main()
