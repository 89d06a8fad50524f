"""The runner with sanitizers notices what it is there for, and goes on after it."""

from __future__ import annotations

import numpy as np
import pytest

from staged.base.artifact import Artifact
from tests.runtime.programs import given, program, result
from tests.sanitized import run_sanitized

X = np.arange(4, dtype=np.float32)


def writer(index: str) -> Artifact:
    """A program that writes `y[index]`."""
    body = f"""\
    for (int i = 0; i < 4; ++i) {{
        args->y[i] = args->x[i];
    }}
    args->y[{index}] = 1.0f;
"""
    return program("writer", (given("x", shape=(4,)), given("n", "i32"), result("y", shape=(4,))), body)


def test_results_come_back() -> None:
    outcome, again = run_sanitized(writer("args->n"), [([X, 2], []), ([X, 3], [])])
    np.testing.assert_array_equal(outcome.results[0], [0, 1, 1, 3])
    np.testing.assert_array_equal(again.results[0], [0, 1, 2, 1])


@pytest.mark.parametrize(
    ("index", "n", "words"),
    [("args->n", 4, "heap-buffer-overflow"), ("(args->n + args->n) % 3", 2**31 - 1, "signed integer overflow")],
)
def test_a_complaint_fails_with_its_words_and_the_next_program_runs(index: str, n: int, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        run_sanitized(writer(index), [([X, n], [])])
    (outcome,) = run_sanitized(writer("args->n"), [([X, 0], [])])
    np.testing.assert_array_equal(outcome.results[0], [1, 1, 2, 3])
