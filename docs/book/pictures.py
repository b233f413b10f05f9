#!/usr/bin/env python3
"""Draws the pictures of the guide: writes them into its chapters.

  docs/book/pictures.py            draws each picture where its chapter has the marks for it
  docs/book/pictures.py --check    fails if a picture in a chapter is not as it would be drawn
  docs/book/pictures.py --svg DIR  writes each picture into a file of its own, to look at it

The marks are two comments in the chapter, `<!-- picture: NAME -->` and `<!-- end of NAME -->`. The
picture stands between them as SVG in the Markdown, so rustdoc and the book show it alike. It takes
the colour of the text from the page, so it can be read on a light page as on a dark one; its own
colours are of middle brightness. All letters are large enough for a page of a phone's width.
"""

import argparse
import html
import re
import sys
import textwrap
from pathlib import Path

GUIDE = Path(__file__).resolve().parent.parent.parent / "src" / "guide"

WIDTH = 520  # a phone shows this at two thirds of its size
SIZE, SMALL = 16, 15  # of letters

VALID, LOST, OTHER, FAULT = "#2f9e6e", "#d9603b", "#3f8fd2", "#8a8a8a"


class Picture:
    """A picture: its parts, by absolute coordinates, in the order in which they are painted."""

    def __init__(self, name, height, title, says):
        self.name, self.height, self.title, self.says, self.parts = name, height, title, says, []
        self.text(10, 20, title, weight="bold", size=17)

    def add(self, tag, **attributes):
        self.parts.append(f"<{tag} {self.attributes(attributes)}/>")

    @staticmethod
    def attributes(attributes):
        def show(value):
            return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value

        return " ".join(
            f'{key.rstrip("_").replace("_", "-")}="{show(value)}"'
            for key, value in attributes.items()
            if value is not None
        )

    def text(self, x, y, text, anchor=None, size=None, weight=None, fill=None, mono=False):
        attributes = {"x": x, "y": y, "text_anchor": anchor, "font_size": size}
        attributes |= {"font_weight": weight, "fill": fill}
        attributes["font_family"] = "monospace" if mono else None
        self.parts.append(
            f"<text {self.attributes(attributes)}>{html.escape(text, quote=False)}</text>"
        )

    def lines(self, x, y, text, step=19, **how):
        for number, line in enumerate(text.split("\n")):
            self.text(x, y + number * step, line, **how)

    def line(self, x1, y1, x2, y2, colour="currentColor", width=1.5, dash=None, faint=None):
        self.add(
            "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=width,
            stroke_dasharray=dash, stroke_opacity=faint,
        )

    def head(self, x, y, dx, dy, colour):
        """The head of an arrow that comes to (x, y) in the direction (dx, dy)."""
        length = (dx * dx + dy * dy) ** 0.5
        dx, dy = dx / length, dy / length
        points = [(x, y)]
        for side in (1, -1):
            points.append((x - 9 * dx - side * 4.5 * dy, y - 9 * dy + side * 4.5 * dx))
        self.add("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), fill=colour)

    def arrow(self, x1, y1, x2, y2, colour="currentColor", **how):
        self.line(x1, y1, x2, y2, colour, **how)
        self.head(x2, y2, x2 - x1, y2 - y1, colour)

    def watch(self, x, y1, y2, out, colour=OTHER):
        """An arrow from a box to one above it, in a bow on the right."""
        self.add(
            "path", d=f"M {x} {y1} C {x + out} {y1} {x + out} {y2} {x + 6} {y2}", fill="none",
            stroke=colour, stroke_width=2,
        )
        self.head(x, y2, -1, 0, colour)

    def box(self, x, y, width, height, colour=None, text=None, strong=0.22, mono=False, dash=None):
        self.add(
            "rect", x=x, y=y, width=width, height=height, rx=4, fill=colour or "none",
            fill_opacity=strong if colour else None, stroke=colour or "currentColor",
            stroke_width=1.5, stroke_dasharray=dash,
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 5, text, "middle", SMALL, mono=mono)

    def band(self, x, y, width, height):
        """A time in which a fault lasts, behind what happens in it."""
        self.add("rect", x=x, y=y, width=width, height=height, fill=FAULT, fill_opacity=0.28)

    def span(self, x1, x2, y, text=None, above=True, at=None):
        """A measure from x1 to x2."""
        for x in (x1, x2):
            self.line(x, y - 5, x, y + 5)
        self.line(x1, y, x2, y)
        middle = (x1 + x2) / 2 if at is None else at
        if text:
            self.text(middle, y - 9 if above else y + 19, text, "middle", SMALL)

    def __str__(self):
        ids = f"picture-{self.name}-title picture-{self.name}-says"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH}" height="{self.height}" '
            'style="display:block;max-width:100%;height:auto;margin:1em 0" '
            f'font-family="sans-serif" font-size="{SIZE}" fill="currentColor" role="img" '
            f'aria-labelledby="{ids}">',
            f'<title id="picture-{self.name}-title">{html.escape(self.title, quote=False)}</title>',
            f'<desc id="picture-{self.name}-says">{html.escape(self.says, quote=False)}</desc>',
            *self.parts,
            "</svg>",
        ]
        # Markdown takes the first line for HTML only if it is one tag and nothing else.
        wrapped = [lines[0]]
        for line in lines[1:]:
            wrapped += textwrap.wrap(line, 100, break_long_words=False, break_on_hyphens=False)
        return "\n".join(wrapped)


def queue(name, title, says, rows, watches, end):
    """The children of a lock, the first one above, and who watches whom."""
    top, step = 66, 58
    picture = Picture(name, top + step * len(rows) + 26 + 19 * end.count("\n"), title, says)
    picture.text(10, 46, "children of the node /locks/orders, in their order", size=SMALL)
    for row, (owner, node, state) in enumerate(rows):
        y = top + step * row
        colour = VALID if state == "holds" else None
        picture.text(10, y + 18, owner)
        picture.text(10, y + 37, state, size=SMALL, weight="bold" if colour else None)
        picture.box(106, y + 2, 268, 38, colour, node, mono=True)
    for watcher, watched in watches:
        picture.watch(
            376, top + step * watcher + 15,
            top + step * watched + 24 + 10 * (watched + 1 < watcher),
            36 + 24 * (watcher - watched),
        )
    picture.text(434, top + step * watches[0][1] + 52, "watches", size=SMALL)
    picture.lines(10, top + step * len(rows) + 16, end, size=SMALL)
    return picture


def queue_of_mutex():
    return queue(
        "queue",
        "A mutex: who watches whom",
        "The lock's node has three children. The first one, of process A, holds the lock. B "
        "watches the node of A, and C watches the node of B. When A releases, only B hears of it.",
        [
            ("process A", "_c_a1b2..-lock-0000000007", "holds"),
            ("process B", "_c_c3d4..-lock-0000000008", "waits"),
            ("process C", "_c_e5f6..-lock-0000000009", "waits"),
        ],
        [(1, 0), (2, 1)],
        "A releases: its node is deleted. The server tells B alone,\nand B holds the lock.",
    )


def queue_of_rwlock():
    return queue(
        "readers",
        "A read/write lock: who watches whom",
        "The lock's node has six children: two readers that hold the lock together, a writer that "
        "watches the second reader, two readers that both watch that writer, and a writer that "
        "watches the last of these readers.",
        [
            ("reader A", "_c_a1b2..-__READ__0000000004", "holds"),
            ("reader B", "_c_c3d4..-__READ__0000000005", "holds"),
            ("writer C", "_c_e5f6..-__WRIT__0000000006", "waits"),
            ("reader D", "_c_0718..-__READ__0000000007", "waits"),
            ("reader E", "_c_293a..-__READ__0000000008", "waits"),
            ("writer F", "_c_4b5c..-__WRIT__0000000009", "waits"),
        ],
        [(2, 1), (3, 2), (4, 2), (5, 4)],
        "A reader watches the last writer ahead of it, a writer the\n"
        "node just ahead. C releases: D and E hold it together.",
    )


def flight():
    picture = Picture(
        "flight",
        356,
        "One lock(): request after request, or one flight",
        "On the left a client sends the create, waits for its answer, sends the listing and waits "
        "again: two round trips. On the right it sends both together and waits once: one round "
        "trip. In both cases the servers write the create to their disks.",
    )
    for left, title in ((0, "request after request"), (262, "one flight")):
        client, server = left + 40, left + 206
        picture.text(left + 123, 50, title, "middle", weight="bold")
        picture.text(client, 78, "client", "middle", SMALL)
        picture.text(server, 78, "server", "middle", SMALL)
        for x in (client, server):
            picture.line(x, 86, x, 318, faint=0.5)

        def step(y, text, to_server, below=False):
            start, end = (client, server) if to_server else (server, client)
            picture.arrow(start, y, end, y + 16, OTHER if to_server else VALID, width=2)
            picture.text(left + 123, y + (29 if below else -2), text, "middle", SMALL)

        def write(y):
            picture.box(server - 7, y, 14, 34, LOST, strong=0.9)
            picture.text(server + 10, y + 22, "fsync", size=SMALL)

        if left == 0:
            step(104, "create2", True)
            write(122)
            step(158, "name, czxid", False)
            step(212, "getChildren", True)
            step(254, "the children", False)
            picture.box(client - 7, 272, 14, 40, VALID, strong=0.9)
            picture.text(left + 56, 298, "first: held", size=SMALL)
        else:
            step(104, "create2", True)
            step(118, "getChildren", True, below=True)
            write(136)
            step(186, "name, czxid", False)
            step(200, "the children", False, below=True)
            picture.box(client - 7, 218, 14, 94, VALID, strong=0.9)
            picture.text(left + 56, 264, "first: held", size=SMALL)
    picture.text(123, 346, "waits for two round trips", "middle", SMALL)
    picture.text(385, 346, "waits for one", "middle", SMALL)
    return picture


def hand_over():
    picture = Picture(
        "hand-over",
        392,
        "Hand-over between the threads of a process",
        "Thread 1 of process P makes a node, and holds the lock. When it releases, thread 2 has "
        "the lock at once, with the same node, and then thread 3: nothing is sent. At the first "
        "release later than 20 ms after the node became the first in the queue, the node is "
        "deleted, and process Q, which has waited, holds the lock. Thread 4 of P queues behind Q.",
    )
    server, lane = 78, [136, 182, 228, 274, 328]
    picture.text(10, server - 14, "server", size=SMALL)
    picture.line(10, server, 510, server)
    for number, y in enumerate(lane, 1):
        picture.text(10, y + 6, f"P, thread {number}" if number < 5 else "process Q", size=SMALL)

    begin, end = 148, 398

    def wait(y, x1, x2):
        picture.line(x1, y, x2, y, width=2, dash="3 5")

    picture.arrow(124, lane[0] - 12, 136, server + 2, OTHER)
    picture.arrow(138, server, begin, lane[0] - 12, VALID)
    picture.text(152, server + 22, "create2, getChildren", size=SMALL)
    holds = [(begin, 222), (222, 300), (300, end)]
    for (x1, x2), y in zip(holds, lane):
        if y != lane[0]:
            wait(y, 104, x1)
        picture.box(x1, y - 12, x2 - x1, 24, VALID, "holds")
    wait(lane[0], 104, 124)
    for x, y in ((222, lane[0]), (300, lane[1])):
        picture.arrow(x, y + 12, x, y + 33, VALID, width=2.5)
    picture.text(232, lane[0] + 5, "hand-over: 0 requests", size=SMALL)
    picture.arrow(end, lane[2] - 12, end + 10, server + 2, OTHER)
    picture.text(end + 14, server + 22, "delete", size=SMALL)
    picture.arrow(end + 12, server, end + 28, lane[4] - 12, VALID)
    wait(lane[4], 104, end + 28)
    picture.box(end + 28, lane[4] - 12, 84, 24, OTHER, "holds")
    picture.text(104, lane[3] + 5, "comes late, queues behind Q", size=SMALL)
    wait(lane[3], 336, 510)
    y = 364
    bound = begin + 200
    picture.line(bound, lane[2] + 14, bound, y, dash="2 4")
    picture.span(begin, bound, y, "hand_over: 20 ms", above=False)
    picture.lines(bound + 10, y + 5, "a release after that\ndeletes the node", size=SMALL)
    return picture


def lease():
    picture = Picture(
        "lease",
        386,
        "The life of a lease",
        "T is the session timeout. The session sends a request each eighth of T. The request r, "
        "which is sent at the time s, is answered. At least half a tick and T/12 later, which is "
        "T/3 if the tick is T/2, f is sent, and behind its answer f2. When f2 is answered, at s + "
        "T/2, it is proven that the leader heard of the session at s or later, so the lease ends "
        "at s + T - T/12, and 5/12 T of it are left. Then an outage begins. At the end of the "
        "lease the guard is lost, without any request. The leader expires the session T after it "
        "last heard of it, so at s + T at the earliest, which is T/12 later, and only then "
        "another can hold the lock.",
    )
    zero, unit = 34, 360

    def at(part):
        return zero + unit * part

    end, axis = at(11 / 12), 334
    picture.band(at(0.53), 78, 510 - at(0.53), axis - 78)
    picture.text((at(0.53) + 510) / 2, 98, "an outage", "middle", SMALL)

    # What the session sends.
    y = 118
    picture.text(10, 48, "the session sends a request every T/8", size=SMALL)
    picture.line(at(0), y, at(0.53), y, faint=0.5)
    for number in range(5):
        is_named = number in (0, 3, 4)
        picture.add("circle", cx=at(number / 8), cy=y, r=6 if is_named else 3.5, fill=OTHER)
    for part, name in ((0, "r"), (3 / 8, "f"), (1 / 2, "f2")):
        picture.text(at(part), y - 13, name, "middle", weight="bold")
    picture.span(at(1 / 8), at(2 / 8), y - 26, "T/8")
    picture.span(at(0), at(1 / 3), y + 20, "half a tick + T/12", above=False, at=at(0.2))

    # The guard.
    y = 214
    picture.line(at(1 / 2), 126, at(1 / 2), y - 18, dash="2 4")
    picture.text(at(1 / 2) - 6, y - 22, "f2 answered: proof", "end", SMALL)
    picture.span(at(1 / 2), end, y - 25, "5/12 T are left", at=(at(1 / 2) + end) / 2 + 8)
    picture.box(10, y - 15, end - 10, 30, VALID)
    picture.text(18, y + 5, "the guard is valid", size=SMALL)
    picture.box(end, y - 15, 510 - end, 30, LOST, "lost, for good")

    # The leader.
    y = 284
    picture.span(end, at(1), y - 32)
    picture.text(end - 8, y - 27, "margin T/12", "end", SMALL)
    picture.box(10, y - 15, at(1) - 10, 30, FAULT)
    picture.text(18, y + 5, "the leader: it heard us at s, or later", size=SMALL)
    picture.box(at(1), y - 15, 510 - at(1), 30, OTHER, "may expire")
    picture.lines(at(1) + 8, y + 31, "another\nmay hold", 17, size=SMALL)

    # The time.
    picture.line(10, axis, at(1), axis)
    for number in range(8):
        picture.line(at(number / 8), axis, at(number / 8), axis + 6)
    for part, top, bottom in ((0, 172, 197), (0, 231, 267), (0, 301, axis), (11 / 12, 231, 247),
                              (11 / 12, 257, 267), (11 / 12, 301, axis + 26), (1, 301, axis + 6)):
        picture.line(at(part), top, at(part), bottom, dash="2 4")
    picture.text(at(0), axis + 22, "s", "middle", SMALL)
    picture.text(at(1 / 2), axis + 22, "s + T/2", "middle", SMALL)
    picture.text(end + 6, axis + 40, "s + T − T/12", "end", SMALL)
    picture.text(at(1) - 4, axis + 22, "s + T", size=SMALL)
    return picture


def faults():
    left, right = 10, 510
    # Each fault: what it is; from when to when it lasts; the bars of the holder, and those of
    # others; what stands in the line of the others at its left.
    next_one = "the next holder"
    rows = [
        (
            "A short outage, a new leader, a server that lags,\nan ACL that refuses",
            (170, 270),
            [(left, right, VALID, "the guard is valid")],
            [],
            "others go on waiting, in their place",
        ),
        (
            "An outage that lasts until the lease ends",
            (170, right),
            [(left, 290, VALID, "valid"), (290, right, LOST, "LeaseExpired")],
            [(330, right, OTHER, next_one)],
            None,
        ),
        (
            "The servers have no quorum",
            (170, right),
            [(left, 290, VALID, "valid"), (290, right, LOST, "LeaseExpired")],
            [],
            "nobody gets the lock without a quorum",
        ),
        (
            "The host sleeps, or the process is stopped",
            (170, 450),
            [(left, 290, VALID, "valid"), (290, right, LOST, "it wakes: LeaseExpired")],
            [(330, right, OTHER, next_one)],
            None,
        ),
        (
            "Somebody deletes its node, or closes its session",
            (168, 172),
            [(left, 224, VALID, "valid"), (224, right, LOST, "NodeDeleted or SessionExpired")],
            [(172, right, OTHER, next_one)],
            "two for a moment:",
        ),
        (
            "The servers refuse its credentials, a thread of the\n"
            "library fails, or its session is closed here",
            (168, 172),
            [
                (left, 172, VALID, "valid"),
                (172, right, LOST, "AuthFailed, Internal, SessionClosed"),
            ],
            None,
            None,
        ),
        (
            "The guard is held for longer than max_hold",
            None,
            [(left, 220, VALID, "valid"), (220, right, LOST, "HeldTooLong")],
            [(360, right, OTHER, next_one)],
            "others wait until the guard is dropped",
        ),
        (
            "The process forks",
            (168, 172),
            [(left, right, VALID, "valid in the parent")],
            [(172, right, LOST, "Forked, in the child")],
            None,
        ),
        (
            "The holder's thread panics: the guard is dropped",
            (168, 172),
            [(left, 168, VALID, "valid")],
            [(178, right, OTHER, next_one)],
            None,
        ),
        (
            "The holder's process is killed",
            (168, 172),
            [(left, 168, VALID, "valid")],
            [(360, right, OTHER, next_one)],
            "until the servers expire its session",
        ),
    ]
    heights = [18 * len(row[0].split("\n")) + (32 if row[3] is None else 60) for row in rows]
    picture = Picture(
        "faults",
        62 + sum(heights) + 16 * (len(rows) - 1) + 6,
        "What a holder sees of each fault",
        "For each fault a line of time, with the holder above and others below. A short outage: "
        "the guard stays valid. An outage that lasts until the lease ends, servers without a "
        "quorum, a host that sleeps: the guard is lost when its lease ends, a quarter to 5/12 of "
        "the session timeout after the outage began, and before another can hold the lock. The "
        "node is deleted or the session closed by others: another holds the lock at once, and the "
        "guard is lost a moment later. The other faults end the guard at once; the table has each "
        "of them.",
    )
    picture.band(10, 34, 26, 16)
    picture.text(44, 47, "the fault; time goes from left to right", size=SMALL)
    top = 62
    for (label, fault, holder, others, note), height in zip(rows, heights):
        picture.lines(10, top + 14, label, 18, size=SMALL, weight="bold")
        y = top + 18 * len(label.split("\n")) + 4
        if fault:
            picture.band(fault[0], y - 2, fault[1] - fault[0], height - (y - top) + 2)
        for bars, row in ((holder, y), (others or [], y + 28)):
            for x1, x2, colour, text in bars:
                picture.box(x1, row, x2 - x1, 24, colour, text)
        if note:
            picture.text(10, y + 45, note, size=SMALL)
        if label.startswith("An outage"):
            picture.span(fault[0], holder[0][1], y + 34, "T/4 to 5/12 T", above=False)
        top += height + 16
    return picture


def fencing():
    picture = Picture(
        "fencing",
        352,
        "Fencing: the store refuses a late write",
        "Holder A has the token 33 and writes; the store keeps 33 as the fence. A is paused until "
        "its lease has ended. Holder B gets the lock with the token 34 and writes; the store "
        "keeps 34. A wakes and writes with the token 33: the store refuses that, because 33 is "
        "less than 34.",
    )
    a, store, b = 92, 196, 296
    picture.band(176, 46, 236, 68)
    picture.text(294, 64, "A is paused", "middle", SMALL)
    for y, name in ((a, "holder A"), (store, "the store"), (b, "holder B")):
        picture.text(10, y + 5, name, size=SMALL)
    picture.box(92, a - 15, 148, 30, VALID, "valid, token 33")
    picture.box(240, a - 15, 270, 30, LOST)
    picture.text(326, a + 5, "lost", "middle", SMALL)
    picture.box(282, b - 15, 228, 30, VALID, "valid, token 34")
    picture.box(92, store - 15, 56, 30, FAULT, "0")
    picture.box(148, store - 15, 192, 30, FAULT, "fence 33")
    picture.box(340, store - 15, 170, 30, FAULT, "fence 34")
    picture.arrow(136, a + 16, 146, store - 17, VALID, width=2)
    picture.text(150, a + 52, "writes: 33", size=SMALL)
    picture.arrow(328, b - 16, 338, store + 17, VALID, width=2)
    picture.text(322, b - 46, "writes: 34", "end", SMALL)
    picture.arrow(432, a + 16, 442, store - 20, LOST, width=2)
    picture.text(428, a + 52, "writes: 33", "end", SMALL)
    picture.line(435, store - 24, 449, store - 10, LOST, width=3)
    picture.line(435, store - 10, 449, store - 24, LOST, width=3)
    picture.text(510, store + 36, "refused: 33 < 34", "end", SMALL, weight="bold")
    picture.text(10, b + 42, "A's next check() says that the lock is lost.", size=SMALL)
    return picture


PICTURES = [
    ("which_lock.md", queue_of_mutex),
    ("which_lock.md", queue_of_rwlock),
    ("which_lock.md", hand_over),
    ("costs.md", flight),
    ("guarantees.md", lease),
    ("faults.md", faults),
    ("fencing.md", fencing),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--svg", type=Path, metavar="DIR")
    args = parser.parse_args()
    wrong = []
    for file, draw in PICTURES:
        picture = draw()
        if args.svg:
            (args.svg / f"{picture.name}.svg").write_text(f"{picture}\n")
            continue
        chapter = GUIDE / file
        begin, end = f"<!-- picture: {picture.name} -->", f"<!-- end of {picture.name} -->"
        old = chapter.read_text()
        new, found = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{picture}\n{end}", old,
            flags=re.S,
        )
        if found != 1:
            sys.exit(f"docs/book/pictures.py: {file} has the marks of {picture.name} {found} times")
        if new != old and args.check:
            wrong.append(f"{picture.name} in src/guide/{file}")
        elif new != old:
            chapter.write_text(new)
    if wrong:
        sys.exit(f"docs/book/pictures.py draws otherwise: {', '.join(wrong)}; run it, and look")


main()
