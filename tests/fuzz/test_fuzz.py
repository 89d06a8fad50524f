"""A short run of the fuzzer: Hypothesis draws the programs, and makes a failing one small. `make fuzz` runs thousands.

`make fuzz ARGS=--gpu` runs programs with regions, of which a few are here.
"""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis
import hypothesis.strategies as strategies
import pytest

from cuda_emulator import Emulator
from staged.errors import StagedError
from tests.fuzz import __main__ as fuzz_main
from tests.fuzz.__main__ import case_of
from tests.fuzz.cells.report import Record
from tests.fuzz.check import PLAIN, Case, Failure, check
from tests.fuzz.generator import Generator
from tests.fuzz.on_device import VARIANTS, DeviceCase, check_on_device, device_case_of, refused
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


SEEDS = range(2 * len(VARIANTS))


@pytest.mark.parametrize("seed", SEEDS, ids=[f"{seed}-{VARIANTS[seed % len(VARIANTS)]}" for seed in SEEDS])
def test_random_programs_with_regions_agree_in_any_order(seed: int, emulated_device: Emulator) -> None:
    check_on_device(device_case_of(seed))


def test_a_seed_is_a_program() -> None:
    for made in (case_of, device_case_of):
        assert made(7) == made(7)
        assert made(7).text != made(8).text


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
    from staged.ops.primitive import PRIMITIVES

    case = Case(PLANTED, ((3,),), 1)
    check(case, (PLAIN,))
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path))  # else the right program is found there
    monkeypatch.setitem(vars(PRIMITIVES["sin"]), "vjp", lambda ct, *rest: [ct])
    with pytest.raises(AssertionError):
        check(case, (PLAIN,))


ON_DEVICE = """\
def f(a0, n):
    with st.with_backend(st.GPU):
        x = a0 * 2.0
    y = x[0] + st.sum(a0)
    with st.with_backend(st.GPU):
        total = st.sum(st.sin(x) * y)
    print(n, total > 0.0)
    return (total, n)
"""


def test_what_a_device_does_wrong_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, emulated_device: Emulator) -> None:
    from staged.backends.cublas_cudnn.structure import CudaBody

    case = DeviceCase(ON_DEVICE, ((3,),), 1, variant="regions")
    assert check_on_device(case) == "agree"
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path))  # else the right program is found there
    # The host goes on without waiting for what it copies: late work shows it.
    monkeypatch.setattr(CudaBody, "wait", lambda *_: None)
    with pytest.raises(Failure, match="lazy|print"):
        check_on_device(case)


def test_what_is_refused_is_a_failure_unless_the_documentation_says_so() -> None:
    limit = "`doubled` is a kernel of a GPU, and what stands here runs on the CPU"
    assert refused(StagedError(limit)) == "refused # is a kernel of a GPU, and what stands here runs on the CPU"
    with pytest.raises(Failure):
        refused(StagedError("something else"))


def test_a_failing_program_is_made_small() -> None:
    small = reduce_text(PLANTED, lambda text: "st.sin(" in text, seconds=5)
    assert "extra" not in small
    assert "for" not in small


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        (["failed TimeoutError: took longer than 200 s", "agree"], "agree"),
        (["failed x", "agree"], "failed x"),
        (["agree"], "agree"),
    ],
)
def test_a_seed_that_took_too_long_is_checked_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: list[str], word: str
) -> None:
    monkeypatch.setattr(fuzz_main, "_outcome", lambda gpu, seed, record: outcomes.pop(0))
    assert fuzz_main.settled(False, 3, Record(tmp_path, "0")) == word
