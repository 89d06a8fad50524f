"""Rows of functions that move elements: shapes, axes, joining and splitting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell, form
from tests.fuzz.plain.core import FUNCTIONS, Plain, Precision, bare, common, plain, strong
from tests.rows.table import Call, row


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(int(bare(extent)) for extent in shape) if isinstance(shape, tuple | list) else (int(bare(shape)),)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    wider = (d.pick(2, 1, 3), *shape) if d.likely(60) or not shape else shape
    x = d.new(tuple(1 if d.likely(30) else extent for extent in shape))
    return form(d, "broadcast_to", x, f", {wider!r}")


@row("broadcast_to", draw, torch="broadcast_to")
def broadcast_to(x: Any, shape: Any) -> Plain:
    array = plain(x)
    return Plain(np.broadcast_to(strong(array).a if array.shape != _sizes(shape) else array.a, _sizes(shape)).copy())


@row(
    "broadcast_arrays",
    lambda d: (
        f"st.broadcast_arrays({d.new(shape := d.shape(ranks=(1, 2)))}, {d.new(tuple(1 if d.likely(50) else n for n in shape))})"
    ),
)
def broadcast_arrays(*arrays: Any) -> list[Plain]:
    return [Plain(x.copy()) for x in np.broadcast_arrays(*(strong(plain(x)).a for x in arrays))]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _axes(axes: tuple[Any, ...]) -> Any:
    return axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2, 3))
    size = _size(shape)
    options = ["(-1,)"] if size else []
    options += [repr((size, 1)), repr((1, size)), repr(shape[::-1])]
    if size % 2 == 0 and size:
        options.append("(2, -1)")
    return form(d, "reshape", d.new(shape), f", {d.pick('', 'shape=')}{d.chance.choice(options)}")


@row("reshape", draw, torch="reshape")
def reshape(x: Any, shape: Any = (), *extents: Any) -> Plain:
    return Plain(plain(x).a.reshape(_sizes(_axes((shape, *extents)))))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    rest = d.keyword("start_dim", 0, len(shape) - 1) + d.keyword("end_dim", -1, len(shape) - 1)
    return form(d, "flatten", d.new(shape), rest)


@row("flatten", draw, torch="flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Plain:
    array = plain(x).a
    if not array.ndim:
        return Plain(array.reshape(1))
    first, last = start_dim % array.ndim, end_dim % array.ndim
    joined = int(np.prod(array.shape[first : last + 1]))
    return Plain(array.reshape((*array.shape[:first], joined, *array.shape[last + 1 :])))


def draw(d: Draw) -> str:
    n = d.extent()
    d.keywords.add("sizes")
    return f"st.unflatten({d.new((n, 6))}, {d.pick('1, (2, 3)', '-1, (-1, 2)', '1, (6, 1)')})"


@row("unflatten", draw)
def unflatten(x: Any, dim: int, sizes: Any) -> Plain:
    array = plain(x).a
    axis = dim % array.ndim
    known = math.prod(size for size in sizes if size != -1)
    wanted = [array.shape[axis] // known if size == -1 else size for size in sizes]
    return Plain(array.reshape(*array.shape[:axis], *wanted, *array.shape[axis + 1 :]))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    place = d.chance.randrange(len(shape) + 1)
    return form(d, "squeeze", d.new((*shape[:place], 1, *shape[place:])), d.keyword("axis", place, f"({place},)"))


@row("squeeze", draw)
def squeeze(x: Any, axis: Any = None) -> Plain:
    return Plain(np.squeeze(plain(x).a, axis=tuple(axis) if isinstance(axis, list) else axis))


@row(
    "expand_dims",
    lambda d: f"st.expand_dims({d.new(shape := d.shape(ranks=(0, 1, 2)))}{d.keyword('axis', 0, -1, len(shape))})",
    torch=lambda torch: lambda x, axis=0: torch.unsqueeze(x, axis),
)
def expand_dims(x: Any, axis: int = 0) -> Plain:
    return Plain(np.expand_dims(plain(x).a, axis))


@row(
    "unsqueeze",
    lambda d: form(d, "unsqueeze", d.new(shape := d.shape(ranks=(0, 1, 2))), f", {d.pick(0, -1, len(shape))}"),
    torch="unsqueeze",
)
def unsqueeze(x: Any, dim: int) -> Plain:
    return Plain(np.expand_dims(plain(x).a, dim))


def _permuted(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    order = tuple(d.chance.sample(range(len(shape)), len(shape)))
    if d.name == "transpose" and d.likely(50):
        return form(d, d.name, d.new(shape))
    rest = f", {order!r}" if d.likely(60) else "".join(f", {axis}" for axis in order)
    return form(d, d.name, d.new(shape), rest)


@row(
    "permute_dims",
    _permuted,
    torch=lambda torch: lambda x, *axes: torch.permute(x, axes[0] if isinstance(axes[0], tuple) else axes),
)
def permute_dims(x: Any, *axes: Any) -> Plain:
    return Plain(np.transpose(plain(x).a, _axes(axes)).copy())


row("permute", _permuted, permute_dims, torch="permute")


@row("transpose", _permuted)
def transpose(x: Any, *axes: Any) -> Plain:
    if len(axes) == 2:
        return FUNCTIONS["swapaxes"](x, *axes)  # torch's: two axes change places
    return Plain(np.transpose(plain(x).a, _axes(axes) if axes else None).copy())


@row(
    "matrix_transpose",
    lambda d: f"st.matrix_transpose({d.new(d.shape(ranks=(2, 3)))})" if d.likely(60) else f"{d.new(d.shape(2))}.T",
)
def matrix_transpose(x: Any) -> Plain:
    return Plain(np.swapaxes(plain(x).a, -1, -2).copy())


@row("swapaxes", lambda d: form(d, "swapaxes", d.new(d.shape(ranks=(2, 3))), f", 0, {d.pick(1, -1)}"), torch="swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Plain:
    return Plain(np.swapaxes(plain(x).a, axis1, axis2).copy())


@row(
    "moveaxis",
    lambda d: f"st.moveaxis({d.new(d.shape(ranks=(2, 3)))}, {d.pick('0, -1', '-1, 0', '(0, 1), (1, 0)')})",
    torch="moveaxis",
)
def moveaxis(x: Any, source: Any, destination: Any) -> Plain:
    return Plain(np.moveaxis(plain(x).a, source, destination).copy())


@row("flip", lambda d: f"st.flip({d.new(shape := d.shape(ranks=(1, 2, 3)))}{d.axis(len(shape))})", torch="flip")
def flip(x: Any, axis: Any = None) -> Plain:
    return Plain(np.flip(plain(x).a, axis).copy())


@row(
    "roll",
    lambda d: (
        f"st.roll({d.new(shape := d.shape(ranks=(1, 2, 3)))}, {d.pick(1, -1, 3, 0, 40, -17)}{d.axis(len(shape), several=False)})"
    ),
    torch=lambda torch: lambda x, shift, axis=None: torch.roll(x, shift, axis),
)
def roll(x: Any, shift: Any, axis: Any = None) -> Plain:
    return Plain(np.roll(plain(x).a, int(bare(shift)), axis))


def _numpys(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading by NumPy's function of an array."""
    return lambda x, *rest, **options: Plain(np.array(function(plain(x).a, *rest, **options)))


def _of_ranks(*ranks: int) -> Call:
    return lambda d: f"st.{d.name}({d.new(d.shape(ranks=ranks))})"


row("fliplr", _of_ranks(2, 3), _numpys(np.fliplr))
row("flipud", _of_ranks(1, 2), _numpys(np.flipud))
row("atleast_1d", _of_ranks(0, 1, 2), _numpys(np.atleast_1d))
row("atleast_2d", _of_ranks(0, 1, 2), _numpys(np.atleast_2d))
row("atleast_3d", _of_ranks(0, 1, 2, 3), _numpys(np.atleast_3d))


def draw(d: Draw) -> str:
    x = d.new(d.shape(ranks=(2, 3)))
    rest = d.keyword("k", 0, 1, 2, 3, -1) + d.keyword("axes", (0, 1), (1, 0), (0, -1))
    return f"st.rot90({x}{rest})"


row("rot90", draw, _numpys(np.rot90))


def draw(d: Draw) -> str:
    x = d.new(d.shape(ranks=(2, 3)))
    return (
        f"st.diagonal({x}{d.keyword('offset', 0, 1, -1, 2)}{d.pick('', ', axis1=1, axis2=0', ', axis1=-1, axis2=-2')})"
    )


row("diagonal", draw, _numpys(np.diagonal))


def draw(d: Draw) -> str:
    return f"st.trace({d.new(d.shape(ranks=(2, 3)), values='small')}{d.keyword('offset', 0, 1, -1)})"


row("trace", draw, lambda x, **options: FUNCTIONS["sum"](FUNCTIONS["diagonal"](x, **options), -1))


def draw(d: Draw) -> str:
    x = d.new((min(d.extent(), 40),)) if d.likely(60) else d.new(d.shape(2))
    return f"st.diag({x}{d.keyword('k', 0, 1, -2)})"


row("diag", draw, _numpys(np.diag))


def draw(d: Draw) -> str:
    return f"st.diagflat({d.new((2, 3) if d.likely(60) else (3,))}{d.keyword('k', 0, 1, -2)})"


row("diagflat", draw, _numpys(np.diagflat))


def _joined(arrays: Any) -> list[Any]:
    several = [plain(x) for x in arrays]
    dtype, weak = common(*several)
    if weak and dtype == np.float64:
        dtype = Precision.single
    return [x.a.astype(dtype) for x in several]


@row("block_diag", lambda d: f"st.block_diag({d.new((2, 3))}, {d.new((d.pick(1, 2), 2))}, {d.new((3,))})")
def block_diag(*arrays: Any) -> Plain:
    blocks = [np.atleast_2d(x) for x in _joined(arrays)]
    result = np.zeros(np.sum([x.shape for x in blocks], axis=0), blocks[0].dtype)
    line = column = 0
    for block in blocks:
        result[line : line + len(block), column : column + block.shape[1]] = block
        line, column = line + len(block), column + block.shape[1]
    return Plain(result)


@row(
    "diag_embed",
    lambda d: (
        f"st.diag_embed({d.new(d.shape(ranks=(1, 2)))}{d.keyword('offset', -1, 2)}{d.keyword('dim1', 0)}{d.keyword('dim2', 1)})"
    ),
)
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Plain:
    rows = plain(x).a
    n = rows.shape[-1] + abs(offset)
    found = np.zeros((*rows.shape[:-1], n, n), rows.dtype)
    places = np.arange(rows.shape[-1])
    found[..., places + max(-offset, 0), places + max(offset, 0)] = rows
    return Plain(np.moveaxis(found, (-2, -1), (dim1, dim2)))


@row("tril", lambda d: f"st.tril({d.new(d.shape(ranks=(2, 3)))}{d.keyword('k', 0, 1, -1, 2)})", torch="tril")
def tril(x: Any, k: int = 0) -> Plain:
    return Plain(np.tril(plain(x).a, k))


@row("triu", lambda d: f"st.triu({d.new(d.shape(ranks=(2, 3)))}{d.keyword('k', 0, 1, -1, 2)})", torch="triu")
def triu(x: Any, k: int = 0) -> Plain:
    return Plain(np.triu(plain(x).a, k))


# ---- joining and splitting ------------------------------------------------------------------------


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    other = (*shape[:axis], d.pick(1, 2, 0, shape[axis]), *shape[axis + 1 :])
    if d.likely(20):
        return f"st.concat([{d.new(shape)}, {d.new(other)}], axis=None)"
    return f"st.concat([{d.new(shape)}, {d.new(other)}], axis={d.pick(axis, axis - len(shape))})"


@row("concat", draw, torch=lambda torch: lambda arrays, axis=0: torch.cat(arrays, axis))
def concat(arrays: Any, axis: Any = 0) -> Plain:
    return Plain(np.concatenate(_joined(arrays), axis))


@row(
    "stack",
    lambda d: (
        f"st.stack([{d.new(shape := d.shape(ranks=(0, 1, 2)))}, {d.new(shape)}, {d.chance.choice(list(d.arrays))}]"
        f"{d.keyword('axis', 0, -1, len(shape))})"
    ),
    torch=lambda torch: lambda arrays, axis=0: torch.stack(arrays, axis),
)
def stack(arrays: Any, axis: int = 0) -> Plain:
    return Plain(np.stack(_joined(arrays), axis))


def _of_two(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    return f"st.{d.name}([{d.new(shape)}, {d.new(shape)}])"


row("hstack", _of_two, lambda arrays: Plain(np.hstack(_joined(arrays))))
row("vstack", _of_two, lambda arrays: Plain(np.vstack(_joined(arrays))))
row("dstack", _of_two, lambda arrays: Plain(np.dstack(_joined(arrays))))
row("column_stack", _of_two, lambda arrays: Plain(np.column_stack(_joined(arrays))))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    if d.likely(50):
        shape = (*shape[:axis], shape[axis] * 2, *shape[axis + 1 :])
        return f"st.split({d.new(shape)}, 2, axis={axis})"
    return f"st.split({d.new(shape)}, [{shape[axis] // 2}], axis={axis})"


@row("split", draw)
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Plain]:
    return [Plain(part.copy()) for part in np.split(plain(x).a, bare(indices_or_sections), axis)]


@row(
    "tensor_split",
    lambda d: (
        f"st.tensor_split({d.new(shape := d.shape(ranks=(1, 2)))}, {d.pick(1, 2, 3, (1, 2))}"
        f"{d.axis(len(shape), several=False, none=False)})"
    ),
)
def tensor_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Plain]:
    return [Plain(part) for part in np.array_split(plain(x).a, indices_or_sections, axis)]


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    place = d.chance.randrange(len(shape)) if d.kind != "block" else 0
    return f"st.unstack({d.new((*shape[:place], 3, *shape[place:]))}, axis={place})"


@row("unstack", draw)
def unstack(x: Any, axis: int = 0) -> tuple[Plain, ...]:
    return tuple(Plain(part.copy()) for part in np.moveaxis(plain(x).a, axis, 0))


@row("tile", lambda d: f"st.tile({d.new(d.shape(ranks=(1, 2)))}, {d.pick('2', '(2, 1)', '(1, 3)', '(2, 1, 2)')})")
def tile(x: Any, repetitions: Any) -> Plain:
    return Plain(np.tile(plain(x).a, repetitions))


@row(
    "repeat",
    lambda d: (
        f"st.repeat({d.new(shape := d.shape(ranks=(1, 2)))}, {d.pick(1, 2, 3, 0)}{d.axis(len(shape), several=False)})"
    ),
)
def repeat(x: Any, repeats: int, axis: Any = None) -> Plain:
    return Plain(np.repeat(plain(x).a, repeats, axis))


@row(
    "meshgrid",
    lambda d: (
        f"st.meshgrid({d.new((d.extent(),))}, {d.new((3,))}{d.keyword('indexing', repr('ij'), repr('xy'))}"
        f"{d.keyword('sparse', True, False)})"
    ),
)
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> list[Plain]:
    grids = np.meshgrid(*(plain(x).a for x in arrays), indexing=indexing, sparse=sparse)
    return [Plain(x.copy()) for x in grids]


def _factor(word: str) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        batch = 0 if d.kind == "empty" else d.pick(1, 2)
        shape = {"pixel_shuffle": (batch, 8, 3, 2), "channel_shuffle": (batch, 6, 5)}.get(d.name, (batch, 2, 4, 6))
        d.keywords.add(word)
        return f"st.{d.name}({d.new(shape)}, {word}=2)"

    return text


@row("pixel_shuffle", _factor("upscale_factor"))
def pixel_shuffle(x: Any, upscale_factor: int) -> Plain:
    array, r = plain(x).a, upscale_factor
    *lead, c, h, w = array.shape
    result = np.zeros((*lead, c // (r * r), h * r, w * r), array.dtype)
    for i, j in itertools.product(range(r), range(r)):
        result[..., i::r, j::r] = array[..., i * r + j :: r * r, :, :]
    return Plain(result)


@row("pixel_unshuffle", _factor("downscale_factor"))
def pixel_unshuffle(x: Any, downscale_factor: int) -> Plain:
    array, r = plain(x).a, downscale_factor
    *lead, c, h, w = array.shape
    result = np.zeros((*lead, c * r * r, h // r, w // r), array.dtype)
    for i, j in itertools.product(range(r), range(r)):
        result[..., i * r + j :: r * r, :, :] = array[..., i::r, j::r]
    return Plain(result)


@row("channel_shuffle", _factor("groups"))
def channel_shuffle(x: Any, groups: int) -> Plain:
    array = plain(x).a
    per_group = array.shape[1] // groups
    return Plain(array[:, [g * per_group + i for i in range(per_group) for g in range(groups)]])


# ---- edges --------------------------------------------------------------------------------------


def _filling(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    width = d.pick("1", "0", "(2, 1)", "(0, 3)")
    if len(shape) == 2:
        width = d.pick("1", "((1, 0), (0, 2))", "((0, 0), (3, 1))")
    values = (
        ("1.5", "-0.25", "0.0", "-0.0", "2")
        if d.is_float
        else ("True", "False")
        if d.dtype == "bool"
        else ("1", "0", "7")
    )
    return f"st.pad({d.new(shape)}, {width}{d.keyword('value', *values, percent=70)})"


def draw(d: Draw) -> str:
    if d.likely(40):
        return _filling(d)
    if d.kind == "empty":
        raise NotACell
    shape = d.shape(ranks=(1, 2))
    modes = ["edge", "reflect", "symmetric", "wrap", "replicate", "circular"]
    mode = repr(d.pick(*modes))
    d.keywords |= {"mode", "pad"}
    if d.likely(50):
        width = d.pick("(1, 2)", "(0, 1)", "(-1, 1)" if shape[-1] > 1 else "(1, 1)")
        return f"st.pad({d.new(shape)}, pad={width}, mode={mode})"
    return f"st.pad({d.new(shape)}, {d.pick('1', '(2, 1)')}, {mode})"


def _filled(array: Any, pad_width: Any, value: Any) -> Plain:
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)) if array.ndim else []
    result = np.full(
        [n + int(a) + int(b) for n, (a, b) in zip(array.shape, widths, strict=True)], bare(value), array.dtype
    )
    result[tuple(slice(int(a), int(a) + n) for n, (a, _) in zip(array.shape, widths, strict=True))] = array
    return Plain(result)


@row("pad", draw)
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
        return _filled(array.a, pad_width, value)
    numpys = {"replicate": "edge", "circular": "wrap"}
    return Plain(np.pad(array.a, pad_width, mode=numpys.get(mode, mode)))  # type: ignore[call-overload]
