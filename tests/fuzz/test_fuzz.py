"""A short run of the fuzzer: Hypothesis draws the programs, and makes a failing one small. `make fuzz` runs thousands."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis
import hypothesis.strategies as strategies
import pytest

from tests.fuzz.__main__ import case_of
from tests.fuzz.check import PLAIN, Case, check
from tests.fuzz.generator import Generator
from tests.fuzz.reduce import reduce_text


@hypothesis.settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    report_multiple_bugs=False,
)
@hypothesis.given(strategies.randoms(use_true_random=False), strategies.integers(0, 4))
def test_random_programs_agree_and_have_the_right_derivatives(chance: random.Random, n: int) -> None:
    text, shapes = Generator(chance).program()
    case = Case(text, tuple(shapes), 0, n)
    hypothesis.note(case.reproduction())
    check(case, (PLAIN,))


def test_a_seed_is_a_program() -> None:
    assert case_of(7) == case_of(7)
    assert case_of(7).text != case_of(8).text


PLANTED = """\
def f(a0, n):
    total = st.sum(a0) * 0.5
    extra = st.cos(total)
    for i in st.range(n):
        total = total + st.sin(total) * a0[i % 3]
        extra = extra * 0.5
    return (total + 0.0 * extra, n)
"""


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dataclasses import replace

    from staged.ops.primitive import PRIMITIVES

    case = Case(PLANTED, ((3,),), 1)
    check(case, (PLAIN,))
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path))  # else the right program is found there
    sine = PRIMITIVES["sin"]
    monkeypatch.setitem(PRIMITIVES, "sin", replace(sine, vjp=lambda ct, *rest: [ct]))
    with pytest.raises(AssertionError):
        check(case, (PLAIN,))


def test_a_failing_program_is_made_small() -> None:
    small = reduce_text(PLANTED, lambda text: "st.sin(" in text, seconds=5)
    assert "extra" not in small
    assert "for" not in small
