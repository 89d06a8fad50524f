"""Special functions: values to a few roundings over the whole range, derivatives of every order, poles, devices, torch's names."""

from __future__ import annotations

import math
from functools import partial
from operator import attrgetter

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals
from tests.rows import ROWS
from tests.torch_reference import reference

sp = st.special
RNG = np.random.default_rng(21)
FUNCTIONS, POINTS = {}, {}
"""The functions whose rows have special values, and these: operands and value. `polygamma` is a function for each order."""
for _name, _row in ROWS.items():
    for _operands, _value in _row.special:
        _xs = _operands if isinstance(_operands, tuple) else (_operands,)
        _function, _key = attrgetter(_name)(st), _name.removeprefix("special.")
        if _name == "polygamma":
            _function, _key, _xs = partial(_function, _xs[0]), f"polygamma_{_xs[0]}", _xs[1:]
        FUNCTIONS[_key] = _function
        POINTS.setdefault(_key, []).append((_xs, _value))
ULPS = {"polygamma_1": 10, "polygamma_4": 20, "digamma": 40, "lgamma": 20}
"""Bounds of more than 6: below 0, zeros are differences of larger numbers."""


def exact(name):
    """The operands and values that are finite."""
    return [(xs, value) for xs, value in POINTS[name] if np.isfinite([*xs, value]).all()]


def operands(name, dtype):
    return [np.array(column, dtype) for column in zip(*(xs for xs, _ in exact(name)), strict=True)]


def all_of(given):
    return {name: FUNCTIONS[name](*xs) for name, xs in given.items()}


@pytest.mark.parametrize("in_eager", [False, True])
def test_values_are_right_to_a_few_roundings(in_eager: bool) -> None:
    given = {name: operands(name, np.float64) for name in POINTS}
    if in_eager:
        with st.eager():
            found = st.function(all_of)(given)
    else:
        found = st.function(all_of)(given)
    for name in POINTS:
        points, expected = zip(*exact(name), strict=True)
        error = np.abs(np.asarray(found[name]) - expected) / np.spacing(np.abs(expected))
        assert error.max() <= ULPS.get(name, 6), f"{name}: {error.max()} roundings at {points[error.argmax()]}"


def test_values_of_f32_are_those_of_f64_rounded_once() -> None:
    def both(given):
        wide = all_of({name: [st.astype(x, st.f64) for x in xs] for name, xs in given.items()})
        return all_of(given), wide

    names = [name for name in POINTS if name not in ("cbrt", "entr", "xlog1py")]
    with np.errstate(all="ignore"):
        given = {name: operands(name, np.float32) for name in names}
        narrow, wide = st.function(both)(given)
        for name in names:
            np.testing.assert_array_equal(narrow[name], np.asarray(wide[name]).astype(np.float32), err_msg=name)


def test_poles_infinities_and_nan() -> None:
    given = {name: [np.array(column) for column in zip(*(xs for xs, _ in points), strict=True)] for name, points in POINTS.items()}
    with st.eager():
        eagerly = st.function(all_of)(given)
    for found in (st.function(all_of)(given), eagerly):
        for name, points in POINTS.items():
            expected = [value for _, value in points]
            np.testing.assert_allclose(np.asarray(found[name]), expected, rtol=1e-14, err_msg=name)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(found[name])[numbers], np.signbit(expected)[numbers], err_msg=name)


SMOOTH = {
    "lgamma": (st.lgamma, [-2.3, -0.4, 0.3, 1.2, 2.0, 5.0, 8.7]),
    "polygamma": (lambda x: st.polygamma(2, x), [-2.3, 0.4, 3.0]),
    "mvlgamma": (lambda x: st.mvlgamma(x, 3), [1.2, 4.0]),
    "erfinv": (st.erfinv, [-0.9, 0.0, 0.3, 0.99]),
    "ndtri": (sp.ndtri, [0.01, 0.5, 0.9]),
    "ndtr": (sp.ndtr, [-3.0, 0.0, 2.0]),
    "log_ndtr": (sp.log_ndtr, [-30.0, -3.0, 0.5, 2.0]),
    "erfcx": (sp.erfcx, [-1.0, 0.0, 3.0, 60.0]),
    "i0": (st.i0, [-9.0, -0.5, 0.0, 0.5, 3.0, 12.0]),
    "i1": (sp.i1, [-9.0, -0.5, 0.0, 0.5, 3.0, 12.0]),
    "i0e": (sp.i0e, [-9.0, -0.5, 0.5, 3.0]),
    "i1e": (sp.i1e, [-9.0, -0.5, 0.5, 3.0]),
    "cbrt": (st.cbrt, [-3.0, 0.5, 9.0]),
    "entr": (sp.entr, [0.1, 0.5, 2.0]),
    "betaln": (lambda x: sp.betaln(x, 2.0 * x), [0.4, 3.0, 6.0]),
    "xlog1py": (lambda x: sp.xlog1py(x, 2.0 * x), [0.1, 0.5, 2.0]),
    "sinc": (st.sinc, [-1.3, 0.0, 1e-9, 0.2, 0.5]),
}


def derivatives(xs):
    """The derivatives of orders 0 to 3 of each function, element by element."""
    found = {}
    for name, x in xs.items():
        orders = [SMOOTH[name][0]]
        for _ in range(3):
            orders.append(lambda x, f=orders[-1]: st.grad(lambda x: st.sum(f(x)))(x))
        found[name] = [order(x) for order in orders]
    return found


def test_derivatives_of_three_orders_agree_with_differences() -> None:
    xs = {name: np.array(points) for name, (_, points) in SMOOTH.items()}
    step = 1e-5
    program = st.function(derivatives)
    above, here, below = (program({name: x + shift for name, x in xs.items()}) for shift in (step, 0.0, -step))
    for name in SMOOTH:
        for order in range(3):
            difference = (np.asarray(above[name][order]) - np.asarray(below[name][order])) / (2 * step)
            message = f"{name}, order {order + 1}"
            np.testing.assert_allclose(here[name][order + 1], difference, rtol=2e-5, atol=1e-6, err_msg=message)


def test_the_slope_of_erfcx_has_all_digits_far_above_zero() -> None:
    x = np.array([49.0, 51.0, 1e4, 1e8, 1e150])
    with np.errstate(all="ignore"):
        series = sum(c / x ** (2 * k) for k, c in enumerate((-1.0, 1.5, -3.75, 13.125, -59.0625))) / x**2
    found = st.function(lambda x: st.grad(lambda x: st.sum(sp.erfcx(x)))(x))(x)
    np.testing.assert_allclose(found, series / math.sqrt(math.pi), rtol=1e-11)


@pytest.mark.parametrize("in_eager", [False, True])
def test_derivatives_in_both_modes(in_eager: bool) -> None:
    def every(xs):
        return {name: SMOOTH[name][0](x) for name, x in xs.items()}

    xs = {name: np.array([x for x in points if abs(x) < 20]) for name, (_, points) in SMOOTH.items()}
    st.check_grads(every, (xs,), rtol=1e-5, eps=1e-6, in_eager=in_eager)


def test_a_device_gives_the_same(emulated_device) -> None:
    given = {name: operands(name, np.float64) for name in POINTS}

    @st.function
    def program(given):
        with st.with_backend(st.GPU, given):
            return all_of(given)

    compare_trees(program(given), st.function(all_of)(given), rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    given = {name: operands(name, np.float64) for name in POINTS}

    @st.function
    def program(given):
        with st.with_backend(st.GPU, given):
            return all_of(given)

    found = program(given)
    monkeypatch.delenv("STAGED_BACKEND")
    compare_trees(found, st.function(all_of)(given), rtol=1e-12, atol=1e-13)


X = RNG.uniform(0.1, 0.9, (3, 4))


def test_torchs_names_mean_what_they_mean_there() -> None:
    names = "digamma entr erfcx erfinv expit gammaln i0 i0e i1 i1e log_ndtr logit ndtr ndtri psi sinc".split()
    expected = reference(lambda torch, x: [getattr(torch.special, name)(torch.tensor(x)) for name in names], X)
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(getattr(sp, name)(X), value, rtol=1e-10, err_msg=name)
    y = X + 2.0
    pairs = reference(
        lambda torch, x, y: [
            torch.special.xlog1py(torch.tensor(x), torch.tensor(y)),
            torch.polygamma(3, torch.tensor(x)),
            torch.mvlgamma(torch.tensor(y), 2),
        ],
        X,
        y,
    )
    for ours, value in zip((sp.xlog1py(X, y), st.polygamma(3, X), sp.multigammaln(y, 2)), pairs, strict=True):
        np.testing.assert_allclose(ours, value, rtol=1e-7)


def test_slopes_are_torchs() -> None:
    def slopes(torch, x):
        x = torch.tensor(x, requires_grad=True)
        total = sum(
            getattr(torch.special, name)(x).sum() for name in "log_ndtr gammaln digamma erfcx i0 i1 entr".split()
        )
        return torch.autograd.grad(total, x)[0]

    def total(x):
        return sum(st.sum(f(x)) for f in (sp.log_ndtr, st.lgamma, st.digamma, sp.erfcx, st.i0, sp.i1, sp.entr))

    np.testing.assert_allclose(st.grad(total)(X), reference(slopes, X), rtol=1e-8)


A = np.array([[12, -18, 0, 0], [-7, 2**31 - 1, 270, 1]])
B = np.array([[8, 24, 5, 0], [-21, 2, 192, 9]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.uint32])
def test_divisors_and_multiples_are_numpys(dtype) -> None:
    a, b = (np.abs(x).clip(0, 250) if np.dtype(dtype).kind == "u" else x for x in (A, B))
    a, b = a.astype(dtype), b.astype(dtype)

    @st.function
    def program(a, b):
        return st.gcd(a, b), st.lcm(a, b), st.vmap(st.gcd)(a, b)

    with st.eager():
        eagerly = program(a, b)
    with np.errstate(all="ignore"):
        expected = np.gcd(a, b), np.lcm(a, b), np.gcd(a, b)
    compare_trees(program(a, b), expected)
    compare_trees(eagerly, expected)
    with pytest.raises(st.DTypeError, match="gcd needs integers"):
        st.gcd(X, X)


def test_powers_evenly_spaced_in_their_exponents_are_numpys() -> None:
    @st.function
    def program():
        return {
            "logspace": st.logspace(-2, 3, 7, dtype=st.f64),
            "logspace_2": st.logspace(0, 10, 11, base=2),
            "logspace_open": st.logspace(0, 1, 4, endpoint=False, dtype=st.f64),
            "geomspace": st.geomspace(1e-3, 1e4, 9, dtype=st.f64),
            "geomspace_below": st.geomspace(-1, -8, 4),
            "geomspace_open": st.geomspace(8, 1, 3, endpoint=False, dtype=st.f64),
            "one": st.geomspace(3, 5, 1),
            "none": st.logspace(3, 5, 0),
        }

    expected = {
        "logspace": np.logspace(-2, 3, 7),
        "logspace_2": np.logspace(0, 10, 11, base=2, dtype=np.float32),
        "logspace_open": np.logspace(0, 1, 4, endpoint=False),
        "geomspace": np.geomspace(1e-3, 1e4, 9),
        "geomspace_below": np.geomspace(-1, -8, 4, dtype=np.float32),
        "geomspace_open": np.geomspace(8, 1, 3, endpoint=False),
        "one": np.geomspace(3, 5, 1, dtype=np.float32),
        "none": np.logspace(3, 5, 0, dtype=np.float32),
    }
    compare_trees(program(), expected, rtol=1e-14, atol=0)
    with st.eager():
        compare_trees(program(), expected, rtol=1e-14, atol=0)


# x: the first and the second derivative, by central differences of 60 digits
FAR = {
    "erfcx": {
        8.0: (-0.008616507881417731, 0.00210620629907817),
        40.0: (-0.0003522884252874839, 1.75979437569139e-05),
        90.0: (-6.964014027507368e-05, 1.5472722115977188e-06),
        1e5: (-5.641895834631278e-11, 1.1283791667569989e-15),
    },
    "i0e": {
        8.0: (-0.009289288564152133, 0.0018107654667169925),
        40.0: (-0.0007960508007932696, 3.004587472548751e-05),
        90.0: (-0.00023460712032959252, 3.921165542912479e-06),
        1000.0: (-6.310198962627116e-06, 9.467668325601487e-09),
        1e5: (-6.307854959639557e-09, 9.461806094270259e-14),
    },
    "i1e": {
        8.0: (-0.00747852309743514, 0.001220026378160809),
        40.0: (-0.000766004926067782, 2.8155641597733327e-05),
        90.0: (-0.00023068595478668003, 3.8119347893425488e-06),
        1000.0: (-6.300731294301514e-06, 9.443993225628657e-09),
        1e5: (-6.307760341578615e-09, 9.461569548526527e-14),
    },
}


def slope_of(function):
    return lambda x: st.grad(lambda y: st.sum(function(y)))(x)


def both_slopes(given):
    return {name: (slope_of(FUNCTIONS[name])(x), slope_of(slope_of(FUNCTIONS[name]))(x)) for name, x in given.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_far_from_zero_do_not_cancel(dtype) -> None:
    """Also those of f32, of whose rounded values nothing but the rounding would be left."""
    found = st.function(both_slopes)({name: np.array(list(points), dtype) for name, points in FAR.items()})
    for name, points in FAR.items():
        expected = np.array(list(points.values())).T
        np.testing.assert_allclose(np.array(found[name]), expected, rtol=1e-7 if dtype is np.float32 else 3e-9)


@pytest.mark.parametrize(("dtype", "x"), [(np.float32, 95.0), (np.float64, 800.0)])
def test_the_slope_of_i1_beyond_the_largest_number_is_infinite(dtype, x) -> None:
    slope = st.function(lambda a: st.grad(lambda b: st.sum(sp.i1(b)))(a))(np.array([x, -x, np.inf], dtype))
    assert (np.asarray(slope) == np.inf).all()


def test_the_beta_function_of_infinity_is_zero() -> None:
    a, b = np.array([np.inf, 1.0, np.inf, np.nan]), np.array([1.0, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(np.asarray(st.function(sp.betaln)(a, b)), [-np.inf, -np.inf, -np.inf, np.nan])


REFUSED = {
    "order": (lambda: st.polygamma(-1, X), "polygamma: n is an order"),
    "dimensions": (lambda: st.mvlgamma(X, 0), "mvlgamma: p is a number of dimensions"),
    "base": (lambda: st.logspace(0, 1, 3, base=-2.0), "base is above 0"),
    "ends": (lambda: st.geomspace(-1, 1, 3), "both ends are above 0"),
    "num": (lambda: st.geomspace(1, 2, -3), "num is at least 0"),
}

test_refused_with_words = refusals(REFUSED)


def test_second_derivatives_of_i1_beyond_the_largest_number():
    second = st.grad(st.grad(st.special.i1))
    found = [float(second(st.asarray(x, st.f64))) for x in (720.0, -800.0, 1.5)]
    assert found[:2] == [np.inf, -np.inf]
    assert found[2] == pytest.approx(0.7564433496874543, rel=1e-13)  # i1 (1 + 2 / x^2) - i0 / x, by SciPy
