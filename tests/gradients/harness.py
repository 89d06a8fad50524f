"""Gradients of whole programs: compiled and in eager mode, against central differences and forward mode, all in f64.

A table entry is a function, points, and the fault of our own autodiff that its check must notice (see `faults.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged.runtime.options import CompileOptions
from tests.frontend.harness import combined, differences, gradient_of

Fault = Callable[[], AbstractContextManager[None]]
Function = Callable[..., Any]


class WrongGradientError(AssertionError):
    """A gradient that is not that of the program."""


@dataclass(frozen=True)
class Program:
    """A sample program. `wrt` are the arguments that it is differentiated by, at each of `points`."""

    function: Function
    points: tuple[tuple[Any, ...], ...]
    fault: Fault
    wrt: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        return self.function.__name__


PROGRAMS: dict[str, Program] = {}


def program(*points: tuple[Any, ...], fault: Fault, wrt: tuple[int, ...] = (0,)) -> Callable[[Function], Function]:
    """Enter the function below into the table: `@program((X, 3), fault=last_iteration_left_out)`."""

    def enter(function: Function) -> Function:
        assert function.__name__ not in PROGRAMS, f"two programs are called {function.__name__}"
        PROGRAMS[function.__name__] = Program(function, points, fault, wrt)
        return function

    return enter


def check_reverse(entry: Program, options: CompileOptions | None = None, in_eager: bool = False) -> None:
    """The compiled gradient (or that of eager mode) is that of central differences. Raises WrongGradientError."""
    gradient = st.function(gradient_of(entry.function, entry.wrt))
    if options is not None:
        gradient.options = options
    for point in entry.points:
        if in_eager:
            with st.eager():
                have = gradient(*point)
        else:
            have = gradient(*point)
        for index, ours, theirs in zip(entry.wrt, have, _differences(entry, point), strict=True):
            _compare(ours, theirs, f"{entry.name}, argument {index}, at {point}")


def check_forward(entry: Program) -> None:
    """The derivative along a direction, by compiled forward mode, is that of central differences."""
    generator = np.random.default_rng(zlib.crc32(entry.name.encode()))
    wrt = entry.wrt

    def along(directions: Any, *args: Any) -> Any:
        def chosen(*values: Any) -> Any:
            filled = list(args)
            for index, value in zip(wrt, values, strict=True):
                filled[index] = value
            return combined(entry.function(*filled))

        return st.jvp(chosen, tuple(args[index] for index in wrt), tuple(directions))[1]

    staged = st.function(along)
    for point in entry.points:
        directions = [generator.standard_normal(np.shape(point[index])) for index in wrt]
        want = sum(np.sum(d * slope) for d, slope in zip(directions, _differences(entry, point), strict=True))
        _compare(staged(directions, *point), want, f"{entry.name}, forward, at {point}")


def _differences(entry: Program, point: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return differences(lambda *values: combined(entry.function(*values)), point, entry.wrt)


def _compare(have: Any, want: Any, where: str) -> None:
    try:
        np.testing.assert_allclose(np.asarray(have), want, rtol=1e-6, atol=1e-7, err_msg=where)
    except AssertionError as error:
        raise WrongGradientError(str(error)) from None
