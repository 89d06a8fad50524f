"""Means over windows, and their gradients, by cuDNN.

Padding counts as zeros, as in cuDNN's mode that includes it; that of `count_include_pad=False` is this, times a factor
for each window.

Maxima are kernels. Their gradient goes to the first of equal elements, and cuDNN leaves open to which; a maximum of
nothing but -inf is -inf, and cuDNN's maxima begin at the lowest finite number. The kernel has the places of the maxima
for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staged.backends.cublas_cudnn.device import DevicePart
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call, write_zeros
from staged.backends.cublas_cudnn.library.cudnn import (
    MOST_ELEMENTS,
    MOST_IMAGES,
    by,
    descriptor_part,
    handle_part,
    tensor_part,
)
from staged.backends.cublas_cudnn.library.plans import (
    FIND,
    FIND_ARRAYS,
    plans_part,
    write_plan,
    write_plan_function,
)
from staged.code.expr import literal
from staged.code.writer import Writer
from staged.ir.nodes import Block, Op
from staged.ir.types import Shape, TensorType, bound
from staged.ops.library_calls import Way, library_call

FORWARD, BACKWARD = "avg_pool2d", "avg_pool2d_backward"
MOST_IN_WINDOW = 512
"""Elements of a window: some versions of cuDNN take no more than about a thousand."""


def _fits(x: Shape, kernel: Sequence[int], dtype: Any) -> bool:
    size = TensorType(dtype, x).size
    images = max(bound(x[0]), bound(x[1]))
    return 0 < size < MOST_ELEMENTS and images <= MOST_IMAGES and kernel[0] * kernel[1] <= MOST_IN_WINDOW


def forward(op: Op, block: Block) -> Way | None:
    """`avg_pool2d`."""
    if not _fits(op.operands[0].tensor.shape, op.attrs["kernel"], op.operands[0].tensor.dtype):
        return None
    return Way(lambda context, x: library_call(FORWARD, [x], [op.results[0].tensor], **op.attrs))


def backward(op: Op, block: Block) -> Way | None:
    """`avg_pool2d_backward`."""
    if not _fits(op.attrs["input_shape"], op.attrs["kernel"], op.operands[0].tensor.dtype):
        return None
    return Way(lambda context, ct: library_call(BACKWARD, [ct], [op.results[0].tensor], **op.attrs))


WAYS = {FORWARD: forward, BACKWARD: backward}


@dataclass(frozen=True, slots=True)
class _Described:
    """The needs of a call: the descriptors of the window, x and y, the parts that have them, and functions."""

    window: str
    x: str
    y: str
    parts: tuple[DevicePart, ...]
    helpers: tuple[str, ...] = ()
    find_plan: str = ""
    """The function that finds the plan of a call with sizes."""


def _described(op: Op, name: str, site: int, x: TensorType, y: TensorType) -> _Described:
    kernel, padding, stride = (tuple(op.attrs[key]) for key in ("kernel", "padding", "stride"))
    field = f"mean_over{by(kernel)}_padding{by(padding)}_stride{by(stride)}"
    numbers = ", ".join(map(str, (*kernel, *padding, *stride)))
    mode = "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING"
    setting = f"cudnnSetPooling2dDescriptor(gpu->{field}, {mode}, CUDNN_PROPAGATE_NAN, {numbers})"
    window = descriptor_part(site, field, "Pooling", setting)
    dims = op.attrs.get("dims", ())
    if dims:
        find = write_plan_function(name, x.dtype, {"x": x.shape, "y": y.shape}, dims, "plan_arrays")
        plans = plans_part(site, name, dims, has_algorithm=False)
        described = f"gpu->{field}", "plan->x", "plan->y", (handle_part(site), window, plans)
        return _Described(*described, (FIND, FIND_ARRAYS), find)
    x_field, x_part = tensor_part(site, x.dtype, list(map(bound, x.shape)))
    y_field, y_part = tensor_part(site, y.dtype, list(map(bound, y.shape)))
    parts = handle_part(site), x_part, y_part, window
    return _Described(f"gpu->{field}", f"gpu->{x_field}", f"gpu->{y_field}", parts)


def _write_plan(w: Writer, op: Op, name: str, result: str) -> None:
    """The lines of a call with sizes that find its plan, and its end if an array is empty."""
    if dims := op.attrs.get("dims", ()):
        write_plan(w, name, dims)
        with w.block("if (plan->is_missing)"):
            w.comment("An array is empty.")
            write_zeros(w, op, result)
            w.line("return ST_OK;")


def _write_factors(w: Writer, type: TensorType) -> None:
    w.line(f"const {type.dtype.c_name} one = {literal(1.0, type.dtype)};")
    w.line(f"const {type.dtype.c_name} zero = {literal(0.0, type.dtype)};")


def emit_forward(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the means."""
    x_type, y_type = op.operands[0].tensor, op.results[0].tensor
    d = _described(op, name, site, x_type, y_type)

    def body(w: Writer) -> None:
        _write_plan(w, op, name, "y")
        _write_factors(w, x_type)
        write_call(w, "CUDNN_CHECK", "cudnnPoolingForward(gpu->cudnn", [d.window, "&one", d.x, "x", "&zero", d.y, "y"])

    comments = [f"x {x_type.shape}: means over windows"]
    return whole_call(op, name, ["x"], ["y"], comments, body, d.parts, helpers=d.helpers, before=d.find_plan)


def emit_backward(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the gradient."""
    x_type, y_type = op.results[0].tensor, op.operands[0].tensor
    d = _described(op, name, site, x_type, y_type)

    def body(w: Writer) -> None:
        _write_plan(w, op, name, "d_x")
        _write_factors(w, x_type)
        w.comment("Of means it reads neither y nor x, whose places the gradients take.")
        arguments = [d.window, "&one", d.y, "d_y", d.y, "d_y", d.x, "d_x", "&zero", d.x, "d_x"]
        write_call(w, "CUDNN_CHECK", "cudnnPoolingBackward(gpu->cudnn", arguments)

    comments = [f"x {x_type.shape}: the gradient of means over windows"]
    return whole_call(op, name, ["d_y"], ["d_x"], comments, body, d.parts, helpers=d.helpers, before=d.find_plan)


EMITTERS: dict[str, Any] = {FORWARD: emit_forward, BACKWARD: emit_backward}
