"""Checks that kazoo authenticates by SASL DIGEST-MD5: kazoo_sasl.py HOST:PORT USER PASSWORD. The
exit code is 1 at the first failure."""

import logging
import os
import sys
import traceback
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "kazoo_checks"))

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, NoAuthError
from kazoo.security import make_acl

from harness import SOON, Failed, cut_and_await, equal, raises


class Client(KazooClient):
    """Remembers its states: `start` may look only when a refused client has closed itself."""

    def __init__(self, hosts, **options):
        self.seen = []
        super().__init__(hosts, **options)

    def _session_callback(self, state):
        self.seen.append(state)
        super()._session_callback(state)


def client(server, user=None, password=None):
    """A client that is not started yet; without a user it does not use SASL."""
    options = None
    if user is not None:
        options = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    logger = logging.Logger("kazoo", logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    return Client(server, timeout=10.0, sasl_options=options, logger=logger)


def main(server, user, password):
    path = "/kazoo-sasl-%s" % uuid.uuid4()
    own = client(server, user, password)
    own.start(SOON)
    acl = make_acl("sasl", user, all=True)
    own.create(path, b"for the user alone", acl=[acl])
    equal(own.get_acls(path)[0], [acl], "the ACL of %s" % path)
    print("ok   kazoo authenticates as %s" % user)

    other = client(server)
    other.start(SOON)
    raises(NoAuthError, other.get, path)
    other.stop()
    print("ok   kazoo without SASL is refused at the node of %s" % user)

    cut_and_await(own)
    equal(own.get(path)[0], b"for the user alone", "the data after a new connection")
    print("ok   kazoo authenticates again on a new connection")
    # Of an unknown user, 3.8.0 accepts the password of the last user that it has authenticated.
    for name in [user, "nobody-" + user]:
        refuses(client(server, name, password + "x"), path)
    print("ok   kazoo is refused with a wrong password, and with an unknown user")
    own.delete(path)
    own.stop()


def refuses(stranger, path):
    """The client is refused. Soon afterwards it is closed, and then it has another error."""
    try:
        stranger.start(SOON)
        stranger.get(path)
    except (AuthFailedError, ConnectionClosedError):
        return
    except KazooTimeoutError:
        if KeeperState.AUTH_FAILED in stranger.seen:
            return
        raise
    finally:
        stranger.stop()
    raise Failed("a client with a wrong password reads %s" % path)


if __name__ == "__main__":
    code = 1
    try:
        if len(sys.argv) == 4:
            main(*sys.argv[1:])
            code = 0
        else:
            print(__doc__, file=sys.stderr)
            code = 2
    except Exception as error:
        print("FAIL kazoo: %r" % error)
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a hanging thread must not keep the process
