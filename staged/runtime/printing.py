"""Send the output of a running program to Python's `sys.stdout`, its calls to Python's functions; an error stops it."""

from __future__ import annotations

import codecs
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from staged.base.artifact import Site
from staged.ir.types import TensorType, bound
from staged.runtime.compiler import position_of_site
from staged.runtime.guard import ffi, guard
from staged.source import Position, excerpt


class PythonCall(Protocol):
    """A function of Python's, as a program calls it."""

    @property
    def arguments(self) -> Sequence[TensorType]: ...
    @property
    def where(self) -> Position | None: ...
    def returned(self, arguments: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]: ...


class Notes:
    """The notes of a program about what runs on the device, each once, with the Python lines of its table `sites`."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.found: dict[str, None] = {}

    def add(self, site: int, text: str) -> None:
        """Add a note, about the line with this index."""
        has_line = 0 <= site < len(self.sites)
        self.found[f"{position_of_site(self.sites[site]).short}: {text}" if has_line else text] = None


class Printer:
    """The receiver of a running call's output. It keeps an exception raised there, which C cannot propagate."""

    def __init__(self, stop: Any) -> None:
        self.stop = stop
        self.error: BaseException | None = None
        self.catches = False  # whether the call has taken over SIGINT
        self.thread = 0  # that runs the call, or prints for it: a program that recurses runs on a thread of its own
        self.calls: Mapping[int, PythonCall] = {}
        """The functions of Python's that the program calls, by number."""
        self.notes = Notes(())
        """The program's notes, of all its calls."""
        # A character may be split between two pieces of text.
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take_error(self) -> BaseException | None:
        """Return the exception that writing raised, and forget it for the next call."""
        error, self.error = self.error, None
        self.decoder.reset()
        return error


@ffi.callback("void(void *, const char *, int64_t)")  # type: ignore[untyped-decorator]
def write(context: Any, text: Any, length: int) -> None:
    """The target of `st_host.write`: writes text to the current `sys.stdout`."""
    printer: Printer = ffi.from_handle(context)
    if printer.error is not None:
        return  # the program is stopping
    with _in_python(printer):
        try:
            shown = printer.decoder.decode(ffi.buffer(text, length)[:])
            stream = sys.stdout
            if stream is not None and shown:
                stream.write(shown)
                if not shown.endswith("\n"):
                    stream.flush()  # part of a line, such as a progress bar, is meant to be seen now
        except BaseException as error:
            printer.error = error
            printer.stop[0] = 1


@ffi.callback("void(void *, int32_t, const char *)")  # type: ignore[untyped-decorator]
def note(context: Any, site: int, text: Any) -> None:
    """The target of `st_host.note`: keeps the note."""
    printer: Printer = ffi.from_handle(context)
    printer.notes.add(site, ffi.string(text).decode(errors="replace"))


@contextmanager
def _in_python(printer: Printer) -> Iterator[None]:
    """The extent in which a running program is back in Python, which handles interrupts itself."""
    printer.thread = threading.get_ident()
    # Python raises interrupts on its main thread alone: elsewhere they stay ours, or they would be lost.
    suspends = printer.catches and printer.thread == threading.main_thread().ident
    if suspends:
        guard().st_suspend()
    try:
        yield
    finally:
        if suspends:
            guard().st_resume()


@ffi.callback("int(void *, int64_t, const void *const *, void *const *)")  # type: ignore[untyped-decorator]
def call_python(context: Any, number: int, arguments: Any, results: Any) -> int:
    """The target of `st_python`: calls the function of this number on copies of its arguments."""
    printer: Printer = ffi.from_handle(context)
    if printer.error is not None:
        return 0  # the program is stopping
    called = printer.calls[number]
    with _in_python(printer):
        try:
            given = []
            for place, type in enumerate(called.arguments):
                array = np.empty(tuple(map(bound, type.shape)), type.dtype.numpy)
                ffi.memmove(ffi.from_buffer(array), arguments[place], array.nbytes)
                given.append(array)
            for place, array in enumerate(called.returned(given)):
                ffi.memmove(results[place], ffi.from_buffer(array), array.nbytes)
        except BaseException as error:
            if called.where is not None and getattr(error, "where", None) is not called.where:
                error.add_note(f"called by a program, at\n{excerpt(called.where)}")
            printer.error = error
            return 0
    return 1


def is_live(stream: Any) -> bool:
    """Return whether `stream` shows text redrawn in place: a terminal, or a notebook's output."""
    if type(stream).__module__.partition(".")[0] == "ipykernel":
        return True
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
