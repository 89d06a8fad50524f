"""Products by NVIDIA's libraries: eager's values, the calls that are made, and what is left when a program goes."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.frontend.values import trees
from staged.runtime import cuda
from tests.backends.cublas_cudnn.harness import nothing_is_left, on_gpu, settings

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(4)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(dtype)


def whole(*shape: int, dtype: str = "i4") -> np.ndarray[Any, Any]:
    return RANDOM.integers(-9, 9, size=shape).astype(dtype)


def agrees_with_eager(function: Any, arguments: tuple[Any, ...], rtol: float = 2e-5) -> str:
    """Run `function` in NumPy and on the emulated device, whose libraries have algorithms or not; return the program's
    text.
    """
    with st.eager():
        wanted = trees.flatten(function(*arguments))[0]
    text = ""
    for words in settings("", "no-algorithms"):
        staged = on_gpu(function)
        found = trees.flatten(staged(*arguments))[0]
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol, err_msg=f"result {number}")
        program = staged.stage(*arguments)
        text = program.source
        notes = program.report().notes
        asked = len(re.findall(r"^    bool \w+_is_missing;", text, re.MULTILINE))
        assert len(notes) == (asked if words else 0)
        assert all(re.match(r"\w+\.py:\d+: (cublasLt|cuDNN) has no .+: .+ instead$", note) for note in notes)
    return text


def kernels_of(text: str) -> int:
    """The number of kernels that run with the libraries."""
    return text.split("kernels in place of libraries")[0].count('extern "C" __global__')


def routines(text: str) -> list[str]:
    """The routines of the libraries that a program calls for its products, as often as it does."""
    text = re.sub(r"^    if \(gpu->\w+_is_missing\) \{\n.*?^    \}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(?:CUBLAS|CUDNN)_CHECK\(site, (cu\w+)\(", text)


# ---- matrix products ------------------------------------------------------------------------------

M, N = normal(3, 5), normal(5, 4)
BM, BN = normal(2, 3, 5), normal(2, 5, 4)
PRODUCTS: list[tuple[str, Any, tuple[Any, ...], str]] = [
    ("matrices", lambda a, b: a @ b, (M, N), "cublasSgemm"),
    ("left transposed", lambda a, b: a.T @ b, (normal(5, 3), N), "cublasSgemm"),
    ("right transposed", lambda a, b: a @ b.T, (M, normal(4, 5)), "cublasSgemm"),
    ("both transposed", lambda a, b: a.T @ b.T, (normal(5, 3), normal(4, 5)), "cublasSgemm"),
    ("f64", lambda a, b: a @ b, (normal(3, 5, dtype="f8"), normal(5, 4, dtype="f8")), "cublasDgemm"),
    ("batch", lambda a, b: a @ b, (BM, BN), "cublasSgemmStridedBatched"),
    ("batch of axes", lambda a, b: a @ b, (normal(2, 3, 4, 5), normal(2, 3, 5, 2)), "cublasSgemmStridedBatched"),
    ("batch, transposed", lambda a, b: st.swapaxes(a, 1, 2) @ st.swapaxes(b, 1, 2), (normal(2, 5, 3), normal(2, 4, 5)),
     "cublasSgemmStridedBatched"),
    ("one matrix for a batch", lambda a, b: a @ b, (BM, N), "cublasSgemm"),
    ("a batch for one matrix", lambda a, b: a @ b, (M, BN), "cublasSgemmStridedBatched"),
    ("column", lambda a, b: a @ b, (M, normal(5)), "cublasSgemv"),
    ("column, transposed", lambda a, b: a.T @ b, (normal(5, 3), normal(5)), "cublasSgemv"),
    ("row", lambda a, b: a @ b, (normal(5), N), "cublasSgemv"),
    ("row, transposed", lambda a, b: a @ b.T, (normal(5), normal(4, 5)), "cublasSgemv"),
    ("batch of columns", lambda a, b: a @ b, (BM, normal(2, 5, 1)), "cublasSgemvStridedBatched"),
    ("batch of rows", lambda a, b: a @ b, (normal(2, 1, 5), BN), "cublasSgemvStridedBatched"),
    ("vectors", lambda a, b: a @ b, (normal(7), normal(7)), "cublasSdot"),
    ("vectors of f64", lambda a, b: st.dot(a, b), (normal(7, dtype="f8"), normal(7, dtype="f8")), "cublasDdot"),
    ("tensordot", lambda a, b: st.tensordot(a, b, 2), (normal(2, 3, 4), normal(3, 4, 5)), "cublasSgemm"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "routine"), [c[1:] for c in PRODUCTS], ids=[c[0] for c in PRODUCTS])
def test_products_agree_with_eager_and_copy_nothing(
    function: Any, arguments: tuple[Any, ...], routine: str, device: Emulator
) -> None:
    text = agrees_with_eager(function, arguments)
    assert [name for name in routines(text) if "PointerMode" not in name] == [routine]
    assert "cudaMemcpyDeviceToDevice" not in text


def test_products_of_integers_are_kernels() -> None:
    for dtype in ("i4", "i8"):
        text = agrees_with_eager(lambda a, b: a @ b.T, (whole(3, 5, dtype=dtype), whole(4, 5, dtype=dtype)))
        assert "cublas_v2.h" not in text
    agrees_with_eager(lambda a, b: a @ b, (whole(2, 3, 5), whole(2, 5, 4)))


# What becomes of the product in the same call, and what is a kernel after it.
LINEAR: list[tuple[str, Any, tuple[Any, ...], int]] = [
    ("scaled", lambda a, b: (a @ b) * 3.0, (M, N), 0),
    ("negated", lambda a, b: -(a @ b), (M, N), 0),
    ("scaled by an argument", lambda a, b, s: s * (a @ b), (M, N, 0.3), 0),
    ("added to", lambda a, b, c: c + a @ b, (M, N, normal(3, 4)), 0),
    ("subtracted from", lambda a, b, c: c - 0.5 * (a @ b), (M, N, normal(3, 4)), 0),
    ("less an array", lambda a, b, c: a @ b - c, (M, N, normal(3, 4)), 0),
    ("twice scaled", lambda a, b, c, s: c + s * (a @ b * 3.0), (M, N, normal(3, 4), 0.3), 0),
    ("times an array", lambda a, b, c: c * (a @ b), (M, N, normal(3, 4)), 1),
    ("a vector added to", lambda a, b, c: c + a @ b, (M, normal(5, 1), normal(3, 1)), 0),
    ("a batch added to", lambda a, b, c: c + a @ b, (BM, BN, normal(2, 3, 4)), 0),
    ("times 0", lambda a, b, c: a @ b + c * 0.0, (M, N, np.full((3, 4), np.nan, "f4")), 1),
    ("two uses", lambda a, b: ((a @ b) * 3.0, (a @ b) + 1.0), (M, N), 1),
    ("a function of it", lambda a, b: st.tanh(a @ b), (M, N), 1),
    ("its sum", lambda a, b: st.sum(a @ b, axis=1), (M, N), 1),
]


@pytest.mark.parametrize(("function", "arguments", "kernels"), [c[1:] for c in LINEAR], ids=[c[0] for c in LINEAR])
def test_scaled_sums_are_part_of_the_product(function: Any, arguments: tuple[Any, ...], kernels: int) -> None:
    text = agrees_with_eager(function, arguments)
    assert kernels_of(text) == kernels


EPILOGUES: list[tuple[str, Any, tuple[Any, ...], str, int]] = [
    ("bias", lambda a, b, c: a @ b + c, (M, N, normal(4)), "BIAS", 0),
    ("bias of a row", lambda a, b, c: c + a @ b, (M, N, normal(1, 4)), "BIAS", 0),
    ("bias, both transposed", lambda a, b, c: a.T @ b.T + c, (normal(5, 3), normal(4, 5), normal(4)), "BIAS", 0),
    ("relu", lambda a, b: st.relu(a @ b), (M, N), "", 1),
    ("bias and relu", lambda a, b, c: st.relu(a @ b + c), (M, N, normal(4)), "BIAS", 1),
    ("maximum", lambda a, b, c: st.maximum(a @ b.T * 2.0 + c, 0.0), (M, normal(4, 5), normal(4)), "BIAS", 1),
    ("gelu", lambda a, b: st.gelu(a @ b, approximate="tanh"), (M, N), "GELU", 0),
    ("bias and gelu", lambda a, b, c: st.gelu(a @ b + c, approximate="tanh"), (M, N, normal(4)), "GELU_BIAS", 0),
    ("gelu by erf", lambda a, b, c: st.gelu(a @ b + c), (M, N, normal(4)), "BIAS", 1),
    ("bias of a column", lambda a, b, c: a @ b + c, (M, N, normal(3, 1)), "", 1),
    ("f64", lambda a, b, c: a @ b + c, (M.astype("f8"), N.astype("f8"), normal(4, dtype="f8")), "", 1),
    ("batch", lambda a, b, c: a @ b + c, (BM, BN, normal(4)), "", 1),
    ("a piece of an array", lambda a, b, c: a[1:] @ b + c, (normal(4, 5), N, normal(4)), "BIAS", 0),
]


@pytest.mark.parametrize(
    ("function", "arguments", "epilogue", "kernels"), [c[1:] for c in EPILOGUES], ids=[c[0] for c in EPILOGUES]
)
def test_biases_and_gelu_are_part_of_the_product(
    function: Any, arguments: tuple[Any, ...], epilogue: str, kernels: int
) -> None:
    text = agrees_with_eager(function, arguments)
    assert re.findall(r"CUBLASLT_EPILOGUE_(\w+);", text) == ([epilogue] if epilogue else [])
    assert kernels_of(text) == kernels


@pytest.mark.parametrize("layer", ["product", "product and bias", "convolution", "convolution and bias"])
def test_activations_keep_not_a_number(layer: str) -> None:
    """cublasLt's relu of NaN is 0, and so is that of a convolution with a bias."""
    activations = [st.relu, st.gelu, lambda x: st.gelu(x, approximate="tanh"), st.leaky_relu]

    def function(*groups: Any) -> Any:
        results = []
        for activation, (x, w, b) in zip(activations, groups, strict=True):
            made = x @ w if "product" in layer else st.conv2d(x, w)
            results.append(activation(made + b if "bias" in layer else made))
        return results

    groups = [
        (normal(3, 5), N, normal(4)) if "product" in layer else (normal(2, 3, 4, 4), normal(4, 3, 2, 2), normal(4, 1, 1))
        for _ in activations
    ]
    for x, _, _ in groups:
        x[0, 0] = np.nan
    agrees_with_eager(function, groups, 1e-4)
    for number, result in enumerate(on_gpu(function)(*groups)):
        assert 0 < np.isnan(result).sum() < result.size, f"activation {number}"


def test_what_describes_a_product_is_made_once_and_shared(device: Emulator) -> None:
    def layers(x: Any, w: Any, b: Any) -> Any:
        for _ in st.range(10):
            x = st.relu(x @ w + b)
            x = st.relu(x @ w + b)
        return st.relu(x.T @ w + b)

    gc.collect()
    before = device.counts()
    staged, arguments = on_gpu(layers), (normal(4, 4), normal(4, 4) / 4, normal(4))
    staged(*arguments)
    first = device.counts() - before
    staged(*arguments)
    assert (device.counts() - before).descriptors_created == first.descriptors_created
    # Two products (a flag differs), one layout, and what the heuristics are asked with.
    assert first.live_descriptors == first.descriptors_created == 4
    del staged
    nothing_is_left(device, before)


def test_an_update_of_a_variable_is_made_in_its_place() -> None:
    @st.function(target="portable")
    def train(x: Any, steps: Any) -> Any:
        with with_backend(GPU, x):
            w = st.Variable(st.zeros((4, 3)))
            for _ in st.range(steps):
                w.value = w.value - 0.1 * (x.T @ (x @ w.value + 1.0))
            result = w.value * 1.0
        return result

    x = normal(6, 4)
    program = train.stage(x, 5)
    assert "cudaMemcpyDeviceToDevice" not in program.source
    assert "const float alpha = -0.1f;" in program.source and "const float beta = 1.0f;" in program.source
    w = np.zeros((4, 3))
    for _ in range(5):
        w = w - 0.1 * (x.T @ (x @ w + 1.0))
    np.testing.assert_allclose(train(x, 5), w, rtol=1e-4)


def test_a_product_that_reads_what_it_is_added_to_keeps_it_apart() -> None:
    @st.function(target="portable")
    def powers(w: Any, steps: Any) -> Any:
        with with_backend(GPU, w):
            for _ in st.range(steps):
                w = w + 0.1 * (w @ w)
        return w

    w, wanted = normal(5, 5), None
    wanted = w.astype("f8")
    for _ in range(3):
        wanted = wanted + 0.1 * (wanted @ wanted)
    np.testing.assert_allclose(powers(w, 3), wanted, rtol=1e-4, atol=1e-5)


def test_gradients_of_products() -> None:
    def loss(w: Any, x: Any) -> Any:
        return st.mean(st.tanh(x @ w) ** 2)

    text = agrees_with_eager(lambda w, x: st.value_and_grad(loss)(w, x), (normal(4, 3), normal(6, 4)))
    assert routines(text) == ["cublasSgemm"] * 2


def test_one_handle_made_once_and_given_back(device: Emulator) -> None:
    def products(a: Any, b: Any) -> Any:
        for _ in st.range(20):
            a = a @ b
        return a @ b.T

    gc.collect()
    before = device.counts()
    staged = on_gpu(products)
    x, y = np.eye(3, dtype=np.float32), normal(3, 3)
    staged(x, y)
    first = device.counts() - before
    staged(x, y)
    assert (device.counts() - before).allocations == first.allocations == 2
    text = staged.stage(x, y).source
    assert text.count("cublasCreate") == 1 and "cudnn.h" not in text and "cublasLt" not in text
    del staged
    gc.collect()
    left = device.counts() - before
    assert (left.live_allocations, left.live_streams, left.live_bytes) == (0, 0, 0)


def test_libraries_that_are_not_called_are_not_included() -> None:
    plain = on_gpu(lambda x: x + 1.0).stage(M)
    assert plain._artifact.link == ("-lcudart",)
    assert "cublas_v2.h" not in plain.source and "cudnn.h" not in plain.source
    assert on_gpu(lambda a, b: a @ b).stage(M, N)._artifact.link == ("-lcublas", "-lcudart")


@pytest.mark.usefixtures("misuse")
def test_sizes_that_no_int_holds_are_refused_with_their_line() -> None:
    @st.function
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            rows = st.zeros((1 << 31, 4)) + x[0]
            return st.sum(rows @ x.T)  # the line

    with pytest.raises(st.UnsupportedError, match="cuBLAS takes sizes up to 2,147,483,647") as caught:
        f.stage(np.ones((3, 4), np.float32)).source  # noqa: B018
    assert caught.value.where is not None and "# the line" in caught.value.where.text
    assert "split the product" in str(caught.value)


@pytest.mark.parametrize("backwards", [False, True])
def test_convolutions_of_more_elements_than_a_descriptor_takes_are_refused_with_their_line(backwards: bool) -> None:
    def convolved(x: Any, w: Any) -> Any:
        images = st.zeros((1 << 15, 1, 256, 256)) + x[0]
        y = st.conv2d(images, w)  # the line
        return st.sum(y)

    function = st.grad(convolved, argnums=1) if backwards else convolved
    with pytest.raises(st.UnsupportedError, match="fewer than 2,147,483,648 elements") as caught:
        on_gpu(function).stage(np.ones(3, np.float32), np.ones((1, 1, 256, 1), np.float32)).source  # noqa: B018
    assert caught.value.where is not None and "# the line" in caught.value.where.text
    assert "take the batch in several pieces" in str(caught.value)


def test_a_refused_call_names_the_call_and_the_python_line(misuse: None) -> None:
    program = on_gpu(lambda a, b: a @ b).stage(M, N)
    assert ", a, 5, &beta" in program.source
    wrong = replace(program._artifact, source=program.source.replace(", a, 5, &beta", ", a, 1, &beta"))
    with pytest.raises(st.ProgramError) as caught:
        cuda.load(wrong)(M, N)
    said = str(caught.value)
    assert "cublasSgemm(gpu->cublas" in said and "lambda.cu:" in said and "test_libraries.py" in said


# ---- convolutions ---------------------------------------------------------------------------------

CONVOLUTIONS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = [
    ("plain", (2, 3, 6, 5), (4, 3, 3, 3), {}, "f4"),
    ("not square", (2, 3, 7, 4), (5, 3, 2, 3), {}, "f4"),
    ("padded", (1, 2, 5, 4), (3, 2, 3, 3), {"padding": (2, 1)}, "f4"),
    ("strided", (2, 2, 8, 7), (3, 2, 3, 2), {"stride": (2, 3), "padding": 1}, "f4"),
    ("dilated", (1, 2, 9, 8), (2, 2, 3, 2), {"dilation": (2, 3)}, "f4"),
    ("grouped", (2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}, "f4"),
    ("of f64", (2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1}, "f8"),
]


@pytest.mark.parametrize(
    ("x", "w", "attributes", "dtype"), [c[1:] for c in CONVOLUTIONS], ids=[c[0] for c in CONVOLUTIONS]
)
def test_convolutions_and_their_gradients_agree_with_eager(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], dtype: str
) -> None:
    def loss(x: Any, w: Any) -> Any:
        return st.sum(st.sin(st.conv2d(x, w, **attributes)))

    both = lambda x, w: st.value_and_grad(loss, argnums=(0, 1))(x, w)  # noqa: E731
    arguments = (normal(*x, dtype=dtype), normal(*w, dtype=dtype))
    text = agrees_with_eager(both, arguments, 1e-4 if dtype == "f4" else 1e-10)
    made = ["cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"]
    assert sorted(name for name in routines(text) if "Get" not in name) == sorted(made)
    assert "CUDNN_FMA_MATH" in text and "CUDNN_DETERMINISTIC" in text


@pytest.mark.parametrize(
    ("function", "routine", "kernels"),
    [
        (lambda x, w, b: st.conv2d(x, w, b), "cudnnConvolutionBiasActivationForward", 0),
        (lambda x, w, b: st.relu(st.conv2d(x, w, b, padding=1)), "cudnnConvolutionBiasActivationForward", 1),
        (lambda x, w, b: st.relu(st.conv2d(x, w)) * st.sum(b), "cudnnConvolutionForward", 2),
        (lambda x, w, b: 2.0 * st.conv2d(x, w), "cudnnConvolutionForward", 0),
        (lambda x, w, b: st.tanh(st.conv2d(x, w, b)), "cudnnConvolutionBiasActivationForward", 1),
    ],
    ids=["bias", "bias and relu", "relu", "scaled", "bias and tanh"],
)
def test_a_bias_is_part_of_the_convolution(function: Any, routine: str, kernels: int) -> None:
    text = agrees_with_eager(function, (normal(2, 3, 6, 5), normal(4, 3, 3, 3), normal(4)), 1e-4)
    assert [name for name in routines(text) if "Get" not in name] == [routine]
    assert kernels_of(text) == kernels


def test_sixty_convolutions_share_descriptors_and_give_them_back(device: Emulator) -> None:
    def deep(x: Any, w: Any) -> Any:
        for _ in range(59):
            x = st.conv2d(x, w, padding=1) * 0.5
        return st.conv2d(x, w)

    gc.collect()
    before = device.counts()
    staged, arguments = on_gpu(deep), (normal(1, 2, 5, 4), normal(2, 2, 3, 3) / 3)
    found = staged(*arguments)
    with st.eager():
        np.testing.assert_allclose(found, staged(*arguments), rtol=1e-3, atol=1e-5)
    first = device.counts() - before
    # Images inside and at the end, filters, two ways of moving the window.
    assert first.descriptors_created == 5
    staged(*arguments)
    again = device.counts() - before
    assert (again.descriptors_created, again.allocations) == (first.descriptors_created, first.allocations)
    text = staged.stage(*arguments).source
    assert text.count("= cudnnConvolution") == 0 and len([n for n in routines(text) if "Get" not in n]) <= 60
    del staged
    nothing_is_left(device, before)


def test_a_convolution_of_no_images() -> None:
    def loss(w: Any, x: Any) -> Any:
        return st.sum(st.conv2d(x, w))

    text = agrees_with_eager(lambda w, x: st.grad(loss)(w, x), (normal(2, 1, 2, 2), np.ones((0, 1, 4, 4), "f4")))
    assert "cudnn.h" not in text


# ---- a weight's gradient with its bias' ------------------------------------------------------------


def columns_of_weights(x: Any, w: Any, b: Any, ct: Any) -> Any:
    return st.vjp(lambda w, b: x @ w + b, w, b)[1](ct)


def rows_of_weights(x: Any, w: Any, b: Any, ct: Any) -> Any:
    return st.vjp(lambda v, b: x @ v.T + b, w.T * 1.0, b)[1](ct)


def behind_a_layer(x: Any, w: Any, b: Any, ct: Any) -> Any:
    def loss(w: Any, b: Any, r: Any) -> Any:
        ys, _ = st.rnn(st.reshape(x @ w + b, (4, 2, 5)), None, r, r)
        return st.sum(ys * ys)

    return st.grad(loss, argnums=(0, 1, 2))(w, b, ct[:5] * 0.2)


def of_pieces(x: Any, w: Any, b: Any, ct: Any) -> Any:
    d_w, d_b = columns_of_weights(x[1:6], w, b, ct[3:])
    for k in st.range(2):
        more, _ = columns_of_weights(x[k + 1 : k + 3], d_w, b, ct[k : k + 2])
        d_w = more
    return d_w, d_b


def with_relu(x: Any, w: Any, b: Any, ct: Any) -> Any:
    return st.vjp(lambda w, b: st.relu(x @ w + b), w, b)[1](ct)


def in_place(x: Any, w: Any, b: Any, ct: Any) -> Any:
    d_w, d_b = columns_of_weights(x, w, b, ct)
    return w - 0.1 * d_w, b - 0.1 * d_b


def weight_alone(x: Any, w: Any, b: Any, ct: Any) -> Any:
    return columns_of_weights(x, w, b, ct)[0]


@pytest.mark.parametrize(
    ("function", "epilogues"),
    [
        (columns_of_weights, ["BGRADA"]), (rows_of_weights, ["BGRADB"]), (behind_a_layer, ["BGRADA"]),
        (of_pieces, ["BGRADA"]), (with_relu, []), (in_place, []), (weight_alone, []),
    ],
)  # fmt: skip
def test_gradients_of_weight_and_bias_are_one_product_where_no_kernel_adds_up(
    function: Any, epilogues: list[str]
) -> None:
    text = agrees_with_eager(function, (normal(8, 6), normal(6, 5), normal(5), normal(8, 5)))
    assert re.findall(r"CUBLASLT_EPILOGUE_(BGRAD\w)", text) == epilogues
    if function is columns_of_weights:
        assert kernels_of(text) == 0


# ---- options ------------------------------------------------------------------------------------


def everything(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    """A convolution with its gradients, a product with and one without an epilogue."""
    y, (d_x, d_w) = st.value_and_grad(lambda x, w: st.sum(st.conv2d(x, w) ** 2), argnums=(0, 1))(x, w)
    z = st.relu(st.conv2d(x, w, b)).reshape(2, -1)
    return y, d_x, d_w, z, v @ v, st.relu(v.T @ v + c)


@pytest.mark.parametrize("options", [{}, {"tf32": True}, {"deterministic": False}, {"algorithms": "timed"}], ids=str)
def test_options_reach_the_libraries(options: dict[str, Any]) -> None:
    @st.function(target="portable")
    def inside(*arrays: Any) -> Any:
        with with_backend(GPU, *arrays, **options):
            made = everything(*arrays)
        return made

    arrays = normal(2, 3, 6, 6), normal(4, 3, 3, 3), normal(4), normal(8, 8), normal(8)
    text = inside.stage(*arrays).source
    is_rounded, is_any, is_timed = (
        bool(options.get("tf32")),
        options.get("deterministic") is False,
        "algorithms" in options,
    )
    assert ("CUDNN_DEFAULT_MATH" in text, "CUDNN_FMA_MATH" in text) == (is_rounded, not is_rounded)
    assert ("CUBLAS_COMPUTE_32F_FAST_TF32" in text, "CUBLAS_TF32_TENSOR_OP_MATH" in text) == (is_rounded, is_rounded)
    assert ("CUDNN_DETERMINISTIC" not in text) == is_any
    asked = len(re.findall(r"= cudnnFindConvolution", text)), len(re.findall(r"Algorithm_v7\(", text))
    assert asked == ((3, 0) if is_timed else (0, 3))
    found = inside(*arrays)
    with st.eager():
        wanted = inside(*arrays)
    differences = [
        float(np.max(np.abs(one - other)) / np.max(np.abs(other))) for one, other in zip(found, wanted, strict=True)
    ]
    # Factors of 10 bits after the point: further away than f32, but not far.
    assert max(differences) < (1e-2 if is_rounded else 2e-5)
    assert not is_rounded or min(differences) > 1e-6


# ---- addresses --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("misuse")
def test_an_algorithm_counts_on_no_more_than_what_addresses_are_multiples_of() -> None:
    """A matrix of 6 x 5 takes 120 bytes: of several, the second lies at a multiple of 8."""

    def each(xs: Any, w: Any, b: Any) -> Any:
        total = 0.0
        for number in st.range(3):
            h = st.gelu(xs[number] @ w + b, approximate="tanh")
            total += st.sum(h @ h.T)
        return total

    assert "_aligned_" not in agrees_with_eager(each, (normal(3, 4, 8), normal(8, 4), normal(4)))
    arguments = (normal(3, 6, 5), normal(5, 8), normal(8))
    assert "product_8x6x5_NN_gelu_bias_aligned_8;" in agrees_with_eager(each, arguments)
    program = on_gpu(each).stage(*arguments)
    careless = re.sub(r", 8,(\s+)&gpu->product", r", 256,\1&gpu->product", program.source)
    assert careless != program.source
    with pytest.raises(st.ProgramError, match="cublasLtMatmul"):
        cuda.load(replace(program._artifact, source=careless))(*arguments)
    assert " at a multiple of 256 bytes" in cuda.emulator().last_violation()
