"""Python's recursion limit while staging: syntax and IR are nested as deep as the user's expressions are long.

A sum of a thousand terms is a tree of a thousand levels, an `elif` chain of a thousand tests a thousand nested
branches, and everything that goes over them calls itself once a level or more. Python's limit of 1,000 calls is for
mistakes of users; an endless recursion of theirs is still found, as soon as this limit is met.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 10_000
"""Calls inside one another while staging. A thousand levels of `elif` take 8,000."""
_BYTES_PER_CALL = 830
"""C stack per call that Python makes from C, with a margin.

Unbounded recursion in the user's code must reach the recursion limit before the end of the stack, where the process
would die. Calls between Python functions take no C stack; `__getattr__` takes 750 bytes, `__add__` 580, a function
called by `map` 640, one mapped over a tree of `optree` 780. Not covered: callbacks from frames of several KiB (the key
of a sort, a ufunc of objects).
"""

_lock = threading.Lock()
_open = 0
_before = 0


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Let Python call as deep as the stack of C has room for; the limit is the process's, and put back by the last to
    leave.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _open, _before
    with _lock:
        if _open == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, _limit()))
        _open += 1


def _leave() -> None:
    global _open
    with _lock:
        _open -= 1
        if _open == 0:
            _put_back()


def goes_deep(function: Callable[P, R]) -> Callable[P, R]:
    """`function` under `deep_recursion`."""

    @wraps(function)
    def deep(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return deep


def _put_back() -> None:
    try:
        sys.setrecursionlimit(_before)
    except RecursionError:  # the caller is deeper than its own limit allows: it raised it since
        pass


@cache
def _limit() -> int:
    """The calls that the smallest stack of a thread has room for."""
    size = threading.stack_size() or _stack_of_system()
    return max(1000, min(_MOST, size // _BYTES_PER_CALL))


def _stack_of_system() -> int:
    try:
        import resource
    except ImportError:  # no POSIX system
        return 1 << 20
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    # Without a limit, threads have 2 MiB.
    return 2 << 20 if soft == resource.RLIM_INFINITY else soft
