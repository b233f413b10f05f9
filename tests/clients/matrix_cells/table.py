"""The tables of the guide that the matrix prints, and what they say."""

from cells import DEFAULT, KAZOO, THEIRS, pair

PAGE = "src/guide/interop.md"
BEGIN, END = "<!-- tests/clients/matrix --print -->\n", "<!-- end of the matrix -->\n"
BETWEEN = " / "  # what is said if theirs comes second, and if ours does


def rows(ours):
    """The client, the head, and the places of each row; a place has two cells."""
    for client, recipes in THEIRS.items():
        for recipe in recipes:
            places = [pair(client, recipe, column) for column in ours]
            yield client, "%s `%s`" % (client, recipe), places


def cells_of(clients):
    """All cells with these clients."""
    for ours in (DEFAULT, KAZOO):
        for client, _, places in rows(ours):
            for cells in places if client in clients else ():
                yield from cells


def as_text(found):
    """Both tables. `found` has the word of each cell, by its name."""

    def word(cells):
        words = [found[str(cell)] for cell in cells]
        return words[0] if words[0] == words[1] else BETWEEN.join(words)

    def table(ours):
        yield "| | %s |" % " | ".join(ours.values())
        yield "| --- |" + " --- |" * len(ours)
        for _, head, places in rows(ours):
            yield "| %s | %s |" % (head, " | ".join(map(word, places)))

    lines = [*table(DEFAULT), "", "With `Layout::Kazoo`:", "", *table(KAZOO)]
    return "".join(line + "\n" for line in lines)


def _parts():
    with open(PAGE) as page:
        before, rest = page.read().split(BEGIN)
    text, after = rest.split(END)
    return before, text, after


def put_into_page(found):
    before, _, after = _parts()
    text = before + BEGIN + as_text(found) + END + after
    with open(PAGE, "w") as page:
        page.write(text)


def on_page():
    """The word of each cell on the page, by the cell's name. A missing row gives nothing."""
    said, lines = {}, [line.strip("| ").split(" | ") for line in _parts()[1].splitlines()]
    for ours in (DEFAULT, KAZOO):
        for _, head, places in rows(ours):
            while lines and lines[0][0] != head:
                lines.pop(0)
            for cells, place in zip(places, lines.pop(0)[1:] if lines else ()):
                words = place.split(BETWEEN)
                said.update((str(cell), word) for cell, word in zip(cells, words * 2))
    return said
