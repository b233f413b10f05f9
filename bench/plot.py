#!/usr/bin/env python3
"""Draws plots and prints tables from the lines of the peer benchmark and of bench/ours.py.

  bench/plot.py FILE.jsonl... --page src/guide/measured.md   the last part of the page on costs:
                                                             plots and whole tables
  bench/plot.py FILE.jsonl... --svg DIR                      each plot in a file of its own
  bench/plot.py FILE.jsonl... --short                        prints the table of README.md

Each figure is the median over the runs. A run that other programs disturbed (other_cpu_pct above
20) counts only where there is no undisturbed one. --machine "TEXT" says in the page on what it was
measured, --command "TEXT" how.
"""

import argparse, collections, html, itertools, json, math, statistics, sys

# Colours that colour-blind readers can tell apart and that stand out on light and on dark ground.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#b22222"]
GREY = "#888888"
# How the peers are called and in which order they stand; any other comes behind, by name.
NAMES = {
    "ours": "zk-mutex",
    "curator": "Curator",
    "curator_shared": "Curator, one lock object",
    "zkclient": "zookeeper-client",
    "zk08": "textbook, zookeeper 0.8",
    "kazoo": "kazoo",
    "floor_pipe1": "floor, one flight",
    "floor_pipe2": "floor, two flights",
    "floor_seq": "floor, in sequence",
    "floor_bare": "floor, without the listing",
}
MODES = {
    "fsync": "an fsync for each write",
    "nosync": "no fsync (forceSync=no)",
    "shm": "data in memory",
}
# What the lines of the plots show; the floors are in the bars and tables.
LINES = ["ours", "curator", "zkclient", "zk08", "kazoo"]
DISTURBED = 20


class Data:
    def __init__(self, files):
        self.rows = collections.defaultdict(list)
        for name in files:
            with open(name) as f:
                for line in filter(str.strip, f):
                    r = json.loads(line)
                    self.rows[self.key(r)].append(r)

    @staticmethod
    def key(r):
        """Mode, peer, workload, threads, processes, and the sessions or locks that vary."""
        workload, size = r["workload"], None
        if workload in ("locks", "held"):
            size = r["ops"]
        elif workload == "sessions":
            size = r["sessions"]
        elif workload == "waiters":
            size = r.get("sessions", 8)
        threads = None if workload == "sessions" else r["threads"]
        return r["mode"], r["peer"], workload, threads, r["processes"], size

    def runs(self, *key):
        runs = self.rows.get(key, [])
        return [r for r in runs if r.get("other_cpu_pct", 0) <= DISTURBED] or runs

    def value(self, column, *key):
        """The median, or None."""
        values = [r[column] for r in self.runs(*key) if r.get(column) is not None]
        return statistics.median(values) if values else None

    def keys(self, **wanted):
        fields = ("mode", "peer", "workload", "threads", "processes", "size")
        keys = [dict(zip(fields, key)) for key in self.rows]
        return [k for k in keys if all(k[name] == value for name, value in wanted.items())]

    def peers(self):
        there = {key[1] for key in self.rows}
        return [p for p in NAMES if p in there] + sorted(there - set(NAMES))

    def modes(self):
        there = {key[0] for key in self.rows}
        return [m for m in MODES if m in there] + sorted(there - set(MODES))

    def colour(self, peer):
        if peer.startswith("floor"):
            return GREY
        known = list(NAMES)
        at = known.index(peer) if peer in NAMES else len(known)
        return COLOURS[at % len(COLOURS)]


def number(x):
    """In at most about four digits."""
    if x is None:
        return ""
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.0f}" if x == int(x) else f"{x:.1f}" if x >= 10 else f"{x:.3g}"


def short(x):
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if x >= size:
            return f"{x / size:g} {unit}"
    return f"{x:g}"


# ---- plots ----

WIDTH, LEFT, RIGHT = 720, 64, 16


class Svg:
    """A plot. Its text and axes have the colour of the text around it, on light and dark ground."""

    def __init__(self, height, title):
        self.height, self.parts = height, []
        self.title = title

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, anchor="start", extra=""):
        self.add(
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{extra}>'
            f"{html.escape(str(text))}</text>"
        )

    def line(self, x1, y1, x2, y2, extra=""):
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{extra}/>')

    def __str__(self):
        """One tag to a line and no empty line: as Markdown this is one block of HTML."""
        size = f'viewBox="0 0 {WIDTH} {self.height:.0f}" width="{WIDTH}" height="{self.height:.0f}"'
        font = 'font-family="sans-serif" font-size="12" fill="currentColor"'
        style = f'style="max-width:100%;height:auto" {font}'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">'
        return (
            "\n".join([head, f"<title>{html.escape(self.title)}</title>", *self.parts, "</svg>"])
            + "\n"
        )


GRID = ' stroke="currentColor" stroke-opacity="0.18"'
AXIS = ' stroke="currentColor"'


def marker(shape, x, y, colour):
    """Series are told apart by shape as well as by colour."""
    size = 4.5
    points = {
        1: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        2: [(0, -1.2), (1.2, 0.9), (-1.2, 0.9)],
        3: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        4: [(0, 1.2), (1.2, -0.9), (-1.2, -0.9)],
    }.get(shape % 5)
    if points is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'
    path = " ".join(f"{x + size * px:.1f},{y + size * py:.1f}" for px, py in points)
    return f'<polygon points="{path}" fill="{colour}"/>'


def linear_ticks(top):
    step = 10 ** math.floor(math.log10(top / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if top / (step * m) <= 5)
    return [step * i for i in range(math.ceil(top / step - 1e-9) + 1)]


def log_ticks(low, high):
    low, high = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10**e for e in range(low, max(high, low + 1) + 1)]


def lines(title, unit, x_label, xs, series, log, to_scale=False):
    """Lines over the given places, which "" separates into groups.

    `series`: (name, colour, shape, is dashed, values).

    A value is None where there is none; the line is interrupted there. `to_scale`: the places are
    numbers, from 0 on.
    """
    series = [s for s in series if any(v is not None for v in s[4])]
    values = [v for s in series for v in s[4] if v]
    if not values:
        return None
    legend_rows = math.ceil(len(series) / 3)
    top = 44 + 18 * legend_rows
    bottom, height = top + 230, top + 274
    svg = Svg(height, title)
    svg.text(LEFT, 18, title, extra=' font-size="14" font-weight="bold"')
    for i, (name, colour, shape, dashed, _) in enumerate(series):
        x, y = LEFT + 216 * (i % 3), 38 + 18 * (i // 3)
        svg.line(
            x,
            y - 4,
            x + 24,
            y - 4,
            f' stroke="{colour}" stroke-width="2"' + (' stroke-dasharray="5 4"' if dashed else ""),
        )
        svg.add(marker(shape, x + 12, y - 4, colour))
        svg.text(x + 30, y, name)
    ticks = log_ticks(min(values), max(values)) if log else linear_ticks(max(values))
    if log:
        place = lambda v: bottom - (math.log10(v) - math.log10(ticks[0])) / (
            math.log10(ticks[-1]) - math.log10(ticks[0])
        ) * (bottom - top)
    else:
        place = lambda v: bottom - v / ticks[-1] * (bottom - top)
    for tick in ticks:
        svg.line(LEFT, place(tick), WIDTH - RIGHT, place(tick), GRID)
        svg.text(LEFT - 6, place(tick) + 4, short(tick), "end")
    svg.line(LEFT, bottom, WIDTH - RIGHT, bottom, AXIS)
    wide = WIDTH - RIGHT - LEFT
    if to_scale:
        at = [LEFT + 0.95 * wide * x / max(xs) for x in xs]
    else:
        at = [LEFT + wide / len(xs) * (i + 0.5) for i in range(len(xs))]
    labelled = -math.inf
    for x, name in sorted(zip(at, xs), key=lambda place: place[0]):
        if name == "" or x < labelled + 50:
            continue
        labelled = x
        svg.line(x, bottom, x, bottom + 4, AXIS)
        svg.text(x, bottom + 18, f"{name:,}" if isinstance(name, int) else name, "middle")
    svg.text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, x_label, "middle")
    middle = (top + bottom) / 2
    scale = unit + (", logarithmic" if log else "")
    svg.text(14, middle, scale, "middle", f' transform="rotate(-90 14 {middle:.0f})"')
    for _, colour, shape, dashed, values in series:
        points = [(x, place(v)) if v else None for x, v in zip(at, values)]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        for is_point, run in itertools.groupby(points, lambda point: point is not None):
            run = list(run)
            if is_point and len(run) > 1:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
                svg.add(
                    f'<polyline points="{path}" fill="none" stroke="{colour}" '
                    f'stroke-width="2"{dash}/>'
                )
        for x, y in filter(None, points):
            svg.add(marker(shape, x, y, colour))
    return svg


def bars(title, unit, groups):
    """Lying bars. `groups`: (name, rows of (name, colour, value, end of a thin line or None))."""
    groups = [(name, [r for r in rows if r[2] is not None]) for name, rows in groups]
    groups = [(name, rows) for name, rows in groups if rows]
    if not groups:
        return None
    left, right, bar = 216, 76, 17
    most = max(max(r[2], r[3] or 0) for _, rows in groups for r in rows)
    ticks = linear_ticks(most)
    place = lambda v: left + v / ticks[-1] * (WIDTH - left - right)
    top = 34
    bottom = top + sum(24 + bar * len(rows) for _, rows in groups) + 4
    svg = Svg(bottom + 44, title)
    svg.text(8, 18, title, extra=' font-size="14" font-weight="bold"')
    for tick in ticks:
        svg.line(place(tick), top, place(tick), bottom, GRID)
        svg.text(
            place(tick),
            bottom + 16,
            f"{tick:,.0f}" if tick >= 1 or not tick else f"{tick:g}",
            "middle",
        )
    svg.text((left + WIDTH - right) / 2, bottom + 34, unit, "middle")
    y = top
    for name, rows in groups:
        svg.text(8, y + 16, name, extra=' font-weight="bold"')
        y += 24
        svg.line(left, y, left, y + bar * len(rows), AXIS)
        for row, colour, value, tail in rows:
            svg.text(left - 8, y + 12, row, "end")
            svg.add(
                f'<rect x="{left}" y="{y + 2:.0f}" width="{place(value) - left:.1f}" '
                f'height="{bar - 4}" fill="{colour}"/>'
            )
            end = place(value)
            label = number(value)
            if tail:
                svg.line(
                    end,
                    y + bar / 2,
                    place(tail),
                    y + bar / 2,
                    f' stroke="{colour}" stroke-width="2"',
                )
                svg.line(
                    place(tail),
                    y + 4,
                    place(tail),
                    y + bar - 4,
                    f' stroke="{colour}" stroke-width="2"',
                )
                end = max(end, place(tail))
                label = f"{number(value)} / {number(tail)}"
            svg.text(end + 6, y + 12, label, extra=' font-size="11"')
            y += bar
    return svg


def plots(data):
    """Name, plot."""
    peers, modes = data.peers(), data.modes()
    # Where no fsync hides the rest, if that was measured.
    mode = "nosync" if "nosync" in modes else modes[0]
    name = lambda p: NAMES.get(p, p)
    how = lambda m: MODES.get(m, m)
    shape = {p: i for i, p in enumerate(LINES)}

    def row(m, p, column, tail, *key):
        return (
            name(p),
            data.colour(p),
            data.value(column, m, p, *key),
            data.value(tail, m, p, *key) if tail else None,
        )

    groups = [
        (
            how(m),
            [row(m, p, "ops_per_s", None, "uncontended", 1, 1, None) for p in peers]
            + [("zk-mutex, kept", *row(m, "ours", "ops_per_s", None, "keep", 1, 1, None)[1:])],
        )
        for m in modes
    ]
    yield "uncontended", bars(
        "Uncontended: one thread locks and unlocks", "cycles a second; more is better", groups
    )

    some = [p for p in peers if p in LINES]
    threads = sorted(
        {k["threads"] for k in data.keys(workload="contended", mode=mode, processes=1)}
    )

    def by_threads(p, column):
        return [data.value(column, mode, p, "contended", t, 1, None) for t in threads]

    series = [(name(p), data.colour(p), shape[p], False, by_threads(p, "ops_per_s")) for p in some]
    yield "threads", lines(
        f"Threads of one process contend, {how(mode)}",
        "cycles a second",
        "threads",
        threads,
        series,
        True,
    )

    series = [
        (f"{name(p)}, {q}", data.colour(p), shape[p], q == "p99", by_threads(p, f"{q}_us"))
        for p in some
        if p in ("ours", "curator", "zkclient")
        for q in ("p50", "p99")
    ]
    series = series[::2] + series[1::2]
    yield "waits", lines(
        "The same: how long acquire() takes", "µs", "threads", threads, series, True
    )

    processes = sorted(
        {k["processes"] for k in data.keys(workload="contended") if k["processes"] > 1}
    )
    beside = [p for p in peers if p in LINES or p == "floor_seq"]
    groups = [
        (
            f"{n} processes, {how(m)}",
            [
                row(m, p, "handoff_p50_us", "handoff_p99_us", "contended", 1, n, None)
                for p in beside
            ],
        )
        for m in modes
        for n in processes
    ]
    yield "handoff", bars(
        "Hand-off between processes: bar p50, line up to p99", "µs; less is better", groups
    )

    waiting = sorted(
        {(k["threads"], k["size"]) for k in data.keys(workload="waiters", mode=mode)},
        key=lambda k: (k[1], k[0]),
    )
    places = []
    for sessions in sorted({s for _, s in waiting}):
        places += ([None] if places else []) + [place for place in waiting if place[1] == sessions]
    labels = [f"{place[0]:,} over {place[1]:,}" if place else "" for place in places]

    def drained(p):
        return [
            data.value("ops_per_s", mode, p, "waiters", place[0], 1, place[1]) if place else None
            for place in places
        ]

    series = [(name(p), data.colour(p), shape[p], False, drained(p)) for p in some]
    yield "waiters", lines(
        f"A queue drains, {how(mode)}",
        "waiters a second",
        "waiters over sessions",
        labels,
        series,
        True,
    )

    def growth(workload, column, scale):
        sizes = sorted(k["size"] for k in data.keys(workload=workload, mode=mode, peer="ours"))
        threads = None if workload == "sessions" else 1
        return sizes, [
            (
                scale * v
                if (v := data.value(column, mode, "ours", workload, threads, 1, s)) is not None
                else None
            )
            for s in sizes
        ]

    sizes, rss = growth("sessions", "rss_mb", 1)
    colour = data.colour("ours")
    yield "memory_sessions", lines(
        "Memory of a process with many sessions",
        "MB",
        "sessions",
        sizes,
        [("resident memory", colour, 0, False, rss)],
        False,
        True,
    )
    made, held = growth("locks", "rss_mb", 1), growth("held", "rss_mb", 1)
    sizes = sorted({*made[0], *held[0]})
    series = [
        (label, c, i, False, [dict(zip(*which)).get(s) for s in sizes])
        for i, (label, c, which) in enumerate(
            [("locks that are held", colour, held), ("lock objects", COLOURS[1], made)]
        )
    ]
    yield "memory_locks", lines(
        "Memory of a process with many locks on one session",
        "MB",
        "locks",
        sizes,
        series,
        False,
        True,
    )


# ---- tables ----


def what(workload, threads, processes, size):
    plural = lambda n, word: f"{n:,} {word}" + ("" if n == 1 else "s")
    if workload == "uncontended":
        return "uncontended, 1 thread"
    if workload == "contended":
        return (
            f"{processes} processes"
            if processes > 1
            else f"{plural(threads, 'thread')} of a process"
        )
    if workload == "waiters":
        return f"{plural(threads, 'waiter')} over {plural(size, 'session')}, draining"
    if workload == "readers":
        return f"read locks, {plural(threads, 'thread')}"
    if workload == "reentrant":
        return "re-entry"
    if workload == "keep":
        return "uncontended, kept between holds"
    if workload == "locks":
        return f"{size:,} lock objects made"
    if workload == "held":
        return f"{size:,} locks taken and held"
    if workload == "sessions":
        return f"{plural(size, 'session')} in one process"
    return workload + (f", {plural(threads, 'thread')}" if threads != 1 else "")


ORDER = [
    "uncontended",
    "contended",
    "waiters",
    "readers",
    "reentrant",
    "keep",
    "sessions",
    "locks",
    "held",
]


def order(key):
    workload, threads, processes, size = key
    return (
        ORDER.index(workload) if workload in ORDER else 99,
        workload,
        processes,
        size or 0,
        threads or 0,
    )


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def workloads(data, mode):
    keys = {(k["workload"], k["threads"], k["processes"], k["size"]) for k in data.keys(mode=mode)}
    return sorted((k for k in keys if not k[0].startswith("op-")), key=order)


def short_table(data):
    """For README.md: cycles a second beside the peers, and how many times Curator's."""
    peers = [p for p in ("curator", "zkclient", "zk08", "floor_pipe1", "ours") if p in data.peers()]
    out = []
    for mode in data.modes():
        rows = []
        for key in workloads(data, mode):
            values = {p: data.value("ops_per_s", mode, p, *key) for p in peers}
            alone = sum(v is not None for v in values.values()) < 2
            # No peer keeps a lock between two holds.
            if values.get("ours") is None or alone and key[0] != "keep":
                continue
            ratio = values["ours"] / values["curator"] if values.get("curator") else None
            rows.append([what(*key), *(number(values[p]) for p in peers), number(ratio)])
        if rows:
            out.append(f"Cycles a second, {MODES.get(mode, mode)}:\n\n")
            out.append(
                markdown(["workload", *(NAMES.get(p, p) for p in peers), "times Curator's"], rows)
                + "\n"
            )
    return "".join(out)


WHOLE = [
    ("ops_per_s", "a second"),
    ("p50_us", "acquire p50, µs"),
    ("p99_us", "p99"),
    ("rel_p50_us", "release p50"),
    ("handoff_p50_us", "hand-off p50"),
    ("handoff_p99_us", "p99"),
    ("rx_per_op", "requests each"),
    ("cpu_us_per_op", "client CPU, µs"),
    ("rss_mb", "MB"),
    ("os_threads", "threads"),
]


def whole_tables(data):
    out = []
    for mode in data.modes():
        out.append(f"## {MODES.get(mode, mode)[0].upper()}{MODES.get(mode, mode)[1:]}\n\n")
        rows = []
        for key in workloads(data, mode):
            for peer in data.peers():
                if data.runs(mode, peer, *key):
                    values = [number(data.value(column, mode, peer, *key)) for column, _ in WHOLE]
                    rows.append(
                        [
                            what(*key),
                            NAMES.get(peer, peer),
                            str(len(data.runs(mode, peer, *key))),
                            *values,
                        ]
                    )
        out.append(
            markdown(["workload", "client", "runs", *(title for _, title in WHOLE)], rows) + "\n"
        )
    return "".join(out)


def memory_table(data):
    """From our own lines: by how much the process grew for each."""
    rows = []
    for mode in data.modes()[-1:]:
        for workload, threads, processes, size in workloads(data, mode):
            each = data.value("bytes_each", mode, "ours", workload, threads, processes, size)
            names = {
                "sessions": "session",
                "waiters": "waiter",
                "locks": "lock object",
                "held": "held lock",
            }
            if each is not None and workload in names:
                rows.append(
                    [
                        what(workload, threads, processes, size),
                        f"{each / 1024:,.1f} KB for each {names[workload]}",
                    ]
                )
    return markdown(["process with", "memory"], rows) + "\n" if rows else ""


CAPTIONS = {
    "uncontended": "The floors are the same protocol on one bare blocking socket, without "
    "recovery, deadlines or leases: they show what the least can cost. A lock that is kept between "
    "two holds asks the server for nothing while nobody else wants it.",
    "threads": "Threads of one process hand the lock to each other without asking the server, "
    "for 20 ms at most while others wait.",
    "handoff": "From just before the release in one process until the lock is held in the next.",
    "waiters": "A holder lets go, and so many waiters, in so many sessions, hold the lock "
    "one after the other.",
}


def page(data, machine, command):
    out = ["\n# Measured\n\n"]
    out.append(
        f"Each figure is the median of its runs on one machine{': ' + machine if machine else ''}. "
        "All clients ran in turn against the same server.\n\n"
    )
    if command:
        out.append(f"Run it: `{command}`.\n\n")
    for name, svg in plots(data):
        if svg is not None:
            out.append(f"{svg}\n")
            out.append(f"{CAPTIONS[name]}\n\n" if name in CAPTIONS else "")
    memory = memory_table(data)
    if memory:
        out.append(
            "## Memory\n\nBy how much the process grew (resident memory, the stacks of waiting "
            "threads included):\n\n" + memory
        )
    out.append("# All figures\n\n" + whole_tables(data))
    return "".join(out).rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--page", metavar="FILE.md")
    parser.add_argument("--svg", metavar="DIR")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--machine", default="")
    parser.add_argument("--command", default="")
    args = parser.parse_args()
    data = Data(args.files)
    if not data.rows:
        sys.exit("there are no measurements in these files")
    if args.svg:
        for name, svg in plots(data):
            if svg is not None:
                with open(f"{args.svg}/{name}.svg", "w") as f:
                    f.write(str(svg))
    if args.page:
        with open(args.page, "w") as f:
            f.write(page(data, args.machine, args.command))
    if args.short:
        print(short_table(data), end="")
    if not (args.svg or args.page or args.short):
        parser.error("say what to write: --page, --svg or --short")


if __name__ == "__main__":
    main()
