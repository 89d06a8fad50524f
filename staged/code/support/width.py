"""Support functions for vectors of one width, without the branches for other widths.

Tested by `tests/backends/support/test_width.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from staged.code.support.library import Snippet

_WIDTH = re.compile(r"ST_VECTOR_BYTES (==|<) (\d+)")
_CONTINUED = re.compile(r"(#(?:el)?if [^\n]*)\\\n *")
_TYPE = re.compile(r"vector_([iuf]\d+)(x\d+)?")


def for_width(snippet: Snippet, vector_bytes: int) -> Snippet:
    """A snippet for vectors of so many bytes; it needs the vector types that are left."""
    if not _WIDTH.search(snippet.text):
        return snippet
    text = "\n".join(_chosen(iter(_CONTINUED.sub(r"\1", snippet.text).split("\n")), vector_bytes)[0])
    needs = (name for name in snippet.needs if not (found := _TYPE.fullmatch(name)) or _type(found) in text)
    return replace(snippet, text=text, needs=tuple(needs))


def _type(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or 'v'}"


def _chosen(lines: Iterator[str], vector_bytes: int) -> tuple[list[str], str]:
    """The lines up to the end of a branch, and the directive that ends it."""
    made: list[str] = []
    for line in lines:
        directive = line.split(maxsplit=1)[0] if line.strip().startswith("#") else ""
        if directive.startswith("#if"):
            made += _branches(line, lines, vector_bytes)
        elif directive in ("#elif", "#else", "#endif"):
            return made, line
        else:
            made.append(line)
    return made, ""


def _branches(line: str, lines: Iterator[str], vector_bytes: int) -> list[str]:
    """The possible branches, without directives if the width decides between them."""
    made: list[str] = []
    is_decided = has_directives = False
    while "#endif" not in line:
        indent, _, words = line.partition("#")
        keyword, _, condition = words.partition(" ")
        body, following = _chosen(lines, vector_bytes)
        kept = "1" if keyword == "else" else _simplified(condition, vector_bytes)
        if kept == "1" and not made and not is_decided:
            made, is_decided = body, True
        elif kept != "0" and not is_decided:
            keyword = "else" if kept == "1" else f"{'elif' if made else keyword.removeprefix('el')} {kept}"
            made += [f"{indent}#{keyword}", *body]
            is_decided = kept == "1"
            has_directives = True
        line = following
    return [*made, line] if has_directives else made


def _simplified(condition: str, vector_bytes: int) -> str:
    """A condition, alternatives of conjunctions, without what the width decides; `0` or `1` if it decides all."""

    def decided(found: re.Match[str]) -> str:
        bound = int(found[2])
        return str(int(vector_bytes == bound if found[1] == "==" else vector_bytes < bound))

    if "ST_VECTOR_BYTES" not in condition:
        return condition
    left = []
    for alternative in _parts(_WIDTH.sub(decided, condition), " || "):
        whole = alternative.startswith("(") and len(_parts(alternative, " && ")) == 1
        terms = _parts(alternative[1:-1] if whole else alternative, " && ")
        if "0" not in terms:
            left.append(" && ".join(term for term in terms if term != "1") or "1")
    return "1" if "1" in left else " || ".join(left) or "0"


def _parts(condition: str, operator: str) -> list[str]:
    """The operands of an operator outside of parentheses."""
    parts: list[str] = []
    for part in condition.split(operator):
        if parts and parts[-1].count("(") > parts[-1].count(")"):
            parts[-1] += operator + part
        else:
            parts.append(part)
    return parts
