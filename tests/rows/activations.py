"""Rows of the activation functions of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain, together, wide, widest_of
from tests.rows.draws import generator, image, seeded, unary
from tests.rows.random import _shaped, bernoulli, uniform
from tests.rows.readings import f64, floats, smooth
from tests.rows.table import Call, row


def _softplus(x: Any) -> Any:
    return np.where(x > 0, x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _selu(x: Any) -> Any:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.where(x > 0, 0.0, x)))


row("sigmoid", unary("saturating"), smooth(_sigmoid), torch="sigmoid")
row(
    "log_sigmoid",
    unary("saturating"),
    smooth(lambda x: np.where(x < 0, x, 0.0) - np.log1p(np.exp(-np.abs(x)))),
    torch="nn.functional.logsigmoid",
)
row("softplus", unary("saturating"), smooth(_softplus), torch="nn.functional.softplus")
row("silu", unary("saturating"), smooth(lambda x: x * _sigmoid(x)), torch="nn.functional.silu")
row("softsign", unary(), smooth(lambda x: x / (1.0 + np.abs(x))))
row("tanhshrink", unary("small"), smooth(lambda x: x - np.tanh(x)))
row("mish", unary("small"), smooth(lambda x: x * np.tanh(_softplus(x))))
row("hardsigmoid", unary(), smooth(lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0)))
row("hardswish", unary(), smooth(lambda x: np.where(x < -3.0, 0.0, np.where(x > 3.0, x, x * (x + 3.0) / 6.0))))
row("relu6", unary(), smooth(lambda x: np.clip(x, 0.0, 6.0)))
row("selu", unary("small"), smooth(_selu))


@row("relu", unary(), torch="relu")
def relu(x: Any) -> Plain:
    array = plain(x)
    if array.dtype.kind == "b":
        return Plain(array.a.astype(np.int64))
    return Plain(np.where(np.isnan(array.a) | (array.a > 0), array.a, np.zeros((), array.dtype)), array.weak)


@row(
    "leaky_relu",
    lambda d: (
        f"st.leaky_relu({d.new(d.shape(ranks=(0, 1, 2)), values='finite')}{d.keyword('negative_slope', 0.0, 0.2, 1.0)})"
    ),
    torch="nn.functional.leaky_relu",
)
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Plain:
    return FUNCTIONS["where"](plain(x) > 0, x, FUNCTIONS["multiply"](x, float(negative_slope)))


@row(
    "elu",
    lambda d: f"st.elu({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('alpha', 0.0, 0.5, 2.0)})",
    torch="nn.functional.elu",
)
def elu(x: Any, alpha: float = 1.0) -> Plain:
    inner = FUNCTIONS["multiply"](FUNCTIONS["expm1"](FUNCTIONS["where"](plain(x) > 0, 0, x)), float(alpha))
    return FUNCTIONS["where"](plain(x) > 0, x, inner)


def erfc(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[float])(x) if x.size else x


@row(
    "gelu",
    lambda d: (
        f"st.gelu({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('approximate', repr('tanh'), repr('none'))})"
    ),
    torch="nn.functional.gelu",
)
def gelu(x: Any, approximate: str = "none") -> Plain:
    (array,), weak = together(x, floats=True)
    wide = widest_of(array)
    with np.errstate(all="ignore"):
        if approximate == "tanh":
            gate = 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3)))
        else:
            gate = 0.5 * erfc(-wide / math.sqrt(2.0))
        return Plain((wide * gate).astype(array.dtype), weak)


def _log_sum(array: Any, axis: Any) -> Any:
    with np.errstate(all="ignore"):
        top = np.max(array, axis=axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        return top + np.log(np.sum(np.exp(array - top), axis=axis, keepdims=True))


def _logit(x: Any, eps: Any = None) -> Any:
    x = x if eps is None else np.clip(x, eps, 1.0 - eps)
    return np.log(x / (1.0 - x))


def _glu(x: Any, axis: int = -1) -> Any:
    a, b = np.split(x, 2, axis)
    return a / (1.0 + np.exp(-b))


def _of(values: str, *keywords: tuple[Any, ...]) -> Call:
    """A call with one array of such values and some keywords, each with its options."""

    def text(d: Draw) -> str:
        x = d.new(d.shape(ranks=(0, 1, 2)), values=values)
        return f"st.{d.name}({x}{''.join(d.keyword(*each) for each in keywords)})"

    return text


def _celu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0.0, x) / alpha))


def _softshrink(x: Any, lambd: float = 0.5) -> Any:
    return np.where(np.abs(x) <= lambd, 0.0, x - np.sign(x) * lambd)


row("logit", _of("prob", ("eps", 0.01, 0.2)), floats(_logit))
row("celu", _of("small", ("alpha", 0.5, 2.0)), floats(_celu))
row(
    "hardshrink", _of("small", ("lambd", 0.25, 1.25)), floats(lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0.0, x))
)
row("softshrink", _of("small", ("lambd", 0.25, 1.25)), floats(_softshrink))
row(
    "hardtanh",
    _of("any", ("min_val", -0.5), ("max_val", 2.0)),
    floats(lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val)),
)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    return f"st.glu({d.new((*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), values='small')}, axis={axis})"


row("glu", draw, floats(_glu))


def draw(d: Draw) -> str:
    d.keywords.add("threshold")
    return f"st.threshold({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {d.pick(0, 1)}, {d.pick(0, 2)})"


row("threshold", draw, lambda x, threshold, value: FUNCTIONS["where"](plain(x) <= threshold, value, x))


# ---- along an axis ------------------------------------------------------------------------------


def _along(d: Draw) -> str:
    return (
        f"st.{d.name}({d.new(shape := d.shape(ranks=(1, 2, 3)), values='small')}"
        f"{d.axis(len(shape), several=False, none=False) if d.likely(60) else ''})"
    )


def _softmin(x: Any, axis: int = -1) -> Any:
    shares = np.exp(np.min(x, axis, keepdims=True, initial=np.inf) - x)
    return shares / np.sum(shares, axis, keepdims=True)


row(
    "log_softmax",
    _along,
    floats(lambda x, axis=-1: x - _log_sum(x, axis)),
    torch=lambda torch: lambda x, axis=-1: torch.log_softmax(x, axis),
)
row(
    "softmax",
    _along,
    floats(lambda x, axis=-1: np.exp(x - _log_sum(x, axis))),
    torch=lambda torch: lambda x, axis=-1: torch.softmax(x, axis),
)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    return f"st.softmin({d.new(shape, values='small')}{d.axis(len(shape), several=False, none=False)})"


row("softmin", draw, floats(_softmin))


def draw(d: Draw) -> str:
    shape = image(d)
    return f"st.prelu({d.new(shape, values='nonzero')}, {d.new((d.pick(1, shape[1]),), values='nonzero')})"


@row("prelu", draw)
def prelu(x: Any, weight: Any) -> Plain:
    data, dtype = wide(x)
    slope = f64(weight)
    if slope.ndim:
        slope = slope[0] if len(slope) == 1 else slope.reshape(-1, *[1] * (data.ndim - 2))
    return Plain(np.where(data > 0, data, slope * data).astype(dtype))


def _generator(d: Draw) -> str:
    """Numbers of the thread's generator, which begins anew."""
    seeded(d)
    d.keywords.add("generator")
    return ""


@row(
    "rrelu",
    lambda d: (
        f"st.rrelu({d.new(d.shape(ranks=(0, 1, 2)), values='nonzero')}{d.keyword('lower', 0.0, 0.25)}"
        f"{d.keyword('upper', 0.5)}, training={d.pick(True, False)}{_generator(d)})"
    ),
)
def rrelu(x: Any, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = False) -> Plain:
    data, dtype = wide(x)
    slope = uniform(data.shape, low=lower, high=upper, dtype=dtype).a if training else (lower + upper) / 2.0
    return Plain(np.where(data > 0, data, slope * data).astype(dtype))


# ---- dropout ------------------------------------------------------------------------------------


def draw(d: Draw) -> str:
    x, _ = _shaped(d)
    d.keywords |= {"p", "training"}
    return f"st.dropout({x}, {d.pick('0.5', 'p=0.0', 'p=0.5, training=False', 'p=1.0', 'p=0.1', '0.75')}{generator(d)})"


@row("dropout", draw)
def dropout(x: Any, p: Any = 0.5, training: Any = True) -> Plain:
    array, dtype = plain(x).a.astype(wide(x)[1]), wide(x)[1]
    if training and p not in (0.0, 0):
        if p in (1.0, 1):
            return Plain(np.zeros(array.shape, dtype))
        keeps = bernoulli(1.0 - p, array.shape).a
        return Plain(np.where(keeps, array * (1.0 / (1.0 - p)), 0.0).astype(dtype))
    return Plain(array)


def _dropping(rank: int) -> Call:
    def text(d: Draw) -> str:
        _generator(d)
        p = d.pick("", ", 0.25", ", p=0.0", ", 1.0")
        return (
            f"st.{d.name}({d.new(image(d, 1, rank), values='small')}{p}{d.pick(', training=True', ', training=False')})"
        )

    return text


def _dropped(rank: int) -> Callable[..., Any]:
    def reading(x: Any, p: float = 0.5, training: bool = True) -> Plain:
        data, dtype = wide(x)
        if not training or p == 0:
            return Plain(data.astype(dtype))
        lead = 2 if data.ndim == rank + 2 or rank == 2 else 1
        if p == 1:
            return Plain(np.zeros(data.shape, dtype))
        keep = bernoulli(1.0 - p, (*data.shape[:lead], *[1] * (data.ndim - lead))).a
        return Plain((data * keep / (1.0 - p)).astype(dtype))

    return reading


def _alpha_dropped(by_channel: bool) -> Callable[..., Any]:
    def reading(x: Any, p: float = 0.5, training: bool = False) -> Plain:
        data, dtype = wide(x)
        if not training or p == 0:
            return Plain(data.astype(dtype))
        if p == 1:
            return Plain(np.zeros(data.shape, dtype))
        shape = (*data.shape[:2], *[1] * (data.ndim - 2)) if by_channel else data.shape
        low, keep = -1.7580993408473766, bernoulli(1.0 - p, shape).a
        a = ((1.0 - p) * (1.0 + p * low**2)) ** -0.5
        return Plain((a * np.where(keep, data, low) - a * p * low).astype(dtype))

    return reading


for _rank in (1, 2, 3):
    row(f"dropout{_rank}d", _dropping(_rank), _dropped(_rank))
row("alpha_dropout", _dropping(2), _alpha_dropped(False))
row("feature_alpha_dropout", _dropping(2), _alpha_dropped(True))
