"""Integer, boolean and bit operations: Python's and NumPy's meaning, for negative numbers and on every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, check_gradient, check_program, each

SIGNED = [(7, 3), (-7, 3), (7, -3), (-7, -3), (0, 5), (-8, 4)]


def division(a: Any, b: Any) -> Any:
    return a // b, a % b, divmod(a, b), a / b, -a // b, (a + 10) % 7, 100 // b, 100 % b


def powers_and_shifts(a: Any, b: Any) -> Any:
    return a**2, a**3, a**5, 2 ** abs(b), a << 3, a >> 1, a >> 2, 1 << abs(b), 1000 >> abs(b), a ** abs(b)


def bits(a: Any, b: Any) -> Any:
    return a & b, a | b, a ^ b, ~a, a & 0xFF, 0x10 | a, -1 ^ b, ~(a & ~b)


def augmented(a: Any, b: Any) -> Any:
    c = a
    c //= b
    c <<= 4
    c |= 5
    c ^= b
    c &= 1023
    c >>= 1
    c **= 2
    c %= 97
    return c


def in_a_loop(a: Any, b: Any) -> Any:
    count = 0
    a = abs(a) + 100
    while a != 1:
        a = a // 2 if a % 2 == 0 else 3 * a + 1
        count += 1
    return count


def booleans(a: Any, b: Any) -> Any:
    p, q = a > 0, b > 0
    return p & q, p | q, p ^ q, p == q, p != q, not p, (p and q) or (not p and not q), bool(a), bool(b - b)


def conversions(x: Any, n: Any) -> Any:
    return int(x), float(n), bool(x), int(n), float(x), round(x), round(n), int(-x), int(x > 1), float(n > 2)


def rounding(x: Any, n: Any) -> Any:
    return round(x, 1), round(x, 0), round(x, -1), round(n, -1), round(n, -2), round(n, 2), round(x * 2)


def float_division(x: Any, y: Any) -> Any:
    return x // y, x % y, divmod(x, y), x // 1, -x % 2.0


CASES = [
    Case(division, [*SIGNED, (1, 0)]),
    Case(powers_and_shifts, SIGNED),
    Case(bits, SIGNED),
    Case(augmented, SIGNED),
    Case(in_a_loop, SIGNED),
    Case(booleans, [(1, 1), (1, -1), (-1, 1), (-1, -1)]),
    Case(conversions, [(2.7, 3), (-2.7, -4), (0.0, 0), (0.5, 1)]),
    Case(rounding, [(2.75, 125), (-16.25, 135), (0.5, -150), (1.5, -250), (2.5, 7)]),
    Case(float_division, [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-0.5, 3.0)]),
]


@each(CASES)
def test_programs(case: Case) -> None:
    check_program(case)


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
ARITHMETIC = {
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b, "power": lambda a, b: a**b,
    "left shift": lambda a, b: a << b, "right shift": lambda a, b: a >> b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "invert": lambda a, b: ~a, "negative": lambda a, b: -a,
    "abs": lambda a, b: abs(a), "with a number": lambda a, b: (a + 3) * 2 % 5, "shift by a number": lambda a, b: a >> 1,
}  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.__name__)
def test_arrays_of_every_integer_dtype(dtype: Any) -> None:
    a = np.array([1, 7, 100, 23, 8, 3], dtype)
    if np.dtype(dtype).kind == "i":
        a = np.concatenate([a, -a])
    b = np.resize(np.array([1, 2, 3], dtype), a.shape)

    @st.function
    def everything(a: Any, b: Any) -> Any:
        return {name: operation(a, b) for name, operation in ARITHMETIC.items()}

    staged = everything(a, b)
    with st.eager():
        eager = everything(a, b)
    with np.errstate(all="ignore"):
        for name, operation in ARITHMETIC.items():
            want = operation(a, b)
            for got in (staged[name], eager[name]):
                assert got.dtype == want.dtype, name
                np.testing.assert_array_equal(got, want, err_msg=name)


def test_arrays_of_bools() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for got, want in zip(
        st.function(lambda a, b: (a & b, a | b, a ^ b, ~a, a == b))(a, b),
        (a & b, a | b, a ^ b, ~a, a == b),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


def through_integers(x: Any, n: Any) -> Any:
    """Integers steer, floats flow."""
    total = x[0] * 0.0
    for i in range(n):
        k = (i * 7 + 3) % 4
        weight = 1 << (k & 1)
        total += x[k] * weight + x[i % 4] % 0.75 + x[k] ** (i // 2)
    return total


@each([Case(through_integers, [(np.array([1.25, 2.5, 0.5, 1.7]), 5)], (0,))])
def test_gradients(case: Case) -> None:
    check_program(case)
    check_gradient(case)


@pytest.mark.parametrize(
    ("program", "args", "message"),
    [
        (lambda x: int(x), (np.ones(2),), "`int` takes a scalar"),
        (lambda n: pow(n, 3, 7), (5,), "`pow` with a modulus"),
        (lambda x, n: round(x, n), (2.5, 1), "the digits of `round` must be static"),
        (lambda x: x & 1, (2.5,), "bitwise_and"),
        (lambda x: x << 1, (2.5,), "shift"),
    ],
)
def test_refusals(program: Any, args: Any, message: str) -> None:
    with pytest.raises(st.StagedError, match=message) as caught:
        st.function(program).stage(*args)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert caught.value.hint
