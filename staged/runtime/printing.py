"""Send the output of a running program to Python's `sys.stdout`; an error there stops the program."""

from __future__ import annotations

import codecs
import sys
import threading
from typing import Any

from staged.runtime.guard import ffi, guard


class Printer:
    """The receiver of a running call's output. It keeps an exception raised there, which C cannot propagate."""

    def __init__(self, stop: Any) -> None:
        self.stop = stop
        self.error: BaseException | None = None
        self.catches = False  # whether the call has taken over SIGINT
        self.thread = 0  # that runs the call, or prints for it: a program that recurses runs on a thread of its own
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
    printer.thread = threading.get_ident()
    # Python raises interrupts on its main thread alone: elsewhere they stay ours, or they would be lost.
    suspends = printer.catches and printer.thread == threading.main_thread().ident
    if suspends:
        guard().st_suspend()
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
    finally:
        if suspends:
            guard().st_resume()


def is_live(stream: Any) -> bool:
    """Return whether `stream` shows text redrawn in place: a terminal, or a notebook's output."""
    if type(stream).__module__.partition(".")[0] == "ipykernel":
        return True
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
