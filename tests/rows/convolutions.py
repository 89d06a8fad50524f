"""Rows of convolutions and folding. The readings loop over windows and elements, in f64, rounded once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import Plain, common, plain
from tests.rows.draws import image, large_image
from tests.rows.readings import f64
from tests.rows.table import Call, row


def _float(*operands: Any) -> Any:
    return common(*(x for x in operands if x is not None))[0]


def _two(x: Any) -> tuple[int, int]:
    return tuple(int(v) for v in x) if isinstance(x, tuple | list) else (int(x), int(x))  # type: ignore[return-value]


def draw(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = large_image(d, groups, 2)
    kernel = (1, 1) if d.kind == "one" else d.pick((3, 3), (1, 1), (2, 3), (3, 1))
    weight = (groups * d.pick(1, 2, 3), image[1] // groups, *kernel)
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "(1, 0)", "'valid'", "'same'", "(2, 1)")
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2, "(2, 1)")
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, 2, "(1, 2)", percent=30))
    return f"st.conv2d({x}, {w}{rest}, groups={groups})"


@row("conv2d", draw, torch="nn.functional.conv2d")
def conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    array, kernel, dtype = f64(x), f64(weight), _float(x, weight, bias)
    single = array.ndim == 3
    if single:
        array = array[None]
    (sh, sw), (dh, dw) = _two(stride), _two(dilation)
    out, _, kh, kw = kernel.shape
    if isinstance(padding, str):
        if padding == "valid":
            widths = ((0, 0), (0, 0))
        else:
            around = [(n - 1) * d for n, d in ((kh, dh), (kw, dw))]
            widths = tuple((total // 2, total - total // 2) for total in around)  # type: ignore[assignment]
    else:
        ph, pw = _two(padding)
        widths = ((ph, ph), (pw, pw))
    array = np.pad(array, ((0, 0), (0, 0), *widths))
    oh = (array.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (array.shape[3] - dw * (kw - 1) - 1) // sw + 1
    result = np.zeros((len(array), out, oh, ow))
    share, made = array.shape[1] // groups, out // groups
    for group, i, j in itertools.product(range(groups), range(kh), range(kw)):
        part = array[:, group * share : (group + 1) * share, i * dh :, j * dw :][
            :, :, : (oh - 1) * sh + 1 : sh, : (ow - 1) * sw + 1 : sw
        ]
        rows = slice(group * made, (group + 1) * made)
        result[:, rows] += np.einsum("nchw,oc->nohw", part, kernel[rows, :, i, j])
    if bias is not None:
        result = result + f64(bias)[:, None, None]
    return Plain((result[0] if single else result).astype(dtype))


def draw(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = large_image(d, groups, 1)
    weight = (groups * d.pick(1, 2), image[1] // groups, 1 if d.kind == "one" else d.pick(1, 2, 3))
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "'valid'", "'same'", 2)
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2)
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, 2, percent=30))
    return f"st.conv1d({x}, {w}{rest}, groups={groups})"


@row("conv1d", draw, torch="nn.functional.conv1d")
def conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    def one(v: Any) -> int:
        return int(v[0]) if isinstance(v, tuple | list) else int(v)

    array, kernel = plain(x), plain(weight)
    rows = Plain(array.a[..., None, :])
    around = padding if isinstance(padding, str) else (0, one(padding))
    result = conv2d(rows, Plain(kernel.a[:, :, None, :]), bias, (1, one(stride)), around, (1, one(dilation)), groups)
    return Plain(result.a[..., 0, :])


def _many(value: Any, rank: int) -> tuple[Any, ...]:
    if isinstance(value, tuple | list):
        return tuple(value) if len(value) == rank else tuple(value) * rank
    return (value,) * rank


def _counts(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[int]:
    return [(size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(len(size))]


def _taps(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(window, tap, place) of every tap of every window that lies on the array."""
    rank = len(size)
    counts = [(size[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(rank)]
    for window in itertools.product(*map(range, counts)):
        for tap in itertools.product(*map(range, kernel)):
            place = tuple(window[a] * stride[a] + tap[a] * dilation[a] - padding[a] for a in range(rank))
            if all(0 <= place[a] < size[a] for a in range(rank)):
                yield window, tap, place


def draw(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    shape = image(d, groups, 3)
    kernel = (1, 1, 1) if d.kind == "one" else d.pick((2, 2, 3), (3, 1, 2), (1, 3, 3))
    weight = (groups * d.pick(1, 2), shape[1] // groups, *kernel)
    x, w = d.new(shape, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "(1, 0, 1)", "'valid'", "'same'")
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2, "(2, 1, 1)")
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, "(2, 1, 1)", percent=30))
    return f"st.conv3d({x}, {w}{rest}, groups={groups})"


@row("conv3d", draw)
def conv3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    array, kernel, dtype = f64(x), f64(weight), plain(x).dtype
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
        result = result + f64(bias)[:, None, None, None]
    return Plain(result.astype(dtype))


def _transposed(rank: int) -> Call:
    def text(d: Draw) -> str:
        groups = d.pick(1, 1, 2)
        shape = image(d, groups, rank)
        shape = (*shape[:2], *(min(extent, 4) for extent in shape[2:]))
        kernel = (2, 3, 1)[:rank] if d.likely(70) else (1, 1, 1)[:rank]
        weight = (shape[1], d.pick(1, 2), *kernel)
        x, w = d.new(shape, values="small"), d.new(weight, values="small")
        rest = f", {d.new((weight[1] * groups,), values='small')}" if d.likely(40) else ""
        stride = d.pick(1, 2)
        d.keywords |= {"groups", "padding", "bias", "stride", "output_padding", "dilation"}
        apart = 3 if d.likely(25) else 1
        rest += f", stride={stride}, dilation={apart}" + d.keyword("padding", 0, percent=30)
        rest += d.keyword("output_padding", 0, max(stride, apart) - 1, percent=30)
        return f"st.{d.name}({x}, {w}{rest}, groups={groups})"

    return text


def _scattered(rank: int) -> Callable[..., Any]:
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
        array, kernel, dtype = f64(x), f64(weight), plain(x).dtype
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
            result = result + f64(bias).reshape(-1, *[1] * rank)
        return Plain(result.astype(dtype))

    return reading


row("conv_transpose1d", _transposed(1), _scattered(1))


def draw(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = large_image(d, groups, 2)
    image = (*image[:2], *(min(extent, 5) for extent in image[2:]))
    kernel = d.pick((3, 3), (1, 1), (2, 3))
    weight = (image[1], d.pick(1, 2), *kernel)
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new((weight[1] * groups,), values='small')}" if d.likely(40) else ""
    stride = d.pick(1, 2, "(2, 3)")
    d.keywords |= {"groups", "padding", "bias", "stride", "output_padding"}
    rest += f", stride={stride}" + (
        "" if kernel == (1, 1) else d.keyword("padding", 0, "(1, 0)" if kernel[0] > 2 else "(0, 1)")
    )
    rest += d.keyword("output_padding", 0, 1 if stride != 1 else 0, percent=30) + d.keyword(
        "dilation", 1, 2, percent=25
    )
    return f"st.conv_transpose2d({x}, {w}{rest}, groups={groups})"


@row("conv_transpose2d", draw, torch="nn.functional.conv_transpose2d")
def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Plain:
    array, kernel, dtype = f64(x), f64(weight), _float(x, weight, bias)
    single = array.ndim == 3
    if single:
        array = array[None]
    (sh, sw), (ph, pw), (eh, ew), (dh, dw) = _two(stride), _two(padding), _two(output_padding), _two(dilation)
    channels, made, kh, kw = kernel.shape
    n, _, h, w = array.shape
    oh = (h - 1) * sh - 2 * ph + dh * (kh - 1) + eh + 1
    ow = (w - 1) * sw - 2 * pw + dw * (kw - 1) + ew + 1
    full = np.zeros((n, made * groups, oh + 2 * ph + h * sh, ow + 2 * pw + w * sw))
    share = channels // groups
    for group, i, j, a, b in itertools.product(range(groups), range(h), range(w), range(kh), range(kw)):
        part = (
            array[:, group * share : (group + 1) * share, i, j] @ kernel[group * share : (group + 1) * share, :, a, b]
        )
        full[:, group * made : (group + 1) * made, i * sh + a * dh, j * sw + b * dw] += part
    result = full[:, :, ph : ph + oh, pw : pw + ow]
    if bias is not None:
        result = result + f64(bias)[:, None, None]
    return Plain((result[0] if single else result).astype(dtype))


row("conv_transpose3d", _transposed(3), _scattered(3))


def draw(d: Draw) -> str:
    kernel = 1 if d.kind == "one" else d.pick(2, "(2, 3)")
    rest = d.keyword("stride", 1, 2) + d.keyword("dilation", 1, "(1, 2)" if kernel != 1 else 1)
    return f"st.unfold({d.new(image(d))}, {kernel}{rest}{d.keyword('padding', 0, 1)})"


@row("unfold", draw)
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Plain:
    array = plain(x).a
    how = [_many(each, 2) for each in (kernel_size, dilation, padding, stride)]
    counts = _counts(array.shape[-2:], *how)
    result = np.zeros((*array.shape[:-2], *how[0], *counts), array.dtype)
    for window, tap, place in _taps(array.shape[-2:], *how):
        result[(..., *tap, *window)] = array[(..., *place)]
    return Plain(result.reshape(*array.shape[:-3], array.shape[-3] * math.prod(how[0]), math.prod(counts)))


def draw(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    batch = 0 if d.kind == "empty" else d.pick(1, 2)
    size, kernel, dilation, padding, stride, count = d.pick(
        ("(4, 5)", "2", "1", "0", "1", 12), ("(5, 4)", "(2, 3)", "(2, 1)", "1", "2", 6), ("4", "2", "1", "0", "2", 4)
    )
    d.keywords |= {"output_size", "kernel_size", "dilation", "padding", "stride"}
    taps = 6 if "," in kernel else 4
    return (
        f"st.fold({d.new((batch, 2 * taps, count), values='small')}, {size}, {kernel}, {dilation}, {padding}, {stride})"
    )


@row("fold", draw)
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
