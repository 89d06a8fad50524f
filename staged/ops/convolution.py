"""Two-dimensional convolution (cross-correlation, as in neural networks) and its two gradients.

The three are one trilinear form read three ways, so their derivatives are each other. Layouts: x (N, C, H, W),
w (O, C / groups, kH, kW), y (N, O, OH, OW), with OH = (H + 2 pad - dilation * (kH - 1) - 1) // stride + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.types import Dim, Extent, Shape, TensorType, f32, f64, i64
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.contraction import bilinear_jvp
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import promoted, shape_error, whole
from staged.ops.public import public
from staged.ops.shape import expand_dims, pad, reshape, squeeze

Pair = tuple[int, int]


def pair(value: Any, name: str) -> Pair:
    """(v, v) from v, or the pair itself; a ShapeError for anything else."""
    given = tuple(map(whole, value)) if isinstance(value, tuple | list) else (whole(value),) * 2
    if len(given) == 2 and all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        return given[0], given[1]
    raise shape_error(f"{name} is an int or a pair of ints, got {value!r}")


def window_count(extent: Extent, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """The number of windows that fit along an axis; 0 or less if none does."""
    if not isinstance(extent, int):
        raise ShapeError("convolution and pooling need height and width fixed while staging")
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _output(x: Shape, w: Shape, stride: Pair, padding: Pair, dilation: Pair) -> Shape:
    spatial = []
    for axis in (0, 1):
        kernel = w[2 + axis]
        if not isinstance(kernel, int):
            raise ShapeError("convolution needs the height and width of its kernel fixed while staging")
        spatial.append(window_count(x[2 + axis], kernel, stride[axis], padding[axis], dilation[axis]))
    return x[0], w[0], spatial[0], spatial[1]


def _check(x: TensorType, w: TensorType, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> None:
    for what, operand in (("input", x), ("weight", w)):
        if operand.ndim != 4:
            raise ShapeError(
                f"conv2d needs a 4-dimensional {what}, got {operand}",
                hint="layouts: input (N, C, H, W), weight (O, C / groups, kH, kW)",
            )
    if x.dtype is not w.dtype:
        raise DTypeError(f"conv2d needs input and weight of one dtype, got {x} and {w}", hint="cast one of them")
    if not x.dtype.is_float:
        raise DTypeError(f"conv2d takes floats, got {x}", hint="cast it: `st.astype(x, st.f32)`")
    if min(*stride, *dilation, groups) < 1 or min(padding) < 0:
        raise ShapeError(f"conv2d: stride {stride}, padding {padding}, dilation {dilation}, groups {groups} do not go")
    channels, outputs, per_group = x.shape[1], w.shape[0], w.shape[1]
    if not isinstance(per_group, int) or not isinstance(outputs, int) or channels != per_group * groups:
        raise ShapeError(
            f"conv2d needs {channels} input channels to be {per_group} per group in {groups} groups, got {x} and {w}",
            hint="the weight is (O, C / groups, kH, kW)",
        )
    if outputs % groups:
        raise ShapeError(f"conv2d: {outputs} output channels do not divide into {groups} groups")


def _infer_conv(x: TensorType, w: TensorType, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> TensorType:
    _check(x, w, stride, padding, dilation, groups)
    shape = _output(x.shape, w.shape, stride, padding, dilation)
    if any(isinstance(extent, int) and extent < 1 for extent in shape[2:]):
        raise ShapeError(
            f"conv2d: the kernel of {w} is larger than the padded input {x}",
            hint="use a smaller kernel or more padding",
        )
    return TensorType(x.dtype, shape)


def _infer_input(
    ct: TensorType, w: TensorType, input_shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> TensorType:
    result = TensorType(ct.dtype, input_shape)
    made = _infer_conv(result, w, stride, padding, dilation, groups)
    if made != ct:
        raise ShapeError(f"conv2d_backward_input: the cotangent is {made}, got {ct}")
    return result


def _infer_weight(
    x: TensorType, ct: TensorType, weight_shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> TensorType:
    result = TensorType(x.dtype, weight_shape)
    made = _infer_conv(x, result, stride, padding, dilation, groups)
    if made != ct:
        raise ShapeError(f"conv2d_backward_weight: the cotangent is {made}, got {ct}")
    return result


# ---- meaning --------------------------------------------------------------------------------------

Data = np.ndarray[Any, Any]


def _padded(x: Data, padding: Pair) -> Data:
    return np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))


def _reach(tap: int, count: int, stride: int, dilation: int) -> slice:
    """The elements along an axis that one tap of the kernel reads, for all windows."""
    first = tap * dilation
    return slice(first, first + (count - 1) * stride + 1, stride)


def _convolve(x: Data, w: Data, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Data:
    output: Any = _output(x.shape, w.shape, stride, padding, dilation)
    n, o, oh, ow = output
    wide = _padded(x, padding)
    wide = wide.reshape(x.shape[0], groups, x.shape[1] // groups, *wide.shape[2:])
    taps = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.zeros((groups, n, oh, ow, o // groups), x.dtype)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            window = wide[:, :, :, _reach(i, oh, stride[0], dilation[0]), _reach(j, ow, stride[1], dilation[1])]
            for g in range(groups):
                y[g] += np.tensordot(window[:, g], taps[g, :, :, i, j], axes=([1], [1]))
    return np.ascontiguousarray(y.transpose(1, 0, 4, 2, 3)).reshape(n, o, oh, ow)


def _convolve_input(
    ct: Data, w: Data, input_shape: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Data:
    n, c, h, width = input_shape
    oh, ow = ct.shape[2:]
    wide = np.zeros((n, groups, c // groups, h + 2 * padding[0], width + 2 * padding[1]), ct.dtype)
    cts = ct.reshape(n, groups, ct.shape[1] // groups, oh, ow)
    taps = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows, columns = _reach(i, oh, stride[0], dilation[0]), _reach(j, ow, stride[1], dilation[1])
            for g in range(groups):
                part = np.tensordot(cts[:, g], taps[g, :, :, i, j], axes=([1], [0]))
                wide[:, g, :, rows, columns] += part.transpose(0, 3, 1, 2)
    inner = wide[:, :, :, padding[0] : padding[0] + h, padding[1] : padding[1] + width]
    return np.ascontiguousarray(inner).reshape(n, c, h, width)


def _convolve_weight(
    x: Data, ct: Data, weight_shape: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Data:
    o, per_group, kh, kw = weight_shape
    n, _, oh, ow = ct.shape
    wide = _padded(x, padding)
    wide = wide.reshape(n, groups, per_group, *wide.shape[2:])
    cts = ct.reshape(n, groups, o // groups, oh, ow)
    d_w = np.zeros((groups, o // groups, per_group, kh, kw), x.dtype)
    for i in range(kh):
        for j in range(kw):
            window = wide[:, :, :, _reach(i, oh, stride[0], dilation[0]), _reach(j, ow, stride[1], dilation[1])]
            for g in range(groups):
                d_w[g, :, :, i, j] = np.tensordot(cts[:, g], window[:, g], axes=([0, 2, 3], [0, 2, 3]))
    return d_w.reshape(o, per_group, kh, kw)


# ---- the primitives -------------------------------------------------------------------------------

_PLAIN: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
_CASES: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((2, 3, 5, 4), (2, 3, 3, 2), _PLAIN),
    ((1, 2, 6, 5), (4, 1, 3, 3), {**_PLAIN, "stride": (2, 1), "padding": (1, 2), "groups": 2}),
    ((1, 1, 7, 6), (1, 1, 2, 3), {**_PLAIN, "stride": (1, 2), "dilation": (3, 2)}),
]


def _conv(x: Array, w: Array, a: dict[str, Any]) -> Array:
    return bind(_conv_op, [x, w], **{key: a[key] for key in _PLAIN})


def _to_input(ct: Array, w: Array, shape: Shape, a: dict[str, Any]) -> Array:
    return bind(_input_op, [ct, w], input_shape=shape, **{key: a[key] for key in _PLAIN})


def _to_weight(x: Array, ct: Array, shape: Shape, a: dict[str, Any]) -> Array:
    return bind(_weight_op, [x, ct], weight_shape=shape, **{key: a[key] for key in _PLAIN})


_conv_op: Primitive = primitive(
    name="conv2d",
    kind="contraction",
    infer=_infer_conv,
    reference=_convolve,
    vjp=lambda ct, y, x, w, **a: [_to_input(ct, w, x.shape, a), _to_weight(x, ct, w.shape, a)],
    jvp=lambda tangents, y, operands, **a: bilinear_jvp(
        tangents, lambda t: _conv(t, operands[1], a), lambda t: _conv(operands[0], t, a)
    ),
    samples=[Sample((x, w), attrs) for x, w, attrs in _CASES],
    bad=[
        BadSample(
            (TensorType(f32, (2, 3, 5)), TensorType(f32, (2, 3, 3, 3))), ShapeError, "4-dimensional input", _PLAIN
        ),
        BadSample((TensorType(f32, (2, 3, 5, 5)), TensorType(f32, (2, 4, 3, 3))), ShapeError, "channels", _PLAIN),
        BadSample((TensorType(f32, (2, 3, 5, 5)), TensorType(f64, (2, 3, 3, 3))), DTypeError, "one dtype", _PLAIN),
        BadSample((TensorType(i64, (2, 3, 5, 5)), TensorType(i64, (2, 3, 3, 3))), DTypeError, "floats", _PLAIN),
        BadSample((TensorType(f32, (2, 3, 5, 5)), TensorType(f32, (2, 3, 3, Dim("K")))), ShapeError, "kernel", _PLAIN),
        BadSample((TensorType(f32, (2, 3, 2, 2)), TensorType(f32, (2, 3, 3, 3))), ShapeError, "larger", _PLAIN),
    ],
    doc="y[n, o, i, j] = sum over c, u, v of x[n, c, i * stride + u * dilation - padding, ...] * w[o, c, u, v].",
)
_input_op: Primitive = primitive(
    name="conv2d_backward_input",
    kind="contraction",
    infer=_infer_input,
    reference=_convolve_input,
    vjp=lambda g, y, ct, w, input_shape, **a: [_conv(g, w, a), _to_weight(g, ct, w.shape, a)],
    jvp=lambda tangents, y, operands, input_shape, **a: bilinear_jvp(
        tangents,
        lambda t: _to_input(t, operands[1], input_shape, a),
        lambda t: _to_input(operands[0], t, input_shape, a),
    ),
    samples=[
        Sample((_output(x, w, a["stride"], a["padding"], a["dilation"]), w), {"input_shape": x, **a})
        for x, w, a in _CASES
    ],
    bad=[
        BadSample(
            (TensorType(f32, (1, 2, 4, 4)), TensorType(f32, (2, 3, 3, 3))),
            ShapeError,
            "cotangent",
            {"input_shape": (1, 3, 5, 5), **_PLAIN},
        )
    ],
    doc="The cotangent of conv2d's input: every output element spread over the inputs it was made from.",
)
_weight_op: Primitive = primitive(
    name="conv2d_backward_weight",
    kind="contraction",
    infer=_infer_weight,
    reference=_convolve_weight,
    vjp=lambda g, y, x, ct, weight_shape, **a: [_to_input(ct, g, x.shape, a), _conv(x, g, a)],
    jvp=lambda tangents, y, operands, weight_shape, **a: bilinear_jvp(
        tangents,
        lambda t: _to_weight(t, operands[1], weight_shape, a),
        lambda t: _to_weight(operands[0], t, weight_shape, a),
    ),
    samples=[
        Sample((x, _output(x, w, a["stride"], a["padding"], a["dilation"])), {"weight_shape": w, **a})
        for x, w, a in _CASES
    ],
    bad=[
        BadSample(
            (TensorType(f32, (1, 3, 5, 5)), TensorType(f32, (1, 2, 4, 4))),
            ShapeError,
            "cotangent",
            {"weight_shape": (2, 3, 3, 3), **_PLAIN},
        )
    ],
    doc="The cotangent of conv2d's weight: inputs times cotangents, summed over batch and places.",
)


# ---- public ---------------------------------------------------------------------------------------


@public("conv2d")
def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Two-dimensional cross-correlation. torch `nn.functional.conv2d`.

    Shapes: x (N, C, H, W) or (C, H, W); weight (O, C / groups, kH, kW); bias (O,); result (N, O, OH, OW).
    `padding` is an int, a pair, "valid" (none) or "same" (the size stays; stride 1). Raises ShapeError where channels
    do not fit or the kernel is larger than the padded input, DTypeError for integers.
    """
    image, w = promoted(x, weight)
    batched = image.ndim == 4
    if image.ndim == 3:
        image = reshape(image, (1, *image.shape))
    strides, dilations = pair(stride, "stride"), pair(dilation, "dilation")
    if isinstance(padding, str):
        image, paddings = _named_padding(image, w, padding, strides, dilations)
    else:
        paddings = pair(padding, "padding")
    y = bind(_conv_op, [image, w], stride=strides, padding=paddings, dilation=dilations, groups=groups)
    y = _with_bias(y, bias)
    return y if batched else reshape(y, y.shape[1:])


def _with_bias(y: Array, bias: Any) -> Array:
    if bias is None:
        return y
    y, added = promoted(y, bias)
    if added.shape != y.shape[1:2]:
        raise shape_error(
            f"a convolution's bias has one number per output channel, {y.shape[1]}, got {added.type}", y, added
        )
    return y + reshape(added, (1, -1, 1, 1))


def _named_padding(x: Array, w: Array, padding: str, stride: Pair, dilation: Pair) -> tuple[Array, Pair]:
    if padding == "valid":
        return x, (0, 0)
    if padding != "same" or stride != (1, 1) or w.ndim != 4 or x.ndim != 4:
        raise shape_error(
            f"conv2d: padding {padding!r} with stride {stride} does not go",
            x,
            w,
            hint='padding is an int, a pair, "valid", or "same" with stride 1',
        )
    total = []
    for axis in (0, 1):
        kernel = w.shape[2 + axis]
        assert isinstance(kernel, int)
        total.append(dilation[axis] * (kernel - 1))
    if total[0] % 2 == total[1] % 2 == 0:
        return x, (total[0] // 2, total[1] // 2)
    # One more after than before, as torch has it.
    return pad(x, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)]), (0, 0)


@public("conv1d")
def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """One-dimensional cross-correlation: `conv2d` on images of one row. torch `nn.functional.conv1d`.

    Shapes: x (N, C, L) or (C, L); weight (O, C / groups, K); bias (O,); result (N, O, OL).
    """
    line, w = promoted(x, weight)
    check_line("conv1d", line, w)
    edge = padding if isinstance(padding, str) else (0, single(padding, "padding"))
    y = conv2d(
        expand_dims(line, -2),
        expand_dims(w, -2),
        bias,
        (1, single(stride, "stride")),
        edge,
        (1, single(dilation, "dilation")),
        groups,
    )
    return squeeze(y, -2)


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
    image, w = promoted(x, weight)
    if image.ndim not in (3, 4) or w.ndim != 4 or image.shape[-3] != w.shape[0]:
        raise shape_error(
            f"conv_transpose2d does not fit {image.type} and a weight {w.type}",
            image,
            w,
            hint="layouts: input (N, C, H, W), weight (C, O / groups, kH, kW)",
        )
    batched = image.ndim == 4
    if not batched:
        image = reshape(image, (1, *image.shape))
    strides, paddings, dilations = pair(stride, "stride"), pair(padding, "padding"), pair(dilation, "dilation")
    extra = pair(output_padding, "output_padding")
    sizes = []
    for axis in (0, 1):
        check_output_padding("conv_transpose2d", image, axis, extra, strides, dilations)
        extent, kernel = image.shape[2 + axis], w.shape[2 + axis]
        if not isinstance(extent, int) or not isinstance(kernel, int):
            raise shape_error("conv_transpose2d needs height and width fixed while staging", image, w)
        reach = dilations[axis] * (kernel - 1)
        sizes.append((extent - 1) * strides[axis] - 2 * paddings[axis] + reach + extra[axis] + 1)
    # Zeros after the image add nothing: each makes the result longer by a stride.
    image = pad(image, [(0, 0), (0, 0), *((0, extra[axis] // max(strides[axis], 1)) for axis in (0, 1))])
    per_group = w.shape[1]
    assert isinstance(per_group, int)
    shape = (image.shape[0], per_group * groups, *sizes)
    attrs = {"stride": strides, "padding": paddings, "dilation": dilations, "groups": groups}
    y = _with_bias(_to_input(image, w, shape, attrs), bias)
    return y if batched else reshape(y, y.shape[1:])


def check_output_padding(
    name: str, x: Array, axis: int, extra: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> None:
    """Raise where the output is padded by more than torch's functions take."""
    if not 0 <= extra[axis] < max(strides[axis], dilations[axis]):
        raise shape_error(
            f"{name}: output_padding {extra} is below neither the stride {strides} nor the dilation {dilations}",
            x,
            hint="output_padding picks one of the sizes that the stride of the convolution makes alike",
        )


def check_line(name: str, x: Array, w: Array) -> None:
    """Raise where a line and a weight have other axes than one."""
    if x.ndim not in (2, 3) or w.ndim != 3:
        raise shape_error(
            f"{name} needs an input (N, C, L) or (C, L) and a weight (O, C / groups, K), got {x.type} and {w.type}",
            x,
            w,
        )


def single(value: Any, name: str) -> int:
    """The int, from an int or a tuple of one."""
    if isinstance(value, tuple | list) and len(value) == 1:
        value = value[0]
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise shape_error(f"{name} is an int, got {value!r}")
    return value
