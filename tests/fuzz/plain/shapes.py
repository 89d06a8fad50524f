"""Readings of functions that pad, fold, pool, convolve and resize in one, two and three dimensions, window by window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fuzz.plain.chance import bernoulli, uniform
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain, reads
from tests.fuzz.plain.network import _f64
from tests.fuzz.plain.sums import wide

_FILLED = FUNCTIONS["pad"]
_NUMPYS = {"replicate": "edge", "circular": "wrap"}


@reads
def pad(x: Any, pad_width: Any = None, mode: str = "constant", value: Any = 0, pad: Any = None) -> Plain:
    array = plain(x)
    if pad is not None:
        pairs = [(pad[2 * place], pad[2 * place + 1]) for place in range(len(pad) // 2)]
        pad_width = [(0, 0)] * (array.ndim - len(pairs)) + pairs[::-1]
        cut = tuple(
            slice(max(-low, 0), extent - max(-high, 0))
            for (low, high), extent in zip(pad_width, array.shape, strict=True)
        )
        array, pad_width = Plain(array.a[cut]), [(max(low, 0), max(high, 0)) for low, high in pad_width]
    if mode == "constant":
        return _FILLED(array, pad_width, value)
    return Plain(np.pad(array.a, pad_width, mode=_NUMPYS.get(mode, mode)))  # type: ignore[call-overload]


def _many(value: Any, rank: int) -> tuple[Any, ...]:
    if isinstance(value, tuple | list):
        return tuple(value) if len(value) == rank else tuple(value) * rank
    return (value,) * rank


def _taps(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(window, tap, place) of every tap of every window that lies on the array."""
    rank = len(size)
    counts = [(size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(rank)]
    for window in itertools.product(*map(range, counts)):
        for tap in itertools.product(*map(range, kernel)):
            place = tuple(window[a] * stride[a] + tap[a] * dilation[a] - padding[a] for a in range(rank))
            if all(0 <= place[a] < size[a] for a in range(rank)):
                yield window, tap, place


def _counts(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[int]:
    return [
        (size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(len(size))
    ]


@reads
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Plain:
    array = plain(x).a
    how = [_many(each, 2) for each in (kernel_size, dilation, padding, stride)]
    counts = _counts(array.shape[-2:], *how)
    result = np.zeros((*array.shape[:-2], *how[0], *counts), array.dtype)
    for window, tap, place in _taps(array.shape[-2:], *how):
        result[(..., *tap, *window)] = array[(..., *place)]
    return Plain(result.reshape(*array.shape[:-3], array.shape[-3] * math.prod(how[0]), math.prod(counts)))


@reads
def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Plain:
    array = plain(x).a
    size, how = _many(output_size, 2), [_many(each, 2) for each in (kernel_size, dilation, padding, stride)]
    counts = _counts(size, *how)
    channels = array.shape[-2] // math.prod(how[0])
    parts = array.reshape(*array.shape[:-2], channels, *how[0], *counts)
    result = np.zeros((*array.shape[:-2], channels, *size), np.int64 if array.dtype == bool else array.dtype)
    for window, tap, place in _taps(size, *how):
        result[(..., *place)] += parts[(..., *tap, *window)]
    return Plain(result.astype(array.dtype))


@reads
def pixel_shuffle(x: Any, upscale_factor: int) -> Plain:
    array, r = plain(x).a, upscale_factor
    *lead, c, h, w = array.shape
    result = np.zeros((*lead, c // (r * r), h * r, w * r), array.dtype)
    for i, j in itertools.product(range(r), range(r)):
        result[..., i::r, j::r] = array[..., i * r + j :: r * r, :, :]
    return Plain(result)


@reads
def pixel_unshuffle(x: Any, downscale_factor: int) -> Plain:
    array, r = plain(x).a, downscale_factor
    *lead, c, h, w = array.shape
    result = np.zeros((*lead, c * r * r, h // r, w // r), array.dtype)
    for i, j in itertools.product(range(r), range(r)):
        result[..., i * r + j :: r * r, :, :] = array[..., i::r, j::r]
    return Plain(result)


@reads
def channel_shuffle(x: Any, groups: int) -> Plain:
    array = plain(x).a
    per_group = array.shape[1] // groups
    return Plain(array[:, [g * per_group + i for i in range(per_group) for g in range(groups)]])


@reads
def unflatten(x: Any, dim: int, sizes: Any) -> Plain:
    array = plain(x).a
    axis = dim % array.ndim
    known = math.prod(size for size in sizes if size != -1)
    wanted = [array.shape[axis] // known if size == -1 else size for size in sizes]
    return Plain(array.reshape(*array.shape[:axis], *wanted, *array.shape[axis + 1 :]))


# ---- convolution --------------------------------------------------------------------------------


@reads
def conv3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    array, kernel, dtype = _f64(x), _f64(weight), plain(x).dtype
    apart = _many(dilation, 3)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(apart, kernel.shape[2:], strict=True)]
        array = np.pad(array, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)])
        padding = 0
    how = kernel.shape[2:], apart, _many(padding, 3), _many(stride, 3)
    n, outputs = array.shape[0], kernel.shape[0]
    result = np.zeros((n, outputs, *_counts(array.shape[2:], *how)))
    inputs, per_group = kernel.shape[1], outputs // groups
    for window, tap, place in _taps(array.shape[2:], *how):
        for g in range(groups):
            rows = slice(g * per_group, (g + 1) * per_group)
            seen = array[(slice(None), slice(g * inputs, (g + 1) * inputs), *place)]
            result[(slice(None), rows, *window)] += seen @ kernel[(rows, slice(None), *tap)].T
    if bias is not None:
        result = result + _f64(bias)[:, None, None, None]
    return Plain(result.astype(dtype))


def _transposed(name: str, rank: int) -> None:
    def reading(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Plain:
        array, kernel, dtype = _f64(x), _f64(weight), plain(x).dtype
        step, edge, apart = _many(stride, rank), _many(padding, rank), _many(dilation, rank)
        extra = _many(output_padding, rank)
        size = [
            (array.shape[2 + a] - 1) * step[a] - 2 * edge[a] + apart[a] * (kernel.shape[2 + a] - 1) + extra[a] + 1
            for a in range(rank)
        ]
        outputs, inputs = kernel.shape[1], array.shape[1] // groups
        result = np.zeros((array.shape[0], outputs * groups, *size))
        for window in np.ndindex(*array.shape[2:]):
            for tap in np.ndindex(*kernel.shape[2:]):
                place = tuple(window[a] * step[a] + tap[a] * apart[a] - edge[a] for a in range(rank))
                if not all(0 <= place[a] < size[a] for a in range(rank)):
                    continue
                for g in range(groups):
                    rows = slice(g * inputs, (g + 1) * inputs)
                    result[(slice(None), slice(g * outputs, (g + 1) * outputs), *place)] += (
                        array[(slice(None), rows, *window)] @ kernel[(rows, slice(None), *tap)]
                    )
        if bias is not None:
            result = result + _f64(bias).reshape(-1, *[1] * rank)
        return Plain(result.astype(dtype))

    FUNCTIONS[name] = reading


_transposed("conv_transpose1d", 1)
_transposed("conv_transpose3d", 3)

# ---- pooling ------------------------------------------------------------------------------------


def _maxima(data: Any, rank: int, windows: Any) -> tuple[Any, Any]:
    """The maximum of each of the windows, (index, slices), and its place in the volume."""
    size = data.shape[data.ndim - rank :]
    counts = [1 + max(window[a] for window, _ in windows) for a in range(rank)]
    values = np.zeros((*data.shape[: data.ndim - rank], *counts), data.dtype)
    places = np.zeros(values.shape, np.int64)
    numbers = np.arange(math.prod(size)).reshape(size)
    for window, part in windows:
        flat = data[(..., *part)].reshape(*values.shape[: data.ndim - rank], numbers[part].size)
        best = np.argmax(flat, axis=-1) if flat.size else np.zeros(flat.shape[:-1], np.int64)
        values[(..., *window)] = np.take_along_axis(flat, best[..., None], -1)[..., 0]
        places[(..., *window)] = numbers[part].reshape(-1)[best]
    return values, places


def _windows(
    size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, dilation: Any = (1, 1, 1)
) -> list[Any]:
    axes = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=False):
        reach = d * (k - 1) + 1
        span = n + 2 * p - reach
        count = -(-span // s) + 1 if ceil_mode else span // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        # From the first element that is not in the padding.
        begins = [(i, i * s - p, (i * s - p) % d if i * s < p else i * s - p) for i in range(count)]
        axes.append([(i, slice(first, min(begin + reach, n), d), begin) for i, begin, first in begins])
    return list(itertools.product(*axes))


def _max_pool(name: str, rank: int) -> None:
    def reading(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        data, kernel = plain(x).a, _many(kernel_size, rank)
        step = kernel if stride is None else _many(stride, rank)
        edge, apart = _many(padding, rank), _many(dilation, rank)
        found = _windows(data.shape[data.ndim - rank :], kernel, step, edge, ceil_mode, apart)
        pairs = [(tuple(i for i, _, _ in window), tuple(part for _, part, _ in window)) for window in found]
        values, places = _maxima(data, rank, pairs)
        return (Plain(values), Plain(places)) if return_indices else Plain(values)

    FUNCTIONS[name] = reading


for _rank in (1, 2, 3):
    _max_pool(f"max_pool{_rank}d", _rank)


@reads
def avg_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Plain:
    data, dtype = wide(x)
    found = _means(data, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return Plain(found.astype(dtype))


def _means(
    data: Any,
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    include: bool,
    divisor: Any = None,
) -> Any:
    kernel, edge = _many(kernel, rank), _many(padding, rank)
    step = kernel if stride is None else _many(stride, rank)
    size = data.shape[data.ndim - rank :]
    found = _windows(size, kernel, step, edge, ceil_mode)
    counts = [1 + max(window[a][0] for window in found) for a in range(rank)]
    result = np.zeros((*data.shape[: data.ndim - rank], *counts))
    for window in found:
        part = data[(..., *(part for _, part, _ in window))]
        count = math.prod(
            min(first + kernel[a], size[a] + (edge[a] if include else 0)) - max(first, -edge[a] if include else 0)
            for a, (_, _, first) in enumerate(window)
        )
        count = count if divisor is None else divisor
        axes = tuple(range(data.ndim - rank, data.ndim))
        result[(..., *(i for i, _, _ in window))] = np.sum(part, axis=axes) / count
    return result


def _lp(name: str, rank: int) -> None:
    def reading(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Plain:
        data, dtype = wide(x)
        means = _means(data**norm_type, rank, kernel_size, stride, 0, ceil_mode, True)
        return Plain(((means * math.prod(_many(kernel_size, rank))) ** (1.0 / norm_type)).astype(dtype))

    FUNCTIONS[name] = reading


for _rank in (1, 2, 3):
    _lp(f"lp_pool{_rank}d", _rank)


def _adaptive(name: str, rank: int, largest: bool) -> None:
    def reading(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        data, dtype = (plain(x).a, None) if largest else wide(x)
        size = data.shape[data.ndim - rank :]
        wanted = [own if one is None else one for one, own in zip(_many(output_size, rank), size, strict=True)]
        axes = [[(i, slice(i * n // o, -(-(i + 1) * n // o))) for i in range(o)] for n, o in zip(size, wanted, strict=True)]
        pairs = [(tuple(i for i, _ in each), tuple(part for _, part in each)) for each in itertools.product(*axes)]
        if largest:
            values, places = _maxima(data, rank, pairs)
            return (Plain(values), Plain(places)) if return_indices else Plain(values)
        result = np.zeros((*data.shape[: data.ndim - rank], *wanted), data.dtype)
        for index, part in pairs:
            result[(..., *index)] = np.mean(data[(..., *part)], axis=tuple(range(data.ndim - rank, data.ndim)))
        return Plain(result.astype(dtype))

    FUNCTIONS[name] = reading


for _rank in (1, 2, 3):
    _adaptive(f"adaptive_max_pool{_rank}d", _rank, True)
    _adaptive(f"adaptive_avg_pool{_rank}d", _rank, False)


def _fractional(name: str, rank: int) -> None:
    def reading(
        x: Any,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> Any:
        array = plain(x).a
        data = array if array.ndim == rank + 2 else array[None]
        size, kernel = data.shape[2:], _many(kernel_size, rank)
        if output_size is None:
            wanted = [int(n * r) for n, r in zip(size, _many(output_ratio, rank), strict=True)]
        else:
            wanted = list(_many(output_size, rank))
        if _random_samples is None:
            kind = array.dtype if array.dtype.kind == "f" else np.float32
            drawn = uniform((*data.shape[:2], rank), dtype=kind).a
        else:
            drawn = plain(_random_samples).a
        values = np.zeros((*data.shape[:2], *wanted), data.dtype)
        places = np.zeros(values.shape, np.int64)
        for n, c in np.ndindex(*data.shape[:2]):
            axes = []
            for a in range(rank):
                u, last = drawn[n, c, 1 - a if rank == 2 else a], size[a] - kernel[a]
                step = drawn.dtype.type(last / (wanted[a] - 1)) if wanted[a] > 1 else 0
                starts = [int((drawn.dtype.type(i) + u) * step) - int(u * step) for i in range(wanted[a] - 1)] + [last]
                axes.append([(i, slice(start, start + kernel[a])) for i, start in enumerate(starts)])
            pairs = [(tuple(i for i, _ in each), tuple(part for _, part in each)) for each in itertools.product(*axes)]
            values[n, c], places[n, c] = _maxima(data[n, c], rank, pairs)
        if array.ndim == rank + 1:
            values, places = values[0], places[0]
        return (Plain(values), Plain(places)) if return_indices else Plain(values)

    FUNCTIONS[name] = reading


def _unpool(name: str, rank: int) -> None:
    def reading(
        x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Plain:
        data, places = plain(x).a, plain(indices).a
        size = data.shape[data.ndim - rank :]
        kernel, edge = _many(kernel_size, rank), _many(padding, rank)
        step = kernel if stride is None else _many(stride, rank)
        wanted = (
            [(size[a] - 1) * step[a] + kernel[a] - 2 * edge[a] for a in range(rank)]
            if output_size is None
            else list(output_size)[-rank:]
        )
        lead = data.shape[: data.ndim - rank]
        result = np.zeros((math.prod(lead), math.prod(wanted)), data.dtype)
        rows, flat = data.reshape(len(result), math.prod(size)), places.reshape(len(result), math.prod(size))
        for row in range(len(result)):
            for value, place in zip(rows[row], flat[row], strict=True):
                result[row, place] = value
        return Plain(result.reshape(*lead, *wanted))

    FUNCTIONS[name] = reading


for _rank in (1, 2, 3):
    _unpool(f"max_unpool{_rank}d", _rank)
    if _rank > 1:
        _fractional(f"fractional_max_pool{_rank}d", _rank)

# ---- other sizes and places ---------------------------------------------------------------------


def _cubic(d: float) -> float:
    """Keys' kernel at a distance, with a = -0.75."""
    d, a = abs(d), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _weights(n: int, count: int, scale: Any, mode: str, corners: bool) -> Any:
    """(count, n): the share of each element in each new one."""
    found = np.zeros((count, n))
    for i in range(count):
        step = n / count if scale is None else 1.0 / scale
        if mode.startswith("nearest"):
            shift = np.float32(0.5) if mode == "nearest-exact" else np.float32(0.0)
            found[i, min(int((np.float32(i) + shift) * np.float32(step)), n - 1)] = 1.0
            continue
        if corners:
            place = i * (n - 1) / (count - 1) if count > 1 else 0.0
        else:
            place = (i + 0.5) * step - 0.5
        if mode == "bicubic":
            for at in range(math.floor(place) - 1, math.floor(place) + 3):
                found[i, min(max(at, 0), n - 1)] += _cubic(place - at)
        else:
            place = max(place, 0.0)
            for at in (math.floor(place), math.floor(place) + 1):
                found[i, min(at, n - 1)] += 1.0 - abs(place - at)
    return found


@reads
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
) -> Plain:
    array = plain(x)
    rank = array.ndim - 2
    factors = (None,) * rank if scale_factor is None else _many(scale_factor, rank)
    wanted = (
        _many(size, rank)
        if size is not None
        else [math.floor(n * f) for n, f in zip(array.shape[2:], factors, strict=True)]
    )
    if mode == "area":
        return FUNCTIONS[f"adaptive_avg_pool{rank}d"](x, tuple(wanted))
    if recompute_scale_factor:
        factors = (None,) * rank
    if mode.startswith("nearest"):
        found = array.a
        for axis in range(rank):
            chosen = np.argmax(_weights(found.shape[2 + axis], wanted[axis], factors[axis], mode, False), axis=1)
            found = np.take(found, chosen, 2 + axis)
        return Plain(found)
    data, dtype = wide(x)
    for axis in range(rank):
        share = _weights(data.shape[2 + axis], wanted[axis], factors[axis], mode, bool(align_corners))
        data = np.moveaxis(np.tensordot(share, data, (1, 2 + axis)), 0, 2 + axis)
    return Plain(data.astype(dtype))


@reads
def affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Plain:
    data, dtype = wide(theta)
    rank = len(size) - 2
    lines = []
    for n in size[2:]:
        if align_corners:
            lines.append(np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1))
        else:
            lines.append((2.0 * np.arange(n) + 1.0) / n - 1.0)
    axes = np.meshgrid(*lines, indexing="ij")[::-1]
    places = np.stack([*axes, np.ones(tuple(size[2:]))], axis=-1)
    assert places.shape[-1] == rank + 1
    return Plain(np.einsum("...j,nij->n...i", places, data).astype(dtype))


@reads
def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> Plain:
    data, dtype = wide(x)
    places, _ = wide(grid)
    rank = data.ndim - 2
    size = data.shape[2:]
    result = np.zeros((*data.shape[:2], *places.shape[1:-1]))
    for n, *out in np.ndindex(*places.shape[:-1]):
        at = []
        for axis in range(rank):
            unit, extent = places[(n, *out, rank - 1 - axis)], size[axis]
            place = (unit + 1.0) / 2.0 * (extent - 1) if align_corners else ((unit + 1.0) * extent - 1.0) / 2.0
            if padding_mode == "reflection":
                low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
                if span:
                    around = (place - low) % (2.0 * span)
                    place = low + (around if around < span else 2.0 * span - around)
                else:
                    place = 0.0
            if padding_mode != "zeros":
                place = min(max(place, 0.0), extent - 1.0)
            at.append(place)
        if mode == "nearest":
            corners = [[(int(np.round(place)), 1.0)] for place in at]
        else:
            corners = [[(math.floor(p), 1.0 - (p - math.floor(p))), (math.floor(p) + 1, p - math.floor(p))] for p in at]
        for corner in itertools.product(*corners):
            if all(0 <= place < extent for (place, _), extent in zip(corner, size, strict=True)):
                share = math.prod(part for _, part in corner)
                result[(n, slice(None), *out)] += share * data[(n, slice(None), *(place for place, _ in corner))]
    return Plain(result.astype(dtype))


# ---- channels -----------------------------------------------------------------------------------


@reads
def prelu(x: Any, weight: Any) -> Plain:
    data, dtype = wide(x)
    slope = _f64(weight)
    if slope.ndim:
        slope = slope[0] if len(slope) == 1 else slope.reshape(-1, *[1] * (data.ndim - 2))
    return Plain(np.where(data > 0, data, slope * data).astype(dtype))


@reads
def rrelu(x: Any, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = False) -> Plain:
    data, dtype = wide(x)
    slope = uniform(data.shape, low=lower, high=upper, dtype=dtype).a if training else (lower + upper) / 2.0
    return Plain(np.where(data > 0, data, slope * data).astype(dtype))


@reads
def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Plain:
    data, dtype = wide(x)
    total = np.zeros(data.shape)
    for c in range(data.shape[1]):
        total[:, c] = np.sum(data[:, max(c - size // 2, 0) : c + (size - 1) // 2 + 1] ** 2, axis=1)
    return Plain((data / (k + alpha * total / size) ** beta).astype(dtype))


@reads
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Plain:
    dtype = wide(x1)[1]
    y = np.einsum("...i,oij,...j->...o", _f64(x1), _f64(weight), _f64(x2))
    return Plain((y if bias is None else y + _f64(bias)).astype(dtype))


def _dropping(name: str, rank: int) -> None:
    def reading(x: Any, p: float = 0.5, training: bool = True) -> Plain:
        data, dtype = wide(x)
        if not training or p == 0:
            return Plain(data.astype(dtype))
        lead = 2 if data.ndim == rank + 2 or rank == 2 else 1
        if p == 1:
            return Plain(np.zeros(data.shape, dtype))
        keep = bernoulli(1.0 - p, (*data.shape[:lead], *[1] * (data.ndim - lead))).a
        return Plain((data * keep / (1.0 - p)).astype(dtype))

    FUNCTIONS[name] = reading


for _rank in (1, 2, 3):
    _dropping(f"dropout{_rank}d", _rank)


def _alpha_dropping(name: str, by_channel: bool) -> None:
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

    FUNCTIONS[name] = reading


_alpha_dropping("alpha_dropout", False)
_alpha_dropping("feature_alpha_dropout", True)
