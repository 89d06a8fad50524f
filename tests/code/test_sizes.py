"""Functions that are equal but for sizes become one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.code.expr import Index, Infix, Literal, Variable
from staged.code.printer import print_function
from staged.code.sizes import MOST, Sized, merged
from staged.code.tree import Assign, For, Function, Parameter, Statement
from staged.code.types import INDEX, Space, pointer, scalar
from staged.ir.types import f32

ARRAY = pointer(scalar(f32), Space.GLOBAL)


def scale(rows: int, columns: int, stride: int, unroll: int = 0) -> Function:
    """`x[i * stride + j] *= 2` for rows and columns."""
    x, i, j = Variable("x", ARRAY), Variable("i", INDEX), Variable("j", INDEX)
    place = Infix("+", Infix("*", i, Literal(str(stride))), j)
    body: Statement = Assign(Index(x, place), Literal("2.0f"), "*")
    inner = For(j, Literal("0"), Literal(str(columns)), (body,))
    outer = For(i, Literal("0"), Literal(str(rows)), (inner,), unroll=unroll)
    return Function("scale", (Parameter(x),), (outer,))


def one_of(*functions: Function) -> tuple[str, list[tuple[int, ...]]] | None:
    """The text of one function for functions of equal shape, and the sizes of each; None if it is not made."""
    users = [Sized.of(function) for function in functions]
    assert len({user.shape for user in users}) == 1
    found = merged(users, 1)
    return None if found is None else (print_function(found[0]), found[1])


def test_sizes_that_differ_are_parameters_and_others_numbers():
    text, sizes = one_of(scale(32, 64, 64), scale(32, 96, 96))
    assert "scale(float *x, int64_t j_end)" in text
    assert "i < 32" in text and "j < j_end" in text and "x[i * j_end + j]" in text
    assert sizes == [(64,), (96,)]


def test_multiples_of_a_size_are_products():
    text, sizes = one_of(scale(32, 64, 128), scale(32, 96, 192))
    assert "x[i * (j_end * 2) + j]" in text
    assert sizes == [(64,), (96,)]


def test_short_loops_and_unrolled_ones_keep_their_numbers():
    assert Sized.of(scale(32, 4, 64)).shape != Sized.of(scale(32, 8, 64)).shape
    assert Sized.of(scale(32, 64, 64, unroll=32)).shape != Sized.of(scale(64, 64, 64, unroll=64)).shape
    # the factor of an index that the compiler knows
    assert Sized.of(scale(32, 64, 64, unroll=32)).shape != Sized.of(scale(32, 64, 96, unroll=32)).shape


def test_functions_of_many_sizes_stay_apart():
    def long(start: int) -> Function:
        parts = [scale(start + 7 * n * n + n * start, 100, 100) for n in range(MOST + 1)]
        return Function("long", parts[0].parameters, tuple(s for part in parts for s in part.body))

    first, second = Sized.of(long(16)), Sized.of(long(19))
    assert first.shape == second.shape
    assert merged([first, second], 1) is None


@pytest.mark.parametrize("target", ["portable", None])
def test_kernels_of_other_sizes_share_a_function(target: str | None) -> None:
    def shares(a, b):
        return st.softmax(a, axis=1), st.softmax(b, axis=1)

    def alone(a):
        return st.softmax(a, axis=1)

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 192)).astype("f"), rng.standard_normal((24, 320)).astype("f")
    together = st.function(shares, target=target)
    source = together.stage(a, b).source
    assert len(re.findall("for 2 kernels, which differ in sizes", source)) == 1
    for got, x in zip(together(a, b), (a, b), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(st.function(alone, target=target)(x)).tobytes()
