"""Training on many ranks is that of one rank: f64, networks with AdamW, clipping, a schedule, dropout, accumulation."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.ranks import training
from tests.ranks.jobs import NUMBERS, results_of

NETWORKS = ["mlp", "cnn", "char_lstm", "gpt"]
ranks = pytest.mark.ranks


@cache
def alone(case: str) -> Any:
    """The result of a case in a program without ranks."""
    return getattr(training, f"case_{case}")(sharded=False)


def on(ranks: int) -> Any:
    return results_of("tests.ranks.training", ranks)


def has_same_bits(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(has_same_bits(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(has_same_bits, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@ranks
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("count", NUMBERS)
def test_losses_and_weights_are_those_of_one_rank(count: int, network: str) -> None:
    expected = alone(network)
    for found in on(count)[f"case_{network}"]:
        for name, value in expected.items():
            assert np.abs(found[name] - value).max() <= 1e-12, name


@ranks
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("count", NUMBERS)
def test_all_ranks_have_the_same_weights(count: int, network: str) -> None:
    first, *rest = on(count)[f"case_{network}"]
    assert all(has_same_bits(first, found) for found in rest)


@ranks
@pytest.mark.parametrize("case", ["samples", "shared_draws"])
@pytest.mark.parametrize("count", NUMBERS)
def test_batches_masks_and_random_numbers_have_the_bits_of_one_rank(count: int, case: str) -> None:
    expected = alone(case)
    for found in on(count)[f"case_{case}"]:
        wrong = [number for number in range(len(expected)) if not has_same_bits(found[number], expected[number])]
        assert not wrong


@ranks
@pytest.mark.parametrize("case", ["padded", "dimension"])
@pytest.mark.parametrize("count", NUMBERS)
def test_rows_left_over_are_padded_and_rows_may_be_a_dimension(count: int, case: str) -> None:
    for found in on(count)[f"case_{case}"]:
        np.testing.assert_allclose(found, alone(case), rtol=1e-13)


@ranks
def test_batches_of_local_arrays_are_rows_of_each_rank() -> None:
    expected = training.case_own_rows()
    for found in on(2)["case_own_rows"]:
        np.testing.assert_array_equal(found, np.concatenate([expected, expected + 100.0], axis=1))


@ranks
@pytest.mark.parametrize("case", [*NETWORKS, "samples", "shared_draws", "padded"])
def test_one_rank_has_the_bits_of_the_program_without_ranks(case: str) -> None:
    (found,) = on(1)[f"case_{case}"]
    assert has_same_bits(found, alone(case))


@ranks
@pytest.mark.full
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_two_jobs_of_as_many_ranks_have_the_same_bits(network: str) -> None:
    """Not two calls in a job: MPICH adds in another order after the first messages of a communicator."""
    again = results_of("tests.ranks.training_again", 3)
    assert has_same_bits(again[f"case_{network}"][0], on(3)[f"case_{network}"][0])


def test_a_program_of_one_rank_has_no_messages() -> None:
    program = training.train.stage(
        training.Training(training.Mlp()), training.POINTS, training.VALUES, sharded=True, epochs=1
    )
    assert "MPI" not in program.source
    assert "st_world" not in program.source
