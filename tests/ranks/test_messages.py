"""The messages of a step of training: gradients share them, and they start early if asked to."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ranks.jobs import results_of
from tests.ranks.messages import LAYERS

pytestmark = pytest.mark.ranks


def found(case: str) -> dict[str, Any]:
    return results_of("tests.ranks.messages", 2)[f"case_{case}"][0]


def test_the_gradients_of_a_step_and_its_loss_are_one_message() -> None:
    made = found("mlp")
    assert made["messages"] == 3  # of three steps
    count = 1 + 20 * 30 + 30 + 30 * 30 + 30 + 30 * 5 + 5
    assert made["bytes"] / 3 >= 8 * count
    assert made["bytes"] / 3 < 8 * count + 7 * 64  # and no more than the gaps between arrays
    assert re.fullmatch(rf"all_reduce: {8 * count:,} bytes, 7 arrays.*", made["explained"])


def test_a_bucket_has_a_largest_size() -> None:
    made = found("small_buckets")
    assert made["messages"] / 3 == len(made["explained"].splitlines()) == 3
    sizes = [int(size.replace(",", "")) for size in re.findall(r": ([\d,]+) bytes, [^1]", made["explained"])]
    assert sizes
    assert max(sizes) <= 2000


def test_a_rolled_layer_has_one_message() -> None:
    made = found("layers")
    assert made["messages"] / 3 <= LAYERS + 3


def test_messages_during_the_backward_pass_do_not_change_a_bit() -> None:
    late, early = found("small_buckets"), found("overlap")
    for name, value in late["weights"].items():
        assert np.array_equal(value, early["weights"][name]), name
    text = early["source"]
    starts = [match.start() for match in re.finditer(r"= st_reduce_start\(|=\n +st_reduce_start\(", text)]
    waits = [match.start() for match in re.finditer(r"st_reduce_wait\(", text)]
    assert len(starts) == len(waits) == early["messages"] / 3
    between = text[starts[0] : min(waits)]
    assert "st_multiply" in between or "d_" in between  # products of earlier layers run meanwhile
    assert "st_poll_messages();" in between
