"""The maths of generated programs against NumPy in a wider format."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from staged.code.support.math import function_snippet
from staged.ir.machine import PORTABLE, Machine
from tests.backends.support.harness import C_NAMES, NUMPY, Array, compiled, machines, pointer, program, ulps


def _erf(x: Array) -> Array:
    return np.array([math.erf(float(value)) for value in x], dtype=x.dtype)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


UNARY = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "erf": _erf, "sin": np.sin,
    "cos": np.cos, "sqrt": np.sqrt, "rsqrt": _rsqrt, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh,
}  # fmt: skip
BINARY = {"maximum": np.maximum, "minimum": np.minimum, "pow": np.power, "atan2": np.arctan2}
EXACT = {"floor", "ceil", "round", "trunc"}
# libm's own, and erf in f64, whose reference is itself only within one ulp
BOUNDS = {("tanh", "f64"): 2.5, ("sinh", "f64"): 2.5, ("cosh", "f64"): 2.5, ("sinh", "f32"): 2.5, ("cosh", "f32"): 2.5}


def _driver(name: str, dtype: str, arguments: int, vector_type: str, kind: str) -> str:
    """`<kind>_<name>_<dtype>`: the function on whole arrays, in vectors of this type."""
    c_type, vector = C_NAMES[dtype], f"st_{name}_{vector_type}"
    inputs = ("x", "z")[:arguments]
    parameters = ", ".join(f"const {c_type} *{i}" for i in inputs)
    if kind == "scalar":
        return f"""
void scalar_{name}_{dtype}({parameters}, {c_type} *y, int64_t n) {{
    for (int64_t k = 0; k < n; ++k) {{
        y[k] = {vector}({", ".join(f"{i}[k]" for i in inputs)});
    }}
}}
"""
    loads = " ".join(f"const {vector_type} {i}v = *(const {vector_type}_u *)({i} + k);" for i in inputs)
    return f"""
void {kind}_{name}_{dtype}({parameters}, {c_type} *y, int64_t n) {{
    for (int64_t k = 0; k < n; k += (int64_t)(sizeof({vector_type}) / sizeof({c_type}))) {{
        {loads}
        *({vector_type}_u *)(y + k) = {vector}({", ".join(f"{i}v" for i in inputs)});
    }}
}}
"""


def vector_kinds(dtype: str, machine: Machine) -> dict[str, str]:
    """The types that a function exists for: numbers, vectors, and for f32 the half vectors that stand beside 64-bit numbers."""
    half = {"half": f"f32x{machine.vector_bytes // 8}"} if dtype == "f32" else {}
    return {"scalar": dtype, "vector": f"{dtype}v", **half}


def library(
    machine: Machine, names: tuple[str, ...] = (*UNARY, *BINARY), replace: tuple[str, str] = ("", "")
) -> ctypes.CDLL:
    snippets, drivers = [], ""
    for name in names:
        for dtype in ("f32", "f64"):
            for kind, type in vector_kinds(dtype, machine).items():
                snippets.append(function_snippet(name, type))
                drivers += _driver(name, dtype, 2 if name in BINARY else 1, type, kind)
    return compiled(program(snippets, drivers, machine, replace), machine.march)


def run(lib: ctypes.CDLL, kind: str, name: str, *arguments: Array) -> Array:
    dtype = "f32" if arguments[0].dtype == np.float32 else "f64"
    y = np.empty_like(arguments[0])
    getattr(lib, f"{kind}_{name}_{dtype}")(*map(pointer, arguments), pointer(y), ctypes.c_int64(y.size))
    return y


def numbers(dtype: str, count: int, seed: int = 0) -> Array:
    """Special values, every exponent, and the ranges in which functions are used; a multiple of 64 numbers."""
    t = NUMPY[dtype]
    limits = np.finfo(t)
    special = [0, 1, 0.5, 1.5, 2.5, np.inf, np.nan, limits.tiny, limits.max, limits.smallest_subnormal, limits.eps]
    special += [20.5, 87.4, 88.72, 88.73, 103.9, 104.1, 709.7, 709.8, 745.1, 745.2, 400, 401, 6399, 6401, 0.625, 0.92]
    special += [2.0 ** (limits.nmant - 1) + 0.5, 2.0**limits.nmant + 1]
    rng = np.random.default_rng(seed)
    word = np.uint32 if dtype == "f32" else np.uint64
    anything = rng.integers(0, np.iinfo(word).max, count // 3, dtype=word).view(t)
    scales = np.array([0.5, 1.0, 2.0, 10.0, 100.0, 1000.0])
    usual = rng.uniform(-1, 1, count - count // 3) * rng.choice(scales, count - count // 3)
    with np.errstate(all="ignore"):
        x = np.concatenate([np.array(special, t), -np.array(special, t), anything, usual.astype(t)])
    return np.resize(x, (len(x) + 63) // 64 * 64)


def wider(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


@pytest.fixture(scope="module", params=machines(), ids=lambda machine: machine.name)
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(request.param)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(lib: ctypes.CDLL, name: str, dtype: str) -> None:
    x = numbers(dtype, 6_000 if name == "erf" else 60_000)
    with np.errstate(all="ignore"):
        exact = UNARY[name](wider(x) if name != "erf" else x.astype(np.float64))
    scalar, vector = run(lib, "scalar", name, x), run(lib, "vector", name, x)
    distance = ulps(scalar, exact)
    bound = 0.0 if name in EXACT else BOUNDS.get((name, dtype), 2.0)
    worst = int(np.argmax(distance))
    assert distance[worst] <= bound, f"{name}({x[worst]!r}) = {scalar[worst]!r}: {distance[worst]:.2f} ulp off"
    known = ~np.isnan(scalar)
    with np.errstate(all="ignore"):
        assert np.array_equal(np.signbit(scalar)[known], np.signbit(exact.astype(x.dtype))[known]), "a sign of zero"
    assert np.array_equal(np.isnan(vector), ~known)
    assert scalar.tobytes() == vector.tobytes(), "vectors and single numbers differ"
    if dtype == "f32":
        assert vector.tobytes() == run(lib, "half", name, x).tobytes(), "vectors and half vectors differ"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(lib: ctypes.CDLL, name: str, dtype: str) -> None:
    x, z = numbers(dtype, 20_000), numbers(dtype, 20_000, seed=1)[::-1].copy()
    specials = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, np.inf, -np.inf, np.nan], NUMPY[dtype])
    x[:100], z[:100] = np.repeat(specials, 10), np.tile(specials, 10)
    with np.errstate(all="ignore"):
        exact = BINARY[name](wider(x), wider(z))
    scalar, vector = run(lib, "scalar", name, x, z), run(lib, "vector", name, x, z)
    assert float(ulps(scalar, exact).max()) <= (0.0 if name in ("maximum", "minimum") else 2.0)
    known = ~np.isnan(scalar)
    assert np.array_equal(np.isnan(vector), ~known)
    assert scalar[known].tobytes() == vector[known].tobytes()
    if dtype == "f32":
        assert vector.tobytes() == run(lib, "half", name, x, z).tobytes()


def test_accuracy_near_zero(lib: ctypes.CDLL) -> None:
    """The functions that vanish at 0 keep a relative error there, down to the smallest numbers."""
    for dtype in ("f32", "f64"):
        limits = np.finfo(NUMPY[dtype])
        x = np.geomspace(float(limits.tiny) * 1e-2, 1.0, 6400).astype(NUMPY[dtype])
        for name in ("tanh", "expm1", "log1p", "sin"):
            distance = ulps(run(lib, "vector", name, x), UNARY[name](wider(x)))
            assert float(distance.max()) <= 2.5, f"{name} {dtype}"


def test_a_wrong_coefficient_is_noticed() -> None:
    x = numbers("f32", 2_000)
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64))
    right = library(PORTABLE, ("exp",))
    wrong = library(PORTABLE, ("exp",), ("0.041666463f", "0.0417f"))
    assert float(ulps(run(right, "scalar", "exp", x), exact).max()) <= 2.0
    assert float(ulps(run(wrong, "scalar", "exp", x), exact).max()) > 2.0


def test_text_without_vectors_uses_none() -> None:
    """A program of single numbers carries no vector type."""
    text = program([function_snippet("tanh", "f32")], "", PORTABLE)
    assert "vector_size" not in text
    assert "st_exp_f32(" in text
