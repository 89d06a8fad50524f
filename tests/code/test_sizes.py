"""Functions that are equal but for numbers become one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.code.expr import Call, Expr, Index, Infix, Literal, Part, Setting, Variable
from staged.code.printer import print_function
from staged.code.sizes import LONG, MOST, Sized, merged
from staged.code.tree import Assign, Declare, For, Function, Parameter, Statement
from staged.code.types import INDEX, Space, pointer, scalar
from staged.ir.types import f32

ARRAY = pointer(scalar(f32), Space.GLOBAL)
K = Variable("k", INDEX)


def scale(rows: int, columns: int, stride: int, unroll: int = 0, value: str = "2.0f", count: int = 1) -> Function:
    """`x[i * stride + j] *= 2` for rows and columns, so many times."""
    x, i, j = Variable("x", ARRAY), Variable("i", INDEX), Variable("j", INDEX)
    place = Infix("+", Infix("*", i, Literal(str(stride))), j)
    body: Statement = Assign(Index(x, place), Literal(value), "*")
    inner = For(j, Literal("0"), Literal(str(columns)), (body,) * count)
    outer = For(i, Literal("0"), Literal(str(rows)), (inner,), unroll=unroll)
    return Function("scale", (Parameter(x),), (outer,))


def assigned(value: Expr) -> Function:
    """`x[0] = value`, where an expression may use `k`."""
    return Function("assigned", (Parameter(Variable("x", ARRAY)), Parameter(K)),
                    (Assign(Index(Variable("x", ARRAY), Literal("0")), value),))


def one_of(*functions: Function) -> tuple[str, list[tuple[str, ...]]]:
    """The text of one function for functions of equal shape, and the numbers of each."""
    users = [Sized.of(function) for function in functions]
    assert len({user.shape for user in users}) == 1
    found = merged(users, 1)
    assert found is not None
    return print_function(found[0]), [tuple(number.text for number in own) for own in found[1]]


def test_sizes_that_differ_are_parameters_and_others_numbers():
    text, sizes = one_of(scale(32, 64, 64), scale(32, 96, 96))
    assert "scale(float *x, int64_t j_end)" in text
    assert "i < 32" in text and "j < j_end" in text and "x[i * j_end + j]" in text
    assert sizes == [("64",), ("96",)]


def test_the_items_of_a_last_vector_are_a_size():
    def zeroed(columns: int) -> Function:
        x, j = Variable("x", ARRAY), Variable("j", INDEX)
        part = Part("f32v", Infix("+", x, j), Infix("-", Literal(str(columns)), j))
        loop = For(j, Literal("0"), Literal(str(columns)), (Assign(part, Literal("zero")),), Literal("16"))
        return Function("zeroed", (Parameter(x),), (loop,))

    text, sizes = one_of(zeroed(50), zeroed(45))
    assert "st_store_f32v(x + j, j_end - j, zero);" in text
    assert sizes == [("50",), ("45",)]


def test_multiples_of_a_size_are_products():
    text, sizes = one_of(scale(32, 64, 128), scale(32, 96, 192))
    assert "x[i * (j_end * 2) + j]" in text
    assert sizes == [("64",), ("96",)]


def test_multiples_may_have_a_small_rest():
    text, sizes = one_of(scale(32, 64, 129), scale(32, 96, 193))
    assert "x[i * (j_end * 2 + 1) + j]" in text
    assert sizes == [("64",), ("96",)]


def test_addresses_without_an_offset_have_the_offset_0():
    x, y = Variable("x", ARRAY), Variable("y", ARRAY)
    places = Infix("+", Infix("*", K, Literal("8")), Variable("j", INDEX))
    text, sizes = one_of(*(Function("copy", (Parameter(x), Parameter(y)), (Assign(Index(x, place), Index(y, place)),))
                           for place in (places, Infix("+", places, Literal("64")))))  # fmt: skip
    assert "x[k * 8 + j + x_start] = y[k * 8 + j + x_start];" in text
    assert sizes == [("0",), ("64",)]


def test_the_strides_of_a_start_are_those_of_its_indices():
    batch, row, r, start = (Variable(name, INDEX) for name in ("batch", "row", "r", "row_start"))
    x = Variable("x", ARRAY)

    def clear(image: int, width: int) -> Function:
        rows = Infix("*", Infix("+", row, r), Literal(str(width)))
        place = Declare(start, Infix("+", Infix("*", batch, Literal(str(image))), rows))
        return Function("clear", tuple(map(Parameter, (batch, row, r, x))), (place, Assign(Index(x, start), Literal("0"))))

    text, _ = one_of(clear(5760, 576), clear(1280, 64))
    assert "batch * batch_stride + (row + r) * row_stride;" in text


def test_short_loops_of_many_statements_have_a_size():
    text, sizes = one_of(scale(32, 4, 64, count=LONG), scale(32, 12, 64, count=LONG))
    assert "j < j_end" in text
    assert sizes == [("4",), ("12",)]


def test_constants_that_differ_are_parameters():
    text, numbers = one_of(scale(32, 64, 64, value="2.0f"), scale(32, 96, 96, value="-1e-05f"))
    assert "scale(float *x, int64_t j_end, float constant)" in text and "*= constant;" in text
    assert numbers == [("64", "2.0f"), ("96", "-1e-05f")]
    text, numbers = one_of(*(assigned(Infix("+", Infix("*", K, Literal(a)), Literal(b)))
                             for a, b in (("0.5", "0.25"), ("1.5", "0.75"))))  # fmt: skip
    assert "double scale, double offset" in text and "k * scale + offset" in text
    assert numbers == [("0.5", "0.25"), ("1.5", "0.75")]


def test_divisors_are_numbers():
    two, three = (assigned(Infix("/", K, Literal(text))) for text in ("2.0f", "3.0f"))
    assert Sized.of(two).shape != Sized.of(three).shape


def test_counters_of_random_numbers_are_parameters():
    def drawn(*numbers: str) -> Function:
        return assigned(Call("st_uniform_f32", (K, *map(Literal, numbers), Literal("0"))))

    text, numbers = one_of(drawn("0", "0"), drawn("0", "7"))
    assert "st_uniform_f32(k, 0, counter, 0)" in text
    assert numbers == [("0",), ("7",)]


def test_short_loops_and_unrolled_ones_keep_their_numbers():
    assert Sized.of(scale(32, 4, 64)).shape != Sized.of(scale(32, 8, 64)).shape
    assert Sized.of(scale(32, 64, 64, unroll=32)).shape != Sized.of(scale(64, 64, 64, unroll=64)).shape
    # the factor of an index that the compiler knows
    assert Sized.of(scale(32, 64, 64, unroll=32)).shape != Sized.of(scale(32, 64, 96, unroll=32)).shape


def test_functions_of_many_sizes_stay_apart():
    def long(start: int) -> Function:
        parts = [scale(start + 70 * n * n + n * start, 100, 100) for n in range(MOST + 1)]
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
    assert len(re.findall(r"^static void softmax.*\bj_end", source, re.MULTILINE)) == 1
    for got, x in zip(together(a, b), (a, b), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(st.function(alone, target=target)(x)).tobytes()


def test_settings_are_parameters_of_their_own_types():
    """An address of sizes, and a number as an argument of a call."""

    def called(sizes: str, stride: str) -> Function:
        own = (Setting(sizes, Variable("sizes", pointer(scalar(f32), Space.GLOBAL, is_const=True))),
               Setting(stride, Variable("stride", INDEX)))
        return assigned(Call("f", own))

    text, settings = one_of(called("&first", "8"), called("&second", "24"))
    assert "int64_t stride, const float *sizes" in text and "f(sizes, stride)" in text
    assert settings == [("8", "&first"), ("24", "&second")]
