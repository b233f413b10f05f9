"""Draws the pictures and writes the tables of bench/compare from its lines.

Each figure is the median over the runs. A run that other programs disturbed (`other_cpu_pct` above
DISTURBED) counts only where there is no undisturbed one.
"""

import collections, html, itertools, json, math, os, re, statistics

# Colours that colour-blind readers can tell apart and that stand out on light and on dark ground.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#b22222"]
GREY = "#888888"
# How the peers are called and in which order they stand.
NAMES = {
    "ours": "zk-mutex",
    "curator": "Curator",
    "zkclient": "zookeeper-client",
    "textbook": "textbook, zookeeper 0.8",
    "kazoo": "kazoo",
    "floor_flight": "floor, one flight",
    "floor_flights": "floor, two flights",
    "floor_seq": "floor, in sequence",
    "floor_bare": "floor, without the listing",
}
# The same for their versions.
PROGRAMS = {
    "zookeeper": "ZooKeeper",
    "curator": "Curator",
    "java": "Java",
    "python": "Python",
    "crate zookeeper": "the crate zookeeper",
}
MODES = {"nosync": "no fsync", "fsync": "an fsync for each write"}
SERVERS = {1: "one server", 3: "three servers"}
# What the lines of the plots show; the floors are in the bars and tables.
LINES = ["ours", "curator", "zkclient", "textbook", "kazoo"]
DISTURBED = 20
# Where all workloads are measured.
BASE = (1, "nosync")


def how(place):
    servers, mode = place
    return f"{SERVERS[servers]}, {MODES[mode]}"


class Data:
    """The lines of one run. A place is a number of servers, and how they write."""

    def __init__(self, file):
        self.rows = collections.defaultdict(list)
        self.lines = [json.loads(line) for line in filter(str.strip, file)]
        for line in self.lines:
            self.rows[self.key(line)].append(line)

    @staticmethod
    def key(r):
        """Place, peer, workload, threads, processes, and the sessions or locks that vary."""
        workload, size = r["workload"], None
        if workload in ("locks", "held", "objects"):
            size = r["ops"]
        elif workload in ("sessions", "waiters"):
            size = r["sessions"]
        threads = None if workload == "sessions" else r["threads"]
        return (r["servers"], r["mode"]), r["peer"], workload, threads, r["processes"], size

    def runs(self, *key):
        runs = self.rows.get(key, [])
        return [r for r in runs if not is_disturbed(r)] or runs

    def value(self, column, *key):
        """The median, or None."""
        values = [r[column] for r in self.runs(*key) if r.get(column) is not None]
        return statistics.median(values) if values else None

    def spread(self, *key):
        """Half the range of the runs' rates, in percent of their median. None: one run."""
        rates = [r["ops_per_s"] for r in self.runs(*key)]
        if len(rates) < 2:
            return None
        return (max(rates) - min(rates)) / 2 / statistics.median(rates) * 100

    def safe(self, *key):
        """Whether all counters were exact and no two holds overlapped; runs that are left out of
        the medians count too. Empty: there was nothing to check."""
        checked = [r["safe"] for r in self.rows.get(key, []) if "safe" in r]
        return ("yes" if all(checked) else "NO") if checked else ""

    def disturbed(self):
        """The number of figures for which no run was undisturbed, and of all."""
        return sum(all(map(is_disturbed, runs)) for runs in self.rows.values()), len(self.rows)

    def keys(self, **wanted):
        fields = ("place", "peer", "workload", "threads", "processes", "size")
        keys = [dict(zip(fields, key)) for key in self.rows]
        return [k for k in keys if all(k[name] == value for name, value in wanted.items())]

    def peers(self):
        there = {key[1] for key in self.rows}
        return [p for p in NAMES if p in there]

    def places(self):
        there = {key[0] for key in self.rows}
        return [(n, mode) for n in SERVERS for mode in MODES if (n, mode) in there]

    def base(self):
        """Where no fsync and no second server hides the rest, if that was measured."""
        return BASE if BASE in self.places() else self.places()[0]

    def colour(self, peer):
        if peer.startswith("floor"):
            return GREY
        return COLOURS[list(NAMES).index(peer) % len(COLOURS)]

    def title(self, peer):
        """A peer's name for the head of a table."""
        if peer == "curator":
            return "Curator " + ".".join(self.lines[0]["versions"]["curator"].split(".")[:2])
        return NAMES[peer]


def is_disturbed(r):
    return r["other_cpu_pct"] > DISTURBED


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
    peers, places, base = data.peers(), data.places(), data.base()
    shape = {p: i for i, p in enumerate(LINES)}

    def row(place, p, column, tail, *key):
        return (
            NAMES[p],
            data.colour(p),
            data.value(column, place, p, *key),
            data.value(tail, place, p, *key) if tail else None,
        )

    groups = [
        (
            how(place),
            [row(place, p, "ops_per_s", None, "uncontended", 1, 1, None) for p in peers],
        )
        for place in places
    ]
    yield "uncontended", bars(
        "Uncontended: one thread locks and unlocks", "cycles a second; more is better", groups
    )

    some = [p for p in peers if p in LINES]
    threads = sorted({k["threads"] for k in data.keys(workload="threads", place=base)})

    def by_threads(p, column):
        return [data.value(column, base, p, "threads", t, 1, None) for t in threads]

    series = [(NAMES[p], data.colour(p), shape[p], False, by_threads(p, "ops_per_s")) for p in some]
    yield "threads", lines(
        f"Threads of one process contend, {how(base)}",
        "cycles a second",
        "threads",
        threads,
        series,
        True,
    )

    series = [
        (f"{NAMES[p]}, {q}", data.colour(p), shape[p], q == "p99", by_threads(p, f"{q}_us"))
        for p in some
        if p in ("ours", "curator", "zkclient")
        for q in ("p50", "p99")
    ]
    series = series[::2] + series[1::2]
    yield "waits", lines(
        "The same: how long acquire() takes", "µs", "threads", threads, series, True
    )

    processes = sorted({k["processes"] for k in data.keys(workload="processes")})
    beside = [p for p in peers if p in LINES or p == "floor_seq"]
    groups = [
        (
            f"{n} processes, {how(place)}",
            [
                row(place, p, "handoff_p50_us", "handoff_p99_us", "processes", 1, n, None)
                for p in beside
            ],
        )
        for place in places
        for n in processes
    ]
    yield "handoff", bars(
        "Hand-off between processes: bar p50, line up to p99", "µs; less is better", groups
    )

    waiting = sorted(
        {(k["threads"], k["size"]) for k in data.keys(workload="waiters", place=base)},
        key=lambda k: (k[1], k[0]),
    )
    spots = []
    for sessions in sorted({s for _, s in waiting}):
        spots += ([None] if spots else []) + [spot for spot in waiting if spot[1] == sessions]
    labels = [f"{spot[0]:,} over {spot[1]:,}" if spot else "" for spot in spots]

    def drained(p):
        return [
            data.value("ops_per_s", base, p, "waiters", spot[0], 1, spot[1]) if spot else None
            for spot in spots
        ]

    series = [(NAMES[p], data.colour(p), shape[p], False, drained(p)) for p in some]
    yield "waiters", lines(
        f"A queue drains, {how(base)}",
        "waiters a second",
        "waiters over sessions",
        labels,
        series,
        True,
    )

    def growth(workload):
        sizes = sorted(k["size"] for k in data.keys(workload=workload, place=base, peer="ours"))
        threads = None if workload == "sessions" else 1
        return sizes, [data.value("rss_mb", base, "ours", workload, threads, 1, s) for s in sizes]

    sizes, rss = growth("sessions")
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
    made, held = growth("locks"), growth("held")
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


def plural(n, word):
    return f"{n:,} {word}" + ("" if n == 1 else "s")


# In the order in which they stand.
WORKLOADS = {
    "uncontended": lambda *_: "uncontended",
    "processes": lambda threads, processes, size: f"{processes} processes",
    "threads": lambda threads, *_: f"{plural(threads, 'thread')} of a process",
    "hand_over": lambda threads, *_: f"{plural(threads, 'thread')}, hand-over bound zero",
    "shared": lambda threads, *_: f"{plural(threads, 'thread')}, one lock object",
    "waiters": lambda threads, processes, size: (
        f"{plural(threads, 'waiter')} over {plural(size, 'session')}, draining"
    ),
    "readers": lambda threads, *_: f"read locks, {plural(threads, 'thread')}",
    "reentrant": lambda *_: "re-entry",
    "keep": lambda *_: "uncontended, kept between holds",
    "sessions": lambda threads, processes, size: f"{plural(size, 'session')} in one process",
    "locks": lambda threads, processes, size: f"{size:,} lock objects made",
    "held": lambda threads, processes, size: f"{size:,} locks taken and held",
    "objects": lambda threads, processes, size: f"{size:,} calls, a lock object each",
}


def what(workload, threads, processes, size):
    return WORKLOADS[workload](threads, processes, size)


def order(key):
    workload, threads, processes, size = key
    return list(WORKLOADS).index(workload), processes, size or 0, threads or 0


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def workloads(data, place):
    keys = {
        (k["workload"], k["threads"], k["processes"], k["size"]) for k in data.keys(place=place)
    }
    return sorted(keys, key=order)


def ratio(a, b):
    return number(a / b) if a and b else ""


SHORT = [
    ("uncontended", 1, 1, None),
    ("processes", 1, 2, None),
    ("threads", 8, 1, None),
    ("readers", 8, 1, None),
]


def short_table(data):
    """For README.md: cycles a second, and how many times Curator's."""
    base, machine = data.base(), data.lines[0]["machine"]
    peers = [p for p in ("curator", "zkclient", "ours") if p in data.peers()]
    rows = []
    for key in SHORT:
        values = {p: data.value("ops_per_s", base, p, *key) for p in peers}
        if any(values.values()):
            times = ratio(values.get("ours"), values.get("curator"))
            rows.append([what(*key), *(number(values[p]) for p in peers), times])
    shown = [(base, p, *key) for p in peers for key in SHORT]
    spreads = [data.spread(*key) or 0 for key in shown if data.runs(*key)]
    head = paragraph(
        f"Locks and unlocks per second, medians of one run ({plural(machine['cores'], 'core')} "
        f"shared with ZooKeeper {data.lines[0]['versions']['zookeeper']}, {how(base)}; "
        f"repetitions differ by ±{max(spreads, default=0):.0f} % at most):"
    )
    return f"{head}\n" + markdown(
        ["workload", *(data.title(p) for p in peers), "times Curator's"], rows
    )


def paragraph(text):
    """Lines of at most 100 characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= 100:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines) + "\n"


def beside_table(data):
    """For the guide's chapter: the clients beside each other, in each place."""
    peers = [p for p in ("curator", "zkclient", "textbook", "kazoo", "ours") if p in data.peers()]
    base, rows = data.base(), []
    for place in [base, *(place for place in data.places() if place != base)]:
        for key in workloads(data, place):
            rates = {p: data.value("ops_per_s", place, p, *key) for p in peers}
            if key[0] in ("sessions", "locks", "held", "objects", "shared") or not rates.get("ours"):
                continue
            handoff = {p: data.value("handoff_p50_us", place, p, *key) for p in peers}
            if key[0] == "hand_over":  # beside the same threads of the others
                threads = ("threads", *key[1:])
                for p in peers:
                    rates[p] = rates[p] or data.value("ops_per_s", place, p, *threads)
                    handoff[p] = handoff[p] or data.value("handoff_p50_us", place, p, *threads)
            name = what(*key) + ("" if place == base else f"; {how(place)}")
            times = ratio(rates["ours"], rates.get("curator"))
            cells = [number(rates[p]) for p in peers]
            cells += [times, *(number(handoff.get(p)) for p in ("curator", "ours"))]
            rows.append([name, *cells])
    head = ["workload", *map(data.title, peers), "times Curator's"]
    text = f"Cycles a second; where nothing else is said, with {how(base)}:"
    return (
        paragraph(text)
        + "\n"
        + markdown([*head, "hand-off p50, µs: Curator", "zk-mutex"], rows)
    )


def floors_table(data):
    """Beside the least that the same requests cost, on one bare blocking socket."""
    rows = []
    for place in data.places():
        for key in workloads(data, place):
            ours = [data.value(c, place, "ours", *key) for c in ("ops_per_s", "cpu_us_per_op")]
            rate = data.value("ops_per_s", place, "floor_flight", *key)
            cpu = data.value("cpu_us_per_op", place, "floor_seq", *key)
            if all(ours) and rate and cpu:
                name = f"{what(*key)}; {how(place)}"
                rate = [number(rate), number(ours[0]), ratio(ours[0], rate)]
                rows.append([name, *rate, number(cpu), number(ours[1]), ratio(ours[1], cpu)])
    if not rows:
        return ""
    text = (
        "Beside one bare blocking socket without any recovery: the rate of the same requests in "
        "one flight, and the client's processor time for the same requests in sequence."
    )
    head = ["workload", "socket, a second", "zk-mutex", "share"]
    head += ["socket, µs of CPU a cycle", "zk-mutex", "times"]
    return "\n" + paragraph(text) + "\n" + markdown(head, rows)


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


def cell(data, column, place, peer, workload, *key):
    # A waiter calls acquire long before the queue begins to drain.
    if workload == "waiters" and column in ("p50_us", "p99_us"):
        return ""
    return number(data.value(column, place, peer, workload, *key))


def whole_tables(data):
    out = []
    for place in data.places():
        name, rows = how(place), []
        for key in workloads(data, place):
            for peer in data.peers():
                if runs := data.runs(place, peer, *key):
                    spread = data.spread(place, peer, *key)
                    rows.append(
                        [
                            what(*key),
                            NAMES[peer],
                            str(len(runs)),
                            "" if spread is None else f"{spread:.0f} %",
                            *(cell(data, c, place, peer, *key) for c, _ in WHOLE),
                            data.safe(place, peer, *key),
                        ]
                    )
        head = ["workload", "client", "runs", "±", *(title for _, title in WHOLE), "safe"]
        out.append(f"## {name[0].upper()}{name[1:]}\n\n{markdown(head, rows)}\n")
    return "".join(out)


def memory_table(data):
    """From our own lines: by how much the process grew for each."""
    names = {
        "sessions": "session",
        "waiters": "waiter",
        "locks": "lock object",
        "held": "held lock",
    }
    rows, base = [], data.base()
    for key in workloads(data, base):
        if key[0] == "objects":
            run = data.runs(base, "ours", *key)[0]
            memory = run["mb_per_tenth"]
            text = f"{number(memory[0])} MB after a tenth of the calls, {number(memory[-1])} MB after all"
            rows.append([f"{what(*key)}, on {run['paths']:,} paths", text, ""])
            continue
        each = data.value("bytes_each", base, "ours", *key)
        if each is None or key[0] not in names:
            continue
        blocks = data.runs(base, "ours", *key)[0].get("ms_per_1000", [])
        rows.append(
            [
                what(*key),
                f"{each / 1024:,.1f} KB for each {names[key[0]]}",
                f"{number(blocks[0])} and {number(blocks[-1])} ms" if len(blocks) > 1 else "",
            ]
        )
    head = ["process with", "memory", "the first and the last 1,000 took"]
    return markdown(head, rows) + "\n" if rows else ""


CAPTIONS = {
    "uncontended": "The floors are the same protocol on one bare blocking socket, without "
    "recovery, deadlines or leases: they show what the least can cost.",
    "threads": "Threads of one process hand the lock to each other without asking the server, "
    "for 20 ms at most while others wait.",
    "handoff": "From just before the release in one process until the lock is held in the next.",
    "waiters": "A holder lets go, and so many waiters, in so many sessions, hold the lock "
    "one after the other.",
}


def measured_page(data):
    first = data.lines[0]
    machine, versions = first["machine"], first["versions"]
    disturbed, figures = data.disturbed()
    out = ["\n# Measured\n\n"]
    out.append(
        paragraph(
            f"`bench/compare` measured this on {first['date'][:10]}, at commit {first['commit']}, "
            f"and wrote it. Each figure is the median of its runs on one machine, with "
            f"{plural(machine['cores'], 'core')} that clients and servers share "
            f"({machine['processor']}), {machine['memory_gb']} GB, Linux {machine['kernel']}. The "
            "clients ran in turn against the same servers: "
            + ", ".join(f"{PROGRAMS.get(name, name)} {version}" for name, version in versions.items())
            + ". `±` is half the range of the runs. `safe`: the counter that the lock protected "
            "came out right, and by the machine's clock no two holders overlapped. "
            + (
                f"Other programs disturbed all runs of {disturbed} of {plural(figures, 'figure')}."
                if disturbed
                else "No figure is from a run that other programs disturbed."
            )
        )
        + "\n"
    )
    for name, svg in plots(data):
        if svg is not None:
            out.append(f"{svg}\n")
            out.append(f"{paragraph(CAPTIONS[name])}\n" if name in CAPTIONS else "")
    memory = memory_table(data)
    if memory:
        out.append(
            "## Memory\n\nBy how much the process grew (resident memory, the stacks of waiting "
            "threads included):\n\n" + memory
        )
    out.append("# All figures\n\n" + whole_tables(data))
    return "".join(out).rstrip("\n") + "\n"


# ---- files ----

README, BESIDE, MEASURED = "README.md", "src/guide/peers.md", "src/guide/measured.md"


def between(text, name, new):
    """The text with `new` between the marks of bench/compare."""
    marks = re.compile(r"(<!-- bench/compare writes this -->\n).*?(<!-- up to here -->\n)", re.S)
    if len(marks.findall(text)) != 1:
        raise ValueError(f"{name} does not have the marks of bench/compare once")
    return marks.sub(lambda found: found[1] + "\n" + new + "\n" + found[2], text)


def write(data, tree, into):
    """Writes the pages of the project in `tree` to their places below `into`. Returns the files."""
    texts = {MEASURED: measured_page(data)}
    parts = ((README, short_table(data)), (BESIDE, beside_table(data) + floors_table(data)))
    for name, new in parts:
        with open(os.path.join(tree, name)) as f:
            texts[name] = between(f.read(), name, new)
    for name, text in texts.items():
        place = os.path.join(into, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w") as f:
            f.write(text)
    return list(texts)


def draw(data, directory):
    """Each picture in a file of its own."""
    os.makedirs(directory, exist_ok=True)
    for name, svg in plots(data):
        if svg is not None:
            with open(os.path.join(directory, f"{name}.svg"), "w") as f:
                f.write(str(svg))
