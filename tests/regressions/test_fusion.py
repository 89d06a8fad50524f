"""Bugs found in fusion and lowering: each program once went wrong, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.testing import assert_backends_agree

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 4))


def flipped(a, b):
    return st.flip(a @ b, axis=1) * 2.0


def plus_its_transpose(a, b):
    c = a @ b
    return c + c.T


def plus_itself_upside_down(a, b):
    c = a @ b
    return c + c[::-1]


def rolled(a, b):
    c = a @ b
    return c + st.roll(c, 1, 0)


def padded_rows(a, b):
    return st.pad((a @ b)[1:3], ((1, 1), (0, 0))) * 2.0


def times_first_row(a, b):
    c = a @ b
    return c * c[0] + c[:, 1:2]


def through_other_shapes(a, b):
    c = a @ b
    return (
        c
        + st.reshape(st.broadcast_to(st.reshape(c, (16,)), (1, 16)), (4, 4))
        + st.reshape(st.reshape(c, (2, 8)) * 2.0, (4, 4))
    )


EPILOGUES = (
    flipped,
    plus_its_transpose,
    plus_itself_upside_down,
    rolled,
    padded_rows,
    times_first_row,
    through_other_shapes,
)


def test_an_epilogue_reads_no_other_element_of_the_product() -> None:
    # The flip was lost: the tile was read at its own place.
    assert_backends_agree(lambda a, b: [f(a, b) for f in EPILOGUES], A, B)


def test_gathers_whose_results_nobody_reads_still_fuse_and_fail() -> None:
    def unread(x, i):
        st.take(st.sin(st.pad(x, ((1, 1),))), i)
        return x.sum()

    assert assert_backends_agree(unread, np.ones(3), np.array([1, -1])) == 3.0
    with pytest.raises(IndexError):
        assert_backends_agree(unread, np.ones(3), np.array([1, 7]))


def test_two_unread_gathers_both_check_their_indices() -> None:
    def unread(x, i, j):
        st.take(x, i)
        st.take(x, j)
        return x.sum()

    for i, j in (([0], [9]), ([9], [0])):
        with pytest.raises(IndexError):
            assert_backends_agree(unread, np.ones(3), np.array(i), np.array(j))


def test_take_of_a_reshaped_column() -> None:
    # The slice under the reshape shares no loops with the gather.
    def columns(x, i):
        return st.take(st.reshape(x[:, 1], (2, 2)), i, axis=1)

    assert_backends_agree(columns, A, np.array([1, 0, 1]))


def test_reductions_of_one_element_inside_a_softmax() -> None:
    assert_backends_agree(lambda x: st.softmax(st.max(x, axis=2, keepdims=True), axis=1), RNG.normal(size=(1, 3, 1)))
    assert_backends_agree(
        lambda x: (st.argmax(x, axis=0), st.argmin(x, axis=0), st.prod(x, axis=0)), RNG.normal(size=(1, 3))
    )


def test_reshapes_of_nothing() -> None:
    def nothing(x):
        return st.exp(st.reshape(st.sin(x), (3, 0))) + 1.0, st.reshape(x, (0, 5)).sum(axis=0)

    assert_backends_agree(nothing, np.zeros((0, 3)))


@pytest.mark.parametrize("shapes", [((2, 0, 2), (2, 3)), ((2, 3), (3, 0)), ((2, 0), (0, 3)), ((0, 3), (3, 2))])
def test_products_of_nothing(shapes) -> None:
    def product(a, b):
        return st.tanh(a @ b) + 1.0

    def program(a, b):
        return product(a, b), st.grad(lambda a, b: product(a, b).sum(), argnums=(0, 1))(a, b)

    assert_backends_agree(program, *(np.ones(shape) for shape in shapes))


def test_gradient_of_one_element_by_a_static_index() -> None:
    # A pad over a reshape from () to (1,).
    assert_backends_agree(lambda x: st.grad(lambda x: x[1] * x[1])(x), np.array([1.0, 3.0, 2.0]))


def test_guarded_vector_loads_are_of_one_type() -> None:
    # `condition ? *(const f64x4_u *)p : (f64x4){0}` mixed two types.
    def f(x):
        return st.take(st.add_item(x, 1, st.full((2, 3), 2.0, dtype=st.f64)), np.array([2, 0, 1]), axis=2)

    x = RNG.normal(size=(2, 2, 3))
    assert_backends_agree(lambda x: (f(x), st.grad(lambda x: (f(x) * f(x)).sum())(x)), x)


def test_late_results_keep_their_rank() -> None:
    # A result of shape (1,) that depends on the total of the rows was stored as a number.
    def f(x):
        return st.reshape(st.sin(st.sum(st.max(x, axis=1))), (1,)) * 2.0, st.tanh(
            st.sum(x * x, axis=(0, 1), keepdims=True)
        )

    assert_backends_agree(f, A)


def test_convolutions_alone_include_what_they_copy_with() -> None:
    def f(x, w):
        return st.conv2d(x, w).sum()

    program = st.function(lambda x, w: st.grad(f, argnums=(0, 1))(x, w))
    x, w = RNG.normal(size=(1, 1, 1, 1)), RNG.normal(size=(1, 1, 1, 1))
    assert_backends_agree(program, x, w)
    files = program.stage(x, w)
    assert "memcpy(" not in files.source or "string.h" in files.source


def test_a_bool_of_a_row_spread_over_vectors() -> None:
    # `-(int8_t)b` is an int: no lane of a vector of bytes.
    def f(x):
        return (x > 0) & (st.max(x, axis=1, keepdims=True) > 0.5), st.broadcast_to(
            st.sum(x, axis=1, keepdims=True) > 0, x.shape
        )

    assert_backends_agree(f, RNG.normal(size=(5, 33)))
    assert_backends_agree(f, RNG.normal(size=(5, 33)).astype(np.float32))


def test_rows_that_a_reshape_splits() -> None:
    # The row's maximum was looked up under 3 i + j and kept under j + 3 i.
    def f(x):
        return st.cos(st.reshape(st.log_softmax(x, axis=1), (2, 3, 4)))

    x = RNG.normal(size=(6, 4))
    assert_backends_agree(lambda x: (f(x), st.grad(lambda x: (f(x) * f(x)).sum())(x)), x)


def test_index_of_an_axis_of_one_is_no_parameter_of_a_kernel() -> None:
    # The epilogue took an index that it had no use for: an unused parameter.
    def f(a, b, n):
        total = 0.0
        for i in st.range(n):
            total = total + st.cos((st.reshape(a, (4, 1, 3)) @ b)[:, i % 1, :]).sum()
        return total

    assert_backends_agree(lambda a, b, n: st.value_and_grad(lambda a: f(a, b, n))(a), A, B, 2)
    text = st.function(f).stage(A, B, 2).source
    assert "int64_t input" not in text


def test_a_pad_of_a_number_given_to_the_kernel_keeps_its_bounds() -> None:
    # The number stood for the padding, too: the gradient of a slice was that of the whole array.
    def f(x, scale):
        return x + st.pad(st.broadcast_to(scale, (2,)), ((2, 1),))

    assert_backends_agree(f, np.arange(5.0), 2.0)


def test_pads_that_differ_in_their_value_only() -> None:
    # One load served both.
    def f(x):
        return st.pad(x, ((1, 0),), value=0.0) + st.pad(x, ((1, 0),), value=5.0)

    assert_backends_agree(f, np.arange(1.0, 4.0))


def test_a_slice_that_starts_where_its_own_group_says() -> None:
    # The group of a position and of what reads the slice there took the slice from outside, before the position was known.
    def f(divisors):
        return st.vmap(lambda a: 10 // a if a != 0 else -1)(divisors)

    assert_backends_agree(f, np.array([0, 1, 3, 0]))
