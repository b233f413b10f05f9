"""Reads the notes of a group's members, and checks that a lock allows them.

The notes are in the order of events: each is written with one call, while the lock is held. So two
sections that overlap in the ledger were inside at once. And two sections that were inside at once
for longer than the notes take do overlap.
"""

from collections import Counter
from dataclasses import dataclass, field


class Violation(Exception):
    """Something that cannot happen if the lock works."""


@dataclass
class Note:
    enters: bool
    deed: str  # write, read, or stay (a read by a writer that has downgraded)
    number: int  # of the node, in the queue's order; None without a node
    who: str
    count: int  # the value of the counter

    def __str__(self):
        return "%s's %s%s" % (
            self.who,
            self.deed,
            "" if self.number is None else " (%d)" % self.number,
        )

    @property
    def client(self):
        return client_of(self.who)


def client_of(who):
    """A thread's name is CLIENT-PROCESS.THREAD."""
    return who.rsplit("-", 1)[0]


def parse(line):
    sign, deed, number, who, count = line.split(" ")
    if sign not in "+-" or deed not in ("write", "read", "stay"):
        raise Violation("a note that is none: %r" % line)
    return Note(sign == "+", deed, None if number == "-" else int(number), who, int(count))


@dataclass
class Tally:
    """The sums of the ledger."""

    sections: Counter = field(default_factory=Counter)  # by client
    writes: int = 0
    stays: int = 0  # not among the sections
    most: int = 0  # inside at once
    company: int = 0  # entered beside a section of another client
    turns: int = 0  # entered after a section of another client


class Replay:
    """Checks the notes. With `leases`, the sections of a semaphore are reads without an order."""

    def __init__(self, leases):
        self.tally, self._leases = Tally(), leases
        self._inside, self._last, self._writer = {}, None, None
        self._numbers, self._highest, self._highest_write = set(), -1, -1

    def follow(self, lines):
        for line in lines:
            note = parse(line)
            (self._enter if note.enters else self._leave)(note)
        if self._inside:
            raise Violation("still inside: %s" % ", ".join(map(str, self._inside.values())))
        return self.tally

    def _enter(self, note):
        inside, tally = self._inside, self.tally
        self._have_room_for(note)
        if note.count != tally.writes:
            raise Violation(
                "%s finds a count of %d after %d writes" % (note, note.count, tally.writes)
            )
        self._number(note)
        if any(other.client != note.client for other in inside.values()):
            tally.company += 1
        if self._last not in (None, note.client):
            tally.turns += 1
        self._last = note.client
        inside[note.who] = note
        if note.deed == "stay":
            tally.stays += 1
        else:
            tally.sections[note.client] += 1
        tally.most = max(tally.most, len(inside))

    def _have_room_for(self, note):
        inside = list(self._inside.values())
        if self._leases and note.deed == "read":
            if len(inside) >= self._leases:
                raise Violation("%s enters beside %s" % (note, ", ".join(map(str, inside))))
            return
        for other in inside:
            if "write" in (note.deed, other.deed):
                raise Violation("%s enters beside %s" % (note, other))

    def _number(self, note):
        if note.deed == "stay":
            if (note.who, note.number) != self._writer:
                raise Violation("%s does not follow its write: another came in between" % note)
            return
        if note.deed == "write":
            self._writer = note.who, note.number
        if note.number is None:
            return
        if note.number in self._numbers:
            raise Violation("%s has a number for the second time" % note)
        self._numbers.add(note.number)
        if self._leases:
            return
        ahead = self._highest if note.deed == "write" else self._highest_write
        if note.number < ahead:
            raise Violation("%s comes after %d" % (note, ahead))
        self._highest = max(self._highest, note.number)
        if note.deed == "write":
            self._highest_write = note.number

    def _leave(self, note):
        entered = self._inside.pop(note.who, None)
        if entered is None or (entered.deed, entered.number) != (note.deed, note.number):
            raise Violation("%s leaves, who did not enter" % note)
        if note.deed == "write":
            self.tally.writes += 1
        if note.count != self.tally.writes:
            raise Violation(
                "%s leaves a count of %d after %d writes" % (note, note.count, self.tally.writes)
            )
