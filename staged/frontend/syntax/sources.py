"""The text that a function was made from: files are read when they are imported, since they may be saved anew before
staging.

Python forgets the text of a module once it is compiled. So the files of the user's modules are read while staged
functions are declared, which happens as they are imported; what is shown and converted later is that text. Where a file
has several (it was reloaded), the one is taken whose code is the function's.
"""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from types import CodeType, FunctionType

from staged.frontend.syntax.user_code import is_user_code, is_user_file
from staged.source import keep_lines

_texts: dict[str, list[str]] = {}
"""By file: its text at each time when it was looked at, if that was another one; the first is as imported."""
_lines: dict[str, list[str]] = {}
"""By file: the lines in which its text was looked for last, as `linecache` keeps them."""
_seen: set[str] = set()
"""Modules whose files have been read, or are not the user's."""
_looked_at: tuple[int, str] = 0, ""
"""The number of modules at the last search, and the last of them: an import changes either."""


def remember_modules() -> None:
    """Keep the text of every module of the user's that has been imported since the last call."""
    global _looked_at
    modules = len(sys.modules), next(reversed(sys.modules))
    if modules == _looked_at:  # every staged function that is declared asks, and a program has thousands of modules
        return
    _looked_at = modules
    for name in [name for name in list(sys.modules) if name not in _seen]:
        _seen.add(name)
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and is_user_file(file):
            _look(file, None)


def remember(function: object) -> None:
    """Keep the text of a function's file, where it is another one than before: its module was imported again."""
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        _look(code.co_filename, getattr(function, "__globals__", None))


def text_of(function: FunctionType) -> str:
    """The text of the file that the function's code was made from; empty where it is not at hand."""
    code = function.__code__
    _look(code.co_filename, function.__globals__)
    texts = _texts.get(code.co_filename, [])
    if not texts:
        return ""
    fitting = texts[0] if len(texts) == 1 else next((text for text in reversed(texts) if _made(text, code)), texts[0])
    keep_lines(code.co_filename, fitting)
    return fitting


def _look(file: str, names: dict[str, object] | None) -> None:
    linecache.checkcache(file)
    lines = linecache.getlines(file, names)
    if lines and _lines.get(file) is lines:  # the list that was looked at is kept: the file is as it was
        return
    _lines[file] = lines
    text = "".join(lines)
    known = _texts.setdefault(file, [])
    if text and text not in known:
        known.append(text)
        if len(known) == 1:
            keep_lines(file, text)


def _made(text: str, code: CodeType) -> bool:
    """Return whether compiling `text` gives `code`."""
    return code in _codes_of(text, code.co_filename)


@lru_cache(maxsize=16)
def _codes_of(text: str, file: str) -> frozenset[CodeType]:
    try:
        waiting = [compile(text, file, "exec", dont_inherit=True)]
    except SyntaxError:  # saved in the middle of an edit
        return frozenset()
    found: set[CodeType] = set()
    while waiting:
        code = waiting.pop()
        found.add(code)
        waiting += [item for item in code.co_consts if isinstance(item, CodeType)]
    return frozenset(found)


def has_source(function: FunctionType) -> bool:
    """Return whether the source of a function can be read."""
    return bool(text_of(function))


def is_convertible(function: FunctionType) -> bool:
    """Return whether a function is the user's and has its source at hand."""
    return is_user_code(function) and has_source(function)
