"""The clients: one process of each, which takes locks on order. interop/src/taker/main.rs has the
orders and the answers."""

import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KAZOO_TAKER = os.path.join(HERE, "..", "matrix_takers", "kazoo_taker.py")
# Seconds: the longest wait for something that must come, even on a busy machine. kazoo's Semaphore
# waits until the server has removed the empty folders of our semaphore.
SOON = 150.0
PATIENCE = 5  # times the client's slowest call on a free path: then no answer comes any more
LEAST = 0.4  # seconds: the shortest time after which that is said
OURS = "zk-mutex"


class Failed(Exception):
    """A client has failed."""


def command(client):
    """The command of a client. tests/clients/matrix has set the places of the programs."""
    rust = os.environ["RUST_TAKER"]
    if client in (OURS, "zookeeper-client"):
        return [rust, client]
    return {
        "Curator": lambda: os.environ["JAVA_TAKER"].split("\n"),
        "kazoo": lambda: [sys.executable, "-B", KAZOO_TAKER],
        "go-zookeeper": lambda: [os.environ["GO_TAKER"]],
    }[client]()


class Taker:
    """One process. What it logs is kept. Any number of threads may give it orders."""

    def __init__(self, client, server, directory):
        self.client, self._log = client, os.path.join(directory, client + ".err")
        self._slowest, self._answers, self._news = 0.0, {}, threading.Condition()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command(client) + [server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self._process.stdout:
            ident, answer = line.rstrip("\n").split(" ", 1)
            with self._news:
                self._answers[ident].append(answer)
                self._news.notify_all()

    def log(self):
        with open(self._log, errors="replace") as log:
            return log.read()

    def has_logged_error(self, path, limit):
        """Whether the client logs an error about the path within `limit`."""
        end = time.monotonic() + limit
        while True:
            if any("ERROR" in line and path in line for line in self.log().splitlines()):
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.02)

    def take(self, ident, recipe, path):
        with self._news:
            self._answers[ident] = []
        self._order("take", ident, recipe, path)

    def release(self, ident):
        self._order("release", ident)
        self.expect(ident, "released")

    def holds(self, ident):
        self._order("check", ident)
        return self.answer(ident, SOON) == "holds"

    def _order(self, *words):
        with self._news:
            try:
                self._process.stdin.write(" ".join(words) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise Failed("%s has ended\n%s" % (self.client, self.log())) from None

    def answer(self, ident, limit):
        """The next answer about a lock, or None if there is none within `limit`."""
        with self._news:
            if not self._news.wait_for(lambda: self._answers[ident], limit):
                return None
            return self._answers[ident].pop(0)

    def expect(self, ident, what):
        answer = self.answer(ident, SOON)
        if answer != what:
            raise Failed(
                "%s: %s is not %s but %s\n%s" % (self.client, ident, what, answer, self.log())
            )

    def try_alone(self, ident, recipe, path):
        """Takes a lock that nothing keeps it from, and notes how long that takes."""
        begin = time.monotonic()
        self.take(ident, recipe, path)
        self.expect(ident, "held")
        self._slowest = max(self._slowest, time.monotonic() - begin)
        self.release(ident)

    def patience(self):
        """The time after which an answer that has not come does not come."""
        return max(LEAST, PATIENCE * self._slowest)

    def end(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
