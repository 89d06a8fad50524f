"""Gradients of pooling as gathers: each element of the input looks for the windows that it is in.

    for each window: d_x[place of its maximum] += d_y        windows that overlap meet in an element: only one thread can do it

    a thread for each element of d_x:
        for each window over it: if (place of its maximum == element) total += d_y
        d_x[element] = total

With stride s, the element in row `s * step + phase - padding` is in the windows that begin in rows `s * step`, `s * (step - 1)`
and so on, as many as the stride goes into the kernel. So threads are numbered by step and phase, every index is affine, and
the windows are added up in the order of the loops on the host: the bits are the same.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn.mapping import Part
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    Compute,
    Constant,
    Guarded,
    Load,
    Local,
    Loop,
    Nest,
    PositionOf,
    Reduction,
    Statement,
    Store,
)
from staged.ir.nodes import Op
from staged.ir.types import bool_, bound, i32

POOLING = ("max_pool2d_backward", "avg_pool2d_backward")


def _along(axis: Axis, stride: int = 1) -> Affine:
    return Affine.of(axis, stride) if axis.extent > 1 else Affine()


class _Side:
    """One axis of the images: its elements by step and phase, and the windows over one of them."""

    def __init__(self, name: str, extent: int, windows: int, kernel: int, stride: int, padding: int) -> None:
        self.extent, self.stride = extent, stride
        self.step = Axis(f"{name}_step", -(-(extent + padding) // stride))
        self.phase = Axis(f"{name}_phase", stride)
        self.element = _along(self.step, stride) + _along(self.phase) + -padding
        """The position along the axis."""
        over = -(-kernel // stride)
        self.turn = Axis(f"{name}_window", over)
        self.window = _along(self.step) + _along(self.turn) + (1 - over)
        """The window, of all along the axis."""
        divides = padding == 0 and extent % stride == 0
        self.bounds = () if divides else (Bound(self.element, extent),)
        self.window_bounds: tuple[Bound, ...] = ()
        if over > 1 or self.step.extent > windows:
            self.window_bounds = (Bound(self.window, windows),)
        # The window begins `(over - 1 - turn) * stride` rows before the step's first.
        self.inside = Bound(_along(self.phase) + _along(self.turn, -stride) + (over - 1) * stride, kernel)
        self.is_covered = over * stride == kernel


def pooling_as_gather(op: Op) -> Part | None:
    """The part of a kernel that is the gradient of pooling, with threads for all of its result; None for other kernels."""
    inner = [each for each in op.blocks[0].ops if each.name in POOLING]
    if "joined" in op.attrs or len(op.blocks[0].ops) != 1 or len(inner) != 1:
        return None
    (pooling,) = inner
    attrs, nest = pooling.attrs, op.attrs["nest"]
    n, channels, height, width = (bound(extent) for extent in attrs["input_shape"])
    rows, columns = (bound(extent) for extent in pooling.operands[0].tensor.shape[2:])
    (ky, kx), (sy, sx), (py, px) = attrs["kernel"], attrs["stride"], attrs["padding"]
    if 0 in (n, channels, height, width) or _is_apart(attrs, height, width):
        return None
    plane = Axis("plane", n * channels)
    y, x = _Side("y", height, rows, ky, sy, py), _Side("x", width, columns, kx, sx, px)
    window = _along(plane, rows * columns) + y.window * columns + x.window
    guards = (*y.window_bounds, *x.window_bounds)
    share = _of_maximum if pooling.name == "max_pool2d_backward" else _of_mean
    body, part = share(nest, window, guards, y, x, ky * kx)
    if (y.turn.extent, x.turn.extent) != (1, 1):
        total = Reduction(Local("total", nest.outputs[0].dtype), "sum")
        inner: tuple[Statement, ...] = (*body, Accumulate(total, part))
        for axis in (x.turn, y.turn):
            inner = (Loop(axis, inner),) if axis.extent > 1 else inner
        (outermost,) = inner
        assert isinstance(outermost, Loop)
        body, part = [Loop(outermost.axis, outermost.body, (total,))], total.target
    place = _along(plane, height * width) + y.element * width + x.element
    store: Statement = Store(nest.outputs[0], place, part)
    if y.bounds or x.bounds:
        store = Guarded((*y.bounds, *x.bounds), (store,))
    # Neighbouring threads have neighbouring elements.
    axes = tuple(axis for axis in (plane, y.step, y.phase, x.step, x.phase) if axis.extent > 1)
    return Part(axes, (*body, store), ())


def _is_apart(attrs: object, height: int, width: int) -> bool:
    """Whether windows of 2 x 2 side by side fill the image: then each of them writes its own elements, in pairs."""
    assert isinstance(attrs, dict)
    sides = attrs["kernel"] == attrs["stride"] == (2, 2) and attrs["padding"] == (0, 0)
    return bool(sides and height % 2 == 0 and width % 2 == 0)


Share = tuple[list[Statement], Local]
"""Statements, and what they find that one window gives to the element."""


def _of_maximum(nest: Nest, window: Affine, guards: tuple[Bound, ...], y: _Side, x: _Side, count: int) -> Share:
    """The cotangent of a window whose maximum is the element."""
    cotangents, places = (source for source in nest.inputs if isinstance(source, ArrayRef))
    place, at, here = Local("place", i32), Local("element", i32), Local("here", bool_)
    given, part = Local("given", cotangents.dtype), Local("part", cotangents.dtype)
    nothing = Constant(0.0 if cotangents.dtype.is_float else 0, cotangents.dtype)
    body: list[Statement] = [
        Load(place, places, window, guards, Constant(-1, i32) if guards else None),
        PositionOf(at, y.element * x.extent + x.element),
        Compute(here, "equal", (place, at), {}),
        Load(given, cotangents, window, guards, nothing if guards else None),
        Compute(part, "select", (here, given, nothing), {}),
    ]
    return body, part


def _of_mean(nest: Nest, window: Affine, guards: tuple[Bound, ...], y: _Side, x: _Side, count: int) -> Share:
    """The element's share of a window that it is in."""
    (cotangents,) = (source for source in nest.inputs if isinstance(source, ArrayRef))
    given, share = Local("given", cotangents.dtype), Local("share", cotangents.dtype)
    guards += tuple(side.inside for side in (y, x) if not side.is_covered)
    body: list[Statement] = [
        Load(given, cotangents, window, guards, Constant(0.0, cotangents.dtype) if guards else None),
        Compute(share, "divide", (given, Constant(float(count), cotangents.dtype)), {}),
    ]
    return body, share
