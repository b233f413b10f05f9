"""Checks that the ledger's checks can fail, with ledgers of groups whose lock does not work."""

from ledger import Replay, Violation

ALONE = ["+ write 3 a-0.0 0", "- write 3 a-0.0 1"]

# Each ledger has its number of leases (0: a lock) and the expected failure; none if it is correct.
LEDGERS = [
    (ALONE + ["+ write 4 b-0.0 1", "- write 4 b-0.0 2"], 0, None),
    (
        ["+ read 1 a-0.0 0", "+ read 0 b-0.0 0", "- read 1 a-0.0 0", "- read 0 b-0.0 0"] + ALONE,
        0,
        None,
    ),
    (
        ALONE + ["+ stay 3 a-0.0 1", "+ read 4 b-0.0 1", "- stay 3 a-0.0 1", "- read 4 b-0.0 1"],
        0,
        None,
    ),
    (["+ read 2 a-0.0 0", "+ read 1 b-0.0 0", "- read 2 a-0.0 0", "- read 1 b-0.0 0"], 2, None),
    (["+ write 3 a-0.0 0", "+ write 4 b-0.0 0"], 0, "enters beside"),
    (["+ write 3 a-0.0 0", "+ read 4 b-0.0 0"], 0, "enters beside"),
    (["+ read 3 a-0.0 0", "+ write 4 b-0.0 0"], 0, "enters beside"),
    (["+ read 3 a-0.0 0", "+ read 4 b-0.0 0", "+ read 5 b-0.1 0"], 2, "enters beside"),
    (ALONE + ["+ write 4 b-0.0 0"], 0, "finds a count of 0 after 1"),
    (["+ write 3 a-0.0 0", "- write 3 a-0.0 2"], 0, "leaves a count of 2 after 1"),
    (ALONE + ["+ write 2 b-0.0 1"], 0, "comes after 3"),
    (ALONE + ["+ read 2 b-0.0 1"], 0, "comes after 3"),
    (["+ read 4 a-0.0 0", "- read 4 a-0.0 0", "+ write 3 b-0.0 0"], 0, "comes after 4"),
    (ALONE + ["+ write 3 b-0.0 1"], 0, "for the second time"),
    (ALONE + ["+ write 4 b-0.0 1", "- write 4 b-0.0 2", "+ stay 3 a-0.0 2"], 0, "came in between"),
    (["+ write 3 a-0.0 0"], 0, "still inside"),
    (["- write 3 a-0.0 1"], 0, "did not enter"),
]


def check_the_checks():
    for lines, leases, due in LEDGERS:
        try:
            Replay(leases).follow(lines)
            seen = None
        except Violation as violation:
            seen = str(violation)
        if (seen is None) != (due is None) or due and due not in seen:
            raise AssertionError("%r is seen in %s" % (seen, lines))
