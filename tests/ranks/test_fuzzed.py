"""Random programs with collectives: 3 ranks agree with one rank that has all data."""

from __future__ import annotations

import pytest

from tests.fuzz.ranks import drive
from tests.ranks import jobs

pytestmark = pytest.mark.ranks


def test_random_programs_agree_with_one_rank():
    status, words = drive(3, 0, 3, limit=300)
    assert status == 0, words


@pytest.mark.full
def test_a_hundred_random_programs_agree_with_one_rank():
    for first, count in ((5, 95), (160, 1)):  # in 160 the reverse of a recursive function sums two arrays at once
        status, words = drive(3, first, count, limit=590)
        assert status == 0, words


PLANTED = """
import sys
from staged.ops import ranks
from tests.fuzz.ranks import main

object.__setattr__(ranks.vary_op, "vjp", lambda ct, y, x: [ranks.reduced(ct, "max")])
sys.exit(main(0, 1))
"""


@pytest.mark.full
def test_a_planted_wrong_derivative_is_found(tmp_path):
    # Programs in the cache have the right derivative.
    done = jobs.run(PLANTED, 3, changes={"STAGED_CFLAGS": "-O0", "STAGED_CACHE_DIR": str(tmp_path)})
    assert done.status != 0
    assert "failed 0: " in done.stdout
    assert "d_w is off" in done.stdout
