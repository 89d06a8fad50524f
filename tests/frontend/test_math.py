"""Python's `math` on staged scalars: every function of it, staged or refused with the way out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.constructs import math_
from tests.frontend.harness import Case, check_gradient, check_program, each

CONSTANTS = {"e", "pi", "tau", "inf", "nan"}
POINTS = {
    "acosh": (1.0, 1.5, 40.0), "atanh": (-0.6, 0.0, 0.7), "asin": (-0.6, 0.3), "acos": (-0.6, 0.3),
    "log": (0.3, 2.0), "log2": (0.3, 8.0, 536870912.0), "log10": (0.3, 1000.0), "log1p": (-0.5, 0.4), "sqrt": (0.0, 2.25),
    "cbrt": (-8.0, 0.4), "lgamma": (-1.5, 0.4, 2.5), "asinh": (-1e9, -5.0, 0.0, 0.4), "erfc": (-1.0, 0.3, 5.0),
    "isnan": (math.nan, 1.0), "isinf": (math.inf, 1.0), "isfinite": (math.inf, 1.0),
}  # fmt: skip
ONE_ARGUMENT = sorted(
    set(math_.STAGED) - set("atan2 pow fmod copysign ldexp modf hypot dist prod fsum isclose".split())
)
NO_DERIVATIVE = {"isnan", "isinf", "isfinite", "floor", "ceil", "trunc"}
KINKS = {("acosh", 1.0), ("sqrt", 0.0)}


def test_every_function_of_math_is_staged_or_refused() -> None:
    functions = {name for name in dir(math) if not name.startswith("_")} - CONSTANTS
    assert functions <= set(math_.STAGED) | set(math_.REFUSED)
    assert not set(math_.STAGED) & set(math_.REFUSED)


def _case(name: str) -> Case:
    function = getattr(math, name)

    def program(x: Any) -> Any:
        return function(x)

    program.__name__ = name
    return Case(
        program, [(x,) for x in POINTS.get(name, (-1.5, 0.0, 0.4, 2.5))], rtol=1e-13 if name != "exp2" else 1e-12
    )


@each([_case(name) for name in ONE_ARGUMENT])
def test_functions_of_one_number(case: Case) -> None:
    check_program(case)


@pytest.mark.parametrize("name", [name for name in ONE_ARGUMENT if name not in NO_DERIVATIVE])
def test_their_derivatives(name: str) -> None:
    function = getattr(math, name)
    slope = st.function(lambda x: st.grad(lambda y: function(y))(x))
    for x in POINTS.get(name, (-1.5, 0.0, 0.4, 2.5)):
        if (name, x) in KINKS or abs(x) > 1e6:
            continue
        step = 1e-6
        if name == "fabs" and x == 0.0:
            continue
        want = (function(x + step) - function(x - step)) / (2 * step)
        assert float(slope(x)) == pytest.approx(want, rel=1e-6, abs=1e-9), x


def two_numbers(x: Any, y: Any) -> Any:
    return math.atan2(x, y), math.fmod(x, y), math.copysign(x, y), math.hypot(x, y, 0.5), math.pow(abs(x), y)


def several_numbers(x: Any, y: Any) -> Any:
    p, q = [x, y, 2.0], (y, 1.0, x)
    return math.dist(p, q), math.prod(p), math.prod([x, y], start=2), math.fsum(v * v for v in p), *math.modf(x)


def roots_and_bases(x: Any, n: Any) -> Any:
    return math.log(x, 3), math.ldexp(x, n), math.sqrt(n), math.exp(-n), math.pi * x, math.degrees(math.tau)


def to_integers(x: Any) -> Any:
    return math.floor(x), math.ceil(x), math.trunc(x), math.floor(x) // 2, math.floor(math.floor(x))


def near(x: Any, y: Any) -> Any:
    return math.isclose(x, y), math.isclose(x, y, rel_tol=0.1), math.isclose(x, y, abs_tol=1.0), math.isclose(x, x)


def on_static_values(x: Any) -> Any:
    return x * math.factorial(4) + math.gcd(12, 18) + math.sqrt(2.0) + math.comb(5, 2)


def at_the_ends(x: Any, y: Any, n: Any) -> dict[str, Any]:
    return {
        "asinh": math.asinh(x), "acosh": math.acosh(x), "cbrt": math.cbrt(x), "modf": math.modf(x), "ldexp": math.ldexp(x, n),
        "fmod": math.fmod(x, y), "hypot": math.hypot(x, y), "dist": math.dist([x, 1.0], [y, 1.0]),
        "copysign": math.copysign(x, y), "fsum": math.fsum([x, 1.0, -x]),
    }  # fmt: skip


ENDS = (0.0, -0.0, 1.0, -3.0, 1e-300, 5e-324, 1e9, 1e200, -1e200, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_values_at_the_ends_of_the_numbers(mode: str) -> None:
    """Squares that overflow, infinities, and the sign of zero: what Python's `math` gives, wherever it gives a number."""
    program = st.function(at_the_ends)
    staged = program.stage(1.0, 1.0, 1)
    for x in ENDS:
        for y in (0.0, -0.0, 2.0, -1e200, 1e-200, math.inf, math.nan):
            n = -1080 if abs(x) > 1e100 else 1080
            with st.eager():
                given = program(x, y, n) if mode == "eager" else staged(x, y, n)
            for name, arguments in {
                **dict.fromkeys(("asinh", "acosh", "cbrt", "modf"), (x,)),
                **dict.fromkeys(("fmod", "hypot", "copysign"), (x, y)),
                "dist": ([x, 1.0], [y, 1.0]), "ldexp": (x, n), "fsum": ([x, 1.0, -x],),
            }.items():  # fmt: skip
                try:
                    want = np.array(getattr(math, name)(*arguments))
                except (ValueError, OverflowError):
                    continue
                got = np.array(given[name])
                np.testing.assert_allclose(got, want, rtol=1e-13, err_msg=f"{name}{arguments}")
                is_zero = want == 0
                np.testing.assert_array_equal(np.signbit(got[is_zero]), np.signbit(want[is_zero]), f"{name}{arguments}")


def test_single_precision_at_the_ends_of_the_numbers() -> None:
    big, small = np.float32(3e20), np.float32(4e-30)
    length, tiny, scaled = st.function(lambda x, y, n: (math.hypot(x, x), math.hypot(y, y), math.ldexp(y, n)))(big, small, 200)
    assert float(length) == pytest.approx(float(big) * math.sqrt(2.0), rel=1e-6)
    assert float(tiny) == pytest.approx(float(small) * math.sqrt(2.0), rel=1e-6)
    assert float(scaled) == math.ldexp(float(small), 200)


CASES = [
    Case(two_numbers, [(2.5, -0.7), (-2.5, 0.7), (7.3, 2.0), (-0.1, -3.0)], rtol=1e-13),
    Case(several_numbers, [(2.5, -0.75), (-1.25, 3.0)], rtol=1e-13),
    Case(roots_and_bases, [(2.5, 3), (81.0, 0)], rtol=1e-13),
    Case(to_integers, [(2.5,), (-2.5,), (7.0,)]),
    Case(near, [(1.0, 1.0 + 1e-10), (1.0, 1.05), (1.0, 1.9), (0.0, 1e-12), (math.inf, math.inf), (math.inf, 1.0)]),
    Case(on_static_values, [(2.0,)]),
]


@each(CASES)
def test_programs(case: Case) -> None:
    check_program(case)


def as_arrays(x: Any) -> Any:
    a, b = x[0], x[1]
    return math.atan2(a, b) + math.fmod(a, b) + math.copysign(a, b) + math.hypot(a, b) + math.dist([a, b], [b, 1.0])


@each([Case(as_arrays, [(np.array([2.5, -0.7]),), (np.array([-0.5, 1.25]),)], (0,))])
def test_derivatives_of_several_numbers(case: Case) -> None:
    check_gradient(case)


def test_the_slope_of_hypot_at_zero_is_zero() -> None:
    assert float(st.function(lambda x: st.grad(lambda y: math.hypot(y, y))(x))(0.0)) == 0.0


def test_of_a_variable() -> None:
    v = st.Variable(np.float64(2.25))
    assert float(st.function(lambda: math.sqrt(v) + math.hypot(v, 3.0))()) == pytest.approx(1.5 + 3.75)


@pytest.mark.parametrize("name", sorted(name for name in math_.REFUSED if hasattr(math, name)))
def test_refusals(name: str) -> None:
    function = getattr(math, name)
    with pytest.raises(st.StagingError, match=f"`math.{name}` of a staged value") as caught:
        st.function(lambda x: function(x)).stage(3)
    assert caught.value.hint
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_an_array_is_refused() -> None:
    with pytest.raises(st.StagedValueError, match=r"`math.exp` needs numbers, got f64 \(2,\)") as caught:
        st.function(lambda x: math.exp(x)).stage(np.ones(2))
    assert "st.exp(x)" in (caught.value.hint or "")
