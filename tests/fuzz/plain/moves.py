"""Readings of functions that move elements, make arrays and index them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, Precision, adopted, bare, common, plain, reads, strong, together
from tests.fuzz.plain.elementwise import dtype_of


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(int(bare(extent)) for extent in shape) if isinstance(shape, tuple | list) else (int(bare(shape)),)


def _axes(axes: tuple[Any, ...]) -> Any:
    return axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes


@reads
def broadcast_to(x: Any, shape: Any) -> Plain:
    array = plain(x)
    return Plain(np.broadcast_to(strong(array).a if array.shape != _sizes(shape) else array.a, _sizes(shape)).copy())


@reads
def broadcast_arrays(*arrays: Any) -> list[Plain]:
    return [Plain(x.copy()) for x in np.broadcast_arrays(*(strong(plain(x)).a for x in arrays))]


@reads
def reshape(x: Any, shape: Any = (), *extents: Any) -> Plain:
    return Plain(plain(x).a.reshape(_sizes(_axes((shape, *extents)))))


@reads
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Plain:
    array = plain(x).a
    if not array.ndim:
        return Plain(array.reshape(1))
    first, last = start_dim % array.ndim, end_dim % array.ndim
    joined = int(np.prod(array.shape[first : last + 1]))
    return Plain(array.reshape((*array.shape[:first], joined, *array.shape[last + 1 :])))


@reads
def squeeze(x: Any, axis: Any = None) -> Plain:
    return Plain(np.squeeze(plain(x).a, axis=tuple(axis) if isinstance(axis, list) else axis))


@reads
def expand_dims(x: Any, axis: int = 0) -> Plain:
    return Plain(np.expand_dims(plain(x).a, axis))


@reads
def unsqueeze(x: Any, dim: int) -> Plain:
    return Plain(np.expand_dims(plain(x).a, dim))


@reads
def permute_dims(x: Any, *axes: Any) -> Plain:
    return Plain(np.transpose(plain(x).a, _axes(axes)).copy())


FUNCTIONS["permute"] = permute_dims


@reads
def transpose(x: Any, *axes: Any) -> Plain:
    if len(axes) == 2:
        return swapaxes(x, *axes)  # torch's: two axes change places
    return Plain(np.transpose(plain(x).a, _axes(axes) if axes else None).copy())


@reads
def matrix_transpose(x: Any) -> Plain:
    return Plain(np.swapaxes(plain(x).a, -1, -2).copy())


@reads
def swapaxes(x: Any, axis1: int, axis2: int) -> Plain:
    return Plain(np.swapaxes(plain(x).a, axis1, axis2).copy())


@reads
def moveaxis(x: Any, source: Any, destination: Any) -> Plain:
    return Plain(np.moveaxis(plain(x).a, source, destination).copy())


@reads
def flip(x: Any, axis: Any = None) -> Plain:
    return Plain(np.flip(plain(x).a, axis).copy())


@reads
def roll(x: Any, shift: Any, axis: Any = None) -> Plain:
    return Plain(np.roll(plain(x).a, int(bare(shift)), axis))


@reads
def pad(x: Any, pad_width: Any, value: Any = 0) -> Plain:
    array = plain(x).a
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)) if array.ndim else []
    result = np.full(
        [n + int(a) + int(b) for n, (a, b) in zip(array.shape, widths, strict=True)], bare(value), array.dtype
    )
    result[tuple(slice(int(a), int(a) + n) for n, (a, _) in zip(array.shape, widths, strict=True))] = array
    return Plain(result)


def _joined(arrays: Any) -> list[Any]:
    several = [plain(x) for x in arrays]
    dtype, weak = common(*several)
    if weak and dtype == np.float64:
        dtype = Precision.single
    return [x.a.astype(dtype) for x in several]


@reads
def concat(arrays: Any, axis: Any = 0) -> Plain:
    return Plain(np.concatenate(_joined(arrays), axis))


@reads
def stack(arrays: Any, axis: int = 0) -> Plain:
    return Plain(np.stack(_joined(arrays), axis))


@reads
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Plain]:
    return [Plain(part.copy()) for part in np.split(plain(x).a, bare(indices_or_sections), axis)]


@reads
def unstack(x: Any, axis: int = 0) -> tuple[Plain, ...]:
    return tuple(Plain(part.copy()) for part in np.moveaxis(plain(x).a, axis, 0))


@reads
def tile(x: Any, repetitions: Any) -> Plain:
    return Plain(np.tile(plain(x).a, repetitions))


@reads
def repeat(x: Any, repeats: int, axis: Any = None) -> Plain:
    return Plain(np.repeat(plain(x).a, repeats, axis))


# ---- making arrays ------------------------------------------------------------------------------


@reads
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Plain:
    value = strong(plain(fill_value)) if dtype is None else plain(fill_value)
    return Plain(np.full(_sizes(shape), value.a, dtype_of(dtype) if dtype is not None else value.dtype))


@reads
def zeros(shape: Any, dtype: Any = np.float32) -> Plain:
    return Plain(np.zeros(_sizes(shape), dtype_of(dtype)))


FUNCTIONS["empty"] = zeros


@reads
def ones(shape: Any, dtype: Any = np.float32) -> Plain:
    return Plain(np.ones(_sizes(shape), dtype_of(dtype)))


@reads
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Plain:
    like = plain(x)
    return Plain(np.full(like.shape, bare(fill_value), like.dtype if dtype is None else dtype_of(dtype)))


@reads
def zeros_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 0, dtype)


@reads
def empty_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 0, dtype)


@reads
def ones_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 1, dtype)


@reads
def asarray(x: Any, dtype: Any = None) -> Plain:
    if dtype is not None and isinstance(x, list | tuple) and not any(isinstance(item, Plain) for item in x):
        return Plain(np.asarray(bare(x), dtype_of(dtype)))
    return Plain(strong(plain(x)).a if dtype is None else plain(x).a.astype(dtype_of(dtype)))


@reads
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Plain:
    first, last = (0, start) if stop is None else (start, stop)
    wanted = dtype_of(dtype) if dtype is not None else None
    if wanted is None:
        wanted = np.dtype(np.int64) if all(isinstance(x, int) for x in (first, last, step)) else Precision.single
    return Plain(np.arange(first, last, step).astype(wanted))


@reads
def linspace(start: float, stop: float, num: int, dtype: Any = np.float32, endpoint: bool = True) -> Plain:
    return Plain(np.linspace(start, stop, num, endpoint=endpoint).astype(dtype_of(dtype)))


@reads
def eye(n_rows: int, n_cols: Any = None, k: int = 0, dtype: Any = np.float32) -> Plain:
    return Plain(np.eye(n_rows, n_cols, k, dtype_of(dtype)))


@reads
def one_hot(indices: Any, num_classes: int, dtype: Any = np.float32) -> Plain:
    return Plain((plain(indices).a[..., None] == np.arange(num_classes)).astype(dtype_of(dtype)))


@reads
def tril(x: Any, k: int = 0) -> Plain:
    return Plain(np.tril(plain(x).a, k))


@reads
def triu(x: Any, k: int = 0) -> Plain:
    return Plain(np.triu(plain(x).a, k))


@reads
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> list[Plain]:
    grids = np.meshgrid(*(plain(x).a for x in arrays), indexing=indexing, sparse=sparse)
    return [Plain(x.copy()) for x in grids]


# ---- indexing -----------------------------------------------------------------------------------


@reads
def take(x: Any, indices: Any, axis: Any = None) -> Plain:
    return Plain(np.take(plain(x).a, plain(indices).a.astype(np.int64), axis))


@reads
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Plain:
    array, at = plain(x).a, plain(indices).a.astype(np.int64)
    extents = list(
        np.broadcast_shapes(
            *(
                tuple(1 if n == axis % array.ndim else e for n, e in enumerate(shape))
                for shape in (array.shape, at.shape)
            )
        )
    )
    extents[axis % array.ndim] = array.shape[axis]
    wanted = list(extents)
    wanted[axis % array.ndim] = at.shape[axis]
    return Plain(np.take_along_axis(np.broadcast_to(array, extents), np.broadcast_to(at, wanted), axis))


@reads
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Plain:
    array = plain(x)
    result = np.moveaxis(array.a, axis, 0).copy()
    at = plain(indices).a.astype(np.int64)
    values = plain(updates).a.astype(array.dtype)
    if values.ndim:
        # The axes of the indices stand where the axis stood.
        values = np.moveaxis(values, range(axis % array.ndim, axis % array.ndim + at.ndim), range(at.ndim))
    np.add.at(result, at, values)
    return Plain(np.moveaxis(result, 0, axis).copy())


@reads
def dynamic_slice(x: Any, start: Any, size: Any, axis: int = 0) -> Plain:
    first = int(bare(start))
    array = np.moveaxis(plain(x).a, axis, 0)
    first = first + len(array) if first < 0 else first
    return Plain(np.moveaxis(array[first : first + int(bare(size))], 0, axis).copy())


@reads
def dynamic_update_slice(x: Any, update: Any, start: Any, axis: int = 0) -> Plain:
    first, array = int(bare(start)), plain(x)
    result = np.moveaxis(array.a, axis, 0).copy()
    first = first + len(result) if first < 0 else first
    part = np.moveaxis(plain(update).a, axis, 0)
    result[first : first + len(part)] = part.astype(array.dtype)
    return Plain(np.moveaxis(result, 0, axis).copy())


@reads
def set_item(x: Any, key: Any, value: Any) -> Plain:
    array = plain(x)
    result = array.a.copy()
    result[bare(key)] = adopted(plain(value), array.dtype)
    return Plain(result)


@reads
def add_item(x: Any, key: Any, value: Any) -> Plain:
    array = plain(x)
    result = array.a.copy()
    np.add.at(result, bare(key), adopted(plain(value), array.dtype))
    return Plain(result)


__all__ = ["together"]
