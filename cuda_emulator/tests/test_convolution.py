"""Convolutions of cuDNN on the emulated device against NumPy: values, gradients, algorithms and what they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from cuda_library import Array, Buffer
from cudnn_library import Cudnn, data_type

RANDOM = np.random.default_rng(6)
NCHW, NHWC = "CUDNN_TENSOR_NCHW", "CUDNN_TENSOR_NHWC"
FORWARD, DATA, FILTER = "Forward", "BackwardData", "BackwardFilter"
PRECOMPUTED = "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM"


@dataclass(frozen=True)
class Case:
    """Sizes (batch, inputs, outputs), image, window; padding, stride and dilation along each axis."""

    sizes: tuple[int, int, int]
    image: tuple[int, int]
    window: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def arrays(self) -> tuple[Array, Array, Array]:
        """Random images, filters, and gradients of outputs."""
        batch, inputs, outputs = self.sizes
        x = RANDOM.standard_normal((batch, inputs, *self.image))
        w = RANDOM.standard_normal((outputs, inputs // self.groups, *self.window))
        return x, w, RANDOM.standard_normal((batch, outputs, *self.output()))

    def output(self) -> tuple[int, int]:
        p, q = (
            (self.image[a] + 2 * self.padding[a] - self.dilation[a] * (self.window[a] - 1) - 1) // self.stride[a] + 1
            for a in (0, 1)
        )
        return p, q

    def taps(self, x: Array) -> Iterator[tuple[int, int, Array]]:
        """For each tap of the window the part of the padded images that it meets, as a view."""
        (P, Q), (s, t), (d, e) = self.output(), self.stride, self.dilation
        for r, c in np.ndindex(*self.window):
            yield r, c, x[:, :, r * d : r * d + s * (P - 1) + 1 : s, c * e : c * e + t * (Q - 1) + 1 : t]

    def padded(self, x: Array) -> Array:
        return np.pad(x, ((0, 0), (0, 0), (self.padding[0],) * 2, (self.padding[1],) * 2))

    def forward(self, x: Array, w: Array) -> Array:
        y = np.zeros((self.sizes[0], self.sizes[2], *self.output()))
        for r, c, part in self.taps(self.padded(x)):
            for group in range(self.groups):
                ins, outs = self.channels(group)
                y[:, outs] += np.einsum("nchw,kc->nkhw", part[:, ins], w[outs, :, r, c])
        return y

    def backward(self, x: Array, w: Array, dy: Array) -> tuple[Array, Array]:
        padded = self.padded(x)
        d_padded, dw = np.zeros_like(padded), np.zeros_like(w)
        for (r, c, part), (_, _, d_part) in zip(self.taps(padded), self.taps(d_padded), strict=True):
            for group in range(self.groups):
                ins, outs = self.channels(group)
                d_part[:, ins] += np.einsum("nkhw,kc->nchw", dy[:, outs], w[outs, :, r, c])
                dw[outs, :, r, c] += np.einsum("nkhw,nchw->kc", dy[:, outs], part[:, ins])
        (top, left), (H, W) = self.padding, self.image
        return d_padded[:, :, top : top + H, left : left + W], dw

    def channels(self, group: int) -> tuple[slice, slice]:
        ins, outs = self.sizes[1] // self.groups, self.sizes[2] // self.groups
        return slice(group * ins, (group + 1) * ins), slice(group * outs, (group + 1) * outs)

    def describe(self, cudnn: Cudnn, dtype: str = "CUDNN_DATA_DOUBLE", math: str = "CUDNN_FMA_MATH") -> Any:
        described = cudnn.descriptor("Convolution")
        cudnn.do(
            "cudnnSetConvolution2dDescriptor", described, *self.padding, *self.stride, *self.dilation,
            "CUDNN_CROSS_CORRELATION", dtype,
        )  # fmt: skip
        cudnn.do("cudnnSetConvolutionGroupCount", described, self.groups)
        cudnn.do("cudnnSetConvolutionMathType", described, math)
        return described


CASES = [
    pytest.param(Case((2, 3, 4), (6, 5), (3, 3)), id="plain"),
    pytest.param(Case((2, 3, 4), (6, 17), (3, 2), padding=(1, 2)), id="padding, output not square"),
    pytest.param(Case((2, 3, 4), (9, 12), (3, 3), padding=(1, 1), stride=(2, 3)), id="stride"),
    pytest.param(Case((2, 3, 4), (9, 8), (3, 2), padding=(2, 1), dilation=(2, 3)), id="dilation"),
    pytest.param(Case((2, 6, 4), (6, 5), (3, 3), padding=(1, 1), groups=2), id="groups"),
    pytest.param(Case((2, 4, 8), (5, 5), (3, 3), stride=(2, 2), groups=4), id="depthwise"),
    pytest.param(Case((3, 5, 2), (4, 4), (1, 1)), id="one by one"),
    pytest.param(Case((1, 2, 3), (3, 3), (5, 5), padding=(2, 2)), id="window larger than image"),
]


class Algorithm(NamedTuple):
    """The heuristics' answer for one."""

    algo: int
    memory: int
    determinism: int


def _algorithms(cudnn: Cudnn, direction: str, *descriptors: Any) -> list[Algorithm]:
    """The heuristics' offers, best first."""
    count = cudnn.asked(f"cudnnGetConvolution{direction}AlgorithmMaxCount", "int", cudnn.handle)
    short = {FORWARD: "Fwd", DATA: "BwdData", FILTER: "BwdFilter"}[direction]
    results, returned = cudnn.ffi.new(f"cudnnConvolution{short}AlgoPerf_t[{count}]"), cudnn.ffi.new("int *")
    cudnn.do(f"cudnnGetConvolution{direction}Algorithm_v7", cudnn.handle, *descriptors, count, returned, results)
    assert returned[0] == count
    return [Algorithm(r.algo, r.memory, r.determinism) for r in results if r.status == 0]


def _run(
    cudnn: Cudnn, direction: str, operands: tuple[Any, ...], convolution: Any, algorithm: Any, to: tuple[Any, Buffer],
    factors: tuple[float, float] = (1.0, 0.0),
) -> Array:  # fmt: skip
    dtype = to[1].dtype
    cudnn.do(
        f"cudnnConvolution{direction}", cudnn.handle, cudnn.scalar(factors[0], dtype), *operands, convolution,
        algorithm.algo, *cudnn.workspace(algorithm.memory), cudnn.scalar(factors[1], dtype), *to,
    )  # fmt: skip
    return to[1].read()


def _same(actual: Array, wanted: Array) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", [NCHW, NHWC])
def test_values_and_gradients(cudnn: Cudnn, case: Case, layout: str) -> None:
    x, w, dy = case.arrays()
    convolution, filter = case.describe(cudnn), cudnn.filter(w)
    image, output = cudnn.tensor(x, layout), cudnn.tensor(dy, layout)
    laid = (lambda a: a) if layout == NCHW else (lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)))
    on_x, on_w, on_dy = cudnn.put(laid(x)), cudnn.put(w), cudnn.put(laid(dy))
    dx, dw = case.backward(x, w, dy)
    sizes = [cudnn.ffi.new("int *") for _ in range(4)]
    cudnn.do("cudnnGetConvolution2dForwardOutputDim", convolution, image, filter, *sizes)
    assert tuple(size[0] for size in sizes) == dy.shape
    for found in _algorithms(cudnn, FORWARD, image, filter, convolution, output):
        y = _run(cudnn, FORWARD, (image, on_x, filter, on_w), convolution, found, (output, cudnn.put(laid(dy))), (2, 3))
        _same(y, laid(2.0 * case.forward(x, w) + 3.0 * dy))
    for found in _algorithms(cudnn, DATA, filter, output, convolution, image):
        to = image, cudnn.put(laid(x))
        got = _run(cudnn, DATA, (filter, on_w, output, on_dy), convolution, found, to, (1.0, 1.0))
        _same(got, laid(dx + x))
    for found in _algorithms(cudnn, FILTER, image, output, convolution, filter):
        to = filter, cudnn.put(np.full_like(w, np.nan))
        got = _run(cudnn, FILTER, (image, on_x, output, on_dy), convolution, found, to)
        _same(got, dw)


def test_the_mathematical_convolution_turns_the_filter(cudnn: Cudnn) -> None:
    case = Case((1, 2, 3), (5, 5), (3, 2))
    x, w, dy = case.arrays()
    convolution = cudnn.descriptor("Convolution")
    cudnn.do("cudnnSetConvolution2dDescriptor", convolution, 0, 0, 1, 1, 1, 1, "CUDNN_CONVOLUTION", "CUDNN_DATA_DOUBLE")
    image, filter, output = cudnn.tensor(x), cudnn.filter(w), cudnn.tensor(dy)
    found = _algorithms(cudnn, FORWARD, image, filter, convolution, output)[0]
    operands = image, cudnn.put(x), filter, cudnn.put(w)
    y = _run(cudnn, FORWARD, operands, convolution, found, (output, cudnn.put(dy)))
    np.testing.assert_allclose(y, case.forward(x, w[:, :, ::-1, ::-1]), rtol=1e-11)
    found = _algorithms(cudnn, FILTER, image, output, convolution, filter)[0]
    dw = _run(cudnn, FILTER, (*cudnn.pair(x), *cudnn.pair(dy)), convolution, found, (filter, cudnn.put(w)))
    np.testing.assert_allclose(dw, case.backward(x, w, dy)[1][:, :, ::-1, ::-1], rtol=1e-11)


def test_the_gradient_of_a_bias(cudnn: Cudnn) -> None:
    dy = RANDOM.standard_normal((2, 3, 4, 5))
    db = cudnn.put(np.ones((1, 3, 1, 1)))
    one = cudnn.scalar(1.0, np.float64)
    cudnn.do("cudnnConvolutionBackwardBias", cudnn.handle, one, *cudnn.pair(dy), one, cudnn.tensor(db), db)
    np.testing.assert_allclose(db.read().ravel(), 1.0 + dy.sum(axis=(0, 2, 3)), rtol=1e-11)


@pytest.mark.parametrize("mode", ["RELU", "IDENTITY"])
def test_bias_and_activation_in_one_call(cudnn: Cudnn, mode: str) -> None:
    case = Case((2, 3, 4), (6, 5), (3, 3), padding=(1, 1))
    x, w, z = case.arrays()
    bias, activation = RANDOM.standard_normal((1, 4, 1, 1)), cudnn.descriptor("Activation")
    cudnn.do("cudnnSetActivationDescriptor", activation, f"CUDNN_ACTIVATION_{mode}", "CUDNN_NOT_PROPAGATE_NAN", 0.0)
    convolution, image, filter, output = case.describe(cudnn), cudnn.tensor(x), cudnn.filter(w), cudnn.tensor(z)
    sides = image, filter, convolution, output
    size = cudnn.asked("cudnnGetConvolutionForwardWorkspaceSize", "size_t", cudnn.handle, *sides, PRECOMPUTED)
    y = cudnn.put(z)
    call = [
        "cudnnConvolutionBiasActivationForward", cudnn.handle, cudnn.scalar(2.0, np.float64), image, cudnn.put(x), filter,
        cudnn.put(w), convolution, PRECOMPUTED, *cudnn.workspace(size), cudnn.scalar(0.5, np.float64), output, y,
        *cudnn.pair(bias), activation, output, y,
    ]  # fmt: skip
    cudnn.do(*call)
    wanted = 2.0 * case.forward(x, w) + 0.5 * z + bias
    np.testing.assert_allclose(y.read(), np.maximum(wanted, 0.0) if mode == "RELU" else wanted, rtol=1e-11, atol=1e-11)
    cudnn.do("cudnnSetActivationDescriptor", activation, f"CUDNN_ACTIVATION_{mode}", "CUDNN_PROPAGATE_NAN", 0.0)
    cudnn.refused("the activation must have CUDNN_NOT_PROPAGATE_NAN", *call)


# ---- precision and determinism ----


def _single(cudnn: Cudnn, math: str) -> float:
    """(1 + 2**-12) squared by a convolution of f32."""
    number = np.full((1, 1, 1, 1), 1.0 + 2.0**-12, np.float32)
    convolution = Case((1, 1, 1), (1, 1), (1, 1)).describe(cudnn, data_type(np.float32), math)
    image, filter = cudnn.tensor(number), cudnn.filter(number)
    found = _algorithms(cudnn, FORWARD, image, filter, convolution, image)[0]
    operands = image, cudnn.put(number), filter, cudnn.put(number)
    return float(_run(cudnn, FORWARD, operands, convolution, found, (image, cudnn.put(number))).item())


def test_f32_is_f32_only_where_it_is_asked_for(cudnn: Cudnn) -> None:
    assert _single(cudnn, "CUDNN_FMA_MATH") > 1.0
    assert _single(cudnn, "CUDNN_DEFAULT_MATH") == 1.0


def test_only_deterministic_algorithms_give_the_same_bits(cudnn: Cudnn) -> None:
    case = Case((7, 3, 4), (9, 9), (3, 3))
    x, w, dy = (array.astype(np.float32) for array in case.arrays())
    convolution = case.describe(cudnn, data_type(np.float32))
    image, filter, output = cudnn.tensor(x), cudnn.filter(w), cudnn.tensor(dy)
    operands = image, cudnn.put(x), output, cudnn.put(dy)
    offered = _algorithms(cudnn, FILTER, image, output, convolution, filter)
    assert {found.determinism for found in offered} == {0, 1}
    assert offered[0].determinism == cudnn.lib.CUDNN_NON_DETERMINISTIC  # a program that needs one must look for it
    for found in offered:
        runs = {_run(cudnn, FILTER, operands, convolution, found, (filter, cudnn.put(w))).tobytes() for _ in range(4)}
        assert (len(runs) == 1) == (found.determinism == cudnn.lib.CUDNN_DETERMINISTIC)


def test_an_algorithm_is_tried_in_the_memory_that_there_is(cudnn: Cudnn) -> None:
    case = Case((2, 3, 4), (6, 5), (3, 3))
    x, w, dy = case.arrays()
    convolution = case.describe(cudnn)
    results, returned = cudnn.ffi.new("cudnnConvolutionFwdAlgoPerf_t[8]"), cudnn.ffi.new("int *")
    cudnn.do(
        "cudnnFindConvolutionForwardAlgorithmEx", cudnn.handle, *cudnn.pair(x), cudnn.filter(w), cudnn.put(w),
        convolution, *cudnn.pair(dy), 8, returned, results, None, 0,
    )  # fmt: skip
    assert [result.memory for result in results if result.status == 0] == [0]
    sides = cudnn.tensor(x), cudnn.filter(w), convolution, cudnn.tensor(dy)
    cudnn.do("cudnnFindConvolutionForwardAlgorithm", cudnn.handle, *sides, 8, returned, results)
    assert len([result for result in results if result.status == 0]) == 3


# ---- misuse ----


def test_what_does_not_fit_is_refused(cudnn: Cudnn) -> None:
    case = Case((2, 3, 4), (6, 5), (3, 3))
    x, w, dy = case.arrays()
    convolution, image, filter, output = case.describe(cudnn), cudnn.tensor(x), cudnn.filter(w), cudnn.tensor(dy)
    on_x, on_w, on_y = cudnn.put(x), cudnn.put(w), cudnn.put(dy)
    one, gemm = cudnn.scalar(1.0, np.float64), "CUDNN_CONVOLUTION_FWD_ALGO_GEMM"
    name, none = "cudnnConvolutionForward", (None, 0)
    before = cudnn.handle, one, image, on_x, filter, on_w, convolution
    cudnn.refused("the workspace has 0 bytes and needs", name, *before, gemm, *none, one, output, on_y)
    wrong = cudnn.tensor(x)
    words = "the outputs' descriptor is (2, 3, 6, 5) and the convolution gives (2, 4, 4, 3)"
    cudnn.refused(words, name, *before, 0, *none, one, wrong, on_x)
    words = "the emulated device does not have this algorithm for this convolution"
    cudnn.refused(words, name, *before, "CUDNN_CONVOLUTION_FWD_ALGO_FFT", *none, one, output, on_y)
    single = cudnn.descriptor("Convolution")
    cudnn.do("cudnnSetConvolution2dDescriptor", single, 0, 0, 1, 1, 1, 1, "CUDNN_CONVOLUTION", "CUDNN_DATA_FLOAT")
    words = "the convolution computes in another type than its images have"
    cudnn.refused(words, name, *before[:-1], single, 0, *none, one, output, on_y)
    cudnn.do("cudnnSetConvolutionGroupCount", convolution, 2)
    words = "images of 3 channels and filters (4, 3, ...) do not go together in 2 groups"
    cudnn.refused(words, name, *before, 0, *none, one, output, on_y)
