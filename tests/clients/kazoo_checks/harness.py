"""The tools of the kazoo checks: a table of checks, clients that are closed at the end, and waits
with a limit."""

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

SOON = 30.0  # seconds: the longest wait for an answer or event, even on a busy machine
SHORT = 0.3  # seconds: a wait that must end without a result
SESSION = 15.0  # seconds: a session timeout that does not matter in most checks
CHECKS = []


class Failed(AssertionError):
    """A check has failed."""


def check(function):
    """Adds a check to the table."""
    CHECKS.append(function)
    return function


def equal(seen, due, what=""):
    if seen != due:
        raise Failed("%s: %r instead of %r" % (what or "compared", seen, due))


def true(condition, what):
    if not condition:
        raise Failed(what)


def raises(kind, function, *arguments, **named):
    """Returns the exception, which must be of exactly this kind, so that no codes are confused."""
    try:
        result = function(*arguments, **named)
    except Exception as error:
        if type(error) is kind:
            return error
        raise Failed("%r instead of %s" % (error, kind.__name__)) from error
    raise Failed("%r instead of %s" % (result, kind.__name__))


def until(what, condition, seconds=SOON):
    """Repeats the call until its result is true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise Failed("not within %g s: %s" % (seconds, what))
        time.sleep(0.01)


class Seen(queue.Queue):
    """The values that came, in order: events, states and so on."""

    def next(self, what="something to come"):
        try:
            return self.get(timeout=SOON)
        except queue.Empty:
            raise Failed("not within %g s: %s" % (SOON, what)) from None

    def skip_to(self, due):
        """Takes all values up to `due`."""
        while self.next("%r to come" % (due,)) != due:
            pass

    def all(self):
        return [self.get() for _ in range(self.qsize())]


class Task(threading.Thread):
    """A thread of a check. If it fails, the check fails."""

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
    """A section for one thread: notices a second one, and has a counter that is exact only under a
    lock."""

    def __init__(self):
        self._taken = threading.Lock()
        self.count = 0

    def __enter__(self):
        true(self._taken.acquire(blocking=False), "two threads are inside at once")
        self._before = self.count
        time.sleep(0)  # lets another thread enter, if the lock does
        return self

    def __exit__(self, *_):
        self.count = self._before + 1
        self._taken.release()


class Gauge:
    """The number of threads inside, and its maximum."""

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
    """A logger without kazoo's warnings: some checks drop connections on purpose."""
    logger = logging.Logger("kazoo", logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    return logger


class Scene:
    """A check's own node and its clients. All of them end with the check."""

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
    """Returns when every event that the server has sent so far is handled: events come before later
    replies, and handlers run in order."""
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
    """Ends the client's session by another connection, which takes it over and closes it. The
    client does not know it."""
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
        return True  # the session has ended already
    equal(answered, session, "the session that was taken over")
    # Without a second reply, the client was faster and has taken the session back.
    return len(said) > 4 + struct.unpack_from("!i", said)[0]


def main(arguments):
    if not arguments:
        usage = "usage: kazoo_checks HOST:PORT [NAME..]   all checks, or those whose name has a NAME"
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
    """Removes `top`. The recipes must have removed their own nodes, so nothing is left below it."""
    client = KazooClient(hosts=hosts, timeout=SESSION, logger=quiet_logger())
    client.start(timeout=SOON)
    left = client.get_children(top)
    client.delete(top)
    client.stop()
    client.close()
    if left:
        print("FAIL kazoo: left behind under %s: %s" % (top, left), flush=True)
    return 1 if left else 0
