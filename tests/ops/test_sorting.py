"""Sorted rows and the places that they come from: values of NumPy and torch, derivatives, devices, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.ir.types import ALL_DTYPES
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refuses
from tests.torch_reference import reference

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 5, 4))
ROW = np.array([np.nan, -0.0, 0.0, np.inf, -1.0, 0.0, -0.0, -np.inf, np.nan, 1.0])
DTYPES = ALL_DTYPES


def numbers(dtype: st.DType, n: int) -> list[np.ndarray]:
    """Rows of a dtype: far apart, alike in their leading digits, of few values, sorted both ways, with what is special."""
    kind = dtype.numpy.type
    if dtype is st.bool_:
        return [RNG.random(n) < 0.5]
    if dtype.is_integer:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        few = [RNG.integers(0, min(high, most), n).astype(kind) for most in (7, 99_999)]
        return [RNG.integers(low, high, n, kind, endpoint=True), *few]
    x = RNG.standard_normal(n).astype(kind)
    special = np.where(RNG.random(n) < 0.3, RNG.choice(ROW, n), np.round(3 * x)).astype(kind)
    return [x, special, np.sort(x), np.sort(x)[::-1].copy(), (1 + np.abs(x) * np.finfo(kind).eps * 50).astype(kind)]


def places(x: np.ndarray, descending: bool) -> np.ndarray:
    """The stable order of a row: NaN is the largest, and of equal elements the first comes first."""
    if descending:
        return len(x) - 1 - np.argsort(x[::-1], kind="stable")[::-1]
    return np.argsort(x, kind="stable")


def agree(found: object, expected: np.ndarray) -> None:
    """Equal elements, signs of zeros too."""
    given = np.asarray(found)
    np.testing.assert_array_equal(given, expected)
    if given.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(given[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("n", [0, 1, 33, 513, 20_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_every_length_and_dtype(dtype: st.DType, n: int) -> None:
    rows = np.stack(numbers(dtype, n))
    kept = n // 3

    @st.function
    def program(x):
        made = []
        for descending in (False, True):
            pair = st.sort(x, dim=-1, descending=descending)
            made += [pair.values, pair.indices, st.sort(x, descending=descending)]
            made += [*st.topk(x, kept, largest=descending), st.topk(x, kept, largest=descending).values[:, :kept]]
        return made

    @st.function
    def values_alone(x):
        return [(st.sort(x, descending=d), st.topk(x, kept, largest=d).values) for d in (False, True)]

    found, alone = program(rows), values_alone(rows)
    for turn, descending in enumerate((False, True)):
        for place, row in enumerate(rows):
            order = places(row, descending)
            values, where, again, first, first_where, _ = (np.asarray(each)[place] for each in found[6 * turn : 6 * turn + 6])
            np.testing.assert_array_equal(where, order)
            np.testing.assert_array_equal(first_where, order[:kept])
            for given, expected in ((values, row[order]), (again, row[order]), (first, row[order[:kept]])):
                agree(given, expected)
            for given, count in zip(alone[turn], (n, kept), strict=True):
                agree(np.asarray(given)[place], row[order[:count]])


def ours(x):
    made = {}
    for axis in (0, 1, -1, None):
        for descending in (False, True):
            made[f"sort {axis} {descending}"] = st.sort(x, axis, descending=descending)
            made[f"argsort {axis} {descending}"] = st.argsort(x, axis, descending=descending)
    return made


def numpys(x):
    made = {}
    for axis in (0, 1, -1, None):
        for descending in (False, True):
            sign = -1 if descending else 1  # no two are equal
            made[f"sort {axis} {descending}"] = sign * np.sort(sign * x, axis)
            made[f"argsort {axis} {descending}"] = np.argsort(sign * x, axis)
    return made


def test_values_are_numpys_along_every_axis() -> None:
    compare_trees(ours(wrap(X)), numpys(X))
    compare_trees(st.function(ours)(X), numpys(X))
    mapped = st.function(st.vmap(ours))(np.stack([X[::-1], X]))
    compare_trees({name: value[1] for name, value in mapped.items()}, numpys(X))
    for axis in (0, 1, 2):
        mapped = st.function(st.vmap(lambda x: st.sort(x, 0), in_axes=axis, out_axes=axis))(X)
        np.testing.assert_array_equal(mapped, np.sort(X, 0 if axis else 1))
    np.testing.assert_array_equal(np.sort(wrap(X), 0), np.sort(X, 0))
    np.testing.assert_array_equal(st.function(lambda x: x.argsort(0))(X), np.argsort(X, 0))
    np.testing.assert_array_equal(st.function(lambda x: x.msort())(X), np.sort(X, 0))


def test_values_are_torchs() -> None:
    rows = np.where(np.arange(36).reshape(4, 9) % 5 == 2, np.nan, np.cos(np.arange(36.0) ** 2).reshape(4, 9))
    for descending in (False, True):
        expected = reference(lambda torch, x, d=descending: torch.sort(torch.tensor(x), stable=True, dim=0, descending=d)[0], rows)
        compiled = st.function(lambda x, d=descending: st.sort(x, dim=0, descending=d).values)
        for found in (st.sort(rows, dim=0, descending=descending).values, compiled(rows)):
            np.testing.assert_array_equal(found, expected)
        expected = reference(lambda torch, x, d=descending: torch.topk(torch.tensor(x), 3, largest=d)[1], X)
        np.testing.assert_array_equal(st.function(lambda x, d=descending: st.topk(x, 3, largest=d).indices)(X), expected)
    expected = reference(lambda torch, x: torch.kthvalue(torch.tensor(x), 2, dim=1, keepdim=True)[0], X)
    np.testing.assert_array_equal(st.function(lambda x: x.kthvalue(2, dim=1, keepdim=True).values)(X), expected)
    expected = reference(lambda torch, x: torch.kthvalue(torch.tensor(x), 4, dim=1)[1], X)
    np.testing.assert_array_equal(st.kthvalue(wrap(X), 4, 1).indices, expected)


def on_a_device(x):
    with st.with_backend(st.GPU, x):
        return ours(x), st.topk(x, 3, 1), st.grad(lambda x: (st.sort(x, 1) * st.sin(x)).sum())(x)


def test_a_device_gives_the_same(emulated_device) -> None:
    x = X.astype(np.float32)
    with st.eager():
        expected = on_a_device(x)
    compare_trees(st.function(on_a_device)(x), expected, rtol=1e-6)


@pytest.mark.parametrize("n", [2, 31, 33, 1000, 5000])
def test_a_block_sorts_rows_of_every_length(n: int, emulated_device) -> None:
    @st.function
    def program(x):
        with st.with_backend(st.GPU, x):
            return [(st.sort(x, descending=d), st.argsort(x, descending=d)) for d in (False, True)]

    for dtype in (st.f32, st.f64, st.i64):
        rows = np.stack(numbers(dtype, n))
        for descending, (values, order) in zip((False, True), program(rows), strict=True):
            for place, row in enumerate(rows):
                expected = places(row, descending)
                np.testing.assert_array_equal(np.asarray(order)[place], expected)
                agree(np.asarray(values)[place], row[expected])


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    x = X.astype(np.float32)
    with st.eager():
        expected = on_a_device(x)
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    compare_trees(st.function(on_a_device)(x), expected, rtol=1e-6)


@pytest.mark.parametrize("in_eager", [False, True])
def test_derivatives_agree_with_differences(in_eager: bool) -> None:
    def sorted_products(x):
        pair = st.sort(x, dim=1, descending=True)
        return {
            "all": st.sort(x, 0) * st.sin(x),
            "pair": pair.values * pair.indices,
            "top": st.topk(x, 2, 1).values * st.topk(x * x, 2, 1).values,
            "kth": st.kthvalue(st.tanh(x), 3, 1).values,
        }

    st.check_grads(sorted_products, (X,), in_eager=in_eager, order=2, rtol=1e-4, eps=1e-5)


def test_an_axis_whose_size_is_known_when_the_program_runs() -> None:
    @st.function
    def program(x, count):
        n = st.dim("N", count, max=6)
        part = x[:n]
        rows = st.zeros((8,))
        rows[:n] = st.sort(part)
        order = st.full((8,), -1)
        order[:n] = st.argsort(part, descending=True)
        table = st.sort(st.stack([part, -part], 1))
        low = st.zeros((8, 2))
        low[:n] = table
        return rows, order, low

    x = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0], np.float32)
    for count in (0, 1, 4, 6):
        rows, order, low = map(np.asarray, program(x, count))
        np.testing.assert_array_equal(rows[:count], np.sort(x[:count]))
        np.testing.assert_array_equal(order[:count], np.argsort(-x[:count]))
        np.testing.assert_array_equal(low[:count, 0], -x[:count])
        assert not rows[count:].any() and (order[count:] == -1).all()


def test_what_does_not_fit_is_refused() -> None:
    x = wrap(X)
    for function, match in (
        (lambda: st.sort(3.0), "sort needs an axis"),
        (lambda: st.sort(x, 3), "axis 3 does not exist"),
        (lambda: st.topk(x, 5), "there are no 5 elements"),
        (lambda: st.topk(x, -1), "there are no -1 elements"),
        (lambda: st.kthvalue(x, 0), "k counts from 1"),
        (lambda: st.kthvalue(x, 2.5), "`k` is an integer, got 2.5"),
        (lambda: st.topk(x, 2.7), "`k` is an integer, got 2.7"),
        (lambda: st.function(lambda x, k: st.topk(x, k))(X, 2), "`k` is a number known while staging"),
    ):
        with refuses(st.StagedError, match):
            function()


def test_a_row_stays_readable() -> None:
    program = st.function(lambda x: st.sort(x), target="portable").stage(np.zeros((3, 50), np.float32))
    assert "st_sort_values_f32(x_ordered + i * 50, x + i * 50, 50, 50, false, workspace);" in program.source
    program = st.function(lambda x: st.argsort(x), target="portable").stage(np.zeros((3, 50), np.float32))
    assert "st_sort_f32(NULL, argsort + i * 50, x + i * 50, 50, 50, false, workspace);" in program.source
