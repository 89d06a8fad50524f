"""Making a failing program small: lines go, blocks lose their heads, expressions become parts of themselves, while the
failure stays the same one."""

from __future__ import annotations

import ast
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.fuzz.check import Case, Failure

_SECONDS_EACH = 100


Check = Callable[[Case], object]
"""Something that raises `Failure` for a case with a fault."""


def reduce_case(case: Case, checks: Sequence[Check], seconds: float = 120.0) -> tuple[Case, str]:
    """The smallest case found with the same failure, and the key of that failure (empty where it does not come again).

    The first of `checks` is the whole check; the others are cheaper, and stand for it where they fail alike.
    """
    key = failure_key(case, checks[0])
    if not key:
        return case, ""
    narrow = next((check for check in checks[1:] if failure_key(case, check) == key), checks[0])
    plain = replace(case, second=False)
    if case.second and failure_key(plain, narrow) == key:
        case = plain
    text = reduce_text(case.text, lambda text: failure_key(replace(case, text=text), narrow) == key, seconds)
    return replace(case, text=text), key


def failure_key(case: Any, check: Callable[[Any], object]) -> str:
    """The failure, as `Failure.key` says it; '' where there is none. Checked in a process of its own, which may die."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        key = ""
        try:
            check(case)
        except Failure as failure:
            key = failure.key
        except Exception as error:
            key = type(error).__name__
        os.write(writer, key.encode()[:4000])
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], _SECONDS_EACH)
    if not ready:
        os.kill(child, signal.SIGKILL)
    key = os.read(reader, 4096).decode()
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if not ready:
        return "takes too long"
    return f"dies with status {status}" if status else key


def reduce_text(text: str, still_fails: Callable[[str], bool], seconds: float = 90.0) -> str:
    """The smallest text found within `seconds` for which `still_fails` holds (Zeller's delta debugging, on blocks)."""
    end = time.monotonic() + seconds
    changed = True
    tried: set[str] = set()
    while changed and time.monotonic() < end:
        changed = False
        place = 0  # after a success go on from there: what stood before it has just been tried
        candidates = list(_smaller(text))
        while place < len(candidates) and time.monotonic() < end:
            candidate = candidates[place]
            place += 1
            if candidate in tried or not _parses(candidate):
                continue
            tried.add(candidate)
            if still_fails(candidate):
                text, changed = candidate, True
                candidates = list(_smaller(text))
                place -= 1
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
    """The number of lines of the statement at `start`, with its block."""
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
    return "def f(" in text or "def piece(" in text
