"""`st.quantize`: layers of eight bits against a plain reading in NumPy, against the layers of floats, and on digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, nn, with_backend
from tests import opencl_device
from tests.errors.said import refusals
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
F32 = np.float32


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(F32)


def filled(model: Any) -> Any:
    """The model with weights from one seed."""
    rng = np.random.default_rng(7)
    state = {k: rng.standard_normal(v.shape).astype(v.dtype) for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    return model


# ---- a plain reading ------------------------------------------------------------------------------


def in_i8(x: Any, scale: Any) -> Any:
    return np.clip(np.rint(x / scale), -127, 127).astype(np.int64)


def scale_of(x: Any, axis: Any = None) -> Any:
    return np.abs(x).max(axis) / F32(127)


def plain_linear(layer: Any, x: Any, scale: Any) -> Any:
    w, b = (layer.state_dict()[name] for name in ("weight", "bias"))
    scales = scale_of(w, 1)
    sums = in_i8(x, scale) @ in_i8(w, scales[:, None]).T
    return sums.astype(F32) * (scale * scales) + b


def plain_conv(layer: Any, x: Any, scale: Any) -> Any:
    w, b = layer.state_dict()["weight"], layer.state_dict().get("bias", np.zeros(1, F32))
    scales = scale_of(w, tuple(range(1, w.ndim)))
    q, v = in_i8(x, scale), in_i8(w, scales.reshape(-1, *(1,) * (w.ndim - 1)))
    function = st.conv2d if w.ndim == 4 else st.conv1d
    sums = function(q.astype(float), v.astype(float), None, layer.stride, layer.padding, layer.dilation, layer.groups)
    shape = (-1, *(1,) * (w.ndim - 2))
    return np.asarray(sums).astype(F32) * (scale * scales).reshape(shape) + b.reshape(shape)


LAYERS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(70, 13), plain_linear, (5, 70)),
    "linear of more axes": (lambda: nn.Linear(16, 33), plain_linear, (2, 3, 16)),
    "one row": (lambda: nn.Linear(300, 40), plain_linear, (300,)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 5), plain_conv, (2, 3, 9, 11)),
    "one image": (lambda: nn.Conv2d(3, 8, 3), plain_conv, (3, 9, 11)),
    "strides": (lambda: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2), plain_conv, (2, 4, 9, 8)),
    "each channel alone": (lambda: nn.Conv2d(4, 8, 3, padding="same", groups=4, bias=False), plain_conv, (2, 4, 6, 7)),
    "an even kernel": (lambda: nn.Conv2d(20, 5, 2, padding="same"), plain_conv, (1, 20, 6, 7)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, 1, 2), plain_conv, (2, 4, 19)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_its_integers_mean(name: str) -> None:
    make, plain, shape = LAYERS[name]
    layer, x = filled(make()), floats(*shape)
    for calibration, scale in ((None, scale_of(x)), ([x * F32(0.5), x * F32(0.25)], F32(scale_of(x * F32(0.5))))):
        quantized = st.quantize(layer, calibration)
        expected = plain(layer, x, scale)
        run = st.function(lambda x, q=quantized: q(x))
        for found in (quantized(x), run(x)):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    close = np.abs(np.asarray(st.quantize(layer)(x)) - np.asarray(layer(x)))
    assert 0 < close.max() < 0.02 * np.abs(np.asarray(layer(x))).max()


@pytest.mark.parametrize("using", ["cuda", "opencl", "c99", "portable"])
def test_other_machines_compute_the_same(using: str, request: pytest.FixtureRequest) -> None:
    model = filled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 5 * 6, 10)))
    quantized, x = st.quantize(model), floats(4, 3, 7, 8)
    expected = quantized(x)
    if using in ("c99", "portable"):
        found = st.function(lambda x: quantized(x), target=using)(x)
    else:
        if using == "cuda":
            request.getfixturevalue("emulated_device")
        else:
            opencl_device.require()
        back_end = {"using": "opencl"} if using == "opencl" else {}

        @st.function
        def on_device(x: Any) -> Any:
            with with_backend(GPU, **back_end):
                return quantized(x)

        found = on_device(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_integers_and_scales_are_those_of_torch() -> None:
    layer = filled(nn.Linear(40, 7))
    weight = layer.state_dict()["weight"]
    state = st.quantize(layer).state_dict()

    def theirs(torch: Any, w: Any, scales: Any) -> Any:
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        made = torch.quantize_per_channel(torch.tensor(w), torch.tensor(scales).double(), zeros, 0, torch.qint8)
        return made.int_repr().numpy()

    expected = reference(theirs, weight, state["weight_scale"])
    np.testing.assert_array_equal(state["qweight"], expected)


# ---- models ---------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Embedding(11, 16)
        self.first = nn.Linear(16, 16)
        self.again = self.first
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        h = self.again(st.tanh(self.first(self.table(x))))
        return self.head(self.attention(h, h, h)[0])


def test_a_model_keeps_its_form_and_its_other_layers() -> None:
    model = filled(Tied())
    before = {name: value.copy() for name, value in model.state_dict().items()}
    quantized = st.quantize(model)
    state = quantized.state_dict()
    assert [name for name in state if name.startswith(("first", "again", "head"))] == [
        *("first.qweight", "first.weight_scale", "first.bias"),
        *("again.qweight", "again.weight_scale", "again.bias"),
        *("head.qweight", "head.weight_scale"),
    ]
    assert quantized.first is quantized.again and not quantized.training and model.training
    assert quantized.first.qweight.name == "first.qweight"
    for name in ("table.weight", "attention.in_proj_weight", "attention.out_proj.weight"):
        np.testing.assert_array_equal(state[name], before[name])
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    x = np.arange(10).reshape(2, 5) % 11
    wanted = np.asarray(model.eval()(x))
    assert np.abs(np.asarray(quantized(x)) - wanted).max() < 0.1 * np.abs(wanted).max()
    assert [name for name, _ in quantized.named_parameters() if "first" in name or "head" in name] == []
    assert "(first): QuantizedLinear(in_features=16, out_features=16, bias=True, input=dynamic)" in repr(quantized)


def test_a_state_dict_is_loaded_by_a_model_of_the_same_form() -> None:
    def build() -> Any:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))

    x = floats(2, 1, 6, 6)
    saved, other = st.quantize(filled(build()), [x]), st.quantize(build(), [x])
    other.load_state_dict(saved.state_dict())
    np.testing.assert_array_equal(other(x), saved(x))
    assert saved.state_dict()["0.qweight"].dtype == np.int8


def test_zeros_stay_zeros() -> None:
    layer = nn.Linear(8, 3)
    layer.load_state_dict({"weight": np.zeros((3, 8), F32), "bias": np.ones(3, F32)})
    np.testing.assert_array_equal(st.quantize(layer)(np.zeros((2, 8), F32)), np.ones((2, 3)))
    np.testing.assert_array_equal(st.quantize(filled(layer))(np.zeros((0, 8), F32)), np.ones((0, 3)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(wrong: float) -> None:
    quantized, x = st.quantize(filled(nn.Linear(8, 3))), floats(2, 8)
    x[1, 2] = wrong
    assert not np.isfinite(np.asarray(quantized(x))).any()
    assert not np.isfinite(st.function(lambda x: quantized(x))(x)).any()


def test_sums_that_i32_does_not_hold_are_wider() -> None:
    layer, ones = nn.Linear(140_000, 1, bias=False), np.ones((1, 140_000), F32)
    layer.load_state_dict({"weight": ones})
    quantized = st.quantize(layer)
    for found in (quantized(ones), st.function(lambda x: quantized(x))(ones)):
        np.testing.assert_allclose(found, [[140_000]], rtol=1e-6)


# ---- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["grad", "jvp", "eager"])
def test_a_gradient_is_refused_with_the_line(how: str) -> None:
    quantized, x = st.quantize(filled(nn.Linear(4, 3))), floats(2, 4)

    def loss(x: Any) -> Any:
        return st.sum(quantized(x))

    run = {
        "grad": lambda: st.function(lambda x: st.grad(loss)(x))(x),
        "jvp": lambda: st.function(lambda x: st.jvp(loss, (x,), (x,)))(x),
        "eager": lambda: st.grad(loss)(x),
    }[how]
    with pytest.raises(
        st.GradientError, match=r"quantized_layer`(.|\n)*train the model first(.|\n)*st.sum\(quantized\(x\)\)"
    ):
        run()


class Unused(nn.Module):
    def __init__(self) -> None:
        self.used, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.used(x)


NOT_FINITE = "with calibration_data, the input of `model` has NaN or infinite elements"


test_refusals = refusals(
    (lambda: st.quantize(nn.Linear(2, 2), dtype=st.i16), st.DTypeError, "to i8"),
    (lambda: st.quantize(lambda x: x), st.ArgumentError, "takes an nn.Module"),
    (lambda: st.quantize(nn.ReLU()), st.ArgumentError, "ReLU has no layer of `Linear`"),
    (lambda: st.quantize(Unused(), [floats(1, 4)]), st.ArgumentError, "reaches `idle`"),
    (lambda: st.quantize(Unused(), []), st.ArgumentError, "reaches `used`"),
    (lambda: st.quantize(nn.Linear(2, 2), [floats(1, 2) * np.nan]), st.ArgumentError, NOT_FINITE),
    (lambda: st.quantize(nn.Linear(2, 2), [floats(1, 2), floats(1, 2) * np.nan]), st.ArgumentError, NOT_FINITE),
    (lambda: st.quantize(nn.Linear(2, 2), [floats(1, 2) * np.nan, floats(1, 2)]), st.ArgumentError, NOT_FINITE),
    (lambda: st.quantize(nn.Linear(2, 2), [floats(1, 2) * np.inf]), st.ArgumentError, NOT_FINITE),
    (lambda: st.quantize(nn.Linear(2, 2))(np.ones((1, 2))), st.DTypeError, "has f32 parameters"),
    (lambda: st.quantize(nn.Linear(2, 2))(floats(1, 3)), st.ShapeError, "2 input features"),
    (lambda: st.quantize(nn.Conv2d(2, 2, 3))(floats(1, 3, 5, 5)), st.ShapeError, "2 input channels"),
    (lambda: st.quantize(nn.Conv2d(2, 2, 3))(floats(1, 2, 2, 5)), st.ShapeError, "larger than"),
    (lambda: st.function(lambda: st.quantize(nn.Linear(2, 2)))(), st.StagedError, "plain Python"),
)


def test_a_weight_that_is_not_finite_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.load_state_dict({"0.weight": np.full((2, 2), np.inf, F32), "0.bias": np.zeros(2, F32)})
    with pytest.raises(st.ArgumentError, match="weight of `0`"):
        st.quantize(model)


# ---- accuracy -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mnist_keeps_its_accuracy(data_folder: Any) -> None:
    from examples.mnist.models import CNN
    from examples.mnist.python_loop import accuracy
    from examples.mnist.train import load, train

    images, labels, test_images, test_labels = load(str(data_folder("mnist")))
    weights, *_ = train(images, labels, test_images, test_labels, 1, 0.02, 0)
    model = CNN()
    model.load_state_dict(weights)
    before = accuracy(model, test_images, test_labels)
    assert before > 0.9
    for calibration in (None, [images[:200]]):
        assert accuracy(st.quantize(model, calibration), test_images, test_labels) > before - 0.005
