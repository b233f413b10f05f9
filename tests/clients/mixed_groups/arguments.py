"""The arguments of the groups: [--broken] HOST:PORT [GROUP..]. Needs no kazoo, so that
tests/clients/mixed can check them before anything is built."""

import os
import re
import sys

from groups import GROUPS

SECTIONS = 1200  # the default for a group, all members together
KNOWN = {group.name: group for group in GROUPS}


def refuse(why):
    """Ends the process with exit code 2: the arguments are wrong."""
    print("mixed: %s" % why, file=sys.stderr)
    sys.exit(2)


def sections():
    text = os.environ.get("SECTIONS") or str(SECTIONS)
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) == 0:
        refuse("SECTIONS=%s is not a number of sections" % text)
    return int(text)


def parse(words):
    """Whether to add members without a lock, the server, and the groups."""
    broken = "--broken" in words
    words = [word for word in words if word != "--broken"]
    server = words[0] if words else ""
    address = re.fullmatch(r"[^\s,/]+:([0-9]{1,5})", server)
    if not address or not 0 < int(address[1]) < 65536:
        refuse("where is the server? %r is not HOST:PORT" % server)
    for name in words[1:]:
        if name not in KNOWN:
            refuse("there is no group %s; there are %s" % (name, ", ".join(KNOWN)))
    sections()
    return broken, server, [KNOWN[name] for name in words[1:] or KNOWN]


if __name__ == "__main__":
    parse(sys.argv[1:])
