"""Random numbers in C against the NumPy reference, bit for bit."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from staged.ir.machine import PORTABLE, Machine
from staged.ir.types import f32, f64
from staged.library.draws import philox
from tests.backends.support.harness import C_NAMES, NUMPY, Array, compiled, machines, pointer, program, ulps
from tests.ops.test_random import KNOWN

KEYS = [(0, 0, 0), (7, 2, 5), (-1, 3, 2**40 + 1), (2**63 - 1, 2**31 + 5, 1)]

_SCALAR = """
void scalar_{function}({c_type} *y, int64_t first, int64_t n, int64_t seed, int64_t stream, int64_t counter) {{
    for (int64_t k = 0; k < n; ++k) {{
        y[k] = {function}(seed, stream, counter, first + k);
    }}
}}
"""
_VECTOR = """
void vector_{function}({c_type} *y, int64_t first, int64_t n, int64_t seed, int64_t stream, int64_t counter) {{
    for (int64_t k = 0; k < n; k += (int64_t)(sizeof({vector}) / sizeof({c_type}))) {{
        *({vector}_u *)(y + k) = {function}(seed, stream, counter, first + k);
    }}
}}
"""
_OTHERS = """
void philox(uint32_t *out, const uint32_t *counter, const uint32_t *key) {
    st_philox4x32(out, counter, key);
}
void bernoulli(int32_t *y, int64_t n, int64_t seed, int64_t stream, int64_t counter, float p) {
    for (int64_t k = 0; k < n; ++k) {
        y[k] = st_bernoulli(seed, stream, counter, p, k);
    }
}
void bernoulli_vector(int32_t *y, int64_t n, int64_t seed, int64_t stream, int64_t counter, float p) {
    for (int64_t k = 0; k < n; k += (int64_t)(sizeof(i32v) / 4)) {
        *(i32v_u *)(y + k) = st_bernoulli_i32v(seed, stream, counter, p, k) & 1;
    }
}
void permutation(int64_t *order, int64_t n, int64_t seed, int64_t stream, int64_t counter) {
    st_permutation(order, n, seed, stream, counter);
}
"""
FUNCTIONS = {"uniform_f32": "f32", "uniform_f64": "f64", "normal_f32": "f32", "normal_f64": "f64"}


def library(machine: Machine, replace: tuple[str, str] = ("", "")) -> ctypes.CDLL:
    snippets = [
        "philox",
        "st_bernoulli",
        "st_bernoulli_i32v",
        "st_permutation",
        "st_random_bits",
        "st_random_bits_u32v",
    ]
    drivers = _SCALAR.format(function="st_random_bits", c_type="uint32_t")
    drivers += _VECTOR.format(function="st_random_bits_u32v", c_type="uint32_t", vector="u32v")
    for name, dtype in FUNCTIONS.items():
        snippets += [f"st_{name}", f"st_{name}v"]
        drivers += _SCALAR.format(function=f"st_{name}", c_type=C_NAMES[dtype])
        drivers += _VECTOR.format(function=f"st_{name}v", c_type=C_NAMES[dtype], vector=f"{dtype}v")
    return compiled(program(snippets, drivers + _OTHERS, machine, replace), machine.march)


@pytest.fixture(scope="module", params=machines(), ids=lambda machine: machine.name)
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(request.param)


def draw(lib: ctypes.CDLL, name: str, dtype: str, key: tuple[int, int, int], count: int, first: int = 0) -> Array:
    y = np.empty(count, NUMPY[dtype])
    getattr(lib, name)(pointer(y), *(ctypes.c_int64(value) for value in (first, count, *key)))
    return y


def reference(function: Any, key: tuple[int, int, int], *rest: Any) -> Array:
    seed, stream, counter = (np.array(part, np.int64) for part in key)
    return np.asarray(function(seed, stream, counter, *rest))


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(lib: ctypes.CDLL, counter: list[int], key: list[int], answer: list[int]) -> None:
    out = np.zeros(4, np.uint32)
    lib.philox(pointer(out), pointer(np.array(counter, np.uint32)), pointer(np.array(key, np.uint32)))
    assert out.tolist() == answer


@pytest.mark.parametrize("key", KEYS)
def test_words(lib: ctypes.CDLL, key: tuple[int, int, int]) -> None:
    expected = philox.words(*key, 256)
    assert np.array_equal(draw(lib, "scalar_st_random_bits", "u32", key, 256), expected)
    assert np.array_equal(draw(lib, "vector_st_random_bits_u32v", "u32", key, 256), expected)
    # vectors that start inside a block
    assert np.array_equal(draw(lib, "vector_st_random_bits_u32v", "u32", key, 192, first=3), expected[3:195])


def test_blocks_count_modulo_32_bits(lib: ctypes.CDLL) -> None:
    first = 4 * (2**32 - 1)
    for name in ("scalar_st_random_bits", "vector_st_random_bits_u32v"):
        words = draw(lib, name, "u32", (7, 2, 5), 64, first)
        assert np.array_equal(words[4:], philox.words(7, 2, 5, 60)), name


@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize("key", KEYS)
def test_uniform(lib: ctypes.CDLL, key: tuple[int, int, int], kind: str) -> None:
    suffix = "v" if kind == "vector" else ""
    for dtype, name in ((f32, "f32"), (f64, "f64")):
        expected = reference(philox.uniform, key, (256,), dtype)
        for first in (0, 8, 1):
            got = draw(lib, f"{kind}_st_uniform_{name}{suffix}", name, key, 192, first)
            assert got.tobytes() == expected[first : first + 192].tobytes(), f"{name} from {first}"


@pytest.mark.parametrize("key", KEYS)
def test_normal(lib: ctypes.CDLL, key: tuple[int, int, int]) -> None:
    for dtype, name in ((f32, "f32"), (f64, "f64")):
        expected = reference(philox.normal, key, (8192,), dtype)
        scalar = draw(lib, f"scalar_st_normal_{name}", name, key, 8192)
        assert float(ulps(scalar, expected).max()) <= 4.0
        for first in (0, 8, 1, 2):
            vector = draw(lib, f"vector_st_normal_{name}v", name, key, 4096, first)
            assert vector.tobytes() == scalar[first : first + 4096].tobytes(), f"{name} from {first}"


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_bernoulli(lib: ctypes.CDLL, p: float) -> None:
    key = (7, 2, 5)
    expected = reference(philox.bernoulli, key, np.array(p, np.float32), (256,))
    for name in ("bernoulli", "bernoulli_vector"):
        got = np.empty(256, np.int32)
        getattr(lib, name)(pointer(got), *(ctypes.c_int64(value) for value in (256, *key)), ctypes.c_float(p))
        assert np.array_equal(got.astype(bool), expected), name


@pytest.mark.parametrize("n", [0, 1, 2, 5, 64, 1000])
def test_permutation(lib: ctypes.CDLL, n: int) -> None:
    key = (7, 2, 5)
    got = np.empty(n, np.int64)
    lib.permutation(pointer(got), *(ctypes.c_int64(value) for value in (n, *key)))
    assert np.array_equal(got, reference(philox.permutation, key, n))


def test_a_wrong_round_is_noticed() -> None:
    wrong = library(PORTABLE, ("k1 += 0xbb67ae85u", "k1 += 0xbb67ae84u"))
    assert not np.array_equal(draw(wrong, "scalar_st_random_bits", "u32", (7, 2, 5), 64), philox.words(7, 2, 5, 64))
