"""Faults that the fuzzer found, each as a program of its own: the same in eager mode and compiled, with the right gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import staged as st
from staged.runtime.options import CompileOptions
from staged.testing import assert_backends_agree, check_grads, compare_trees, load_snippet
from tests.fuzz.check import FAST, Case, check

X = np.array([0.5, -1.5, 2.0])


def zip_with_an_empty_array(x, n):
    empty = x[:0]
    total = st.sum(x)
    for i, row in zip(st.range(n), empty, strict=False):
        total += row * i
    return total


def test_zip_of_a_staged_range_and_an_empty_array_runs_its_body_never() -> None:
    assert_backends_agree(zip_with_an_empty_array, X, 3)


def a_variable_on_one_side(x, n):
    scale = st.Variable(st.sum(x))
    value = scale if n > 2 else 0.5 * x[0]
    scale.value = scale * 2.0
    return value + scale


def test_a_variable_on_one_side_of_a_conditional_expression_is_what_it_holds() -> None:
    for n in (1, 3):
        assert_backends_agree(a_variable_on_one_side, X, n)
        check_grads(a_variable_on_one_side, (X, n))


def a_factor_read_again_beside_the_product(x, n):
    v = st.full((2, 3), 1.5, dtype=st.f64) + 0.0 * x[0]
    v = v if x[n] < x[0] else st.sin(st.full((2, 2), v[0, -1], dtype=st.f64) @ v) + 0.0 * v
    return st.sum(st.sin(v))


def test_a_product_does_not_overwrite_a_factor_that_its_epilogue_reads_too() -> None:
    for n in (0, 1):
        assert_backends_agree(lambda x, n: st.jvp(lambda x: a_factor_read_again_beside_the_product(x, n), (x,), (x,)), X, n)


def a_stack_and_an_early_return(x, n):
    v = 1.0 * x
    kept = st.Stack(x[0], max=8)
    for _ in st.range(n):
        if n > 2:
            kept.append(x[0])
        for _ in st.range(2):
            v = v * 2.0
            if v[0] > 3.0:
                return st.sum(v)
    return 1.0 * len(kept)


def test_a_stack_of_a_call_that_has_ended_is_not_carried_by_the_next() -> None:
    for n in (1, 4):
        assert_backends_agree(lambda x, n: (a_stack_and_an_early_return(x, n), a_stack_and_an_early_return(x, n)), X, n)


STRICT = CompileOptions("2", (), ("-Wall", "-Wextra", "-Wconversion", "-Werror"))


def only_a_bool_is_printed(x):
    print(f"{x[0] > 0.0}")
    return x


def text_and_a_number_are_printed(x, n):
    print(f"{n} {x[0] > 0.0}")
    return x


def a_number_from_a_checked_kernel(x, n):
    return st.jvp(lambda x: st.sum(st.sin(st.take(x, (st.asarray([2, 0]) + n) % 3, axis=0) * x[n % 3])), (x,), (x,))


@pytest.mark.parametrize(
    ("program", "arguments"),
    [(only_a_bool_is_printed, (X,)), (text_and_a_number_are_printed, (X, 1)), (a_number_from_a_checked_kernel, (X, 1))],
)
def test_no_compiler_complains(program: Callable[..., object], arguments: tuple[object, ...]) -> None:
    staged = st.function(program)
    staged.options = STRICT
    staged.stage(*arguments).compile()


def scaled_and_multiplied(x, w, z):
    y = x * 0.3
    return y @ st.permute_dims(w, (1, 0)), z @ y


def test_products_read_the_lanes_that_were_stored() -> None:
    """gcc 12.2 at -O3 takes wrong lanes of a stored vector where a product reads its elements: its vectorisers stay off (seed 746)."""
    x, w = np.arange(12.0).reshape(4, 3) + 1.0, 1.0 + 0.1 * np.arange(6.0).reshape(2, 3)
    assert_backends_agree(scaled_and_multiplied, x, w, np.ones((2, 4)), levels=("2", "3"))


def flipped_rows_summed(x, scale):
    return st.sum(st.flip(x, axis=1) * scale)


def flipped_rows_weighed(x, scale):
    return st.sum(st.flip(x, axis=1) * st.arange(x.shape[1], dtype=st.f64) * scale), st.argmax(st.flip(x, axis=1), axis=1)


@pytest.mark.parametrize("program", [flipped_rows_summed, flipped_rows_weighed])
def test_sums_of_flipped_rows_are_right_at_every_level(program: Callable[..., object]) -> None:
    """gcc 12.2 adds up wrong elements of `s += x[3 * i + 2 - j] * c` from -O2 on: axes are turned so that no kernel says that."""
    for shape in ((8, 2), (4, 3), (5, 9)):
        x = np.arange(float(np.prod(shape))).reshape(shape) ** 2
        assert_backends_agree(program, x, np.array(0.5), levels=("2", "3"))


def rows_of_a_table_and_a_softmax(x, n):
    weights = st.softmax(st.reshape(x[:6], (2, 3)), axis=1)
    table = st.reshape(x, (5, 3))
    return st.sum(st.sin(st.take(table, (st.asarray([1, 1]) + n) % 5, axis=0) + 0.5 * weights))


def rows_of_a_table_of_one_number(x, n):
    weights = st.softmax(st.reshape(x[:6], (2, 3)), axis=1)
    table = st.full((5, 3), st.sum(x) * n, dtype=st.f64)
    return st.sum(st.sin(st.take(table, (st.asarray([1, 1]) + n) % 5, axis=0) + 0.5 * weights))


def a_sum_of_a_padded_row(x, n):
    return st.sum(st.pad(x[:4], 2) * n), st.sum(st.pad(st.pad(x[1:5], 1), 1))


def slices_of_slices(x, n):
    return st.grad(lambda x: st.sum(st.sin(st.full((8,), x[n], dtype=st.f64)[1:-1][1:-1])))(x)


@pytest.mark.parametrize(
    "program", [rows_of_a_table_and_a_softmax, rows_of_a_table_of_one_number, a_sum_of_a_padded_row, slices_of_slices]
)
def test_kernels_of_rows_and_pieces_compile(program: Callable[..., object]) -> None:
    """An element of a table, read in one loop of a row, was taken to be known in the next; a padded sum had no scalar total."""
    x = np.linspace(-1.0, 1.0, 15)
    assert_backends_agree(lambda x, n: (program(x, n), st.jvp(lambda x: program(x, n), (x,), (x,))), x, 1)


NESTED_LOOPS = {
    "for, bound known": ["for i{depth} in st.range({count}):"],
    "for": ["for i{depth} in st.range(n{depth}):"],
    "while": ["j{depth} = 0", "while j{depth} < n{depth}:", "    j{depth} += 1"],
}


def nested_loops(kinds: Sequence[str]) -> Callable[..., object]:
    """A function that changes an array in loops of these kinds inside one another, and after each of them."""
    lines, indent = ["import staged as st", "def nested(x, n1, n2, n3):", "    y = x * 1.0"], "    "
    for depth, kind in enumerate(kinds, 1):
        lines += [indent + line.format(depth=depth, count=(2, 3, 2)[depth - 1]) for line in NESTED_LOOPS[kind]]
        indent += "    "
    lines.append(f"{indent}y = y + 0.3 * st.tanh(y)")
    lines += [f"{indent[:-4 * inner]}y = st.sin(y) * 1.1" for inner in range(1, len(kinds))]
    return load_snippet("\n".join([*lines, "    return st.sum(st.sin(y))"])).nested


@pytest.mark.parametrize("kinds", list(itertools.product(NESTED_LOOPS, repeat=3)), ids=", ".join)
def test_gradients_of_loops_three_deep(kinds: tuple[str, ...]) -> None:
    """The third loop read what it had kept at the wrong place: bases count single elements, not sequences."""
    nested = nested_loops(kinds)
    assert_backends_agree(lambda x, *n: st.grad(lambda x: nested(x, *n))(x), np.array([0.4, -1.1]), 2, 3, 2)


def any_of_two_comparisons(x, n):
    return st.any((x > -0.6) & (x <= x + 0.3 * n)), st.all((x > -0.6) | (x <= 0.3 * n))


def test_any_and_all_of_two_conditions_have_parentheses() -> None:
    staged = st.function(any_of_two_comparisons)
    staged.options = STRICT
    x = np.linspace(-1.0, 1.0, 15)
    with st.eager():
        expected = staged(x, 1)
    compare_trees(staged(x, 1), expected, 1e-12, 1e-12)


def test_an_index_that_moves_nothing_is_no_unused_parameter_of_a_product() -> None:
    text = """\
def f(a0, a1, a2, n):
    a0_sum = st.sum(a0)

    def m3(x4):
        v6 = 1.0 * st.sum(st.sum(st.full((2, 1, 3, 2, 2), 2.0, dtype=st.f64), axis=-1), axis=-1) + 0.0 * a0_sum
        v7 = st.maximum(st.full((2, 1, 1), a0[n % 5 % 1, 0 % 4], dtype=st.f64), a0[-1, (n << 1) % 4])
        v8 = v7 @ (st.full((1, 3), 0.75, dtype=st.f64) / (1.5 + st.square(st.full((1, 3), v6[-2, 0, (n + 3) % 3], dtype=st.f64))))
        return st.sin(v8 * st.sum(x4) + st.roll(v8, 1, axis=0))

    v5 = st.vmap(m3)(a0)
    return st.sum(st.sin(a1)) + st.sum(st.sin(a0)) + st.sum(st.sin(v5)) + 0.1 * a0_sum, n
"""
    check(Case(text, ((1, 4), (3, 1), (0, 3)), seed=1499, n=0), (FAST,))


@st.function
def down(x, n):
    return x if n <= 0 else down(st.sin(x), n - 1) + x


def arrays_called_like_what_recursion_has(x, n):
    stack = st.stack([x, x * 2.0])
    frames = st.flip(stack, axis=0)
    return stack * down(x, n) + frames, st.max(frames)


def test_arrays_may_be_called_like_what_a_recursive_program_has() -> None:
    assert_backends_agree(arrays_called_like_what_recursion_has, X, 2)
    assert_backends_agree(
        lambda x, n: st.grad(lambda x: st.sum(arrays_called_like_what_recursion_has(x, n)[0]))(x), X, 2, rtol=1e-9
    )


@st.function
def counting(total, x, n):
    if n <= 0:
        return x
    for _ in st.range(3):
        total.value = total + st.sum(x)
    return counting(total, st.sin(x), n - 1) * total


def test_variables_change_in_loops_of_recursive_functions_that_are_differentiated() -> None:
    def f(x, n):
        total = st.Variable(0.0 * x[0])

        def g(x):
            return st.sum(counting(total, x, n))

        return st.grad(g)(x), st.sum(counting(total, x, n)), total

    assert_backends_agree(f, X, 2, rtol=1e-9)


@st.function
def drawing(x, n):
    if n <= 0:
        return x
    for _ in st.range(2):
        x = x * st.random.uniform((3,), dtype=st.f64)
    return drawing(x, n - 1) + x


def test_numbers_are_drawn_in_loops_of_recursive_functions_that_are_differentiated() -> None:
    assert_backends_agree(lambda x, n: st.value_and_grad(lambda x: st.sum(drawing(x, n)))(x), X, 2, rtol=1e-9)


@st.function
def deaf(x, n):
    if n <= 0:
        return 1.0 + x**2
    deaf(0.0, n - 1)  # nobody reads what it gives
    return 4


def test_a_reverse_of_a_reverse_that_takes_a_frame_twice_is_refused_with_the_line() -> None:
    def f(x, n):
        total = st.sum(x)
        st.grad(lambda y: total + (st.sin(0.75) if n == 0 else deaf(st.sum(y), n % 3)))(total)
        return 1.5

    @st.function
    def twice(x, n):
        return st.grad(f)(x, n)

    with pytest.raises(st.GradientError, match="keeps twice") as refused:
        twice.stage(X, 4).compile()
    assert "in deaf" in str(refused.value) and "st.jvp" in str(refused.value)
