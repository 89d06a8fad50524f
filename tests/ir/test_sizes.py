"""Sizes in normal form: equal if they are the same polynomial, and with the values of Python's arithmetic."""

from __future__ import annotations

import ast
import random

import pytest

from staged.ir.size_functions import linear, parsed, substitute
from staged.ir.size_questions import UndecidedSizeError
from staged.ir.sizes import Dim, bounds_of, dims_in, largest, smallest, value_of

N, M = Dim("N", max=64), Dim("M", max=5)
TWICE = "2 * max(N - 2 * (N // 3) - 1, N // 3)"


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (N + N, 2 * N, "2 * N"),
        (N - N + 3, 3, "3"),
        (N + 1 - 1, N, "N"),
        ((N + 1) * (N - 1), N * N - 1, "N * N - 1"),
        ((4 * N + 6) // 2, 2 * N + 3, "2 * N + 3"),
        ((2 * N + 1) // 4, N // 2, "N // 2"),
        ((N // 2) // 3, N // 6, "N // 6"),
        (-(-N // 4), (N + 3) // 4, "(N + 3) // 4"),
        (N * M // N, M, "M"),
        ((N * M + N) // N, M + 1, "M + 1"),
        ((2 * N) % 2, 0, "0"),
        (M // 6, 0, "0"),
        (smallest(N, N + 1), N, "N"),
        (largest(N, 3, N), largest(3, N), "max(3, N)"),
        (smallest(M, 5), M, "M"),
        (smallest(N, largest(N - 1, 0)), largest(0, N - 1), "max(0, N - 1)"),
        (3 - N, -N + 3, "3 - N"),
        (((N - 1) // 2 + 3) // 2, (N + 5) // 4, "((N + 1) // 4) + 1"),
        (largest(N - 2, 0) // 2, largest(N // 2 - 1, 0), "max((N // 2) - 1, 0)"),
        (largest(largest(N - 2, 0) - smallest(N, 2), 0), largest(0, N - 4), "max(0, N - 4)"),
        (largest(2 * N - 4, 0), 2 * largest(N - 2, 0), "2 * max(0, N - 2)"),
        (largest(2 * largest(N // 3, N - 2 * (N // 3) - 1), 0), 2 * largest(N // 3, N - 2 * (N // 3) - 1), TWICE),
        (largest(N + largest(M, 3), 4 - smallest(N, 5)), largest(N + M, N + 3, 4 - N), "max(4 - N, M + N, N + 3)"),
    ],
)
def test_equal_sizes_have_one_normal_form(one, other, text):
    assert one == other and hash(one) == hash(other) and str(one) == text
    assert parsed(ast.parse(text, mode="eval").body, {"N": N, "M": M}.__getitem__) == one


def test_a_size_that_is_linear_in_one_dimension_gives_its_value():
    assert linear(N) == (N, 1, 0) and linear(3 - 2 * N) == (N, -2, 3)
    assert linear(N + M) is linear(N // 2) is linear(N * N) is linear(smallest(N, M)) is None


def test_different_sizes_differ():
    assert N != M and N != 1 and N + 1 != N and N // 2 != N // 3 and Dim("N", 64, 1) != N


def test_bounds_decide_orders_and_everything_else_is_undecided():
    assert N - N // 2 >= 0 and 2 * (N // 2) <= N
    assert N <= 64 and N >= 0 and not N > 64 and N < 65 and N + 1 > 0 and not N * M > 320 and N <= N + M
    for question in (lambda: N < M, lambda: N > 3, lambda: N // M, lambda: N * M // (N + 1)):
        with pytest.raises(UndecidedSizeError, match="whether"):
            assert question()
    assert bounds_of(N * M - N) == (-64, 320) and dims_in(N * M + N // 2) == (M, N)


def _operate(number, a, b, divisor, least, most):
    return (a + b, a - b, a * b, a // divisor, least(a, b), most(a, b), -a // divisor + b)[number]


def _expressions(draw, depth, leaves, divisor):
    """A random expression of sizes, and the same one of their values."""
    if not depth:
        leaf = draw.choice(list(leaves))
        return leaf, leaves[leaf]
    number = draw.randrange(7)
    (a, x), (b, y) = (_expressions(draw, depth - 1, leaves, divisor) for _ in range(2))
    return _operate(number, a, b, divisor, smallest, largest), _operate(number, x, y, divisor, min, max)


def test_random_expressions_have_the_values_of_python():
    draw = random.Random(3)
    for seed in range(400):
        sizes = {N: seed % 65, M: seed % 6}
        size, right = _expressions(draw, 3, {**sizes, 2: 2, seed % 7: seed % 7}, seed % 5 + 1)
        assert value_of(size, sizes) == right, size
        low, high = bounds_of(size)
        assert low <= right <= high
        others = {N: sizes[M] * 3 + 1, M: sizes[M]}
        assert value_of(substitute(size, {N: M * 3 + 1}), sizes) == value_of(size, others)
