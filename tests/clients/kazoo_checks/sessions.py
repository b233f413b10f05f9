"""kazoo's sessions and watches, also under faults. (kazoo has no persistent watches.)"""

import logging

from kazoo.loggingsupport import BLATHER
from kazoo.protocol.states import EventType, KazooState, KeeperState

from harness import Seen, check, cut_and_await, equal, expire, settle, states_of, true


class Granted(logging.Handler):
    """The session timeouts that the server granted, in milliseconds. kazoo only logs them."""

    def __init__(self):
        super().__init__(BLATHER)
        self.timeouts = []

    def emit(self, record):
        if record.msg.startswith("Session created"):
            self.timeouts.append(record.args[2])


@check
def connects_and_gets_a_session_of_its_own(scene):
    others = scene.clients(3)
    ids = [client.client_id for client in [scene.zk, *others]]
    for client, (session, password) in zip([scene.zk, *others], ids):
        equal((client.state, client.client_state), (KazooState.CONNECTED, KeeperState.CONNECTED))
        true(
            session > 0 and len(password) == 16 and any(password),
            "the session is %r" % ((session, password),),
        )
    equal(len({session for session, _ in ids}), 4, "different sessions")
    equal(len({password for _, password in ids}), 4, "different passwords")


@check
def is_granted_the_timeout_asked_for_within_the_limits(scene):
    def granted(timeout):
        log, logger = Granted(), logging.Logger("kazoo", BLATHER)
        logger.addHandler(log)
        scene.client(timeout=timeout, logger=logger)
        return log.timeouts[-1]

    equal(granted(10.0), 10_000, "granted")
    short, long = granted(0.05), granted(1_000_000.0)
    true(50 < short < 10_000, "50 ms asked, %d granted" % short)
    true(10_000 < long < 1_000_000_000, "1,000,000 s asked, %d ms granted" % long)


@check
def answers_a_four_letter_word(scene):
    said = scene.zk.command(b"srvr")
    true(
        said.startswith("Zookeeper version: 3.") and "\nMode: standalone" in said,
        "srvr says %r" % said,
    )


@check
def is_sent_each_watch_once_and_before_the_answer(scene):
    zk, other, path, seen = scene.zk, scene.client(), scene.at("node"), Seen()

    def came():
        settle(zk)
        return [(event.type, event.path) for event in seen.all()]

    equal(zk.exists(path, watch=seen.put), None)
    other.create(path)
    other.set(path, b"1")
    equal(came(), [(EventType.CREATED, path)])
    zk.get(path, watch=seen.put)
    other.set(path, b"2")
    other.set(path, b"3")
    equal(came(), [(EventType.CHANGED, path)])
    zk.exists(path, watch=seen.put)
    zk.get_children(path, watch=seen.put)
    other.create(path + "/child")
    equal(came(), [(EventType.CHILD, path)])
    other.set(path, b"4")
    equal(came(), [(EventType.CHANGED, path)])
    zk.get_children(path, watch=seen.put)
    other.set(path + "/child", b"no news for the parent")
    equal(came(), [])
    other.delete(path + "/child")
    equal(came(), [(EventType.CHILD, path)])
    zk.get(path, watch=seen.put)
    other.delete(path)
    other.create(path)
    equal(came(), [(EventType.DELETED, path)])
    # The watcher itself gets its event before the answer to its own write.
    zk.get(path, watch=seen.put)
    zk.set(path, b"5")
    equal(came(), [(EventType.CHANGED, path)])


@check
def data_watch_and_children_watch_follow_a_node(scene):
    zk, other, path, data, children = scene.zk, scene.client(), scene.at("node"), Seen(), Seen()
    zk.DataWatch(
        path,
        lambda value, stat, event: data.put((value, stat and stat.version, event and event.type)),
    )
    equal(data.next(), (None, None, None))
    other.create(path, b"a")
    equal(data.next(), (b"a", 0, EventType.CREATED))
    zk.ChildrenWatch(path, lambda names: children.put(sorted(names)))
    equal(children.next(), [])
    for i in range(1, 6):
        other.set(path, b"%d" % i)
        equal(data.next(), (b"%d" % i, i, EventType.CHANGED))
        other.create("%s/%d" % (path, i))
        equal(children.next(), [str(n) for n in range(1, i + 1)])
    other.delete(path + "/3")
    equal(children.next(), ["1", "2", "4", "5"])
    other.delete(path, recursive=True)
    data.skip_to((None, None, EventType.DELETED))


@check
def keeps_its_session_over_a_dropped_connection(scene):
    zk, other, path, data, children, once = (
        scene.zk,
        scene.client(),
        scene.at("node"),
        Seen(),
        Seen(),
        Seen(),
    )
    zk.create(path, b"0", ephemeral=True)
    owner = zk.client_id[0]
    zk.DataWatch(path, lambda value, stat: data.put(value))
    zk.ChildrenWatch(scene.path, lambda names: children.put(sorted(names)))
    equal((data.next(), children.next()), (b"0", ["node"]))
    for i in range(1, 4):
        zk.get(path, watch=once.put)
        cut_and_await(zk)
        equal(once.next().type, EventType.NONE, "kazoo's report to a watch that it drops")
        equal(other.exists(path).ephemeralOwner, owner)
        # kazoo sets its watches again by itself, at some time after the reconnect.
        other.set(path, b"%d" % i)
        data.skip_to(b"%d" % i)
        other.create(scene.at(str(i)))
        children.skip_to([str(n) for n in range(1, i + 1)] + ["node"])
    settle(zk)
    equal(once.all(), [], "events of dropped watches")


@check
def gets_a_new_session_when_the_old_one_has_expired(scene):
    zk, other, path, data, gone = scene.client(), scene.zk, scene.at("node"), Seen(), Seen()
    old, states = zk.client_id, states_of(zk)
    other.create(path, b"0")
    zk.create(path + "/mine", ephemeral=True)
    other.exists(path + "/mine", watch=gone.put)
    zk.DataWatch(path, lambda value, stat: data.put(value))
    equal(data.next(), b"0")
    expire(zk)
    states.skip_to(KazooState.LOST)
    states.skip_to(KazooState.CONNECTED)
    true(zk.client_id != old, "the session is still %r" % (old,))
    equal(gone.next().type, EventType.DELETED)
    equal(zk.get_children(path), [])
    other.set(path, b"1")
    data.skip_to(b"1")
    true(scene.client(client_id=old).client_id != old, "an expired session was resumed")


@check
def takes_its_ephemerals_along_when_it_closes(scene):
    leaving, path, gone = scene.client(), scene.at("mine"), Seen()
    leaving.create(path, ephemeral=True)
    leaving.create(scene.at("stays"))
    scene.zk.exists(path, watch=gone.put)
    scene.zk.get_children(scene.path, watch=gone.put)
    leaving.stop()
    settle(scene.zk)
    came = [(event.type, event.path) for event in gone.all()]
    equal(came, [(EventType.DELETED, path), (EventType.CHILD, scene.path)])
    equal(scene.zk.get_children(scene.path), ["stays"])
