"""The elements of values, compiled and eager against NumPy: frames in frames, quotients, values and their transposes."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged.kernels import axes, evaluation
from staged.passes import simplify
from tests.passes.borders import borders, same_bits


def in_both_modes(f: Any, *arguments: Any) -> tuple[Any, Any]:
    """The results of a staged function, compiled and eager."""
    with st.eager():
        eager = f(*arguments)
    return f(*arguments), eager


def check(f: Any, arguments: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    for mode, found in zip(("compiled", "eager"), in_both_modes(f, *arguments), strict=True):
        assert len(found) == len(right)
        for number, (one, other) in enumerate(zip(found, right, strict=True)):
            assert same_bits(one, np.asarray(other)), f"{mode}, result {number}: {one} is not {other}"


def test_a_frame_in_a_frame_keeps_its_number() -> None:
    @st.function
    def framed(x: Any, m: Any, k: Any) -> Any:
        return (
            st.pad(st.pad(x, 1, value=1.5), 1, value=-0.25),
            st.pad(st.pad(x, 1, value=-0.25), 1, value=1.5),
            st.pad(st.pad(x, 1), 1),
            st.pad(st.pad(x, 1, value=0.0), 2, value=-0.0),
            st.pad(st.pad(x, 1, value=-0.0), 1, value=0.0),
            st.pad(st.pad(x, 1, value=np.inf), 1, value=-np.inf),
            st.pad(st.pad(x, 1, value=0.1), 1, value=0.1) + 1.0,
            st.pad(st.pad(m, ((1, 0), (0, 2)), value=3.0), ((0, 1), (1, 0)), value=4.0),
            st.pad(st.pad(m, ((1, 1), (0, 0)), value=3.0), ((0, 0), (1, 1)), value=4.0),
            st.pad(st.pad(m, 1, value=3.0).T, 1, value=4.0),
            st.pad(st.flip(st.pad(x, ((1, 2),), value=3.0)), 1, value=4.0),
            st.pad(st.pad(x, 2, value=3.0)[1:5], 1, value=4.0),
            st.pad(st.reshape(st.pad(x, 1, value=3.0), (2, 2)), 1, value=4.0),
            st.pad(st.pad(st.pad(x, 1, value=1.0), 1, value=2.0), 1, value=1.0),
            st.sum(st.pad(st.pad(x, 1, value=2.0), 1, value=3.0)),
            1.0 / st.pad(x, 1, value=0.0) - 1.0 / st.pad(x, 1, value=-0.0),
            st.pad(st.pad(k, 1, value=200), 1, value=7),
            st.pad(st.pad(k, 1, value=1), 1, value=0) * 2,
        )

    def pad(x: Any, width: Any, value: float = 0.0) -> Any:
        return np.pad(x, width, constant_values=value)

    x, m = np.array([2.0, -0.0]), np.arange(6.0).reshape(2, 3)
    k = np.array([5, 6], np.uint8)
    right = (
        pad(pad(x, 1, 1.5), 1, -0.25),
        pad(pad(x, 1, -0.25), 1, 1.5),
        pad(x, 2),
        pad(pad(x, 1, 0.0), 2, -0.0),
        pad(pad(x, 1, -0.0), 1, 0.0),
        pad(pad(x, 1, np.inf), 1, -np.inf),
        pad(x, 2, 0.1) + 1.0,
        pad(pad(m, ((1, 0), (0, 2)), 3.0), ((0, 1), (1, 0)), 4.0),
        pad(pad(m, ((1, 1), (0, 0)), 3.0), ((0, 0), (1, 1)), 4.0),
        pad(pad(m, 1, 3.0).T, 1, 4.0),
        pad(pad(x, ((1, 2),), 3.0)[::-1], 1, 4.0),
        pad(pad(x, 2, 3.0)[1:5], 1, 4.0),
        pad(pad(x, 1, 3.0).reshape(2, 2), 1, 4.0),
        pad(pad(pad(x, 1, 1.0), 1, 2.0), 1, 1.0),
        pad(pad(x, 1, 2.0), 1, 3.0).sum(),
        np.array([np.inf, 0.0, np.nan, np.inf]),
        pad(pad(k, 1, 200), 1, 7),
        pad(pad(k, 1, 1), 1, 0) * np.uint8(2),
    )
    check(framed, (x, m, k), right)


def test_frames_around_numbers_that_are_in_no_array() -> None:
    """A counting range, a number that fills: under a frame they are read, so that fusion makes arrays of them."""

    @st.function
    def staged(x: Any) -> Any:
        k = st.arange(4)
        return (
            st.pad(k, 1, value=7),
            st.pad(st.arange(4, dtype=st.f64), ((1, 0),), value=1.5),
            st.pad(k, ((2, 0),), value=3)[:4] + x,
            st.pad(st.full((3,), 2.0, dtype=st.f64), ((1, 0),), value=1.5) * x,
            st.pad(st.full((3,), 2.0, dtype=st.f64), ((1, 0),), value=1.5),
            st.pad(st.broadcast_to(x[2], (3,)), 1, value=1.5),
            st.pad(st.broadcast_to(st.sum(x), (3,)), ((1, 0),), value=1.5) + x,
            st.pad(st.pad(k, 1, value=3)[1:], 1, value=2),
            st.sum(st.pad(k, 1, value=7)),
        )

    x = np.array([1.0, -2.0, 4.0, 0.5])
    k = np.arange(4)
    two = np.array([1.5, 2.0, 2.0, 2.0])
    wanted = (
        np.pad(k, 1, constant_values=7),
        np.array([1.5, 0.0, 1.0, 2.0, 3.0]),
        np.array([3, 3, 0, 1]) + x,
        two * x,
        two,
        np.array([1.5, 4.0, 4.0, 4.0, 1.5]),
        np.array([1.5, 3.5, 3.5, 3.5]) + x,
        np.array([2, 0, 1, 2, 3, 3, 2]),
        np.array(20),
    )
    for place, (have, want) in enumerate(zip(staged(x), wanted, strict=True)):
        np.testing.assert_array_equal(have, want, err_msg=f"result {place}")


def test_gradients_through_frames_in_frames() -> None:
    @st.function
    def slopes(x: Any) -> Any:
        def loss(x: Any) -> Any:
            return st.sum(st.exp(st.pad(st.pad(x, 1, value=1.5), 1, value=-0.25)) * st.arange(6))

        return st.value_and_grad(loss)(x), st.jvp(loss, (x,), (st.ones_like(x),))

    x = np.array([0.5, -1.0])
    around = np.array([-0.25, 1.5, 0.5, -1.0, 1.5, -0.25])
    for (value, gradient), (again, slope) in in_both_modes(slopes, x):
        np.testing.assert_allclose([value, again], [(np.exp(around) * np.arange(6)).sum()] * 2, rtol=1e-12)
        np.testing.assert_allclose(gradient, np.exp(x) * [2, 3], rtol=1e-12)
        np.testing.assert_allclose(slope, (np.exp(x) * [2, 3]).sum(), rtol=1e-12)


def test_many_quotients_by_one_number_are_quotients() -> None:
    """A reciprocal is off by one unit in the last place for one quotient in five."""

    @st.function
    def quotients(x: Any, w: Any, s: Any, n: Any, m: Any) -> Any:
        return (
            st.floor(s / w),
            x / st.max(x),
            x / w,
            x / n[:, None],
            m / st.sum(m, axis=1, keepdims=True),
            m / st.sum(m, axis=0, keepdims=True),
            st.astype(s / st.max(s) * 255.0, st.u8),
            st.mean(m, axis=1),
        )

    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x = generator.normal(size=(7, 49)).astype(dtype)
        numbers = borders({np.float32: st.f32, np.float64: st.f64}[dtype])
        x[0, : len(numbers)] = numbers
        n = np.array(numbers[:7], dtype)
        s, w = np.arange(1, 50).astype(dtype) * dtype(49), dtype(49)
        m = generator.integers(1, 50, (5, 49)).astype(dtype)
        with np.errstate(all="ignore"):
            right = (
                np.floor(s / w),
                np.full_like(x, np.nan),
                x / w,
                x / n[:, None],
                m / m.sum(axis=1, keepdims=True),
                m / m.sum(axis=0, keepdims=True),
                (s / s.max() * dtype(255)).astype(np.uint8),
                m.sum(axis=1) / dtype(49),
            )
        check(quotients, (x, w, s, n, m), right)


def test_a_value_and_its_transpose_summed() -> None:
    @st.function
    def sums(x: Any, y: Any) -> Any:
        u, v = x * 2.0, y * 2.0
        return (
            st.sum(u) + st.sum(u.T),
            st.sum(u * u.T),
            st.sum(v) + st.sum(v.T),
            st.sum(u, axis=0) + st.sum(u.T, axis=0),
        )

    x = np.arange(400.0).reshape(20, 20)
    y = np.arange(200.0).reshape(20, 10)
    right = (x.sum() * 4, (x * x.T).sum() * 4, y.sum() * 4, (x.sum(axis=0) + x.sum(axis=1)) * 2)
    check(sums, (x, y), right)


def test_every_rewrite_of_indices_says_when_it_is_exact() -> None:
    space, analysis, evaluate = axes.Space, axes.Analysis, evaluation.Evaluation
    walk = simplify.Simplifier
    rewrites = [
        space.unify, space.regroup, analysis.visit, analysis.visit_free, analysis.shifted, analysis.visit_reduction,
        analysis.visit_gather, analysis.unify_results, analysis.unify_reductions, axes.Structure,
        evaluate.eval, evaluate.eval_free, evaluate.eval_gather, evaluate.guarded,
        simplify.simplify, walk.full, walk.intern, walk.structured, walk.merge_results, walk.without_constants,
    ]  # fmt: skip
    for rewrite in rewrites:
        lines = [line.strip() for line in (rewrite.__doc__ or "").splitlines()]
        assert any(line.startswith("Exact: ") for line in lines), f"{rewrite.__qualname__} does not say when it is exact"


def test_counters_of_a_small_dtype_wrap_around() -> None:
    @st.function
    def counters(x: Any) -> Any:
        a = st.arange(300, dtype=st.u8)
        return a[299], a[290:] + x, st.astype(a[299], st.i64), st.sum(st.astype(a, st.i64))

    a = np.arange(300).astype(np.uint8)
    check(counters, (np.uint8(1),), (a[299], a[290:] + np.uint8(1), a[299].astype(np.int64), a.astype(np.int64).sum()))
