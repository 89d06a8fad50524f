"""Options of regions: they hold for the whole program, and regions that disagree are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.errors import StagingError
from staged.ir.options import DeviceOptions
from tests.frontend.harness import ir

X = np.arange(3, dtype=np.float32)


def printed(**options: Any) -> str:
    def f(x):
        with with_backend(GPU, x, **options):
            y = x * 2.0
        with with_backend(GPU, y):
            z = y + 1.0
        return z

    return ir(f, X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, None),
        ({"tf32": False, "deterministic": True, "algorithms": "heuristic"}, None),
        ({"tf32": True}, "  device: tf32"),
        ({"deterministic": False}, "  device: nondeterministic"),
        ({"algorithms": "timed"}, "  device: algorithms=timed"),
        ({"tf32": True, "deterministic": False, "algorithms": "timed"}, "  device: tf32 nondeterministic algorithms=timed"),
    ],
)
def test_options_of_one_region_hold_for_the_program(options: dict[str, Any], words: str | None) -> None:
    assert [line for line in printed(**options).splitlines() if "device:" in line] == ([words] if words else [])


def test_options_around_plain_python_hold_for_the_programs_inside() -> None:
    @st.function
    def f(x):
        return x * 2.0

    plain = f.stage(X).ir
    with with_backend(GPU, tf32=True):
        assert "device: tf32 keeps results\n" in f.stage(X).ir
        with with_backend(GPU, deterministic=False):
            assert "device: tf32 nondeterministic keeps results\n" in f.stage(X).ir
        with with_backend(CPU):
            assert f.stage(X).ir == plain
    assert f.stage(X).ir == plain


def test_an_option_without_anything_on_the_device_says_nothing() -> None:
    def f(x):
        with with_backend(GPU, tf32=True):
            pass
        return x * 2.0

    assert "device:" not in ir(f, X)


def test_what_is_recorded_again_says_an_option_once() -> None:
    def f(x, n):
        total = 0
        for _ in st.range(n):
            with with_backend(GPU, x, tf32=True):
                x = x * 2.0
            total += st.sum(x)
        return x, total

    assert ir(f, X, 3).count("device: tf32") == 1


def one_after_the_other(x):
    with with_backend(GPU, x, tf32=True):  # the first
        y = x * 2.0
    with with_backend(GPU, y, tf32=False):  # the second
        return y + 1.0


def one_inside_the_other(x):
    with with_backend(GPU, x, algorithms="timed"):  # the first
        with with_backend(GPU, x, algorithms="heuristic"):  # the second
            return x * 2.0


@pytest.mark.parametrize("function", [one_after_the_other, one_inside_the_other])
def test_regions_that_disagree_are_refused_with_both_lines(function: Callable[..., Any]) -> None:
    with pytest.raises(StagingError, match="in another region of one program") as caught:
        ir(function, X)
    words = str(caught.value)
    assert "# the first" in words and "# the second" in words and "programs of their own" in words


def test_a_region_disagrees_with_plain_python_around_it() -> None:
    with with_backend(GPU, deterministic=True):  # around
        with pytest.raises(StagingError, match="`deterministic=False` here and `deterministic=True`") as caught:
            ir(inside, X)
    assert "# around" in str(caught.value) and "# inside" in str(caught.value)


def inside(x):
    with with_backend(GPU, x, deterministic=False):  # inside
        return x * 2.0


@pytest.mark.parametrize(
    ("device", "options", "words"),
    [
        (CPU, {"tf32": True}, "`tf32` is an option of a GPU's region"),
        (CPU, {"deterministic": False}, "`deterministic` is an option of a GPU's region"),
        (CPU, {"algorithms": "timed"}, "`algorithms` is an option of a GPU's region"),
        (GPU, {"tf32": 1}, "tf32=True or tf32=False, got 1"),
        (GPU, {"deterministic": "no"}, "deterministic=True or deterministic=False, got 'no'"),
        (GPU, {"algorithms": "fastest"}, "algorithms='heuristic' or algorithms='timed', got 'fastest'"),
    ],
)
def test_options_that_there_are_not(device: Any, options: dict[str, Any], words: str) -> None:
    def f(x):
        with with_backend(device, x, **options):  # the line
            return x * 2.0

    with pytest.raises(StagingError, match=words) as caught:
        ir(f, X)
    assert "# the line" in str(caught.value) and "To fix" in str(caught.value)


def test_defaults_say_nothing() -> None:
    assert str(DeviceOptions()) == ""
