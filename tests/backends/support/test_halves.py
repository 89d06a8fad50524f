"""Conversions of f16 and bf16 against NumPy's, for every number of theirs and the borders between two of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from staged.code.support.halves import LANES
from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4
from staged.ir.numbers import converted
from staged.ir.types import bf16, f16
from tests.backends.support.harness import Array, compiled, machines, pointer, program

NUMPY = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
TYPES = {"f32": np.float32, "f64": np.float64}
ALL_BITS = np.arange(2**16, dtype=np.uint16)


def _driver(name: str, source: str, target: str) -> str:
    return f"""
void run_{name}(const {source} *x, {target} *y, int64_t n) {{
    for (int64_t k = 0; k < n; ++k) {{
        y[k] = st_{name}(x[k]);
    }}
}}
"""


DRIVERS = {
    f"{half}_from_{wide}": _driver(f"{half}_from_{wide}", c_type, "uint16_t")
    for half in NUMPY
    for wide, c_type in (("f32", "float"), ("f64", "double"))
} | {f"f32_from_{half}": _driver(f"f32_from_{half}", "uint16_t", "float") for half in NUMPY}

WAYS = [(PORTABLE, None)] + [(m, m.march) for m in machines() if m in (X86_64_V3, X86_64_V4)]
WAYS += [(X86_64_V4, "native")] if X86_64_V4 in machines() else []
"""By integers, and by the machine's instructions where it has them: those of bf16 no named target has."""


VECTORS = {
    f"{name}_x{lanes}": f"""
void run_{name}_x{lanes}(const {source} *x, {target} *y, int64_t n) {{
    for (int64_t k = 0; k < n; k += {lanes}) {{
        const {source_vector}x{lanes} whole = *(const {source_vector}x{lanes}_u *)(x + k);
        *({target_vector}x{lanes}_u *)(y + k) = st_{name}_x{lanes}(whole);
    }}
}}
"""
    for half in NUMPY
    for lanes in LANES
    for name, source, target, source_vector, target_vector in (
        (f"{half}_from_f32", "float", "uint16_t", "f32", "u16"),
        (f"f32_from_{half}", "uint16_t", "float", "u16", "f32"),
    )
}
DRIVERS |= VECTORS


def run(name: str, x: Array, dtype: type, way: int, replace: tuple[str, str] = ("", "")) -> Array:
    machine, march = WAYS[way]
    y = np.empty(x.size, dtype)
    library = compiled(program(list(DRIVERS), "".join(DRIVERS.values()), machine, replace), march)
    getattr(library, f"run_{name}")(pointer(np.ascontiguousarray(x)), pointer(y), x.size)
    return y


def between(half: str, wide: type) -> Array:
    """Every number of a half dtype, the middle to the next one, and the numbers beside that middle."""
    low = ALL_BITS[:-1].view(NUMPY[half])
    with np.errstate(all="ignore"):
        x, after = low.astype(np.float64), ALL_BITS[1:].view(NUMPY[half]).astype(np.float64)
        edge = np.where(
            np.isinf(after) & np.isfinite(x), 2 * x - (ALL_BITS[:-1] - 1).astype(np.uint16).view(NUMPY[half]), after
        )
        middle = ((x + edge) / 2).astype(wide)
        around = [middle, np.nextafter(middle, wide(np.inf)), np.nextafter(middle, wide(-np.inf))]
        tiny = np.finfo(wide).smallest_subnormal * np.array([0, 1, 3, -1], wide)
        far = np.array([np.inf, -np.inf, np.nan, 1e30, -3e38, np.finfo(wide).max], wide)
        return np.concatenate([x.astype(wide), *around, tiny, far])


def same(a: Array, b: Array) -> bool:
    nan = np.isnan(a.astype(np.float64))
    return bool((nan == np.isnan(b.astype(np.float64))).all() and (a[~nan].view("V2") == b[~nan].view("V2")).all())


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("half", NUMPY)
def test_every_half_becomes_the_f32_of_its_value(half: str, way: int) -> None:
    made = run(f"f32_from_{half}", ALL_BITS, np.float32, way)
    expected = ALL_BITS.view(NUMPY[half]).astype(np.float32)
    np.testing.assert_array_equal(made, expected)
    numbers = ~np.isnan(expected)
    assert (np.signbit(made) == np.signbit(expected))[numbers].all()


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("wide", TYPES)
@pytest.mark.parametrize("half", NUMPY)
def test_floats_are_rounded_once_to_the_nearest_even_half(half: str, wide: str, way: int) -> None:
    x = between(half, TYPES[wide])
    made = run(f"{half}_from_{wide}", x, np.uint16, way).view(NUMPY[half])
    assert same(made, converted(x, {"f16": f16, "bf16": bf16}[half]))


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("half", NUMPY)
def test_vectors_are_converted_as_numbers_are(half: str, lanes: int, way: int) -> None:
    wide = run(f"f32_from_{half}_x{lanes}", ALL_BITS, np.float32, way)
    np.testing.assert_array_equal(wide, run(f"f32_from_{half}", ALL_BITS, np.float32, way))
    zeros = ALL_BITS.view(NUMPY[half]) == 0
    assert np.signbit(wide[zeros]).tolist() == [False, True]
    x = between(half, np.float32)
    x = np.append(x, np.zeros(-x.size % lanes, np.float32))
    made = run(f"{half}_from_f32_x{lanes}", x, np.uint16, way)
    assert same(made.view(NUMPY[half]), run(f"{half}_from_f32", x, np.uint16, way).view(NUMPY[half]))


@pytest.mark.parametrize("half", NUMPY)
def test_numpys_reading_rounds_to_the_nearest_even(half: str) -> None:
    """By distances in f64, which has the middle of two halves."""
    x = between(half, np.float64)
    x = x[np.abs(x) < float(ml_dtypes.finfo(NUMPY[half]).max)]
    made = converted(x, {"f16": f16, "bf16": bf16}[half])
    bits, distance = made.view(np.uint16), np.abs(made.astype(np.float64) - x)
    for step in (1, -1):
        beside = (
            (bits.astype(np.int32) + step).clip(0, 2**16 - 1).astype(np.uint16).view(NUMPY[half]).astype(np.float64)
        )
        other = np.where(np.isfinite(beside), np.abs(beside - x), np.inf)
        assert (distance <= other).all()
        assert ((distance < other) | (bits % 2 == 0)).all()


@pytest.mark.parametrize(
    ("name", "replace"),
    [
        ("f16_from_f32", ("0xfffu +", "0x1000u +")),
        ("bf16_from_f32", ("+ (word >> 16 & 1u)", "")),
        ("f16_from_f64", ("(word - past) | 1u", "word - 0u * past")),
    ],
)
def test_a_wrong_rounding_is_seen(name: str, replace: tuple[str, str]) -> None:
    half, _, wide = name.split("_")
    x = between(half, TYPES[wide])
    made = run(name, x, np.uint16, 0, replace).view(NUMPY[half])
    assert not same(made, converted(x, {"f16": f16, "bf16": bf16}[half]))
