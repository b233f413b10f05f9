#!/usr/bin/env python3
"""mdBook's preprocessor for this book: makes the chapters out of files of the repository.

A chapter's file beside SUMMARY.md has lines `{{#include PATH}}`. PATH is a Markdown file, or one
section of it (`ARCHITECTURE.md#why-the-lease-is-safe`), or a Rust file, of which its `//!` comment
is meant, or a file of YAML, which is shown as it is. What rustdoc or a directory of files would
show in another way is changed here:

- Links to an item (`crate::ZkMutex::lock`) go to the page of `cargo doc`, links to a chapter of the
  guide (`crate::guide::fencing`) or to a file that is a chapter go to the chapter. Of a link to any
  other file of the repository the name of the file is left.
- A code block of Rust loses the lines that rustdoc hides.
- If a chapter has several headings of the first level, as rustdoc wants it, all but its first
  heading go down by a level.

The build fails if a link leads nowhere, if a file of the guide is in no chapter or in two, or if
the order of SUMMARY.md differs from the tables in src/guide/mod.rs.
"""

import base64
import json
import posixpath
import re
import sys
from pathlib import Path

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent.parent
GUIDE = "src/guide"
FACES = {"zk_mutex": "public_face.txt", "zk_session": "public_face_of_session.txt"}

INCLUDE = re.compile(r"^\{\{#include (\S+?)(?:#(\S+))?\}\}$", re.M)
LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`])+)\]\(([^()\s]+)\)")
OF_A_CHAPTER = re.compile(r"\[`(\w+)`\](?![(\[])")
FENCE = re.compile(r"^( *)(```+)(.*)$")
RUST = {"rust", "no_run", "ignore", "should_panic", "compile_fail"}


class Wrong(Exception):
    pass


def repository_path(base, path):
    """What `path` means in a file of the directory `base`, as a path in the repository."""
    found = posixpath.normpath(posixpath.join(base, path))
    if found.startswith("..") or not (ROOT / found).exists():
        raise Wrong(f"there is no {found}")
    return found


def slug(heading):
    """The anchor that mdBook and rustdoc give to a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return kept.replace(" ", "-")


def blocks(text):
    """The text in pieces: prose as (None, prose), code as (first line, lines, last line)."""
    prose, code, fence = [], None, None
    for line in text.splitlines():
        found = FENCE.match(line)
        if code is None and found:
            yield None, "\n".join(prose)
            prose, code, fence = [], [line], found
        elif code is not None and found and not found[3].strip() and found[2] == fence[2]:
            yield fence, code + [line]
            code = None
        else:
            (prose if code is None else code).append(line)
    if code is not None:
        raise Wrong(f"a block of code has no end: {code[0]}")
    yield None, "\n".join(prose)


class Items:
    """The pages of `cargo doc`, by the lists of the public faces."""

    def __init__(self, reference):
        self.reference = reference
        self.kinds, self.members = {}, {}
        for crate, file in FACES.items():
            for line in (ROOT / "tests" / file).read_text().splitlines():
                line = re.sub(r"^#\[.*?\] ", "", line)
                if found := re.match(r"pub (struct|enum|trait|type) (\w+)", line):
                    self.kinds[crate, found[2]] = found[1]
                elif found := re.match(r"(variant|field|pub fn|fn) (\w+)::(\w+)", line):
                    kind = {"variant": "variant", "field": "structfield"}.get(found[1], "method")
                    if found[1] == "fn" and not line.endswith("}"):
                        kind = "tymethod"  # a trait's method without a body
                    self.members[crate, found[2], found[3]] = kind

    def page(self, link):
        """The address of an item, such as `crate::zk_session::Requests::get` or `crate::Wait#x`."""
        path, _, anchor = link.partition("#")
        parts = path.split("::")[1:]
        crate = parts.pop(0) if parts and parts[0] in FACES else "zk_mutex"
        base = self.reference.format(crate=crate)
        if not parts:
            return f"{base}/index.html"
        kind = self.kinds.get((crate, parts[0]))
        if kind is None or len(parts) > 2:
            raise Wrong(f"no list of tests/ has {link}")
        if len(parts) == 2:
            if (member := self.members.get((crate, *parts))) is None:
                raise Wrong(f"no list of tests/ has {link}")
            anchor = f"{member}.{parts[1]}"
        return f"{base}/{kind}.{parts[0]}.html" + (f"#{anchor}" if anchor else "")


class Chapters:
    def __init__(self, items):
        self.items = items
        self.of_file = {}  # a file or directory of the repository, to the chapter's file
        self.names = {}  # a chapter's file, to its name in SUMMARY.md

    def add(self, chapter, name, content):
        self.names[chapter] = name
        for path, section in INCLUDE.findall(content):
            path = repository_path("docs/book/src", path)
            if section:
                path += f"#{section}"
            if self.of_file.setdefault(path, chapter) != chapter:
                raise Wrong(f"{path} is in two chapters")
            if posixpath.basename(path) == "README.md" and posixpath.dirname(path):
                self.of_file[posixpath.dirname(path)] = chapter

    def target(self, base, link):
        """The link as the book has it, or None if the book does not have the file."""
        if re.match(r"https?:|#", link):
            return link
        if link.startswith("crate::guide::"):
            path, _, anchor = link.removeprefix("crate::guide::").partition("#")
            path = f"{GUIDE}/{path}.md"
        elif link == "crate::guide":
            path, anchor = f"{GUIDE}/mod.rs", ""
        elif link.startswith("crate::"):
            return self.items.page(link)
        else:
            path, _, anchor = link.partition("#")
            path = repository_path(base, path)
        if chapter := self.of_file.get(path):
            return chapter + (f"#{anchor}" if anchor else "")
        if chapter := self.of_file.get(f"{path}#{anchor}"):
            return f"{chapter}#{anchor}"
        if path.startswith(GUIDE):
            raise Wrong(f"{path} is in no chapter of the book: add it to docs/book/src")
        return None

    def link(self, base, found):
        picture, text, link = found.groups()
        if picture:
            # The pictures stand outside of the book's directory, so they go into the page.
            data = (ROOT / repository_path(base, link)).read_bytes()
            return f"![{text}](data:image/png;base64,{base64.b64encode(data).decode()})"
        target = self.target(base, link)
        if link == f"crate::guide::{text.strip('`')}":
            text = self.names[target]  # rustdoc has no other name for a chapter than its module
        if target is not None:
            return f"[{text}]({target})"
        path = repository_path(base, link.partition("#")[0])
        name = text.strip("`")
        return f"`{path}`" if name in path else f"{text} (`{path}`)"

    def code(self, fence, lines):
        words = set(re.split(r"[,\s]+", fence[3].strip())) - {""}
        if words and not words & RUST:
            return lines
        indent = fence[1]
        shown = []
        for line in lines[1:-1]:
            bare = line.removeprefix(indent).lstrip()
            if bare == "#" or bare.startswith("# "):
                continue
            shown.append(line.replace("##", "#", 1) if bare.startswith("##") else line)
        return [f"{indent}{fence[2]}rust", *shown, lines[-1]]

    def text(self, path, section):
        base = posixpath.dirname(path)
        text = (ROOT / path).read_text()
        if path.endswith((".yml", ".yaml")):
            return f"```yaml\n{text}```"
        if path.endswith(".rs"):
            lines = re.findall(r"^//! ?(.*)$", text, re.M)
            text = OF_A_CHAPTER.sub(r"[`\1`](crate::guide::\1)", "\n".join(lines))
        pieces = list(blocks(text))
        if section:
            pieces = self.section(pieces, path, section)
        result = []
        for fence, piece in pieces:
            if fence is None:
                result.append(LINK.sub(lambda found: self.link(base, found), piece))
            else:
                result += self.code(fence, piece)
        return "\n".join(result)

    def section(self, pieces, path, section):
        """The pieces from this heading up to the next one of its level; the heading becomes the
        first one of a page."""
        found, level = [], None
        for fence, piece in pieces:
            if fence is not None:
                if level:
                    found.append((fence, piece))
                continue
            lines = []
            for line in piece.split("\n"):
                heading = re.match(r"(#+) (.*)", line)
                if heading and level and len(heading[1]) <= len(level):
                    return [*found, (None, "\n".join(lines))]
                if heading and not level and slug(heading[2]) == section:
                    level = heading[1]
                if level:
                    lines.append(line.replace(level, "#", 1) if heading else line)
            found.append((None, "\n".join(lines)))
        if not level:
            raise Wrong(f"{path} has no section {section}")
        return found

    def content(self, content):
        text = INCLUDE.sub(
            lambda found: self.text(repository_path("docs/book/src", found[1]), found[2]), content
        )
        pieces = list(blocks(text))
        prose = "\n".join(piece for fence, piece in pieces if fence is None)
        if len(re.findall(r"^# ", prose, re.M)) < 2:
            return text
        result, is_first = [], True
        for fence, piece in pieces:
            for line in piece if fence else piece.split("\n"):
                if not fence and re.match(r"#+ ", line):
                    line, is_first = (line if is_first else f"#{line}"), False
                result.append(line)
        return "\n".join(result)


def walk(items):
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            yield chapter
            yield from walk(chapter["sub_items"])


def check_order(chapters, of_file):
    """The guide's chapters stand in the order of the tables in mod.rs, and none is missing."""
    rows = re.findall(r"^//! \| \[`(\w+)`\]", (ROOT / GUIDE / "mod.rs").read_text(), re.M)
    ours = [c for c in chapters if f"{GUIDE}/{Path(c).stem}.md" in of_file]
    if ours != [f"{row}.md" for row in rows]:
        raise Wrong(
            f"SUMMARY.md has the guide's chapters as {', '.join(ours)}; "
            f"the tables of {GUIDE}/mod.rs have {', '.join(rows)}"
        )
    for file in sorted((ROOT / GUIDE).glob("*.md")):
        if f"{GUIDE}/{file.name}" not in of_file:
            raise Wrong(f"{GUIDE}/{file.name} is in no chapter of the book")


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    reference = context["config"]["preprocessor"]["chapters"]["reference"]
    chapters = Chapters(Items(reference))
    found = list(walk(book.get("items") or book["sections"]))
    for chapter in found:
        chapters.add(chapter["path"], chapter["name"], chapter["content"])
    check_order([chapter["path"] for chapter in found], chapters.of_file)
    for chapter in found:
        try:
            chapter["content"] = chapters.content(chapter["content"])
        except Wrong as e:
            raise Wrong(f"{chapter['path']}: {e}") from e
    json.dump(book, sys.stdout)


try:
    main()
except Wrong as e:
    sys.exit(f"docs/book/chapters.py: {e}")
