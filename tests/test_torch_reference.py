"""The inputs of a record of PyTorch's results are compared by digest or by sums (`tests/torch_reference.py`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.torch_reference import digest, same_inputs, sums

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(40, 30))
BIAS = RNG.normal(size=30).astype(np.float32)
READ = RNG.integers(0, 9, 50)


def inputs(weights: Any = WEIGHTS, bias: Any = BIAS, read: Any = READ, kind: str = "rnn") -> Any:
    return kind, {"weights": weights, "bias": bias}, read


def changed(array: np.ndarray, place: Any, value: Any) -> np.ndarray:
    array = array.copy()
    array[place] = value
    return array


RECORDED = json.loads(json.dumps(sums(inputs())))
WRONG = {
    "another element": inputs(changed(WEIGHTS, (20, 7), WEIGHTS[20, 7] + 0.1)),
    "another sign": inputs(-WEIGHTS),
    "another scale": inputs(WEIGHTS * 1.0001),
    "rows exchanged": inputs(WEIGHTS[::-1]),
    "transposed": inputs(np.ascontiguousarray(WEIGHTS.T)),
    "transposed in place": inputs(WEIGHTS.T.reshape(40, 30)),
    "all zeros": inputs(np.zeros_like(WEIGHTS)),
    "a nan": inputs(changed(WEIGHTS, (0, 0), np.nan)),
    "another dtype": inputs(bias=BIAS.astype(np.float64)),
    "another integer": inputs(read=changed(READ, 3, 9)),
    "another string": inputs(kind="lstm"),
    "another name": ("rnn", {"weight": WEIGHTS, "bias": BIAS}, READ),
    "one less": ("rnn", {"weights": WEIGHTS}, READ),
    "one more": (*inputs(), 1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_not_those_of_a_record(name: str) -> None:
    assert not same_inputs(RECORDED, sums(WRONG[name]))


def test_inputs_that_differ_by_last_bits_are_those_of_a_record() -> None:
    nudged = inputs(np.nextafter(WEIGHTS, np.inf), np.nextafter(BIAS, np.float32(np.inf)))
    assert same_inputs(RECORDED, sums(inputs()))
    assert same_inputs(RECORDED, sums(nudged))
    assert digest(inputs()) != digest(nudged)


def test_a_record_of_a_digest_has_no_sums() -> None:
    assert same_inputs(digest(inputs()), digest(inputs()))
    assert not same_inputs(digest(inputs()), sums(inputs()))
    assert not same_inputs(RECORDED, digest(inputs()))
