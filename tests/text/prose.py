"""The prose of a file, without its code: paragraphs of Markdown, docstrings, error messages, comments of generated C.

Python sources are read by one regular expression over their literals: `ast` needs four seconds for all of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

CODE = "§"
"""The character that replaces each character of code: spans in backquotes and values of format strings."""

Line = tuple[int, str]
"""A line's number and its content."""

_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"(?<=\])\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)")
_VALUE = re.compile(r"\{[^{}]*\}")
_BULLET = re.compile(r"(?:[-*+]|\d+\.) ")
_LITERAL = re.compile(
    r"(?P<prefix>\b[rbfuRBFU]{1,2})?"
    r'(?P<quote>"""|\'\'\'|"|\')(?P<body>(?:(?<="""|\'\'\')(?:[^\\]|\\.)*?|(?:[^\\\n]|\\.)*?))(?P=quote)|#[^\n]*',
    re.DOTALL,
)
_CALL = re.compile(r"\braise ([\w.]+)\(|(?<!class )(?<!def )\b(\w*(?:Error|_error|Warning)|warn)\(")
_NAMED = re.compile(r"\b(?:hint|doc) ?= ?\(?\s*$")
_COMMENT = re.compile(r"(?:^|[\s;{}),])//+ ?(?=.*[A-Za-z])(.*)")
_BREAK = re.compile(r"\n|(?<!\\)\\n")


@dataclass
class Prose:
    """Passages of one file, one line of `text` each, with the line of the file that each piece came from."""

    pieces: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    messages: list[Line] = field(default_factory=list)
    """The error messages among the passages."""
    length: int = 0

    def add(self, passage: Iterable[Line], joint: str = " ") -> str:
        """Append a passage; returns it as one line."""
        begin = len(self.pieces)
        for number, piece in passage:
            self.starts.append(self.length)
            self.numbers.append(number)
            self.pieces.append(piece + joint)
            self.length += len(piece) + len(joint)
        self.pieces.append(".\n")  # ends a sentence; no rule matches across it
        self.length += 2
        joined = "".join(self.pieces[begin:-1])
        bare = _SPAN.sub(_hidden, _TARGET.sub(_hidden, joined)) if "`" in joined or "](" in joined else joined
        self.pieces[begin:-1] = [bare]
        return bare

    @cached_property
    def text(self) -> str:
        """All passages."""
        return "".join(self.pieces)

    @cached_property
    def word_count(self) -> int:
        """Words outside of code."""
        return len(re.findall(r"\S*\w\S*", self.text))

    def line_of(self, offset: int) -> int:
        """The line of the file at an offset of `text`."""
        return self.numbers[bisect_right(self.starts, offset) - 1]


def _hidden(found: re.Match[str]) -> str:
    return CODE * len(found[0])


def without_code(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines of Markdown, with blank lines in place of fenced blocks and HTML comments."""
    fence = comment = ""
    for number, line in lines:
        bare = line.strip()
        if fence:
            fence = "" if bare == fence else fence
        elif comment:
            comment = "" if "-->" in bare else comment
        elif bare.startswith("```"):
            fence = "`" * (len(bare) - len(bare.lstrip("`")))
        elif bare.startswith("<!--"):
            comment = "" if "-->" in bare else "<!--"
        else:
            yield number, line
            continue
        yield number, ""


def read_markdown(lines: Iterable[Line], prose: Prose, base: int = 0) -> None:
    """Add the passages of Markdown, or of a docstring whose lines are indented by `base`.

    A passage is a paragraph, a list item, a heading or a cell of a table. Lines that are indented by four columns after a
    blank line are code, and so are examples after `>>>`.
    """
    passage: list[Line] = []
    indent, after_blank, is_code, is_item = 0, True, False, False

    def finish() -> None:
        if passage:
            prose.add(passage)
            passage.clear()

    for number, line in without_code(lines):
        bare = line.strip()
        if not bare:
            finish()
            after_blank = True
            is_code = is_code and indent >= 4
            continue
        before, indent = indent, max(len(line) - len(line.lstrip()) - base, 0)
        if bare.startswith(">>>"):
            is_code, indent = True, 0
        elif after_blank:
            is_code = indent >= 4 and (is_code or before < 4) and not is_item
        after_blank = False
        if is_code:
            finish()
        elif bare.startswith("|"):
            finish()
            for cell in re.split(r"(?<!\\)\|", bare.strip("|")):
                if re.search(r"\w", cell):
                    prose.add([(number, cell.strip())])
        elif bare.startswith("#") or not re.search(r"\w", bare):
            finish()
            is_item = False
            if re.search(r"\w", bare):
                prose.add([(number, bare.lstrip("# "))])
        else:
            starts = _BULLET.match(bare)
            if starts or indent != before and not (is_item and indent > before):
                finish()
                is_item = bool(starts) or is_item and indent > 0
            passage.append((number, bare.removeprefix("> ")))
    finish()


@dataclass(frozen=True)
class Literal:
    """A string literal of a source: the offsets of its ends, its line, its content as it is typed."""

    begin: int
    end: int
    line: int
    column: int
    quote: str
    body: str


def literals_of(source: str) -> tuple[list[Literal], str]:
    """The string literals of a Python source, and the source with blanks in place of their content and of comments."""
    found, pieces, at, line = [], [], 0, 1
    for match in _LITERAL.finditer(source):
        begin, end = match.span()
        between = source[at:begin]
        line += between.count("\n")
        pieces.append(between)
        content = source[begin:end]
        if match["quote"]:
            column = begin - source.rfind("\n", 0, begin) - 1
            found.append(Literal(begin, end, line, column, match["quote"], match["body"]))
        pieces.append(f"'{' ' * (len(content) - 2)}'" if match["quote"] else " " * len(content))
        line += content.count("\n")
        at = end
    pieces.append(source[at:])
    return found, "".join(pieces)


def calls_of_errors(blank: str) -> Iterator[tuple[int, int, str, bool]]:
    """The outermost calls that create errors or warnings: begin and end of the arguments, name, whether one is raised."""
    last = 0
    for call in _CALL.finditer(blank):
        if call.start() < last:
            continue
        depth = 0
        for bracket in re.finditer(r"[()]", blank[call.end() - 1 :]):
            depth += 1 if bracket[0] == "(" else -1
            if not depth:
                last = call.end() + bracket.start()
                yield call.end(), last, call[1] or call[2], call[1] is not None
                break


def read_python(source: str, prose: Prose, comments: bool = True, pages: bool = False) -> list[tuple[int, str]]:
    """Add the docstrings, error messages, hints and declared docs of a Python source.

    `comments`: and the comments of C in its other strings. `pages`: all its other strings are Markdown. Returns the line
    and class of each error that is raised without a hint.
    """
    literals, blank = literals_of(source)
    calls = list(calls_of_errors(blank))
    ends = [end for _, end, _, _ in calls]
    message: list[Literal] = []

    def finish() -> None:
        if message:
            text = prose.add([(one.line, _value(one.body)) for one in message], "")
            prose.messages.append((message[0].line, text))
            message.clear()

    for literal in literals:
        if message and blank[message[-1].end : literal.begin].strip(" \nfrbu"):
            finish()
        call = bisect_right(ends, literal.begin)
        if message or call < len(calls) and calls[call][0] <= literal.begin:
            message.append(literal)
            continue
        before = blank[max(literal.begin - 200, 0) : literal.begin].rstrip(" ")
        lines = list(enumerate(literal.body.split("\n"), literal.line))
        if len(literal.quote) == 3 and before[-1:] in ("", "\n") and before.rstrip()[-1:] not in tuple("(,[{=+"):
            read_markdown(lines, prose, literal.column)
        elif _NAMED.search(before):
            message.append(literal)
        elif pages and len(literal.body.split()) > 3:
            read_markdown([(number, _value(line)) for number, line in lines], prose)
        elif comments and "//" in literal.body:
            _read_comments(literal, prose)
    finish()
    return [
        (source.count("\n", 0, begin) + 1, name.rpartition(".")[2])
        for begin, end, name, is_raised in calls
        if is_raised and not re.search(r"\bhint\b", blank[begin:end])
    ]


def _value(body: str) -> str:
    """The content of a literal as prose: values of format strings are code."""
    if "{" in body:
        body = _VALUE.sub(_hidden, _VALUE.sub(_hidden, body))
    return re.sub(r"\\[n\n]", " ", body) if "\\" in body else body


def _read_comments(literal: Literal, prose: Prose) -> None:
    """Add the comments of C in a literal; consecutive lines of comments are one passage."""
    passage: list[Line] = []
    number, at = literal.line, 0
    for end in [*(match.span() for match in _BREAK.finditer(literal.body)), (len(literal.body),) * 2]:
        line = literal.body[at : end[0]]
        comment = _COMMENT.search(_value(line)) if "//" in line else None
        alone = comment is not None and not line[: comment.start()].strip()
        if passage and not alone:
            prose.add(passage)
            passage = []
        if comment:
            passage.append((number, comment[1]))
        number += literal.body[end[0] : end[1]] == "\n"
        at = end[1]
    if passage:
        prose.add(passage)
