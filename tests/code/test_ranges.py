"""Functions of items have the loops that the ranges of their calls need, and no others."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.code.expr import Conditional, Index, Infix, Literal, Part, Variable
from staged.code.kernel_text import KernelText
from staged.code.printer import print_function
from staged.code.ranges import Ranges, for_ranges
from staged.code.tree import Assign, Declare, For, Function, If, Parameter, Statement
from staged.code.types import INDEX, Space, pointer, scalar
from staged.ir.sizes import Dim
from staged.ir.types import f32

BEGIN, END = Variable("begin", INDEX), Variable("end", INDEX)
X = Variable("x", pointer(scalar(f32), Space.GLOBAL))


def number(value: int) -> Literal:
    return Literal(str(value))


def zeroed(begin: Variable, end: Variable, lanes: int = 16) -> tuple[Declare, For, For]:
    """Zeros from `begin` to `end`, so many at a time, and what is left one by one."""
    whole, i, j = (Variable(hint, INDEX) for hint in ("whole", "i", "j"))
    vectors = Infix("+", begin, Infix("&", Infix("-", end, begin), Literal(f"-{lanes}")))
    return (
        Declare(whole, vectors),
        For(i, begin, whole, (Assign(Index(X, i), number(0)),), number(lanes)),
        For(j, whole, end, (Assign(Index(X, j), number(0)),)),
    )


def doubled() -> For:
    """`x[i] += x[i]` from `begin` to `end`, the last ones as a part of a vector."""
    i = Variable("i", INDEX)
    part = Part("f32v", Infix("+", X, i), Infix("-", END, i))
    return For(i, BEGIN, END, (Assign(part, part, "+"),), number(16))


def in_pieces(size: int) -> Function:
    first, stop = Variable("first", INDEX), Variable("stop", INDEX)
    after = Infix("+", first, number(size))
    declared = Declare(stop, Conditional(Infix("<", after, END), after, END))
    return function(For(first, BEGIN, END, (declared, *zeroed(first, stop)), number(size)))


def function(*body: Statement) -> Function:
    return Function("zero", (Parameter(X), Parameter(BEGIN), Parameter(END)), body)


def lines(made: Function) -> list[str]:
    return [line.strip() for line in print_function(made).splitlines()[1:-1]]


def test_whole_vectors_have_no_loop_for_single_items():
    whole, *loops = zeroed(BEGIN, END)
    rest = If(Infix("<", whole.variable, END), (Assign(Index(X, whole.variable), number(0)),))
    made = lines(for_ranges(function(whole, *loops, rest), Ranges(32, 96)))
    assert made == ["for (int64_t i = begin; i < end; i += 16) {", "x[i] = 0;", "}"]


def test_parts_that_are_whole_vectors_are_plain_loads_and_stores():
    head, store, _ = lines(for_ranges(function(doubled()), Ranges(32, 96)))
    assert head == "for (int64_t i = begin; i < end; i += 16) {"
    assert store == "*(f32v_u *)(x + i) += *(const f32v_u *)(x + i);"


@pytest.mark.parametrize("ranges", [Ranges(), Ranges(8, 40), Ranges(1, 100)])
def test_other_ranges_leave_the_function(ranges: Ranges):
    for given in (function(*zeroed(BEGIN, END)), function(doubled())):
        assert for_ranges(given, ranges).body is given.body
    assert lines(given)[1] == "st_add_to_f32v(x + i, end - i, st_load_f32v(x + i, end - i));"


def test_calls_with_all_items_have_numbers_in_place_of_a_range():
    made = for_ranges(function(*zeroed(BEGIN, END)), Ranges(50, 50))
    assert [parameter.variable for parameter in made.parameters] == [X]
    loops = ["for (int64_t i = 0; i < 48; i += 16) {", "x[i] = 0;", "}", "for (int64_t j = 48; j < 50; ++j) {"]
    assert lines(made)[:4] == loops
    assert lines(for_ranges(in_pieces(64), Ranges(64, 64))) == lines(for_ranges(in_pieces(80), Ranges(64, 64)))
    once = For(Variable("i", INDEX), BEGIN, END, (Assign(Index(X, BEGIN), number(0)),))
    assert lines(for_ranges(function(once), Ranges(1, 1))) == ["x[0] = 0;"]


def test_a_range_of_one_piece_has_no_loop_over_pieces():
    text = lines(for_ranges(in_pieces(64), Ranges(16, 64)))
    assert text == ["for (int64_t i = begin; i < end; i += 16) {", "x[i] = 0;", "}"]
    text = lines(for_ranges(in_pieces(64), Ranges(1, 50)))
    assert text[0] == "const int64_t whole = begin + ((end - begin) & -16);"


def test_several_pieces_keep_their_loop_and_its_short_end():
    text = lines(for_ranges(in_pieces(64), Ranges(16, 80)))
    assert text[1:3] == [
        "const int64_t stop = first + 64 < end ? first + 64 : end;",
        "for (int64_t i = first; i < stop; i += 16) {",
    ]
    assert "whole" not in "".join(text)


def test_pieces_of_one_size_do_not_look_for_their_end():
    first, stop = Variable("first", INDEX), Variable("stop", INDEX)
    after, last = Infix("+", first, number(16)), number(64)
    declared = Declare(stop, Conditional(Infix("<", after, last), after, last))
    loop = For(first, number(0), last, (declared, *zeroed(first, stop, 8)), number(16))
    text = lines(for_ranges(function(loop), Ranges()))
    assert text[1] == "for (int64_t i = first; i < first + 16; i += 8) {"
    assert len(text) == 5


def test_loops_with_one_index_have_ranges_of_their_own():
    first, last = Variable("first", INDEX), number(64)
    after = Infix("+", first, number(16))
    stop = Conditional(Infix("<", after, last), after, last)
    loops = [
        For(first, number(start), last, (Declare(Variable("stop", INDEX), stop),), number(16)) for start in (0, 8)
    ]
    text = lines(for_ranges(function(*loops), Ranges()))
    assert [line for line in text if "stop =" in line] == ["const int64_t stop = first + 16 < 64 ? first + 16 : 64;"]


def test_sums_of_floats_keep_their_rounding():
    a, b, c = (Variable(hint, scalar(f32)) for hint in "abc")
    given = function(Declare(c, Infix("+", a, Infix("-", b, a))))
    assert for_ranges(given, Ranges(16, 96)).body is given.body


def test_ranges_of_several_calls():
    assert Ranges(48, 96) | Ranges(32, 32) == Ranges(16, 96)
    assert Ranges(48, 96) | Ranges() == Ranges()


def test_calls_of_a_kernel_are_of_all_items_or_of_chunks():
    assert KernelText("f", "", (), 96).ranges == Ranges(96, 96)
    assert KernelText("f", "", (), 96, chunk=40).ranges == Ranges(8, 96)
    assert KernelText("f", "", (), 96, chunk=96).ranges == Ranges(96, 96)
    assert KernelText("f", "", (), 96, items_size=Dim("0")).ranges == Ranges()
    assert KernelText("f", "", (), 0).ranges == Ranges()


def scaled(x, y):
    return st.sin(x), st.sin(y)


@pytest.mark.parametrize(("first", "second", "has_tail"), [(64, 32, False), (64, 33, True), (7, 16, True), (0, 48, False)])
def test_one_function_for_calls_of_several_lengths(first: int, second: int, has_tail: bool):
    given = [np.linspace(-1, 1, n, dtype=np.float32) for n in (first, second)]
    program = st.function(scaled, target="x86-64-v3").stage(*given)
    assert bool(re.search(r", end - [ij],|\+\+[ij]", program.source)) is has_tail
    for found, x in zip(program(*given), given, strict=True):
        np.testing.assert_allclose(found, np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 1 << 18, (1 << 18) + 8, (1 << 18) + 1])
def test_threads_share_any_number_of_items(length: int):
    x = np.linspace(-1, 1, length, dtype=np.float32)
    program = st.function(lambda x: st.tanh(x) * 2.0).stage(x)
    one = program(x)
    np.testing.assert_allclose(one, np.tanh(x) * 2, rtol=1e-5)
