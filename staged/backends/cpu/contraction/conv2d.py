"""Convolution, and its gradient with respect to the image, as C text.

Both are a matrix product: (channels out, channels in * taps) @ (channels in * taps, pixels), the right operand read
from shifted planes of the image (planes.py). A work item is a block of rows of one sample (and one group of channels):
it lays out the planes in its scratch memory and runs register tiles of channels by pixels over them.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from staged.backends.cpu.contraction.conv2d_columns import emit_columns, plan_columns
from staged.backends.cpu.contraction.conv2d_plan import plan_conv2d
from staged.backends.cpu.contraction.conv2d_points import emit_points, is_pointwise
from staged.backends.cpu.contraction.conv2d_sized import emit_sized
from staged.backends.cpu.contraction.conv2d_sized_columns import emit_sized_columns
from staged.backends.cpu.contraction.conv2d_weight import emit_backward_weight
from staged.backends.cpu.contraction.convolve import emit_convolved
from staged.backends.cpu.contraction.items import no_items
from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.planes import backward_window, forward_window
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, MatmulSpec
from staged.ir.machine import Machine
from staged.ir.types import row_major

LEAST_CHANNELS, LEAST_CHANNELS_OF_GRADIENT = 5, 8
"""Channels of a group of the result from which on tiles of channels are fast."""
MOST_PADDING = 1.03
"""Pixels of an image for each pixel of y up to which its gradient is computed by windows."""


def emit_conv2d(spec: Conv2dSpec, machine: Machine) -> ContractionKernel:
    """The C text of one product of a convolution for one machine.

    Numerics: each result of "forward" and "backward_input" is a sum in ascending order of channel, row and column of
    the weights, in chains of bounded length that are then added up; "backward_weight" adds partial sums in an order
    that depends on the spec and the machine alone.
    """
    results = {
        "forward": spec.n * spec.oc * spec.out_h * spec.out_w,
        "backward_input": spec.n * spec.c * spec.h * spec.w,
        "backward_weight": spec.oc * spec.c * spec.kh * spec.kw,
    }
    assert spec.dtype.is_float, f"conv2d {spec.name}: no kernel for {spec.dtype}"
    if results[spec.kind] == 0:
        return no_items(spec)
    assert spec.multiply_adds and forward_window(spec).meets_image(), "convolutions of nothing are simplified to zeros"
    if spec.kind == "backward_weight":
        return emit_backward_weight(spec, machine)
    plan = plan_conv2d(spec, machine)
    if spec.images is not None and not spec.images.have_one_size:
        if is_pointwise(spec):
            return emit_points(spec, machine)
        if spec.kind == "forward" or (spec.kh > 1 and is_window(spec, machine)):
            return emit_sized(plan, spec.images, machine)
        return emit_sized_columns(spec, machine)
    if spec.images is not None and spec.kind == "forward":
        return emit_convolved(plan)
    if not is_window(spec, machine):
        product = pointwise_product(spec) if spec.images is None else None
        if product is not None:
            return emit_matmul(product, machine)
        columns = plan_columns(spec, machine) if spec.kind == "backward_input" else None
        if columns is not None and columns.cycles < plan.cycles:
            return emit_columns(columns)
    return emit_convolved(plan)


def is_window(spec: Conv2dSpec, machine: Machine) -> bool:
    """Return whether a convolution is computed by windows of the image, whatever other ways would take."""
    made, window = (spec.oc, forward_window(spec)) if spec.kind == "forward" else (spec.c, backward_window(spec))
    is_sized = spec.images is not None and not spec.images.have_one_size
    pixels, lanes = window.out[0] * window.out[1], machine.lanes(spec.dtype.size)
    if spec.stride != (1, 1) or machine.vector_bytes < 32 or pixels < lanes:
        return False
    if spec.kind == "forward":
        return made // spec.groups >= LEAST_CHANNELS
    planes = spec.oc // spec.groups * window.channel_items(window.out[0]) * spec.dtype.size
    is_dense = pixels <= MOST_PADDING * window.image[0] * window.image[1] and planes <= machine.l2 // 2
    is_depthwise = is_sized and spec.oc == spec.groups
    return (made // spec.groups >= LEAST_CHANNELS_OF_GRADIENT or is_depthwise) and is_dense


def pointwise_product(spec: Conv2dSpec) -> MatmulSpec | None:
    """A 1 x 1 convolution as the batched product that it is, (outer, inner) @ (inner, pixels); None for any other."""
    if not is_pointwise(spec) or (spec.groups > 1 and spec.epilogue is not None):
        return None
    c, oc, pixels = spec.c // spec.groups, spec.oc // spec.groups, spec.h * spec.w
    outer, inner, weight = (oc, c, (c, 1)) if spec.kind == "forward" else (c, oc, (1, c))
    return MatmulSpec(
        spec.name,
        outer,
        pixels,
        inner,
        spec.dtype,
        batch=(spec.n, spec.groups),
        a_strides=(0, oc * c, *weight),
        b_strides=row_major(spec.n, spec.groups, inner, pixels),
        c_strides=row_major(spec.n, spec.groups, outer, pixels),
        epilogue=spec.epilogue,
        operand_names=spec.operand_names[::-1],
        right_first=True,
        result_name=spec.result_name,
        comments=spec.comments,
        table=spec.table,
    )
