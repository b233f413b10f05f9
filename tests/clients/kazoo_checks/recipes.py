"""kazoo's other recipes, unchanged: semaphore, election, and the smaller ones."""

import datetime
import threading

from kazoo import exceptions as errors
from kazoo.recipe.cache import TreeCache, TreeEvent

from harness import (
    SHORT,
    Gauge,
    Section,
    Seen,
    Task,
    check,
    cut_and_await,
    equal,
    raises,
    true,
    until,
)


@check
def semaphore_never_gives_more_leases_than_it_has(scene):
    path, clients, meet = scene.at("semaphore"), scene.clients(3), threading.Barrier(3)

    def semaphore(client, name=None):
        return client.Semaphore(path, name, max_leases=3)

    def meet_inside(client):
        with semaphore(client, "meets"):
            meet.wait(10)  # all three leases can be held at once

    for task in [Task(meet_inside, client) for client in clients]:
        task.result()

    held = [semaphore(client, "holder %d" % i) for i, client in enumerate(clients)]
    for one in held:
        true(one.acquire(), "a free lease was not granted")
    equal(sorted(held[0].lease_holders()), ["holder 0", "holder 1", "holder 2"])
    fourth = semaphore(scene.zk, "fourth")
    equal(fourth.acquire(blocking=False), False)
    raises(errors.LockTimeout, fourth.acquire, timeout=SHORT)
    waits = Task(fourth.acquire)
    until("it waits", lambda: scene.zk.get_children(path + "-__lock__"))
    clients[0].stop()  # the lease ends with the session
    equal(waits.result(), True)
    equal(sorted(fourth.lease_holders()), ["fourth", "holder 1", "holder 2"])
    for one in (*held[1:], fourth):
        one.release()
    raises(ValueError, clients[1].Semaphore(path, max_leases=4).acquire)

    gauge = Gauge()

    def go(client):
        for _ in range(5):
            with semaphore(client), gauge:
                threading.Event().wait(0.002)

    for task in [Task(go, client) for client in clients[1:] for _ in range(4)]:
        task.result()
    true(gauge.most <= 3, "%d threads held a lease at once" % gauge.most)
    equal(gauge.total, 40, "leases given")
    equal(held[1].lease_holders(), [])


@check
def election_has_one_leader_at_a_time(scene):
    path, names, leaders, section = scene.at("election"), "abcd", Seen(), Section()
    clients, steps_down = (
        dict(zip(names, scene.clients(4))),
        {name: threading.Event() for name in names},
    )
    elections = {name: clients[name].Election(path, name) for name in names}

    def lead(name):
        leaders.put(name)
        steps_down[name].wait(60)

    def lead_alone(name):
        with section:
            lead(name)

    tasks = {}
    for i, name in enumerate(names):
        # The second will lose its leadership without noticing it.
        tasks[name] = Task(elections[name].run, lead if name == "b" else lead_alone, name)
        until(
            "%s stands" % name, lambda: scene.zk.Election(path).contenders() == list(names[: i + 1])
        )
    equal(leaders.next(), "a")
    steps_down["a"].set()
    equal(leaders.next(), "b")
    elections["c"].cancel()
    tasks["c"].result()
    equal(elections["d"].contenders(), ["b", "d"])
    clients["b"].stop()
    equal(leaders.next(), "d")
    steps_down["b"].set()
    raises(errors.ConnectionClosedError, tasks["b"].result)
    steps_down["d"].set()
    for name in "ad":
        tasks[name].result()
    equal((section.count, leaders.all(), elections["a"].contenders()), (2, [], []))


@check
def counter_adds_up(scene):
    path, clients = scene.at("counter"), scene.clients(3)

    def add(client):
        counter = client.Counter(path)
        for _ in range(15):
            counter += 2
            counter -= 1

    for task in [Task(add, client) for client in clients]:
        task.result()
    equal(scene.zk.Counter(path).value, 45)
    curator = scene.zk.Counter(scene.at("curator"), support_curator=True)
    curator += 258
    equal(scene.zk.get(scene.at("curator"))[0], b"\0\0\1\2")


@check
def parties_know_their_members(scene):
    one, two = scene.clients(2)
    for kind in ("Party", "ShallowParty"):
        path = scene.at(kind)
        first, second = getattr(one, kind)(path, "one"), getattr(two, kind)(path, "two")
        first.join()
        second.join()
        equal((sorted(first), len(second)), (["one", "two"], 2))
        first.leave()
        equal(list(second), ["two"])
    two.stop()
    equal(
        (len(one.Party(scene.at("Party"))), len(one.ShallowParty(scene.at("ShallowParty")))), (0, 0)
    )


@check
def leases_are_for_one_or_for_so_many(scene):
    hour = datetime.timedelta(hours=1)

    def lease(name):
        return bool(scene.zk.NonBlockingLease(scene.at("lease"), hour, identifier=name))

    equal([lease("one"), lease("two"), lease("one")], [True, False, True])

    def leases(name):
        return bool(scene.zk.MultiNonBlockingLease(2, scene.at("leases"), hour, identifier=name))

    equal([leases("one"), leases("two"), leases("three")], [True, True, False])


@check
def barriers_hold_and_let_go(scene):
    one, two = scene.clients(2)
    barrier = one.Barrier(scene.at("barrier"))
    equal(barrier.wait(SHORT), True, "a barrier that does not exist")
    barrier.create()
    equal(two.Barrier(scene.at("barrier")).wait(SHORT), False)
    waits = Task(scene.zk.Barrier(scene.at("barrier")).wait)
    until("it watches", lambda: scene.zk._data_watchers.get(scene.at("barrier")))
    equal(barrier.remove(), True)
    equal((waits.result(), barrier.remove()), (True, False))

    path = scene.at("double")
    both = [client.DoubleBarrier(path, 2, name) for client, name in ((one, "one"), (two, "two"))]
    first = Task(both[0].enter)
    until(
        "the first has come",
        lambda: len(scene.zk.get_children(path)) == 1 if scene.zk.exists(path) else False,
    )
    true(first.is_alive(), "entered alone")
    both[1].enter()
    first.result()
    equal([b.participating for b in both], [True, True])
    leaves = Task(both[0].leave)
    until("the first wants to leave", lambda: not scene.zk.exists(path + "/ready"))
    true(leaves.is_alive(), "left alone")
    both[1].leave()
    leaves.result()
    equal(scene.zk.get_children(path), [])


@check
def queues_give_each_entry_once(scene):
    queues = [client.Queue(scene.at("queue")) for client in scene.clients(2)]
    for i in range(10):
        queues[i % 2].put(b"%d" % i)
    queues[0].put(b"first", priority=1)
    equal((len(queues[1]), queues[1].get(), queues[0].get()), (11, b"first", b"0"))
    got = [Task(lambda q=q: list(iter(q.get, None))) for q in queues]
    equal(
        sorted(entry for task in got for entry in task.result()), [b"%d" % i for i in range(1, 10)]
    )

    leaving, staying = scene.clients(2)
    path = scene.at("locking")
    one, two = leaving.LockingQueue(path), staying.LockingQueue(path)
    one.put_all([b"a", b"b"])
    equal((one.get(), two.get(), len(two)), (b"a", b"b", 2))
    equal((one.holds_lock(), two.consume(), two.get(timeout=SHORT)), (True, True, None))
    waits = Task(two.get, 30)
    leaving.stop()  # a consumer dies: its entry must be available again
    equal((waits.result(), two.consume(), len(two)), (b"a", True, 0))


@check
def tree_cache_mirrors_a_tree(scene):
    zk, path, events = scene.client(), scene.at("tree"), Seen()
    cache = TreeCache(zk, path)
    cache.listen(
        lambda event: events.put((event.event_type, event.event_data and event.event_data.path))
    )
    scene.zk.create(path + "/a/b", b"b", makepath=True)
    cache.start()
    events.skip_to((TreeEvent.INITIALIZED, None))
    equal((cache.get_data(path + "/a/b").data, cache.get_children(path)), (b"b", {"a"}))
    scene.zk.create(path + "/c", b"c")
    equal(events.next(), (TreeEvent.NODE_ADDED, path + "/c"))
    scene.zk.set(path + "/a/b", b"new")
    equal(events.next(), (TreeEvent.NODE_UPDATED, path + "/a/b"))
    scene.zk.delete(path + "/c")
    equal(events.next(), (TreeEvent.NODE_REMOVED, path + "/c"))
    equal((cache.get_data(path + "/a/b").data, cache.get_data(path + "/c")), (b"new", None))
    cut_and_await(zk)
    events.skip_to((TreeEvent.CONNECTION_RECONNECTED, None))
    scene.zk.set(path + "/a", b"after")
    events.skip_to((TreeEvent.NODE_UPDATED, path + "/a"))
    equal(cache.get_data(path + "/a").data, b"after")
    cache.close()
