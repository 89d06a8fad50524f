"""Kernels that the user writes on an OpenCL device: all that need no warps."""

from __future__ import annotations

from typing import Any

import pytest

import staged as st
from staged.testing import compare_trees
from tests import opencl_device
from tests.backends.cublas_cudnn import gpu_funcs

SHUFFLES = (gpu_funcs.sums_of_warps, gpu_funcs.exchanged)
PROGRAMS = {f.__name__: (f, arguments) for f, arguments, _ in gpu_funcs.PROGRAMS if f not in SHUFFLES}


@pytest.fixture(autouse=True)
def opencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_BACKEND", "opencl")


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_threads_in_python(name: str) -> None:
    opencl_device.require()
    function, arguments = PROGRAMS[name]
    program = st.function(function)
    assert "// backend opencl" in program.stage(*arguments).source
    with st.eager():
        expected = program(*arguments)
    compare_trees(program(*arguments), expected, rtol=1e-6, atol=1e-6)


def test_an_index_out_of_range_stops_the_program_with_the_kernel_s_line() -> None:
    opencl_device.require()

    @st.gpu_func
    def beyond(x: Any, out: Any) -> None:
        i = st.cuda.global_index.x
        out[i] = x[i + 3]

    @st.function
    def program(x: Any) -> Any:
        with st.with_backend(st.GPU, x):
            return beyond[1, 100](x, out=st.zeros_like(x))

    with pytest.raises(IndexError, match="out of range") as error:
        program(gpu_funcs.X)
    assert "test_gpu_func.py" in str(error.value)


@pytest.mark.parametrize("function", SHUFFLES)
def test_a_shuffle_is_refused_with_its_line(function: Any) -> None:
    _, arguments, _ = next(row for row in gpu_funcs.PROGRAMS if row[0] is function)
    words = "the back end 'opencl' cannot write a shuffle: its devices have no warps"
    with pytest.raises(st.errors.UnsupportedError, match=words) as error:
        st.function(function).stage(*arguments).source  # noqa: B018
    assert "gpu_funcs.py" in str(error.value)
