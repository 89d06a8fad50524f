"""Files that several ranks write together: the file of a program, that of Python, and that of one rank are equal."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import staged as st
from tests.ranks.jobs import NUMBERS, end, results_of, start

pytestmark = pytest.mark.ranks
CASES = "tests.ranks.sharded"


@pytest.mark.parametrize("ranks", NUMBERS[:2])
def test_a_program_and_python_write_equal_files_of_whole_arrays(ranks: int) -> None:
    for found in results_of(CASES, ranks)["case_files"]:
        assert found["equal"]
        assert found["digests"]["program"] == found["digests"]["python"]
        assert found["leftovers"] == []
        assert found["calls"] == 1, "each rank writes its pieces, and no array is gathered"


@pytest.mark.parametrize("ranks", NUMBERS[:2])
def test_training_continues_with_the_loaded_state(ranks: int) -> None:
    assert max(results_of(CASES, ranks)["case_continued"]) == 0.0


def test_a_file_that_cannot_be_written_is_an_error_on_all_ranks() -> None:
    for texts in results_of(CASES, 2)["case_unwritable"]:
        assert len(texts) == 2
        assert all("No such file or directory" in text for text in texts)


def test_numpy_does_not_receive_a_piece_as_the_whole() -> None:
    for text in results_of(CASES, 2)["case_numpy_of_a_piece"]:
        assert "in pieces on 2 ranks" in text
        assert "st.save" in text


def test_local_values_are_in_a_file_of_each_rank_or_gathered() -> None:
    for rank, (text, values) in enumerate(results_of(CASES, 2)["case_files_of_local_values"]):
        assert "needs the number of the rank in its name" in text
        assert "st.all_gather(x)" in text
        assert values == [rank, rank, 0.0, 0.0, 1.0, 1.0]


def test_the_file_is_whole_after_a_rank_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    process = start(Path(__file__).parent / "saving_often.py", 2, str(path))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.random())
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ranks = Path(f"/proc/{children[0]}/task/{children[0]}/children").read_text().split()
        os.kill(int((ranks or children)[-1]), signal.SIGKILL)
        assert process.wait(60) != 0
    finally:
        end(process)
    state = st.load(path)["optimizer"]["state"][0]
    assert state["exp_avg"].shape == (200_000,)
    assert np.ptp(state["exp_avg"]) == 0.0, "all pieces are of one step"
