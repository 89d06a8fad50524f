"""The rules for text. A finding names the file, the line, what was found there, and what to write instead."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.text.links import Pages
from tests.text.prose import Line, Prose, read_markdown, read_python

KINDS = {
    "words": "awkward expressions",
    "sentences": "long sentences",
    "semicolons": "sentences with three or more semicolons",
    "got": "error messages without a requirement",
    "hints": "errors without a hint",
    "links": "broken links",
    "lines": "lines of a long page",
    "columns": "long lines",
}
RATE = 4
"""Awkward expressions per 1,000 words that a file without a ceiling may have. It may have none of the other kinds."""
LONGEST_SENTENCE = 35
LONGEST_PAGE = 400
WIDEST = 120

# Expressions and what to write instead. "takes 3 seconds" is right, so a few hits are allowed everywhere.
WORDS = [
    (r"\b(?:refused?|refuses|refusals?)\b", "raises XError; is not supported"),
    (
        r"\b(?:gradients?|derivatives?|differentiate[sd]?)\b[^.;:()]{0,30}"
        r"\bby (?:the|its|their|a|an|all|Variables|those|one|two|both|what)\b",
        "with respect to",
    ),
    (r"\b[Hh]alves\b", "float16 and bfloat16 arrays"),
    (r"\b(?:the|a|its|their|one|two|of|no) texts?\b|\b[Tt]exts\b", "string; source code; message"),
    (
        r"\b(?:a|the|their|its|which|of|in|with|these|same|no|by) places?\b(?! of)|\b[Pp]laces that\b",
        "index, position",
    ),
    (
        r"\b(?:anew|beside|likewise|meanwhile|thereby|hence|thus|whom|but for|at hand|behind your back|nobody)\b",
        "again; next to; also; except",
    ),
    (r"\bas (?:it|they) (?:is|are|was|were)\b", "unchanged"),
    (r"\b(?:of|in) (?:its|their) own\b|\bby (?:itself|themselves)\b", "separate; alone"),
    (r"(?:^|[.:;] |- )What (?!is\b.*\?)[a-z]", "a noun as the subject"),
    (r"(?:^|[.;:] )So (?:is|are|it is|do|does|has|have) ", "the same applies to"),
    (
        r"\b(?:is|are|has|have) (?:no|none)\b(?! (?:longer|effect|gradient|derivative|way|more))",
        "is not a; does not have",
    ),
    (r"\b(?:is|are) to (?:be |give|define|return|load|hold|have)\w*", "must"),
    (
        r"\b(?:wants?|has met|have met|been met|has not met|found out|finds out|is asked|asks? of|says? so|said so|in words|"
        r"without a word|with words|says what|nobody)\b",
        "needs; was tested on; documents",
    ),
    (r"\b(?:stands?|stood)\b(?! (?:for|in for|alone))", "is, appears"),
    (r"\bare (?:none|no)\b|\bwhich is no\b", "are not"),
    (
        r"\b(?:Numbers|numbers) of (?:the )?(?:host|device|optimisers?)\b|\bPython numbers?\b|\bNumbers?\b (?:that|of)",
        "scalar; hyperparameter",
    ),
    (r"\b(?:adds?|added|sums?|summed) up\b", "accumulates"),
    (r"\b(?:made|makes?|making)\b", "creates; builds"),
    (
        r"\b(?:takes?|taken|took)\b"
        r"(?! (?:place|part|effect|\d|about|less|more|up|seconds|minutes|as long|half))",
        "accepts; uses; needs",
    ),
    (r"\b(?:words?)\b", "message; option; name"),
    (r"\b(?:extents?)\b", "size"),
    (r"\b[Ww]here (?:a|an|the|it|none|nothing|there|no|one|they|its|that|all|some)\b", "if; when"),
]
_WORDS = [(re.compile(expression, re.MULTILINE), instead) for expression, instead in WORDS]
_WORD = re.compile(r"\S*\w\S*")
_WITHOUT_REQUIREMENT = re.compile(r"\b(?:is|are|has|have)\b.*, got\b")
_REQUIREMENT = re.compile(r"\b(?:must|needs?|expected|expects|cannot)\b")
_ERRORS = Path(__file__).parent.parent.parent / "staged" / "errors.py"
WITH_HINTS = {*re.findall(r"^class (\w+)", _ERRORS.read_text(), re.MULTILINE), "shape_error", "dtype_error"}
"""The errors that accept a hint, and the functions that create them."""

PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/*.md", "cuda_emulator/*.md")
SOURCES = ("staged/**/*.py", "examples/**/*.py", "docs/*.py", "cuda_emulator/cuda_emulator/*.py")
TEMPLATES = ("docs/make_", "staged/backends/host/standalone/build.py", "staged/backends/host/standalone/iso_c.py")
"""Sources whose strings are Markdown: of generated pages and of exported folders."""


@dataclass(frozen=True)
class Finding:
    kind: str
    path: str
    line: int
    found: str
    instead: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found}; write instead: {self.instead}"


@dataclass
class Found:
    """The findings in a folder, and the words of prose of each file."""

    findings: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    words: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, Counter[str]]:
        """The number of findings of each kind, by file; files without findings have an empty counter."""
        counts: dict[str, Counter[str]] = {path: Counter() for path in self.words}
        for path, findings in self.findings.items():
            for finding in findings:
                counts[path][finding.kind] += finding.count
        return counts


def check(root: Path) -> Found:
    """Check all files of a folder."""
    found, pages = Found(), Pages(root)
    for path in sorted({path for pattern in PAGES for path in root.glob(pattern)}):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        found.words[name] = 0
        for line, target in pages.broken_links(path):
            _add(found, "links", name, line, f"link to {target}", "a file and a heading that exist")
        if "\n<!-- Written by " not in text:
            _check_page(name, _by_hand(text), found)
    for path in sorted({path for pattern in SOURCES for path in root.glob(pattern)}):
        _check_source(path.relative_to(root).as_posix(), path.read_text(), found)
    return found


def _by_hand(text: str) -> list[Line]:
    """The lines of a page that are not between marks of a generated part."""
    lines, is_generated = [], False
    for number, line in enumerate(text.splitlines(), 1):
        is_generated = is_generated or re.match(r"<!-- \w+: begin", line) is not None
        if not is_generated:
            lines.append((number, line))
        is_generated = is_generated and re.match(r"<!-- \w+: end", line) is None
    return lines


def _check_page(name: str, lines: list[Line], found: Found) -> None:
    prose = Prose()
    read_markdown(lines, prose)
    _check_prose(name, prose, found)
    if len(lines) > LONGEST_PAGE:
        excess = len(lines) - LONGEST_PAGE
        _add(found, "lines", name, lines[LONGEST_PAGE][0], f"page of {len(lines)} lines", "several pages", excess)
    for number, line in lines:
        if len(line) > WIDEST and not line.startswith("|"):  # a row of a table cannot be broken
            _add(found, "columns", name, number, f"line of {len(line)} columns", f"at most {WIDEST}")


def _check_source(name: str, source: str, found: Found) -> None:
    prose = Prose()
    without_hint = read_python(source, prose, name.startswith("staged/"), name.startswith(TEMPLATES))
    _check_prose(name, prose, found)
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > WIDEST:
            _add(found, "columns", name, number, f"line of {len(line)} columns", f"at most {WIDEST}")
    for number, error in without_hint:
        if error in WITH_HINTS:
            _add(found, "hints", name, number, f"{error} without a hint", "hint= with an imperative and code")
    for number, message in prose.messages:
        if _WITHOUT_REQUIREMENT.search(message) and not _REQUIREMENT.search(message):
            _add(found, "got", name, number, f'"{re.sub("§+", "...", message)[:90]}"', '"X must be Y, got Z"')


def _check_prose(name: str, prose: Prose, found: Found) -> None:
    found.words[name] = prose.word_count
    for expression, instead in _WORDS:
        for match in expression.finditer(prose.text):
            words = match[0].strip(" .:;-")
            _add(found, "words", name, prose.line_of(match.start()), f'"{words}"', instead)
    for offset, sentence in _sentences(prose.text):
        length = len(sentence) > 2 * LONGEST_SENTENCE and len(_WORD.findall(sentence))
        if length > LONGEST_SENTENCE:
            _add(found, "sentences", name, prose.line_of(offset), f"sentence of {length} words", "at most 25 words")
        if sentence.count(";") > 2:
            _add(found, "semicolons", name, prose.line_of(offset), "sentence with several semicolons", "several sentences")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for end in re.finditer(r"[.!?][)\"']*(?=\s)", text):
        yield at, text[at : end.end()].lstrip()
        at = end.end() + 1


def _add(found: Found, kind: str, name: str, line: int, what: str, instead: str, count: int = 1) -> None:
    found.findings[name].append(Finding(kind, name, line, what, instead, count))
