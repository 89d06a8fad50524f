"""Layers against torch's with the same weights: values, parameter names and shapes, gradients."""

import json
from functools import partial

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 4, 9, 8))
VECTORS = RNG.standard_normal((3, 5, 6))

CASES = {
    "linear": (lambda n, **k: n.Linear(6, 7, **k), VECTORS),
    "linear_without_bias": (lambda n, **k: n.Linear(6, 7, bias=False, **k), VECTORS),
    "conv": (lambda n, **k: n.Conv2d(4, 6, 3, **k), IMAGES),
    "conv_stride_padding": (lambda n, **k: n.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), **k), IMAGES),
    "conv_groups": (lambda n, **k: n.Conv2d(4, 6, 3, groups=2, dilation=2, **k), IMAGES),
    "layer_norm": (lambda n, **k: n.LayerNorm(6, **k), VECTORS),
    "layer_norm_two_axes": (lambda n, **k: n.LayerNorm((5, 6), eps=1e-3, **k), VECTORS),
    "conv_same": (lambda n, **k: n.Conv2d(4, 2, 3, padding="same", dilation=2, **k), IMAGES),
    "conv_1d": (lambda n, **k: n.Conv1d(5, 10, 3, stride=2, padding=1, groups=5, **k), VECTORS),
    "conv_transpose": (lambda n, **k: n.ConvTranspose2d(4, 6, 3, 2, 1, (1, 0), groups=2, **k), IMAGES),
    "batch_norm": (lambda n, **k: n.BatchNorm2d(4, **k), IMAGES),
    "batch_norm_1d": (lambda n, **k: n.BatchNorm1d(5, eps=1e-2, **k), VECTORS),
    "batch_norm_rows": (lambda n, **k: n.BatchNorm1d(6, track_running_stats=False, **k), VECTORS[0]),
    "batch_norm_3d": (lambda n, **k: n.BatchNorm3d(4, **k), IMAGES[..., None]),
    "group_norm": (lambda n, **k: n.GroupNorm(2, 4, **k), IMAGES),
    "instance_norm": (lambda n, **k: n.InstanceNorm2d(4, affine=True, **k), IMAGES),
    "rms_norm": (lambda n, **k: n.RMSNorm(6, **k), VECTORS),
}
PLAIN = {
    "relu": (lambda n: n.ReLU(), VECTORS),
    "sigmoid": (lambda n: n.Sigmoid(), VECTORS),
    "tanh": (lambda n: n.Tanh(), VECTORS),
    "gelu": (lambda n: n.GELU(), VECTORS),
    "gelu_tanh": (lambda n: n.GELU(approximate="tanh"), VECTORS),
    "softmax": (lambda n: n.Softmax(dim=-1), VECTORS),
    "max_pool": (lambda n: n.MaxPool2d(2), IMAGES),
    "max_pool_overlapping": (lambda n: n.MaxPool2d(3, stride=2, padding=1), IMAGES),
    "max_pool_ceil": (lambda n: n.MaxPool2d(2, ceil_mode=True), IMAGES),
    "max_pool_1d": (lambda n: n.MaxPool1d(2, padding=1), VECTORS),
    "avg_pool": (lambda n: n.AvgPool2d(2), IMAGES),
    "avg_pool_padding": (lambda n: n.AvgPool2d((3, 2), 2, 1, True, False), IMAGES),
    "avg_pool_1d": (lambda n: n.AvgPool1d(3, 1), VECTORS),
    "adaptive_avg_pool": (lambda n: n.AdaptiveAvgPool2d((None, 3)), IMAGES),
    "adaptive_max_pool": (lambda n: n.AdaptiveMaxPool2d((3, 4)), IMAGES),
    "instance_norm_1d": (lambda n: n.InstanceNorm1d(5), VECTORS),
    "log_softmax": (lambda n: n.LogSoftmax(dim=1), VECTORS),
    "leaky_relu": (lambda n: n.LeakyReLU(0.2), VECTORS),
    "elu": (lambda n: n.ELU(0.5), VECTORS),
    "silu": (lambda n: n.SiLU(), VECTORS),
    "softplus": (lambda n: n.Softplus(), VECTORS),
    "identity": (lambda n: n.Identity(), VECTORS),
    "flatten": (lambda n: n.Flatten(), IMAGES),
}


@pytest.fixture
def random():
    """Each test draws the same numbers, whatever ran before it."""
    return np.random.default_rng(1)


def in_torch(torch, make, weights, x):
    """The layer's output in PyTorch, and the derivatives of its sum of squares by the input and the weights, by name."""
    module = make(torch.nn)
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    module.load_state_dict({name: torch.tensor(value) for name, value in weights.items()}, strict=False)
    x = torch.tensor(x, requires_grad=True)
    y = module(x)
    (y * y).sum().backward()
    return y, x.grad, {name: parameter.grad for name, parameter in module.named_parameters()}, json.dumps(shapes)


def gradient_of(module):
    """Sum of squares of the output, with its gradient by input and parameters, staged."""

    @st.function
    def run(x, weights):
        def loss(x, weights):
            for name, parameter in module.named_parameters():
                parameter.value = weights[name]
            y = module(x)
            return st.sum(y * y), y

        (total, y), (dx, dw) = st.value_and_grad(loss, argnums=(0, 1), has_aux=True)(x, weights)
        return y, dx, dw

    return run


@pytest.mark.parametrize("case", CASES)
def test_a_layer_with_parameters_agrees_with_torch(case, random):
    make, x = CASES[case]
    ours = make(nn, dtype=st.f64)
    weights = {name: 0.5 * random.standard_normal(one.shape) for name, one in dict(ours.named_parameters()).items()}

    def theirs(torch, weights, x):
        return in_torch(torch, partial(make, dtype=torch.float64), weights, x)

    y_torch, dx_torch, dw_torch, shapes = reference(theirs, weights, x)
    assert {name: list(value.shape) for name, value in ours.state_dict().items()} == json.loads(shapes)
    assert list(weights) == list(dw_torch)
    y, dx, dw = gradient_of(ours)(x, weights)
    np.testing.assert_allclose(y, y_torch, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dx, dx_torch, rtol=1e-9, atol=1e-10)
    for name, expected in dw_torch.items():
        np.testing.assert_allclose(dw[name], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", PLAIN)
def test_a_layer_without_parameters_agrees_with_torch(case):
    make, x = PLAIN[case]
    y_torch, dx_torch, _, _ = reference(lambda torch, x: in_torch(torch, make, {}, x), x)
    y, dx, _ = gradient_of(make(nn))(x, {})
    np.testing.assert_allclose(y, y_torch, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dx, dx_torch, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("padding", [1, -3])
def test_the_row_of_padding_starts_as_zeros_and_is_not_trained(padding):
    indices = np.array([[1, 0, 3], [3, -3, 2]])
    ours = nn.Embedding(4, 5, padding, dtype=st.f64)
    assert repr(ours) == "Embedding(4, 5, padding_idx=1)"  # as torch prints it
    weight = ours.weight.numpy()
    assert not weight[1].any() and weight[[0, 2, 3]].all()
    ours.weight.value = weight = weight + 1.0

    @st.function
    def run(indices):
        return ours(indices), st.grad(lambda: st.sum(ours(indices) ** 2), wrt=ours)()["weight"]

    expected = np.zeros_like(weight)
    np.add.at(expected, indices, 2.0 * weight[indices])
    expected[1] = 0.0
    with st.eager():
        eager = run(indices)
    for rows, slope in (run(indices), eager):
        np.testing.assert_array_equal(rows, weight[indices])
        np.testing.assert_allclose(slope, expected, rtol=1e-12)


def test_a_row_of_padding_may_be_one_that_the_indices_dtype_does_not_reach():
    np.testing.assert_array_equal(nn.Embedding(300, 2, 299)(np.array([1, 255], np.uint8)).shape, (2, 2))


def test_embedding_gathers_rows_and_adds_up_gradients(random):
    indices = np.array([[1, 0, 3], [3, 3, 2]])
    ours = nn.Embedding(4, 5, dtype=st.f64)
    weight = random.standard_normal((4, 5))
    ours.load_state_dict({"weight": weight})

    @st.function
    def run(indices):
        def loss():
            y = ours(indices)
            return st.sum(y * y)

        return st.grad(loss, wrt=ours)()

    expected = np.zeros_like(weight)
    np.add.at(expected, indices, 2.0 * weight[indices])
    np.testing.assert_allclose(run(indices)["weight"], expected, rtol=1e-12)
    with pytest.raises(st.ProgramError, match="out of range"):
        run(indices + 1)


def test_sequential_has_torchs_keys_and_shapes():
    def build(n):
        return n.Sequential(n.Conv2d(1, 10, 5), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(1440, 50))

    def shapes(module):
        return json.dumps({name: tuple(value.shape) for name, value in module.state_dict().items()})

    assert shapes(build(nn)) == reference(lambda torch: shapes(build(torch.nn)))


def test_dropout_scales_what_it_keeps_and_is_off_in_evaluation():
    layer = nn.Dropout(0.25)

    @st.function
    def run(x):
        return layer(x)

    x = np.ones((100, 100), np.float32)
    y = run(x)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.03
    layer.eval()
    np.testing.assert_array_equal(run(x), x)


def test_state_dict_mismatch_names_the_keys():
    with pytest.raises(KeyError, match="bias"):
        nn.Linear(2, 3).load_state_dict({"weight": np.zeros((3, 2), np.float32)})
    with pytest.raises(st.ShapeError, match="`weight`"):
        nn.Linear(2, 3, bias=False).load_state_dict({"weight": np.zeros((2, 3), np.float32)})


def test_initial_weights_stay_within_torchs_bound_and_depend_on_the_seed():
    @st.function
    def weights(seed):
        st.seed(seed)
        return nn.Linear(100, 50).state_dict()

    first, second = weights(0), weights(1)
    assert np.abs(first["weight"]).max() <= 0.1 and first["weight"].std() > 0.05
    assert not np.array_equal(first["weight"], second["weight"])
    np.testing.assert_array_equal(first["weight"], weights(0)["weight"])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(3, 2), (4, 3)),
        (nn.Conv2d(1, 2, 3), (1, 1, 5, 5)),
        (nn.LayerNorm(3), (4, 3)),
        (nn.BatchNorm1d(3), (4, 3)),
        (nn.LSTM(3, 2), (4, 2, 3)),
        (nn.GRUCell(3, 2), (4, 3)),
    ],
)
def test_f64_data_in_an_f32_layer_is_refused_with_the_cast_to_write(layer, shape):
    @st.function
    def f(x):
        return layer(x)  # here

    with pytest.raises(st.DTypeError, match="has f32 parameters, its input is f64") as caught:
        f(np.zeros(shape))
    assert "# here" in str(caught.value) and "x.astype(float32)" in str(caught.value)


CLASS_WEIGHTS = np.array([0.5, 2.0, 1.0, 0.1, 3.0])


def weights_for(n):
    """The weights of the classes, as an array of the library."""
    if n is nn:
        return CLASS_WEIGHTS
    import torch

    return torch.tensor(CLASS_WEIGHTS)


LOSSES = {
    "cross_entropy_smooth": (lambda n: n.CrossEntropyLoss(label_smoothing=0.2), "labels"),
    "cross_entropy_all": (
        lambda n: n.CrossEntropyLoss(weight=weights_for(n), ignore_index=4, label_smoothing=0.1),
        "labels",
    ),
    "cross_entropy_each": (lambda n: n.CrossEntropyLoss(weight=weights_for(n), reduction="none"), "labels"),
    "nll_weighted": (lambda n: n.NLLLoss(weight=weights_for(n)), "labels"),
    "nll_ignoring": (lambda n: n.NLLLoss(ignore_index=0, reduction="sum"), "labels"),
    "cross_entropy": (lambda n: n.CrossEntropyLoss(), "labels"),
    "nll": (lambda n: n.NLLLoss(reduction="sum"), "labels"),
    "mse": (lambda n: n.MSELoss(reduction="none"), "floats"),
    "l1": (lambda n: n.L1Loss(), "floats"),
    "huber": (lambda n: n.HuberLoss(delta=0.5), "floats"),
    "smooth_l1": (lambda n: n.SmoothL1Loss(beta=0.3), "floats"),
    "smooth_l1_sharp": (lambda n: n.SmoothL1Loss(beta=0.0), "floats"),
    "bce_with_logits": (lambda n: n.BCEWithLogitsLoss(), "chances"),
    "kl_div": (lambda n: n.KLDivLoss(reduction="batchmean"), "chances"),
    "kl_div_of_logarithms": (lambda n: n.KLDivLoss(reduction="sum", log_target=True), "floats"),
}


def test_losses_agree_with_torch(random):
    targets = {"labels": np.array([0, 4, 2]), "floats": random.standard_normal((3, 5)), "chances": random.random((3, 5))}
    targets["chances"][0, 0] = 0.0
    x = random.standard_normal((3, 5))

    def theirs(torch, x, targets):
        expected = {}
        for name, (make, target) in LOSSES.items():
            given = torch.tensor(x, requires_grad=True)
            value = make(torch.nn)(given, torch.tensor(targets[target]))
            value.sum().backward()
            expected[name] = value, given.grad
        return expected

    @st.function
    def run(x, targets):
        def loss(x, name):
            make, target = LOSSES[name]
            value = make(nn)(x, targets[target])
            return st.sum(value), value

        return {name: st.value_and_grad(lambda x, n=name: loss(x, n), has_aux=True)(x) for name in LOSSES}

    found = run(x, targets)
    for name, (value, slope) in reference(theirs, x, targets).items():
        (_, ours), dx = found[name]
        np.testing.assert_allclose(ours, value, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(dx, slope, rtol=1e-10, atol=1e-12, err_msg=name)


def test_binary_cross_entropy_of_probabilities_stays_finite():
    p, target = np.array([0.0, 0.3, 1.0, 1.0]), np.array([0.0, 0.6, 1.0, 0.0])
    loss = reference(lambda torch, p, target: torch.nn.BCELoss()(torch.tensor(p), torch.tensor(target)), p, target)
    np.testing.assert_allclose(float(nn.BCELoss()(p, target)), loss, rtol=1e-12)
    inner = np.array([0.2, 0.9])

    def slope(torch, inner, target):
        given = torch.tensor(inner, requires_grad=True)
        torch.nn.functional.binary_cross_entropy(given, torch.tensor(target)).backward()
        return given.grad

    back = st.grad(lambda p: st.binary_cross_entropy(p, target[1:3]))(inner)
    np.testing.assert_allclose(back, reference(slope, inner, target[1:3]), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "do not divide into 2 groups"),
        (lambda: nn.ConvTranspose2d(4, 3, 3, groups=2), "do not divide into 2 groups"),
        (lambda: nn.BatchNorm2d(3)(np.zeros((2, 4, 5, 5), np.float32)), "has 3 channels"),
        (lambda: nn.BatchNorm2d(3)(np.zeros((2, 3), np.float32)), "takes input of 4 axes"),
        (lambda: nn.RNN(3, 4, nonlinearity="sigmoid"), "nonlinearity is"),
    ],
)
def test_layers_refuse_what_does_not_fit(make, match):
    with pytest.raises(st.StagedError, match=match):
        make()


@pytest.mark.parametrize("hold", [list, tuple, lambda modules: dict(enumerate(modules))])
def test_modules_that_nobody_would_train_are_refused(hold):
    class Held(nn.Module):
        def __init__(self):
            self.blocks = hold([nn.Linear(2, 2), nn.Linear(2, 2)])

    with pytest.raises(TypeError, match=r"`Held.blocks` is a \w+ of modules, whose parameters are not found.*ModuleList"):
        Held().parameters()

    class Outer(nn.Module):
        def __init__(self):
            self.held = Held()

    with pytest.raises(TypeError, match=r"Held.blocks"):
        Outer()


def test_a_list_of_modules_that_are_attributes_too_is_the_users_affair():
    class Named(nn.Module):
        def __init__(self):
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)
            self.order = [self.second, self.first]
            self.scales = [1.0, 2.0]

    assert Named().named_parameters().keys() == ["first.weight", "first.bias", "second.weight", "second.bias"]
