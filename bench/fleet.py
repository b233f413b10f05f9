#!/usr/bin/env python3
"""Measures what many sessions of one process cost while they rest, and prints a table.

  bench/fleet.py OUT.jsonl [--sessions N] [--timeout SECONDS] [--seconds S] [--servers 1|3]
                 [--rows ROW,ROW..]

It starts ZooKeeper on free ports of loopback, with its data in a directory that goes at the end.
For one row after the other it starts a process with N sessions (1000) and waits for one session
timeout T (10). Then it counts for S seconds (60), prints a line of the table, and appends a line of
JSON to OUT.jsonl. It raises the limit of open files as far as it may: N sessions need up to 4 N.

Rows, all by default:
  nobody             the servers alone; their time is shared out to N sessions, for comparison
  raw                bare connections with the requests of idle sessions; one thread serves them
  crate              sessions of the crate `zookeeper`, 0.8
  idle               our sessions, which hold nothing
  held, held-false   each holds a lock of its own, by default and with leader_serves(false)
  held+writes, held-false+writes
                     the same, and another client writes ten times a second, which is not counted
  waiting            each waits for the lock that one session more holds
  curator, kazoo     each holds a lock of its own. If they cannot be had, they are left out

Environment: FLEET, the program (default target/release/fleet); ZK_JARS, a directory of ZooKeeper's
jars, to use in place of Debian's; JAVA_HOME; CURATOR_JARS, as in tests/clients/run.
"""

import argparse, contextlib, glob, json, os, resource, signal, struct, subprocess, sys, tempfile
import time

sys.dont_write_bytecode = True
from servers import Failed, Servers, tool, usage

ROWS = """nobody raw crate idle held held+writes held-false held-false+writes waiting curator
kazoo""".split()
COLUMNS = {  # of the table, and where their figures are in a line of JSON
    "sessions": "row",
    "requests": "requests",
    "writes": "writes",
    "log, bytes": "log_bytes",
    "server, µs": "server_cpu_us",
    "threads": "threads",
    "memory, KB": "memory_kb",
    "client, µs": "cpu_us",
}
FLEET = os.path.abspath(os.environ.get("FLEET", "target/release/fleet"))
RATE = 10  # writes a second of the other client
LIMIT = 600  # seconds until all sessions are there, or have ended
SET_DATA = 5  # what the other client writes, in ZooKeeper's log


class Program:
    """A process with sessions, which it closes when its input is closed."""

    def __init__(self, command):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        quiet = dict(os.environ, RUST_LOG="error")
        self.process = subprocess.Popen(command, env=quiet, **pipes)
        self.expect("begin")
        self.pid = self.process.pid

    def expect(self, word):
        if self.process.stdout.readline().strip() != word:
            raise Failed(f"{self.process.args[0]} has not said {word!r}")

    def begin(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.expect("ready")

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        try:
            if not failed:
                self.process.stdin.close()
                self.process.wait(LIMIT)
        finally:
            self.process.kill()
            code = self.process.wait()
        if code != 0 and not failed:
            raise Failed(f"{self.process.args[0]} ended with {code}")


class Fleet(Servers):
    """The same, and what they say of many sessions."""

    def counters(self):
        """The requests to all servers, those to connect among them, and the sessions."""
        return self.totals("packets_received", "connection_request_count", "global_sessions")

    def wait_until_empty(self):
        """Waits for the end of sessions that a process has not closed in time."""
        while self.counters()[2] != 0:
            time.sleep(1)

    def seconds(self):
        return sum(usage(process.pid)[0] for process in self.processes)

    def transactions(self, begin, end):
        """The kind and the bytes of each transaction of this time, from one server's log."""
        for name in glob.glob(os.path.join(self.data[0], "version-2/log.*")):
            with open(name, "rb") as log:
                log.read(16)  # what kind of file it is
                # Each one has a checksum and a length before it, and a byte behind it. The file
                # ends with zeros.
                while length := int.from_bytes(log.read(12)[8:], "big"):
                    # Before time and kind stand session, number of the request, and zxid.
                    when, kind = struct.unpack(">20xqi", log.read(length + 1)[:32])
                    if begin <= when / 1000 < end:
                        yield kind, length + 13


def fleet(hosts, kind, *more):
    return [FLEET, "--connect", hosts, "--kind", kind, *more]


def command(row, hosts, a):
    """What makes the sessions of a row. None: it cannot be had."""
    kind, counts = row.removesuffix("+writes"), [str(a.sessions), str(a.timeout * 1000)]
    if kind == "nobody":
        return ["sh", "-c", "echo begin; read begin; echo ready; cat"]
    if kind == "curator":
        java = tool("curator", "java")
        return java and [*java, "-Xmx1g", "peers.Holders", hosts, *counts]
    if kind == "kazoo":
        python = tool("kazoo", "python")
        return python and [*python, "-B", "bench/peers/kazoo_holders.py", hosts, *counts]
    return fleet(hosts, kind, "--sessions", counts[0], "--timeout", counts[1])


def measure(row, servers, a):
    """A line of figures. None: its program cannot be had."""
    hosts = ",".join(servers.hosts)
    words = command(row, hosts, a)
    if words is None:
        return None
    servers.wait_until_empty()
    with Program(words) as program, contextlib.ExitStack() as stack:
        _, memory, threads = usage(program.pid)
        program.begin()
        if row.endswith("+writes"):
            writer = fleet(hosts, "writer", "--rate", str(RATE))
            stack.enter_context(Program(writer)).begin()
        time.sleep(a.timeout)
        begun, since = time.time(), time.monotonic()
        before, server_cpu, cpu = servers.counters(), servers.seconds(), usage(program.pid)[0]
        time.sleep(a.seconds)
        ended, lasted = time.time(), time.monotonic() - since
        after, server_cpu = servers.counters(), servers.seconds() - server_cpu
        cpu_now, memory_now, threads_now = usage(program.pid)
    transactions = list(servers.transactions(begun, ended))
    own = [size for kind, size in transactions if kind != SET_DATA]
    # Without the question itself, which is one for each server, and those of the other client.
    requests = after[0] - before[0] - len(servers.hosts) - (len(transactions) - len(own))
    connections = after[1] - before[1]
    if connections:
        print(f"{row}: {connections} connections were lost meanwhile", file=sys.stderr)

    def each(count):
        """For each session in each T."""
        return count * a.timeout / lasted / a.sessions

    return dict(
        row=row,
        sessions=a.sessions,
        timeout_s=a.timeout,
        seconds=round(lasted, 1),
        servers=len(servers.hosts),
        zookeeper=servers.version,
        requests=round(each(requests), 2),
        writes=round(each(len(own)), 3),
        log_bytes=round(each(sum(own))),
        server_cpu_us=round(each(server_cpu * 1e6)),
        threads=round((threads_now - threads) / a.sessions, 2),
        memory_kb=round((memory_now - memory) / a.sessions, 1),
        cpu_us=round(each((cpu_now - cpu) * 1e6)),
        lost_connections=connections,
    )


def run(servers, a):
    servers.wait()
    # Java compiles what is used often.
    with Program(fleet(",".join(servers.hosts), "writer", "--rate", "5000")) as warm:
        warm.begin()
        time.sleep(10)
    print(
        f"{a.sessions} sessions, T = {a.timeout} s, {a.seconds} s each; ZooKeeper "
        f"{servers.version}, {a.servers} of it; {os.cpu_count()} cores. Each session in each T:\n"
    )
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|", flush=True)
    for row in a.rows:
        result = measure(row, servers, a)
        if result is None:
            print(f"{row} is left out: it cannot be had here (see above)", file=sys.stderr)
            continue
        with open(a.out, "a") as f:
            f.write(json.dumps(result) + "\n")
        cells = [row, *(f"{result[key]:,}" for key in list(COLUMNS.values())[1:])]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--timeout", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--rows", type=lambda rows: rows.split(","), default=ROWS)
    a = parser.parse_args()
    if not set(a.rows) <= set(ROWS) or a.sessions < 1 or a.seconds < 1:
        parser.error("there is no such row, or a number is below 1")
    if not 4 <= a.timeout <= 40:
        parser.error("the servers grant 4 to 40 seconds")
    if not os.path.exists(FLEET):
        parser.error(f"no {FLEET}: cargo build --release -p zk-mutex-bench --bin fleet")
    a.out = os.path.abspath(a.out)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        servers = Fleet(directory, a.servers)
        try:
            run(servers, a)
        finally:
            servers.end()


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"fleet: {failed}")
