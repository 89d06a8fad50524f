"""Positions for attention: rotations of queries and keys, and penalties of distance."""

from __future__ import annotations

import math
from typing import Any

from staged.errors import ArgumentError
from staged.ir.types import f32
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.dimension import as_extent
from staged.ops.elementwise import abs_, cos, exp, sin
from staged.ops.joining import concat, stack
from staged.ops.promote import as_array, as_float, cast, check_argument, check_dtype, shape_error, whole
from staged.ops.public import public
from staged.ops.shape import reshape, slice_axis
from staged.ops.source import arange


@public("rotary")
def rotary(x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> Array:
    """Queries or keys with their positions: pair i of features turned by the angle `position * base ** (-2 i / E)`.

    Shapes: x (..., L, E), E even; positions (L,), by default 0 .. L - 1. A pair is features i and i + E / 2, or with
    `interleaved` 2 i and 2 i + 1. A score of two turned vectors depends on the distance of their positions alone.
    Source: Su et al., RoFormer: enhanced transformer with rotary position embedding, 2021.
    """
    array = as_float(x)
    if array.ndim < 2:
        raise shape_error(f"rotary takes (..., L, E), got {array.type}", array)
    rows, width = array.shape[-2], array.shape[-1]
    half, axis = width // 2, array.ndim - 1
    message = f"rotary turns pairs of features, got {array.type}"
    check_sizes(2 * half >= width, message, array, hint="their number is even")
    array, width = slice_axis(array, axis, 0, 2 * half), 2 * half
    at = arange(rows) if positions is None else as_array(positions)
    if at.shape != (rows,):
        raise shape_error(f"rotary needs a position for each of {rows} rows, got {at.type}", array, at)
    span = max(width, 1) if isinstance(width, int) else cast(as_array(width), array.dtype)
    rates = exp(cast(arange(half), array.dtype) * (-2.0 * math.log(base) / span))
    angles = reshape(cast(at, array.dtype), (rows, 1)) * reshape(rates, (1, half))
    c, s = cos(angles), sin(angles)
    if interleaved:
        pairs = reshape(array, (*array.shape[:-1], half, 2))
        a, b = (reshape(slice_axis(pairs, axis + 1, k, k + 1), (*array.shape[:-1], half)) for k in (0, 1))
        return reshape(stack([a * c - b * s, b * c + a * s], axis + 1), array.shape)
    a, b = slice_axis(array, axis, 0, half), slice_axis(array, axis, half, width)
    return concat([a * c - b * s, b * c + a * s], axis)


@public("alibi")
def alibi(heads: int, queries: Any, keys: Any, dtype: Any = f32) -> Array:
    """A mask for attention, (heads, queries, keys): each head subtracts its slope times the distance of a query and a
    key.

    The slopes are 2^(-8 / heads), its square, ..., for a power of two; for other counts those of the next lower power
    of two, and then every other one of the next higher. Source: Press, Smith and Lewis, Train short, test long, 2021.
    """
    heads, queries, keys = whole(heads), as_extent(queries), as_extent(keys)
    message = (
        f"alibi takes numbers of heads, queries and keys known while staging, got {heads!r}, {queries!r}, {keys!r}"
    )
    check_argument(isinstance(heads, int) and queries is not None and keys is not None, message)
    for n in (heads, queries, keys):
        check_sizes(n >= 0, message, error=ArgumentError)
    wanted = check_dtype(dtype)
    lower = 2 ** int(math.log2(max(heads, 1)))
    slopes = [2.0 ** (-8.0 * (n + 1) / lower) for n in range(lower)]
    slopes += [2.0 ** (-4.0 * (n + 1) / lower) for n in range(0, 2 * lower, 2)]
    distance = cast(abs_(reshape(arange(queries), (queries, 1)) - reshape(arange(keys), (1, keys))), wanted)
    slope = (
        reshape(as_array(slopes[:heads], wanted), (heads, 1, 1))
        if heads
        else reshape(arange(0, dtype=wanted), (0, 1, 1))
    )
    return -distance * slope
