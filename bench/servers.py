"""What bench/compare and bench/fleet.py have in common: ZooKeeper's servers on free ports of
loopback, the tools of tests/clients/tools.sh, and what a process uses. Run in the project's root.
"""

import contextlib, os, signal, socket, subprocess, time


class Failed(Exception):
    pass


def usage(pid):
    """The seconds of processor time of a process, its memory in KB, and its threads."""
    with open(f"/proc/{pid}/stat") as f:
        times = f.read().rsplit(")", 1)[1].split()[11:13]
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    seconds = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields["VmRSS"].split()[0]), int(fields["Threads"])


def bound(words):
    """The command for a process that ends with us, even if we are killed. It has the same id."""
    return ["setpriv", "--pdeathsig", "KILL", *words]


class Servers:
    """ZooKeeper's servers, of this benchmark alone. `options` are for Java."""

    def __init__(self, directory, count, options=()):
        java = tool("zookeeper", "server")
        if java is None:
            raise Failed("needs Debian's libzookeeper-java and default-jre-headless")
        ports = free_ports(3 * count)
        names = [f"server.{i}=127.0.0.1:{ports[i]}:{ports[count + i]}" for i in range(count)]
        self.hosts = [f"127.0.0.1:{port}" for port in ports[2 * count :]]
        self.data = [os.path.join(directory, str(i)) for i in range(count)]
        self.processes = []
        try:
            self.start(java, options, ports, names)
        except BaseException:
            self.end()
            raise

    def start(self, java, options, ports, names):
        count = len(self.data)
        for i, data in enumerate(self.data):
            os.mkdir(data)
            lines = ["tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={data}"]
            lines += [f"clientPort={ports[2 * count + i]}", "clientPortAddress=127.0.0.1"]
            lines += ["maxClientCnxns=0", "admin.enableServer=false"]
            lines += ["4lw.commands.whitelist=mntr,srvr,wchs", *(names if count > 1 else [])]
            for name, text in ("myid", str(i)), ("cfg", "\n".join(lines)):
                with open(os.path.join(data, name), "w") as f:
                    f.write(text)
            command = [*java, "-Xms512m", "-Xmx512m", "-Dzookeeper.jmx.log4j.disable=true"]
            command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options]
            # Empty folders of locks stay: their deletes would be counted.
            command += ["-Dznode.container.checkIntervalMs=1000000000"]
            command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{data}/cfg"]
            with open(os.path.join(data, "out"), "w") as out:
                pipes = dict(stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                self.processes.append(subprocess.Popen(bound(command), **pipes))

    def wait(self):
        """Waits until all of them serve."""
        for process, host, data in zip(self.processes, self.hosts, self.data):
            answer, deadline = "", time.monotonic() + 60
            while "Mode: " not in answer:
                if process.poll() is not None or time.monotonic() > deadline:
                    with open(os.path.join(data, "out")) as out:
                        raise Failed(f"ZooKeeper does not serve:\n{out.read()}")
                time.sleep(0.1)
                with contextlib.suppress(OSError):
                    answer = four_letter_word(host, "srvr")
            self.version = answer.split("version: ")[1].split("-")[0]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def seconds(self):
        return sum(usage(process.pid)[0] for process in self.processes)

    def words(self, word):
        """The answers of all servers to a four-letter word."""
        return [four_letter_word(host, word) for host in self.hosts]

    def totals(self, *names):
        """Sums over all servers of these values of `mntr`. Each answer counts its own request."""
        totals = [0] * len(names)
        for answer in self.words("mntr"):
            fields = dict(line.split("\t")[:2] for line in answer.splitlines() if "\t" in line)
            for i, name in enumerate(names):
                totals[i] += int(float(fields["zk_" + name]))
        return totals


def four_letter_word(host, word):
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), 5) as link:
        link.sendall(word.encode())
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def free_ports(count):
    """They are free now. If somebody takes one before it is used, the start of a server fails."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def helper(words, **options):
    """Runs a program that may have children. If we end meanwhile, all of them end. Returns its exit
    code and output."""
    started = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **options
    )
    try:
        output, _ = started.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        raise
    return started.returncode, output


def tool(function, *variables):
    """The words of variables that a function of tests/clients/tools.sh sets, which installs and
    builds what is missing. None: it cannot."""
    words = " ".join(f'"${{{variable}[@]}}"' for variable in variables)
    script = f'. tests/clients/tools.sh; {function} >&2; printf "%s\\n" {words}'
    code, output = helper(["bash", "-euc", script, "bench"], stdout=subprocess.PIPE)
    return output.splitlines() if code == 0 else None
