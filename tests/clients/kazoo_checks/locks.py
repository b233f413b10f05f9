"""kazoo's Lock, ReadLock and WriteLock, unchanged."""

import threading

from kazoo import exceptions as errors
from kazoo.protocol.states import KazooState

from harness import (
    SHORT,
    Section,
    Seen,
    Task,
    check,
    cut,
    cut_and_await,
    equal,
    expire,
    raises,
    states_of,
    true,
    until,
)


def contend(locks, rounds, section):
    """Each lock passes through the section so often, in a thread of its own."""

    def go(lock):
        for _ in range(rounds):
            with lock, section:
                pass

    for task in [Task(go, lock) for lock in locks]:
        task.result()


def in_line(scene, clients, path, make):
    """Each client waits for a lock of its own, in that order. Returns (client, lock, task) of each,
    and the order in which they get it."""
    order, line = Seen(), []
    for i, client in enumerate(clients):
        lock = make(client, path, "waiter %d" % i)

        def wait(lock=lock, i=i):
            with lock:
                order.put(i)

        before = len(scene.zk.get_children(path))
        line.append((client, lock, Task(wait)))
        until("%d waits" % i, lambda: len(scene.zk.get_children(path)) == before + 1)
    return line, order


def lock_of(client, path, name):
    return client.Lock(path, name)


@check
def lock_counts_exactly_under_contention(scene):
    section, path = Section(), scene.at("lock")
    locks = [client.Lock(path) for client in scene.clients(3) for _ in range(3)]
    contend(locks, 10, section)
    equal(section.count, 90, "the counter")
    equal(scene.zk.get_children(path), [], "nodes left")


@check
def lock_counts_exactly_while_connections_drop(scene):
    section, path, clients = Section(), scene.at("lock"), scene.clients(3)
    done, cuts = threading.Event(), [0]

    def drop():
        while cuts[0] < 15 and not done.wait(0.02):
            client = clients[cuts[0] % 3]
            if client.connected:
                cut_of(client)
                cuts[0] += 1

    def cut_of(client):
        try:
            cut(client)
        except OSError:
            pass  # it has just been closed

    def go(lock):
        for _ in range(6):
            with lock, section:
                pass

    dropping = Task(drop)
    tasks = [Task(go, client.Lock(path)) for client in clients for _ in range(2)]
    try:
        for task in tasks:
            task.result()
    finally:
        done.set()
    dropping.result()
    equal(section.count, 36, "the counter")
    true(cuts[0] >= 3, "only %d connections dropped" % cuts[0])
    until("its nodes are deleted", lambda: not scene.zk.get_children(path))


@check
def lock_serves_who_came_first(scene):
    path, holder = scene.at("lock"), scene.zk.Lock(scene.at("lock"), "holder")
    true(holder.acquire(), "a free lock was not granted")
    line, order = in_line(scene, scene.clients(4), path, lock_of)
    equal(holder.contenders(), ["holder"] + ["waiter %d" % i for i in range(4)])
    equal(order.all(), [], "a waiter got it while it was held")
    holder.release()
    for _, _, task in line:
        task.result()
    equal(order.all(), [0, 1, 2, 3])
    equal(holder.contenders(), [])


@check
def lock_waiters_time_out_are_cancelled_and_do_not_block_others(scene):
    path, holder = scene.at("lock"), scene.zk.Lock(scene.at("lock"), "holder")
    holder.acquire()
    timed, cancelled, last = [
        scene.client().Lock(path, name) for name in ("timed", "cancelled", "last")
    ]
    true(not timed.acquire(blocking=False), "a held lock was granted")
    raises(errors.LockTimeout, timed.acquire, timeout=SHORT)
    equal(holder.contenders(), ["holder"], "a waiter that gave up has no node")
    waits = Task(cancelled.acquire)
    until("it waits", lambda: len(holder.contenders()) == 2)
    follows = Task(last.acquire)
    until("another waits", lambda: holder.contenders() == ["holder", "cancelled", "last"])
    cancelled.cancel()
    raises(errors.CancelledError, waits.result)
    equal(holder.contenders(), ["holder", "last"])
    true(follows.is_alive(), "a held lock was granted")
    holder.release()
    equal(follows.result(), True)
    last.release()


@check
def lock_passes_on_when_its_holder_is_gone(scene):
    path, (closes, expires) = scene.at("lock"), scene.clients(2)
    closes.Lock(path, "closes").acquire()
    second, last = expires.Lock(path, "expires"), scene.zk.Lock(path, "last")
    waits = Task(second.acquire)
    until("it waits", lambda: last.contenders() == ["closes", "expires"])
    waits_too = Task(last.acquire)
    until("the last waits", lambda: last.contenders() == ["closes", "expires", "last"])
    closes.stop()
    equal(waits.result(), True)
    states = states_of(expires)
    expire(expires)
    states.skip_to(KazooState.LOST)
    equal(waits_too.result(), True)
    equal(last.contenders(), ["last"])
    last.release()


@check
def lock_is_kept_and_awaited_over_dropped_connections(scene):
    path, (one, two) = scene.at("lock"), scene.clients(2)
    holder, waiter = one.Lock(path, "holder"), two.Lock(path, "waiter")
    holder.acquire()
    waits = Task(waiter.acquire)
    until("it waits", lambda: waiter.contenders() == ["holder", "waiter"])
    for client in (one, two, one):
        cut_and_await(client)
    equal(scene.zk.Lock(path).contenders(), ["holder", "waiter"])
    true(waits.is_alive(), "a held lock was granted")
    holder.release()
    equal(waits.result(), True)
    waiter.release()


@check
def readers_share_and_a_writer_is_alone(scene):
    path, clients = scene.at("lock"), scene.clients(3)
    meet = threading.Barrier(3)

    def read(client):
        with client.ReadLock(path, "reader"):
            meet.wait(10)  # passes only if all three are inside

    for task in [Task(read, client) for client in clients]:
        task.result()

    reader, writer, late = (
        clients[0].ReadLock(path, "r"),
        clients[1].WriteLock(path, "w"),
        clients[2].ReadLock(path, "l"),
    )
    reader.acquire()
    raises(errors.LockTimeout, writer.acquire, timeout=SHORT)
    waits = Task(writer.acquire)
    until("the writer waits", lambda: writer.contenders() == ["r", "w"])
    raises(
        errors.LockTimeout, late.acquire, timeout=SHORT
    )  # a reader behind a waiting writer waits
    true(waits.is_alive(), "a writer entered beside a reader")
    reader.release()
    equal(waits.result(), True)
    raises(errors.LockTimeout, reader.acquire, timeout=SHORT)
    raises(errors.LockTimeout, clients[2].WriteLock(path).acquire, timeout=SHORT)
    follows = Task(late.acquire)
    until("the reader waits", lambda: writer.contenders() == ["w", "l"])
    writer.release()
    equal(follows.result(), True)
    late.release()


@check
def readers_never_see_what_a_writer_does(scene):
    path, pair, section = scene.at("lock"), [0, 0], Section()

    def write(client):
        for _ in range(8):
            with client.WriteLock(path), section:
                pair[0] += 1
                threading.Event().wait(0.002)
                pair[1] += 1

    def read(client):
        for _ in range(12):
            with client.ReadLock(path):
                first = pair[0]
                threading.Event().wait(0.001)
                equal(pair, [first, first], "seen by a reader")

    clients = scene.clients(3)
    for task in [Task(write, c) for c in clients[:2]] + [
        Task(read, c) for c in clients for _ in range(2)
    ]:
        task.result()
    equal((pair, section.count), ([16, 16], 16))
