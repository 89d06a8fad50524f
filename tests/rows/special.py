"""Rows of special functions. The readings are series, sums and bisections of Python's floats.

Special values have 80 digits, rounded to f64 (mpmath 1.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import Plain
from tests.rows.draws import unary
from tests.rows.readings import each, smooth
from tests.rows.table import Call, row

INF, NAN = math.inf, math.nan


def _lgamma(x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


row("erf", unary(), smooth(each(math.erf)), torch="erf")
row("erfc", unary(), smooth(each(math.erfc)), torch="erfc")
row(
    "lgamma", unary("positive"), smooth(each(_lgamma)),
    special=[
        (1e-300, 690.7755278982137), (-1e-30, 69.07755278982137), (1e-05, 11.512919692895826),
        (0.3, 1.0957979948180756), (1.0000001, -5.772155829918507e-08), (1.4, -0.1196129141723713), (2.0, 0.0),
        (2.4, 0.21685932244884157), (3.7, 1.428072326665388), (8.4, 9.341884976495052), (8.6, 9.757897951599297),
        (30.0, 71.25703896716801), (10000.0, 82099.71749644238), (1e+100, 2.2925850929940456e+102),
        (-0.4, 1.31452458994339), (-1.3, 1.2024757863901114), (-7.9, -8.072039736012833),
        (-150.25, -604.7825011297857), (0.0, INF), (-0.0, INF), (-1.0, INF), (-2.0, INF), (INF, INF), (-INF, INF),
        (NAN, NAN), (1.0, 0.0), (-1e+300, INF), (1e+306, INF), (3e+305, INF),
    ],
)  # fmt: skip


def _polygamma(n: int, x: float) -> float:
    """The sum of (-1)^(n + 1) n! / (x + k)^(n + 1), its rest by an integral; `digamma` with the logarithm in its place."""
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == math.inf:
        return 0.0 if n else math.inf
    if x <= 0 and x == math.floor(x):
        if n == 0:
            return math.copysign(math.inf, -math.copysign(1.0, x)) if x == 0 else math.nan
        return math.inf if n % 2 else -math.inf
    count = 40 + max(0, int(-x))
    y = x + count
    sign, factor = (-1.0) ** (n + 1), math.factorial(n)
    head = sum(1.0 / (x + k) ** (n + 1) for k in range(count))
    if n == 0:
        return math.log(y) - 0.5 / y - 1.0 / (12.0 * y**2) + 1.0 / (120.0 * y**4) - head
    s = n + 1
    rest = y**-n / n + 0.5 * y**-s + s * y ** (-s - 1) / 12.0 - s * (s + 1) * (s + 2) * y ** (-s - 3) / 720.0
    return sign * factor * (head + rest)


row(
    "digamma", unary("positive"), smooth(each(lambda x: _polygamma(0, x))),
    special=[
        (1e-300, -9.999999999999999e+299), (-1e-30, 9.999999999999999e+29), (1e-05, -100000.57719921567),
        (0.3, -3.502524222200133), (1.0, -0.5772156649015329), (1.46, -0.0015805619870834522),
        (1.47, 0.008066489011364869), (2.0, 0.42278433509846713), (5.5, 1.6110931485817512), (7.9, 2.002238487563571),
        (8.1, 2.0288674570805814), (30.0, 3.384438132685525), (10000.0, 9.210290371142849),
        (1e+100, 230.25850929940458), (-0.4, 0.9593807861068093), (-1.3, 2.8825405488661673),
        (-7.9, -7.540007224419479), (-150.25, 8.157217322654272), (0.0, -INF), (-0.0, INF), (-1.0, NAN), (-2.0, NAN),
        (INF, INF), (-INF, NAN), (NAN, NAN),
    ],
)  # fmt: skip


def draw(d: Draw) -> str:
    d.keywords.add("n")
    return f"st.polygamma({d.pick(0, 1, 2)}, {d.new(d.shape(ranks=(0, 1, 2)), values='above 1')})"


row(
    "polygamma", draw, lambda n, x: smooth(each(lambda value: _polygamma(n, value)))(x),
    special=[
        ((1, 1e-100), 1e+200), ((1, 1e-05), 10000000001.644909), ((1, 0.3), 12.245364546107732),
        ((1, 1.0), 1.6449340668482264), ((1, 2.5), 0.49035775610023485), ((1, 8.0), 0.1331370146940314),
        ((1, 30.0), 0.033895060357739946), ((1, 10000.0), 0.00010000500016666666),
        ((1, 1e+50), 9.999999999999999e-51), ((1, -0.4), 9.886209670902357), ((1, -1.3), 14.53687624413708),
        ((1, -7.9), 103.23693140003948), ((1, 0.0), INF), ((1, -0.0), INF), ((1, -1.0), INF), ((1, INF), 0.0),
        ((1, NAN), NAN), ((1, 5e-324), INF), ((4, 1e-50), -2.4e+251), ((4, 0.3), -9883.46855549699),
        ((4, 1.0), -24.88626612344088), ((4, 2.5), -0.3137559995067314), ((4, 8.0), -0.0018687951506376134),
        ((4, 30.0), -7.914941340181023e-06), ((4, 10000.0), -6.0012001e-16), ((4, -0.4), 2032.5572680707373),
        ((4, -1.3), 9738.298854017741), ((4, -7.9), -2399973.835948204),
    ],
)  # fmt: skip


def draw(d: Draw) -> str:
    d.keywords.add("p")
    return f"st.mvlgamma({d.new(d.shape(ranks=(0, 1, 2)), values='above 1')}, {d.pick(1, 2)})"


@row("mvlgamma", draw)
def mvlgamma(x: Any, p: int) -> Plain:
    def of(v: float) -> float:
        return p * (p - 1) / 4.0 * math.log(math.pi) + sum(_lgamma(v - j / 2.0) for j in range(p))

    return smooth(each(of))(x)


def _erfinv(y: float) -> float:
    """By bisection of the error function."""
    if not -1.0 < y < 1.0:
        return math.copysign(math.inf, y) if abs(y) == 1.0 else math.nan
    low, high = 0.0, 6.5
    for _ in range(200):
        middle = 0.5 * (low + high)
        is_below = math.erf(middle) < abs(y) if abs(y) < 0.5 else math.erfc(middle) > 1.0 - abs(y)
        low, high = (middle, high) if is_below else (low, middle)
    return math.copysign(0.5 * (low + high), y)


row(
    "erfinv", unary("prob"), smooth(each(_erfinv)),
    special=[
        (1e-300, 8.86226925452758e-301), (1e-05, 8.862269254759594e-06), (0.3, 0.2724627147267543),
        (-0.8, -0.9061938024368233), (0.998, 2.1851242191330043), (0.999999, 3.458910737275499),
        (0.9999999999999999, 5.8635847487551676), (-0.9999990463256836, -3.465505025803331), (1.0, INF), (-1.0, -INF),
        (1.5, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0),
    ],
)  # fmt: skip


def _i0(x: float) -> float:
    """By its series."""
    if math.isnan(x) or abs(x) > 700.0:
        return x if math.isnan(x) else math.inf
    term = total = 1.0
    for k in range(1, 1200):
        term *= (0.5 * x / k) ** 2
        total += term
    return total


row(
    "i0", unary("small"), smooth(each(_i0)),
    special=[
        (0.0, 1.0), (1e-05, 1.000000000025), (0.7, 1.1263030183068092), (-3.0, 4.8807925858650245),
        (7.99, 423.5842036746737), (8.01, 431.5817860520924), (100.0, 1.0737517071310738e+42),
        (713.0, 6.705128263670996e+307), (INF, INF), (-INF, INF), (NAN, NAN), (720.0, INF),
    ],
)  # fmt: skip


def _cbrt(x: Any) -> Any:
    return np.copysign(np.abs(x) ** (1.0 / 3.0), x)


row(
    "cbrt", unary("nonzero"), smooth(_cbrt),
    special=[
        (1e-300, 1e-100), (-27.0, -3.0), (0.3, 0.6694329500821695), (1e+300, 1e+100), (INF, INF), (-INF, -INF),
        (NAN, NAN), (-0.0, -0.0),
    ],
)  # fmt: skip


def _xlogy(x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    d.keywords.add("y")
    return f"st.xlogy({d.new(shape, values='small')}, {d.new(shape, values='positive')})"


row("xlogy", draw, smooth(_xlogy))


# ---- of st.special alone ------------------------------------------------------------------------


def _of(values: str = "unit", count: int = 1) -> Call:
    """A call with `count` arrays of one shape."""

    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        return f"st.{d.name}({', '.join(d.new(shape, values=values) for _ in range(count))})"

    return text


def _entr(x: float) -> float:
    return 0.0 if x == 0 else -x * math.log(x) if x > 0 else -math.inf


row(
    "special.entr", _of("positive"), smooth(each(_entr)),
    special=[
        (1e-300, 6.9077552789821376e-298), (0.3, 0.3611918412977808), (1.0, -0.0), (7.0, -13.621371043387192),
        (0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (NAN, NAN), (INF, -INF),
    ],
)  # fmt: skip
row(
    "special.erfcx", _of(), smooth(each(lambda x: math.exp(x * x) * math.erfc(x))),
    special=[
        (-26.0, 7.657724931490568e+293), (-5.3, 3164914574749.34), (-0.2, 1.2726020284831958), (0.0, 1.0),
        (0.1, 0.8964569799691267), (1.0, 0.427583576155807), (3.0, 0.17900115118138996), (7.7, 0.07266847750186703),
        (25.0, 0.02254957243264136), (INF, 0.0), (-INF, INF), (NAN, NAN), (-30.0, INF),
    ],
)  # fmt: skip


def _bessel(order: int) -> Callable[[float], float]:
    """The modified Bessel function, by its series."""

    def value(x: float) -> float:
        term = total = (0.5 * x) ** order
        for k in range(1, 400):
            term *= (0.5 * x) ** 2 / (k * (k + order))
            total += term
        return total

    return value


row(
    "special.i0e", _of(), smooth(each(lambda x: _bessel(0)(x) * math.exp(-abs(x)))),
    special=[
        (0.0, 1.0), (1e-05, 0.9999900000749996), (0.7, 0.5593055265070683), (-3.0, 0.2430003541618254),
        (7.99, 0.14352476537933484), (8.01, 0.14333897941113852), (100.0, 0.03994437929909668),
        (5000.0, 0.005642036898744589), (INF, 0.0), (-INF, 0.0), (NAN, NAN),
    ],
)  # fmt: skip
row(
    "special.i1", _of(), smooth(each(_bessel(1))),
    special=[
        (1e-300, 5e-301), (1e-05, 5.0000000000625004e-06), (0.7, 0.37187967777700864), (-3.0, -3.9533702174026093),
        (7.99, 396.1152262074013), (8.01, 403.6669399977041), (-100.0, -1.0683693903381625e+42),
        (713.0, 6.700424559186402e+307), (INF, INF), (-INF, -INF), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0),
    ],
)  # fmt: skip
row(
    "special.i1e", _of(), smooth(each(lambda x: _bessel(1)(x) * math.exp(-abs(x)))),
    special=[
        (1e-300, 5e-301), (1e-05, 4.999950000312499e-06), (0.7, 0.18466998276274732), (-3.0, -0.19682671329730086),
        (7.99, 0.134217339578281), (8.01, 0.13406776900984482), (-100.0, -0.03974415302513025),
        (5000.0, 0.005641472666838886), (INF, 0.0), (-INF, -0.0), (NAN, NAN), (-0.0, -0.0),
    ],
)  # fmt: skip


def _ndtr(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


row(
    "special.ndtr", _of(), smooth(each(_ndtr)),
    special=[
        (-37.0, 5.725571222524577e-300), (-30.3, 5.731723503315496e-202), (-9.1, 4.5165914914354566e-20),
        (-3.3, 0.0004834241423837775), (-0.7, 0.24196365222307303), (0.0, 0.5), (0.4, 0.6554217416103242),
        (2.2, 0.9860965524865014), (9.0, 1.0), (-INF, 0.0), (INF, 1.0), (NAN, NAN), (-50.0, 0.0), (50.0, 1.0),
    ],
)  # fmt: skip
row(
    "special.log_ndtr", _of(), smooth(each(lambda x: math.log(_ndtr(x)))),
    special=[
        (-1e+100, -5e+199), (-1000.0, -500007.82669481216), (-38.0, -726.5572160188201), (-9.1, -44.543944245324454),
        (-3.3, -7.634616148071127), (-0.7, -1.4189677615315315), (0.0, -0.6931471805599453),
        (0.4, -0.42247637022777607), (2.2, -0.014001005759384578), (9.0, -1.1285884059538405e-19), (-INF, -INF),
        (INF, -0.0), (NAN, NAN),
    ],
)  # fmt: skip


def _ndtri(p: float) -> float:
    """By bisection."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _ndtr(middle) < p else (low, middle)
    return 0.5 * (low + high)


def _quantile(p: float) -> float:
    return _ndtri(p) if 0.0 < p < 1.0 else math.copysign(math.inf, p - 0.5) if p in (0.0, 1.0) else math.nan


def _betaln(a: float, b: float) -> float:
    return math.inf if 0.0 in (a, b) else math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


row(
    "special.ndtri", _of("prob"), smooth(each(_quantile)),
    special=[
        (5e-324, -38.467405617144344), (1e-300, -37.0470962993612), (1e-20, -9.262340089798407),
        (0.0001, -3.7190164854556804), (0.02, -2.053748910631823), (0.3, -0.5244005127080408),
        (0.7, 0.5244005127080407), (0.98, 2.0537489106318225), (0.9999999999999999, 8.209536151601387), (0.0, -INF),
        (1.0, INF), (0.5, 0.0), (-0.1, NAN), (1.1, NAN), (NAN, NAN),
    ],
)  # fmt: skip
row(
    "special.betaln", _of("positive", 2), smooth(each(_betaln)),
    special=[
        ((0.3, 0.4), 1.6316085659881927), ((1e-10, 3.0), 23.025850929790458),
        ((2.5, 100000000.0), -45.767019008157995), ((40.0, 50.0), -62.455325742890714),
        ((10000000000.0, 10000000000.0), -13862943621.44632), ((8.4, 8.6), -11.572077177986323),
        ((0.0, 0.0), INF), ((0.0, 2.5), INF),
    ],
)  # fmt: skip
row(
    "special.xlog1py", _of("positive", 2), smooth(each(lambda x, y: x * math.log1p(y))),
    special=[
        ((2.0, 1e-20), 2e-20), ((-0.3, 3.0), -0.4158883083359672), ((1e-300, -0.9), -2.302585092994046e-300),
        ((0.0, -1.0), 0.0), ((0.0, NAN), NAN), ((0.0, INF), 0.0), ((2.0, -1.0), -INF),
    ],
)  # fmt: skip
