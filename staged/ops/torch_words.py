"""torch's names for arrays' methods that have NumPy's names here.

`METHOD_WORDS` has the methods of a torch tensor that NumPy's arrays lack and that take a few lines on our functions.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from staged.errors import ArgumentError, DTypeError, ShapeError
from staged.ir.sizes import Extent, exact_quotient, surely
from staged.ir.types import (
    DType,
    Shape,
    TensorType,
    bf16,
    bool_,
    dtype_of,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    shape_text,
    u8,
)
from staged.ops.array import METHOD_NAMES, METHODS, WORDS, Array
from staged.ops.assumptions import decide
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import astype, where
from staged.ops.comparisons import clip
from staged.ops.dimension import NumberOfElements, as_extent
from staged.ops.elementwise import multiply
from staged.ops.joining import repeat, split, unstack
from staged.ops.reduction import max_, min_
from staged.ops.shape import broadcast_to, reshape, slice_axis, transpose
from staged.ops.source import asarray
from staged.source import here

# ---- the size of an array ---------------------------------------------------------------------------


class Size(int):
    """The number of elements, which is NumPy's `x.size`; called, the shape or an extent,
    which is torch's `x.size(0)`."""

    shape: Shape

    def __new__(cls, count: int, shape: Shape) -> Size:
        made = super().__new__(cls, count)
        made.shape = shape
        return made

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its extent along one axis."""
        return _extent(self.shape, dim)

    def __reduce__(self) -> Any:
        return Size, (int(self), self.shape)


class StagedSize(NumberOfElements):
    """The number of elements of an array with a symbolic dimension: a number of the program. Called like `Size`."""

    __slots__ = ()

    def __init__(self, shape: Shape) -> None:
        self.shape_of = shape

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        return TensorType(i64, (), weak=True)

    def __staged_read__(self) -> Any:
        total: Any = 1
        for extent in self.shape_of:
            total = multiply(extent, total)
        return total

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its extent along one axis."""
        return _extent(self.shape_of, dim)


def _extent(shape: Shape, dim: int | None) -> Any:
    if dim is None:
        return shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise ShapeError(f"size: axis {dim} does not exist in an array of shape {shape_text(shape)}", where=here())
    return shape[dim]


def size_of(type: TensorType) -> Any:
    """The value of `.size`."""
    return Size(type.size, type.shape) if type.is_static else StagedSize(type.shape)


# ---- methods ----------------------------------------------------------------------------------------


def _view(x: Array, *shape: Any) -> Array:
    if len(shape) == 1 and dtype_of(shape[0]) is not None and not isinstance(shape[0], tuple | list | int):
        raise DTypeError(
            "the bits of an array cannot be viewed as another dtype", where=here(), hint="`x.astype(dtype)`"
        )
    return reshape(x, *shape)


def _masked_fill(x: Array, mask: Any, value: Any) -> Array:
    chosen = asarray(mask)
    if not chosen.dtype.is_bool:
        raise DTypeError(
            f"masked_fill takes a mask of bools, got {chosen.type}",
            where=here(),
            hint="compare it: `mask == 0`, `mask != 0`",
        )
    fill = asarray(value)
    if fill.ndim:
        raise ShapeError(
            f"masked_fill fills with one number, got {fill.type}", where=here(), hint="`st.where(mask, values, x)`"
        )
    if fill.dtype.is_float and not x.dtype.is_float:
        raise DTypeError(
            f"masked_fill cannot put a {fill.dtype} into {x.type}", where=here(), hint="cast x: `x.float()`"
        )
    if not isinstance(value, bool | int | float) and not (isinstance(value, Array) and value.type.weak):
        value = astype(fill, x.dtype)
    result: Array = where(chosen, value, x)
    if result.shape != x.shape:
        raise ShapeError(f"masked_fill: a mask {shape_text(chosen.shape)} does not fit {x.type}", where=here())
    return result if result.dtype == x.dtype else astype(result, x.dtype)


def _split(x: Array, split_size_or_sections: Any, dim: int = 0) -> list[Array]:
    extent, size = _extent(x.shape, dim), as_extent(split_size_or_sections)
    cuts: list[Extent]
    if size is not None:
        check_sizes(size >= 1, f"split: parts have at least one element, got {size}")
        parts = -(-extent // size) if isinstance(size, int) else exact_quotient(extent, size)
        if not isinstance(parts, int):
            raise _unknown_parts(f"split({size})", x, dim)
        cuts = [size * number for number in range(1, parts)]
    else:
        sizes = [known_extent("split", "split_size_or_sections", size) for size in split_size_or_sections]
        message = f"split: parts of {sizes} elements do not make up {extent}, axis {dim} of {x.type}"
        cuts = list(itertools.accumulate(sizes, operator.add))
        whole = cuts.pop() if cuts else 0
        for fits in (whole >= extent, whole <= extent, *(size >= 0 for size in sizes)):
            check_sizes(fits, message)
    made: Any = split(x, cuts, axis=dim)
    return list(made)


def _chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    extent = _extent(x.shape, dim)
    if not isinstance(chunks, int | np.integer) or chunks < 1:
        raise ShapeError(f"chunk makes at least one part, got {chunks}", where=here())
    width = -(-extent // int(chunks))
    if not isinstance(extent, int):
        are_all = width * (int(chunks) - 1) < extent if chunks > 1 else True
        decide(are_all)
        if not surely(lambda: are_all):
            raise _unknown_parts(f"chunk({chunks})", x, dim)
        cuts = [width * number for number in range(1, int(chunks))]
        return list(split(x, cuts, axis=dim))
    return _split(x, width or [0] * int(chunks), dim)


def _unknown_parts(name: str, x: Array, dim: int) -> ShapeError:
    return ShapeError(
        f"{name}: the number of parts of axis {dim} of {x.type} depends on its size, {_extent(x.shape, dim)}",
        where=here(),
        hint=f"give the number of parts: `st.tensor_split(x, parts, axis={dim})`",
    )


def _to(x: Array, target: Any = None, *, dtype: Any = None) -> Array:
    target = dtype if target is None else target
    dtype = target.dtype if isinstance(target, Array) else dtype_of(target)
    if dtype is None:
        raise ArgumentError(
            f"an array goes to a dtype here, got {target!r}",
            where=here(),
            hint="where code runs is said by `with st.with_backend(st.GPU, x):`",
        )
    return _cast(x, dtype)


def _cast(x: Array, dtype: DType) -> Array:
    return astype(x, dtype)


def _t(x: Array) -> Array:
    if x.ndim > 2:
        raise ShapeError(
            f"t() takes a matrix, got {x.type}",
            where=here(),
            hint="`x.transpose(1, 2)` swaps two axes, `x.mT` the last",
        )
    return transpose(x)


def _expand(x: Array, *sizes: Any) -> Array:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    shape = [known_extent("expand", "size", extent) for extent in given]
    first = len(shape) - x.ndim
    for position, extent in enumerate(shape):
        if extent == -1:
            if position < first:
                raise ShapeError(f"expand: a new axis has no extent to keep, got {tuple(shape)}", where=here())
            shape[position] = x.shape[position - first]
    return broadcast_to(x, tuple(shape))


def _narrow(x: Array, dim: int, start: int | Array, length: int) -> Array:
    axis, extent, place = dim % max(x.ndim, 1), _extent(x.shape, dim), as_extent(start)
    if place is None:  # its place is checked when the program runs
        at: Any = where(start < 0, start + extent, start)
        return x[(slice(None),) * axis + (slice(at, at + length),)]
    first, size = place + extent if surely(lambda: place < 0) else place, known_extent("narrow", "length", length)
    for fits in (first >= 0, size >= 0, first + size <= extent):
        check_sizes(fits, f"narrow: {size} elements from {first} do not lie in axis {dim} of {x.type}")
    return slice_axis(x, axis, first, first + size)


def _select(x: Array, dim: int, index: Any) -> Array:
    _extent(x.shape, dim)
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _value(x: Array) -> Array:
    """The array itself, since arrays are immutable and need no copy; for a Variable its present value."""
    reader = getattr(x, "__staged_read__", None)
    return x if reader is None else reader()


def _amount(x: Array) -> Any:
    """The number of elements as a Python int, or a number of the program."""
    return int(x.size) if isinstance(x.size, Size) else x.size.__staged_read__()


METHOD_WORDS: dict[str, Callable[..., Any]] = {
    # shapes
    "view": _view,
    "view_as": lambda x, other: reshape(x, other.shape),
    "reshape_as": lambda x, other: reshape(x, other.shape),
    "expand": _expand,
    "expand_as": lambda x, other: broadcast_to(x, other.shape),
    "t": _t,
    "split": _split,
    "chunk": _chunk,
    "unbind": lambda x, dim=0: unstack(x, axis=dim),
    "narrow": _narrow,
    "select": _select,
    "repeat_interleave": lambda x, repeats, dim=None: repeat(x, repeats, axis=dim),
    "dim": lambda x: x.ndim,
    "ndimension": lambda x: x.ndim,
    "numel": _amount,
    "nelement": _amount,
    # the same array
    "contiguous": _value,
    "resolve_conj": _value,
    "resolve_neg": _value,
    "clone": _value,
    "copy": _value,
    "cpu": _value,
    # dtypes
    "float": lambda x: _cast(x, f32),
    "double": lambda x: _cast(x, f64),
    "half": lambda x: _cast(x, f16),
    "bfloat16": lambda x: _cast(x, bf16),
    "char": lambda x: _cast(x, i8),
    "short": lambda x: _cast(x, i16),
    "int": lambda x: _cast(x, i32),
    "long": lambda x: _cast(x, i64),
    "byte": lambda x: _cast(x, u8),
    "bool": lambda x: _cast(x, bool_),
    "to": _to,
    "type_as": lambda x, other: _cast(x, other.dtype),
    "is_floating_point": lambda x: x.dtype.is_float,
    # arithmetic
    "masked_fill": _masked_fill,
    "where": lambda x, condition, other: where(condition, x, other),
    "clamp_min": lambda x, min: clip(x, min, None),
    "clamp_max": lambda x, max: clip(x, None, max),
    "amax": lambda x, dim=None, keepdim=False: max_(x, dim, keepdim),
    "amin": lambda x, dim=None, keepdim=False: min_(x, dim, keepdim),
}
"""Methods of a torch tensor that are more than another word for one of our functions (see `public.public`)."""

_TWO_MEANINGS = {
    "repeat": "`st.tile(x, counts)` is torch's repeat, `st.repeat(x, count)` NumPy's",
}


def method_named(name: str) -> Callable[..., Any] | None:
    """The function behind a method by torch's name; None where there is none."""
    return METHOD_WORDS.get(name)


def missing(name: str) -> str:
    """The hint for a missing method, if there is one; else empty."""
    if name in _TWO_MEANINGS:
        return f": {_TWO_MEANINGS[name]}"
    plain = name.removesuffix("_")
    if name.endswith("_") and any(plain in known for known in (METHOD_WORDS, METHOD_NAMES, METHODS)):
        return f": arrays are values, write `x = x.{plain}(...)`"
    return ""


WORDS |= {"method": method_named, "methods": METHOD_WORDS.keys, "missing": missing, "size": size_of}
