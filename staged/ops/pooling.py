"""Pooling over windows of (N, C, H, W): maxima with their places, and means; with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.types import Shape, TensorType, bool_, f32, f64, i32
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.convolution import Pair, window_count
from staged.ops.index import take_along_axis
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.shape import flatten, reshape

Data = np.ndarray[Any, Any]


def _pooled(name: str, x: TensorType, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> Shape:
    if x.ndim != 4:
        raise ShapeError(f"{name} needs a 4-dimensional input, got {x}", hint="the layout is (N, C, H, W)")
    if min(*kernel, *stride, *dilation) < 1 or min(padding) < 0:
        apart = f", dilation {dilation}" if dilation != (1, 1) else ""
        raise ShapeError(f"{name}: kernel {kernel}, stride {stride}, padding {padding}{apart} do not go")
    if any(2 * padding[axis] > kernel[axis] for axis in (0, 1)):
        raise ShapeError(f"{name}: padding {padding} is more than half the kernel {kernel}")
    height = window_count(x.shape[2], kernel[0], stride[0], padding[0], dilation[0])
    width = window_count(x.shape[3], kernel[1], stride[1], padding[1], dilation[1])
    if 0 in (height, width):
        raise ShapeError(
            f"{name}: the kernel {kernel} is larger than the padded input {x}", hint="use a smaller kernel"
        )
    return *x.shape[:2], height, width


def _infer_max(
    x: TensorType, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[TensorType, TensorType]:
    shape = _pooled("max_pool2d", x, kernel, stride, padding, dilation)
    if x.dtype.is_bool:
        raise DTypeError(f"max_pool2d needs numbers, got {x}", hint="cast it: `st.astype(x, st.f32)`")
    return TensorType(x.dtype, shape), TensorType(i32, shape)


def _reach(kernel: Pair, dilation: Pair) -> Pair:
    """The extents from the first element of a window to its last."""
    return dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1


def _windows(x: Data, kernel: Pair, stride: Pair, padding: Pair, fill: Any, dilation: Pair = (1, 1)) -> Data:
    """(N, C, OH, OW, kH, kW): a view of every window."""
    edges = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    wide = np.pad(x, edges, constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(wide, _reach(kernel, dilation), axis=(2, 3))
    return views[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _max_reference(x: Data, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> tuple[Data, Data]:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    windows = _windows(x, kernel, stride, padding, lowest, dilation)
    inside = _windows(np.ones_like(x, dtype=bool), kernel, stride, padding, False, dilation)
    flat = windows.reshape(*windows.shape[:4], kernel[0] * kernel[1])
    # Padding is never chosen, even in a window of nothing but -inf: the first element inside it is.
    chosen = np.where(inside.reshape(flat.shape), flat, lowest)
    best = np.argmax(chosen, axis=-1)
    hit_padding = ~np.take_along_axis(inside.reshape(flat.shape), best[..., None], -1)[..., 0]
    best = np.where(hit_padding, np.argmax(inside.reshape(flat.shape), axis=-1), best)
    values = np.take_along_axis(flat, best[..., None], -1)[..., 0]
    oh, ow = best.shape[2:]
    rows = best // kernel[1] * dilation[0] + (np.arange(oh) * stride[0] - padding[0])[:, None]
    columns = best % kernel[1] * dilation[1] + np.arange(ow) * stride[1] - padding[1]
    return np.ascontiguousarray(values), (rows * x.shape[3] + columns).astype(np.int32)


def _planes(x: Array) -> Array:
    """(N, C, H, W) -> (N, C, H * W)"""
    return flatten(x, 2)


def _at(x: Array, indices: Array) -> Array:
    """x at flat positions of its planes, with the shape of `indices`."""
    return reshape(take_along_axis(_planes(x), _planes(indices), 2), indices.shape)


def _sizes_of(kernel: Pair, stride: Pair, padding: Pair = (0, 0), dilation: Pair = (1, 1)) -> dict[str, Pair]:
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


max_pool_op: Primitive = primitive(
    name="max_pool2d",
    kind="pooling",
    infer=_infer_max,
    reference=_max_reference,
    vjp=lambda cts, results, x, **a: [
        None if cts[0] is None else bind(_max_backward_op, [cts[0], results[1]], input_shape=x.shape, **a)
    ],
    jvp=lambda tangents, results, operands, **a: (_at(tangents[0], results[1]), None),
    samples=[
        Sample(((2, 2, 4, 6),), _sizes_of((2, 2), (2, 2))),
        Sample(((1, 2, 5, 5),), _sizes_of((3, 2), (1, 2), (1, 1))),
        Sample(((1, 2, 6, 7),), _sizes_of((2, 3), (1, 2), (1, 1), (3, 2))),
        Sample(((1, 1, 5, 5),), _sizes_of((2, 2), (2, 2), (0, 0), (2, 1))),
        Sample((np.array([[[[1, 2, 2], [2, 0, 1], [-5, -6, np.nan]]]], np.float32),),
               _sizes_of((2, 2), (1, 1)), differentiate=()),
        Sample(((1, 1, 4, 4),), _sizes_of((2, 2), (2, 2)), dtypes=(i32,)),
    ],
    bad=[
        BadSample((TensorType(f32, (3, 4, 4)),), ShapeError, "4-dimensional", _sizes_of((2, 2), (2, 2))),
        BadSample((TensorType(f32, (1, 1, 2, 2)),), ShapeError, "larger", _sizes_of((3, 3), (1, 1))),
        BadSample((TensorType(f32, (1, 1, 2, 2)),), ShapeError, "larger", _sizes_of((2, 2), (1, 1), (0, 0), (1, 2))),
        BadSample((TensorType(f32, (1, 1, 4, 4)),), ShapeError, "half the kernel", _sizes_of((2, 2), (1, 1), (2, 2))),
        BadSample((TensorType(f32, (1, 1, 4, 4)),), ShapeError, "dilation", _sizes_of((2, 2), (1, 1), (0, 0), (0, 1))),
        BadSample((TensorType(bool_, (1, 1, 4, 4)),), DTypeError, "numbers", _sizes_of((2, 2), (1, 1))),
    ],
    doc="The maximum of each window and where it is, as a position in the H * W plane: the first of ties; NaN wins.",
)  # fmt: skip


def _infer_max_backward(ct: TensorType, indices: TensorType, input_shape: Shape, **sizes: Pair) -> TensorType:
    wanted = _pooled("max_pool2d_backward", TensorType(ct.dtype, input_shape), **sizes)
    if ct.shape != wanted or indices.shape != wanted or indices.dtype is not i32:
        raise ShapeError(f"max_pool2d_backward: the cotangent has shape {wanted}, got {ct} and {indices}")
    return TensorType(ct.dtype, input_shape)


def _max_backward_reference(ct: Data, indices: Data, input_shape: Any, **_: Any) -> Data:
    n, c, h, w = input_shape
    planes = np.zeros((n * c, h * w), ct.dtype)
    rows, pooled = np.arange(n * c)[:, None], ct.shape[2] * ct.shape[3]
    np.add.at(planes, (rows, indices.reshape(n * c, pooled)), ct.reshape(n * c, pooled))
    return planes.reshape(n, c, h, w)


_max_backward_op: Primitive = primitive(
    name="max_pool2d_backward",
    kind="pooling",
    infer=_infer_max_backward,
    reference=_max_backward_reference,
    vjp=lambda g, y, ct, indices, **a: [_at(g, indices), None],
    jvp=lambda tangents, y, operands, **a: (
        None if tangents[0] is None else bind(_max_backward_op, [tangents[0], operands[1]], **a)
    ),
    samples=[
        Sample(
            ((1, 2, 2, 2), np.array([[[[0, 3], [9, 10]], [[5, 6], [8, 15]]]], np.int32)),
            {"input_shape": (1, 2, 4, 4), **_sizes_of((2, 2), (2, 2))},
        ),
        Sample(
            ((1, 1, 2, 2), np.array([[[[4, 4], [4, 4]]]], np.int32)),
            {"input_shape": (1, 1, 3, 3), **_sizes_of((2, 2), (1, 1))},
        ),
        Sample(
            ((1, 1, 3, 1), np.array([[[[3], [3], [7]]]], np.int32)),
            {"input_shape": (1, 1, 3, 3), **_sizes_of((2, 2), (1, 2), (1, 0), (2, 2))},
        ),
    ],
    bad=[
        BadSample(
            (TensorType(f32, (1, 1, 3, 3)), TensorType(i32, (1, 1, 3, 3))),
            ShapeError,
            "cotangent",
            {"input_shape": (1, 1, 4, 4), **_sizes_of((2, 2), (2, 2))},
        )
    ],
    doc="The cotangent of max_pool2d's input: each window's goes to its maximum.",
)


# ---- means ----------------------------------------------------------------------------------------


def _infer_mean(x: TensorType, kernel: Pair, stride: Pair, padding: Pair) -> TensorType:
    if not x.dtype.is_float:
        raise DTypeError(f"avg_pool2d needs floats, got {x}", hint="cast it: `st.astype(x, st.f32)`")
    return TensorType(x.dtype, _pooled("avg_pool2d", x, kernel, stride, padding))


def _infer_mean_backward(ct: TensorType, input_shape: Shape, kernel: Pair, stride: Pair, padding: Pair) -> TensorType:
    result = TensorType(ct.dtype, input_shape)
    wanted = _infer_mean(result, kernel, stride, padding)
    if wanted != ct:
        raise ShapeError(f"avg_pool2d_backward: the cotangent is {wanted}, got {ct}")
    return result


def _mean_reference(x: Data, kernel: Pair, stride: Pair, padding: Pair) -> Data:
    windows = _windows(x, kernel, stride, padding, 0)
    return np.asarray(windows.sum(axis=(4, 5), dtype=x.dtype) / x.dtype.type(kernel[0] * kernel[1]))


def _mean_backward_reference(ct: Data, input_shape: Any, kernel: Pair, stride: Pair, padding: Pair) -> Data:
    n, c, h, w = input_shape
    oh, ow = ct.shape[2:]
    wide = np.zeros((n, c, h + 2 * padding[0], w + 2 * padding[1]), ct.dtype)
    share = ct / ct.dtype.type(kernel[0] * kernel[1])
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i, i + (oh - 1) * stride[0] + 1, stride[0])
            wide[:, :, rows, j : j + (ow - 1) * stride[1] + 1 : stride[1]] += share
    return np.ascontiguousarray(wide[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w])


_POOL_2 = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
_MEAN_CASES: list[tuple[Shape, dict[str, Any]]] = [
    ((2, 2, 4, 6), _POOL_2),
    ((1, 2, 5, 5), {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 1)}),
]

avg_pool_op: Primitive = primitive(
    name="avg_pool2d",
    kind="pooling",
    infer=_infer_mean,
    reference=_mean_reference,
    vjp=lambda ct, y, x, **a: [bind(_mean_backward_op, [ct], input_shape=x.shape, **a)],
    jvp=lambda tangents, y, operands, **a: bind(avg_pool_op, [tangents[0]], **a),
    samples=[Sample((shape,), attrs) for shape, attrs in _MEAN_CASES],
    bad=[
        BadSample((TensorType(i32, (1, 1, 4, 4)),), DTypeError, "floats", _POOL_2),
        BadSample((TensorType(f32, (4, 4)),), ShapeError, "4-dimensional", _POOL_2),
    ],
    doc="The mean of each window; padding counts as zeros (torch's `count_include_pad`).",
)
_mean_backward_op: Primitive = primitive(
    name="avg_pool2d_backward",
    kind="pooling",
    infer=_infer_mean_backward,
    reference=_mean_backward_reference,
    vjp=lambda g, y, ct, input_shape, **a: [bind(avg_pool_op, [g], **a)],
    jvp=lambda tangents, y, operands, **a: bind(_mean_backward_op, [tangents[0]], **a),
    samples=[
        Sample((_infer_mean(TensorType(f64, shape), **attrs).shape,), {"input_shape": shape, **attrs})
        for shape, attrs in _MEAN_CASES
    ],
    bad=[
        BadSample((TensorType(f32, (1, 1, 3, 3)),), ShapeError, "cotangent", {"input_shape": (1, 1, 4, 4), **_POOL_2})
    ],
    doc="The cotangent of avg_pool2d's input: each window's is shared evenly among its elements.",
)
