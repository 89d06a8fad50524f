"""`st.batches` of sharded arrays, random numbers for local values, and batch norm: programs for two ranks, not run.

Values on ranks are in `test_equal_to_one_rank.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.errors import RankError, ShapeError, StagedError, StagingError

X, Y = np.ones((12, 4)), np.arange(12)


def source_of(run: Any, *given: Any, **options: Any) -> str:
    return st.function(ranks=2, **options)(run).stage(*given).source


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_rank_reads_its_part_of_each_batch_of_the_whole_array(shuffle):
    def run(x, y):
        total = 0.0
        for a, b in st.batches(st.shard(x), st.shard(y), size=6, shuffle=shuffle):
            assert a.shape == (3, 4) and b.shape == (3,)
            total += st.sum(a * b[:, None])
        return st.all_reduce(total)

    text = source_of(run, X, Y)
    assert "st_world.rank * 3" in text if shuffle else "st_world.rank * 12" in text
    assert "memcpy" not in text.split("entry points")[-1]


def test_the_number_of_rows_may_be_any():
    def run(x, y):
        count = 0
        for a, _ in st.batches(st.shard(x), st.shard(y), size=4):
            count += a.shape[0]
        return st.all_reduce(count)

    assert source_of(run, X[:11], Y[:11])


def padded(x):
    for a, is_row in st.batches(st.shard(x), size=8, drop_last=False, mask=True):
        x = x + st.all_reduce(st.sum(a * is_row[:, None], 0)) / st.all_reduce(st.sum(is_row))
    return x


@pytest.mark.parametrize("shuffle", [False, True])
def test_padding_has_a_mask_also_without_ranks(shuffle):
    def rows(x):
        found, masks = st.zeros((3, 5, 4), dtype=st.f64), st.zeros((3, 5), dtype=st.bool)
        for step, (a, is_row) in enumerate(st.batches(x, size=5, shuffle=shuffle, drop_last=False, mask=True)):
            found[step], masks[step] = a, is_row
        return found, masks

    x = np.arange(48.0).reshape(12, 4)
    for mode in (st.eager(), nullcontext()):
        with mode:
            found, masks = map(np.asarray, st.function(rows)(x))
        assert masks.sum() == 12 and masks[:2].all() and masks[2, :2].all()
        assert sorted(found[masks][:, 0]) == list(x[:, 0])


def test_padded_batches_of_shards_are_static():
    assert source_of(padded, X)


def mixed(x, y):
    for a, b in st.batches(st.shard(x), y, size=6):
        x = x + st.all_reduce(st.sum(a * b[:, None]))
    return x


def uneven_size(x, y):
    for a in st.batches(st.shard(x), size=5):
        x = x + st.all_reduce(st.sum(a))
    return x


def smaller_batch(x, y):
    for a in st.batches(st.shard(x), size=8, drop_last=False):
        x = x + st.all_reduce(st.sum(a))
    return x


def mask_alone(x, y):
    for a, _ in st.batches(x, size=8, mask=True):
        x = x + st.sum(a)
    return x


def computed(x, y):
    for a in st.batches(st.shard(x) / 255.0, size=6):
        x = x + st.all_reduce(st.sum(a))
    return x


@pytest.mark.parametrize(
    ("run", "kind", "message", "hint"),
    [
        (mixed, StagingError, "array 2 is not the result of `st.shard`", "call `st.shard(x)` for each array"),
        (uneven_size, ShapeError, "2 does not divide the batch size, 5", "rows of all ranks together"),
        (smaller_batch, StagingError, "the rows left over need padding", "mask=True"),
        (mask_alone, StagingError, "`mask` must be False", "drop_last=False, mask=True"),
        (computed, StagingError, "is computed from the result of `st.shard`", "call `st.shard` last"),
    ],
)
def test_a_wrong_loop_is_an_error_at_its_line(run, kind, message, hint):
    with pytest.raises(kind) as caught:
        source_of(run, X, Y)
    text = str(caught.value)
    assert message in text and hint in text and "st.batches(" in text


# ---- random numbers -----------------------------------------------------------------------------


def normal(x):
    return x + st.random.normal(x.shape, dtype=st.f64)


def dropped(x):
    return st.dropout(x, 0.5)


def layers(x):
    state = st.random.normal((3, *x.shape), dtype=st.f64)
    for _ in st.range(2):
        state = state * x
    return state


def poisson(x):
    return st.random.poisson(x)


@pytest.mark.parametrize(("draw", "shape"), [(normal, "(12, 4)"), (dropped, "(12, 4)"), (poisson, "(12, 4)")])
def test_equal_numbers_for_a_local_argument_are_an_error(draw, shape):
    with pytest.raises(RankError) as caught:
        source_of(draw, X, local="x")
    text = str(caught.value)
    assert f"random numbers of shape {shape} are drawn for local values" in text
    assert "`shard=0`" in text and "declared local" in text and "test_batches_of_shards.py" in text


def test_numbers_whose_first_axis_is_not_that_of_the_batch_are_an_error():
    with pytest.raises(RankError, match=r"shape \(3, 6, 4\) are drawn for local values, of which a rank has 6 rows"):
        source_of(lambda x: layers(st.shard(x)), X)


def explicit(x):
    return x + st.random.normal(x.shape, dtype=st.f64, shard=0)


def explicit_axis(x):
    return x * st.random.bernoulli(0.5, x.shape, shard=1)


def explicit_dropout(x):
    return st.dropout(x, 0.5, shard=0)


def of_rows(x):
    return normal(st.shard(x))


def for_all_rows(x):
    return x + st.random.normal((4,), dtype=st.f64)


def for_weights(x):
    return x @ st.random.normal((4, 4), dtype=st.f64)


@pytest.mark.parametrize("draw", [explicit, explicit_axis, explicit_dropout])
def test_shard_draws_other_numbers_on_each_rank(draw):
    assert "st_world.rank" in source_of(draw, X, local="x")


@pytest.mark.parametrize("draw", [for_all_rows, for_weights])
def test_numbers_for_all_rows_are_equal_on_all_ranks(draw):
    assert "st_world.rank" not in source_of(draw, X, local="x")


def test_rows_of_a_shard_have_their_own_numbers():
    assert "st_world.rank * 24" in source_of(of_rows, X)


def test_an_axis_of_shard_is_checked():
    with pytest.raises(StagedError, match="axis"):
        st.random.normal((2, 3), shard=2)


# ---- batch norm ---------------------------------------------------------------------------------


def test_batch_norm_of_the_rows_of_one_rank_names_the_other_one():
    norm = nn.BatchNorm1d(4, dtype=st.f64)
    with pytest.raises(RankError) as caught:
        source_of(lambda x: st.all_reduce(norm(st.shard(x))), X)
    assert "nn.SyncBatchNorm" in str(caught.value) and "st.shard" in str(caught.value)


def test_batch_norm_in_evaluation_takes_local_arrays():
    norm = nn.BatchNorm1d(4, dtype=st.f64).eval()
    assert source_of(lambda x: st.all_reduce(norm(st.shard(x))), X)


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (6, 3, 4, 5)])
def test_sync_batch_norm_of_one_rank_is_batch_norm(shape):
    plain = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](3, dtype=st.f64)
    sync = nn.SyncBatchNorm(3, dtype=st.f64)
    x = 2.0 + np.random.default_rng(0).normal(size=shape)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(sync(x)), np.asarray(plain(x)), rtol=1e-12)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        np.testing.assert_allclose(sync.state_dict()[name], plain.state_dict()[name], rtol=1e-12)
    grads = [st.grad(lambda x, norm=norm: st.sum(norm(x) ** 3))(x) for norm in (plain, sync)]
    np.testing.assert_allclose(*map(np.asarray, grads), atol=1e-9)
