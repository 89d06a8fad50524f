"""Optimisers whose state is in pieces (`shard=True`) compute what one rank computes, on 2, 3 and 4 ranks."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import optim
from tests.ranks import sharded
from tests.ranks.jobs import NUMBERS, results_of

pytestmark = pytest.mark.ranks
CASES = "tests.ranks.sharded"


@pytest.mark.parametrize("ranks", NUMBERS)
def test_losses_and_weights_are_those_of_one_rank(ranks: int) -> None:
    for found in results_of(CASES, ranks)["case_training"]:
        for name, (losses, weights) in found.items():
            expected, own, _ = sharded.trained(name, True, **sharded.OPTIMIZERS[name])
            assert np.allclose(losses, expected, rtol=0, atol=1e-12), name
            assert all(np.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(weights, own, strict=True)), name


def test_pieces_have_the_bits_of_whole_state() -> None:
    assert all(results_of(CASES, 2)["case_same_bits_without_pieces"]), "sums of two have one order"


@pytest.mark.parametrize("ranks", NUMBERS)
def test_state_is_a_piece(ranks: int) -> None:
    for kept, whole in results_of(CASES, ranks)["case_state_bytes"]:
        assert kept <= 2 * whole * (1 / ranks + 0.02)


@pytest.mark.parametrize("ranks", NUMBERS)
def test_a_step_has_three_messages(ranks: int) -> None:
    expected = {"st_all_reduce": 1, "st_reduce_scatter": 1, "st_all_gather": 1}
    assert results_of(CASES, ranks)["case_messages"] == [expected] * ranks


def test_gradients_of_rolled_layers_are_one_message() -> None:
    _, expected = sharded.case_messages_of_rolled_layers()
    for calls, loss in results_of(CASES, 3)["case_messages_of_rolled_layers"]:
        assert calls == {"st_all_reduce": 1, "st_reduce_scatter": 1, "st_all_gather": 1}
        assert abs(loss - expected) < 1e-12


def test_sums_of_halves_are_scattered_before_they_are_rounded() -> None:
    for is_equal, calls in results_of(CASES, 2)["case_halves"]:
        assert is_equal
        assert calls == {"st_all_reduce": 1, "st_reduce_scatter": 1, "st_all_gather": 1}


def test_clipping_and_accumulation() -> None:
    assert all(results_of(CASES, 3)["case_clipped_and_accumulated"])


def test_a_step_outside_of_a_staged_function_names_the_function() -> None:
    for text in results_of(CASES, 2)["case_outside_of_a_function"]:
        assert "AdamW.step exchanges arrays between 2 ranks" in text
        assert "@st.function" in text


def test_one_rank_has_the_program_without_pieces() -> None:
    texts = []
    for shard in (False, True):
        model = sharded.mlp()
        step = sharded.stepping(model, optim.AdamW(model.parameters(), shard=shard))
        texts.append(str(step.stage(sharded.X, sharded.Y).source))
    assert texts[0] == texts[1]


def test_an_optimiser_of_whole_arrays_is_an_error() -> None:
    with pytest.raises(st.ArgumentError, match="Adafactor updates whole arrays"):
        optim.Adafactor(sharded.mlp().parameters(), shard=True)
