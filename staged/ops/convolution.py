"""Two-dimensional convolution (cross-correlation, as in neural networks) and its two gradients.

The three are one trilinear form read three ways, so their derivatives are each other. Layouts: x (N, C, H, W),
w (O, C / groups, kH, kW), y (N, O, OH, OW), with OH = (H + 2 pad - dilation * (kH - 1) - 1) // stride + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.sizes import Dim, Extent, largest
from staged.ir.types import Shape, TensorType, f32, f64, i64
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.contraction import bilinear_jvp
from staged.ops.primitive import BadSample, Primitive, Sample, primitive

Pair = tuple[int, int]
Sizes = tuple[int, ...]
_LAYOUTS = {
    1: "layouts: input (N, C, L), weight (O, C / groups, K)",
    2: "layouts: input (N, C, H, W), weight (O, C / groups, kH, kW)",
    3: "layouts: input (N, C, D, H, W), weight (O, C / groups, kD, kH, kW)",
}


def window_count(extent: Extent, kernel: int, stride: int, padding: int, dilation: int = 1) -> Extent:
    """The number of windows that fit along an axis."""
    return largest((extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)


def _output(x: Shape, w: Shape, stride: Sizes, padding: Sizes, dilation: Sizes) -> Shape:
    spatial = []
    for axis in range(len(stride)):
        kernel = w[2 + axis]
        if not isinstance(kernel, int):
            raise ShapeError("convolution needs the height and width of its kernel fixed while staging")
        spatial.append(window_count(x[2 + axis], kernel, stride[axis], padding[axis], dilation[axis]))
    return x[0], w[0], *spatial


def _check(x: TensorType, w: TensorType, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    rank = len(stride)
    name = f"conv{rank}d"
    for what, operand in (("input", x), ("weight", w)):
        if operand.ndim != rank + 2:
            raise ShapeError(f"{name} needs a {rank + 2}-dimensional {what}, got {operand}", hint=_LAYOUTS[rank])
    if x.dtype is not w.dtype:
        raise DTypeError(f"{name} needs input and weight of one dtype, got {x} and {w}", hint="cast one of them")
    if not x.dtype.is_float:
        raise DTypeError(f"{name} needs floats, got {x}", hint="cast it: `st.astype(x, st.f32)`")
    if not isinstance(groups, int) or min(*stride, *dilation, groups) < 1 or min(padding) < 0:
        raise ShapeError(f"{name}: stride {stride}, padding {padding}, dilation {dilation}, groups {groups} do not go")
    channels, outputs, per_group = x.shape[1], w.shape[0], w.shape[1]
    if not isinstance(per_group, int) or not isinstance(outputs, int):
        raise ShapeError(
            f"{name} needs the channels of its weight fixed while staging, got {w}",
            hint="give the channels of the weight as numbers in `dims`",
        )
    if channels != per_group * groups:
        raise ShapeError(
            f"{name} needs {channels} input channels to be {per_group} per group in {groups} groups, got {x} and {w}",
            hint=_LAYOUTS[rank],
        )
    if outputs % groups:
        raise ShapeError(f"{name}: {outputs} output channels do not divide into {groups} groups")


def infer_convolution(
    x: TensorType, w: TensorType, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> TensorType:
    """The type of a convolution along the last axes, as many as `stride` has sizes."""
    _check(x, w, stride, padding, dilation, groups)
    shape = _output(x.shape, w.shape, stride, padding, dilation)
    if 0 in shape[2:]:
        raise ShapeError(
            f"conv{len(stride)}d: the kernel of {w} is larger than the padded input {x}",
            hint="use a smaller kernel or more padding",
        )
    return TensorType(x.dtype, shape)


def _infer_input(
    ct: TensorType, w: TensorType, input_shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> TensorType:
    result = TensorType(ct.dtype, input_shape)
    made = infer_convolution(result, w, stride, padding, dilation, groups)
    if made != ct:
        raise ShapeError(f"conv2d_backward_input: the cotangent is {made}, got {ct}")
    return result


def _infer_weight(
    x: TensorType, ct: TensorType, weight_shape: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> TensorType:
    result = TensorType(x.dtype, weight_shape)
    made = infer_convolution(x, result, stride, padding, dilation, groups)
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


def convolve_images(x: Array, w: Array, a: dict[str, Any]) -> Array:
    """`conv2d` of images and a weight of one dtype; `a` has the attributes."""
    return bind(_conv_op, [x, w], **{key: a[key] for key in _PLAIN})


def spread_images(ct: Array, w: Array, shape: Shape, a: dict[str, Any]) -> Array:
    """`conv2d_backward_input` to images of `shape`; `a` has the attributes."""
    return bind(_input_op, [ct, w], input_shape=shape, **{key: a[key] for key in _PLAIN})


def _to_weight(x: Array, ct: Array, shape: Shape, a: dict[str, Any]) -> Array:
    return bind(_weight_op, [x, ct], weight_shape=shape, **{key: a[key] for key in _PLAIN})


_conv_op: Primitive = primitive(
    name="conv2d",
    kind="contraction",
    infer=infer_convolution,
    reference=_convolve,
    vjp=lambda ct, y, x, w, **a: [spread_images(ct, w, x.shape, a), _to_weight(x, ct, w.shape, a)],
    jvp=lambda tangents, y, operands, **a: bilinear_jvp(
        tangents, lambda t: convolve_images(t, operands[1], a), lambda t: convolve_images(operands[0], t, a)
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
    vjp=lambda g, y, ct, w, input_shape, **a: [convolve_images(g, w, a), _to_weight(g, ct, w.shape, a)],
    jvp=lambda tangents, y, operands, input_shape, **a: bilinear_jvp(
        tangents,
        lambda t: spread_images(t, operands[1], input_shape, a),
        lambda t: spread_images(operands[0], t, input_shape, a),
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
    vjp=lambda g, y, x, ct, weight_shape, **a: [spread_images(ct, g, x.shape, a), convolve_images(x, g, a)],
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
