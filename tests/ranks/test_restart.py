"""A training is killed at a random step on 4 ranks, and continues on 2 and then on 3 ranks.

All batches are those of one rank that was never killed, and the losses are within 1e-12.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.ranks.jobs import run

pytestmark = [pytest.mark.ranks, pytest.mark.full]
STEPS = 14


def logged(folder: Path) -> dict[int, set[tuple[str, float]]]:
    """By step, what the ranks have logged: a step after the last checkpoint is there twice."""
    found: dict[int, set[tuple[str, float]]] = {}
    for path in folder.glob("log.*"):
        for line in path.read_text().splitlines():
            step, batch, loss = json.loads(line)
            found.setdefault(step, set()).add((batch, loss))
    return found


def train(folder: Path, ranks: int, begins: str, killed: int, until: int) -> int:
    program = Path(__file__).parent / "restarting.py"
    return run(program, ranks, str(folder), begins, str(killed), str(until)).status


def test_a_killed_training_continues_on_other_numbers_of_ranks(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    killed = random.randrange(4, 9)
    assert train(whole, 1, "anew", -1, STEPS) == 0
    assert train(parts, 4, "anew", killed, STEPS) != 0
    assert (parts / "checkpoint.safetensors").exists()
    assert train(parts, 2, "again", -1, 11) == 0
    assert train(parts, 3, "again", -1, STEPS) == 0
    expected, found = logged(whole), logged(parts)
    assert expected.keys() == found.keys() == set(range(STEPS))
    for step, rows in found.items():
        ((batch, loss),) = expected[step]
        for other_batch, other_loss in rows:
            assert other_batch == batch, f"step {step}, killed at {killed}"
            assert abs(other_loss - loss) < 1e-12, f"step {step}, killed at {killed}"
