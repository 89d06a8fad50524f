"""Philox against its published answers, the mapping of words to elements, and the distributions."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerContext
from staged.library.draws.philox import philox, words
from staged.ops.context import use_context
from staged.ops.primitive import PRIMITIVES
from tests.errors.said import refusals

KEY = tuple(np.array(n, np.int64) for n in (7, 2, (5 << 32) + 9))

# From the known answer tests of Random123 (Salmon et al.): counter, key, words.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(counter, key, expected) -> None:
    got = philox(np.array(counter, np.uint32)[:, None], (key[0], key[1]))
    assert got[:, 0].tolist() == expected


def test_words_of_an_op_come_from_the_documented_counters() -> None:
    got = words(*KEY, 10)
    for k in range(10):
        state = np.array([[k // 4], [2], [9], [5]], np.uint32)
        assert got[k] == philox(state, (7, 0))[k % 4, 0]
    assert (words(*KEY, 3) == got[:3]).all(), "a word does not depend on how many are drawn"


def test_elements_come_from_the_documented_words() -> None:
    reference = {name: PRIMITIVES[name].reference for name in ("uniform", "bernoulli", "random_bits", "normal")}
    bits = words(*KEY, 40)
    assert (reference["random_bits"](*KEY, shape=(2, 3)).reshape(-1) == bits[:6]).all()
    uniform = reference["uniform"](*KEY, shape=(5,), dtype=st.f32)
    assert (uniform == (bits[:5] >> 8) / 2.0**24).all() and uniform.dtype == np.float32
    wide = reference["uniform"](*KEY, shape=(5,), dtype=st.f64)
    assert (wide == ((bits[0:10:2] >> 5) * 2.0**26 + (bits[1:10:2] >> 6)) / 2.0**53).all()
    assert (reference["bernoulli"](*KEY, np.float32(0.4), shape=(5,)) == (uniform < np.float32(0.4))).all()
    normal = reference["normal"](*KEY, shape=(3,), dtype=st.f64)
    u = ((bits[0:8:4] >> 5) * 2.0**26 + (bits[1:8:4] >> 6) + 1) / 2.0**53
    v = ((bits[2:8:4] >> 5) * 2.0**26 + (bits[3:8:4] >> 6)) / 2.0**53
    pairs = np.sqrt(-2 * np.log(u)) * np.array([np.cos(2 * np.pi * v), np.sin(2 * np.pi * v)])
    np.testing.assert_allclose(normal, pairs.T.reshape(-1)[:3], rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_a_permutation_holds_each_number_once(n) -> None:
    order = np.asarray(st.random.permutation(n))
    assert order.dtype == np.int64 and sorted(order.tolist()) == list(range(n))


def test_draws_repeat_with_the_seed_and_differ_within_a_program() -> None:
    def draw(seed):
        st.seed(seed)
        with use_context(EagerContext()):
            return [np.asarray(st.random.uniform((4,))) for _ in range(2)]

    first, again, other = draw(1), draw(1), draw(2)
    assert (first[0] == again[0]).all() and (first[1] == again[1]).all()
    assert (first[0] != first[1]).any() and (first[0] != other[0]).any()


def test_distributions_have_their_moments() -> None:
    st.seed(5)
    with use_context(EagerContext()):
        uniform = np.asarray(st.random.uniform((100_000,), low=-2.0, high=4.0))
        normal = np.asarray(st.random.normal((100_001,), mean=1.0, std=3.0))
        integers = np.asarray(st.random.integers(-3, 5, (100_000,)))
        bernoulli = np.asarray(st.random.bernoulli(0.3, (100_000,)))
    assert uniform.dtype == np.float32 and uniform.min() >= -2.0 and uniform.max() < 4.0
    assert abs(uniform.mean() - 1.0) < 0.02 and abs(uniform.std() - 6 / 12**0.5) < 0.02
    assert normal.dtype == np.float32 and abs(normal.mean() - 1.0) < 0.03 and abs(normal.std() - 3.0) < 0.03
    assert np.isfinite(normal).all()
    assert set(integers.tolist()) == set(range(-3, 5)) and abs(integers.mean() - 0.5) < 0.03
    assert bernoulli.dtype == bool and abs(bernoulli.mean() - 0.3) < 0.01


BOUNDS = {
    "uniform": [(0, 1), (1000, 1001), (4000, 4000.5), (-1, 1), (-3, -2.9), (-1, 0), (1, 1), (0, 1e-5), (60000, 60001)],
    "truncated_normal": [(-0.1, 0.1), (2, 2.5)],
}


@pytest.mark.parametrize("dtype", [st.bf16, st.f16, st.f32, st.f64], ids=str)
@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_between_bounds_are_below_the_upper_one(name, dtype) -> None:
    """Rounding made some of them the bound: 1.0 of bf16, 1001 of f32."""
    size = 40_000 if name == "uniform" else 4_000
    bounds = BOUNDS[name] + ([(1e15, 1e15 + 1)] if dtype is st.f64 and name == "uniform" else [])
    lows, highs = np.array(bounds, np.float64).T[:, :, None]

    def draw(*limits):
        generator, of = st.random.Generator(3), getattr(st.random, name)
        fixed = [of((size,), low=low, high=high, dtype=dtype, generator=generator) for low, high in bounds]
        return st.stack(fixed), of((len(bounds), size), low=limits[0], high=limits[1], dtype=dtype, generator=generator)

    least, most = (np.asarray(each[:, 0]).astype(dtype.numpy).astype(np.float64) for each in (lows, highs))
    for compiled, eager in zip(st.function(draw)(lows, highs), draw(lows, highs), strict=True):
        for found in (np.asarray(each).astype(np.float64) for each in (compiled, eager)):
            assert (found.min(1) >= least).all() and ((found.max(1) < most) | (least == most)).all(), found.max(1)
        if name == "uniform" and dtype is not st.f64:
            np.testing.assert_array_equal(np.asarray(compiled).astype(np.float64), np.asarray(eager).astype(np.float64))


test_bad_calls_are_refused_with_words = refusals(
    (lambda: st.random.uniform((3,), dtype=st.i32), "floats"),
    (lambda: st.random.integers(0, 5, dtype=st.f32), "integers"),
    (lambda: st.random.integers(0.5), "integer bounds"),
    (lambda: st.random.bernoulli(1.5), "between 0 and 1"),
    (lambda: st.random.bernoulli(np.zeros(3, np.float32), (2,)), "do not broadcast"),
    (lambda: st.random.bernoulli(np.zeros((3, 1), np.float32), (3,)), "does not broadcast to"),
    (lambda: st.random.bernoulli(np.zeros((1, 3), np.float32), (3,)), "does not broadcast to"),
    (lambda: st.random.permutation(-1), "not negative"),
    (lambda: st.random.normal((-1,)), "not negative"),
)


def test_bernoulli_of_an_array_has_a_probability_for_each_element() -> None:
    chances = np.array([0.0, 0.25, 0.9, 1.0])
    draw = st.function(lambda p: (st.random.bernoulli(p), st.random.bernoulli(p, (20_000, 4))))
    alone, many = map(np.asarray, draw(chances))
    assert alone.shape == (4,) and many.dtype == bool and many.shape == (20_000, 4)
    np.testing.assert_allclose(many.mean(0), chances, atol=0.015)
    assert not many[:, 0].any() and many[:, 3].all()
    with st.eager():
        generator, twin = (st.random.Generator(7) for _ in range(2))
        equal = generator.bernoulli(np.full(50, 0.3)), twin.bernoulli(0.3, (50,))
    np.testing.assert_array_equal(*map(np.asarray, equal))


def test_a_permutation_of_an_array_is_of_its_rows() -> None:
    rows = np.arange(24.0).reshape(12, 2)
    mixed = np.asarray(st.function(lambda x: st.random.Generator(3).permutation(x))(rows))
    order = np.asarray(st.function(lambda: st.random.Generator(3).permutation(12))())
    np.testing.assert_array_equal(mixed, rows[order])
    assert not np.array_equal(mixed, rows)
    with st.eager():
        assert sorted(np.asarray(st.random.permutation([3, 1, 2])).tolist()) == [1, 2, 3]


def test_integers_of_wide_ranges_are_the_long_product_of_three_words() -> None:
    """Bounds known while staging and bounds that are arguments draw the same."""
    words = np.asarray(st.random.bits((64, 3), generator=st.random.Generator(5))).astype(object)
    numbers = words[:, 0] + words[:, 1] * 2**32 + words[:, 2] * 2**64
    draw = st.function(lambda low, high: st.random.integers(low, high, (64,), generator=st.random.Generator(5)))
    for low, high in ((0, 2**40), (-(2**62), 2**62), (-(2**63), 2**63 - 1), (7, 2**31 + 8)):
        wanted = (low + numbers * (high - low) // 2**96).astype(np.int64)
        np.testing.assert_array_equal(st.random.integers(low, high, (64,), generator=st.random.Generator(5)), wanted)
        np.testing.assert_array_equal(draw(low, high), wanted)
    whole = st.random.integers(0, 2**63, (64,), dtype=st.u64, generator=st.random.Generator(5))
    np.testing.assert_array_equal(whole, (numbers * 2**63 // 2**96).astype(np.uint64))


def test_there_is_one_draw_for_each_element_of_a_parameter() -> None:
    """One draw was the same for all bounds of an array, unless the shape of the draws was given."""
    bounds = np.arange(4, 12)
    for draw, mean in (
        (lambda: st.random.integers(0, bounds * 1000), bounds * 500.0),
        (lambda: st.random.uniform(high=bounds / 1.0), bounds / 2.0),
        (lambda: st.random.normal(std=bounds / 1.0), bounds * 0.0),
    ):
        drawn = (np.asarray(draw()) - mean) / bounds
        assert drawn.shape == (8,) and np.ptp(drawn) > 0.1
    with pytest.raises(st.ShapeError, match="do not fit draws of shape"):
        st.random.normal((3,), mean=np.zeros((2, 1)))
