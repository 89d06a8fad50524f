"""Exact identities of arithmetic hold in programs as in eager mode, since products and sums are rounded one by one.

Reductions, matmuls and convolutions contract; `contract=True` lets all arithmetic do so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from tests import opencl_device

RNG = np.random.default_rng(0)


def numbers(count: int = 3, size: int = 67, dtype: str = "float32") -> list[np.ndarray]:
    return [RNG.standard_normal(size).astype(dtype) for _ in range(count)]


def symmetric(x, y, z):
    return x * y - y * x, x * y + y * z - (y * z + x * y), x * x - y * y - (x - y) * (x + y)


def discriminant(x, y, z):
    b = 2.0 * x * y
    return b * b - 4.0 * (x * x) * (y * y)


def two_sum(x, y, z):
    s = x * y
    total = s + z
    part = total - s
    return total, (s - (total - part)) + (z - part)


def adam(x, y, z):
    m = 0.9 * x + 0.1 * y
    v = 0.999 * (z * z) + 0.001 * y * y
    return x - 0.01 * (m / (st.sqrt(v) + 1e-8))


def chosen(x, y, z):
    return st.where(x > 0, x * y, 0.0) + z, -(x * y) + z, st.abs(x * y) - z


def in_a_loop(x, y, z):
    for _ in st.range(5):
        x = x * y + z
        y = y - z * z
    return x, y


def of_numbers(x, y, z):
    total = x[0] * y[0]
    for i in st.range(9):
        total = total * x[i] - y[i] * z[i]
    return total


def complex_products(x, y, z):
    w = st.complex(x, y)
    return st.real(w * st.conj(w)), st.imag(w * st.conj(w))


def products_of_products(x, y, z):
    return st.sum(x * y - y * x), st.cross(x[:66].reshape(22, 3), x[:66].reshape(22, 3))


FUNCTIONS = (
    symmetric, discriminant, two_sum, adam, chosen, in_a_loop, of_numbers, complex_products, products_of_products,
)  # fmt: skip


MODES = ("c", "portable", "c99", "cuda", "opencl")


def same_bits(have: Any, want: Any) -> None:
    pairs = zip(have, want, strict=True) if isinstance(want, tuple) else [(have, want)]
    for left, right in pairs:
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def compiled(function: Callable[..., Any], mode: str, request: pytest.FixtureRequest) -> Callable[..., Any]:
    if mode not in ("cuda", "opencl"):
        return st.function(function, target=None if mode == "c" else mode)  # type: ignore[call-overload]
    options: dict[str, Any] = {"using": "opencl"} if mode == "opencl" else {}
    if mode == "opencl":
        opencl_device.require()
    else:
        request.getfixturevalue("emulated_device")

    def in_region(*arguments: Any) -> Any:
        with with_backend(GPU, **options):
            return function(*arguments)

    return st.function(in_region)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_programs_have_the_bits_of_eager_mode(
    function: Callable[..., Any], mode: str, request: pytest.FixtureRequest
) -> None:
    program = compiled(function, mode, request)
    for dtype in ("float32", "float64"):
        arguments = numbers(dtype=dtype)
        with st.eager():
            want = function(*arguments)
        same_bits(program(*arguments), want)


@pytest.mark.parametrize("mode", ["c", "cuda"])
def test_contract_lets_all_arithmetic_contract(mode: str, request: pytest.FixtureRequest) -> None:
    if "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no fused multiply-add")
    x, y, z = numbers()
    program = compiled(discriminant, mode, request)
    program = st.function(program.__wrapped__, contract=True)  # type: ignore[attr-defined, call-overload]
    assert np.any(np.asarray(program(x, y, z)) != np.asarray(discriminant(x, y, z)))


def test_the_variable_is_the_default_of_contract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = numbers()
    for asked, mode in (("", "off"), ("1", "fast"), ("0", "off")):
        monkeypatch.setenv("STAGED_CONTRACT", asked)
        st.function(discriminant).stage(*arguments).export(tmp_path / f"at{asked}")
        texts = [path.read_text() for path in (tmp_path / f"at{asked}").glob("discriminant*.c")]
        assert sum(f'"fp-contract={mode}"' in text for text in texts) == 3  # portable, v3, v4
        assert ("-ffp-contract=fast" in (tmp_path / f"at{asked}" / "Makefile").read_text()) == (mode == "fast")
    monkeypatch.setenv("STAGED_CONTRACT", "yes")
    with pytest.raises(st.StagedError, match="STAGED_CONTRACT is 'yes'"):
        st.function(discriminant).stage(*arguments)


def test_sums_of_products_are_fused() -> None:
    x, y, _ = numbers()
    source = st.function(lambda x, y: (st.sum(x * y), x @ y)).stage(x, y).source
    assert "st_fma_" in source and "st_dots_" in source
