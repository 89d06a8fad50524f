"""Layers against torch's with the same weights: values, parameter names and shapes, gradients."""

import json
from functools import partial

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.errors.said import refusals
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 4, 9, 8))
VECTORS = RNG.standard_normal((3, 5, 6))
VOLUMES = np.random.default_rng(5).standard_normal((2, 4, 6, 5, 7))

CASES = {
    "linear": (lambda n, **k: n.Linear(6, 7, **k), VECTORS),
    "linear_without_bias": (lambda n, **k: n.Linear(6, 7, bias=False, **k), VECTORS),
    "conv": (lambda n, **k: n.Conv2d(4, 6, 3, **k), IMAGES),
    "conv_stride_padding": (lambda n, **k: n.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), **k), IMAGES),
    "conv_groups": (lambda n, **k: n.Conv2d(4, 6, 3, groups=2, dilation=2, **k), IMAGES),
    "layer_norm": (lambda n, **k: n.LayerNorm(6, **k), VECTORS),
    "layer_norm_two_axes": (lambda n, **k: n.LayerNorm((5, 6), eps=1e-3, **k), VECTORS),
    "conv_same": (lambda n, **k: n.Conv2d(4, 2, 3, padding="same", dilation=2, **k), IMAGES),
    "conv_reflect": (lambda n, **k: n.Conv2d(4, 6, (3, 2), 2, (1, 2), padding_mode="reflect", **k), IMAGES),
    "conv_1d_same_circular": (
        lambda n, **k: n.Conv1d(5, 2, 4, padding="same", dilation=1, padding_mode="circular", **k),
        VECTORS,
    ),
    "conv_3d_replicate": (
        lambda n, **k: n.Conv3d(4, 2, 2, padding=(2, 0, 1), bias=False, padding_mode="replicate", **k),
        VOLUMES,
    ),
    "conv_1d": (lambda n, **k: n.Conv1d(5, 10, 3, stride=2, padding=1, groups=5, **k), VECTORS),
    "conv_transpose": (lambda n, **k: n.ConvTranspose2d(4, 6, 3, 2, 1, (1, 0), groups=2, **k), IMAGES),
    "batch_norm": (lambda n, **k: n.BatchNorm2d(4, **k), IMAGES),
    "batch_norm_1d": (lambda n, **k: n.BatchNorm1d(5, eps=1e-2, **k), VECTORS),
    "batch_norm_rows": (lambda n, **k: n.BatchNorm1d(6, track_running_stats=False, **k), VECTORS[0]),
    "batch_norm_3d": (lambda n, **k: n.BatchNorm3d(4, **k), IMAGES[..., None]),
    "group_norm": (lambda n, **k: n.GroupNorm(2, 4, **k), IMAGES),
    "instance_norm": (lambda n, **k: n.InstanceNorm2d(4, affine=True, **k), IMAGES),
    "instance_norm_tracked": (lambda n, **k: n.InstanceNorm2d(4, 1e-4, 0.3, True, True, **k), IMAGES),
    "rms_norm": (lambda n, **k: n.RMSNorm(6, **k), VECTORS),
    "conv_3d": (lambda n, **k: n.Conv3d(4, 6, (3, 2, 1), (1, 2, 1), padding=1, groups=2, **k), VOLUMES),
    "conv_3d_same": (lambda n, **k: n.Conv3d(4, 2, 3, padding="same", dilation=(2, 1, 1), bias=False, **k), VOLUMES),
    "conv_transpose_1d": (lambda n, **k: n.ConvTranspose1d(5, 10, 3, 2, 1, 1, groups=5, **k), VECTORS),
    "conv_transpose_3d": (lambda n, **k: n.ConvTranspose3d(4, 6, 3, (2, 1, 2), 1, (1, 0, 1), 2, **k), VOLUMES),
    "prelu": (lambda n, **k: n.PReLU(4, **k), IMAGES),
    "parameters_in_a_list": (lambda n, **k: of_parameters(n, **k), VECTORS),
}
NO_ARGUMENTS = "ReLU6 Hardsigmoid Hardswish Mish SELU Softsign Tanhshrink LogSigmoid".split()
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
    "max_pool_dilated": (lambda n: n.MaxPool2d(2, 1, 1, (2, 3), False, True), IMAGES),
    "max_pool_1d": (lambda n: n.MaxPool1d(2, padding=1), VECTORS),
    "avg_pool": (lambda n: n.AvgPool2d(2), IMAGES),
    "avg_pool_padding": (lambda n: n.AvgPool2d((3, 2), 2, 1, True, False), IMAGES),
    "avg_pool_divisor": (lambda n: n.AvgPool2d((3, 2), 2, 1, True, divisor_override=4), IMAGES),
    "avg_pool_3d_divisor": (lambda n: n.AvgPool3d((3, 2, 2), 2, 1, True, False, 5), VOLUMES),
    "avg_pool_1d": (lambda n: n.AvgPool1d(3, 1), VECTORS),
    "adaptive_avg_pool": (lambda n: n.AdaptiveAvgPool2d((None, 3)), IMAGES),
    "adaptive_max_pool": (lambda n: n.AdaptiveMaxPool2d((3, 4)), IMAGES),
    "instance_norm_1d": (lambda n: n.InstanceNorm1d(5), VECTORS),
    "log_softmax": (lambda n: n.LogSoftmax(dim=1), VECTORS),
    "leaky_relu": (lambda n: n.LeakyReLU(0.2), VECTORS),
    "elu": (lambda n: n.ELU(0.5), VECTORS),
    "silu": (lambda n: n.SiLU(), VECTORS),
    "softplus": (lambda n: n.Softplus(), VECTORS),
    "softplus_scaled": (lambda n: n.Softplus(3.0, 2.0), VECTORS),
    **{name: (lambda n, name=name: getattr(n, name)(), VECTORS) for name in NO_ARGUMENTS},
    "hardtanh": (lambda n: n.Hardtanh(-0.5, 0.25), VECTORS),
    "hardshrink": (lambda n: n.Hardshrink(0.25), VECTORS),
    "softshrink": (lambda n: n.Softshrink(0.25), VECTORS),
    "celu": (lambda n: n.CELU(0.5), VECTORS),
    "threshold": (lambda n: n.Threshold(0.25, -1.0), VECTORS),
    "softmin": (lambda n: n.Softmin(dim=1), VECTORS),
    "glu": (lambda n: n.GLU(), VECTORS),
    "identity": (lambda n: n.Identity(), VECTORS),
    "flatten": (lambda n: n.Flatten(), IMAGES),
    **{
        f"{kind}_{rank}d": (
            lambda n, kind=kind, rank=rank: getattr(n, f"{kind}Pad{rank}d")(
                (2, 1, 0, 3, 1, 1)[: 2 * rank], *([0.5] if kind == "Constant" else [])
            ),
            {1: VECTORS, 2: IMAGES, 3: VOLUMES}[rank],
        )
        for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")
        for rank in (1, 2, 3)
    },
    "zero_pad_that_cuts": (lambda n: n.ZeroPad2d((-1, 2, -2, 0)), IMAGES),
    **{
        f"{name}_{rank}d": (
            lambda n, name=name, rank=rank, options=options: getattr(n, f"{name}{rank}d")(*options[rank - 1]),
            {1: VECTORS, 2: IMAGES, 3: VOLUMES}[rank],
        )
        for name, options in {
            "AdaptiveAvgPool": ((4,), ((None, 3),), ((2, 3, None),)),
            "AdaptiveMaxPool": ((4,), ((4, 3),), ((2, 3, 3),)),
        }.items()
        for rank in (1, 2, 3)
    },
    "max_pool_3d": (lambda n: n.MaxPool3d((3, 2, 2), 2, 1), VOLUMES),
    "avg_pool_3d": (lambda n: n.AvgPool3d((3, 2, 2), 2, 1, True, False), VOLUMES),
    "lp_pool_1d": (lambda n: n.LPPool1d(2, 3, 2), VECTORS),
    "lp_pool_2d": (lambda n: n.LPPool2d(2, (2, 3)), IMAGES),
    "lp_pool_3d": (lambda n: n.LPPool3d(4, 2, ceil_mode=True), VOLUMES),
    "pixel_shuffle": (lambda n: n.PixelShuffle(2), IMAGES),
    "pixel_unshuffle": (lambda n: n.PixelUnshuffle(2), IMAGES[:, :, :8]),
    "channel_shuffle": (lambda n: n.ChannelShuffle(2), IMAGES),
    "unflatten": (lambda n: n.Unflatten(2, (2, 3)), VECTORS),
    "unfold": (lambda n: n.Unfold((3, 2), (2, 1), (1, 0), (2, 1)), IMAGES),
    "fold": (lambda n: n.Fold((3, 4), (1, 2), stride=(2, 1)), VECTORS[:, :4]),
    "upsample": (lambda n: n.Upsample(scale_factor=2), IMAGES),
    "upsample_linear": (lambda n: n.Upsample(13, mode="linear"), VECTORS),
    "upsample_bicubic": (lambda n: n.Upsample((5, 12), mode="bicubic"), IMAGES),
    "upsample_trilinear": (lambda n: n.Upsample(scale_factor=(2, 1.5, 0.8), mode="trilinear"), VOLUMES),
    "upsampling_nearest": (lambda n: n.UpsamplingNearest2d((5, 24)), IMAGES),
    "upsampling_bilinear": (lambda n: n.UpsamplingBilinear2d(scale_factor=2), IMAGES),
    "local_response_norm": (lambda n: n.LocalResponseNorm(3, 0.1), IMAGES),
    "softmax_2d": (lambda n: n.Softmax2d(), IMAGES),
    "rrelu": (lambda n: n.RReLU().eval(), IMAGES),
    "alpha_dropout": (lambda n: n.AlphaDropout().eval(), IMAGES),
}


def of_parameters(n, dtype):
    """A module with a list and a dict of parameters, in either library."""
    array = np.linspace(0.5, 1.0, 6)

    def parameter(power):
        data = array**power
        return n.Parameter(data if n is nn else __import__("torch").tensor(data))

    class Scaled(n.Module):
        def __init__(self):
            super().__init__()
            self.scales = n.ParameterList([parameter(1), parameter(2)])
            self.shifts = n.ParameterDict({"one": parameter(3)})

        def forward(self, x):
            held = [scale.value if n is nn else scale for scale in (*self.scales, self.shifts["one"])]
            return x * held[0] * held[1] + held[2]

    return Scaled()


def given(n, array):
    """An array of the library's."""
    return array if n is nn else __import__("torch").tensor(array)


# Losses and distances: of so many arrays of rows, and what they are compared with.
SIGNS = np.where(RNG.random((5, 6)) < 0.5, -1.0, 1.0)
LABELS = np.array([0, 3, 5, 2, 2])
SETS = np.array([[1, 3, -1, 0, 0, 0], [-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [5, 4, 1, -1, 2, 2], [2, -1, -1, -1, -1, -1]])
MARGINS = {
    "margin_ranking": (lambda n, **k: n.MarginRankingLoss(0.3, **k), 2, SIGNS),
    "hinge_embedding": (lambda n, **k: n.HingeEmbeddingLoss(**k), 1, SIGNS),
    "cosine_embedding": (lambda n, **k: n.CosineEmbeddingLoss(-0.5, **k), 2, SIGNS[:, 0]),
    "triplet": (lambda n, **k: n.TripletMarginLoss(**k), 3, None),
    "triplet_swap": (lambda n, **k: n.TripletMarginLoss(2.0, 3.0, 1e-3, True, **k), 3, None),
    "triplet_distance": (lambda n, **k: n.TripletMarginWithDistanceLoss(swap=True, **k), 3, None),
    "multi_margin": (lambda n, **k: n.MultiMarginLoss(**k), 1, LABELS),
    "multi_margin_squared": (lambda n, **k: n.MultiMarginLoss(2, 0.5, **k), 1, LABELS),
    "multi_label_margin": (lambda n, **k: n.MultiLabelMarginLoss(**k), 1, SETS),
    "multi_label_soft_margin": (lambda n, **k: n.MultiLabelSoftMarginLoss(**k), 1, np.maximum(SIGNS, 0)),
    "soft_margin": (lambda n, **k: n.SoftMarginLoss(**k), 1, SIGNS),
    "poisson": (lambda n, **k: n.PoissonNLLLoss(full=True, **k), 1, np.abs(np.round(3 * VECTORS[0]))),
    "gaussian": (lambda n, **k: n.GaussianNLLLoss(full=True, eps=0.3, **k), 2, np.abs(VECTORS[0])),
    "gaussian_rows": (lambda n, **k: n.GaussianNLLLoss(**k), 2, np.abs(VECTORS[0, :, :1])),
    "binary": (
        lambda n, **k: lambda x, y: n.BCELoss(given(n, VECTORS[1] ** 2), **k)(n.Sigmoid()(x), y),
        1,
        np.maximum(SIGNS, 0),
    ),
    "binary_logits": (
        lambda n, **k: n.BCEWithLogitsLoss(given(n, VECTORS[1, :, :1] ** 2), pos_weight=given(n, VECTORS[2, 0] ** 2), **k),
        1,
        np.maximum(SIGNS, 0),
    ),
    "cross_entropy_probabilities": (
        lambda n, **k: n.CrossEntropyLoss(given(n, VECTORS[1, 0] ** 2), label_smoothing=0.1, **k),
        1,
        np.abs(VECTORS[2]),
    ),
    "cosine": (lambda n, **k: n.CosineSimilarity(), 2, None),
    "distance": (lambda n, **k: n.PairwiseDistance(3.0, keepdim=True), 2, None),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", MARGINS)
def test_a_loss_with_a_margin_agrees_with_torch(case, reduction):
    make, count, target = MARGINS[case]
    arrays = [VECTORS[number] for number in range(count)]

    def theirs(torch, target, *arrays):
        given = [torch.tensor(array, requires_grad=True) for array in arrays]
        y = make(torch.nn, reduction=reduction)(*given, *([torch.tensor(target)] if target.size else []))
        (y * y).sum().backward()
        return y, *(array.grad for array in given)

    expected, *slopes = reference(theirs, np.zeros(0) if target is None else target, *arrays)
    loss = make(nn, reduction=reduction)

    @st.function
    def ours(*arrays):
        def of(*arrays):
            y = loss(*arrays, *([] if target is None else [target]))
            return st.sum(y * y), y

        (_, y), gradients = st.value_and_grad(of, argnums=tuple(range(count)), has_aux=True)(*arrays)
        return y, gradients

    y, gradients = ours(*arrays)
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)
    for mine, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(mine, slope, rtol=1e-9, atol=1e-10)


def test_statistics_of_instance_norms_are_torchs():
    x = VECTORS[:, :, :4]

    def theirs(torch, x):
        found = []
        for momentum in (0.3, None):
            norm = torch.nn.InstanceNorm1d(5, momentum=momentum, track_running_stats=True, dtype=torch.float64)
            norm(torch.tensor(x)), norm(torch.tensor(x * 2.0))
            found += [norm.eval()(torch.tensor(x)), *norm.state_dict().values()]
        return tuple(found)

    found = []
    for momentum in (0.3, None):
        norm = nn.InstanceNorm1d(5, momentum=momentum, track_running_stats=True, dtype=st.f64)
        step = st.function(lambda x, norm=norm: norm(x))
        step(x), step(x * 2.0)
        norm.eval()
        found += [step(x), *norm.state_dict().values()]
    for mine, expected in zip(found, reference(theirs, x), strict=True):
        np.testing.assert_allclose(np.asarray(mine), expected, rtol=1e-10, atol=1e-12)


def test_bilinear_and_the_adaptive_softmax_agree_with_torch(random):
    def theirs(torch, weights, x, labels):
        layer = torch.nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 5], 2.0, True, dtype=torch.float64)
        layer.load_state_dict({name: torch.tensor(value) for name, value in weights["softmax"].items()})
        both = torch.nn.Bilinear(6, 6, 4, dtype=torch.float64)
        both.load_state_dict({name: torch.tensor(value) for name, value in weights["bilinear"].items()})
        x = torch.tensor(x, requires_grad=True)
        output, loss = layer(x, torch.tensor(labels))
        y = both(x, 2.0 * x)
        (loss + y.sum()).backward()
        return output, loss, layer.predict(x), layer.log_prob(x), y, x.grad

    softmax, both = nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 5], 2.0, True, dtype=st.f64), nn.Bilinear(6, 6, 4, dtype=st.f64)
    layers = {"softmax": softmax, "bilinear": both}
    weights = {
        key: {name: random.standard_normal(value.shape) for name, value in layer.state_dict().items()}
        for key, layer in layers.items()
    }
    for key, layer in layers.items():
        layer.load_state_dict(weights[key])
    labels = np.array([0, 8, 4, 2, 5])
    expected = reference(theirs, weights, VECTORS[0], labels)

    @st.function
    def ours(x):
        def of(x):
            output, loss = softmax(x, labels)
            y = both(x, 2.0 * x)
            return loss + st.sum(y), (output, loss, softmax.predict(x), softmax.log_prob(x), y)

        (_, results), slope = st.value_and_grad(of, has_aux=True)(x)
        return (*results, slope)

    for mine, theirs_ in zip(ours(VECTORS[0]), expected, strict=True):
        np.testing.assert_allclose(mine, theirs_, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_go_back_where_they_were(rank):
    x = {1: VECTORS, 2: IMAGES[:, :, :8], 3: VOLUMES[:, :, :, :4, :6]}[rank]

    def both(n, x):
        y, places = getattr(n, f"MaxPool{rank}d")(2, return_indices=True)(x)
        return getattr(n, f"MaxUnpool{rank}d")(2)(y * y, places), places

    def theirs(torch, x):
        x = torch.tensor(x, requires_grad=True)
        y, places = both(torch.nn, x)
        (y * y).sum().backward()
        return y, places, x.grad

    def of(x):
        y, places = both(nn, x)
        return st.sum(y * y), (y, places)

    (_, (y, places)), slope = st.function(lambda x: st.value_and_grad(of, has_aux=True)(x))(x)
    for mine, expected in zip((y, places, slope), reference(theirs, x), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("how", [{"output_size": 3}, {"output_ratio": 0.7}])
def test_fractional_windows_are_torchs(rank, how, random):
    x = {2: IMAGES, 3: VOLUMES}[rank]
    samples = random.random((*x.shape[:2], rank))

    def both(n, x, samples):
        return getattr(n, f"FractionalMaxPool{rank}d")(2, **how, return_indices=True, _random_samples=samples)(x)

    def theirs(torch, x, samples):
        x = torch.tensor(x, requires_grad=True)
        y, places = both(torch.nn, x, torch.tensor(samples))
        (y * y).sum().backward()
        return y, places, x.grad

    def of(x):
        y, places = both(nn, x, samples)
        return st.sum(y * y), (y, places)

    (_, (y, places)), slope = st.function(lambda x: st.value_and_grad(of, has_aux=True)(x))(x)
    for mine, expected in zip((y, places, slope), reference(theirs, x, samples), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10)


@pytest.mark.parametrize(("name", "axes"), [("Dropout1d", 1), ("Dropout2d", 2), ("Dropout3d", 3), ("FeatureAlphaDropout", 2)])
def test_whole_channels_are_dropped(name, axes):
    layer = getattr(nn, name)(0.25)
    x = np.ones((40, 50, *(2,) * axes))
    y = np.asarray(layer(x)).reshape(40, 50, -1)
    assert (y == y[..., :1]).all()
    values, counts = np.unique(y[..., 0], return_counts=True)
    assert len(values) == 2 and abs(counts.min() / 2000 - 0.25) < 0.04
    np.testing.assert_array_equal(layer.eval()(x), x)


def test_alpha_dropout_keeps_mean_and_variance(random):
    x = random.standard_normal((200, 500))
    y = np.asarray(nn.AlphaDropout(0.3)(x))
    assert abs(y.mean()) < 0.02 and abs(y.var() - 1.0) < 0.02


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
    slope = 1e-7 if case == "Hardsigmoid" else 1e-9  # torch's 1 / 6 is an f32 there
    np.testing.assert_allclose(dx, dx_torch, rtol=slope, atol=1e-10)


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


test_layers_refuse_what_does_not_fit = refusals(
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "do not divide into 2 groups"),
    (lambda: nn.ConvTranspose2d(4, 3, 3, groups=2), "do not divide into 2 groups"),
    (lambda: nn.BatchNorm2d(3)(np.zeros((2, 4, 5, 5), np.float32)), "has 3 channels"),
    (lambda: nn.BatchNorm2d(3)(np.zeros((2, 3), np.float32)), "takes input of 4 axes"),
    (lambda: nn.RNN(3, 4, nonlinearity="sigmoid"), "nonlinearity is"),
)


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
