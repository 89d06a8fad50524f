"""Attention in blocks against PyTorch and the plain formula: values, derivatives, masks, memory, every back end."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals
from tests.torch_reference import reference

# The package has the function's module under no name of its own.
ATTENTION = importlib.import_module("staged.library.sequences.attention")
RNG = np.random.default_rng(5)
Q, K, V = RNG.standard_normal((2, 4, 30, 5)), RNG.standard_normal((2, 4, 50, 5)), RNG.standard_normal((2, 4, 50, 3))
FEW_K, FEW_V = K[:, :2], V[:, :2]
W = RNG.standard_normal((2, 4, 30, 3))
PADDING = np.arange(50) < np.array([50, 17])[:, None, None, None]
HOLES = RNG.random((30, 50)) < 0.6
HOLES[3] = False
HOLES[20, :17] = False
BIAS, ROWS = RNG.standard_normal((4, 30, 50)), RNG.standard_normal((2, 1, 30, 1))
INFINITE = np.where(HOLES, 0.5, -np.inf)

# name: (keys, values, mask or None, whether the mask has a derivative, options)
CASES = {
    "plain": (K, V, None, False, {}),
    "causal": (K, V, None, False, {"is_causal": True}),
    "causal_with_fewer_keys": (K[:, :, :21], V[:, :, :21], None, False, {"is_causal": True}),
    "one_block_of_keys": (K[:, :, :15], V[:, :, :15], None, False, {"is_causal": True}),
    "scale": (K, V, None, False, {"scale": 0.3}),
    "groups": (FEW_K, FEW_V, None, False, {"enable_gqa": True}),
    "padding": (K, V, PADDING, False, {}),
    "holes": (K, V, HOLES, False, {}),
    "infinite": (K, V, INFINITE, False, {}),
    "bias": (K, V, BIAS, True, {}),
    "a_number_for_each_row": (K, V, ROWS, True, {}),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks of queries and four of keys, the last ones not full."""
    monkeypatch.setattr(ATTENTION, "BLOCKS", (12, 16))
    monkeypatch.setattr(ATTENTION, "CAUSAL_BLOCKS", (12, 16))


def torchs(torch, q, k, v, mask, w, wanted, options):
    parts = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in (q, k, v)]
    given = None if mask is None else torch.tensor(mask, requires_grad=wanted)
    y = torch.nn.functional.scaled_dot_product_attention(*parts, given, **options)
    (y * torch.tensor(w)).sum().backward()
    return [
        y.detach().numpy(),
        *(part.grad.numpy() for part in (*parts, given) if part is not None and part.requires_grad),
    ]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    k, v, mask, wanted, options = CASES[name]
    expected = reference(lambda torch, q, k, v, w: torchs(torch, q, k, v, mask, w, wanted, options), Q, k, v, W)
    operands = (Q, k, v, mask) if wanted else (Q, k, v)

    def loss(q, k, v, given=mask):
        y = st.scaled_dot_product_attention(q, k, v, given, **options)
        return st.sum(W * y), y

    step = st.value_and_grad(loss, argnums=tuple(range(len(operands))), has_aux=True)
    for run in (st.function(step), step):
        (_, y), gradients = run(*operands)
        compare_trees([y, *gradients], list(expected), rtol=1e-10, atol=1e-11)


def test_a_query_that_sees_no_key_has_zeros() -> None:
    """As in torch 2.13, for masks of bools and of floats; so its gradients are zeros, and no NaN."""
    for mask in (HOLES, INFINITE):
        y, gradients = st.function(
            lambda q, k, v, mask=mask: (
                st.scaled_dot_product_attention(q, k, v, mask),
                st.grad(lambda *x: st.sum(st.scaled_dot_product_attention(*x, mask)), argnums=(0, 1, 2))(q, k, v),
            )
        )(Q, K, V)
        assert not np.any(np.asarray(y)[:, :, 3]) and not np.any(np.asarray(gradients[0])[:, :, 3])
        assert all(np.isfinite(np.asarray(part)).all() for part in gradients)


def formula(q, k, v):
    """The plain formula, whose derivatives of any order are right."""
    scores = q @ st.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    return st.softmax(st.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), scores, -np.inf)) @ v


def causal(q, k, v):
    return st.scaled_dot_product_attention(q, k, v, is_causal=True)


SMALL = (Q[0, :2, :14], K[0, :2, :20], V[0, :2, :20])
TANGENTS = tuple(np.cos(x) for x in SMALL)
ALL = (0, 1, 2)
TRANSFORMS = {
    "jvp": lambda f: lambda *x: st.jvp(f, x, TANGENTS),
    "vmap": lambda f: st.vmap(f),
    "vmap of queries": lambda f: lambda q, k, v: st.vmap(lambda one: f(one, k, v))(st.stack([q, 2 * q])),
    "gradient of a map": lambda f: st.grad(lambda *x: st.sum(st.sin(st.vmap(f)(*x))), argnums=ALL),
    "second": lambda f: st.grad(
        lambda *x: st.sum(st.sin(st.grad(lambda *x: st.sum(st.cos(f(*x))), argnums=1)(*x))), argnums=ALL
    ),
    "forward over reverse": lambda f: (
        lambda *x: st.jvp(st.grad(lambda *x: st.sum(st.cos(f(*x))), argnums=ALL), x, TANGENTS)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_is_that_of_the_formula(name: str) -> None:
    transform = TRANSFORMS[name]
    expected = st.function(transform(formula))(*SMALL)
    compare_trees(st.function(transform(causal))(*SMALL), expected, rtol=1e-11, atol=1e-12)
    compare_trees(transform(causal)(*SMALL), expected, rtol=1e-11, atol=1e-12)


def both(q, k, v):
    return causal(q, k, v), st.grad(
        lambda *x: st.sum(st.cos(st.scaled_dot_product_attention(*x, HOLES[:14, :20]))), argnums=ALL
    )(q, k, v)


@pytest.mark.parametrize("using", [None, "opencl"])
def test_a_device_gives_the_same(using, emulated_device) -> None:
    if using:
        opencl_device.require()

    @st.function
    def there(q, k, v):
        with st.with_backend(st.GPU, using=using):
            return both(q, k, v)

    compare_trees(there(*SMALL), both(*SMALL), rtol=1e-11, atol=1e-12)


def test_dropout_keeps_the_mean_and_has_the_gradient_of_what_it_dropped() -> None:
    q, k, ones = np.zeros((1, 60, 4)), np.zeros((1, 80, 4)), np.ones((1, 80, 1))

    def dropped(v):
        return st.scaled_dot_product_attention(q, k, v, dropout_p=0.25, generator=st.random.Generator(3))

    shares = np.asarray(st.function(dropped)(np.eye(80)[None]))[0]
    kept = shares > 0
    np.testing.assert_allclose(shares[kept], 1 / 80 / 0.75, rtol=1e-12)
    assert abs(kept.mean() - 0.75) < 0.03
    assert len({row.tobytes() for row in kept}) == 60, "the rows of all blocks draw for themselves"
    np.testing.assert_array_equal(dropped(np.eye(80)[None])[0], shares)
    d_v = st.function(st.grad(lambda v: st.sum(dropped(v))))(ones)
    np.testing.assert_allclose(np.asarray(d_v)[0, :, 0], shares.sum(0), rtol=1e-12)


def test_dropout_of_scores_agrees_with_differences() -> None:
    def dropped(q, k, v):
        return st.scaled_dot_product_attention(q, k, v, dropout_p=0.4, generator=st.random.Generator(3))

    st.check_grads(dropped, SMALL, rtol=1e-5, eps=1e-6)


def test_without_dropout_nothing_is_drawn_and_with_all_dropped_there_are_zeros() -> None:
    generator = st.random.Generator(1)
    before = st.random.uniform((2,), generator=st.random.Generator(1))
    st.scaled_dot_product_attention(Q, K, V, generator=generator)
    np.testing.assert_array_equal(st.random.uniform((2,), generator=generator), before)
    assert not np.any(st.scaled_dot_product_attention(Q, K, V, dropout_p=1.0))


def test_memory_grows_with_the_sequence_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTENTION, "BLOCKS", (192, 512))
    monkeypatch.setattr(ATTENTION, "CAUSAL_BLOCKS", (192, 256))

    @st.function
    def step(q, k, v):
        return st.grad(lambda *x: st.sum(st.scaled_dot_product_attention(*x)), argnums=ALL)(q, k, v)

    sizes = {}
    for length in (2048, 4096, 8192):
        x = np.zeros((1, length, 16), np.float32)
        sizes[length] = step.stage(x, x, x)._artifact.arena_bytes
    assert sizes[8192] - sizes[4096] < 2.1 * (sizes[4096] - sizes[2048])
    assert sizes[8192] < 8 * 2**20, "the scores alone have 256 MiB"


@pytest.mark.parametrize("causal_", [False, True])
def test_f32_is_within_1e_5_of_the_formula(causal_: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTENTION, "BLOCKS", (192, 512))
    monkeypatch.setattr(ATTENTION, "CAUSAL_BLOCKS", (192, 256))
    operands = [RNG.standard_normal((1, 1100, 64)) for _ in range(3)]

    def step(q, k, v, f):
        y = f(q, k, v)
        return y, st.grad(lambda *x: st.sum(st.cos(f(*x))), argnums=ALL)(q, k, v)

    def plain(q, k, v):
        scores = q @ st.swapaxes(k, -1, -2) / 8.0
        return st.softmax(st.where(np.tri(1100, dtype=bool) | (not causal_), scores, -np.inf)) @ v

    expected = st.function(step, static=("f",))(*operands, f=plain)
    found = st.function(step, static=("f",))(
        *(x.astype(np.float32) for x in operands),
        f=lambda *x: st.scaled_dot_product_attention(*x, is_causal=causal_),
    )
    y, gradients = found
    compare_trees(
        [np.asarray(x, np.float64) for x in (y, *gradients)], [expected[0], *expected[1]], rtol=1e-5, atol=1e-5
    )


def test_a_scale_that_is_found_late_may_have_an_axis_of_heads_and_a_dtype_of_its_own() -> None:
    q, scale = np.random.default_rng(2).standard_normal((1, 3, 4)).astype(np.float32), np.array([[[0.1]], [[2.0]]])
    found = st.function(lambda x, scale: st.scaled_dot_product_attention(x, x, x, scale=scale))(q, scale)
    assert found.dtype == np.float64
    for each, factor in zip(found, scale.ravel(), strict=True):
        shares = np.exp(q[0].astype(float) @ q[0].T * factor)
        np.testing.assert_allclose(each, shares @ q[0] / shares.sum(-1, keepdims=True), rtol=1e-12)


def test_large_scores_do_not_overflow() -> None:
    q, k = np.ones((1, 1), np.float32), np.linspace(-500, 500, 64, dtype=np.float32).reshape(64, 1)
    v = np.arange(64, dtype=np.float32).reshape(64, 1)
    assert np.asarray(st.function(st.scaled_dot_product_attention)(q, k, v)).item() == pytest.approx(63, rel=1e-5)


def test_nothing_is_seen_of_no_keys_and_no_queries_see_nothing() -> None:
    for q, k, shape in ((Q, K[:, :, :0], (2, 4, 30, 5)), (Q[:, :, :0], K, (2, 4, 0, 5)), (Q[:0], K[:0], (0, 4, 30, 5))):
        for run in (st.function(st.scaled_dot_product_attention), st.scaled_dot_product_attention):
            y = np.asarray(run(q, k, k))
            assert y.shape == shape and not np.any(y)


def test_the_text_has_blocks_and_their_names() -> None:
    text = st.function(causal, target="portable").stage(*SMALL).source
    assert "for (int64_t head = 0; head < 2; ++head)" in text
    for name in ("scores", "kept(", "shares", "scaled"):
        assert name in text, name


test_what_does_not_fit_is_refused = refusals(
    (lambda: st.scaled_dot_product_attention(Q, FEW_K, FEW_V), st.ShapeError, "enable_gqa=True"),
    (lambda: st.scaled_dot_product_attention(Q, K, V[:, :, :9]), st.ShapeError, "as many values as keys"),
    (lambda: st.scaled_dot_product_attention(Q, K[..., :2], V), st.ShapeError, "one width"),
    (
        lambda: st.scaled_dot_product_attention(Q, K[:, :3], V[:, :3], enable_gqa=True),
        st.ShapeError,
        "leading axes",
    ),
    (lambda: st.scaled_dot_product_attention(Q[0, 0, 0], K, V), st.ShapeError, "query is"),
    (
        lambda: st.scaled_dot_product_attention(Q, K, V, np.ones((30, 50), np.int32)),
        st.DTypeError,
        "attn_mask is bool",
    ),
    (lambda: st.scaled_dot_product_attention(Q, K, V, HOLES[:, :9]), st.ShapeError, "does not broadcast"),
    (lambda: st.scaled_dot_product_attention(Q, K, V, dropout_p=1.5), st.ArgumentError, "a probability"),
)


def test_a_part_of_a_size_that_the_program_finds_sees_itself_alone() -> None:
    @st.function
    def f(x, count):
        n = st.dim("n", count, max=8)
        part = x[:n]
        return st.sum(st.scaled_dot_product_attention(part, part, part))

    x = RNG.standard_normal((8, 2))
    for count in (5, 1, 8, 0):
        part = x[:count]
        np.testing.assert_allclose(f(x, count), np.sum(st.scaled_dot_product_attention(part, part, part)), rtol=1e-12)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_score_of_turned_vectors_depends_on_their_distance_alone(interleaved: bool) -> None:
    q, k = RNG.standard_normal((2, 6))

    def scores(x, y, shift):
        rows = np.arange(5) + shift
        return st.rotary(np.tile(x, (5, 1)), rows, interleaved=interleaved) @ st.rotary(
            np.tile(y, (5, 1)), rows, interleaved=interleaved
        ).T

    found = np.asarray(st.function(scores)(q, k, 0))
    np.testing.assert_allclose(found[1:, 1:], found[:-1, :-1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scores(q, k, 7), found, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(st.rotary(q[None]), q[None], rtol=1e-15)
    st.check_grads(lambda x: st.rotary(x, interleaved=interleaved), (RNG.standard_normal((2, 3, 4)),), rtol=1e-6, eps=1e-6)


def test_slopes_of_alibi_are_those_of_the_paper() -> None:
    np.testing.assert_allclose(-np.asarray(st.alibi(8, 2, 1))[:, 1, 0], 0.5 ** np.arange(1, 9), rtol=1e-6)
    np.testing.assert_allclose(-np.asarray(st.alibi(3, 1, 3))[:, 0, 2] / 2, [2**-4, 2**-8, 2**-2], rtol=1e-6)
    assert np.asarray(st.alibi(0, 2, 3)).shape == (0, 2, 3)


def test_an_odd_number_of_features_has_no_pairs() -> None:
    with pytest.raises(st.ShapeError, match="pairs of features"):
        st.rotary(np.ones((2, 3)))
    with pytest.raises(st.ShapeError, match="a position for each of 2 rows"):
        st.rotary(np.ones((2, 4)), np.arange(3))
    with pytest.raises(st.ArgumentError, match="known while staging"):
        st.alibi(2.5, 2, 2)


def test_complex_numbers_are_refused_where_all_is_dropped():
    z = np.ones((2, 3), np.complex64)
    with pytest.raises(st.DTypeError, match="not defined for complex numbers"):
        st.scaled_dot_product_attention(z, z, z, dropout_p=1.0)
