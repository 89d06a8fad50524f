"""cuDNN on the emulated device against NumPy: tensors, activations, softmax, pooling, reductions, batch norm, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_library import Array
from cudnn_library import Cudnn, gradient

RANDOM = np.random.default_rng(5)
NCHW, NHWC = "CUDNN_TENSOR_NCHW", "CUDNN_TENSOR_NHWC"


def _random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def _same(actual: Array, wanted: Array, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


def _factors(cudnn: Cudnn, alpha: float = 1.0, beta: float = 0.0) -> tuple[Any, Any]:
    return cudnn.scalar(alpha, np.float64), cudnn.scalar(beta, np.float64)


# ---- tensors ----


def test_descriptors_know_their_size_and_strides(cudnn: Cudnn) -> None:
    x = _random(2, 3, 4, 5)
    packed, last = cudnn.tensor(x), cudnn.tensor(x, NHWC)
    assert cudnn.asked("cudnnGetTensorSizeInBytes", "size_t", packed) == x.nbytes
    type, rank = cudnn.ffi.new("cudnnDataType_t *"), cudnn.ffi.new("int *")
    extents, strides = cudnn.ffi.new("int[8]"), cudnn.ffi.new("int[8]")
    cudnn.do("cudnnGetTensorNdDescriptor", last, 8, type, rank, extents, strides)
    assert (rank[0], list(extents)[:4], list(strides)[:4]) == (4, [2, 3, 4, 5], [60, 1, 15, 3])


def test_a_tensor_moves_to_another_layout(cudnn: Cudnn) -> None:
    x = _random(2, 3, 4, 5)
    out = cudnn.put(np.full((2, 4, 5, 3), np.nan))
    alpha, beta = _factors(cudnn)
    cudnn.do("cudnnTransformTensor", cudnn.handle, alpha, *cudnn.pair(x), beta, cudnn.tensor(x, NHWC), out)
    _same(out.read(), x.transpose(0, 2, 3, 1))


def test_a_bias_is_added_to_what_is_there(cudnn: Cudnn) -> None:
    x, bias = _random(2, 3, 4, 5), _random(1, 3, 1, 1)
    out = cudnn.put(x)
    alpha, beta = _factors(cudnn, 2.0, 0.5)
    cudnn.do("cudnnAddTensor", cudnn.handle, alpha, *cudnn.pair(bias), beta, cudnn.tensor(x), out)
    _same(out.read(), 2.0 * bias + 0.5 * x)


def test_a_tensor_is_set_and_scaled(cudnn: Cudnn) -> None:
    out = cudnn.put(np.full((2, 3), np.nan))
    cudnn.do("cudnnSetTensor", cudnn.handle, cudnn.tensor(out), out, cudnn.scalar(3.0, np.float64))
    cudnn.do("cudnnScaleTensor", cudnn.handle, cudnn.tensor(out), out, cudnn.scalar(0.5, np.float64))
    assert out.read().tolist() == [[1.5] * 3] * 2


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("ADD", lambda a, b: 2.0 * a + 3.0 * b),
        ("MUL", lambda a, b: 6.0 * a * b),
        ("MIN", lambda a, b: np.minimum(2.0 * a, 3.0 * b)),
        ("MAX", lambda a, b: np.maximum(2.0 * a, 3.0 * b)),
        ("SQRT", lambda a, b: np.sqrt(2.0 * a)),
        ("NOT", lambda a, b: 1.0 - 2.0 * a),
    ],
)
def test_two_tensors_meet(cudnn: Cudnn, op: str, wanted: Callable[[Array, Array], Array]) -> None:
    a, b = np.abs(_random(2, 3, 4, 5)), np.abs(_random(1, 3, 1, 1))
    out = cudnn.put(np.full(a.shape, np.nan))
    described, handle = cudnn.descriptor("OpTensor"), cudnn.handle
    cudnn.do(
        "cudnnSetOpTensorDescriptor", described, f"CUDNN_OP_TENSOR_{op}", "CUDNN_DATA_DOUBLE", "CUDNN_PROPAGATE_NAN"
    )
    one, two, three = (cudnn.scalar(value, np.float64) for value in (0.0, 2.0, 3.0))
    cudnn.do(
        "cudnnOpTensor", handle, described, two, *cudnn.pair(a), three, *cudnn.pair(b), one, cudnn.tensor(out), out
    )
    _same(out.read(), wanted(a, np.broadcast_to(b, a.shape)))


# ---- activations and softmax ----


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "SIGMOID": _sigmoid,
    "RELU": lambda x: np.maximum(x, 0.0),
    "TANH": np.tanh,
    "CLIPPED_RELU": lambda x: np.clip(x, 0.0, 0.7),
    "ELU": lambda x: np.where(x < 0.0, 0.7 * np.expm1(x), x),
    "SWISH": lambda x: x * _sigmoid(1.5 * x),
}


@pytest.mark.parametrize("mode", ACTIVATIONS)
def test_activation_and_its_gradient(cudnn: Cudnn, mode: str) -> None:
    function, described = ACTIVATIONS[mode], cudnn.descriptor("Activation")
    cudnn.do("cudnnSetActivationDescriptor", described, f"CUDNN_ACTIVATION_{mode}", "CUDNN_PROPAGATE_NAN", 0.7)
    cudnn.do("cudnnSetActivationDescriptorSwishBeta", described, 1.5)
    x, dy = _random(2, 3, 4, 5), _random(2, 3, 4, 5)
    out, back = cudnn.put(x), cudnn.put(x)
    alpha, beta = _factors(cudnn, 2.0, -1.0)
    cudnn.do("cudnnActivationForward", cudnn.handle, described, alpha, *cudnn.pair(x), beta, cudnn.tensor(x), out)
    _same(out.read(), 2.0 * function(x) - x)
    y = cudnn.pair(function(x))
    cudnn.do(
        "cudnnActivationBackward", cudnn.handle, described, alpha, *y, *cudnn.pair(dy), *cudnn.pair(x), beta,
        cudnn.tensor(x), back,
    )  # fmt: skip
    _same(back.read(), 2.0 * gradient(function, x, dy) - x, 1e-7)


@pytest.mark.parametrize(("mode", "axes"), [("INSTANCE", (1, 2, 3)), ("CHANNEL", (1,))])
@pytest.mark.parametrize("algorithm", ["FAST", "ACCURATE", "LOG"])
def test_softmax_and_its_gradient(cudnn: Cudnn, mode: str, axes: tuple[int, ...], algorithm: str) -> None:
    def softmax(x: Array) -> Array:
        shifted = x - x.max(axis=axes, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True))
        return np.asarray(logs if algorithm == "LOG" else np.exp(logs))

    x, dy = _random(2, 3, 4, 2), _random(2, 3, 4, 2)
    out, back = cudnn.put(np.full(x.shape, np.nan)), cudnn.put(np.full(x.shape, np.nan))
    alpha, beta = _factors(cudnn)
    how = (cudnn.handle, f"CUDNN_SOFTMAX_{algorithm}", f"CUDNN_SOFTMAX_MODE_{mode}", alpha)
    cudnn.do("cudnnSoftmaxForward", *how, *cudnn.pair(x), beta, cudnn.tensor(x), out)
    _same(out.read(), softmax(x))
    cudnn.do("cudnnSoftmaxBackward", *how, cudnn.tensor(x), out, *cudnn.pair(dy), beta, cudnn.tensor(x), back)
    _same(back.read(), gradient(softmax, x, dy), 1e-7)


def test_an_accurate_softmax_does_not_overflow(cudnn: Cudnn) -> None:
    x = np.array([1e4, 0.0, 1e4]).reshape(1, 3, 1, 1)
    out = cudnn.put(x)
    alpha, beta = _factors(cudnn)
    how = (cudnn.handle, "CUDNN_SOFTMAX_ACCURATE", "CUDNN_SOFTMAX_MODE_CHANNEL", alpha)
    cudnn.do("cudnnSoftmaxForward", *how, *cudnn.pair(x), beta, cudnn.tensor(x), out)
    assert out.read().ravel().tolist() == [0.5, 0.0, 0.5]


# ---- pooling ----


def _pool(x: Array, mode: str, window: int, padding: int, stride: int) -> Array:
    N, C, H, W = x.shape
    P, Q = (H + 2 * padding - window) // stride + 1, (W + 2 * padding - window) // stride + 1
    y = np.empty((N, C, P, Q))
    for p, q in np.ndindex(P, Q):
        top, left = p * stride - padding, q * stride - padding
        inside = x[:, :, max(top, 0) : min(top + window, H), max(left, 0) : min(left + window, W)]
        total = inside.sum(axis=(2, 3))
        if mode.startswith("MAX"):
            y[:, :, p, q] = inside.max(axis=(2, 3))
        else:
            count = window * window if "INCLUDE" in mode else inside.shape[2] * inside.shape[3]
            y[:, :, p, q] = total / count
    return y


@pytest.mark.parametrize(
    "mode", ["MAX", "MAX_DETERMINISTIC", "AVERAGE_COUNT_INCLUDE_PADDING", "AVERAGE_COUNT_EXCLUDE_PADDING"]
)
@pytest.mark.parametrize(("window", "padding", "stride"), [(2, 0, 2), (3, 1, 2), (3, 2, 1)])
def test_pooling_and_its_gradient(cudnn: Cudnn, mode: str, window: int, padding: int, stride: int) -> None:
    x = _random(2, 3, 7, 5)
    wanted = _pool(x, mode, window, padding, stride)
    dy, described = _random(*wanted.shape), cudnn.descriptor("Pooling")
    cudnn.do(
        "cudnnSetPooling2dDescriptor", described, f"CUDNN_POOLING_{mode}", "CUDNN_PROPAGATE_NAN", window, window, padding,
        padding, stride, stride,
    )  # fmt: skip
    sizes = [cudnn.ffi.new("int *") for _ in range(4)]
    cudnn.do("cudnnGetPooling2dForwardOutputDim", described, cudnn.tensor(x), *sizes)
    assert tuple(size[0] for size in sizes) == wanted.shape
    out, back = cudnn.put(np.full(wanted.shape, np.nan)), cudnn.put(x)
    alpha, beta = _factors(cudnn)
    cudnn.do("cudnnPoolingForward", cudnn.handle, described, alpha, *cudnn.pair(x), beta, cudnn.tensor(wanted), out)
    _same(out.read(), wanted)
    more = cudnn.scalar(1.0, np.float64)  # what is there stays: gradients add
    cudnn.do(
        "cudnnPoolingBackward", cudnn.handle, described, alpha, cudnn.tensor(wanted), out, *cudnn.pair(dy),
        *cudnn.pair(x), more, cudnn.tensor(x), back,
    )  # fmt: skip
    _same(back.read(), x + gradient(lambda at: _pool(at, mode, window, padding, stride), x, dy), 1e-7)


def test_the_first_of_equal_maxima_gets_the_gradient(cudnn: Cudnn) -> None:
    x, dy = np.ones((1, 1, 2, 2)), np.ones((1, 1, 1, 1))
    described, back = cudnn.descriptor("Pooling"), cudnn.put(np.full(x.shape, np.nan))
    cudnn.do("cudnnSetPooling2dDescriptor", described, "CUDNN_POOLING_MAX", "CUDNN_PROPAGATE_NAN", 2, 2, 0, 0, 2, 2)
    alpha, beta = _factors(cudnn)
    cudnn.do(
        "cudnnPoolingBackward", cudnn.handle, described, alpha, *cudnn.pair(dy), *cudnn.pair(dy), *cudnn.pair(x), beta,
        cudnn.tensor(x), back,
    )  # fmt: skip
    assert back.read().ravel().tolist() == [1.0, 0.0, 0.0, 0.0]


# ---- reductions ----


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("ADD", np.sum),
        ("MUL", np.prod),
        ("MIN", np.min),
        ("MAX", np.max),
        ("AMAX", lambda a, **how: np.max(np.abs(a), **how)),
        ("AVG", np.mean),
        ("NORM1", lambda a, **how: np.sum(np.abs(a), **how)),
        ("NORM2", lambda a, **how: np.sqrt(np.sum(a * a, **how))),
        ("MUL_NO_ZEROS", lambda a, **how: np.prod(np.where(a == 0.0, 1.0, a), **how)),
    ],
)
@pytest.mark.parametrize("axes", [(0, 2), (3,), (0, 1, 2, 3)])
def test_a_reduction(cudnn: Cudnn, op: str, wanted: Callable[..., Array], axes: tuple[int, ...]) -> None:
    a = _random(2, 3, 2, 4)
    a[0, 0, 0, 0] = 0.0
    result = np.asarray(wanted(a, axis=axes, keepdims=True))
    described, out = _reduction(cudnn, op), cudnn.put(result)
    to, alpha, beta = cudnn.tensor(result), *_factors(cudnn, 2.0, 0.5)
    sides = cudnn.tensor(a), to
    size = cudnn.asked("cudnnGetReductionWorkspaceSize", "size_t", cudnn.handle, described, *sides)
    cudnn.do(
        "cudnnReduceTensor", cudnn.handle, described, None, 0, *cudnn.workspace(size), alpha, *cudnn.pair(a), beta, to,
        out,
    )  # fmt: skip
    _same(out.read(), 2.5 * result)


def _reduction(cudnn: Cudnn, op: str, indices: str = "NO_INDICES") -> Any:
    described = cudnn.descriptor("ReduceTensor")
    cudnn.do(
        "cudnnSetReduceTensorDescriptor", described, f"CUDNN_REDUCE_TENSOR_{op}", "CUDNN_DATA_DOUBLE",
        "CUDNN_PROPAGATE_NAN", f"CUDNN_REDUCE_TENSOR_{indices}", "CUDNN_32BIT_INDICES",
    )  # fmt: skip
    return described


def test_a_reduction_tells_where_its_maximum_is(cudnn: Cudnn) -> None:
    a = _random(2, 5, 3)
    described, out = _reduction(cudnn, "MAX", "FLATTENED_INDICES"), cudnn.put(np.zeros((2, 1, 3)))
    to, alpha, beta = cudnn.tensor(out), *_factors(cudnn)
    sides = cudnn.tensor(a), to
    size = cudnn.asked("cudnnGetReductionWorkspaceSize", "size_t", cudnn.handle, described, *sides)
    bytes = cudnn.asked("cudnnGetReductionIndicesSize", "size_t", cudnn.handle, described, *sides)
    indices = cudnn.put(np.zeros((2, 1, 3), np.uint32))
    assert bytes == indices.bytes
    cudnn.do(
        "cudnnReduceTensor", cudnn.handle, described, indices, bytes, *cudnn.workspace(size), alpha, *cudnn.pair(a),
        beta, to, out,
    )  # fmt: skip
    assert np.array_equal(indices.read(), a.argmax(axis=1, keepdims=True))


# ---- batch norm ----

MODES = {"CUDNN_BATCHNORM_SPATIAL": (0, 2, 3), "CUDNN_BATCHNORM_PER_ACTIVATION": (0,)}


def _normalised(x: Array, scale: Array, bias: Array, axes: tuple[int, ...]) -> Array:
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return np.asarray(scale * (x - mean) / np.sqrt(variance + 1e-3) + bias)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("saved", [False, True])
def test_batch_norm_in_training(cudnn: Cudnn, mode: str, saved: bool) -> None:
    axes, x, dy = MODES[mode], _random(4, 3, 2, 5), _random(4, 3, 2, 5)
    scale, bias, mean, variance = (_random(*x.mean(axis=axes, keepdims=True).shape) for _ in range(4))
    few = cudnn.descriptor("Tensor")
    cudnn.do("cudnnDeriveBNTensorDescriptor", few, cudnn.tensor(x), mode)
    on_scale, on_mean, on_variance = cudnn.put(scale), cudnn.put(mean), cudnn.put(variance)
    kept = [cudnn.put(np.full(scale.shape, np.nan)) if saved else None for _ in range(2)]
    out, alpha, beta = cudnn.put(np.full(x.shape, np.nan)), *_factors(cudnn)
    cudnn.do(
        "cudnnBatchNormalizationForwardTraining", cudnn.handle, mode, alpha, beta, *cudnn.pair(x), cudnn.tensor(x), out,
        few, on_scale, cudnn.put(bias), 0.1, on_mean, on_variance, 1e-3, *kept,
    )  # fmt: skip
    _same(out.read(), _normalised(x, scale, bias, axes))
    _same(on_mean.read(), 0.9 * mean + 0.1 * x.mean(axis=axes, keepdims=True))
    _same(on_variance.read(), 0.9 * variance + 0.1 * x.var(axis=axes, keepdims=True, ddof=1))
    back, d_scale, d_bias = cudnn.put(np.full(x.shape, np.nan)), cudnn.put(scale), cudnn.put(bias)
    cudnn.do(
        "cudnnBatchNormalizationBackward", cudnn.handle, mode, alpha, beta, alpha, alpha, *cudnn.pair(x),
        *cudnn.pair(dy), cudnn.tensor(x), back, few, on_scale, d_scale, d_bias, 1e-3, *kept,
    )  # fmt: skip
    _same(back.read(), gradient(lambda at: _normalised(at, scale, bias, axes), x, dy), 1e-7)
    _same(d_scale.read(), scale + gradient(lambda at: _normalised(x, at, bias, axes), scale, dy), 1e-7)
    _same(d_bias.read(), bias + dy.sum(axis=axes, keepdims=True))


def test_batch_norm_in_use(cudnn: Cudnn) -> None:
    x = _random(4, 3, 2, 5)
    scale, bias, mean, variance = (np.abs(_random(1, 3, 1, 1)) for _ in range(4))
    out, alpha, beta = cudnn.put(np.full(x.shape, np.nan)), *_factors(cudnn)
    cudnn.do(
        "cudnnBatchNormalizationForwardInference", cudnn.handle, "CUDNN_BATCHNORM_SPATIAL", alpha, beta,
        *cudnn.pair(x), cudnn.tensor(x), out, *cudnn.pair(scale), cudnn.put(bias), cudnn.put(mean),
        cudnn.put(variance), 1e-3,
    )  # fmt: skip
    _same(out.read(), scale * (x - mean) / np.sqrt(variance + 1e-3) + bias)


# ---- dropout ----


def test_dropout_drops_its_share_and_the_backward_function_the_same(cudnn: Cudnn) -> None:
    x = np.ones((1, 1, 100, 100))
    described, states = cudnn.descriptor("Dropout"), cudnn.asked("cudnnDropoutGetStatesSize", "size_t", cudnn.handle)
    memory, size = cudnn.workspace(states)
    space = cudnn.workspace(cudnn.asked("cudnnDropoutGetReserveSpaceSize", "size_t", cudnn.tensor(x)))

    def dropped() -> Array:
        out = cudnn.put(np.full(x.shape, np.nan))
        cudnn.do("cudnnDropoutForward", cudnn.handle, described, *cudnn.pair(x), cudnn.tensor(x), out, *space)
        return out.read()

    cudnn.do("cudnnSetDropoutDescriptor", described, cudnn.handle, 0.25, memory, size, 7)
    first, second = dropped(), dropped()
    assert set(np.unique(first)) == {0.0, 1.0 / 0.75}
    assert np.mean(first == 0.0) == pytest.approx(0.25, abs=0.02)
    assert not np.array_equal(first, second)
    back = cudnn.put(np.full(x.shape, np.nan))
    cudnn.do("cudnnDropoutBackward", cudnn.handle, described, *cudnn.pair(x), cudnn.tensor(x), back, *space)
    assert np.array_equal(back.read(), second)
    cudnn.do("cudnnSetDropoutDescriptor", described, cudnn.handle, 0.25, memory, size, 7)
    assert np.array_equal(dropped(), first)


# ---- misuse ----


def test_descriptors_are_counted_by_kind_and_misuse_is_named(cudnn: Cudnn) -> None:
    x = cudnn.put(np.ones((2, 3, 4, 5)))
    one, zero = _factors(cudnn)
    fresh, right = cudnn.descriptor("Tensor"), cudnn.tensor(x)
    live, created = cudnn.emulator.objects()["cudnnTensorDescriptor"]
    extra = cudnn.made("cudnnCreateTensorDescriptor", "cudnnTensorDescriptor_t")
    assert cudnn.emulator.objects()["cudnnTensorDescriptor"] == (live + 1, created + 1)
    cudnn.do("cudnnDestroyTensorDescriptor", extra)
    assert cudnn.emulator.objects()["cudnnTensorDescriptor"] == (live, created + 1)
    softmax = ("cudnnSoftmaxForward", cudnn.handle, "CUDNN_SOFTMAX_LOG", "CUDNN_SOFTMAX_MODE_CHANNEL", one)
    cudnn.refused("the descriptor was destroyed before", "cudnnDestroyTensorDescriptor", extra)
    cudnn.refused("x's descriptor was destroyed before", *softmax, extra, x, zero, right, x)
    cudnn.refused("y's descriptor was not set", *softmax, right, x, zero, fresh, x)
    cudnn.refused("extent 2 is 0", "cudnnSetTensor4dDescriptor", fresh, NCHW, "CUDNN_DATA_FLOAT", 1, 2, 0, 3)
    host = cudnn.ffi.new("double[120]")
    cudnn.refused("x is an address of the host", *softmax, right, host, zero, right, x)
    cudnn.refused("alpha is an address of the device", *softmax[:4], x, right, x, zero, right, x)
    larger = cudnn.tensor(np.ones((2, 3, 4, 6)))
    cudnn.refused("x and y have different extents", *softmax, larger, x, zero, right, x)
    cudnn.refused("is not inside a live device allocation", *softmax, larger, x, zero, larger, x)


def test_a_workspace_that_is_too_small_is_refused(cudnn: Cudnn) -> None:
    a, c = cudnn.put(np.ones((2, 3, 4))), cudnn.put(np.ones((2, 1, 4)))
    one, zero = _factors(cudnn)
    rest = (one, cudnn.tensor(a), a, zero, cudnn.tensor(c), c)
    described = _reduction(cudnn, "ADD")
    words = "the workspace has 8 bytes and needs"
    cudnn.refused(words, "cudnnReduceTensor", cudnn.handle, described, None, 0, *cudnn.workspace(8), *rest)


def test_what_not_all_versions_take_is_refused(cudnn: Cudnn) -> None:
    one, zero = _factors(cudnn)
    many, wide, mean = np.ones((65536, 1, 1, 1)), np.ones((1, 1, 1, 1100)), np.ones((1, 1, 1, 1))
    window = cudnn.descriptor("Pooling")
    average = "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING"
    for x, y, width, words in ((wide, mean, 1100, "1 x 1100 elements"), (many, many, 1, "more than 65535 images")):
        cudnn.do("cudnnSetPooling2dDescriptor", window, average, "CUDNN_PROPAGATE_NAN", 1, width, 0, 0, 1, 1)
        out = cudnn.tensor(y), cudnn.put(y)
        cudnn.refused(words, "cudnnPoolingForward", cudnn.handle, window, one, *cudnn.pair(x), zero, *out)
    few = [cudnn.put(mean) for _ in range(3)]
    cudnn.refused(
        "more than 65535 images", "cudnnBatchNormalizationForwardInference", cudnn.handle, "CUDNN_BATCHNORM_SPATIAL",
        one, zero, *cudnn.pair(many), cudnn.tensor(many), cudnn.put(many), *cudnn.pair(mean), *few, 1e-3,
    )  # fmt: skip


def test_what_the_emulated_device_lacks_is_said(cudnn: Cudnn) -> None:
    half = cudnn.descriptor("Tensor")
    words = "the emulated device does not have tensors of this type"
    cudnn.refused(words, "cudnnSetTensor4dDescriptor", half, NCHW, "CUDNN_DATA_HALF", 1, 2, 3, 4)
    words = "the emulated device does not have tensors of 2^31 elements or more"
    cudnn.refused(words, "cudnnSetTensor4dDescriptor", half, NCHW, "CUDNN_DATA_FLOAT", 32768, 65536, 1, 1)
    assert cudnn.status("cudnnSetTensor4dDescriptor", half, NCHW, "CUDNN_DATA_FLOAT", 1, 2, 3, 4) == 0
