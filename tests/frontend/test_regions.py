"""`with_backend`: the device of ops."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from tests.frontend.harness import ir

X = np.arange(3, dtype=np.float32)


def lines_on_gpu(text: str) -> int:
    return sum(line.endswith(" on gpu") or " on gpu:" in line for line in text.splitlines())


def test_ops_in_the_region_carry_its_device() -> None:
    def f(x):
        y = x + 1.0
        with st.with_backend(st.GPU, x) as g:
            z = g * 2.0
            with st.with_backend(st.CPU):
                z = z - 1.0
        return y + z

    text = ir(f, X)
    assert "multiply(x, " in text
    assert [line for line in text.splitlines() if "multiply" in line][0].endswith("on gpu")
    assert not [line for line in text.splitlines() if "subtract" in line][0].endswith("on gpu")


def test_device_is_restored_on_every_way_out() -> None:
    def leave(x, n):
        with st.with_backend(st.GPU, x):
            for i in st.range(n):
                if i == 2:
                    return x * 2.0
        return x

    def f(x, n):
        y = leave(x, n)
        try:
            with st.with_backend(st.GPU, x):
                raise KeyError("out")
        except KeyError:
            pass
        return y - 1.0

    text = ir(f, X, 3)
    assert not [line for line in text.splitlines() if "subtract" in line][0].endswith("on gpu")
    assert lines_on_gpu(text) > 0


def test_function_form() -> None:
    def f(x):
        return st.with_backend(st.GPU, x)(lambda v: v * 2.0)(x)

    assert lines_on_gpu(ir(f, X)) > 0


def test_device_is_needed() -> None:
    def f(x):
        with st.with_backend("gpu", x):
            return x

    with pytest.raises(StagingError, match="with_backend takes a device, got str"):
        ir(f, X)
