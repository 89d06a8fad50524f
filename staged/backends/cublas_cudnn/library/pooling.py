"""Means over windows, and their gradients, by cuDNN.

Padding counts as zeros, as in cuDNN's mode that includes it; that of `count_include_pad=False` is this, times a factor
for each window.

Maxima are kernels. Their gradient goes to the first of equal elements, and cuDNN leaves open to which; a maximum of
nothing but -inf is -inf, and cuDNN's maxima begin at the lowest finite number. The kernel has the places of the maxima
for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.backends.cublas_cudnn.device import DevicePart
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.cudnn import (
    MOST_ELEMENTS,
    MOST_IMAGES,
    by,
    descriptor_part,
    handle_part,
    tensor_part,
)
from staged.code.expr import literal
from staged.code.writer import Writer
from staged.ir.nodes import Block, Op
from staged.ir.types import Shape, TensorType
from staged.ops.library_calls import Way, library_call

FORWARD, BACKWARD = "avg_pool2d", "avg_pool2d_backward"
MOST_IN_WINDOW = 512
"""Elements of a window: some versions of cuDNN take no more than about a thousand."""


def _fits(x: Shape, kernel: Sequence[int], dtype: Any) -> bool:
    if not all(isinstance(extent, int) for extent in x):
        return False
    size = TensorType(dtype, x).size
    images = max(int(x[0]), int(x[1]))  # type: ignore[arg-type]
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


def _parts(op: Op, site: int, x: TensorType, y: TensorType) -> tuple[str, str, str, list[DevicePart]]:
    """The fields of the window, x and y, and all parts."""
    kernel, padding, stride = (tuple(op.attrs[key]) for key in ("kernel", "padding", "stride"))
    name = f"mean_over{by(kernel)}_padding{by(padding)}_stride{by(stride)}"
    numbers = ", ".join(map(str, (*kernel, *padding, *stride)))
    mode = "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING"
    setting = f"cudnnSetPooling2dDescriptor(gpu->{name}, {mode}, CUDNN_PROPAGATE_NAN, {numbers})"
    x_field, x_part = tensor_part(site, x.dtype, [int(extent) for extent in x.shape])  # type: ignore[arg-type]
    y_field, y_part = tensor_part(site, y.dtype, [int(extent) for extent in y.shape])  # type: ignore[arg-type]
    parts = [handle_part(site), x_part, y_part, descriptor_part(site, name, "Pooling", setting)]
    return f"gpu->{name}", f"gpu->{x_field}", f"gpu->{y_field}", parts


def _write_factors(w: Writer, type: TensorType) -> None:
    w.line(f"const {type.dtype.c_name} one = {literal(1.0, type.dtype)};")
    w.line(f"const {type.dtype.c_name} zero = {literal(0.0, type.dtype)};")


def emit_forward(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the means."""
    x_type, y_type = op.operands[0].tensor, op.results[0].tensor
    window, x, y, parts = _parts(op, site, x_type, y_type)

    def body(w: Writer) -> None:
        _write_factors(w, x_type)
        write_call(w, "CUDNN_CHECK", "cudnnPoolingForward(gpu->cudnn", [window, "&one", x, "x", "&zero", y, "y"])

    return whole_call(op, name, ["x"], ["y"], [f"x {x_type.shape}: means over windows"], body, parts)


def emit_backward(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the gradient."""
    x_type, y_type = op.results[0].tensor, op.operands[0].tensor
    window, x, y, parts = _parts(op, site, x_type, y_type)

    def body(w: Writer) -> None:
        _write_factors(w, x_type)
        w.comment("Of means it reads neither y nor x, whose places the gradients take.")
        arguments = [window, "&one", y, "d_y", y, "d_y", x, "d_x", "&zero", x, "d_x"]
        write_call(w, "CUDNN_CHECK", "cudnnPoolingBackward(gpu->cudnn", arguments)

    comments = [f"x {x_type.shape}: the gradient of means over windows"]
    return whole_call(op, name, ["d_y"], ["d_x"], comments, body, parts)


EMITTERS: dict[str, Any] = {FORWARD: emit_forward, BACKWARD: emit_backward}
