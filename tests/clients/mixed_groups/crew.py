"""The members of a group: processes that begin together, and are all ended at the end."""

import os
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KAZOO_MEMBER = os.path.join(HERE, "..", "mixed_members", "kazoo_member.py")
SOON = 60.0  # seconds: the longest wait for a member to be ready, even on a busy machine


class Failed(Exception):
    """A member has failed."""


def command(client):
    """The command of a member. tests/clients/mixed has set the places of the programs."""
    rust = os.environ["RUST_CLIENT"]
    return {
        "ours": [rust, "ours"],
        "zookeeper-client": [rust, "zookeeper-client"],
        "unlocked": [rust, "unlocked"],
        "Curator": os.environ["JAVA_CLIENT"].split("\n"),
        "kazoo": [sys.executable, "-B", KAZOO_MEMBER],
    }[client]


class Member:
    """One process. Its output is kept, and shown if it fails."""

    def __init__(self, name, client, task):
        self.name, self._said = name, os.path.join(task["dir"], name + ".err")
        words = ["%s=%s" % pair for pair in dict(task, name=name).items()]
        with open(self._said, "wb") as said:
            self._process = subprocess.Popen(
                command(client) + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
            )

    def fail(self, why):
        with open(self._said, errors="replace") as said:
            raise Failed("%s %s\n%s" % (self.name, why, said.read()))

    def await_ready(self):
        heard, _, _ = select.select([self._process.stdout], [], [], SOON)
        if not heard or self._process.stdout.readline() != b"ready\n":
            self.fail("is not ready in time")

    def go(self):
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()
        except BrokenPipeError:
            self.fail("has ended before it begins")

    def has_ended(self):
        code = self._process.poll()
        if code:
            self.fail("ended with %d" % code)
        return code == 0

    def end(self):
        for stop in (self._process.terminate, self._process.kill):
            if self._process.poll() is None:
                stop()
                try:
                    self._process.wait(5)
                except subprocess.TimeoutExpired:
                    pass
        self._process.stdout.close()


class Members:
    """All members of a group. Use it in a `with`, which ends the members that still run."""

    def __init__(self):
        self._members = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self._members:
            member.end()

    def start(self, name, client, task):
        self._members.append(Member(name, client, task))

    def run(self, limit):
        """Lets all begin at once, and returns the time until all have ended, in seconds."""
        for member in self._members:
            member.await_ready()
        begin = time.monotonic()
        for member in self._members:
            member.go()
        running = list(self._members)
        while running:
            running = [member for member in running if not member.has_ended()]
            if time.monotonic() - begin > limit:
                running[0].fail("has not ended after %d s" % limit)
            time.sleep(0.01)
        return time.monotonic() - begin
