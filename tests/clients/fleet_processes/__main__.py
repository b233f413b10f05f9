"""Runs the fleet: fleet_processes HOST:PORT WAITERS; tests/clients/fleet says more."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from processes import LIBRARIES, SOON, Failed, Fleet, until
from shown import Wrong, check_json, check_text, check_the_checks, watchers


def four_letter_word(server, word):
    """The answer to a four-letter word; None if the server does not allow it."""
    host, port = server.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), 10) as link:
        link.sendall(word.encode())
        answer = b""
        while part := link.recv(1 << 16):
            answer += part
    return None if b"is not executed because" in answer else answer.decode()


def zk_lock(server, *words):
    """Runs `zk-lock`, and returns what it prints and the seconds that it took."""
    begin = time.monotonic()
    environment = dict(os.environ, ZK_CONNECT=server)
    command = [os.environ["ZK_LOCK"], *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON)
    if done.returncode != 0:
        raise Failed("%s ended with %d\n%s" % (" ".join(words), done.returncode, done.stderr))
    return done.stdout, time.monotonic() - begin


def nodes_at_server(zk, path):
    """The part of each contender's description that the server alone decides, in the order in which
    the server made their nodes."""
    found = []
    for node in zk.get_children(path):
        try:
            _, stat = zk.get(path + "/" + node)
        except NoNodeError:
            continue
        shown = {
            "node": node,
            "path": path + "/" + node,
            "kind": "mutex",
            "sequence": int(node[-10:]),
            "session": "0x%x" % stat.ephemeralOwner,
            "persistent": False,
            "asked_to_let_go": False,
            "created_ms": stat.ctime,
            "czxid": "0x%x" % stat.czxid,
        }
        found.append((stat.czxid, shown))
    return [shown for _, shown in sorted(found, key=lambda pair: pair[0])]


def expected(zk, fleet):
    """The right description of each contender, in the order of the queue. The server has the node
    and the id of its session. The process that printed this id has client, host and process id."""
    by_session = {process.session(): process for process in fleet.processes}
    nodes = nodes_at_server(zk, fleet.path)
    if sorted(by_session) != sorted(node["session"] for node in nodes):
        raise Failed("the processes' sessions are not those of the nodes")
    processes = [by_session[node["session"]] for node in nodes]
    if processes[0] is not fleet.processes[0]:
        raise Failed("%s is the first of the queue" % processes[0].name)
    others = [process.name for process in processes[1:] if process.has_lock()]
    if others:
        raise Failed("beside the holder, %s have the lock" % ", ".join(others))
    clients = [dict(node, client=process.CLIENT) for node, process in zip(nodes, processes)]
    watched = watchers(clients) if four_letter_word(fleet.server, "wchp") is not None else None
    tells_addresses = four_letter_word(fleet.server, "cons") is not None
    port = int(fleet.server.rsplit(":", 1)[1])
    return [
        {
            "process": process.name,
            "shown": {**node, **process.shown(), "holds": place == 0},
            "watchers": watched and sorted(watched[node["node"]]),
            "ports": process.ports(port) if tells_addresses else None,
        }
        for place, (node, process) in enumerate(zip(nodes, processes))
    ]


def has_all_watches(server, right):
    """Whether all watches are set. A process makes its node first and watches another node then."""
    answer = four_letter_word(server, "wchp")
    if answer is None:
        return True
    found, path = {}, ""
    for line in answer.splitlines():
        if line.startswith("\t"):
            found.setdefault(path, []).append(line.strip())
        else:
            path = line
    return all(
        sorted(found.get(contender["shown"]["path"], [])) == contender["watchers"]
        for contender in right
    )


def run(zk, server, waiters):
    """One line of figures."""
    mark = uuid.uuid4().hex
    folder = "/fleet-" + mark
    path = folder + "/lock"
    zk.ensure_path(path)
    try:
        with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
            with Fleet(server, path, mark, directory) as fleet:
                begin = time.monotonic()
                fleet.start(waiters, lambda: len(zk.get_children(path)))
                right = expected(zk, fleet)
                until("each process watches", lambda: has_all_watches(server, right))
                started = time.monotonic()
                text, took = zk_lock(server, "--json", "show", path)
                check_json(text, path, right)
                check_text(zk_lock(server, "show", path)[0], path, right)
                check_the_checks(text, path, right)
                fleet.all_run()
                shown = time.monotonic()
                slow = fleet.end()
                if slow:
                    raise Failed("SIGTERM did not end %s" % ", ".join(slow))
                until("no node is left", lambda: not zk.get_children(path))
                until("no process is left", lambda: not fleet.left())
                ended = time.monotonic()
    finally:
        zk.delete(folder, recursive=True)
    processes = [process.CLIENT for process in fleet.processes]
    count = ["%d %s" % (processes.count(kind.CLIENT), kind.CLIENT) for kind in LIBRARIES]
    checked = "order, holder, node, session, client, host, process id"
    checked += ", watches" if right[0]["watchers"] is not None else " (not watches: no wchp)"
    checked += ", address" if right[0]["ports"] is not None else " (not address: no cons)"
    return (
        "1 process holds and %d wait (%s); show is right about each: %s; %.1f s to start, %.2f s "
        "for show, %.1f s until no process and no node is left"
        % (waiters, ", ".join(count), checked, started - begin, took, ended - shown)
    )


def main(server, waiters):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every `with`
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)  # of each try to connect it would warn
    zk = KazooClient(hosts=server, timeout=30.0, logger=logger)
    try:
        zk.start(timeout=30.0)
    except KazooTimeoutError:
        sys.exit("fleet: no ZooKeeper answers at %s" % server)
    try:
        print("ok   fleet: %s" % run(zk, server, waiters), flush=True)
        return 0
    except (Failed, Wrong, TimeoutError) as what:
        print("FAIL fleet: %s" % what, flush=True)
        return 1
    finally:
        zk.stop()
        zk.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
