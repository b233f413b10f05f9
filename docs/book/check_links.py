#!/usr/bin/env python3
"""Checks the links of a built book.

  docs/book/check_links.py target/book              fails if a link leads nowhere
  docs/book/check_links.py target/book --external   lists the links to other sites too

Each link and picture must be a file of the book, and each anchor an id in that file. The links to
the reference go to the pages of `cargo doc`, which stand beside the book (target/doc); if there are
none, these links are counted and not checked. No other site is asked.

It also fails if an id stands twice in a page, since a link to it would go to the first of them.
"""

import argparse
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.twice, self.links = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                if value in self.ids:
                    self.twice.append(value)
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)
            elif name == "aria-labelledby" and tag == "svg":
                self.links += [f"#{part}" for part in value.split()]
            elif value:
                self.links += re.findall(r"url\((#[^)]+)\)", value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("book", type=Path)
    parser.add_argument("--external", action="store_true", help="list the links to other sites")
    args = parser.parse_args()
    book = args.book.absolute()
    reference = book.parent / "doc"
    pages = {}

    def page(path):
        if path not in pages:
            pages[path] = Page(path)
        return pages[path]

    own = sorted(book.rglob("*.html"))
    if not own:
        sys.exit(f"docs/book/check_links.py: there is no book in {args.book}")
    wrong, external, inside, to_reference, left_out = [], set(), 0, 0, 0
    for path in own:
        name = path.relative_to(book)
        wrong += [f"{name}: the id {twice} stands twice" for twice in page(path).twice]
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                external.add(link)
                continue
            target = path
            if parts.path:
                target = Path(os.path.normpath(path.parent / unquote(parts.path)))
            if target.is_relative_to(reference):
                if not reference.is_dir():
                    left_out += 1
                    continue
                to_reference += 1
            elif target.is_relative_to(book):
                inside += 1
            else:
                wrong.append(f"{name}: {link} is outside of the book")
                continue
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                wrong.append(f"{name}: {link}: there is no such file")
            elif parts.fragment and target.suffix == ".html":
                if unquote(parts.fragment) not in page(target).ids:
                    wrong.append(f"{name}: {link}: the page has no such anchor")
    if args.external:
        print("\n".join(sorted(external)))
    print(
        f"{len(own)} pages: {inside} links in the book, {to_reference} to the reference, "
        f"{len(external)} other sites"
    )
    if left_out:
        print(f"left out: {left_out} links to the reference, for there is no {reference}")
    if wrong:
        print("docs/book/check_links.py: these are wrong:", file=sys.stderr)
        sys.exit("\n".join(dict.fromkeys(wrong)))


main()
