"""Sizes in C have the value that Python gives them, with the parentheses that C needs."""

from __future__ import annotations

import itertools
import re

import pytest

from staged.code.expr import Conditional, Group, Infix, Literal, Name, Variable
from staged.code.extents import size_expr, times, total_of
from staged.code.named_choices import with_named_choices
from staged.code.printer import print_body, print_expr
from staged.code.tree import Assign, Declare
from staged.code.types import INDEX
from staged.ir.sizes import Dim, Extent, largest, smallest, value_of

N, M = Dim("N", max=64), Dim("M", max=5)


def printed(size: Extent) -> str:
    return print_expr(size_expr(size, lambda dim: Name(str(dim))))


def value_in_c(text: str, dims: dict[str, int]) -> int:
    """The value of an expression with at most one choice, which divides nothing below 0."""
    text = re.sub(r"\(([^?]+?) ([<>]) ([^?]+?) \? ([^?]+?) : ([^?]+)\)", r"(\4 if \1 \2 \3 else \5)", text)
    return int(eval(text.replace("/", "//"), dims))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (7, "7"),
        (N, "N"),
        (N + M - 3, "M + N - 3"),
        (3 - N, "3 - N"),
        (2 * N * M + 1, "M * N * 2 + 1"),
        ((N + 1) // 2, "(N + 1) / 2"),
        ((N // 2) * M, "M * (N / 2)"),
        ((N - 5) // 2, "(N + 1) / 2 - 3"),
        ((M - N) // 3, "(M - N + 66) / 3 - 22"),
        (smallest(N, M), "(M < N ? M : N)"),
        (largest(N - 1, 0) + 1, "(0 > N - 1 ? 0 : N - 1) + 1"),
    ],
)
def test_a_size_is_printed_with_the_parentheses_that_it_needs(size: Extent, text: str):
    assert printed(size) == text


def test_sizes_with_names_are_factors():
    ends = {largest(N - 1, 0): Name("i_end"), 2 * largest(M - 1, 0) + 1: Name("j_end")}
    for size, text in (
        (largest(N - 1, 0) * 3, "i_end * 3"),
        ((2 * largest(M - 1, 0) + 1) * largest(N - 1, 0), "i_end * j_end"),
        (2 * largest(M - 1, 0) + 2, "(0 > M - 1 ? 0 : M - 1) * 2 + 2"),
    ):
        assert print_expr(size_expr(size, lambda dim: Name(str(dim)), ends)) == text


def test_a_choice_that_is_written_twice_gets_a_name():
    n, x, changed = (Variable(name, INDEX) for name in ("N_dim", "x", "changed"))
    sizes = {N: n, M: changed}
    twice, once, other = (size_expr(size, sizes.__getitem__) for size in (largest(N - 1, 0), largest(N, 7), largest(M, 3)))
    body = [Declare(x, twice), *(Assign(x, value) for value in (twice, once, other, other))]
    assert [line.strip() for line in print_body(with_named_choices([n], body))] == [
        "const int64_t N_size = 0 > N_dim - 1 ? 0 : N_dim - 1;",
        "const int64_t x = N_size;",
        "x = N_size;",
        "x = (7 > N_dim ? 7 : N_dim);",
        "x = (3 > changed ? 3 : changed);",
        "x = (3 > changed ? 3 : changed);",
    ]


def test_a_choice_inside_of_another_one_needs_no_name():
    n, x = Variable("N", INDEX), Variable("x", INDEX)
    inner = Group(Conditional(Infix("<", n, Literal("7")), n, Literal("7")))
    outer = Group(Conditional(Infix(">", inner, Literal("2")), inner, Literal("2")))
    found = with_named_choices([n], [Declare(x, outer), Assign(x, outer)])
    assert [line.strip() for line in print_body(found)] == [
        "const int64_t N_size = (N < 7 ? N : 7) > 2 ? (N < 7 ? N : 7) : 2;",
        "const int64_t x = N_size;",
        "x = N_size;",
    ]


def test_strides_that_fall_are_subtracted():
    terms = [times(Name("i"), stride, lambda dim: Name(str(dim))) for stride in (-N - 1, M)]
    assert print_expr(total_of(terms)) == "i * M - i * (N + 1)"


def test_a_size_in_c_has_its_value_in_python():
    sizes = [(N - 5) // 2, -((N - 9) // 4) + M, (N * M - 7) // 5 * M]
    sizes += [largest((M - N) // 3, 2 * M - 9), smallest(N, 2 * M) + 1]
    for size, n, m in itertools.product(sizes, range(12), range(6)):
        assert value_in_c(printed(size), {"N": n, "M": m}) == value_of(size, {N: n, M: m})
