"""Positions in the user's Python.

Every op of a program knows the Python expression it came from. Converted functions keep the user's file name and
CPython's fine-grained positions (PEP 657), so the position of an op is read off the running frame when it is recorded.
"""

from __future__ import annotations

import dis
import functools
import glob
import inspect
import itertools
import linecache
import os
import re
import site
import sys
import sysconfig
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any, Literal, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""The folder of this package."""
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_STANDARD = tuple(
    os.path.realpath(folder) + os.sep for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Folders of installed packages, which may be in those of the standard library."""
_DATACLASS = "__create_fn__."
"""The beginning of the qualified names of the functions that `dataclasses` writes, in a file called `<string>`."""
BODY = "__staged_"
"""In the names of the functions that bodies of branches and loops are converted to, and of their variables."""
_kept: dict[str, tuple[str, list[str]]] = {}
"""The text and the lines of files as they were imported, where the front end has kept them: a file may be saved anew
since.
"""
_CALL = re.compile(r"""((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)\((?:f?["']\{?([A-Za-z]\w*)|([A-Za-z_]\w*)(?=\s*[,)]))?""")
"""A call: the path before the function's name, the name, and its first argument: how a string begins, or a variable."""
_OPENS = re.compile(r"\s*(@|def\b|async\b|class\b)")


Phase = Literal["", "backward", "update"]


@dataclass(frozen=True, slots=True)
class Position:
    """A piece of the user's Python: lines count from 1, columns from 0 (in characters)."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    phase: Phase = field(default="", compare=False)
    """"backward" for what a derivative adds, "update" for an optimiser's step; for names and comments only."""
    part: str = field(default="", compare=False)
    """The layer that is running (`block0.linear1`); for names only."""

    @property
    def text(self) -> str:
        """The source line, without its indentation; empty where the file cannot be read."""
        return line_at(self.file, self.line).strip()

    @property
    def expression(self) -> str:
        """The piece itself; empty where it has more than one line, or the file cannot be read."""
        line = line_at(self.file, self.line)
        return line[self.column : self.end_column].strip() if self.end_line == self.line else ""

    @property
    def short(self) -> str:
        """`mlp.py:21`, for comments in generated text (base name only: no path of the machine in the text)."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        return f"{display_path(self.file)}, line {self.line}, in {self.function}"


def in_backward(where: Position | None) -> Position | None:
    """The position of the derivative of an expression."""
    if where is None or where.phase == "backward":
        return where
    return replace(where, phase="backward")


def called_function(where: Position) -> str:
    """The function that the user calls at a position: `cross_entropy` for `st.cross_entropy(scores, labels)`.

    Nothing if the call is only the beginning of the expression.
    """
    if where.file.startswith("<"):
        return ""
    text = line_at(where.file, where.line)[where.column :]
    found = _CALL.match(text)
    if found is None:
        return ""
    if where.end_line == where.line:
        depth = 0
        for place, character in enumerate(text[: where.end_column - where.column]):
            depth += (character in "([{") - (character in ")]}")
            if character == ")" and not depth:
                return found[2] if place == where.end_column - where.column - 1 else ""
    return found[2]


def action_at(where: Position) -> str:
    """Return a name for the user's call at a position: the function, and the object of a short verb.

    optim.clip_grad_norm(grads, clip)      # `clip_grad_norm`
    training.schedule.step()               # `step_schedule`
    st.save(checkpoint, state)             # `save_checkpoint`
    print(f"step {step}: loss {loss}")     # `print_step`
    """
    verb = called_function(where)
    found = _CALL.match(line_at(where.file, where.line)[where.column :]) if verb else None
    if found is None or "_" in verb:
        return verb
    path, _, owner = found[1].rstrip(".").rpartition(".")
    argument = (found[3] or found[4] or "").lower()
    acts_on = owner if path or not argument else argument
    says_more = verb == "print" if not owner else acts_on != "self"
    return f"{verb}_{acts_on}" if says_more and acts_on else verb


def keep_lines(file: str, text: str) -> None:
    """Show the lines of `text` for `file` from now on."""
    known = _kept.get(file)
    if known is None or (known[0] is not text and known[0] != text):
        _kept[file] = text, text.splitlines(keepends=True)
        _tables.clear()  # columns were counted in other lines


def line_at(file: str, number: int) -> str:
    """A line of a file, as it was imported; empty where it cannot be read."""
    kept = _kept.get(file)
    if kept is None:
        return linecache.getline(file, number)
    lines = kept[1]
    return lines[number - 1] if 0 < number <= len(lines) else ""


def cell_of(file: str) -> str | None:
    """Return `Cell In[10]` if `file` is the name that IPython gives to the code of that cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    label = name_of(file) if name_of else None
    return " ".join(label) if label else None


def display_path(file: str) -> str:
    """Return the cell of a notebook, or the path relative to the working directory if the file is below it."""
    cell = cell_of(file)
    if cell is not None:
        return cell
    if file.startswith("<"):
        return file
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def excerpt(where: Position) -> str:
    """The lines of an error that show the place: file, source line, caret."""
    lines = [f"  {where}"]
    raw = line_at(where.file, where.line).rstrip("\n")
    if raw.strip():
        indent = len(raw) - len(raw.lstrip())
        lines.append("      " + raw[indent:])
        end = where.end_column if where.end_line == where.line else len(raw)
        if where.column >= indent and end > where.column:
            lines.append("      " + " " * (where.column - indent) + "^" * (end - where.column))
    return "\n".join(lines)


def is_between(file: str) -> bool:
    """Return whether `file` is code through which ours may be called by the user's expression: NumPy's, or the standard
    library's.
    """
    if file.startswith((_NUMPY, "<frozen ")):
        return True
    path = real_path(file)
    return path.startswith(_STANDARD) and not any(folder in path for folder in _PACKAGES)


def real_path(file: str) -> str:
    """Return an absolute path without symbolic links. A folder is resolved once for all modules in it."""
    folder, name = os.path.split(file)
    if not os.path.isabs(folder):
        return os.path.realpath(file)
    path = os.path.join(_real_folder(folder), name)
    return os.path.realpath(path) if os.path.islink(path) else path


@functools.cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def is_library_file(file: str) -> bool:
    """Return whether `file` is part of this package (its frames are never shown as the user's place)."""
    return file.startswith(PACKAGE)


def _library_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else [])
    folders.add(site.getusersitepackages())
    # `pip install --target FOLDER`, with FOLDER in PYTHONPATH: a record of each package is beside the package.
    folders.update(folder for folder in sys.path if folder and glob.glob(os.path.join(folder, "*.dist-info")))
    return (PACKAGE, *(os.path.realpath(folder) + os.sep for folder in folders if folder))


_LIBRARIES = _library_folders()


@functools.cache
def is_installed(file: str) -> bool:
    """Return whether `file` is of the standard library, an installed package, or this one: not the user's."""
    return real_path(file).startswith(_LIBRARIES)


_Table = tuple[tuple[int | None, int | None, int | None, int | None], ...]
_Made = dict[int | tuple[int, tuple[Phase, str]], Position]
_tables: dict[int, tuple[CodeType, _Table, _Made]] = {}
"""By the id of a code object, which is kept alive here: its table of positions, and the `Position`s made from it."""
MOST_TABLES = 4096


def _positions(code: CodeType) -> tuple[_Table, _Made]:
    """The table of a code object's positions, by its id, and the `Position`s made from it so far, by instruction.

    Not by equality: code objects may be equal, and CPython compares nested ones twice on each level, so that a chain of
    200 `elif`, converted twice from the same text, would never finish comparing.
    """
    found = _tables.get(id(code))
    if found is None:
        if len(_tables) >= MOST_TABLES:
            _tables.clear()
        found = _tables[id(code)] = code, tuple(code.co_positions()), {}
    return found[1:]


def position_of_frame(frame: FrameType) -> Position:
    """The expression that `frame` is evaluating."""
    _, made = _positions(frame.f_code)
    found = made.get(frame.f_lasti)
    if found is None:
        found = made[frame.f_lasti] = _position_at(frame.f_code, frame.f_lasti, frame.f_lineno)
    return found


def _position_at(code: CodeType, instruction: int, fallback: int | None) -> Position:
    table, _ = _positions(code)
    index = instruction // 2
    line, end_line, column, end_column = table[index] if 0 <= index < len(table) else (None, None, None, None)
    line = line or fallback or code.co_firstlineno
    return Position(
        file=code.co_filename,
        line=line,
        column=_characters(code.co_filename, line, column or 0),
        end_line=end_line or line,
        end_column=_characters(code.co_filename, end_line or line, end_column or 0),
        function=_function_name(code),
    )


def position_of_recursion(error: RecursionError) -> Position | None:
    """The user's expression that is open most often where Python's recursion limit was met."""
    places: Counter[tuple[CodeType, int]] = Counter()
    entry = error.__traceback__
    while entry is not None:
        if not is_library_file(entry.tb_frame.f_code.co_filename):
            places[entry.tb_frame.f_code, entry.tb_lasti] += 1
        entry = entry.tb_next
    if not places:
        return None
    most = max(places.values())
    # Each level passes some places, outermost first: the last of them is the call of the next level.
    code, instruction = [place for place, count in places.items() if count >= most - 1][-1]
    return _position_at(code, instruction, None)


def _characters(file: str, line: int, utf8_column: int) -> int:
    """PEP 657 columns count UTF-8 bytes; carets need characters."""
    raw = line_at(file, line)
    if raw.isascii():
        return utf8_column
    return len(raw.encode()[:utf8_column].decode(errors="ignore"))


def _function_name(code: CodeType) -> str:
    """The user's function a piece of converted code belongs to: block functions are named `name__if_12` by the front
    end.
    """
    name = code.co_name.split(BODY, 1)[0] or code.co_name
    return "<lambda>" if name == "lambda_" else name


def position_of_function(function: Any) -> Position | None:
    """The line of a function's `def`; None for a callable without Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return None
    line = code.co_firstlineno
    while line_at(code.co_filename, line).lstrip().startswith("@"):
        line = _after_decorator(code.co_filename, line)
    return Position(code.co_filename, line, 0, line, 0, getattr(function, "__name__", code.co_name))


def _after_decorator(file: str, line: int) -> int:
    """The line after the decorator at `line`, which may go on over several: up to the next that opens a statement."""
    while line_at(file, line + 1) and not _OPENS.match(line_at(file, line + 1)):
        line += 1
    return line + 1


_USERS, _PASSED, _MAY_BE_ROOT, _MAY_BE_GENERATED = range(4)
_files: dict[str, int] = {"<string>": _MAY_BE_GENERATED}
"""By file: whether `here` stops at its frames, skips them, or tests whether one is a root of positions, or generated.
"""


_Running = tuple[Phase, str]


class _OfThread(threading.local):
    """The state of one thread. A ContextVar would cost a call for each op."""

    running: _Running | None = None
    """The phase and the layer."""


_thread = _OfThread()


def begin_part(part: str = "", phase: Phase = "") -> _Running | None:
    """Give the ops that follow a layer or a phase, until `end_part` gets the result."""
    outside = _thread.running
    if part or phase:
        _thread.running = phase or (outside[0] if outside else ""), part or (outside[1] if outside else "")
    return outside


def end_part(outside: _Running | None) -> None:
    """Go back to the layer and the phase that `begin_part` found."""
    _thread.running = outside


def running_part() -> str:
    """The layer that is running."""
    running = _thread.running
    return running[1] if running else ""


def here(depth: int = 1) -> Position | None:
    """The innermost position outside this package: the user's expression being evaluated now.

    The frames up to `depth` are known to belong to this package: looking at each would cost a frame object.
    """
    frame: FrameType | None = sys._getframe(depth)
    running = _thread.running
    while frame is not None:
        # A dozen frames for each op: no calls on the way.
        code = frame.f_code
        try:
            kind = _files[code.co_filename]
        except KeyError:
            file = code.co_filename
            kind = _files[file] = _PASSED if is_library_file(file) or is_between(file) else _USERS
        if kind == _USERS:
            try:
                return _tables[id(code)][2][frame.f_lasti if running is None else (frame.f_lasti, running)]
            except KeyError:
                return position_of_frame(frame) if running is None else _position_in(frame, running)
        if kind == _MAY_BE_ROOT and id(code) in _roots:
            return _root.get()
        if kind == _MAY_BE_GENERATED and not code.co_qualname.startswith(_DATACLASS):
            return position_of_frame(frame)
        frame = frame.f_back
    return None


_WORDS = tuple(PACKAGE + folder + os.sep for folder in ("ops", "library", "optim", "nn"))
"""Folders whose variables have the field's names for values."""
_OF_CALLS = ("context", "record", "primitive", "composite", "halves", "torch_keywords", "numpy_map")
_PLUMBING = tuple(PACKAGE + "ops" + os.sep + name + ".py" for name in _OF_CALLS)
_SAYS_NOTHING = frozenset("array each found given left made other out part result results right this value".split())
"""Names of variables that do not say what a value is, as those of one or two letters do not."""
_has_words: dict[str, bool | None] = {}
"""By file: whether its variables name values; None for plumbing between a value and the function that names it."""
_words: dict[int, tuple[CodeType, dict[int, str] | None]] = {}
"""By the id of a code object: what becomes of the result of an instruction, the name of a variable or `return`. None
for a function whose one op computes the value that it returns.
"""


def returns_its_op(function: F) -> F:
    """Mark a function of this library: the value that it returns is that of its op, maybe in another shape."""
    _words[id(function.__code__)] = function.__code__, None
    return function


def variable_here(depth: int = 1) -> str:
    """The variable of this library that the value computed now is assigned to, if there is one."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename != _PLUMBING[0]:
        frame = frame.f_back  # the context that carries the op out
    while frame is not None:
        code = frame.f_code
        try:
            has_words = _has_words[code.co_filename]  # the fastest lookup: tracing counts its calls
        except KeyError:
            file = code.co_filename
            has_words = _has_words[file] = None if file.startswith(_PLUMBING) else file.startswith(_WORDS)
        if has_words is False:
            return ""
        if has_words:
            key = id(code)
            if key not in _words:
                _words_of(code)
            words = _words[key][1]
            found = "return" if words is None else words[frame.f_lasti] if frame.f_lasti in words else ""
            if found != "return":
                return found
        frame = frame.f_back
    return ""


def _words_of(code: CodeType) -> None:
    """Enter the names that a function gives to results of its instructions."""
    words: dict[int, str] = {}
    instructions = list(dis.get_instructions(code))
    targets = {each.offset: each for each in instructions}
    for this, after in itertools.pairwise(instructions):
        word = ""
        while after.opname == "JUMP_FORWARD":  # the end of a conditional expression
            after = targets[after.argval]
        if after.opname == "RETURN_VALUE":
            word = "return"
        elif after.opname.startswith(("STORE_FAST", "STORE_DEREF")):
            word = after.argval if isinstance(after.argval, str) else after.argval[0]
        if len(word.removeprefix("d_")) > 2 and word not in _SAYS_NOTHING:
            # A call that runs is at the end of its instruction, behind the caches.
            words.update(dict.fromkeys(range(this.offset, after.offset, 2), word))
    _words[id(code)] = code, words


def _position_in(frame: FrameType, running: _Running) -> Position:
    """The expression that `frame` is evaluating for a phase or a layer."""
    _, made = _positions(frame.f_code)
    phase, part = running
    found = made[frame.f_lasti, running] = replace(position_of_frame(frame), phase=phase, part=part)
    return found


_roots: dict[int, CodeType] = {}
"""By their identity (see `_positions`)."""
_root: ContextVar[Position | None] = ContextVar("staged_root", default=None)


def roots_positions(function: F) -> F:
    """Mark a function of ours that runs the user's: the ops that it makes get positions in that function, not in its
    caller.

    The caller's line has no place in a program, whose text must not depend on who staged it. `rooted` sets the
    position.
    """
    _roots[id(function.__code__)] = function.__code__
    _files[function.__code__.co_filename] = _MAY_BE_ROOT
    return function


def warn(note: str, where: Position | None) -> None:
    """Warn about the line of the user at `where`."""
    warnings.warn_explicit(note, UserWarning, where.file if where else "<staged>", where.line if where else 1)


@contextmanager
def rooted(position: Position | None) -> Iterator[None]:
    """Inside, `position` is used for ops that have no line in the user's function."""
    token, running = _root.set(position), begin_part()
    end_part(None)
    try:
        yield
    finally:
        _root.reset(token)
        end_part(running)
