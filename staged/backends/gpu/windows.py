"""Gradients of pooling as gathers: each input element gathers from the windows that contain it.

    for each window: d_x[place of its maximum] += d_y windows that overlap meet in an element: only one thread can do it

    a thread for each element of d_x:
        for each window over it: if (place of its maximum == element) total += d_y
        d_x[element] = total

With stride s, the element in row `s * step + phase - padding` is in the windows that begin in rows `s * step`, `s *
(step - 1)` and so on, as many as the stride goes into the kernel. So threads are numbered by step and phase, every
index is affine, and the windows are added up in the order of the loops on the host: the bits are the same.

Tested by `tests/backends/cublas_cudnn/test_pooling.py`.
"""

from __future__ import annotations

from staged.backends.gpu.mapping import Part
from staged.ir.declaration import prims
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
from staged.ir.nodes import Attrs, Op
from staged.ir.sizes import Extent, surely
from staged.ir.types import bool_, i32

POOLING = (prims.MAX_POOL2D_BACKWARD, prims.AVG_POOL2D_BACKWARD)


def _along(axis: Axis, stride: Extent = 1) -> Affine:
    return Affine.of(axis, stride) if axis.size != 1 else Affine()


def _bounds(index: Affine, lowest: Extent, count: Extent, extent: Extent) -> tuple[Bound, ...]:
    """The check of an index with `count` values from `lowest` on, unless all of them are below `extent`."""
    return () if surely(lambda: lowest >= 0 and lowest + count <= extent) else (Bound(index, extent),)


class _Side:
    """One axis of the images: its elements by step and phase, and the windows over one of them."""

    def __init__(self, name: str, extent: Extent, windows: Extent, kernel: int, stride: int, padding: int) -> None:
        self.extent, self.stride = extent, stride
        first = padding // stride  # steps before it are all in the padding
        self.step = Axis(f"{name}_step", -(-(extent + padding) // stride) - first)
        self.phase = Axis(f"{name}_phase", stride)
        self.element = _along(self.step, stride) + _along(self.phase) + (first * stride - padding)
        """The position along the axis."""
        over = -(-kernel // stride)
        self.nth_window = Axis(f"{name}_window", over)
        self.window = _along(self.step) + _along(self.nth_window) + (first + 1 - over)
        """The window, of all along the axis."""
        self.bounds = _bounds(self.element, self.element.offset, self.step.size * stride, extent)
        self.window_bounds = _bounds(self.window, self.window.offset, self.step.size + over - 1, windows)
        # The window begins `(over - 1 - nth_window) * stride` rows before the step's first.
        inside = _along(self.phase) + _along(self.nth_window, -stride) + (over - 1) * stride
        self.kernel_bounds = _bounds(inside, 0, over * stride, kernel)


def pooling_as_gather(op: Op) -> Part | None:
    """The part of a kernel that is the gradient of pooling, with threads for all of its result; None for other kernels.

    Exact: windows in rising order of rows and columns; those of the padding are left out; no images, no items.
    """
    if len(op.blocks[0].ops) != 1 or op.blocks[0].ops[0].declared not in POOLING:
        return None
    (pooling,) = op.blocks[0].ops
    attrs, nest = pooling.attrs, op.attrs["nest"]
    n, channels, height, width = attrs["input_shape"]
    rows, columns = pooling.operands[0].tensor.shape[2:]
    (ky, kx), (sy, sx), (py, px) = attrs["kernel"], attrs["stride"], attrs["padding"]
    # An element between those of a wide window looks there in vain: its place is compared.
    (apart_y, apart_x) = attrs.get("dilation", (1, 1))
    if 0 in (n, channels, height, width) or _is_apart(attrs, height, width):
        return None
    plane = Axis("plane", n * channels)
    y, x = (
        _Side("y", height, rows, apart_y * (ky - 1) + 1, sy, py),
        _Side("x", width, columns, apart_x * (kx - 1) + 1, sx, px),
    )
    window = _along(plane, rows * columns) + y.window * columns + x.window
    is_mean = pooling.declared is prims.AVG_POOL2D_BACKWARD
    bounds = (*y.window_bounds, *x.window_bounds, *((*y.kernel_bounds, *x.kernel_bounds) if is_mean else ()))
    several = y.nth_window.extent * x.nth_window.extent > 1
    guards = () if several else bounds
    if is_mean:
        body, part = _of_mean(nest, window, guards, ky * kx)
    else:
        body, part = _of_maximum(nest, window, guards, y.element * width + x.element)
    if several:
        total = Reduction(Local("total", nest.outputs[0].dtype), prims.SUM)
        inner: tuple[Statement, ...] = (*body, Accumulate(total, part))
        inner = (Guarded(bounds, inner),) if bounds else inner
        for axis in (x.nth_window, y.nth_window):
            inner = (Loop(axis, inner),) if axis.extent > 1 else inner
        (outermost,) = inner
        assert isinstance(outermost, Loop)
        body, part = [Loop(outermost.axis, outermost.body, (total,))], total.target
    place = _along(plane, height * width) + y.element * width + x.element
    store: Statement = Store(nest.outputs[0], place, part)
    if y.bounds or x.bounds:
        store = Guarded((*y.bounds, *x.bounds), (store,))
    # Neighbouring threads have neighbouring elements.
    axes = tuple(axis for axis in (plane, y.step, y.phase, x.step, x.phase) if axis.size != 1)
    return Part(axes, (*body, store), ())


def _is_apart(attrs: Attrs, height: Extent, width: Extent) -> bool:
    """Return whether windows of 2 x 2 side by side fill the image: then each of them writes its own elements,
    in pairs."""
    sides = attrs["kernel"] == attrs["stride"] == (2, 2) and attrs["padding"] == (0, 0)
    sides = sides and attrs.get("dilation", (1, 1)) == (1, 1)
    return bool(sides and height % 2 == 0 and width % 2 == 0)


def _of_maximum(
    nest: Nest, window: Affine, guards: tuple[Bound, ...], element: Affine
) -> tuple[list[Statement], Local]:
    """The cotangent of a window whose maximum is the element: statements, and what they find."""
    cotangents, places = (source for source in nest.inputs if isinstance(source, ArrayRef))
    place, at, here = Local("place", i32), Local("element", i32), Local("here", bool_)
    given, part = Local("given", cotangents.dtype), Local("part", cotangents.dtype)
    nothing = Constant(0.0 if cotangents.dtype.is_float else 0, cotangents.dtype)
    body: list[Statement] = [
        Load(place, places, window, guards, Constant(-1, i32) if guards else None),
        PositionOf(at, element),
        Compute(here, prims.EQUAL, (place, at), {}),
        Load(given, cotangents, window, guards, nothing if guards else None),
        Compute(part, prims.SELECT, (here, given, nothing), {}),
    ]
    return body, part


def _of_mean(nest: Nest, window: Affine, guards: tuple[Bound, ...], count: int) -> tuple[list[Statement], Local]:
    """The element's share of a window of `count` elements: statements, and what they find."""
    (cotangents,) = (source for source in nest.inputs if isinstance(source, ArrayRef))
    given, share = Local("given", cotangents.dtype), Local("share", cotangents.dtype)
    body: list[Statement] = [
        Load(given, cotangents, window, guards, Constant(0.0, cotangents.dtype) if guards else None),
        Compute(share, prims.DIVIDE, (given, Constant(float(count), cotangents.dtype)), {}),
    ]
    return body, share
