"""What the kazoo checks stand on: a table of checks, clients that get closed, and waits that
end."""

import logging
import queue
import socket
import struct
import sys
import threading
import time
import traceback
import uuid

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KazooState

SOON = 30.0  # seconds: the longest wait for what the server owes us, however busy the machine
SHORT = 0.3  # seconds: a wait that has to be in vain
SESSION = 15.0  # seconds: a session timeout that plays no part unless a check says so
CHECKS = []


class Failed(AssertionError):
    """A check did not see what it had to see."""


def check(function):
    """Puts a check into the table."""
    CHECKS.append(function)
    return function


def equal(seen, due, what=""):
    if seen != due:
        raise Failed("%s: %r where %r was due" % (what or "compared", seen, due))


def true(condition, what):
    if not condition:
        raise Failed(what)


def raises(kind, function, *arguments, **named):
    """The exception, which has to be of exactly this kind: codes must not be mixed up."""
    try:
        result = function(*arguments, **named)
    except Exception as error:
        if type(error) is kind:
            return error
        raise Failed("%r where %s was due" % (error, kind.__name__)) from error
    raise Failed("%r where %s was due" % (result, kind.__name__))


def until(what, condition, seconds=SOON):
    """Asks until the answer is true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise Failed("not within %g s: %s" % (seconds, what))
        time.sleep(0.01)


class Seen(queue.Queue):
    """What came, in order: events, states, values."""

    def next(self, what="something to come"):
        try:
            return self.get(timeout=SOON)
        except queue.Empty:
            raise Failed("not within %g s: %s" % (SOON, what)) from None

    def skip_to(self, due):
        """Lets pass what comes before `due`."""
        while self.next("%r to come" % (due,)) != due:
            pass

    def all(self):
        return [self.get() for _ in range(self.qsize())]


class Task(threading.Thread):
    """A thread whose failure is the check's failure."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self._call, self._result, self._error = (function, arguments), None, None
        self.start()

    def run(self):
        function, arguments = self._call
        try:
            self._result = function(*arguments)
        except BaseException as error:
            self._error = error

    def result(self):
        self.join(SOON)
        true(not self.is_alive(), "a thread does not end: %s" % self._call[0].__name__)
        if self._error:
            raise self._error
        return self._result


class Section:
    """A place for one: notices company, and keeps a counter that only a lock makes exact."""

    def __init__(self):
        self._taken = threading.Lock()
        self.count = 0

    def __enter__(self):
        true(self._taken.acquire(blocking=False), "two are inside at once")
        self._before = self.count
        time.sleep(0)  # whoever else could come in does so now
        return self

    def __exit__(self, *_):
        self.count = self._before + 1
        self._taken.release()


class Gauge:
    """How many are inside, and how many were at most."""

    def __init__(self):
        self._lock, self._now, self.most, self.total = threading.Lock(), 0, 0, 0

    def __enter__(self):
        with self._lock:
            self._now += 1
            self.total += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_):
        with self._lock:
            self._now -= 1


def quiet_logger():
    """kazoo warns of every dropped connection; the checks drop some themselves."""
    logger = logging.Logger("kazoo", logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    return logger


class Scene:
    """A check's own node, and its clients; all of it goes with the check."""

    def __init__(self, hosts, top, name):
        self.hosts, self.path, self._clients = hosts, "%s/%s" % (top, name), []
        self.zk = self.client()
        self.zk.ensure_path(self.path)

    def at(self, name):
        return "%s/%s" % (self.path, name)

    def client(self, hosts=None, **settings):
        settings.setdefault("timeout", SESSION)
        settings.setdefault("logger", quiet_logger())
        client = KazooClient(hosts=hosts or self.hosts, **settings)
        self._clients.append(client)
        client.start(timeout=SOON)
        return client

    def clients(self, count):
        return [self.client() for _ in range(count)]

    def close(self):
        for client in reversed(self._clients[1:]):
            client.stop()
            client.close()
        self.zk.delete(self.path, recursive=True)
        self.zk.stop()
        self.zk.close()


def states_of(client):
    """The states the client goes through from now on."""
    seen = Seen()
    client.add_listener(seen.put)  # put returns None: the listener stays
    return seen


def settle(client):
    """Returns when every event that the server sent so far has been handled: an event precedes the
    replies after it, and handlers run in order."""
    client.exists("/")
    handled = threading.Event()
    client.handler.dispatch_callback(Callback("watch", handled.set, ()))
    true(handled.wait(SOON), "the client does not handle its events")


def cut(client):
    """Ends the client's connection, not its session."""
    client._connection._socket.shutdown(socket.SHUT_RDWR)


def cut_and_await(client):
    """The same; returns when the client is connected again, in its old session."""
    session, states = client.client_id, states_of(client)
    cut(client)
    states.skip_to(KazooState.SUSPENDED)
    states.skip_to(KazooState.CONNECTED)
    client.remove_listener(states.put)
    equal(client.client_id, session, "the session after the reconnect")


def expire(client):
    """Ends the client's session behind its back: another connection takes it over and closes it."""
    session, password = client.client_id
    while not _take_over_and_close(client, session, password):
        pass


def _take_over_and_close(client, session, password):
    hello = (
        struct.pack("!iqiqi", 0, 0, int(SESSION * 1000), session, len(password)) + password + b"\0"
    )
    frames = b"".join(
        struct.pack("!i", len(body)) + body for body in (hello, struct.pack("!ii", 1, -11))
    )
    with socket.create_connection(client._connection._socket.getpeername()[:2], SOON) as raw:
        raw.sendall(frames)
        said = b""
        while part := raw.recv(4096):
            said += part
    true(len(said) >= 16, "the server does not answer a connect request")
    timeout, answered = struct.unpack_from("!iq", said, 8)
    if timeout <= 0:
        return True  # it is gone already
    equal(answered, session, "the session taken over")
    # Without the second reply, the client was faster and took the session back.
    return len(said) > 4 + struct.unpack_from("!i", said)[0]


def main(arguments):
    if not arguments:
        usage = "usage: kazoo_checks HOST:PORT [NAME..]   all checks, or those with a NAME in theirs"
        print(usage, file=sys.stderr)
        return 2
    hosts, names = arguments[0], arguments[1:]
    top = "/kazoo-%s" % uuid.uuid4().hex
    chosen = [c for c in CHECKS if not names or any(name in c.__name__ for name in names)]
    if not chosen:
        print("kazoo: no check is called %s" % " or ".join(names), file=sys.stderr)
        return 2
    if not _answers(hosts):
        print("kazoo: no ZooKeeper answers at %s" % hosts, file=sys.stderr)
        return 1
    for function in chosen:
        start, name = time.monotonic(), function.__name__
        try:
            scene = Scene(hosts, top, name)
            function(scene)
            scene.close()
        except BaseException as error:
            print("FAIL kazoo %s: %s" % (name, error), flush=True)
            traceback.print_exc()
            return 1
        print("ok   kazoo %s (%.2f s)" % (name, time.monotonic() - start), flush=True)
    return _leave_nothing(hosts, top)


def _answers(hosts):
    client = KazooClient(hosts=hosts, timeout=SESSION, logger=quiet_logger())
    try:
        client.start(timeout=SOON)
    except KazooTimeoutError:
        return False
    client.stop()
    client.close()
    return True


def _leave_nothing(hosts, top):
    """Locks and the like must have removed their own nodes; what is left of `top` is empty."""
    client = KazooClient(hosts=hosts, timeout=SESSION, logger=quiet_logger())
    client.start(timeout=SOON)
    left = client.get_children(top)
    client.delete(top)
    client.stop()
    client.close()
    if left:
        print("FAIL kazoo: left behind under %s: %s" % (top, left), flush=True)
    return 1 if left else 0
