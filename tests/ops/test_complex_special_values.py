"""Complex functions of infinities, NaN and zeros of both signs, and near the unit circle.

NumPy's results are C's, of Annex G. The exceptions are listed with their reasons; where C leaves a sign open, it is free.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import staged as st

INF, NAN = math.inf, math.nan
PARTS = [-INF, -1e300, -1000.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 1000.0, 1e300, INF, NAN]
Z = np.array([complex(a, b) for a in PARTS for b in PARTS])
INVERSES = {f"a{name}": f"arc{name}" for name in "sin cos tan sinh cosh tanh".split()}
NUMPYS = {
    **{name: name for name in "exp log log1p log2 log10 sqrt sin cos tan sinh cosh tanh".split()},
    **INVERSES,
    "abs": "abs",
}


@st.function
def functions(z):
    return {name: getattr(st, name)(z) for name in (*NUMPYS, "expm1", "sign")}


def results(mode):
    if mode == "program":
        return functions(Z)
    with st.eager():
        return functions(Z)


def is_no_number(x):
    return math.isnan(x) or math.isinf(x)


def open_signs(name, z):
    """Whether the signs of the real and of the imaginary part of a result are left open by C."""
    a, b = z.real, z.imag
    if name in ("tan", "sin"):
        return open_signs(name + "h", complex(b, a))[::-1]
    if name == "cos":
        return open_signs("cosh", complex(b, a))
    wild = is_no_number(b)
    if name == "exp":
        return wild and math.isinf(a), wild and a == -INF
    if name == "sinh":
        return wild and (a == 0 or math.isinf(a)), False
    if name == "cosh":
        return wild and math.isinf(a), (a == 0 and wild) or (b == 0 and math.isnan(a))
    if name == "tanh":
        # An infinite a: the Array API gives the zero the sign of b, C that of sin(2b).
        return a == 0 and wild, math.isinf(a)
    return False, False


def same(x, y, sign_is_open):
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    if sign_is_open:
        x, y = abs(x), abs(y)
    if is_no_number(y) or y == 0:
        return x == y and math.copysign(1, x) == math.copysign(1, y)
    return math.isclose(x, y, rel_tol=1e-14)


@pytest.mark.parametrize("mode", ["eager", "program"])
def test_infinities_nans_and_zeros_are_those_of_annex_g(mode):
    found = results(mode)
    wrong = []
    for name, numpys in NUMPYS.items():
        with np.errstate(all="ignore"):
            expected = getattr(np, numpys)(Z)
        for z, ours, theirs in zip(Z, np.asarray(found[name]), expected, strict=True):
            re, im = open_signs(name, z)
            if not (same(ours.real, theirs.real, re) and same(ours.imag, theirs.imag, im)):
                wrong.append(f"{name}({z}): {ours}, NumPy {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("mode", ["eager", "program"])
def test_expm1_and_sign_are_the_standards_where_numpys_are_not(mode):
    """NumPy's expm1 has NaN beside infinities, and its sign leaves a NaN beside an infinity out."""
    found = results(mode)
    rows = {
        "expm1": [
            (0j, 0j), (complex(-0.0, 0.0), 0j), (complex(INF, 0), complex(INF, 0)), (complex(-INF, 2), complex(-1, 0)),
            (complex(-INF, INF), complex(-1, 0)), (complex(-INF, NAN), complex(-1, 0)), (complex(INF, INF), complex(INF, NAN)),
            (complex(INF, NAN), complex(INF, NAN)), (complex(2, INF), complex(NAN, NAN)), (complex(NAN, 0), complex(NAN, 0)),
            (complex(NAN, 2), complex(NAN, NAN)), (complex(NAN, NAN), complex(NAN, NAN)),
        ],
        "sign": [
            (0j, 0j), (complex(-0.0, -0.0), 0j), (complex(INF, 2), 1 + 0j), (complex(-INF, 2), -1 + 0j), (complex(2, INF), 1j),
            (complex(INF, INF), complex(NAN, NAN)), (complex(INF, NAN), complex(NAN, NAN)), (complex(1, NAN), complex(NAN, NAN)),
            (complex(-2, 0), complex(-1, 0)),
        ],
    }  # fmt: skip
    for name, cases in rows.items():
        by_bits = {str(z): value for z, value in zip(Z, np.asarray(found[name]), strict=True)}
        for z, expected in cases:
            ours = by_bits[str(np.complex128(z))]
            assert same(ours.real, expected.real, False) and same(ours.imag, expected.imag, False), (name, z, ours)


@pytest.mark.parametrize("mode", ["eager", "program"])
@pytest.mark.parametrize(("dtype", "rounding"), [(np.complex64, 2.0**-24), (np.complex128, 2.0**-53)])
def test_logarithms_near_the_unit_circle_have_correct_real_parts(mode, dtype, rounding):
    """The real part is half of log1p of an exact number, |z|^2 - 1, of which almost all cancels."""
    rng = np.random.default_rng(4)
    circle = np.exp(1j * rng.uniform(-3.1, 3.1, 300))
    steps = 1e-4 * rng.standard_normal(100)
    inside = np.concatenate([circle - 1, 1j * steps - steps * steps / 2])
    given = np.concatenate([circle, [0.6 + 0.8j, 5 / 13 + 12j / 13, 1 + 1e-5j]]).astype(dtype), inside.astype(dtype)

    def run(z, w):
        return st.log(z), st.log1p(w)

    if mode == "eager":
        with st.eager():
            found = run(*given)
    else:
        found = st.function(run)(*given)
    for numbers, logs, shift in zip(given, found, (0, 1), strict=True):
        for z, ours in zip(numbers, np.asarray(logs), strict=True):
            a, b = Fraction(float(z.real)) + shift, Fraction(float(z.imag))
            exact = math.log1p(float(a * a + b * b - 1)) / 2
            assert math.isclose(float(ours.real), exact, rel_tol=1000 * rounding, abs_tol=rounding**2), (z, ours, exact)


def test_values_far_out_and_next_to_poles_are_in_the_range():
    big, tiny = 1e300, 1e-300
    cases = [
        ("asin", big + big * 1j), ("acos", -big + 1j), ("asinh", big - 2j), ("acosh", 1j * big), ("atanh", big + big * 1j),
        ("atanh", 1e200 + 1j), ("atanh", 1 + 1e-200j), ("atan", complex(1e-200, 1)), ("sign", big + big * 1j),
        ("sign", tiny - tiny * 1j), ("cosh", 1000 + 0j), ("atanh", complex(1e-12, 1e25)),
    ]  # fmt: skip

    @st.function
    def run(numbers):
        return [getattr(st, name)(z) for (name, _), z in zip(cases, numbers, strict=True)]

    numbers = [np.asarray(z) for _, z in cases]
    with st.eager():
        eager = run(numbers)
    for (name, z), one, other in zip(cases, eager, run(numbers), strict=True):
        with np.errstate(all="ignore"):
            expected = getattr(np, INVERSES.get(name, name))(np.complex128(z))
        for ours in (complex(np.asarray(one)), complex(np.asarray(other))):
            assert same(ours.real, expected.real, False) and same(ours.imag, expected.imag, False), (
                name,
                z,
                ours,
                expected,
            )
