"""Relative links of Markdown pages: the file must exist, and the anchor must be that of a heading, by GitHub's rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.text.prose import without_code

_LINK = re.compile(r"\]\(<?([^()\s>]+(?:\([^()\s]*\)[^()\s]*)*)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)")


class Pages:
    """The pages of a folder; what was read once is kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.anchors = cache(anchors)

    def broken_links(self, page: Path) -> Iterator[tuple[int, str]]:
        """The line and target of each link that does not lead to a file of the folder, or to a heading."""
        for number, line in without_code(enumerate(page.read_text().splitlines(), 1)):
            for match in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                target = match[1] or match[2]
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                leads_to = (page.parent / path if path else page).resolve()
                is_there = leads_to.exists() and leads_to.is_relative_to(self.root.resolve())
                if is_there and anchor and leads_to.suffix == ".md":
                    is_there = anchor in self.anchors(leads_to)
                if not is_there:
                    yield number, target


def anchors(page: Path) -> set[str]:
    """The anchors of a page: of its headings, and those that are written as HTML."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for _, line in without_code(enumerate(page.read_text().splitlines(), 1)):
        found.update(re.findall(r"<\w+ (?:id|name)=\"([^\"]+)\"", line))
        heading = re.match(r" {0,3}#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            slug = slug_of(heading[1])
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def slug_of(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    shown = re.sub(r"(?<!\w)[*_]{1,2}(\S(?:.*?\S)?)[*_]{1,2}(?!\w)", r"\1", shown)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
