#!/usr/bin/env python3
"""Runs the workloads that only this library has, and appends a line of JSON for each to OUT.jsonl.

  bench/ours.py OUT.jsonl HOST:PORT MODE [WORKLOAD 'key=value ...']...

MODE says how the server was started (fsync, nosync ..) and only goes into the lines. Without
workloads: those of DEFAULT below. The lines are as those of the peer benchmark's driver, so that
bench/plot.py takes both.
Environment: RUNS (default 3), how often each runs; PEER_OURS, the command (default
target/release/peer).
"""

import json, os, shlex, subprocess, sys, threading, time

DEFAULT = [
    ("keep", "max=1000000 secs=3"),
    ("locks", "max=10000"),
    ("held", "max=1000"),
    ("held", "max=10000"),
    *(("sessions", f"sessions={n} threads=8 secs=3") for n in (1, 10, 100, 1000)),
    ("waiters", "threads=1000 sessions=1000"),
]
LIMIT = 600  # seconds, for one workload


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return int(fields["VmRSS"].split()[0]), int(fields["Threads"])


class Sampler(threading.Thread):
    """The most memory and threads that the process had."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.rss, self.threads = pid, 0, 0
        self.start()

    def sample(self):
        rss, threads = status(self.pid)
        self.rss, self.threads = max(self.rss, rss), max(self.threads, threads)

    def run(self):
        try:
            while True:
                self.sample()
                time.sleep(0.1)
        except (OSError, KeyError):
            pass


def one(command, hosts, workload, settings, tag):
    path = f"path=/bench/ours-{workload}-{time.monotonic_ns()}"
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peer = subprocess.Popen([*command, hosts, workload, path, *settings.split()], **pipes)
    sampler, results, done = Sampler(peer.pid), [], False
    timer = threading.Timer(LIMIT, peer.kill)
    timer.start()
    try:
        for line in peer.stdout:
            if line.startswith("{"):
                results.append(json.loads(line))
            elif line.startswith("MARK"):
                peer.stdin.write("\n")
                peer.stdin.flush()
            elif line.strip() == "DONE":
                done = True
                sampler.sample()
                peer.stdin.close()
    finally:
        timer.cancel()
        if not peer.stdin.closed:
            peer.stdin.close()
    if peer.wait() != 0 or not done:
        sys.exit(f"{workload} {settings}: ended with {peer.returncode}")
    more = dict(tag, rss_mb=round(sampler.rss / 1024, 1), os_threads=sampler.threads)
    return [dict(result, **more) for result in results]


def main(out, hosts, mode, *workloads):
    if len(workloads) % 2:
        sys.exit(__doc__)
    matrix = list(zip(workloads[::2], workloads[1::2])) or DEFAULT
    command = shlex.split(os.environ.get("PEER_OURS", "target/release/peer"))
    for run in range(int(os.environ.get("RUNS", 3))):
        for workload, settings in matrix:
            for result in one(command, hosts, workload, settings, dict(mode=mode, run=run)):
                with open(out, "a") as f:
                    f.write(json.dumps(result) + "\n")
                print(
                    f"{mode} run {run}: {workload} {settings}: {result['ops_per_s']}/s, "
                    f"{result['rss_mb']} MB, {result['os_threads']} threads",
                    file=sys.stderr,
                )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
