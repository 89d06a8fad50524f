"""Rows of `st.nn.init`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import Plain
from tests.rows.draws import dtype_keyword, seeded
from tests.rows.random import normal, permutation, truncated_normal, uniform
from tests.rows.table import Call, row


def _first(*options: str, rank: int = 0) -> Call:
    def text(d: Draw) -> str:
        seeded(d)
        shape = d.shape(rank) if rank else d.shape(ranks=(0, 1, 2) if not rank else (rank,))
        x = d.new(shape, values="small")
        d.setup.append(f"p = st.nn.Parameter(st.zeros({shape!r}, {dtype_keyword(d)}))")
        d.setup.append(f"st.{d.name}(p{d.pick(*options)})")
        return f"p.value + {x}" if d.dtype != "bool" else f"st.logical_xor(p.value, {x})"

    return text


def _write(tensor: Any, value: Any) -> Any:
    tensor.value = value
    return tensor


def _even(tensor: Any, low: float, high: float) -> Any:
    return _write(tensor, uniform(tensor.shape, low=low, high=high, dtype=tensor.dtype))


def _spread(tensor: Any, mean: float, std: float) -> Any:
    return _write(tensor, normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def _truncated(tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Any:
    return _write(tensor, truncated_normal(tensor.shape, low=a, high=b, mean=mean, std=std, dtype=tensor.dtype))


def _filled(x: Any, number: Any) -> Plain:
    return Plain(np.full(x.shape, number).astype(x.dtype))


row("nn.init.uniform_", _first("", ", -1.0, 3.0"), lambda tensor, a=0.0, b=1.0: _even(tensor, a, b))
row("nn.init.normal_", _first("", ", 2.0, 0.5"), lambda tensor, mean=0.0, std=1.0: _spread(tensor, mean, std))
row("nn.init.trunc_normal_", _first("", ", std=0.7, a=-1.0"), _truncated)
row("nn.init.constant_", _first(", 3", ", 1"), lambda tensor, val: _write(tensor, _filled(tensor, val)))
row("nn.init.zeros_", _first(""), lambda tensor: _write(tensor, _filled(tensor, 0)))
row("nn.init.ones_", _first(""), lambda tensor: _write(tensor, _filled(tensor, 1)))
row("nn.init.eye_", _first("", rank=2), lambda tensor: _write(tensor, Plain(np.eye(*tensor.shape))))
GAINS = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def draw(d: Draw) -> str:
    gain = d.pick("'relu'", "'tanh'", "'leaky_relu', 0.2", "'linear'")
    return f"{d.new(d.shape(ranks=(0, 1, 2)), values='small')} * st.nn.init.calculate_gain({gain})"


@row("nn.init.calculate_gain", draw)
def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    return GAINS[nonlinearity]


def _fans(tensor: Any) -> tuple[int, int]:
    return math.prod(tensor.shape[1:]), tensor.shape[0] * math.prod(tensor.shape[2:])


def _scale(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(max(_fans(tensor)[mode == "fan_out"], 1))


def _xavier_uniform(tensor: Any, gain: float = 1.0) -> Any:
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return _even(tensor, -bound, bound)


def _kaiming_uniform(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    bound = math.sqrt(3.0) * _scale(tensor, a, mode, nonlinearity)
    return _even(tensor, -bound, bound)


def _orthogonal(tensor: Any, gain: float = 1.0) -> Any:
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    if not rows * columns:
        return tensor
    q, r = np.linalg.qr(normal((max(rows, columns), min(rows, columns)), dtype=tensor.dtype).a.astype(np.float64))
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return _write(tensor, Plain(gain * (q if rows >= columns else q.T).reshape(tensor.shape)))


def _sparse(tensor: Any, sparsity: float, std: float = 0.01) -> Any:
    rows, columns = tensor.shape
    kept = np.array([permutation(rows).a for _ in range(columns)]).reshape(columns, rows).T >= math.ceil(
        sparsity * rows
    )
    return _write(tensor, Plain(np.where(kept, normal((rows, columns), std=std, dtype=tensor.dtype).a, 0.0)))


def _dirac(tensor: Any, groups: int = 1) -> Any:
    shape = tensor.shape
    found = np.zeros(shape)
    for line in range(shape[0]):
        channel = line % (shape[0] // groups)
        if channel < shape[1] and found.size:
            found[(line, channel, *(extent // 2 for extent in shape[2:]))] = 1.0
    return _write(tensor, Plain(found))


def _xavier_normal(tensor: Any, gain: float = 1.0) -> Any:
    return _spread(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1)))


def _kaiming_normal(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    return _spread(tensor, 0.0, _scale(tensor, a, mode, nonlinearity))


_KAIMING = ("", ", nonlinearity='relu'", ", a=0.2, mode='fan_out'")
row("nn.init.xavier_uniform_", _first("", ", gain=2.0", rank=2), _xavier_uniform)
row("nn.init.xavier_normal_", _first("", ", gain=0.5", rank=2), _xavier_normal)
row("nn.init.kaiming_uniform_", _first(*_KAIMING, rank=2), _kaiming_uniform)
row("nn.init.kaiming_normal_", _first(*_KAIMING, rank=2), _kaiming_normal)
row("nn.init.orthogonal_", _first("", ", gain=2.0", rank=2), _orthogonal)
row("nn.init.sparse_", _first(", 0.25", ", sparsity=0.5, std=1.0", rank=2), _sparse)
row("nn.init.dirac_", _first("", rank=3), _dirac)
