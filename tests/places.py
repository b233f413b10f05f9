"""Finds places in the library's source text by what stands there, and not by file and line.

A place is an item (a function, a constant or a static) and a phrase of code in it. The item is
given by its name, `removal_goes_on`, or, if several items have this name, with the type, trait or
inline module around it, `Machine::new`. The phrase stands once in all items that are so called. So
the place is found again when the item has moved to another file or folder, or when the code around
the phrase has changed.

Phrases are compared without white space, comments, and commas before closing brackets. A phrase
that begins or ends with a word begins or ends there in the text too. `sim/copies.rs` finds the
same places for the copies that are compiled there.
"""

import difflib
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HELP = "CONTRIBUTING.md says what to do with a mutant that no longer applies"


class Wrong(Exception):
    """The table or a detector is wrong, so there is no result for a mutant."""


def roots():
    """The folders of the library's source text, from the top of the repository."""
    lines = (ROOT / "tests/library_roots.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def library(tree):
    """The library's source files in this tree: their texts, by path."""
    files = [file for root in roots() for file in sorted((tree / root).rglob("*.rs"))]
    return {str(file.relative_to(tree)): file.read_text() for file in files}


# ---- Rust ----

COMMENT = r"//[^\n]*|/\*.*?\*/"
RAW_STRING = r'b?r(?P<hashes>\#*)".*?"(?P=hashes)'
STRING = r'b?"(?:\\.|[^"\\])*"'
CHARACTER = r"b?'(?:\\u\{\w+\}|\\x\w\w|\\.|[^\\'\n])'"  # and no lifetime
COMMENT_OR_LITERAL = re.compile(
    rf"(?P<comment>{COMMENT})|(?<!\w)(?:{RAW_STRING}|{STRING}|{CHARACTER})", re.DOTALL
)


def blank(text, literals=True):
    """The text with spaces in place of comments, and of strings and characters."""

    def spaces(match):
        return re.sub(r"[^\n]", " ", match[0]) if literals or match["comment"] else match[0]

    return COMMENT_OR_LITERAL.sub(spaces, text)


def squeezed(text):
    """The characters of a text that neither the formatter nor a comment changes, and where they
    are."""
    text = blank(text, literals=False)
    places = [i for i, c in enumerate(text) if not c.isspace()]
    kept = [
        i
        for i, after in zip(places, places[1:] + [None])
        if not (text[i] == "," and after is not None and text[after] in ")]}")
    ]
    return "".join(text[i] for i in kept), kept


def end_of_item(code, at, is_function):
    """Where an item ends: behind its `;`, or behind the bracket that closes its body."""
    depth = 0
    for bracket in re.compile(r"[\[({})\];]").finditer(code, at):
        depth += {"[": 1, "(": 1, "{": 1, ";": 0}.get(bracket[0], -1)
        if depth == 0 and (bracket[0] == ";" or bracket[0] == "}" and is_function):
            return bracket.end()
    return len(code)


def name_around(header):
    """What an `impl`, a trait or a module is called: of an `impl`, its type."""
    header = header.replace("->", "  ")
    while (without := re.sub(r"<[^<>]*>", "", header)) != header:
        header = without
    words = re.findall(r"\w+", re.split(r"\bwhere\b", re.split(r"\bfor\b", header)[-1])[0])
    return words[-1] if header.lstrip().startswith("impl") and words else words[1]


ITEM = re.compile(
    r"^ *(?:pub(?:\([^)]*\))? +)?"
    r"(?:(?:const +|async +)*(fn) +(\w+)|(?:const|static) +(\w+) *:)",
    re.MULTILINE,
)


@lru_cache(maxsize=None)
def items(text):
    """The items of a text: name, name around it, begin and end."""
    code = blank(text)
    outer = []
    heads = r"^ *(?:pub(?:\([^)]*\))? +)?(?:(?:impl|trait)\b[^;{]*|mod +\w+ *)\{"
    for head in re.finditer(heads, code, re.MULTILINE):
        header = re.sub(r"^ *pub(\([^)]*\))?", "", head[0][:-1])
        outer.append((head.start(), end_of_item(code, head.end() - 1, True), name_around(header)))
    found = []
    for item in ITEM.finditer(code):
        begin = item.start()
        end = end_of_item(code, item.end(), item[1] == "fn")
        around = [name for first, last, name in outer if first <= begin < last]
        found.append((item[2] or item[3], around[-1] if around else None, begin, end))
    return found


@lru_cache(maxsize=None)
def occurrences(text, phrase):
    """The places of this code in a text: pairs of begin and end."""
    (whole, places), (part, _) = squeezed(text), squeezed(phrase)
    found, at = [], whole.find(part)
    while at >= 0:
        begin, end = places[at], places[at + len(part) - 1] + 1
        if not (
            begin and re.match(r"\w\w", text[begin - 1 : begin + 1])
            or re.match(r"\w\w", text[end - 1 : end + 1])
        ):
            found.append((begin, end))
        at = whole.find(part, at + 1)
    return found


# ---- places ----


def called(files, name):
    """The items with this name: path, begin and end. An item that is inside another is a part of
    it."""
    *around, last = name.split("::")
    found = []
    for path, text in files.items():
        if last not in text:
            continue
        inside = 0
        for own, outer, begin, end in items(text):
            if own == last and around in ([], [outer]) and begin >= inside:
                found.append((path, begin, end))
                inside = end
    return found


def place(files, name, phrase):
    """Where the phrase stands in the item: path, begin and end."""
    within = called(files, name)
    found = [
        (path, begin + first, begin + last)
        for path, begin, end in within
        for first, last in occurrences(files[path][begin:end], phrase)
    ]
    if len(found) == 1:
        return found[0]
    shown = f"`{' '.join(phrase.split())}`"
    if found:
        lines = ", ".join(line(files, path, begin) for path, begin, _ in found)
        types = ", ".join(names_like(files, name, 1.0))
        types = "" if "::" in name else f", or name the type: {types}"
        raise Wrong(
            f"{shown} stands {len(found)} times in `{name}`: {lines}. Make the phrase longer{types}"
        )
    elsewhere = [
        f"`{outer + '::' if outer else ''}{own}` ({line(files, path, begin)})"
        for path, text in files.items()
        for own, outer, begin, end in items(text)
        if occurrences(text[begin:end], phrase)
    ]
    also = f"; the phrase stands in {', '.join(elsewhere[:5])}" if elsewhere else ""
    if within:
        lines = ", ".join(line(files, path, begin) for path, begin, _ in within[:5])
        raise Wrong(f"`{name}` ({lines}) does not have {shown}{also}. {HELP}")
    like = names_like(files, name, 0.6)
    like = f"; similar names: {', '.join(like[:5])}" if like else ""
    raise Wrong(f"no item below {' or '.join(roots())} is called `{name}`{also}{like}. {HELP}")


def line(files, path, at):
    return f"{path}:{files[path].count(chr(10), 0, at) + 1}"


def names_like(files, name, least):
    """Names of items that are like this one, the most similar first, with what is around them."""
    last = name.split("::")[-1]
    like = {}
    for text in files.values():
        for own, outer, _, _ in items(text):
            ratio = difflib.SequenceMatcher(None, last, own).ratio()
            if ratio >= least:
                like[f"`{outer}::{own}`" if outer else f"`{own}`"] = ratio
    return sorted(like, key=like.get, reverse=True)


def tests(root, files):
    """The names of the unit tests in the files of this root, as the test program has them."""
    names = []
    for path, text in files.items():
        if not path.startswith(f"{root}/") or "#[test]" not in text:
            continue
        modules = path[len(root) + 1 : -len(".rs")].split("/")
        if modules[-1] in ("mod", "lib"):
            modules.pop()
        code = blank(text)
        heads = re.finditer(r"^ *(?:pub(?:\([^)]*\))? +)?mod +(\w+) *\{", code, re.MULTILINE)
        inline = [
            (head[1], head.start(), end_of_item(code, head.end() - 1, True)) for head in heads
        ]
        for test in re.finditer(r"#\[test\](?:\s*#!?\[[^\]]*\])*\s*fn +(\w+)", code):
            around = [name for name, begin, end in inline if begin < test.start() < end]
            names.append("::".join([*modules, *around, test[1]]))
    return names
