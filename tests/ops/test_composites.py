"""Activations, losses and normalisations against PyTorch, and their own derivatives against those of their bodies."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.eager_mode.context import EagerArray, EagerContext, wrap
from staged.ir.builder import Builder
from staged.ir.types import TensorType, f32, f64, i32
from staged.ops.array import METHODS
from staged.ops.composite import COMPOSITES, Composite
from staged.ops.context import use_context
from staged.ops.record import RecordContext
from tests.errors.said import refusals
from tests.ops.against_torch import agree, gradient
from tests.ops.cases import operands_of

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 5))
LABELS = np.array([0, 4, 2, 2], np.int32)
WEIGHT, BIAS = RNG.standard_normal(5), RNG.standard_normal(5)

# name: (ours, torch's); both get the float operands
PAIRS = {
    "relu": (st.relu, lambda F, x: F.relu(x)),
    "leaky_relu": (st.leaky_relu, lambda F, x: F.leaky_relu(x)),
    "sigmoid": (st.sigmoid, lambda F, x: x.sigmoid()),
    "log_sigmoid": (st.log_sigmoid, lambda F, x: F.logsigmoid(x)),
    "softplus": (st.softplus, lambda F, x: F.softplus(x)),
    "silu": (st.silu, lambda F, x: F.silu(x)),
    "gelu": (st.gelu, lambda F, x: F.gelu(x)),
    "gelu_tanh": (lambda x: st.gelu(x, approximate="tanh"), lambda F, x: F.gelu(x, approximate="tanh")),
    "elu": (st.elu, lambda F, x: F.elu(x)),
    "softmax": (st.softmax, lambda F, x: F.softmax(x, -1)),
    "softmax_0": (lambda x: st.softmax(x, axis=0), lambda F, x: F.softmax(x, 0)),
    "log_softmax": (st.log_softmax, lambda F, x: F.log_softmax(x, -1)),
    "logsumexp": (lambda x: st.logsumexp(x, axis=1), lambda F, x: x.logsumexp(1)),
    "normalize": (lambda x: st.normalize(x, axis=-1), lambda F, x: F.normalize(x, dim=-1)),
    "layer_norm": (lambda x: st.layer_norm(x, 5), lambda F, x: F.layer_norm(x, (5,))),
    "layer_norm_2": (lambda x: st.layer_norm(x, (4, 5)), lambda F, x: F.layer_norm(x, (4, 5))),
    "clip": (lambda x: st.clip(x, -0.5, 0.5), lambda F, x: x.clamp(-0.5, 0.5)),
    "var": (lambda x: st.var(x, axis=1, correction=1), lambda F, x: x.var(1)),
    "std": (lambda x: st.std(x, axis=0), lambda F, x: x.std(0, correction=0)),
    "prod": (lambda x: st.prod(x, axis=1), lambda F, x: x.prod(1)),
    "amax": (lambda x: st.max(x, axis=1), lambda F, x: x.amax(1)),
    "mse": (lambda x: st.mse_loss(x, np.zeros_like(X)), lambda F, x: F.mse_loss(x, x.detach() * 0)),
    "l1": (lambda x: st.l1_loss(x, np.ones_like(X)), lambda F, x: F.l1_loss(x, x.detach() * 0 + 1)),
    "huber": (lambda x: st.huber_loss(x, np.zeros_like(X)), lambda F, x: F.huber_loss(x, x.detach() * 0)),
    "bce": (
        lambda x: st.binary_cross_entropy_with_logits(x, np.full_like(X, 0.3)),
        lambda F, x: F.binary_cross_entropy_with_logits(x, x.detach() * 0 + 0.3),
    ),
    "max_pool2d": (
        lambda x: st.max_pool2d(st.reshape(x, (1, 1, 4, 5)), 2, stride=1, padding=1),
        lambda F, x: F.max_pool2d(x.reshape(1, 1, 4, 5), 2, stride=1, padding=1),
    ),
    "avg_pool2d": (
        lambda x: st.avg_pool2d(st.reshape(x, (1, 1, 4, 5)), (2, 3)),
        lambda F, x: F.avg_pool2d(x.reshape(1, 1, 4, 5), (2, 3)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_value_and_gradient_agree_with_torch(name) -> None:
    agree(*PAIRS[name], X)


def test_layer_norm_with_weight_and_bias_agrees_with_torch() -> None:
    agree(
        lambda x, w, b: st.layer_norm(x, 5, w, b),
        lambda F, x, w, b: F.layer_norm(x, (5,), w, b),
        X,
        WEIGHT,
        BIAS,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_with_labels_agree_with_torch(reduction) -> None:
    def theirs(name, F, x):
        import torch

        return getattr(F, name)(x, torch.tensor(LABELS.astype(np.int64)), reduction=reduction)

    for name in ("cross_entropy", "nll_loss"):
        agree(
            lambda x, name=name: getattr(st, name)(x, LABELS, reduction=reduction),
            lambda F, x, name=name: theirs(name, F, x),
            X,
        )


FORMS = np.random.default_rng(7)
IMAGES, IMAGE_LABELS = FORMS.standard_normal((2, 5, 3, 2)), FORMS.integers(0, 5, (2, 3, 2))
SHARES, HALVES = FORMS.dirichlet(np.ones(5), (2, 3, 2)).transpose(0, 3, 1, 2).copy(), FORMS.random((4, 5))
CLASS_WEIGHT, FACTORS = FORMS.random(5) + 0.5, FORMS.random((4, 1))
SQUARES, SQUARE_LABELS = FORMS.standard_normal((2, 3, 3)), FORMS.integers(0, 3, (2, 3))


def _torchs_classes(F, x, labels, **options):
    import torch

    return F.cross_entropy(x, torch.tensor(np.asarray(labels)), **options)


def _torchs_binary(F, name, x, **options):
    import torch

    tensors = {key: torch.tensor(value) for key, value in options.items()}
    return getattr(F, name)(x, torch.tensor(HALVES), **tensors)


LOSS_FORMS = {
    "labels of images": (
        lambda x: st.cross_entropy(x, IMAGE_LABELS, axis=1),
        lambda F, x: _torchs_classes(F, x, IMAGE_LABELS),
        IMAGES,
    ),
    "ignored labels of images": (
        lambda x: st.cross_entropy(x, IMAGE_LABELS, axis=1, ignore_index=2, label_smoothing=0.1, reduction="none"),
        lambda F, x: _torchs_classes(F, x, IMAGE_LABELS, ignore_index=2, label_smoothing=0.1, reduction="none"),
        IMAGES,
    ),
    "log-probabilities of images": (
        lambda x: st.nll_loss(x, IMAGE_LABELS, axis=-3),
        lambda F, x: _torchs_classes(F, x, IMAGE_LABELS) - x.logsumexp(1).mean(),
        IMAGES,
    ),
    "as many places as classes": (
        lambda x: st.cross_entropy(x, SQUARE_LABELS, axis=1),
        lambda F, x: _torchs_classes(F, x, SQUARE_LABELS),
        SQUARES,
    ),
    "as many places as classes, which are last": (
        lambda x: st.cross_entropy(x, SQUARE_LABELS, axis=-1),
        lambda F, x: _torchs_classes(F, x.transpose(1, 2), SQUARE_LABELS),
        SQUARES,
    ),
    "shares of images": (
        lambda x: st.cross_entropy(x, SHARES, axis=1),
        lambda F, x: _torchs_classes(F, x, SHARES),
        IMAGES,
    ),
    "shares of rows": (
        lambda x: nn.CrossEntropyLoss(CLASS_WEIGHT, label_smoothing=0.2)(x, HALVES),
        lambda F, x: _torchs_classes(F, x, HALVES, weight=x.new_tensor(CLASS_WEIGHT), label_smoothing=0.2),
        X,
    ),
    "weights of elements": (
        lambda x: nn.BCEWithLogitsLoss(FACTORS, pos_weight=CLASS_WEIGHT)(x, HALVES),
        lambda F, x: _torchs_binary(F, "binary_cross_entropy_with_logits", x, weight=FACTORS, pos_weight=CLASS_WEIGHT),
        X,
    ),
    "weights of probabilities": (
        lambda x: nn.BCELoss(FACTORS, reduction="sum")(st.sigmoid(x), HALVES),
        lambda F, x: 20 * _torchs_binary(F, "binary_cross_entropy", x.sigmoid(), weight=FACTORS),
        X,
    ),
}


@pytest.mark.parametrize("name", LOSS_FORMS)
def test_other_forms_of_losses_agree_with_torch(name) -> None:
    agree(*LOSS_FORMS[name])


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(
    ("stride", "padding"), [(1, 0), (1, (1, 2)), (1, "same"), (1, "valid"), ((2, 1), 0), ((2, 1), (1, 2))]
)
def test_conv2d_agrees_with_torch(stride, padding) -> None:
    rng = np.random.default_rng(4)
    x, w, b = rng.standard_normal((2, 4, 6, 7)), rng.standard_normal((6, 2, 3, 2)), rng.standard_normal(6)
    agree(
        lambda x, w, b: st.conv2d(x, w, b, stride=stride, padding=padding, groups=2),
        lambda F, x, w, b: F.conv2d(x, w, b, stride=stride, padding=padding, groups=2),
        x,
        w,
        b,
    )


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (st.relu, 0.0, 0.0),
        (st.abs, 0.0, 0.0),
        (st.norm, np.zeros(3), 0.0),
        (lambda x: st.maximum(x, 0.0), 0.0, 0.5),
        (lambda x: st.minimum(0.0, x), 0.0, 0.5),
        (lambda x: st.clip(x, 0.0, 1.0), 0.0, 1.0),
        (lambda x: st.max(x), np.array([2.0, 1.0, 2.0]), [0.5, 0.0, 0.5]),
        (lambda x: st.prod(x), np.array([0.0, 2.0, 3.0]), [6.0, 0.0, 0.0]),
        (lambda x: st.prod(x), np.array([0.0, 0.0, 3.0]), [0.0, 0.0, 0.0]),
        (lambda x: st.sum(x**2.0), np.array([0.0, -1.0]), [0.0, -2.0]),
        (lambda x: st.sum(st.pow(x, np.array([0.0, 1.0, 3.0]))), np.array([0.0, 0.0, 0.0]), [0.0, 1.0, 0.0]),
        (lambda x: st.max_pool2d(st.reshape(x, (1, 1, 2, 2)), 2)[0, 0, 0, 0], np.ones(4), [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_subgradients_follow_torch(f, x, expected) -> None:
    _, (back,) = gradient(f, np.asarray(x, np.float64))
    np.testing.assert_array_equal(back, np.broadcast_to(expected, back.shape))


def test_extreme_inputs_stay_finite() -> None:
    big = np.array([[1e4, -1e4, 0.0]], np.float32)
    np.testing.assert_array_equal(np.asarray(st.softmax(big)), [[1, 0, 0]])
    assert np.isfinite(np.asarray(st.log_softmax(big))).all()
    assert float(st.cross_entropy(big, np.array([1]))) == 2e4
    np.testing.assert_array_equal(np.asarray(st.sigmoid(big)), [[1, 0, 0.5]])
    np.testing.assert_allclose(np.asarray(st.softplus(big)), [[1e4, 0, np.log(2)]], rtol=1e-6)
    assert float(st.logsumexp(np.full(3, -np.inf, np.float32))) == -np.inf
    assert np.isnan(float(st.relu(np.float32(np.nan))))


# ---- the derivative of a composite equals that of its body -----------------------------------------


CASES = {
    f"{one.name}-{number}" if number else one.name: (operands_of(sample, f64), sample.attrs)
    for one in COMPOSITES.values()
    if one.vjp is not None
    for number, sample in enumerate(one.samples)
    if sample.differentiate != ()
}


def composite_of(case: str) -> Composite:
    return COMPOSITES[case.partition("-")[0]]


def test_every_composite_is_declared_with_samples() -> None:
    # Those of reverses are reached by the gradients of the others; those of complex numbers have test_complex.py.
    apart = [name for name, one in COMPOSITES.items() if name.endswith("_backward") or one.takes_complex]
    without = [name for name, one in COMPOSITES.items() if not one.samples and name not in apart]
    assert not without, f"add `samples` to the declaration of {without}: the tests of composites are made of them"


def check_composite(name: str, vjp) -> None:
    operands, attrs = CASES[name]
    context = EagerContext()
    with use_context(context):
        arrays = [wrap(operand) for operand in operands]
        results, pullback = context.vjp(lambda *xs: composite_of(name).run(xs, attrs), arrays)
        # Every result gets a cotangent, the residuals too: second derivatives need that.
        cts = [wrap(RNG.standard_normal(result.shape)) for result in results]
        expected = pullback(cts)
        several = len(results) > 1
        found = vjp(tuple(cts) if several else cts[0], results if several else results[0], *arrays, **attrs)
    for back, other, operand in zip(found, expected, arrays, strict=True):
        if operand.dtype.is_float:
            assert back.type == operand.type
            np.testing.assert_allclose(np.asarray(back), np.asarray(other), rtol=1e-9, atol=1e-12)
        else:
            assert back is None


@pytest.mark.parametrize("name", CASES)
def test_composite_derivative_equals_that_of_its_body(name) -> None:
    check_composite(name, composite_of(name).vjp)


def test_a_planted_wrong_composite_derivative_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_composite("softmax", lambda ct, y, x, axis: [y * ct])


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_of_composite_rules_agree_with_those_of_the_body(name) -> None:
    operands, attrs = CASES[name]
    composite = composite_of(name)
    weights = RNG.standard_normal(np.shape(operands[0]))

    def first(use_rule):
        def gradient_of(x):
            context = EagerContext()
            with use_context(context):
                rest = [wrap(operand) for operand in operands[1:]]
                results, pullback = context.vjp(lambda x_: composite.run([x_, *rest], attrs), [x])
                ct = wrap(np.cos(np.arange(results[0].size)).reshape(results[0].shape))
                if use_rule:
                    several = len(results) > 1
                    given = (ct, *[None] * (len(results) - 1)) if several else ct
                    back = composite.vjp(given, results if several else results[0], x, *rest, **attrs)[0]
                else:
                    (back,) = pullback([ct, *[None] * (len(results) - 1)])
                return st.sum(back * weights)

        return gradient_of

    (rule,), (body,) = (gradient(first(flag), operands[0])[1] for flag in (True, False))
    np.testing.assert_allclose(rule, body, rtol=1e-8, atol=1e-11)


# ---- recording ------------------------------------------------------------------------------------


def test_a_composite_is_recorded_as_one_op_with_a_closed_block() -> None:
    builder = Builder()
    with builder.block([TensorType(f32, (4, 5)), TensorType(i32, (4,))]) as opened:
        context = RecordContext(builder)
        with use_context(context):
            loss = st.cross_entropy(*(context.handle(param) for param in opened.params))
        builder.end("return", [context.value_of(loss)])
    (op,) = opened.block.ops
    assert op.name == "composite" and op.attrs == {"name": "cross_entropy", "reduction": "mean"}
    assert [effect.kind for effect in op.effects] == ["fail"], "a label out of range stops the program"
    assert loss.type == TensorType(f32)


def test_the_gradient_of_cross_entropy_scatters_nothing() -> None:
    builder = Builder()
    with builder.block([TensorType(f32, (4, 5)), TensorType(i32, (4,)), TensorType(f32), TensorType(f32, (4,))]) as opened:
        context = RecordContext(builder)
        with use_context(context):
            x, labels, loss, rows = (context.handle(param) for param in opened.params)
            d_x, _ = COMPOSITES["cross_entropy"].vjp((loss, None, None), (loss, rows, rows), x, labels, reduction="mean")
        builder.end("return", [context.value_of(d_x)])
    names = {op.name for op in opened.block.ops}
    assert "iota" in names and not {name for name in names if "scatter" in name or "take" in name}


test_bad_calls_are_refused_with_words = refusals(
    (lambda: st.cross_entropy(X, LABELS[:2]), "one label per row"),
    (lambda: st.cross_entropy(X, LABELS.astype(np.float32)), "integer labels"),
    (lambda: st.cross_entropy(X, HALVES, ignore_index=1), "no label that is ignored"),
    (lambda: st.cross_entropy(IMAGES, IMAGE_LABELS), "`axis` names another"),
    (lambda: st.cross_entropy(IMAGES, np.ones(IMAGES.shape, int)), "one label per row"),
    (lambda: st.cross_entropy(SQUARES, SQUARE_LABELS), "in axis 1, as torch has them, and in the last"),
    (lambda: nn.NLLLoss()(SQUARES, SQUARE_LABELS), "say which: `axis=1` or `axis=-1`"),
    (lambda: st.cross_entropy(IMAGES, SHARES), "in axis 1, as torch has them, and in the last"),
    (lambda: st.binary_cross_entropy(HALVES, HALVES, "sum"), "takes the weight of each loss third"),
    (lambda: st.binary_cross_entropy(HALVES, HALVES, X[None]), "does not broadcast"),
    (lambda: nn.BCELoss("sum"), "takes the weight of each loss first"),
    (lambda: st.cross_entropy(X, LABELS, reduction="max"), "reduction is"),
    (lambda: st.cross_entropy(X, LABELS, weight=WEIGHT[:3]), "one weight per class"),
    (lambda: st.cross_entropy(X, LABELS, label_smoothing=1.5), "between 0 and 1"),
    (lambda: st.mse_loss(X, X[0]), "shape of the prediction"),
    (lambda: st.layer_norm(X, 4), "does not fit"),
    (lambda: st.layer_norm(X, 5, WEIGHT[:4]), "the weight is"),
    (lambda: st.gelu(X, approximate="fast"), "approximate is"),
    (lambda: st.dropout(X, 1.5), "between 0 and 1"),
)


@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT}, {"ignore_index": 3}])
@pytest.mark.parametrize("label", [5, -1])
def test_a_label_out_of_range_stops(label, options) -> None:
    with pytest.raises(st.ProgramError, match="out of range"):
        st.cross_entropy(X, np.array([0, 1, 2, label]), **options)


def test_dropout_scales_what_it_keeps_and_passes_the_same_gradient() -> None:
    ones = np.ones((100, 100))
    value, (back,) = gradient(lambda x: st.dropout(x, 0.25), ones)
    assert set(np.unique(value)) == {0.0, 1 / 0.75}
    assert 0.72 < (value > 0).mean() < 0.78
    weights = np.cos(np.arange(value.size)).reshape(value.shape)
    np.testing.assert_allclose(back, value * weights, rtol=1e-12)
    assert isinstance(st.dropout(ones, training=False), EagerArray)
    np.testing.assert_array_equal(np.asarray(METHODS["dropout"](ones, 0.5, False)), ones)
