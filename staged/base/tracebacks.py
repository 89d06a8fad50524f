"""Tracebacks that show the user's frames, and only the one frame of ours through which the error leaves.

Under a wrong line in a staged function lie some twenty frames of the front end. They are removed as the error leaves
the library, so that Python's output ends at the user's line. `STAGED_TRACEBACK=full` keeps all.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import ParamSpec, TypeVar

from staged.errors import StagedError
from staged.source import BODY, PACKAGE, here, is_library_file

P = ParamSpec("P")
R = TypeVar("R")

_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_STANDARD, "site-packages") + os.sep
_INNER = tuple(
    os.path.join(PACKAGE, part) + os.sep
    for part in ("autodiff", "backends", "batching", "code", "ir", "kernels", "passes", "runtime")
)
"""Files in which an error other than StagedError is always a fault of ours: the frames are kept."""


def trims_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose errors leave it without the frames between the caller and the user's code."""

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RecursionError:  # its frames say who calls whom, to the trace around
            raise
        except Exception as error:
            left = trimmed(error)
        raise left  # STAGED_TRACEBACK=full shows the frames that are left out here

    return entry


def trimmed(error: BaseException) -> BaseException:
    """Remove our frames from the traceback; all stay for a fault of ours, or if the setting demands it."""
    if os.environ.get("STAGED_TRACEBACK") == "full" or not _is_of_user(error):
        return error
    if isinstance(error, StagedError) and error.__cause__ is None:
        error.__suppress_context__ = True  # what the front end tried before it knew what is wrong
    if isinstance(error, StagedError) and error.where is not None and is_library_file(error.where.file):
        error.where = here()  # the call of a function that this library has written in itself, such as `odeint`
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = _users_part(link.__traceback__)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return error


def _is_of_user(error: BaseException) -> bool:
    """Return whether the user's program is at fault: it raised, or the library did so on purpose or for a wrong
    argument.
    """
    if isinstance(error, StagedError):
        return True
    if is_library_file(_last_file(error.__traceback__)) and (
        isinstance(error, AssertionError) or _users_part(error.__traceback__) is None
    ):
        return False
    return not _last_file(error.__traceback__).startswith(_INNER)


def _last_file(traceback: TracebackType | None) -> str:
    file = ""
    while traceback is not None:
        file, traceback = traceback.tb_frame.f_code.co_filename, traceback.tb_next
    return file


def _users_part(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback of the user's frames in this one; a function's frame, and not those of its converted pieces around
    it.
    """
    kept: list[tuple[FrameType, int, int]] = []
    after_ours = True
    while traceback is not None:
        frame = traceback.tb_frame
        file = frame.f_code.co_filename
        after_ours = is_library_file(file) or (after_ours and _is_of_python(file))
        if not after_ours:
            if kept and _is_piece_of(frame.f_code, kept[-1][0].f_code):
                kept.pop()
            kept.append((frame, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    made: TracebackType | None = None
    for frame, instruction, line in reversed(kept):
        made = TracebackType(made, frame, instruction, line)
    return made


def _is_of_python(file: str) -> bool:
    """Return whether a file is of Python's own library, which ours calls (`inspect`, `contextlib`)."""
    return file == "<string>" or (file.startswith(_STANDARD) and not file.startswith(_INSTALLED))


def _is_piece_of(inner: CodeType, outer: CodeType) -> bool:
    """Return whether `inner` is the body of a branch or loop of the converted function `outer`."""
    shares_variables = any(name.startswith(f"locals{BODY}") for name in inner.co_freevars)
    return shares_variables and (inner.co_filename, inner.co_qualname) == (outer.co_filename, outer.co_qualname)
