"""An error while a graph is captured ends the capture: it is raised, and the stream can be used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.errors import ProgramError
from staged.runtime import cuda
from staged.runtime.cuda.emulated import compile_emulated
from staged.runtime.cuda.program import CudaProgram
from staged.runtime.options import CompileOptions

X = np.random.default_rng(2).normal(size=(5, 5)).astype(np.float32)


def power(x: Any, w: Any, n: Any) -> Any:
    with with_backend(GPU, x, w):
        for _ in st.range(n):
            x = st.tanh(x @ w) @ w
            x = st.sin(x @ w) @ w
    return x


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("cudaStreamSynchronize(gpu->stream)", "cudaStreamSynchronize(gpu->stream): operation not permitted"),
        ("cudaMalloc(&place, 4)", "cudaMalloc(&place, 4): operation not permitted"),
        ("cudaDeviceSynchronize()", "cudaDeviceSynchronize(): operation not permitted"),
    ],
)
def test_a_call_that_a_capture_cannot_take_is_named(call: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    artifact = st.function(power).stage(X, X, 3)._artifact
    head = artifact.source.index("static int do_power_turn(")
    start = artifact.source.index("{\n", head) + 2
    text = f"    void *place = NULL;\n    (void)place;\n    CUDA_CHECK(0, {call});\n"
    broken = replace(artifact, source=artifact.source[:start] + text + artifact.source[start:])
    before = cuda.emulator().counts()
    program = CudaProgram(broken, compile_emulated(broken, CompileOptions()))
    program(X, X, 1)  # as it stands
    for _ in range(2):
        with pytest.raises(ProgramError) as raised:
            program(X, X, 3)
        assert error in str(raised.value)
        assert "power" in str(raised.value), "with the user's line"
    seen = cuda.emulator().counts() - before
    assert (seen.violations, seen.live_graphs, seen.graph_launches) == (2, 0, 0)
    (found,) = program(X, X, 0)  # the stream takes work, and waits, as before
    np.testing.assert_array_equal(found, X)
