"""Convolutions and their gradients as loop nests: each element of a result is a sum, written once.

    y[n, o, i, j] = sum over c, p, q of x[n, c, i * stride + p * dilation - padding, ...] * w[o, c, p, q]

What is outside of an image counts as 0: a guard fills it, which `Pack` takes into a copy. The gradient of the input is
a sum over the outputs that an element went into; with strides these are, for each remainder of its place, every so many
taps of the weight, so that there is a nest of loops for each remainder, and none of them asks whether a division leaves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    ArrayRole,
    Axis,
    Bound,
    Compute,
    Constant,
    Load,
    Local,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
    walk,
)
from staged.ir.names import name_of
from staged.ir.nodes import Op
from staged.ir.products import finished, product_nest
from staged.ir.size_functions import last_index
from staged.ir.sizes import Extent, largest, product, surely
from staged.ir.types import DType, Shape, bound, dims_of, i64, row_major


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes of a convolution: x is (n, c, h, w), the weight (oc, c // groups, kh, kw), y (n, oc, out_h, out_w)."""

    n: Extent
    c: int
    oc: int
    image: tuple[Extent, Extent]
    taps: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def out(self, side: int) -> Extent:
        """Rows (side 0) or columns (side 1) of y."""
        reach = self.dilation[side] * (self.taps[side] - 1) + 1
        return largest((self.image[side] + 2 * self.padding[side] - reach) // self.stride[side] + 1, 0)

    @property
    def x_shape(self) -> Shape:
        return (self.n, self.c, *self.image)

    @property
    def weight_shape(self) -> Shape:
        return (self.oc, self.c // self.groups, *self.taps)

    @property
    def y_shape(self) -> Shape:
        return (self.n, self.oc, self.out(0), self.out(1))

    def seen(self, side: int, out: Affine, tap: Affine) -> Affine:
        """The row or column of x that a tap sees from a row or column of y."""
        return out * self.stride[side] + tap * self.dilation[side] + -self.padding[side]


def convolution_of(op: Op) -> Convolution:
    """The sizes of a convolution, or of one of its gradients."""
    first, second = (operand.tensor.shape for operand in op.operands[:2])
    n, c, h, w = op.attrs.get("input_shape", first)
    oc, _, kh, kw = op.attrs.get("weight_shape", second)
    pairs = {name: tuple(op.attrs[name]) for name in ("stride", "padding", "dilation") if name in op.attrs}
    return Convolution(n, c, oc, (h, w), (kh, kw), **pairs, groups=op.attrs.get("groups", 1))


def contraction_nest(op: Op, name: str) -> Nest:
    """The loops of a `contraction` op without an epilogue."""
    kind = op.attrs["kind"]
    return product_nest(op, name) if kind == prims.MATMUL.name else convolution_nest(op)


def convolution_nest(op: Op, epilogue: Nest | None = None) -> Nest:
    """The loops of a convolution, which may have an epilogue, or of one of its gradients."""
    nests = {
        prims.CONV2D.name: forward_nest,
        prims.CONV2D_BACKWARD_INPUT.name: input_gradient_nest,
        prims.CONV2D_BACKWARD_WEIGHT.name: weight_gradient_nest,
    }
    conv = convolution_of(op)
    names = [*map(name_of, op.operands[:2]), op.results[0].hint]
    nest = nests[op.attrs.get("kind", op.name)](conv, op.operands[0].tensor.dtype, names)
    if epilogue is not None:
        nest = _with_epilogue(nest, conv, epilogue, op.declared is prims.CONV2D_BACKWARD_INPUT)
    counts = {dim: Local(dim.name, i64) for value in (*op.operands[:2], *op.results) for dim in dims_of(value.type)}
    return replace(nest, inputs=(*nest.inputs, *counts.values()), counts=counts)


def _with_epilogue(nest: Nest, conv: Convolution, epilogue: Nest, is_gradient: bool) -> Nest:
    """The loops of a convolution, or of its gradient of the image, with an epilogue for each element in place of its
    store.
    """
    axes = {s.axis.name: s.axis for s in walk(nest.body) if isinstance(s, Loop)}
    channel, width = (_channel(conv, axes), conv.image[1]) if is_gradient else (_output(conv, axes), conv.out(1))
    place = Affine.of(axes["n"]), channel, Affine.of(axes["i"], width) + Affine.of(axes["j"])

    def finish(body: Sequence[Statement]) -> Iterator[Statement]:
        for s in body:
            if isinstance(s, Loop):
                yield replace(s, body=tuple(finish(s.body)))
            elif isinstance(s, Store):
                yield from finished(epilogue, s.value, place)
            else:
                yield s

    return replace(
        nest,
        inputs=(*nest.inputs, *epilogue.inputs[1:]),
        outputs=epilogue.outputs,
        in_place=tuple((o, i + 1) for o, i in epilogue.in_place),
        body=tuple(finish(nest.body)),
    )


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The operands of a nest, and its result."""

    left: ArrayRef
    right: ArrayRef
    result: ArrayRef


def forward_nest(conv: Convolution, dtype: DType, names: Sequence[str] = ("", "", "")) -> Nest:
    """y of x and the weight."""
    arrays = _arrays(names, dtype, ("x", conv.x_shape), ("weight", conv.weight_shape), ("y", conv.y_shape))
    axes = _axes(conv)
    i, j, p, q = (Affine.of(axes[name]) for name in ("i", "j", "p", "q"))
    rows, columns = conv.seen(0, i, p), conv.seen(1, j, q)
    body = _sum(
        arrays,
        (axes["n"], axes["group"], axes["o"], axes["i"], axes["j"]),
        (axes["channel"], axes["p"], axes["q"]),
        _index(conv.x_shape, Affine.of(axes["n"]), _channel(conv, axes), rows, columns),
        _index(conv.weight_shape, _output(conv, axes), Affine.of(axes["channel"]), p, q),
        _index(conv.y_shape, Affine.of(axes["n"]), _output(conv, axes), i, j),
        _inside(rows, conv.image[0]) + _inside(columns, conv.image[1]),
    )
    return Nest("conv2d", (arrays.left, arrays.right), (arrays.result,), (), body, bound(conv.n))


def weight_gradient_nest(conv: Convolution, dtype: DType, names: Sequence[str] = ("", "", "")) -> Nest:
    """The gradient of the weight, of x and that of y."""
    arrays = _arrays(names, dtype, ("x", conv.x_shape), ("d_y", conv.y_shape), ("d_weight", conv.weight_shape))
    axes = _axes(conv)
    i, j, p, q = (Affine.of(axes[name]) for name in ("i", "j", "p", "q"))
    rows, columns = conv.seen(0, i, p), conv.seen(1, j, q)
    body = _sum(
        arrays,
        (axes["group"], axes["o"], axes["channel"], axes["p"], axes["q"]),
        (axes["n"], axes["i"], axes["j"]),
        _index(conv.x_shape, Affine.of(axes["n"]), _channel(conv, axes), rows, columns),
        _index(conv.y_shape, Affine.of(axes["n"]), _output(conv, axes), i, j),
        _index(conv.weight_shape, _output(conv, axes), Affine.of(axes["channel"]), p, q),
        _inside(rows, conv.image[0]) + _inside(columns, conv.image[1]),
    )
    return Nest("conv2d_backward_weight", (arrays.left, arrays.right), (arrays.result,), (), body, conv.groups)


def input_gradient_nest(conv: Convolution, dtype: DType, names: Sequence[str] = ("", "", "")) -> Nest:
    """The gradient of x, of that of y and the weight."""
    arrays = _arrays(names, dtype, ("d_y", conv.y_shape), ("weight", conv.weight_shape), ("d_x", conv.x_shape))
    axes = _axes(conv)
    body: list[Statement] = []
    for row in _remainders(conv, 0, "i"):
        for column in _remainders(conv, 1, "j"):
            body += _sum(
                arrays,
                (axes["group"], axes["channel"], row.place, column.place),
                (axes["o"], row.tap, column.tap),
                _index(conv.y_shape, Affine.of(axes["n"]), _output(conv, axes), row.seen_by, column.seen_by),
                _index(conv.weight_shape, _output(conv, axes), Affine.of(axes["channel"]), row.weight, column.weight),
                _index(conv.x_shape, Affine.of(axes["n"]), _channel(conv, axes), row.index, column.index),
                _inside(row.seen_by, conv.out(0)) + _inside(column.seen_by, conv.out(1)),
            )
    whole: tuple[Statement, ...] = (Loop(axes["n"], tuple(body)),)
    return Nest("conv2d_backward_input", (arrays.left, arrays.right), (arrays.result,), (), whole, bound(conv.n))


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The rows or columns of x whose places leave the same remainder: each went into every so many taps."""

    place: Axis
    """Counts them."""
    tap: Axis
    """Counts the taps."""
    index: Affine
    """The row or column of x."""
    weight: Affine
    """The row or column of the weights."""
    seen_by: Affine
    """The row or column of y of a tap."""


def _remainders(conv: Convolution, side: int, name: str) -> Iterator[_Remainder]:
    """The rows (side 0) or columns (side 1) of x, by their remainder when divided by the stride."""
    stride, padding, dilation, taps = conv.stride[side], conv.padding[side], conv.dilation[side], conv.taps[side]
    every = stride // gcd(stride, dilation)  # taps from one that goes into a row of y to the next
    for rest in range(min(stride, bound(conv.image[side]))):
        first = next((tap for tap in range(min(every, taps)) if (rest + padding - tap * dilation) % stride == 0), taps)
        place = Axis(name, largest(-(-(conv.image[side] - rest) // stride), 0))
        tap = Axis("p" if side == 0 else "q", max(0, -(-(taps - first) // every)))
        start = (rest + padding - first * dilation) // stride
        yield _Remainder(
            place,
            tap,
            Affine.of(place, stride) + rest,
            Affine.of(tap, every) + first,
            Affine.of(place) + Affine.of(tap, -(every * dilation // stride)) + start,
        )


def _sum(
    arrays: _Arrays,
    outside: Sequence[Axis],
    inside: Sequence[Axis],
    at_left: Affine,
    at_right: Affine,
    at_result: Affine,
    guards: tuple[Bound, ...],
) -> tuple[Statement, ...]:
    """Loops over the elements of a result around the loops over the terms of its sums. The guards are about the left
    operand, but for the gradient of the input that is the one which may be outside.
    """
    dtype = arrays.result.dtype
    x, y, term = Local("left", dtype), Local("right", dtype), Local("term", dtype)
    total = Reduction(Local("total", dtype), prims.SUM)
    body: tuple[Statement, ...] = (
        Load(x, arrays.left, at_left, guards, Constant(dtype.numpy.type(0).item(), dtype)),
        Load(y, arrays.right, at_right),
        Compute(term, prims.MULTIPLY, (x, y), {}),
        Accumulate(total, term),
    )
    for axis in reversed(inside[1:]):
        body = (Loop(axis, body),)
    body = (Loop(inside[0], body, (total,)), Store(arrays.result, at_result, total.target))
    for axis in reversed(outside):
        body = (Loop(axis, body),)
    return body


def _axes(conv: Convolution) -> dict[str, Axis]:
    sizes = {
        "n": conv.n, "group": conv.groups, "o": conv.oc // conv.groups, "channel": conv.c // conv.groups,
        "i": conv.out(0), "j": conv.out(1), "p": conv.taps[0], "q": conv.taps[1],
    }  # fmt: skip
    return {name: Axis(name, extent) for name, extent in sizes.items()}


def _channel(conv: Convolution, axes: dict[str, Axis]) -> Affine:
    return Affine.of(axes["group"], conv.c // conv.groups) + Affine.of(axes["channel"])


def _output(conv: Convolution, axes: dict[str, Axis]) -> Affine:
    return Affine.of(axes["group"], conv.oc // conv.groups) + Affine.of(axes["o"])


def _inside(index: Affine, extent: Extent) -> tuple[Bound, ...]:
    """The bound of an index, unless it holds for all iterations."""
    low = index.offset + sum(
        step * last_index(axis.size) for axis, step in index.terms if isinstance(axis, Axis) and step < 0
    )
    high = index.offset + sum(
        step * last_index(axis.size) for axis, step in index.terms if isinstance(axis, Axis) and step > 0
    )
    return () if surely(lambda: low >= 0 and high < extent) else (Bound(index, extent),)


def _index(shape: Shape, *at: Affine) -> Affine:
    index = Affine()
    for part, stride in zip(at, row_major(*shape), strict=True):
        index = index + part * stride
    return index


def _arrays(names: Sequence[str], dtype: DType, *named: tuple[str, Shape]) -> _Arrays:
    """The arrays with their shapes. Those without a name in the program have the names of the formula."""
    sizes = [(hint or name, product(shape)) for hint, (name, shape) in zip(names, named, strict=True)]
    roles: tuple[ArrayRole, ...] = ("input", "input", "output")
    return _Arrays(*(ArrayRef(name, dtype, size, role) for (name, size), role in zip(sizes, roles, strict=True)))
