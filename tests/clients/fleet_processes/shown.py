"""Compares the answers of `zk-lock show` with those of the server and of the processes."""

import copy
import json
import re


class Wrong(Exception):
    """An answer of `zk-lock show` is not true."""


def _compare(what, shown, right):
    if shown != right:
        raise Wrong("%s: %r is shown, and %r is right" % (what, shown, right))


def order_for_curator(name):
    """The text by which Curator sorts the nodes of a mutex: behind the last "lock-", which names of
    kazoo do not have."""
    return name.rsplit("lock-", 1)[-1]


def watchers(contenders):
    """The sessions that watch each contender's node. Each waiter watches the node ahead of its own;
    zk-mutex watches also its own node. Curator sees names of kazoo behind all of its own."""
    watched = {contender["node"]: set() for contender in contenders}
    for place, contender in enumerate(contenders):
        ahead = contenders[:place]
        if contender["client"] == "zk-mutex":
            watched[contender["node"]].add(contender["session"])
        if contender["client"] == "Curator":
            own = order_for_curator(contender["node"])
            ahead = [other for other in ahead if order_for_curator(other["node"]) < own]
            ahead.sort(key=lambda other: order_for_curator(other["node"]))
        if ahead:
            watched[ahead[-1]["node"]].add(contender["session"])
    return watched


def check_json(text, path, right):
    """Checks the answer of `zk-lock --json show PATH`. `right` has the right description of each
    contender, in the order of the queue. Watchers and ports are None if the server does not list
    them."""
    shown = json.loads(text)
    for key, value in {
        "path": path,
        "kind": "mutex",
        "permits": None,
        "holding": 1,
        "waiting": len(right) - 1,
    }.items():
        _compare(key, shown[key], value)
    _compare("number of contenders", len(shown["contenders"]), len(right))
    for place, (contender, one) in enumerate(zip(shown["contenders"], right)):
        what = "contender %d of %d (%s)" % (place + 1, len(right), one["process"])
        for key in one["shown"]:
            _compare("%s, %s" % (what, key), contender[key], one["shown"][key])
        if one["watchers"] is not None:
            _compare(what + ", watched_by", sorted(contender["watched_by"]), one["watchers"])
        if one["ports"] is not None:
            _, _, port = (contender["address"] or "").rpartition(":")
            if port not in map(str, one["ports"]):
                raise Wrong(
                    "%s: its address is %r, and its local ports are %r"
                    % (what, contender["address"], one["ports"])
                )
    return shown


HEADS = ["KIND", "CLIENT", "HOST:PID OR DATA", "ADDRESS", "SESSION", "AGE", "WATCHED BY", "NODE"]


def check_text(text, path, right):
    """Checks the table of `zk-lock show PATH`: a title, the heads, a line for each contender."""
    title, heads, *lines = text.splitlines()
    _compare("title", title, "%s: mutex, 1 holds it, %d wait" % (path, len(right) - 1))
    _compare("heads", re.split("  +", heads.strip()), HEADS)
    _compare("number of lines", len(lines), len(right))
    for place, (line, one) in enumerate(zip(lines, right)):
        cells = re.split("  +", line)
        what, shown = "line %d (%s)" % (place + 1, one["process"]), one["shown"]
        for column, value in {
            0: "holds" if shown["holds"] else "waits",
            1: shown["kind"],
            2: shown["client"],
            3: shown["data"] or "-",
            5: shown["session"],
            8: shown["node"],
        }.items():
            _compare("%s, column %d" % (what, column), cells[column], value)


def check_the_checks(text, path, right):
    """Spoils a right answer in one place after the other; `check_json` must notice each."""

    def swap(contenders):
        contenders[-1], contenders[-2] = contenders[-2], contenders[-1]

    def other(key, value):
        return lambda contenders: contenders[-1].update({key: value})

    for spoil in (
        swap,
        lambda contenders: contenders.pop(),
        other("client", "unknown"),
        other("host", "another"),
        other("pid", 1),
        other("session", "0x1"),
        other("holds", True),
        other("node", "another"),
    ):
        shown = copy.deepcopy(json.loads(text))
        spoil(shown["contenders"])
        try:
            check_json(json.dumps(shown), path, right)
        except Wrong:
            continue
        raise AssertionError("a spoiled answer was taken for right")
