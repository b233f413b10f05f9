"""Checks a server with kazoo: kazoo_checks HOST:PORT [NAME..]. The exit code is 1 at the first
failure."""

import os
import sys

# Each module adds its checks to the table, in this order.
import sessions  # noqa: F401
import operations  # noqa: F401
import locks  # noqa: F401
import recipes  # noqa: F401
from harness import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a hanging thread must not keep the process
