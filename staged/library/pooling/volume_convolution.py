"""Convolutions of volumes and transposed convolutions of lines and volumes, by those of images.

A kernel of kD x kH x kW taps on a volume is one of kH x kW on images whose channels are those of kD depths: the weight
has that layout already, so conv3d is one copy of the input and one convolution of images, as fast as these are.
"""

from __future__ import annotations

from typing import Any

from staged.library.pooling.volumes import Triple, triple
from staged.ops.array import Array
from staged.ops.convolution import check_line, check_output_padding, conv2d, conv_transpose2d, single, window_count
from staged.ops.joining import stack
from staged.ops.promote import fixed_size, promoted, shape_error
from staged.ops.public import public
from staged.ops.shape import embed, expand_dims, pad, permute_dims, reshape, slice_axis, squeeze

_LAYOUTS = "layouts: input (N, C, D, H, W), weight (O, C / groups, kD, kH, kW)"


def _checked(
    name: str, x: Array, w: Array, groups: Any, stride: Triple, dilation: Triple, edges: tuple[int, ...]
) -> Array:
    """The volumes with a batch."""
    if x.ndim not in (4, 5) or w.ndim != 5:
        raise shape_error(f"{name} does not fit {x.type} and a weight {w.type}", x, w, hint=_LAYOUTS)
    if min(*stride, *dilation) < 1 or min(edges, default=0) < 0 or not isinstance(groups, int) or groups < 1:
        raise shape_error(f"{name}: stride {stride}, padding {edges}, dilation {dilation}, groups {groups} do not go")
    return reshape(x, (1, *x.shape)) if x.ndim == 4 else x


def _with_bias(y: Array, bias: Any, batched: bool) -> Array:
    if bias is not None:
        y, added = promoted(y, bias)
        if added.shape != y.shape[1:2]:
            raise shape_error(
                f"a convolution's bias has one number per output channel, {y.shape[1]}, got {added.type}", y, added
            )
        y = y + reshape(added, (1, -1, 1, 1, 1))
    return y if batched else reshape(y, y.shape[1:])


def _named(padding: str, x: Array, w: Array, stride: Triple, dilation: Triple) -> tuple[Array, Triple]:
    """The volume padded by what a word means; "same" puts one more after than before, as torch has it."""
    if padding == "valid":
        return x, (0, 0, 0)
    if padding != "same" or stride != (1, 1, 1):
        raise shape_error(
            f"conv3d: padding {padding!r} with stride {stride} does not go",
            x,
            w,
            hint='padding is an int, three ints, "valid", or "same" with stride 1',
        )
    total = [dilation[axis] * (fixed_size("conv3d", w, 2 + axis) - 1) for axis in range(3)]
    return pad(x, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)]), (0, 0, 0)


@public("conv3d")
def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Three-dimensional cross-correlation. torch `nn.functional.conv3d`.

    Shapes: x (N, C, D, H, W) or (C, D, H, W); weight (O, C / groups, kD, kH, kW); bias (O,); result (N, O, OD, OH, OW).
    `padding` as in `conv2d`.
    """
    volume, w = promoted(x, weight)
    batched = volume.ndim == 5
    strides, dilations = triple(stride, "stride"), triple(dilation, "dilation")
    edges = (0, 0, 0) if isinstance(padding, str) else triple(padding, "padding")
    volume = _checked("conv3d", volume, w, groups, strides, dilations, edges)
    if isinstance(padding, str):
        volume, edges = _named(padding, volume, w, strides, dilations)
    taps, channels = fixed_size("conv3d", w, 2), fixed_size("conv3d", volume, 1)
    if channels != fixed_size("conv3d", w, 1) * groups:
        raise shape_error(
            f"conv3d needs {channels} input channels to be {w.shape[1]} per group in {groups} groups, "
            f"got {volume.type} and {w.type}",
            volume,
            w,
            hint=_LAYOUTS,
        )
    count = window_count(volume.shape[2], taps, strides[0], edges[0], dilations[0])
    if count < 1:
        raise shape_error(f"conv3d: the kernel of {w.type} is larger than the padded input {volume.type}", volume, w)
    wide = pad(volume, [(0, 0), (0, 0), (edges[0],) * 2, (0, 0), (0, 0)])
    depths = [
        slice_axis(wide, 2, tap * dilations[0], tap * dilations[0] + (count - 1) * strides[0] + 1, strides[0])
        for tap in range(taps)
    ]
    # (N, C, kD, OD, H, W) -> (N * OD, C * kD, H, W)
    images = permute_dims(stack(depths, 2), (0, 3, 1, 2, 4, 5))
    rows, columns = fixed_size("conv3d", volume, 3), fixed_size("conv3d", volume, 4)
    batch = fixed_size("conv3d", volume, 0)
    images = reshape(images, (batch * count, channels * taps, rows, columns))
    outputs, per_group = fixed_size("conv3d", w, 0), fixed_size("conv3d", w, 1)
    flat = reshape(w, (outputs, per_group * taps, *w.shape[3:]))
    y = conv2d(images, flat, None, strides[1:], edges[1:], dilations[1:], groups)
    y = permute_dims(reshape(y, (batch, count, *y.shape[1:])), (0, 2, 1, 3, 4))
    return _with_bias(y, bias, batched)


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
    line, w = promoted(x, weight)
    check_line("conv_transpose1d", line, w)
    y = conv_transpose2d(
        expand_dims(line, -2),
        expand_dims(w, -2),
        bias,
        (1, single(stride, "stride")),
        (0, single(padding, "padding")),
        (0, single(output_padding, "output_padding")),
        groups,
        (1, single(dilation, "dilation")),
    )
    return squeeze(y, -2)


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
    volume, w = promoted(x, weight)
    batched = volume.ndim == 5
    strides, dilations = triple(stride, "stride"), triple(dilation, "dilation")
    edges, extra = triple(padding, "padding"), triple(output_padding, "output_padding")
    volume = _checked("conv_transpose3d", volume, w, groups, strides, dilations, (*edges, *extra))
    if volume.shape[1] != w.shape[0]:
        raise shape_error(
            f"conv_transpose3d does not fit {volume.type} and a weight {w.type}",
            volume,
            w,
            hint="layouts: input (N, C, D, H, W), weight (C, O / groups, kD, kH, kW)",
        )
    check_output_padding("conv_transpose3d", volume, 0, extra, strides, dilations)
    batch, channels, depth = (fixed_size("conv_transpose3d", volume, axis) for axis in range(3))
    per_group, taps = fixed_size("conv_transpose3d", w, 1), fixed_size("conv_transpose3d", w, 2)
    images = permute_dims(volume, (0, 2, 1, 3, 4))
    images = reshape(images, (batch * depth, channels, *volume.shape[3:]))
    flat = reshape(w, (channels, per_group * taps, *w.shape[3:]))
    y = conv_transpose2d(images, flat, None, strides[1:], edges[1:], extra[1:], groups, dilations[1:])
    # (N * D, O * kD, OH, OW): what each depth adds, through each tap, to the depths around it.
    parts = reshape(y, (batch, depth, per_group * groups, taps, *y.shape[2:]))
    reach = (depth - 1) * strides[0] + dilations[0] * (taps - 1) + 1 + extra[0]
    size = reach - 2 * edges[0]
    if size < 1:
        raise shape_error(f"conv_transpose3d: padding {edges} leaves nothing of {volume.type}", volume)
    wide = (batch, reach, per_group * groups, *y.shape[2:])
    total: Array | None = None
    for tap in range(taps):
        part = squeeze(slice_axis(parts, 3, tap, tap + 1), 3)
        placed = embed(part, wide, (0, tap * dilations[0], 0, 0, 0), (1, strides[0], 1, 1, 1))
        total = placed if total is None else total + placed
    assert total is not None
    inner = slice_axis(total, 1, edges[0], edges[0] + size)
    return _with_bias(permute_dims(inner, (0, 2, 1, 3, 4)), bias, batched)
