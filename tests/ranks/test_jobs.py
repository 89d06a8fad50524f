"""The harness itself: statuses, streams and time limits of jobs."""

from __future__ import annotations

import pytest

from tests.ranks import jobs

pytestmark = pytest.mark.ranks


def test_a_job_has_the_output_of_all_ranks_and_a_status():
    done = jobs.run("import staged as st; print(int(st.function(st.ranks)()))", 2).check()
    assert done.stdout.split() == ["2", "2"]


def test_a_job_that_fails_has_the_status_and_the_message():
    done = jobs.run("import sys; sys.exit('no weights')", 2)
    assert done.status != 0
    assert "no weights" in done.stderr


def test_a_job_that_reaches_its_limit_ends_with_all_processes():
    done = jobs.run("import time, os; print(os.getpid(), flush=True); time.sleep(60)", 2, limit=3)
    assert done.is_late
    assert done.status != 0
    assert done.seconds < 10
