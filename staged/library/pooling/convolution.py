"""Convolutions of lines, images and volumes, and their transposes: by the ops for images.

A line is an image of one row. `conv3d` copies the input to images with the channels of kD depths, and convolves these
with a kernel of kH x kW. The weight has that layout already. So `conv3d` is as fast as `conv2d`, except for the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.errors import StagedError
from staged.ir.sizes import Extent, largest
from staged.ir.types import Shape, TensorType
from staged.library.pooling.ranks import AXES, check_windows, sizes
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.context import refuse_complex
from staged.ops.convolution import Sizes, convolve_images, infer_convolution, spread_images
from staged.ops.joining import stack
from staged.ops.promote import describe, fixed_size, promoted, shape_error, whole
from staged.ops.public import public
from staged.ops.shape import embed, expand_dims, pad, permute_dims, reshape, slice_axis, squeeze
from staged.source import here

# ---- convolutions ---------------------------------------------------------------------------------


def _convolution(
    rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    array, w = promoted(x, weight)
    batched = array.ndim != rank + 1
    if not batched:
        array = reshape(array, (1, *array.shape))
    steps, apart = sizes(stride, "stride", rank), sizes(dilation, "dilation", rank)
    if isinstance(padding, str):
        array, edges = _named_padding(rank, array, w, padding, steps, apart)
    else:
        edges = sizes(padding, "padding", rank)
    y = _convolved(array, w, bias, {"stride": steps, "padding": edges, "dilation": apart, "groups": whole(groups)})
    check_windows(f"conv{rank}d", array, y.shape[2:])
    return y if batched else reshape(y, y.shape[1:])


def _named_padding(rank: int, x: Array, w: Array, padding: str, stride: Sizes, dilation: Sizes) -> tuple[Array, Sizes]:
    none = (0,) * rank
    if padding == "valid":
        return x, none
    if padding != "same" or stride != (1,) * rank or w.ndim != rank + 2 or x.ndim != rank + 2:
        many = {1: "an int", 2: "an int, a pair", 3: "an int, three ints"}[rank]
        raise shape_error(
            f"conv{rank}d: padding {padding!r} with stride {stride} does not go",
            x,
            w,
            hint=f'padding is {many}, "valid", or "same" with stride 1',
        )
    total = [dilation[axis] * (fixed_size(f"conv{rank}d", w, 2 + axis) - 1) for axis in range(rank)]
    if not any(each % 2 for each in total):
        return x, tuple(each // 2 for each in total)
    # One more after than before, as torch has it.
    return pad(x, [(0, 0), (0, 0), *((each // 2, each - each // 2) for each in total)]), none


def _check(x: Array, w: Array, x_type: TensorType, attrs: dict[str, Any]) -> Any:
    """The type of a convolution of lines or volumes of `x_type`; an error shows the operands `x` and `w`."""
    if x.dtype.is_complex and w.dtype.is_complex:
        refuse_complex(f"conv{len(attrs['stride'])}d", [x, w])
    try:
        return infer_convolution(x_type, w.type, **attrs)
    except StagedError as error:
        error.where, error.details = here(), describe(x, w)
        raise


def _of_planes(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a convolution of the images of volumes."""
    return {name: each[1:] if isinstance(each, tuple) else each for name, each in attrs.items()}


def _of_one_row(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a convolution of images of one row, from those of lines."""
    first = {"stride": 1, "padding": 0, "dilation": 1}
    return {name: (first[name], *each) if name in first else each for name, each in attrs.items()}


def _convolved(x: Array, w: Array, bias: Any, attrs: dict[str, Any]) -> Array:
    rank = len(attrs["stride"])
    if rank == 2:
        return _with_bias(convolve_images(x, w, attrs), bias)
    result = _check(x, w, x.type, attrs)
    if rank == 1:
        return squeeze(_convolved(expand_dims(x, -2), expand_dims(w, -2), bias, _of_one_row(attrs)), -2)
    batch, channels, _, rows, columns = x.shape
    taps, count = fixed_size("conv3d", w, 2), result.shape[2]
    step, edge, apart = (attrs[name][0] for name in ("stride", "padding", "dilation"))
    wide = pad(x, [(0, 0), (0, 0), (edge, edge), (0, 0), (0, 0)])
    depths = [slice_axis(wide, 2, tap * apart, tap * apart + (count - 1) * step + 1, step) for tap in range(taps)]
    # (N, C, kD, OD, H, W) -> (N * OD, C * kD, H, W)
    images = permute_dims(stack(depths, 2), (0, 3, 1, 2, 4, 5))
    images = reshape(images, (batch * count, channels * taps, rows, columns))
    flat = reshape(w, (w.shape[0], fixed_size("conv3d", w, 1) * taps, *w.shape[3:]))
    y = convolve_images(images, flat, _of_planes(attrs))
    return _with_bias(permute_dims(reshape(y, (batch, count, *y.shape[1:])), (0, 2, 1, 3, 4)), bias)


def _with_bias(y: Array, bias: Any) -> Array:
    if bias is None:
        return y
    y, added = promoted(y, bias)
    if added.shape != y.shape[1:2]:
        raise shape_error(
            f"the bias of a convolution must have one number per output channel, {y.shape[1]}, got {added.type}",
            y,
            added,
            hint="the shape of the bias is (O,)",
        )
    return y + reshape(added, (1, -1, *(1,) * (y.ndim - 2)))


@public("conv1d")
def conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """One-dimensional cross-correlation: `conv2d` on images of one row. torch `nn.functional.conv1d`.

    Shapes: x (N, C, L) or (C, L); weight (O, C / groups, K); bias (O,); result (N, O, OL).
    """
    return _convolution(1, x, weight, bias, stride, padding, dilation, groups)


@public("conv2d")
def conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """Two-dimensional cross-correlation. torch `nn.functional.conv2d`.

    Shapes: x (N, C, H, W) or (C, H, W); weight (O, C / groups, kH, kW); bias (O,); result (N, O, OH, OW).
    `padding` is an int, a pair, "valid" (none) or "same" (the size stays; stride 1). Raises ShapeError where channels
    do not fit or the kernel is larger than the padded input, DTypeError for integers.
    """
    return _convolution(2, x, weight, bias, stride, padding, dilation, groups)


@public("conv3d")
def conv3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """Three-dimensional cross-correlation. torch `nn.functional.conv3d`.

    Shapes: x (N, C, D, H, W) or (C, D, H, W); weight (O, C / groups, kD, kH, kW); bias (O,); result (N, O, OD, OH, OW).
    `padding` as in `conv2d`.
    """
    return _convolution(3, x, weight, bias, stride, padding, dilation, groups)


# ---- transposed convolutions ----------------------------------------------------------------------


def _transposed(rank: int, x: Any, weight: Any, bias: Any, groups: int, given: Sequence[Any]) -> Array:
    name = f"conv_transpose{rank}d"
    array, w = promoted(x, weight)
    if array.ndim not in (rank + 1, rank + 2) or w.ndim != rank + 2 or array.shape[-rank - 1] != w.shape[0]:
        taps = {1: "K", 2: "kH, kW", 3: "kD, kH, kW"}[rank]
        raise shape_error(
            f"{name} does not fit {array.type} and a weight {w.type}",
            array,
            w,
            hint=f"layouts: input (N, C, {AXES[rank]}), weight (C, O / groups, {taps})",
        )
    batched = array.ndim == rank + 2
    if not batched:
        array = reshape(array, (1, *array.shape))
    what = ("stride", "padding", "output_padding", "dilation")
    steps, edges, extra, apart = (sizes(*each, rank) for each in zip(given, what, strict=True))
    extents: list[Extent] = []
    for axis in range(rank):
        if not 0 <= extra[axis] < max(steps[axis], apart[axis]):
            raise shape_error(
                f"{name}: output_padding {extra} is below neither the stride {steps} nor the dilation {apart}",
                array,
                hint="output_padding picks one of the sizes that the stride of the convolution makes alike",
            )
        extent, kernel = array.shape[2 + axis], fixed_size(name, w, 2 + axis)
        spread = (extent - 1) * steps[axis] - 2 * edges[axis] + apart[axis] * (kernel - 1) + extra[axis] + 1
        extents.append(largest(spread, 0))
    for extent in extents:
        message = f"{name}: padding {edges} leaves nothing of {array.type}"
        check_sizes(extent > 0, message, array, hint="use a smaller padding")
    attrs = {"stride": steps, "padding": edges, "dilation": apart, "groups": whole(groups)}
    if rank != 2:
        _check(array, w, TensorType(array.dtype, (array.shape[0], fixed_size(name, w, 1) * groups, *extents)), attrs)
    y = _spread(array, w, bias, tuple(extents), extra, attrs)
    return y if batched else reshape(y, y.shape[1:])


def _spread(x: Array, w: Array, bias: Any, extents: Shape, extra: Sizes, attrs: dict[str, Any]) -> Array:
    """Each element of `x` spread by the kernel. The last axes of the result have the sizes `extents`."""
    rank, groups = len(extents), attrs["groups"]
    if rank == 1:
        row = _spread(expand_dims(x, -2), expand_dims(w, -2), bias, (1, *extents), (0, *extra), _of_one_row(attrs))
        return squeeze(row, -2)
    outputs = fixed_size("conv_transpose", w, 1) * groups
    if rank == 2:
        # Zeros after the image add nothing: each makes the result longer by a stride.
        after = [(0, more // max(step, 1)) for more, step in zip(extra, attrs["stride"], strict=True)]
        x = pad(x, [(0, 0), (0, 0), *after])
        return _with_bias(spread_images(x, w, (x.shape[0], outputs, *extents), attrs), bias)
    batch, channels, depth = x.shape[:3]
    step, edge, apart = (attrs[name][0] for name in ("stride", "padding", "dilation"))
    taps = fixed_size("conv_transpose3d", w, 2)
    images = reshape(permute_dims(x, (0, 2, 1, 3, 4)), (batch * depth, channels, *x.shape[3:]))
    flat = reshape(w, (channels, outputs // groups * taps, *w.shape[3:]))
    y = _spread(images, flat, None, extents[1:], extra[1:], _of_planes(attrs))
    # (N * D, O * kD, OH, OW): what each depth adds, through each tap, to the depths around it.
    parts = reshape(y, (batch, depth, outputs, taps, *y.shape[2:]))
    wide = (batch, extents[0] + 2 * edge, outputs, *y.shape[2:])
    total: Array | None = None
    for tap in range(taps):
        part = squeeze(slice_axis(parts, 3, tap, tap + 1), 3)
        placed = embed(part, wide, (0, tap * apart, 0, 0, 0), (1, step, 1, 1, 1))
        total = placed if total is None else total + placed
    assert total is not None
    inner = slice_axis(total, 1, edge, edge + extents[0])
    return _with_bias(permute_dims(inner, (0, 2, 1, 3, 4)), bias)


@public("conv_transpose1d")
def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    """The transpose of `conv1d`: `conv_transpose2d` on images of one row. torch `nn.functional.conv_transpose1d`.

    Shapes: x (N, C, L) or (C, L); weight (C, O / groups, K); bias (O,); result (N, O, OL).
    """
    return _transposed(1, x, weight, bias, groups, (stride, padding, output_padding, dilation))


@public("conv_transpose2d")
def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    """The transpose of `conv2d`, which spreads each element by the kernel. torch `nn.functional.conv_transpose2d`.

    Shapes: x (N, C, H, W) or (C, H, W); weight (C, O / groups, kH, kW); bias (O,); result (N, O, OH, OW) with
    OH = (H - 1) * stride - 2 padding + dilation * (kH - 1) + output_padding + 1. Raises ShapeError where sizes do not
    fit, or `output_padding` is below neither the stride nor the dilation.
    """
    return _transposed(2, x, weight, bias, groups, (stride, padding, output_padding, dilation))


@public("conv_transpose3d")
def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    """The transpose of `conv3d`, which spreads each element by the kernel. torch `nn.functional.conv_transpose3d`.

    Shapes: x (N, C, D, H, W) or (C, D, H, W); weight (C, O / groups, kD, kH, kW); bias (O,); sizes as in
    `conv_transpose2d`.
    """
    return _transposed(3, x, weight, bias, groups, (stride, padding, output_padding, dilation))
