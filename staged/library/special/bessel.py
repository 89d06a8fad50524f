"""Modified Bessel functions of the first kind, of orders 0 and 1.

Below 8 a polynomial of (x/2)^2, which has positive coefficients; beyond it one of 1/x, times exp(x) / sqrt(x). Both are
fits of ours by Chebyshev interpolation, f64. Derivatives: NIST Digital Library of Mathematical Functions, 10.29.
"""

from __future__ import annotations

import math
from typing import Any

from staged.library.special.polynomials import horner, in_f64
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, exp, minimum, sign, sqrt, square
from staged.ops.primitive import Sample
from staged.ops.promote import as_float
from staged.ops.public import public

# I0(x) and 2 I1(x) / x in (x/2)^2, for x <= 8
_ZERO_NEAR = (
    1.0,
    1.0,
    0.2500000000000001,
    0.027777777777777565,
    0.0017361111111113758,
    6.944444444424399e-05,
    1.9290123457790406e-06,
    3.936759885673581e-08,
    6.151187413177668e-10,
    7.594056846699174e-12,
    7.594079950279469e-14,
    6.275862820937522e-16,
    4.3600362269175774e-18,
    2.5698743857514957e-20,
    1.35095827969477e-22,
    4.940670282542572e-25,
    3.6454386812677436e-27,
)

_ONE_NEAR = (
    1.0,
    0.5000000000000001,
    0.08333333333333304,
    0.0069444444444450686,
    0.00034722222222153507,
    1.157407407453132e-05,
    2.7557319204030443e-07,
    4.920949921538654e-09,
    6.834651294492253e-11,
    7.594078567160322e-13,
    6.90345927367201e-15,
    5.231992159979275e-17,
    3.3410044697092935e-19,
    1.891028804078631e-21,
    7.413211040554544e-24,
    5.833651333188183e-26,
)

# exp(-x) sqrt(x) I0(x) and the same of I1 in 16 / x - 1, for x >= 8
_ZERO_FAR = (
    0.4021765094450081,
    0.003360551983667854,
    0.00013621607439232746,
    1.1143033791556743e-05,
    1.4838475473607391e-06,
    2.973598432479169e-07,
    8.87225351128584e-08,
    3.932602459703109e-08,
    2.1545177650836005e-08,
    7.553516470355896e-09,
    -6.729724111923548e-09,
    -1.3404241991980871e-08,
    -5.4685974495866e-09,
    7.540601378890834e-09,
    7.58022133915272e-09,
    -3.4857887470034955e-09,
    -6.188265090497361e-09,
    1.497880830187091e-09,
    3.881151253996067e-09,
    -5.562201990080394e-10,
    -1.7789375042917173e-09,
    1.4672236659214398e-10,
    5.181936971288284e-10,
    -1.9216763724933513e-11,
    -7.06893851181878e-11,
)

_ONE_FAR = (
    0.38939845902587233,
    -0.009749577193235728,
    -0.00021923576383430274,
    -1.5038547201176271e-05,
    -1.8349101134666435e-06,
    -3.483855609009937e-07,
    -1.0001323461066435e-07,
    -4.312935369971356e-08,
    -2.337059627111857e-08,
    -8.426622829598154e-09,
    6.715795128085017e-09,
    1.4029693589852716e-08,
    6.040877342160988e-09,
    -7.630751970065577e-09,
    -8.044231276166508e-09,
    3.406636130196794e-09,
    6.4870195719816896e-09,
    -1.4171698018664596e-09,
    -4.047785403711858e-09,
    5.146498826087142e-10,
    1.8513716745511988e-09,
    -1.342266320082222e-10,
    -5.388285995923524e-10,
    1.7502497778701306e-11,
    7.347992441734663e-11,
)


_SPLIT = 8.0


def _parts(x: Array, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Array, Array, Array, Array]:
    """|x|, whether it is far from 0, the polynomial of (x/2)^2, and exp(-|x|) times the function far from 0."""
    size = abs_(x)
    is_far = size > _SPLIT
    distant = where(is_far, size, _SPLIT)
    inside = where(is_far, 0.0, x)
    return size, is_far, horner(0.25 * square(inside), near), horner(16.0 / distant - 1.0, far) / sqrt(distant)


def _grown(size: Array, scaled: Array) -> Array:
    """exp(size) times a number, in two steps: the result may be finite where exp(size) is not."""
    half = exp(0.5 * minimum(size, 1400.0))
    return where(size == math.inf, math.inf, scaled * half * half)


@composite("i1", slopes=[lambda t, y, x: _i1_slope(t, x)], samples=[Sample(((4, 5),))])
@in_f64
def _i1(x: Array) -> Array:
    size, is_far, near, far = _parts(x, _ONE_NEAR, _ONE_FAR)
    grown = _grown(size, far)
    return where(is_far, where(x < 0, -grown, grown), 0.5 * x * near)


@composite("i0", slopes=[lambda t, y, x: t * _i1(x)[0]], samples=[Sample(((4, 5),))])
@in_f64
def _i0(x: Array) -> Array:
    size, is_far, near, far = _parts(x, _ZERO_NEAR, _ZERO_FAR)
    return where(is_far, _grown(size, far), near)


@composite("i0e", slopes=[lambda t, y, x: t * _i0e_slope(x)], samples=[Sample(((4, 5),), low=0.3)])
@in_f64
def _i0e(x: Array) -> Array:
    size, is_far, near, far = _parts(x, _ZERO_NEAR, _ZERO_FAR)
    return where(is_far, far, exp(-size) * near)


@composite("i1e", slopes=[lambda t, y, x: t * _i1e_slope(x)], samples=[Sample(((4, 5),), low=0.3)])
@in_f64
def _i1e(x: Array) -> Array:
    size, is_far, near, far = _parts(x, _ONE_NEAR, _ONE_FAR)
    return where(is_far, where(x < 0, -far, far), 0.5 * x * exp(-size) * near)


_OVER_X = tuple(0.5 / (4**k * math.factorial(k) * math.factorial(k + 1)) for k in range(12))
"""I1(x) / x in x^2."""


def _one_over_x(x: Array, one: Array, is_scaled: bool) -> Array:
    """I1(x) / x: near 0 a polynomial, so that derivatives of every order are right there."""
    is_near = abs_(x) < 1
    inside, outside = where(is_near, x, 0.0), where(is_near, 1.0, x)
    near = horner(square(inside), _OVER_X)
    return where(is_near, near * exp(-abs_(inside)) if is_scaled else near, where(is_near, 1.0, one) / outside)


def _series(order: int) -> tuple[float, ...]:
    """sqrt(2 pi x) exp(-x) times the function of this order, in 1 / x, by the library's 10.40.1."""
    terms = [1.0]
    for k in range(1, 11):
        terms.append(-terms[-1] * (4.0 * order**2 - (2 * k - 1) ** 2) / (8.0 * k))
    return tuple(terms)


_GAP = tuple((zero - one) / math.sqrt(2.0 * math.pi) for zero, one in zip(_series(0), _series(1), strict=True))[1:]
"""(i0e(x) - i1e(x)) sqrt(x) x in 1 / x, for x > 100."""


def _gap(x: Array) -> Array:
    """i0e(x) - i1e(|x|): far from 0, where the two are nearly the same, by the difference of their series."""
    size = abs_(x)
    is_far = size > 100.0
    far, near = where(is_far, size, 100.0), where(is_far, 0.0, x)
    w = 1.0 / far
    return where(is_far, w * horner(w, _GAP) / sqrt(far), _i0e(near)[0] - sign(near) * _i1e(near)[0])


@in_f64
def _i0e_slope(x: Array) -> Array:
    return -sign(x) * _gap(x)


@in_f64
def _i1e_slope(x: Array) -> Array:
    return _gap(x) - _one_over_x(x, _i1e(x)[0], True)


def _i1_slope(t: Array, x: Array) -> Array:
    zero = _i0(x)[0]
    # Where both are infinite, the larger one is the slope.
    is_over = zero == math.inf
    # The place is replaced, not the function's value: the reverse of that would take 0 times its infinite slope.
    near = where(is_over, 1.0, x)
    return t * (zero - where(is_over, 0.0, _one_over_x(near, _i1(near)[0], False)))


@public("i0", method=True)
def i0(x: Any) -> Array:
    """The modified Bessel function of order 0. NumPy and torch `i0`."""
    return _i0(as_float(x))[0]


@public("special.i0e", numpy=None)
def i0e(x: Any) -> Array:
    """exp(-|x|) I0(x), without overflow. torch and SciPy `special.i0e`."""
    return _i0e(as_float(x))[0]


@public("special.i1", numpy=None)
def i1(x: Any) -> Array:
    """The modified Bessel function of order 1. torch and SciPy `special.i1`."""
    return _i1(as_float(x))[0]


@public("special.i1e", numpy=None)
def i1e(x: Any) -> Array:
    """exp(-|x|) I1(x), without overflow. torch and SciPy `special.i1e`."""
    return _i1e(as_float(x))[0]
