"""Tries the cells: matrix_cells [--all] [--print] HOST:PORT; tests/clients/matrix says more."""

import logging
import signal
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient

import table
from cells import DEFAULT, KAZOO, THEIRS
from takers import OURS, Failed, Taker

AT_ONCE = 12  # cells, which mostly wait
BY_NIGHT = "go-zookeeper"  # its compiler is large


def warm_up(takers, clients, folder):
    """Each lock alone, which it must get. That also shows how fast each client is."""
    alone = [(OURS, recipe) for recipe in (*DEFAULT, *KAZOO)]
    alone += [(client, recipe) for client in clients for recipe in THEIRS[client]]
    for client, recipe in alone:
        name = "%s-%s" % (client, recipe)
        takers[client].try_alone(name, recipe, "%s/alone-%s" % (folder, name))


def try_all(takers, clients, folder):
    """The word of each cell, by its name, and what is not as on the page, and what failed."""
    said, found, wrong, failed = table.on_page(), {}, [], []
    cells = list(table.cells_of(clients))

    def try_out(number):
        path = "%s/cell-%d" % (folder, number)
        return cells[number].try_out(takers, path, said.get(str(cells[number])))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for cell, result in [(cell, pool.submit(try_out, n)) for n, cell in enumerate(cells)]:
            try:
                found[str(cell)] = result.result()
            except Failed as what:
                failed.append("%s: %s" % (cell, what))
                continue
            if found[str(cell)] != said.get(str(cell)):
                wrong.append("%s: %s" % (cell, found[str(cell)]))
    return found, wrong, failed


def main(words):
    server = words[-1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # every `with` cleans up
    clients = [client for client in THEIRS if "--all" in words or client != BY_NIGHT]
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    zk, folder, takers = KazooClient(hosts=server, logger=logger), "/matrix-" + uuid.uuid4().hex, {}
    zk.start()
    with tempfile.TemporaryDirectory(prefix="matrix-") as directory:
        try:
            for client in [OURS, *clients]:
                takers[client] = Taker(client, server, directory)
            warm_up(takers, clients, folder)
            found, wrong, failed = try_all(takers, clients, folder)
        finally:
            for taker in takers.values():
                taker.end()
            zk.delete(folder, recursive=True)
            zk.stop()
            zk.close()
    for line in failed:
        print("FAIL %s" % line)
    if "--print" in words and not failed:
        table.put_into_page(found)
        return 0
    for line in wrong:
        print("FAIL %s, but %s says otherwise" % (line, table.PAGE))
    print("%d cells of %d clients" % (len(found), len(clients)))
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as what:
        sys.exit("matrix: %s" % what)
