"""The programs that CUDA's back end is tested with, and those of sizes found at run time, on an OpenCL device."""

from __future__ import annotations

from typing import Any

import pytest

import staged as st
from staged.errors import ProgramError
from staged.testing import compare_trees
from tests import opencl_device
from tests.backends.cublas_cudnn import test_dimensions, test_programs
from tests.frontend.harness import Case, differentiated, each, gradient_of


@pytest.fixture(autouse=True)
def opencl(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    monkeypatch.setenv("STAGED_BACKEND", "opencl")


def outcome(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, str]:
    """The result of a call, or the error that stops it."""
    st.seed(0)
    try:
        return function(*arguments), ""
    except ProgramError as error:
        return None, str(error).splitlines()[0]


def check(function: Any, arguments: tuple[Any, ...], tolerance: float) -> None:
    """A function gives what eager mode gives, and stops where that stops."""
    with st.eager():
        expected, stopped = outcome(function, arguments)
    found, words = outcome(function, arguments)
    assert bool(words) == bool(stopped), (words, stopped)
    if not stopped:
        compare_trees(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("function", "arguments"), test_programs.CASES, ids=[f.__name__ for f, _ in test_programs.CASES]
)
def test_programs_of_cuda(function: Any, arguments: tuple[Any, ...]) -> None:
    check(function, arguments, 5e-5)


@pytest.mark.slow
@each(test_dimensions.CASES)
def test_sizes_found_at_run_time(case: Case) -> None:
    for arguments in case.runs:
        check(test_dimensions.on_gpu(case.function), arguments, max(case.rtol, 5e-5))


@pytest.mark.slow
@each(differentiated(test_dimensions.CASES))
def test_gradients_of_sizes_found_at_run_time(case: Case) -> None:
    check(test_dimensions.on_gpu(gradient_of(case.function, case.wrt)), case.runs[-1], 1e-4)
