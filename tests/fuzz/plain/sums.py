"""Readings of reductions, products, softmax and norms: in f64, rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, as_float, part_of, plain, reads, squared, together, widest_of
from tests.fuzz.plain.elementwise import dtype_of


def wide(x: Any) -> tuple[Any, Any]:
    """The operand in f64, and the float dtype of the result."""
    array = plain(x)
    dtype = as_float(array.dtype, array.weak)
    return widest_of(array.a.astype(dtype)), dtype


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def widest(dtype: Any) -> Any:
    """The dtype of sums of integers and bools."""
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def _total(x: Any, axis: Any, keepdims: bool, dtype: Any, function: Any) -> Plain:
    array = plain(x)
    if dtype is not None:
        array = FUNCTIONS["astype"](array, dtype)
    wanted = array.dtype if dtype is not None or array.dtype.kind in "fc" else widest(array.dtype)
    if wanted.kind == "b":
        wanted = np.dtype(np.int64)
    inner = wanted if wanted.kind in "iu" else np.result_type(wanted, np.float64)
    with np.errstate(all="ignore"):
        return Plain(function(array.a.astype(inner), axis=_axis(axis), keepdims=keepdims, dtype=inner).astype(wanted))


@reads
def sum(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Plain:
    return _total(x, axis, keepdims, dtype, np.sum)


@reads
def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Plain:
    return _total(x, axis, keepdims, dtype, np.prod)


@reads
def max(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.max(plain(x).a, axis=_axis(axis), keepdims=keepdims))


@reads
def min(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.min(plain(x).a, axis=_axis(axis), keepdims=keepdims))


@reads
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.any(plain(x).a != 0, axis=_axis(axis), keepdims=keepdims))


@reads
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.all(plain(x).a != 0, axis=_axis(axis), keepdims=keepdims))


@reads
def argmax(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.argmax(plain(x).a, axis=axis, keepdims=keepdims).astype(np.int64))


@reads
def argmin(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.argmin(plain(x).a, axis=axis, keepdims=keepdims).astype(np.int64))


@reads
def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    return Plain(np.sum(plain(x).a != 0, axis=_axis(axis), keepdims=keepdims, dtype=np.int64))


@reads
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        total = np.sum(array, axis=_axis(axis), keepdims=keepdims)
        count = array.size // total.size if total.size else 1
        return Plain((total / np.float64(count)).astype(dtype))


@reads
def var(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        centre = np.sum(array, axis=_axis(axis), keepdims=True)
        count = np.float64(array.size // centre.size if centre.size else 1)
        distances = array - centre / count
        total = np.sum(squared(distances), axis=_axis(axis), keepdims=keepdims)
        return Plain((total / np.maximum(count - correction, 0.0)).astype(part_of(dtype)))


@reads
def std(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        return Plain(np.sqrt(var(Plain(array), axis, correction, keepdims).a).astype(part_of(dtype)))


# ---- products -----------------------------------------------------------------------------------


def _product(function: Any, a: Any, b: Any) -> Plain:
    (x, y), weak = together(a, b)
    if x.dtype.kind in "fc":
        return Plain(np.asarray(function(widest_of(x), widest_of(y))).astype(x.dtype))
    return Plain(np.asarray(function(x, y)).astype(x.dtype), weak)


@reads
def matmul(a: Any, b: Any, *, dtype: Any = None) -> Plain:
    astype = FUNCTIONS["astype"]
    return _product(np.matmul, *((a, b) if dtype is None else (astype(a, dtype), astype(b, dtype))))


@reads
def dot(a: Any, b: Any) -> Plain:
    return _product(np.dot, a, b)


@reads
def outer(a: Any, b: Any) -> Plain:
    return _product(np.multiply.outer, a, b)


@reads
def vecdot(a: Any, b: Any, axis: int = -1) -> Plain:
    return _product(lambda x, y: np.sum(np.conj(x) * y, axis=axis, dtype=x.dtype), a, b)


@reads
def tensordot(a: Any, b: Any, axes: Any = 2) -> Plain:
    return _product(lambda x, y: np.tensordot(x, y, axes), a, b)


# ---- softmax and norms --------------------------------------------------------------------------


def _log_sum(array: Any, axis: Any) -> Any:
    with np.errstate(all="ignore"):
        top = np.max(array, axis=axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        return top + np.log(np.sum(np.exp(array - top), axis=axis, keepdims=True))


@reads
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    total = _log_sum(array, _axis(axis))
    return Plain((total if keepdims else np.squeeze(total, _axis(axis))).astype(dtype))


@reads
def log_softmax(x: Any, axis: int = -1) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        return Plain((array - _log_sum(array, axis)).astype(dtype))


@reads
def softmax(x: Any, axis: int = -1) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        return Plain(np.exp(array - _log_sum(array, axis)).astype(dtype))


@reads
def norm(x: Any, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Plain:
    array, dtype = wide(x)
    axis, size = _axis(axis), np.abs(array)
    with np.errstate(all="ignore"):
        if ord == 0:
            result = np.sum(array != 0, axis=axis, keepdims=keepdims)
        elif math.isinf(ord):
            result = (np.max if ord > 0 else np.min)(size, axis=axis, keepdims=keepdims)
        else:
            result = np.sum(size ** float(ord), axis=axis, keepdims=keepdims) ** (1.0 / ord)
        return Plain(np.asarray(result).astype(part_of(dtype)))


@reads
def normalize(x: Any, axis: int = -1, eps: float = 1e-12) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        size = np.sqrt(np.sum(squared(array), axis=axis, keepdims=True))
        return Plain((array / np.maximum(size, eps)).astype(dtype))


def _standard(array: Any, axes: tuple[int, ...], eps: float) -> Any:
    with np.errstate(all="ignore"):
        count = math.prod(array.shape[axis] for axis in axes)
        centred = array - np.sum(array, axis=axes, keepdims=True) / np.float64(count)
        return centred / np.sqrt(np.sum(centred * centred, axis=axes, keepdims=True) / np.float64(count) + eps)


def _f64(x: Any) -> Any:
    return widest_of(plain(x).a)


@reads
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
    generator: Any = None,
) -> Plain:
    (q, dtype), (k, _), (v, _) = wide(query), wide(key), wide(value)
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(np.float64(q.shape[-1])) if scale is None else scale)
        if attn_mask is not None:
            mask = plain(attn_mask).a
            scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask
        if is_causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        shares = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
        total = np.sum(shares, axis=-1, keepdims=True)
        if dropout_p == 1:
            shares = shares * 0.0
        return Plain((shares / np.where(total == 0, 1.0, total) @ v).astype(dtype))


@reads
def rotary(x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> Plain:
    array, dtype = wide(x)
    half = array.shape[-1] // 2
    at = np.arange(array.shape[-2]) if positions is None else plain(positions).a
    turn = np.exp(1j * at[:, None] * float(base) ** (-np.arange(half) / (half or 1)))
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :half], np.s_[..., half:])
    result = np.empty_like(array)
    result[first] = array[first] * turn.real - array[second] * turn.imag
    result[second] = array[first] * turn.imag + array[second] * turn.real
    return Plain(result.astype(dtype))


@reads
def alibi(heads: int, queries: int, keys: int, dtype: Any = np.float32) -> Plain:
    def slopes(count: int) -> list[float]:
        if count & (count - 1) == 0:
            return [2 ** (-8 * (n + 1) / count) for n in range(count)]
        lower = 1 << (count.bit_length() - 1)
        return slopes(lower) + slopes(2 * lower)[0::2][: count - lower]

    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys))
    return Plain((-np.array(slopes(heads))[:, None, None] * distance).astype(dtype))


def _last(array: Any, shape: Any) -> tuple[int, ...]:
    count = 1 if shape is None or isinstance(shape, int) else len(shape)
    return tuple(range(array.ndim - count, array.ndim))


@reads
def layer_norm(x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    result = _standard(array, _last(array, normalized_shape), eps)
    result = result if weight is None else result * _f64(weight)
    return Plain((result if bias is None else result + _f64(bias)).astype(dtype))


@reads
def rms_norm(x: Any, normalized_shape: Any = None, weight: Any = None, eps: Any = None) -> Plain:
    array, dtype = wide(x)
    axes = _last(array, normalized_shape)
    small = np.finfo(dtype).eps if eps is None else eps
    with np.errstate(all="ignore"):
        count = math.prod(array.shape[axis] for axis in axes)
        result = array / np.sqrt(np.sum(array * array, axis=axes, keepdims=True) / np.float64(count) + small)
    return Plain((result if weight is None else result * _f64(weight)).astype(dtype))


def _channel(x: Any, ndim: int) -> Any:
    return _f64(x).reshape((1, -1, *(1,) * (ndim - 2)))


def _affine(result: Any, weight: Any, bias: Any) -> Any:
    result = result if weight is None else result * _channel(weight, result.ndim)
    return result if bias is None else result + _channel(bias, result.ndim)


@reads
def batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        result = (array - _channel(mean, array.ndim)) / np.sqrt(_channel(var, array.ndim) + eps)
    return Plain(_affine(result, weight, bias).astype(dtype))


@reads
def batch_norm_training(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, correction: float = 0.0
) -> tuple[Plain, Plain, Plain]:
    array, dtype = wide(x)
    axes = (0, *range(2, array.ndim))
    with np.errstate(all="ignore"):
        count = np.float64(math.prod(array.shape[axis] for axis in axes))
        centre = np.sum(array, axis=axes) / count
        spread = np.sum((array - _channel(Plain(centre), array.ndim)) ** 2, axis=axes)
        result = (array - _channel(Plain(centre), array.ndim)) / np.sqrt(
            _channel(Plain(spread / count), array.ndim) + eps
        )
        return (
            Plain(_affine(result, weight, bias).astype(dtype)),
            Plain(centre.astype(dtype)),
            Plain((spread / np.maximum(count - correction, 0.0)).astype(dtype)),
        )


@reads
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    size = array.shape[1] // num_groups * math.prod(array.shape[2:])
    groups = _standard(array.reshape(array.shape[0], num_groups, size), (2,), eps)
    return Plain(_affine(groups.reshape(array.shape), weight, bias).astype(dtype))


@reads
def instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    return Plain(_affine(_standard(array, tuple(range(2, array.ndim)), eps), weight, bias).astype(dtype))


__all__ = ["dtype_of"]
