"""Derivatives at special points: zeros of both signs, kinks, ties, constants, large values, infinities.

Forward and reverse mode agree there, in eager mode and compiled, of first and second order; where a derivative is a matter of
convention it is torch's. The rules may not make a NaN where torch has none.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerContext, wrap
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.ops.primitive import PRIMITIVES
from tests.ops.test_composites import CASES, composite_of
from tests.torch_reference import reference

INF, NAN = math.inf, math.nan
POINTS = np.array(
    [0.0, -0.0, 1, -1, 0.5, 2, -2, 3, 1e-30, -1e-30, 20, -20, 89, -89, -90, 200, -200, 1e10, -1e10, 1e30, -1e30, INF, -INF],
    np.float32,
)


def both_modes(f, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """The derivative of an elementwise function by forward and by reverse mode."""
    ones = np.ones_like(x)
    _, forward = st.jvp(f, (x,), (ones,))
    _, pullback = st.vjp(f, x)
    return np.asarray(forward), np.asarray(pullback(ones)[0])


# ---- every function of one operand ----------------------------------------------------------------

UNARY = {
    **{p.name: getattr(st, p.name) for p in PRIMITIVES.values() if p.kind == "elementwise" and hasattr(st, p.name)
       and p.jvp is not None and p.samples and len(p.samples[0].operands) == 1 and p.name not in ("cast", "stop_gradient")},
    **{name: getattr(st, name) for name in ("relu", "leaky_relu", "sigmoid", "log_sigmoid", "softplus", "silu", "gelu", "elu")},
    "gelu_tanh": lambda x: st.gelu(x, approximate="tanh"),
    "clip": lambda x: st.clip(x, -1.0, 1.0),
    "maximum": lambda x: st.maximum(x, 1.0),
    "minimum": lambda x: st.minimum(x, -1.0),
    "power": lambda x: x**2.5,
    "exponent": lambda x: 2.0**x,
    "exponent_of_zero": lambda x: 0.0**x,
    "quotient": lambda x: 1.0 / x,
    "atan2": lambda x: st.atan2(x, x),
    "huber": lambda x: st.huber_loss(x, st.zeros_like(x), reduction="none"),
    "parabola": lambda x: st.huber_loss(x, st.zeros_like(x), reduction="none", delta=INF),
    "smooth_l1": lambda x: st.smooth_l1_loss(x, st.zeros_like(x), reduction="none"),
    "bce_with_logits": lambda x: st.binary_cross_entropy_with_logits(x, st.full_like(x, 0.25), reduction="none"),
    "bce": lambda x: st.binary_cross_entropy(st.clip(x, 0.0, 1.0), st.full_like(x, 0.25), reduction="none"),
}  # fmt: skip


def second_order(f):
    """The four ways to a second derivative: forward or reverse mode over either."""

    def forward(x):
        return st.jvp(f, (x,), (st.ones_like(x),))[1]

    def reverse(x):
        return st.vjp(f, x)[1](st.ones_like(x))[0]

    return forward, reverse


@pytest.mark.parametrize("name", UNARY)
def test_forward_and_reverse_mode_agree_at_every_special_point(name) -> None:
    f = UNARY[name]
    forward, reverse = both_modes(f, POINTS)
    np.testing.assert_array_equal(forward, reverse)
    orders = [mode for first in second_order(f) for mode in both_modes(first, POINTS)]
    for other in orders[1:]:
        np.testing.assert_allclose(other, orders[0], rtol=1e-6)


@st.function
def compiled_modes(x):
    return {
        name: (st.jvp(f, (x,), (st.ones_like(x),))[1], st.vjp(f, x)[1](st.ones_like(x))[0]) for name, f in UNARY.items()
    }


def test_compiled_modes_agree_with_each_other_and_with_eager_mode() -> None:
    for name, (forward, reverse) in compiled_modes(POINTS).items():
        eager, _ = both_modes(UNARY[name], POINTS)
        np.testing.assert_array_equal(forward, reverse, err_msg=name)
        # What differs is how the C library and NumPy round.
        usual = (np.abs(POINTS) < 1e4) | np.isinf(POINTS) if name in ("sin", "cos", "tan") else np.full(POINTS.shape, True)
        np.testing.assert_allclose(forward[usual], eager[usual], rtol=2e-4, atol=1e-30, err_msg=name)


def beside(f):
    """`x`, by a `where` that does not choose `f(x)` anywhere."""
    return lambda x: st.sum(st.where(x != x, f(x), x))


@st.function
def slopes_beside(x):
    return {name: st.grad(beside(f))(x) for name, f in UNARY.items()}


def test_a_branch_that_where_does_not_choose_has_the_derivative_zero() -> None:
    """Infinite slopes of that branch do not matter: of every function, in both orders, and of chains of them."""
    compiled = slopes_beside(POINTS)
    for name, f in UNARY.items():
        np.testing.assert_array_equal(np.asarray(compiled[name]), 1.0, err_msg=name)
        np.testing.assert_array_equal(np.asarray(st.grad(beside(f))(POINTS)), 1.0, err_msg=name)
        twice = st.grad(lambda x, f=f: st.sum(st.grad(beside(f))(x) * 2.0))
        np.testing.assert_array_equal(np.asarray(twice(POINTS)), 0.0, err_msg=name)


CHAINS = {
    "sqrt": (lambda x: st.where(x > 0, st.sqrt(x), 0.0 * x), -1.0, 0.0),
    "quotient": (lambda x: st.where(x != 1, 1.0 / (x - 1.0), x), 1.0, 1.0),
    "exp": (lambda x: st.where(x < 1, st.exp(x) * x, x), 1000.0, 1.0),
    "power": (lambda x: st.where(x > 0, x**x, x), 0.0, 1.0),
    "sum": (lambda x: st.where(x > 0, st.sqrt(st.sum(x * st.ones(3))) * 2.0 + st.log(x) / x, x), 0.0, 1.0),
    "cast": (lambda x: st.where(x > 0, st.astype(st.sqrt(st.astype(x, st.f64)), st.f32), x), 0.0, 1.0),
    "composites": (lambda x: st.where(x > 0, st.gelu(st.sigmoid(1.0 / x)), x), 0.0, 1.0),
    "two branches": (lambda x: (lambda y: st.where(x > 0, y, x) + st.where(x > 0, 2.0 * y, x))(st.sqrt(x)), -1.0, 2.0),
    "real part": (lambda x: st.where(x > 0, st.real(st.sqrt(x + 0j)), x), 0.0, 1.0),
    # A cotangent that is 0 by chance, in the branch that is chosen, has a second derivative.
    "chosen": (lambda x: st.where(x > -1, 0.5 * (st.exp(x) - 1.0) ** 2 + x, x), 0.0, 1.0),
}


def test_chains_of_functions_beside_where() -> None:
    """In reverse, eagerly and compiled, under `vmap` on either side, and of second order."""

    @st.function
    def compiled(points):
        def slopes(f, x):
            each = st.vmap(st.grad(f))(st.stack([x, x]))
            return st.grad(f)(x), each[1], st.grad(lambda a: st.sum(st.vmap(f)(a)))(st.stack([x, x]))[0]

        return {name: slopes(f, points[name]) for name, (f, _, _) in CHAINS.items()}

    points = {name: np.float32(x) for name, (_, x, _) in CHAINS.items()}
    for name, slopes in compiled(points).items():
        f, x, right = CHAINS[name]
        assert [float(slope) for slope in slopes] == [right] * 3, name
        assert float(st.grad(f)(x)) == right, name
        assert float(st.grad(st.grad(f))(x)) == (name == "chosen"), name
    assert float(st.function(st.grad(st.grad(CHAINS["chosen"][0])))(0.0)) == 1.0


def logistic(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return 1.0 / (1.0 + np.exp(-x))


def softened(x: np.ndarray) -> np.ndarray:
    """The derivative of the logistic function, which is the second one of softplus."""
    return logistic(x) * logistic(-x)


with np.errstate(all="ignore"):
    SLOPES = {
        "sigmoid": (logistic, lambda x: logistic(x) * logistic(-x)),
        "softplus": (lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0), logistic),
        "log_sigmoid": (lambda x: -np.log1p(np.exp(-np.abs(x))) + np.minimum(x, 0), lambda x: logistic(-x)),
        "bce_with_logits": (
            lambda x: 0.75 * x + np.log1p(np.exp(-np.abs(x))) - np.minimum(x, 0),
            lambda x: logistic(x) - 0.25,
        ),
        "huber": (lambda x: np.where(abs(x) < 1, 0.5 * x * x, abs(x) - 0.5), lambda x: np.clip(x, -1, 1)),
        "smooth_l1": (lambda x: np.where(abs(x) < 1, 0.5 * x * x, abs(x) - 0.5), lambda x: np.clip(x, -1, 1)),
        "exponent_of_zero": (lambda x: np.where(x < 0, INF, x == 0), lambda x: np.where(x < 0, -INF, 0.0)),
    }


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", SLOPES)
def test_values_and_derivatives_equal_closed_forms_at_every_special_point(name) -> None:
    value, slope = SLOPES[name]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(np.asarray(UNARY[name](POINTS)), value(POINTS.astype(np.float64)), rtol=2e-6, atol=1e-37)
        # 1 - y of a y that is rounded to 1 is what f32 has: the sigmoid's derivative far above 0 is within its last place.
        np.testing.assert_allclose(both_modes(UNARY[name], POINTS)[1], slope(POINTS.astype(np.float64)), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus", "log_sigmoid", "bce_with_logits"])
def test_second_derivatives_far_from_zero_vanish(name) -> None:
    far = np.array([-1e30, -200, -90, -89, 89, 200, 1e30], np.float32)
    for first in second_order(UNARY[name]):
        for found in both_modes(first, far):
            np.testing.assert_allclose(found, np.zeros_like(far), atol=1e-30)


# ---- two operands and rows: torch's values --------------------------------------------------------

# name: (function of a vector, point, gradient as torch 2.13 has it in f64)
TORCH = {
    "pow_0_0": (lambda x: x[0] ** x[1], [0.0, 0.0], [0.0, 0.0]),
    "pow_0_2": (lambda x: x[0] ** x[1], [0.0, 2.0], [0.0, 0.0]),
    "pow_0_-1": (lambda x: x[0] ** x[1], [0.0, -1.0], [-INF, -INF]),
    "pow_0_by_-2": (lambda x: x[0] ** -2, [0.0], [-INF]),
    "pow_0_by_-1": (lambda x: x[0] ** -1, [0.0], [-INF]),
    "pow_tiny_by_-2": (lambda x: x[0] ** -2, [1e-100], [-2e300]),
    "pow_2_0": (lambda x: x[0] ** x[1], [2.0, 0.0], [0.0, math.log(2.0)]),
    "pow_tiny_0": (lambda x: x[0] ** x[1], [5e-324, 0.0], [0.0, math.log(5e-324)]),
    "pow_-2_3": (lambda x: x[0] ** x[1], [-2.0, 3.0], [12.0, NAN]),
    "atan2_0_0": (lambda x: st.atan2(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
    "atan2_0_-1": (lambda x: st.atan2(x[0], x[1]), [0.0, -1.0], [-1.0, 0.0]),
    "atan2_large": (lambda x: st.atan2(x[0], x[1]), [3e200, 4e200], [4e-201 / 25 * 10, -3e-201 / 25 * 10]),
    "atan2_small": (lambda x: st.atan2(x[0], x[1]), [3e-200, 4e-200], [4e200 / 25, -3e200 / 25]),
    "std_of_constants": (st.std, [1.5, 1.5, 1.5], [0.0, 0.0, 0.0]),
    "std_of_zeros": (st.std, [0.0, -0.0, 0.0], [0.0, 0.0, 0.0]),
    "norm_of_zeros": (st.norm, [0.0, 0.0], [0.0, 0.0]),
    "norm_3_of_zeros": (lambda x: st.norm(x, ord=3), [0.0, 0.0], [0.0, 0.0]),
    "logsumexp_of_nothing": (st.logsumexp, [-INF, -INF], [0.0, 0.0]),
    "logsumexp_large": (st.logsumexp, [1e5, 1e5, -INF], [0.5, 0.5, 0.0]),
    "logaddexp_far": (lambda x: st.logaddexp(x[0], x[1]), [800.0, -800.0], [1.0, 0.0]),
    "logaddexp_infinite": (lambda x: st.logaddexp(x[0], x[1]), [INF, 1.0], [1.0, 0.0]),
    "logaddexp_nothing": (lambda x: st.logaddexp(x[0], x[1]), [-INF, 1.0], [0.0, 1.0]),
    "max_ties": (st.max, [1.0, 2.0, 2.0], [0.0, 0.5, 0.5]),
    "max_all_infinite": (st.max, [-INF, -INF], [0.5, 0.5]),
    "min_ties": (st.min, [-0.0, 0.0, 2.0], [0.5, 0.5, 0.0]),
    "maximum_tie": (lambda x: st.maximum(x[0], x[1]), [3.0, 3.0], [0.5, 0.5]),
    "prod_of_two_zeros": (st.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    "cross_entropy_even": (
        lambda x: st.cross_entropy(st.expand_dims(x, 0), np.array([1])), [1e30, 1e30, 1e30], [1 / 3, -2 / 3, 1 / 3]
    ),
    "cross_entropy_sure": (
        lambda x: st.cross_entropy(st.expand_dims(x, 0), np.array([0])), [1e5, -INF, 0.0], [0.0, 0.0, 0.0]
    ),
    "softmax_with_nothing": (lambda x: st.softmax(x)[0], [1.0, 1.0, -INF], [0.25, -0.25, 0.0]),
    "log_softmax_even": (lambda x: st.log_softmax(x)[0], [1e30, 1e30], [0.5, -0.5]),
    "bce_wrong_at_0": (lambda x: st.binary_cross_entropy(x, np.array([1.0])), [0.0], [-1e12]),
    "bce_right_at_0": (lambda x: st.binary_cross_entropy(x, np.array([0.0])), [0.0], [0.0]),
    "kl_div_at_0": (lambda x: st.kl_div(x, np.array([0.0, 1.0]), reduction="sum"), [1.0, 2.0], [0.0, -1.0]),
    "remainder": (lambda x: x[0] % x[1], [7.5, 2.0], [1.0, -3.0]),
}  # fmt: skip


@st.function
def compiled_gradients(points):
    return {name: (st.jacfwd(f)(points[name]), st.grad(f)(points[name])) for name, (f, _, _) in TORCH.items()}


def test_both_modes_have_torchs_values_at_special_points() -> None:
    points = {name: np.array(at) for name, (_, at, _) in TORCH.items()}
    compiled = compiled_gradients(points)
    for name, (f, _, expected) in TORCH.items():
        found = {"eager reverse": np.asarray(st.grad(f)(points[name])), "reverse": compiled[name][1]}
        if np.isfinite(expected).all():  # a zero tangent times an infinite slope is NaN
            found |= {"eager forward": np.asarray(st.jacfwd(f)(points[name])), "forward": compiled[name][0]}
        for mode, gradient in found.items():
            np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11, err_msg=f"{name}, {mode}")


@pytest.mark.parametrize(
    ("f", "at", "expected"),
    [
        (lambda z: z[0] ** z[1], [2.0, 0.0], [[0.0, 0.5], [0.5, math.log(2.0) ** 2]]),
        (lambda z: z[0] ** z[1], [0.0, 2.0], [[2.0, 0.0], [0.0, 0.0]]),
        (lambda z: st.atan2(z[0], z[1]), [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]),
        (lambda z: st.atan2(z[0], z[1]), [0.0, 2.0], [[0.0, -0.25], [-0.25, 0.0]]),
        (lambda z: st.logaddexp(z[0], z[1]), [2.0, 2.0], [[0.25, -0.25], [-0.25, 0.25]]),
        (lambda z: st.logaddexp(z[0], z[1]), [800.0, -800.0], [[0.0, 0.0], [0.0, 0.0]]),
        (st.std, [1.5, 1.5], [[0.0, 0.0], [0.0, 0.0]]),
        (st.norm, [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]),
        (lambda z: st.sum(st.softplus(z)), [0.0, -200.0], [[0.25, 0.0], [0.0, 0.0]]),
    ],
)
def test_hessians_at_special_points_are_symmetric_and_right(f, at, expected) -> None:
    x = np.array(at)
    ways = [st.hessian(f), st.jacfwd(st.grad(f)), st.jacrev(st.grad(f)), st.jacrev(st.jacfwd(f)), st.jacfwd(st.jacfwd(f))]
    for way in ways:
        np.testing.assert_allclose(np.asarray(way(x)), expected, rtol=1e-12, atol=1e-12)


def test_the_loss_of_large_equal_logits_is_the_logarithm_of_their_number() -> None:
    """The peak leaves the picked logit before the logarithm joins: 1e5 + log(3) in f32 would be off by 0.004."""
    x = np.full((1, 3), 1e5, np.float32)
    loss = st.function(lambda x: st.cross_entropy(x, np.array([1])))
    np.testing.assert_allclose(loss(x), math.log(3.0), rtol=1e-6)
    np.testing.assert_allclose(float(st.cross_entropy(x, np.array([1]))), math.log(3.0), rtol=1e-6)


@pytest.mark.parametrize("ord", [3, 0.5])
def test_an_infinite_norm_gives_finite_elements_the_derivative_0(ord) -> None:
    gradient = np.asarray(st.grad(lambda x: st.norm(x, ord=ord))(np.array([INF, 1.0, 2.0])))
    np.testing.assert_array_equal(gradient[1:], [0.0, 0.0])


def test_a_bound_that_is_nan_is_not_left_out() -> None:
    x, bounds = np.array([-1.0, 0.5, 2.0, NAN], np.float32), np.array([0.0, NAN, 1.0, 0.0], np.float32)

    def clipped(x, bound, bounds, whole):
        sides = st.clip(x, bound, None), st.clip(x, None, bound), st.clip(x, bounds, 1.5), st.clip(x, -5.0, bounds)
        return (*sides, st.clip(x, NAN, 1.0), st.clip(x, None, NAN), st.clip(x, whole, 2))

    expected = (x * NAN, x * NAN, np.clip(x, bounds, 1.5), np.clip(x, -5.0, bounds), x * NAN, x * NAN, np.clip(x, 1, 2))
    with st.eager():
        eager = clipped(x, NAN, bounds, np.int64(1))
    for results in (eager, st.function(clipped)(x, NAN, bounds, 1)):
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    assert np.isnan(np.asarray(st.grad(lambda x: st.sum(st.clip(x, NAN, 1.0) * x))(x))).all()


@pytest.mark.filterwarnings("error:divide by zero")
def test_numbers_at_the_end_of_their_range_leave_gradients_finite() -> None:
    """An infinite delta has no lines, a dropout of everything nothing to scale: what is not chosen may not make NaN of 0."""
    x = np.array([-2.0, 0.0, 3.0], np.float32)

    def slopes(delta, p):
        lost = lambda x: st.sum(st.huber_loss(x, st.zeros_like(x), "sum", delta) * 2.0)  # noqa: E731
        return st.grad(lost)(x), st.grad(lambda x: st.sum(st.dropout(x, p)))(x)

    with st.eager():
        eager = slopes(INF, st.asarray(1.0))
    for parabola, nothing in (eager, st.function(slopes)(INF, 1.0), slopes(INF, np.float32(1.0))):
        np.testing.assert_array_equal(parabola, 2.0 * x)
        np.testing.assert_array_equal(nothing, np.zeros(3))


# ---- NaN goes through -----------------------------------------------------------------------------

SWALLOWED = {
    "norm_half": lambda x: st.norm(x, ord=0.5),
    "norm_-1": lambda x: st.norm(x, ord=-1),
    "norm_3": lambda x: st.norm(x, ord=3),
    "norm": st.norm,
    "std": st.std,
    "max": st.max,
    "min": st.min,
    "logsumexp": st.logsumexp,
    "bce": lambda x: st.binary_cross_entropy(x, np.array([0.0, 1.0, 0.5])),
    "bce_target": lambda x: st.binary_cross_entropy(np.array([0.0, 1.0, 0.5]), x * x),
    "kl_div": lambda x: st.kl_div(np.array([0.0, 1.0, 0.5]), x),
    "huber": lambda x: st.huber_loss(x, np.zeros(3)),
}


@pytest.mark.parametrize("name", SWALLOWED)
def test_a_nan_is_in_the_value_and_in_its_gradient(name) -> None:
    f, x = SWALLOWED[name], np.array([NAN, 0.25, 0.5])
    assert np.isnan(np.asarray(f(x))), "a NaN of the data must not vanish"
    assert np.isnan(np.asarray(st.grad(f)(x))).any(), "nor from the gradient"
    assert np.isnan(np.asarray(st.jvp(f, (x,), (np.ones(3),))[1]))


def test_a_probability_out_of_range_is_not_a_loss() -> None:
    for p in (-0.5, 1.5):
        assert np.isnan(float(st.binary_cross_entropy(np.array([p]), np.array([0.5]))))


# ---- every composite: its rules against each other, and in both ways ---------------------------------


def rows_of(operand: np.ndarray, kind: str) -> np.ndarray:
    """Data of the same shape that is special."""
    if operand.dtype.kind != "f":
        return operand
    if kind == "zeros":
        return np.zeros_like(operand)
    if kind == "constant":
        return np.full_like(operand, 0.75)
    if kind == "ties":
        return np.round(operand)
    return operand * 1e3


# Where large data saturates every slope, or is no probability.
BOUNDED = ("ctc_loss", "lstm", "gru", "rnn", "binary_cross_entropy")
OUTSIDE = {
    "acosh": ("zeros", "constant", "ties"), "atanh": ("ties",), "solve_triangular": ("zeros",),
    "lu": ("zeros", "constant"), "qr": ("zeros", "constant"),
    "lgamma": ("zeros", "ties"), "betaln": ("zeros", "ties"), "digamma": ("zeros", "ties"), "polygamma": ("zeros", "ties"),
    "erfinv": ("ties", "large"), "ndtri": ("zeros", "ties", "large"), "erfcx": ("large",), "i0": ("large",), "i1": ("large",),
    "entr": ("zeros", "ties", "large"),
}  # fmt: skip
"""Data where a function has no finite value or slope, by its samples' name."""
KINDS = [
    (name, kind)
    for name in CASES
    for kind in ("zeros", "constant", "ties", "large")
    if kind not in OUTSIDE.get(composite_of(name).name, ())
]


@pytest.mark.parametrize(("name", "kind"), [case for case in KINDS if case[1] != "large" or case[0] not in BOUNDED])
def test_forward_mode_of_a_composite_agrees_with_its_reverse_rule(name, kind) -> None:
    """<ct, J t> = <J^T ct, t>: forward mode by the jvp or by the body, reverse mode by the vjp rule."""
    operands, attrs = CASES[name]
    rng = np.random.default_rng(5)
    context, one = EagerContext(), composite_of(name)
    with use_context(context):
        arrays = [wrap(rows_of(np.asarray(operand), kind)) for operand in operands]
        tangents = [wrap(rng.standard_normal(a.shape)) if a.dtype.is_float else None for a in arrays]
        results, pushed = context.jvp(lambda *xs: one(*xs, **attrs), arrays, tangents)
        several = len(results) > 1
        cts = [wrap(rng.standard_normal(result.shape)) for result in results]
        backs = one.vjp(tuple(cts) if several else cts[0], results if several else results[0], *arrays, **attrs)
    left = [np.asarray(ct) * np.asarray(t) for ct, t in zip(cts, pushed, strict=True) if t is not None]
    right = [np.asarray(b) * np.asarray(t) for b, t in zip(backs, tangents, strict=True) if t is not None]
    scale = sum(float(np.abs(part).sum()) for part in left + right)
    found = [sum(float(part.sum()) for part in side) for side in (left, right)]
    assert math.isfinite(scale), "no special data may make a NaN"
    assert abs(found[0] - found[1]) <= 1e-9 * scale + 1e-12, found


def test_a_composite_with_both_rules_is_one_op_to_eager_derivatives() -> None:
    """A rule that is planted wrong shows in eager mode too: it is the rule that is used, in both modes, not the body."""
    relu = COMPOSITES["relu"]
    assert relu.is_one_op
    doubled = dataclasses.replace(
        relu, vjp=lambda *a, **k: [2.0 * c for c in relu.vjp(*a, **k)], jvp=lambda *a, **k: 2.0 * relu.jvp(*a, **k)
    )
    forward, reverse = both_modes(lambda x: doubled(x)[0], np.array([1.0, -1.0]))
    np.testing.assert_array_equal(forward, [2.0, 0.0])
    np.testing.assert_array_equal(reverse, [2.0, 0.0])


BINARY_POINTS = np.array([[1.0, 1, 2, 0, -0.0, 0.0, NAN, 2, -3], [1.0, 2, 1, 0, 1, -1, 1, NAN, 3]])
"""Ties, zeros of both signs, and NaN beside a number."""


@pytest.mark.parametrize("name", ["fmax", "fmin", "copysign", "special.entr"])
def test_derivatives_at_ties_and_zeros_are_torchs(name) -> None:
    def of(library):
        function = library
        for part in name.split("."):
            function = getattr(function, part)
        return function

    xs = BINARY_POINTS[:1] if name == "special.entr" else BINARY_POINTS
    if name == "copysign":
        xs = xs[:, :6]  # torch divides by the operand, whose NaN is no sign

    def expected(torch, xs):
        tensors = [torch.tensor(x, requires_grad=True) for x in xs]
        y = of(torch)(*tensors)
        y.sum().backward()
        return [y.detach(), *(x.grad for x in tensors)]

    wanted = reference(expected, xs)

    def derivatives(*xs):
        return of(st)(*xs), *st.grad(lambda *xs: of(st)(*xs).sum(), argnums=tuple(range(len(xs))))(*xs)

    for run in (st.function(derivatives, target="portable"), derivatives):
        for found, want in zip(run(*xs), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-12)
    for number, slope in enumerate(wanted[1:]):
        tangents = [np.zeros_like(x) for x in xs]
        tangents[number] += 1.0
        np.testing.assert_allclose(np.asarray(st.jvp(of(st), tuple(xs), tuple(tangents))[1]), slope, rtol=1e-12)
