"""Layers against torch's with the same weights: values, parameter names and shapes, gradients."""

import numpy as np
import pytest

import staged as st
from staged import nn

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
    "avg_pool": (lambda n: n.AvgPool2d(2), IMAGES),
    "flatten": (lambda n: n.Flatten(), IMAGES),
}


def gradient_of(module):
    """Sum of squares of the output, with its gradient by input and parameters, staged."""

    @st.function
    def run(x, weights):
        def loss(x, weights):
            for name, parameter in module.named_parameters().items():
                parameter.value = weights[name]
            y = module(x)
            return st.sum(y * y), y

        (total, y), (dx, dw) = st.value_and_grad(loss, argnums=(0, 1), has_aux=True)(x, weights)
        return y, dx, dw

    return run


@pytest.mark.parametrize("case", CASES)
def test_a_layer_with_parameters_agrees_with_torch(case, library):
    torch = library("torch")
    make, x = CASES[case]
    theirs = make(torch.nn, dtype=torch.float64)
    ours = make(nn, dtype=st.f64)
    assert [(n, tuple(p.shape)) for n, p in ours.named_parameters().items()] == [
        (n, tuple(p.shape)) for n, p in theirs.named_parameters()
    ]
    weights = {name: value.numpy() for name, value in theirs.state_dict().items()}
    x_torch = torch.tensor(x, requires_grad=True)
    y_torch = theirs(x_torch)
    (y_torch * y_torch).sum().backward()
    y, dx, dw = gradient_of(ours)(x, weights)
    np.testing.assert_allclose(y, y_torch.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dx, x_torch.grad.numpy(), rtol=1e-9, atol=1e-10)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(dw[name], parameter.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", PLAIN)
def test_a_layer_without_parameters_agrees_with_torch(case, library):
    torch = library("torch")
    make, x = PLAIN[case]
    x_torch = torch.tensor(x, requires_grad=True)
    y_torch = make(torch.nn)(x_torch)
    (y_torch * y_torch).sum().backward()
    y, dx, _ = gradient_of(make(nn))(x, {})
    np.testing.assert_allclose(y, y_torch.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dx, x_torch.grad.numpy(), rtol=1e-9, atol=1e-10)


def test_embedding_gathers_rows_and_adds_up_gradients(library):
    torch = library("torch")
    indices = np.array([[1, 0, 3], [3, 3, 2]])
    theirs = torch.nn.Embedding(4, 5, dtype=torch.float64)
    y_torch = theirs(torch.tensor(indices))
    (y_torch * y_torch).sum().backward()
    ours = nn.Embedding(4, 5, dtype=st.f64)
    ours.load_state_dict({"weight": theirs.weight.detach().numpy()})

    @st.function
    def run(indices):
        def loss():
            y = ours(indices)
            return st.sum(y * y)

        return st.grad(loss, wrt=ours)()

    np.testing.assert_allclose(run(indices)["weight"], theirs.weight.grad.numpy(), rtol=1e-12)
    with pytest.raises(st.ProgramError, match="out of range"):
        run(indices + 1)


def test_sequential_has_torchs_keys_and_shapes(library):
    torch = library("torch")

    def build(n):
        return n.Sequential(n.Conv2d(1, 10, 5), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(1440, 50))

    ours = {name: tuple(value.shape) for name, value in build(nn).state_dict().items()}
    assert ours == {name: tuple(value.shape) for name, value in build(torch.nn).state_dict().items()}


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
    ("layer", "shape"), [(nn.Linear(3, 2), (4, 3)), (nn.Conv2d(1, 2, 3), (1, 1, 5, 5)), (nn.LayerNorm(3), (4, 3))]
)
def test_f64_data_in_an_f32_layer_is_refused_with_the_cast_to_write(layer, shape):
    @st.function
    def f(x):
        return layer(x)  # here

    with pytest.raises(st.DTypeError, match="has f32 parameters, its input is f64") as caught:
        f(np.zeros(shape))
    assert "# here" in str(caught.value) and "x.astype(float32)" in str(caught.value)
