"""Making a failing program small: lines go, blocks lose their heads, while the failure stays."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator


def reduce_text(text: str, still_fails: Callable[[str], bool], seconds: float = 90.0) -> str:
    """The smallest text found within `seconds` for which `still_fails` holds (Zeller's delta debugging, on blocks)."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for candidate in _smaller(text):
            if time.monotonic() > end:
                break
            if _parses(candidate) and still_fails(candidate):
                text, changed = candidate, True
                break
    return text


def _smaller(text: str) -> Iterator[str]:
    """Texts with one statement less, the largest first; then with a block in place of its statement; then simpler expressions."""
    lines = text.splitlines()
    extents = sorted(((_extent(lines, start), start) for start in range(len(lines))), reverse=True)
    for size, start in extents:
        yield _joined(lines[:start] + lines[start + size :])
    for size, start in extents:
        if size > 1:
            inner = [line[4:] for line in lines[start + 1 : start + size]]
            yield _joined(lines[:start] + inner + lines[start + size :])
    yield from _simpler_expressions(text)


def _extent(lines: list[str], start: int) -> int:
    """How many lines the statement at `start` has, with its block."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and lines[end].strip() and len(lines[end]) - len(lines[end].lstrip()) > indent:
        end += 1
    return end - start


def _simpler_expressions(text: str) -> Iterator[str]:
    """The text with one expression replaced by a part of it."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp | ast.Call | ast.IfExp | ast.BoolOp | ast.Subscript) or node.end_lineno != node.lineno:
            continue
        line = lines[node.lineno - 1]
        for child in ast.walk(node):
            if child is node or not isinstance(child, ast.expr) or not hasattr(child, "col_offset"):
                continue
            part = line[child.col_offset : child.end_col_offset]
            shorter = line[: node.col_offset] + part + line[node.end_col_offset :]
            yield _joined([*lines[: node.lineno - 1], shorter, *lines[node.lineno :]])


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return "def f(" in text
