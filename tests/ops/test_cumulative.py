"""Running sums, products and extremes: values of NumPy and torch, derivatives, devices, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals

RNG = np.random.default_rng(5)
X = RNG.uniform(0.3, 1.7, (2, 3, 4)) * RNG.choice([-1.0, 1.0], (2, 3, 4))
ZEROS = np.where(RNG.random((2, 3, 4)) < 0.3, 0.0, X)

# name: (ours, NumPy's)
CASES = {
    "cumsum": (st.cumsum, np.cumsum),
    "cumprod": (st.cumprod, np.cumprod),
    "logcumsumexp": (lambda x, axis: st.logcumsumexp(3 * x, axis), lambda x, axis: np.logaddexp.accumulate(3 * x, axis)),
    "cummax": (lambda x, axis: st.cummax(x, axis)[0], np.maximum.accumulate),
    "cummin": (lambda x, axis: st.cummin(x, axis)[0], np.minimum.accumulate),
    "cumulative_sum": (
        lambda x, axis: st.cumulative_sum(x, axis=axis, include_initial=True),
        lambda x, axis: np.cumulative_sum(x, axis=axis, include_initial=True),
    ),
    "cumulative_prod": (
        lambda x, axis: st.cumulative_prod(x, axis=axis, include_initial=True),
        lambda x, axis: np.cumulative_prod(x, axis=axis, include_initial=True),
    ),
}


def ours(x):
    return {f"{name} {axis}": function(x, axis) for name, (function, _) in CASES.items() for axis in (0, 1, -1)}


def numpys(x):
    return {f"{name} {axis}": reference(x, axis) for name, (_, reference) in CASES.items() for axis in (0, 1, -1)}


def test_values_are_numpys() -> None:
    compare_trees(ours(wrap(X)), numpys(X), rtol=1e-13)
    compare_trees(st.function(ours)(X), numpys(X), rtol=1e-13)
    mapped = st.function(st.vmap(ours))(np.stack([ZEROS, X]))
    compare_trees({name: value[1] for name, value in mapped.items()}, numpys(X), rtol=1e-13)
    np.testing.assert_allclose(st.cumsum(X), np.cumsum(X))
    np.testing.assert_allclose(np.cumprod(wrap(X)), np.cumprod(X))


@pytest.mark.parametrize("shape", [(70, 3), (1, 70000), (3, 5000), (5000,), (40, 3, 1000), (3, 2100, 2), (0, 4), (4, 0), (1, 1)])
def test_long_rows_and_many_columns(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    found = st.function(lambda x: [st.cumsum(x, axis) for axis in range(x.ndim)])(x)
    for axis, value in enumerate(found):
        np.testing.assert_array_equal(value, np.cumsum(x, axis, np.float64).astype(np.float32))


def test_long_rows_and_columns_on_a_device(emulated_device) -> None:
    x = RNG.standard_normal((3, 100, 2)).astype(np.float32)

    @st.function
    def program(x):
        with st.with_backend(st.GPU, x):
            return [st.cumsum(x, axis) for axis in (None, 0, 1, 2)]

    for axis, value in zip((None, 0, 1, 2), program(x), strict=True):
        np.testing.assert_array_equal(value, np.cumsum(x, axis, np.float64).astype(np.float32))


def test_sums_of_ones_in_f32_are_exact() -> None:
    ones = np.ones(2**24 + 100, np.float32)
    assert st.function(lambda x: st.cumsum(x)[-51])(ones) == 2**24 + 50
    assert np.cumsum(ones)[-50] == 2**24


def test_dtypes_are_those_of_sums() -> None:
    kept = {dtype: dtype for dtype in (st.f32, st.f64, st.i64, st.u64)}
    for dtype, expected in (kept | {st.i32: st.i64, st.u8: st.u64, st.i8: st.i64, st.bool_: st.i64}).items():
        x = st.astype(wrap(np.array([1, 0, 1])), dtype)
        assert st.cumsum(x, 0).dtype is expected is st.cumprod(x, 0).dtype
    assert st.cumsum(wrap(np.array([1, 2])), 0, dtype=st.f32).dtype is st.f32
    np.testing.assert_array_equal(st.function(st.cumsum)(np.array([200, 100], np.uint8)), [200, 300])


def test_extremes_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    rows = np.array([[1, 3, 3, 2, 3], [-math.inf, math.nan, 1, math.nan, 2], [0.0, -0.0, 0.0, -1, -math.inf]])
    for name in ("cummax", "cummin"):
        for values in (rows, np.array([[3, 1, 3, 1]])):
            expected = [part.numpy() for part in getattr(torch, name)(torch.tensor(values), 1)]
            function = getattr(st, name)
            for found in (function(wrap(values), dim=1), st.function(lambda x, of=function: of(x, 1))(values)):
                for part, value in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(np.asarray(part), value)


def test_a_log_of_sums_at_infinities() -> None:
    x = np.array([-math.inf, -math.inf, 1000.0, 1000.0, math.inf, 3.0])
    expected = [-math.inf, -math.inf, 1000.0, 1000.0 + math.log(2.0), math.inf, math.inf]
    np.testing.assert_allclose(st.function(st.logcumsumexp)(x), expected)
    loss = lambda x: st.sum(st.logcumsumexp(x))  # noqa: E731
    slopes = np.asarray(st.function(st.grad(loss))(x[:4]))
    np.testing.assert_allclose(slopes, [0.0, 0.0, 1.5, 0.5])


@pytest.mark.parametrize("in_eager", [False, True])
def test_derivatives_agree_with_differences(in_eager: bool) -> None:
    st.check_grads(ours, (X,), in_eager=in_eager, rtol=1e-5, eps=1e-6)


def test_derivatives_of_a_product_are_exact_where_factors_are_zero() -> None:
    torch = pytest.importorskip("torch")
    weight = np.cos(np.arange(24.0)).reshape(X.shape)
    for axis in (0, 1, 2):

        def loss(x, axis=axis):
            return st.sum(weight * st.cumprod(x, axis))

        def slope(x, loss=loss):
            return st.sum(weight[::-1] * st.grad(loss)(x))

        x = torch.tensor(ZEROS, requires_grad=True)
        (first,) = torch.autograd.grad((torch.tensor(weight) * torch.cumprod(x, axis)).sum(), x, create_graph=True)
        np.testing.assert_allclose(st.function(st.grad(loss))(ZEROS), first.detach(), rtol=1e-12, atol=1e-14)
        (second,) = torch.autograd.grad((torch.tensor(weight[::-1].copy()) * first).sum(), x)
        np.testing.assert_allclose(st.function(st.grad(slope))(ZEROS), second, rtol=1e-12, atol=1e-13)


def on_a_device(x):
    with st.with_backend(st.GPU, x):
        return ours(x)


def test_a_device_gives_the_same(emulated_device) -> None:
    x = X.astype(np.float32)
    compare_trees(st.function(on_a_device)(x), st.function(ours)(x), rtol=1e-6)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    x = X.astype(np.float32)
    expected = st.function(ours)(x)
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    compare_trees(st.function(on_a_device)(x), expected, rtol=1e-6)


def test_an_axis_whose_size_is_known_when_the_program_runs() -> None:
    @st.function
    def program(x, n):
        x = x[: st.dim("N", n, max=6)]
        return st.sum(st.cumsum(x, 0)), st.sum(st.cumprod(x, 1)), st.sum(st.cummax(x, 0)[0])

    x = RNG.standard_normal((6, 3))
    for n in (0, 2, 6):
        expected = [np.cumsum(x[:n], 0).sum(), np.cumprod(x[:n], 1).sum(), np.maximum.accumulate(x[:n], 0).sum()]
        np.testing.assert_allclose(np.asarray(program(x, n)), expected, atol=1e-13)


REFUSED = {
    "no_such_axis": (lambda: st.cumsum(X, 3), st.ShapeError, "axis 3 does not exist"),
    "no_axis": (lambda: st.cumulative_sum(X), st.ShapeError, "needs an `axis`"),
    "bools": (lambda: st.cummax(X > 0), st.DTypeError, "needs numbers"),
}

test_refused_with_words = refusals(REFUSED)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_there_may_be_nothing_to_add_up(shape, axis):
    x = np.zeros(shape, np.float32)
    for function in (st.cumsum, st.cumprod, st.logcumsumexp, lambda x, axis: st.cummax(x, axis)[0]):
        assert st.function(lambda x, f=function: f(x, axis=axis))(x).shape == shape
