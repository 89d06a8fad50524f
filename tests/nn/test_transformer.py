"""Multi-head attention and transformers against torch's with the same weights: values, gradients, keys, masks."""

import sys

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.errors.said import refusals
from tests.torch_reference import reference

RNG = np.random.default_rng(6)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_order(monkeypatch):
    """A test draws the same numbers, whatever ran before in this process."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(6))


N, L, S, E = 2, 5, 7, 8
Q, K = (np.random.default_rng(1).standard_normal(shape) for shape in ((L, N, E), (S, N, E)))
K3, V5 = (np.random.default_rng(2).standard_normal((S, N, width)) for width in (3, 5))
HIDDEN = np.random.default_rng(3).random((L, S)) < 0.3
HIDDEN[:, 0] = False
BIAS = np.random.default_rng(4).standard_normal((N * 2, L, S))
PADDING = np.arange(S) >= np.array([S, 3])[:, None]
FLOAT_PADDING = np.where(PADDING, -np.inf, 0.5)
AHEAD = np.triu(np.ones((L, L), bool), 1)

# name: (options, inputs, options of the call)
ATTENTION = {
    "self": ({}, (Q, Q, Q), {}),
    "self_causal": ({}, (Q, Q, Q), {"attn_mask": AHEAD, "is_causal": True}),
    "cross": ({}, (Q, K, K), {"attn_mask": HIDDEN, "key_padding_mask": PADDING}),
    "without_weights": ({"batch_first": True}, (Q, K, K), {"key_padding_mask": PADDING, "need_weights": False}),
    "without_weights_causal": ({}, (Q, Q, Q), {"need_weights": False, "attn_mask": AHEAD, "is_causal": True}),
    "of_each_head": ({"bias": False}, (Q, K, K), {"attn_mask": BIAS, "average_attn_weights": False}),
    "floats": ({}, (Q, K, K), {"attn_mask": BIAS, "key_padding_mask": FLOAT_PADDING, "need_weights": False}),
    "bools_and_floats": ({}, (Q, K, K), {"attn_mask": BIAS, "key_padding_mask": FLOAT_PADDING}),
    "widths": ({"kdim": 3, "vdim": 5}, (Q, K3, V5), {}),
    "more_keys": ({"add_bias_kv": True, "add_zero_attn": True}, (Q, K, K), {"attn_mask": HIDDEN}),
    "more_keys_without_weights": (
        {"add_bias_kv": True},
        (Q, K, K),
        {"key_padding_mask": PADDING, "need_weights": False},
    ),
    "alone": ({}, (Q[:, 0], K[:, 0], K[:, 0]), {"attn_mask": HIDDEN}),
    "alone_without_weights": ({}, (Q[:, 0], K[:, 0], K[:, 0]), {"need_weights": False}),
}


def drawn(module):
    """Random weights for a module, by name."""
    return {name: 0.4 * RNG.standard_normal(value.shape) for name, value in module.state_dict().items()}


def agrees(ours, theirs, weights, inputs, masks):
    """Compare value and gradients of a module with those of PyTorch's, which `theirs(torch)` makes."""
    ours.load_state_dict(weights)
    distinct = list({id(x): x for x in inputs}.values())
    places = [next(n for n, other in enumerate(distinct) if other is x) for x in inputs]

    def first(result):
        return result[0] if isinstance(result, tuple) else result

    def all_of(result):
        return [part for part in result if part is not None] if isinstance(result, tuple) else [result]

    @st.function
    def run(distinct):
        def loss(distinct):
            result = ours(*(distinct[place] for place in places), **masks)
            return sum(st.sum(st.sin(part * (n + 1.0))) for n, part in enumerate(all_of(result))), all_of(result)

        (_, results), back = st.value_and_grad(loss, has_aux=True)(distinct)
        return results, back, st.grad(lambda: loss(distinct)[0], wrt=ours)()

    def recorded(torch, weights, *distinct):
        module = theirs(torch).double()
        module.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        assert list(module.state_dict()) == list(weights)
        given = [torch.tensor(x, requires_grad=True) for x in distinct]
        result = module(
            *(given[place] for place in places),
            **{name: torch.tensor(x) if isinstance(x, np.ndarray) else x for name, x in masks.items()},
        )
        sum(torch.sin(part * (n + 1.0)).sum() for n, part in enumerate(all_of(result))).backward()
        return all_of(result), [x.grad for x in given], {name: p.grad for name, p in module.named_parameters()}

    expected, expected_back, expected_weights = reference(recorded, weights, *distinct)
    results, back, d_weights = run(distinct)
    for mine, other in zip([*results, *back], [*expected, *expected_back], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
    for name, other in expected_weights.items():
        np.testing.assert_allclose(d_weights[name], other, rtol=1e-8, atol=1e-9, err_msg=name)
    eager = ours(*inputs, **masks)
    for mine, other in zip(all_of(eager), expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ATTENTION)
def test_multihead_attention_is_torchs(name):
    options, inputs, call = ATTENTION[name]
    if options.get("batch_first"):
        inputs = tuple(np.swapaxes(x, 0, 1) for x in inputs[:2])
        inputs = (*inputs, inputs[1])
    ours = nn.MultiheadAttention(E, 2, **options, dtype=st.f64)
    agrees(ours, lambda torch: torch.nn.MultiheadAttention(E, 2, **options), drawn(ours), inputs, call)


LAYERS = {
    "encoder_layer": ("TransformerEncoderLayer", {}, (Q,), {}),
    "encoder_layer_norm_first": (
        "TransformerEncoderLayer",
        {"norm_first": True, "activation": "gelu"},
        (Q,),
        {"src_mask": AHEAD, "is_causal": True},
    ),
    "encoder_layer_without_bias": (
        "TransformerEncoderLayer",
        {"bias": False, "batch_first": True},
        (np.swapaxes(K, 0, 1),),
        {"src_key_padding_mask": PADDING},
    ),
    "decoder_layer": (
        "TransformerDecoderLayer",
        {},
        (Q, K),
        {"tgt_mask": AHEAD, "tgt_is_causal": True, "memory_key_padding_mask": PADDING},
    ),
    "decoder_layer_norm_first": ("TransformerDecoderLayer", {"norm_first": True}, (Q, K), {"memory_mask": HIDDEN}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name):
    kind, options, inputs, call = LAYERS[name]
    options = {"dim_feedforward": 12, "dropout": 0.0, **options}
    ours = getattr(nn, kind)(E, 2, **options, dtype=st.f64)
    agrees(ours, lambda torch: getattr(torch.nn, kind)(E, 2, **options), drawn(ours), inputs, call)


def test_a_transformer_is_torchs():
    options = {"num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 12, "dropout": 0.0}
    ours = nn.Transformer(E, 2, **options, dtype=st.f64)
    call = {"tgt_mask": AHEAD, "tgt_is_causal": True, "src_key_padding_mask": PADDING}
    call["memory_key_padding_mask"] = PADDING
    agrees(ours, lambda torch: torch.nn.Transformer(E, 2, **options), drawn(ours), (K, Q), call)


def test_copies_in_a_stack_begin_with_equal_weights_and_a_transformer_draws_all_of_them():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 2, 12), 2)
    first, second = (layer.linear1.weight for layer in stack.layers)
    assert first is not second
    np.testing.assert_array_equal(first.value, second.value)
    layers = nn.Transformer(E, 2, 2, 1, 12).encoder.layers
    assert np.any(np.asarray(layers[0].linear1.weight.value) != np.asarray(layers[1].linear1.weight.value))
    assert abs(np.asarray(layers[0].linear1.weight.value)).max() <= np.sqrt(6 / 20)


def test_a_transformer_trains_in_a_program_with_dropout():
    source = np.random.default_rng(0).standard_normal((N, S, E)).astype(np.float32)

    @st.function
    def train(x, steps):
        layer = nn.TransformerEncoderLayer(E, 2, 16, dropout=0.1, batch_first=True)
        model = nn.TransformerEncoder(layer, 2)
        opt = st.optim.Adam(model.parameters(), lr=3e-3)
        first, loss = 0.0, 0.0
        for i in st.range(steps):
            loss, grads = st.value_and_grad(lambda: st.mse_loss(model(x, is_causal=True), st.tanh(x)), wrt=model)()
            opt.step(grads)
            if i == 0:
                first = loss
        return first, loss

    first, last = train(source, 60)
    assert last < 0.5 * first


def test_is_causal_needs_no_mask_and_both_hold_with_one():
    layer = nn.MultiheadAttention(E, 2, dtype=st.f64, batch_first=True)
    x = np.swapaxes(Q, 0, 1)
    for need in (True, False):
        with_mask = layer(x, x, x, need_weights=need, attn_mask=AHEAD)[0]
        np.testing.assert_allclose(layer(x, x, x, need_weights=need, is_causal=True)[0], with_mask, rtol=1e-12)
    bias = RNG.standard_normal((L, L))
    one = layer(x, x, x, attn_mask=np.where(AHEAD, -np.inf, bias))[0]
    np.testing.assert_allclose(layer(x, x, x, attn_mask=bias, is_causal=True, need_weights=False)[0], one, rtol=1e-12)


@pytest.mark.parametrize("mask", ["bools", "floats", "of queries"])
@pytest.mark.parametrize("options", [{}, {"average_attn_weights": False}], ids=["averaged", "each head"])
def test_a_sequence_of_padding_alone_has_zeros_with_weights_and_without(mask, options):
    """Its weights were NaN, and so were the gradients of the projections, even if the loss did not read the sequence."""
    layer = nn.MultiheadAttention(E, 2, dtype=st.f64, batch_first=True)
    x = np.swapaxes(Q, 0, 1)
    padding = np.zeros(x.shape[:2], bool)
    padding[0] = True
    masks = {
        "bools": {"key_padding_mask": padding},
        "floats": {"key_padding_mask": np.where(padding, -np.inf, 0.0)},
        "of queries": {"attn_mask": np.arange(L)[:, None] * np.ones((L, L)) == 1},
    }[mask]

    def step(need):
        def loss():
            y, weights = layer(x, x, x, need_weights=need, **masks, **options)
            return st.sum(y * y), (y, weights)

        (_, found), grads = st.value_and_grad(loss, wrt=layer, has_aux=True)()
        return found, grads

    for run in (lambda f: f(), lambda f: st.function(f)()):
        (y, weights), grads = run(lambda: step(True))
        (expected, _), expected_grads = run(lambda: step(False))
        np.testing.assert_allclose(y, expected, atol=1e-12)
        for name, grad in grads.items():
            np.testing.assert_allclose(grad, expected_grads[name], atol=1e-12, err_msg=name)
        sums = np.asarray(weights).sum(-1)
        assert (np.isclose(sums, 1.0) | (sums == 0.0)).all() and (sums == 0.0).any() and np.isnan(weights).sum() == 0


def test_a_square_mask_is_torchs():
    expected = reference(lambda torch: torch.nn.Transformer.generate_square_subsequent_mask(4))
    np.testing.assert_array_equal(nn.Transformer.generate_square_subsequent_mask(4), expected)


test_what_does_not_fit_is_refused = refusals(
    (lambda: nn.MultiheadAttention(E, 3), "do not divide into 3 heads"),
    (lambda: nn.MultiheadAttention(E, 2, dropout=2.0), "a probability"),
    (lambda: nn.MultiheadAttention(E, 2, dtype=st.f64)(Q, K3, K3), "takes a key"),
    (lambda: nn.TransformerEncoderLayer(E, 2, activation="tanh"), "activation is one of"),
    (lambda: nn.TransformerEncoder(nn.Identity(), 0), "num_layers"),
    (lambda: nn.MultiheadAttention(E, 2)(Q, Q, Q), "f32 parameters"),
    usual=(st.ArgumentError, st.ShapeError, st.DTypeError),
)
