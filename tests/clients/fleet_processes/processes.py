"""The processes of a fleet. Each is started, prints the id of its session, and is ended by its
process id."""

import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOON = 120.0  # seconds: the longest wait for a process, however busy the machine
HOST = os.uname().nodename
# kazoo writes the identifier that its user gives, or nothing.
IDENTIFIERS = ["", "nightly job %d", "host:pid"]


class Failed(Exception):
    """A process did not do what it had to."""


def until(what, condition):
    """Waits until `condition` is true."""
    end = time.monotonic() + SOON
    while True:
        if condition():
            return
        if time.monotonic() > end:
            raise TimeoutError("not within %d s: %s" % (SOON, what))
        time.sleep(0.02)


class Process:
    """One process with one contender."""

    def __init__(self, fleet, number, command):
        self.name = "%s-%d" % (self.CLIENT, number)
        self._file = os.path.join(fleet.directory, self.name)
        environment = dict(os.environ, ZK_CONNECT=fleet.server, ZK_LOCK_FLEET=fleet.mark)
        with open(self._file, "wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment
            )
        self.pid = self._process.pid

    def output(self):
        with open(self._file, errors="replace") as file:
            return file.read()

    def check_runs(self):
        code = self._process.poll()
        if code is not None:
            raise Failed("%s ended with %d\n%s" % (self.name, code, self.output()))

    def until(self, what, condition):
        """Waits until `condition` is true; fails if the process ends before."""

        def running():
            self.check_runs()
            return condition()

        try:
            until("%s %s" % (self.name, what), running)
        except TimeoutError as late:
            raise Failed("%s\n%s" % (late, self.output()))

    def printed(self, name):
        """The value of a line "NAME VALUE" that the process has printed; None before that."""
        found = re.search("^%s (.*)\n" % name, self.output(), re.MULTILINE)
        return found and found[1]

    def session(self):
        """The id of its session, as the process itself knows it; None before it has one."""
        return self.printed("session")

    def has_lock(self):
        return re.search("^held$", self.output(), re.MULTILINE) is not None

    def ports(self, server):
        """The local ports of its connections to the server, as the kernel has them."""
        sockets = set()
        for name in os.listdir("/proc/%d/fd" % self.pid):
            try:
                link = os.readlink("/proc/%d/fd/%s" % (self.pid, name))
            except FileNotFoundError:
                continue  # closed meanwhile
            if link.startswith("socket:["):
                sockets.add(link[len("socket:[") : -1])
        found = set()
        for table in ("tcp", "tcp6"):
            try:
                lines = open("/proc/%d/net/%s" % (self.pid, table))
            except FileNotFoundError:
                continue  # a host without IPv6
            with lines:
                for line in lines:
                    words = line.split()
                    if words[0] != "sl" and words[9] in sockets:
                        local, remote = (int(words[i].rsplit(":", 1)[1], 16) for i in (1, 2))
                        if remote == server:
                            found.add(local)
        return found

    def ask_to_end(self):
        if self._process.poll() is None:
            self._process.terminate()

    def end(self):
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True


class ZkMutex(Process):
    """`zk-lock run`. It writes its host and its process id into its node."""

    CLIENT = "zk-mutex"

    def __init__(self, fleet, number):
        # kazoo is told to wait for our names, which zk-lock cannot see.
        command = [os.environ["ZK_LOCK"], "--json", "-v", "run", "--force", fleet.path, "--"]
        super().__init__(fleet, number, command + ["sh", "-c", "echo held; exec sleep 86400"])

    def session(self):
        found = re.search(r'"message":"session (0x[0-9a-f]+): connected', self.output())
        return found and found[1]

    def shown(self):
        data = "%s:%d" % (HOST, self.pid)
        return {"client": self.CLIENT, "host": HOST, "pid": self.pid, "data": data}


class Kazoo(Process):
    """kazoo's Lock. Its identifier is its data. zk-mutex's data in a node with kazoo's name looks
    like an identifier of host and process id, so `show` names both libraries then."""

    CLIENT = "kazoo"

    def __init__(self, fleet, number):
        identifier = IDENTIFIERS[number % len(IDENTIFIERS)]
        self._has_place = identifier == "host:pid"
        identifier = identifier.replace("%d", str(number))
        waiter = os.path.join(HERE, "kazoo_waiter.py")
        command = [sys.executable, "-B", waiter, fleet.server, fleet.path, identifier]
        super().__init__(fleet, number, command)

    def shown(self):
        shown = {"client": self.CLIENT, "host": None, "pid": None, "data": self.printed("data")}
        if self._has_place:
            shown.update(client="kazoo or zk-mutex", host=HOST, pid=self.pid)
        return shown


class Curator(Process):
    """Curator's InterProcessMutex. It writes the address of its host into its node."""

    CLIENT = "Curator"

    def __init__(self, fleet, number):
        command = os.environ["JAVA_WAITER"].split("\n") + [fleet.server, fleet.path]
        super().__init__(fleet, number, command)

    def shown(self):
        address = self.printed("data")
        return {"client": self.CLIENT, "host": address, "pid": None, "data": address}


LIBRARIES = [ZkMutex, Kazoo, Curator]


class Fleet:
    """All processes; use it in a `with`, which ends them."""

    WAVE = 6  # so many start at once: a JVM takes a second of a processor to start

    def __init__(self, server, path, mark, directory):
        self.server, self.path, self.mark, self.directory = server, path, mark, directory
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.ask_to_end()
        for process in self.processes:
            process.end()

    def all_run(self):
        for process in self.processes:
            process.check_runs()
        return True

    def start(self, waiters, contenders):
        """Starts the holder, and then the waiters in waves. `contenders` tells how many contenders
        the server has."""
        holder = ZkMutex(self, 0)
        self.processes.append(holder)
        holder.until("has the lock", holder.has_lock)
        while len(self.processes) <= waiters:
            begun = len(self.processes)
            for i in range(begun, min(begun + self.WAVE, waiters + 1)):
                self.processes.append(LIBRARIES[i % len(LIBRARIES)](self, i // len(LIBRARIES)))
            for process in self.processes[begun:]:
                process.until("has a session", process.session)
            until("each has a node", lambda: self.all_run() and contenders() == len(self.processes))

    def end(self):
        """Ends all processes by their ids, the holder last, and returns those that had to be
        killed."""
        waiters, holder = self.processes[1:], self.processes[:1]
        slow = []
        for group in (waiters, holder):
            for process in group:
                process.ask_to_end()
            slow += [process.name for process in group if not process.end()]
        return slow

    def left(self):
        """The ids of all processes that have the fleet's mark in their environment: those that the
        fleet started, and those that these started."""
        left, mark = [], b"ZK_LOCK_FLEET=" + self.mark.encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as environment:
                    if mark in environment.read().split(b"\0"):
                        left.append(int(pid))
            except OSError:
                continue  # it has ended, or is another user's
        return left
