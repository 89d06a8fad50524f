"""Rows of pooling. The readings loop over windows, in f64, rounded once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import HALVES, Draw
from tests.fuzz.plain.core import Plain, plain, wide
from tests.rows.convolutions import _many
from tests.rows.draws import image, large_image
from tests.rows.random import uniform
from tests.rows.table import Call, row


def _pool(rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        size = 1 if d.kind == "one" else d.pick(2, 3) if rank == 1 else d.pick(2, {2: "(2, 3)", 3: "(2, 1, 3)"}[rank])
        rest = d.keyword("stride", 1, 2)
        if size not in (1, "(2, 1, 3)"):
            rest += d.keyword("padding", 0, 1)
        rest += d.keyword("ceil_mode", True, False)
        values = "any"
        if d.name.startswith("avg"):
            rest, values = rest + d.keyword("count_include_pad", True, False), "small"
            rest += d.keyword("divisor_override", 1, 3, -2, percent=30)
            return f"st.{d.name}({d.new(shape, values=values)}, {size}{rest})"
        rest += d.keyword("dilation", 1, 2, percent=30)
        if d.likely(30):
            d.keywords.add("return_indices")
            ending = "[0]" if d.smooth else d.pick("[0]", "[1]")
            return f"st.{d.name}({d.new(shape, values='small')}, {size}{rest}, return_indices=True){ending}"
        return f"st.{d.name}({d.new(shape, values=values)}, {size}{rest})"

    return text


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


def _maxima_of(rank: int) -> Callable[..., Any]:
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

    return reading


def _lp(rank: int) -> Call:
    def text(d: Draw) -> str:
        size = 1 if d.kind == "one" else 2
        d.keywords.add("norm_type")
        rest = d.keyword("stride", 1, 2) + d.keyword("ceil_mode", True, False)
        return f"st.{d.name}({d.new(image(d, 1, rank), values='positive')}, {d.pick(1, 2, 3.0)}, {size}{rest})"

    return text


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


def _lp_norms(rank: int) -> Callable[..., Any]:
    def reading(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Plain:
        data, dtype = wide(x)
        means = _means(data**norm_type, rank, kernel_size, stride, 0, ceil_mode, True)
        return Plain(((means * math.prod(_many(kernel_size, rank))) ** (1.0 / norm_type)).astype(dtype))

    return reading


def _adaptive(rank: int) -> Call:
    def text(d: Draw) -> str:
        size = d.pick(1, {1: 2, 2: "(2, 3)", 3: "(2, 1, 3)"}[rank], {1: 3, 2: "(None, 2)", 3: "(2, None, 1)"}[rank])
        rest = "" if "max" not in d.name else d.pick("", ", return_indices=True")
        d.keywords |= {"return_indices"} if "max" in d.name else set()
        ending = "" if not rest else "[0]" if d.smooth else d.pick("[0]", "[1]")
        return f"st.{d.name}({d.new(image(d, 1, rank), values='small')}, {size}{rest}){ending}"

    return text


def _adapted(rank: int, largest: bool) -> Callable[..., Any]:
    def reading(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        data, dtype = (plain(x).a, None) if largest else wide(x)
        size = data.shape[data.ndim - rank :]
        wanted = [own if one is None else one for one, own in zip(_many(output_size, rank), size, strict=True)]
        axes = [
            [(i, slice(i * n // o, -(-(i + 1) * n // o))) for i in range(o)] for n, o in zip(size, wanted, strict=True)
        ]
        pairs = [(tuple(i for i, _ in each), tuple(part for _, part in each)) for each in itertools.product(*axes)]
        if largest:
            values, places = _maxima(data, rank, pairs)
            return (Plain(values), Plain(places)) if return_indices else Plain(values)
        result = np.zeros((*data.shape[: data.ndim - rank], *wanted), data.dtype)
        for index, part in pairs:
            result[(..., *index)] = np.mean(data[(..., *part)], axis=tuple(range(data.ndim - rank, data.ndim)))
        return Plain(result.astype(dtype))

    return reading


def _unpool(rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        x = d.new((*shape[:2], *(min(extent, 3) for extent in shape[2:])), values="small")
        sizes = d.arrays[x].shape[2:]
        d.keywords |= {"stride", "padding", "output_size"}
        count = 1
        for size in sizes:
            count *= size
        lead = d.arrays[x].size // count if d.arrays[x].size else 0
        places = d.new(d.arrays[x].shape, "i64", "below 2")
        if lead:
            d.arrays[places] = d.numbers.permuted(
                (d.numbers.permutation(count * 2**rank)[:count])[None].repeat(lead, 0), axis=1
            ).reshape(d.arrays[x].shape)
        given = d.pick("", ", stride=2", f", output_size={tuple(2 * size for size in sizes)}", ", 2, 0")
        return f"st.{d.name}({x}, {places}, 2{given})"

    return text


def _unpooled(rank: int) -> Callable[..., Any]:
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
        for line in range(len(result)):
            for value, place in zip(rows[line], flat[line], strict=True):
                result[line, place] = value
        return Plain(result.reshape(*lead, *wanted))

    return reading


def _fractional(rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        x = d.new(shape, values="small")
        size = "1, " + ("output_size=1" if d.likely(50) else "output_ratio=1.0")
        if d.kind != "one":
            size = "2, " + d.pick("output_size=2", "output_ratio=0.7")
        d.keywords |= {"output_size", "output_ratio", "return_indices", "_random_samples"}
        samples = d.new((*shape[:2], rank), d.dtype if d.dtype in HALVES else "f64", values="prob")
        text = f"st.{d.name}({x}, {size}, _random_samples=st.stop_gradient({samples}), return_indices=True)"
        return text + ("[0]" if d.smooth else d.pick("[0]", "[1]"))

    return text


def _fractions(rank: int) -> Callable[..., Any]:
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

    return reading


for _rank in (1, 2, 3):
    _torchs = f"nn.functional.max_pool{_rank}d"
    row(f"max_pool{_rank}d", _pool(_rank), _maxima_of(_rank), torch=_torchs)
    row(f"lp_pool{_rank}d", _lp(_rank), _lp_norms(_rank))
    row(f"adaptive_max_pool{_rank}d", _adaptive(_rank), _adapted(_rank, True))
    row(f"adaptive_avg_pool{_rank}d", _adaptive(_rank), _adapted(_rank, False))
    row(f"max_unpool{_rank}d", _unpool(_rank), _unpooled(_rank))
for _rank in (2, 3):
    row(
        f"fractional_max_pool{_rank}d",
        _fractional(_rank),
        _fractions(_rank),
    )


def _pooled(rank: int) -> Call:
    def text(d: Draw) -> str:
        image = large_image(d, 1, rank)
        size = 1 if d.kind == "one" else d.pick(2, 3) if rank == 1 else d.pick(2, 3, "(2, 3)", "(3, 2)")
        rest = d.keyword("stride", 1, 2, 3)
        if size != 1:
            rest += d.keyword("padding", 0, 1)
        rest += d.keyword("ceil_mode", True, False)
        if d.name.startswith("avg"):
            rest += d.keyword("count_include_pad", True, False)
        if d.name == "avg_pool2d":
            rest += d.keyword("divisor_override", 1, 3, -2, percent=30)
        return f"st.{d.name}({d.new(image, values='small' if d.name.startswith('avg') else 'any')}, {size}{rest})"

    return text


def _averages(rank: int) -> Callable[..., Any]:
    def reading(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Plain:
        data, dtype = wide(x)
        with np.errstate(all="ignore"):
            found = _means(data, rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return Plain(found.astype(dtype))

    return reading


row("avg_pool1d", _pooled(1), _averages(1), torch="nn.functional.avg_pool1d")
row("avg_pool2d", _pooled(2), _averages(2), torch="nn.functional.avg_pool2d")
row("avg_pool3d", _pool(3), _averages(3))
