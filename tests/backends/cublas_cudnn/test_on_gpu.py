"""The programs that the other tests run on the emulated device, on the GPU of this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.runtime.cuda import devices
from staged.runtime.cuda.interface import current_runtime
from staged.runtime.guard import ffi
from staged.testing import compare_trees
from tests.backends.cublas_cudnn import programs
from tests.backends.cublas_cudnn.harness import agrees_and_prints_as_in_eager
from tests.backends.cublas_cudnn.test_all_ops import LIBRARY, samples_of
from tests.backends.cublas_cudnn.test_libraries import PRODUCTS, agrees_with_eager
from tests.backends.cublas_cudnn.test_programs import CASES
from tests.backends.native.test_all_ops import KINDS

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """With `--on-gpu` the caller has chosen the device, which is the emulated one in a rehearsal."""
    if not pytestconfig.getoption("--on-gpu"):
        monkeypatch.delenv("STAGED_CUDA", raising=False)


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_agrees_with_eager(function: Any, arguments: tuple[Any, ...], capsys: pytest.CaptureFixture[str]) -> None:
    agrees_and_prints_as_in_eager(function, arguments, capsys)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != LIBRARY])
def test_ops_between_neighbours(kind: str) -> None:
    program, groups = samples_of(kind)
    with st.eager():
        expected = program(groups)
    compare_trees(program(groups), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "arguments"), [case[1:3] for case in PRODUCTS], ids=[case[0] for case in PRODUCTS]
)
def test_products_by_nvidias_libraries(function: Any, arguments: tuple[Any, ...]) -> None:
    agrees_with_eager(function, arguments)


def free_memory() -> int:
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    assert current_runtime().function("cudaMemGetInfo", "int (*)(size_t *, size_t *)")(free, total) == 0
    return int(free[0])


def test_calls_do_not_use_up_the_memory() -> None:
    x = np.ones((1024, 1024), np.float32)
    programs.double(x)
    before = free_memory()
    for _ in range(200):
        np.testing.assert_array_equal(programs.double(x), x * 2.0 + 1.0)
    assert before - free_memory() < 64 << 20


def test_what_the_gpu_is_called() -> None:
    if devices.is_emulated():
        pytest.skip("the emulated device is not in the list of GPUs")
    found = devices.gpus()
    assert found and all(gpu.name and gpu.memory > 0 and gpu.capability >= (7, 5) for gpu in found)
