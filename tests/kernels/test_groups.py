"""The ops that may share a kernel, and their order: programs that one wrong step of fusion makes wrong, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st

RANDOM = np.random.default_rng(11)
X = RANDOM.integers(-4, 5, (33, 17)).astype(np.float32)
Y = RANDOM.integers(-4, 5, (33, 17)).astype(np.float32)
SQUARE = RANDOM.integers(-4, 5, (40, 40)).astype(np.float32)


def same(found, right):
    for number, (got, wanted) in enumerate(zip(found, right, strict=True)):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5, err_msg=f"result {number}")


def test_pieces_and_turns_of_what_a_group_makes():
    """A reversed, shifted or thinned-out array is no operand in whose place, or in whose loops, the result may be made."""

    @st.function
    def run(x, y, square):
        a = x * 2.0
        b = y + 1.0
        turned = a + st.flip(a, 0)
        c = b - 3.0
        moved = c + st.roll(c, 1, 1)
        thin = st.exp(x)[::2] + y[:17]
        inner = y[:, 3:9] * 2.0
        inner_view = st.sum(y[:, 3:9])
        column = x[:, 2] @ y[:, 4]
        s = square + 1.0
        crosswise = s + st.permute_dims(s, (1, 0))
        return turned, moved, thin, inner, inner_view, column, crosswise, x[::2] @ y[::2].T, y[3:9, 2:4] @ x[:2, :3]

    a, c, s = X * 2, Y - 2, SQUARE + 1
    right = (
        a + a[::-1], c + np.roll(c, 1, 1), np.exp(X)[::2] + Y[:17], Y[:, 3:9] * 2, Y[:, 3:9].sum(), X[:, 2] @ Y[:, 4],
        s + s.T, X[::2] @ Y[::2].T, Y[3:9, 2:4] @ X[:2, :3],
    )  # fmt: skip
    same(run(X, Y, SQUARE), right)


def test_an_array_is_changed_in_place_only_by_what_reads_the_same_element():
    """A loop's carried array could be the place of each of these results: the operand is read elsewhere too."""

    @st.function
    def run(x, square, n):
        a, b, c, d = x, x, square, x
        for _ in st.range(n):
            a = st.flip(a, 1) + 1.0
            b = b + b[::-1]
            c = st.permute_dims(c, (1, 0)) + c
            d = st.concat([d[1:], d[:1]], axis=0)
        return a, b, c, d

    a, b, c, d = X, X, SQUARE, X
    for _ in range(3):
        a, b, c, d = a[:, ::-1] + 1, b + b[::-1], c.T + c, np.concatenate([d[1:], d[:1]])
    same(run(X, SQUARE, 3), (a, b, c, d))


def test_an_array_that_is_read_again_is_read_before_it_is_written():
    """Two results of one kernel: what the second needs of the operand has been read when the first takes its place."""

    @st.function
    def run(x, n):
        a, b = x, x * 0.5
        for _ in st.range(n):
            total = st.sum(a * b, axis=1, keepdims=True)
            a, b = a - b * 0.5, b + st.flip(a, 0) * 0.25 + total * 0.125
        return a, b

    a, b = X, X * 0.5
    for _ in range(2):
        a, b = a - b * 0.5, b + a[::-1] * 0.25 + (a * b).sum(1, keepdims=True) * 0.125
    same(run(X, 2), (a, b))


def test_steps_that_need_one_another_run_in_order():
    """Between two groups with the same loops a product, a loop or a slice that starts where the first says."""

    @st.function
    def run(x, y, n):
        a = st.tanh(x) + y
        p = st.permute_dims(a, (1, 0)) @ a
        b = a * 2.0 + (y @ p) * 0.01
        c = a
        for _ in st.range(n):
            c = c * 0.5 + st.flip(c, 0)
        d = a + b + c
        at = st.argmax(a[:, 0])
        e = a[at] + d[at] * 2.0
        return b, d, e, st.sum(d) * a

    a = np.tanh(X) + Y
    b = a * 2 + (Y @ (a.T @ a)) * 0.01
    c = a
    for _ in range(2):
        c = c * 0.5 + c[::-1]
    d = a + b + c
    at = a[:, 0].argmax()
    same(run(X, Y, 2), (b, d, a[at] + d[at] * 2, d.sum() * a))


def test_a_carried_value_is_read_before_the_next_one_takes_its_place():
    @st.function
    def run(x, w, n):
        rows = st.zeros((3, 17), dtype=st.f32)
        for i in st.range(n):
            following = st.tanh(x) - 0.25
            rows[i] = w[0] @ x
            x = following
        return x, rows

    x, w, rows = X[:17] / 16, SQUARE[:17, :17] / 16, np.zeros((3, 17))
    copies = re.findall(r"memcpy\((.*), 289 \*", run.stage(x, w, 3).source)
    assert len(copies) == 1 and copies[0].endswith("args->x")
    found = run(x, w, 3)
    for i in range(3):
        rows[i] = w[0] @ x
        x = np.tanh(x) - 0.25
    same(found, (x, rows))


def test_a_carried_value_that_is_read_with_the_next_one():
    @st.function
    def run(x, total, n):
        for _ in st.range(n):
            following = st.tanh(x) - 0.25
            total = total + x @ following
            x = following
        return x, total

    x, total = X[:17] / 16, np.zeros((17, 17), np.float32)
    found = run(x, total, 3)
    for _ in range(3):
        following = np.tanh(x) - 0.25
        total = total + x @ following
        x = following
    same(found, (x, total))


def test_a_piece_that_starts_where_a_group_says_is_taken_after_it():
    @st.function
    def run(x, table, y):
        best = table[st.argmax(x)] * x
        last = table[st.argmin(y)] + y - st.sum(y)
        return best, last

    x, y = X[0] + np.arange(17, dtype=np.float32), Y[1] - np.arange(17, dtype=np.float32)
    same(run(x, SQUARE[:17, :17].copy(), y), (SQUARE[x.argmax(), :17] * x, SQUARE[y.argmin(), :17] + y - y.sum()))


def test_variables_are_read_before_they_are_written_and_after():
    v = st.Variable(np.float32([1, 2, 3, 4]))

    @st.function
    def run(x):
        before = v.value
        v.value = x * 2.0
        middle = v.value
        v.value = v.value + before
        return before + 1.0, middle + 1.0, v.value + 1.0, before * middle

    x = np.float32([5, 6, 7, 8])
    found = run(x)
    first = np.float32([1, 2, 3, 4])
    same((*found, v.value), (first + 1, x * 2 + 1, x * 2 + first + 1, first * x * 2, x * 2 + first))


def test_what_stops_the_program_does_so_after_what_was_printed_before(capfd):
    @st.function
    def run(x, i):
        print("first", st.sum(x))
        x[i]
        print("second", st.max(x))
        return x * 2.0

    with pytest.raises(IndexError):
        run(np.ones(4, np.float32), 9)
    assert capfd.readouterr().out == "first 4.0\n"
    run(np.ones(4, np.float32), 2)
    assert capfd.readouterr().out == "first 4.0\nsecond 1.0\n"


def test_an_unused_result_may_still_stop_the_program():
    @st.function
    def run(x, i, n):
        x[i]
        n // i[0]
        return x * 2.0

    x = np.ones(4, np.float32)
    same([run(x, np.array([1, 3]), 4)], [x * 2])
    with pytest.raises(IndexError):
        run(x, np.array([1, 4]), 4)
    with pytest.raises(ZeroDivisionError):
        run(x, np.array([0, 1]), 4)


def test_epilogues_take_the_elements_of_their_own_place():
    @st.function
    def run(x, y):
        p = x @ st.permute_dims(y, (1, 0))
        q = x @ st.permute_dims(y, (1, 0))
        r = x @ st.permute_dims(y, (1, 0))
        t = x @ st.permute_dims(y, (1, 0))
        return st.flip(p, 1) * 2.0, q[:, ::2] + 1.0, r + st.permute_dims(r, (1, 0)), st.roll(t, 1, 0), st.pad(t, 1) * 2.0

    p = X @ Y.T
    same(run(X, Y), (p[:, ::-1] * 2, p[:, ::2] + 1, p + p.T, np.roll(p, 1, 0), np.pad(p, 1) * 2))


def test_what_only_an_epilogue_needs_is_made_in_it():
    """As an optimiser's update: one pass over the weights. Not what the product needs too, or somebody else."""

    @st.function
    def run(x, y, mean, i):
        alone = mean * 0.5 + (permuted(x) @ y) * 0.25
        factor = mean * 0.5
        shared = factor + (permuted(x) @ y) * 0.25
        operand = x * 2.0
        itself = operand[:17] + permuted(operand) @ y
        through = mean + 1.0
        behind = through * 2.0 + permuted(x) @ (y @ through)
        picked = mean[i] * 2.0 + permuted(x) @ y
        own = mean * 3.0
        squared = own * 2.0 + own @ own
        early = mean * 0.5
        product = permuted(x) @ y
        late = (early + 1.0) * 2.0 + product
        return alone, shared, factor, itself, behind, picked, squared, late * 3.0 - mean, late @ mean

    def permuted(a):
        return st.permute_dims(a, (1, 0))

    mean, i = RANDOM.integers(-4, 5, (17, 17)).astype(np.float32), np.arange(17)[::-1].copy()
    p = X.T @ Y
    right = (
        mean * 0.5 + p * 0.25, mean * 0.5 + p * 0.25, mean * 0.5, X[:17] * 2 + p * 2, (mean + 1) * 2 + X.T @ (Y @ (mean + 1)),
        mean[i] * 2 + p, mean * 6 + mean @ mean * 9,
        (mean + 2 + p) * 3 - mean, (mean + 2 + p) @ mean,
    )  # fmt: skip
    same(run(X, Y, mean, i), right)

    @st.function
    def update(x, y, mean, variance):
        d = permuted(x) @ y
        mean = mean * 0.9 + d * 0.1
        variance = variance * 0.99 + d * d * 0.01
        return mean, variance, mean / (st.sqrt(variance) + 1.0)

    assert len(kernels_of(update, X, Y, mean, mean)) == 1


def kernels_of(function, *arguments):
    """The kernels and products of a staged function."""
    return [line for line in function.stage(*arguments).lowered_ir.splitlines() if " kernel" in line or " contraction" in line]


def test_long_reductions_take_every_element_once():
    """Cut in two from 131,072 elements on, along each axis, at sizes with and without a divisor."""
    arrays = [np.arange(n).astype(np.float64).reshape(shape) for n, shape in (
        (1 << 17, (1 << 17,)), (131_101, (131_101,)), (600 * 400, (600, 400)), (8 * 130 * 130, (8, 130, 130)), (262_144, (2, 131_072)),
    )]  # fmt: skip

    @st.function
    def run(arrays):
        return [(st.sum(x), st.max(x), st.min(x - 7.0), st.any(x < 1.0), st.all(x >= 0.0)) for x in arrays]

    for x, found in zip(arrays, run(arrays), strict=True):
        assert found == (x.sum(), x.max(), -7.0, True, True)


def test_the_mask_of_relu_is_derived_from_its_result():
    """Neither training nor evaluation writes a mask, so both call one function; the slope at 0 is 0, NaN stays NaN."""
    weight = st.Variable(RANDOM.integers(-2, 3, (17, 20)).astype(np.float32), name="weight")
    after = RANDOM.integers(-2, 3, (20, 5)).astype(np.float32)

    @st.function
    def run(x, after):
        hidden = st.relu(x @ weight)

        def loss():
            return st.sum(st.square(st.relu(x @ weight) @ after))

        return st.grad(loss, wrt=weight)(), hidden

    values = X.copy()
    values[3, 4] = np.nan
    source = run.stage(values, after).source
    assert "bool *" not in source, source
    with np.errstate(invalid="ignore"):
        product = values @ weight.numpy()
        hidden = np.where(product <= 0, 0, product)
        d_hidden = 2 * (hidden @ after) @ after.T
        d_weight = values.T @ np.where(hidden <= 0, 0, d_hidden)
    same(run(values, after), (d_weight, hidden))


def test_a_mask_that_other_steps_read_is_stored():
    """A result, what a loop asks for, and the mask of an array that is not kept."""

    @st.function
    def run(x, y):
        doubled = x * 2.0
        positive, negative = doubled > 0.0, doubled < 0.0
        total = st.zeros(17)
        for i in st.range(33):
            total += st.where(negative[i], y[i], 1.0)
        unkept = st.where(x * y > 1.0, x, y)
        return doubled, positive, total, st.sum(unkept, axis=0), unkept

    doubled, unkept = X * 2, np.where(X * Y > 1, X, Y)
    total = np.where(doubled < 0, Y, 1).sum(0)
    same(run(X, Y), (doubled, doubled > 0, total, unkept.sum(0), unkept))


def test_a_mask_of_constants_that_every_reader_computes_leaves_no_group() -> None:
    weight = st.Variable(np.eye(16, dtype=np.float32))

    def loss(x):
        x = st.where(st.arange(len(x))[:, None] == 0, x * 0.5, x)
        turns = 0
        while st.sum(x * x) > 0.5 and turns < 3:
            x = 0.5 * st.tanh(x @ weight)
            turns += 1
        return st.sum(x)

    x = np.ones((8, 16), np.float32)
    found, expected = st.function(st.value_and_grad(loss))(x), st.value_and_grad(loss)(x)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_updates_by_several_totals_are_one_function_apart_from_the_totals() -> None:
    values = np.arange(32 * 100, dtype=np.float32).reshape(32, 100) % 7
    weight, bias = (st.Variable(np.zeros(32, np.float32), name=name) for name in ("weight", "bias"))

    @st.function
    def step(x, rate):
        y = st.relu(x - 3.0)
        totals = st.sum(x * y, axis=1), st.sum(y, axis=1)
        for variable, total in zip((weight, bias), totals, strict=True):
            variable.value = variable.value * 0.5 - total * rate

    source = step.stage(values, 0.25).source
    assert source.count("\nstatic void update_") == 1
    assert len(re.findall(r"^    update_\w+\(.* args->(?:weight|bias)[,)]", source, re.M)) == 2
    step(values, 0.25)
    y = np.maximum(values - 3, 0)
    same((weight.numpy(), bias.numpy()), (-0.25 * (values * y).sum(axis=1), -0.25 * y.sum(axis=1)))
