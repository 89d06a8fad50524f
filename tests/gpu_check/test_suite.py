"""Tests that die, hang or lose the GPU: the others run all the same, and each has its outcome."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import suite
from tests.gpu_check.recorder import LOST
from tests.gpu_check.setting import MARGIN, Setting
from tests.gpu_check.suite import Book, Outcome, find, outcomes_of, result_of, run_share, sample, shares

CONFTEST = """\
import os
import pytest
from tests.gpu_check import recorder

recorder.what_the_gpu_lacks = lambda: "an illegal memory access was encountered" if "LOST" in os.environ else ""


def pytest_addoption(parser):
    parser.addoption("--on-gpu", action="store_true")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: on a GPU")
"""
TESTS = """\
import os
import signal
import time

import pytest

pytestmark = pytest.mark.gpu


def test_right():
    print("not a part of the journal")


def test_wrong():
    assert 1 == 2, "they differ"


def test_dies():
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("word", ["a b", "[c]"])
def test_between(word):
    pass


def test_skipped():
    pytest.skip("not here")


@pytest.mark.xfail(reason="known")
def test_known():
    assert False


def test_loses_the_gpu():
    os.environ["LOST"] = "1"


def test_after():
    assert "LOST" not in os.environ


@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")


def test_breaks_at_its_end(broken):
    pass


def test_hangs():
    time.sleep(600)


def test_last():
    pass
"""
NAMES = [
    "test_right",
    "test_wrong",
    "test_dies",
    "test_between[a b]",
    "test_between[[c]]",
    "test_skipped",
    "test_known",
    "test_loses_the_gpu",
    "test_after",
    "test_breaks_at_its_end",
    "test_hangs",
    "test_last",
]
FILE = "test_some.py"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of its own, in the place of the repository."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / FILE).write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(suite.ROOT))
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    return tmp_path


def test_every_test_has_its_outcome_whatever_the_others_do(place: Path) -> None:
    setting = Setting(place)
    tests, complaints = find([FILE], place, setting)
    assert tests == [f"{FILE}::{name}" for name in NAMES] and not complaints
    book = Book.opened(place / "suite.jsonl")
    run_share(tests, place / "share_0", book, setting, limit=2.0)
    kinds = {name.partition("::")[2]: outcome.kind for name, outcome in book.outcomes.items()}
    assert kinds == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_dies": "died",
        "test_between[a b]": "passed",
        "test_between[[c]]": "passed",
        "test_skipped": "skipped",
        "test_known": "expected to fail",
        "test_loses_the_gpu": "lost the GPU",
        "test_after": "passed",
        "test_breaks_at_its_end": "failed",
        "test_hangs": "hung",
        "test_last": "passed",
    }
    words = {name.partition("::")[2]: outcome.words for name, outcome in book.outcomes.items()}
    assert words["test_wrong"].startswith("AssertionError: they differ")
    assert words["test_dies"] == "the process was ended by SIGSEGV"
    assert words["test_loses_the_gpu"].startswith("an illegal memory access was encountered")
    assert words["test_breaks_at_its_end"] == "RuntimeError: at the end"
    # The first process, and one after each of the three that ended early.
    assert len(list(place.glob("share_0_*.log"))) == 4

    result = result_of(tests, book.outcomes, complaints)
    assert result.state == "failed" and not result.unfinished
    assert result.summary == "6 passed, 5 failed, 1 skipped; 1 died; 1 hung; 1 lost the GPU"
    assert result.table[1][:5] == [FILE, "6", "5", "1", "0"]
    assert f"{FILE}::test_dies: died" in result.details and "skipped 1: not here" in result.details

    # Another run leaves out what passed, and begins with what did not.
    again = Book.opened(place / "again.jsonl", place / "suite.jsonl")
    assert sorted(again.outcomes) == sorted(name for name, each in book.outcomes.items() if not each.is_bad)
    assert sorted(again.failed_before) == sorted(name for name, each in book.outcomes.items() if each.is_bad)
    assert Book.opened(place / "others.jsonl").outcomes == {}


def test_outcomes_are_written_while_the_process_runs(place: Path) -> None:
    """The part may be ended at any moment."""
    book = Book.opened(place / "suite.jsonl")
    share = [f"{FILE}::test_right", f"{FILE}::test_hangs"]
    running = threading.Thread(target=run_share, args=(share, place / "share_0", book, Setting(place), 10.0))
    running.start()
    for _ in range(200):
        time.sleep(0.05)
        if (place / "suite.jsonl").read_text():
            break
    assert running.is_alive() and list(book.outcomes) == share[:1]
    running.join()
    assert [outcome.kind for outcome in book.outcomes.values()] == ["passed", "hung"]


def test_tests_run_with_the_settings_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyproject.toml has options of a plugin. The processes of the suite load no plugin of the machine."""
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    file = "tests/gpu_check/test_suite.py"
    tests, complaints = find([file], tmp_path, Setting(tmp_path))
    assert tests == [f"{file}::test_a_device_that_answers_lacks_nothing"] and not complaints
    book = Book.opened(tmp_path / "suite.jsonl")
    run_share(tests, tmp_path / "share_0", book, Setting(tmp_path))
    assert [outcome.kind for outcome in book.outcomes.values()] == ["passed"]


def test_a_file_that_cannot_be_read_is_a_complaint(place: Path) -> None:
    (place / "test_broken.py").write_text("import what_is_not_there\n")
    tests, complaints = find([FILE, "test_broken.py"], place, Setting(place))
    assert len(tests) == len(NAMES)
    assert len(complaints) == 1 and "what_is_not_there" in complaints[0]
    assert result_of(tests[:1], {tests[0]: Outcome("passed")}, complaints).state == "failed"


def test_when_the_time_is_over_what_was_not_run_is_left_for_the_next_time(place: Path) -> None:
    tests = [f"{FILE}::test_right", f"{FILE}::test_hangs", f"{FILE}::test_last"]
    book = Book.opened(place / "suite.jsonl")
    run_share(tests, place / "share_0", book, Setting(place, limit=MARGIN + 5.0))
    assert {name: outcome.kind for name, outcome in book.outcomes.items()} == {tests[0]: "passed"}
    result = result_of(tests, book.outcomes, [])
    assert (result.state, result.unfinished, result.summary) == ("passed", True, "1 passed, 0 failed, 2 not run")


def test_a_process_that_does_not_reach_its_tests_is_not_started_for_ever(place: Path) -> None:
    (place / "conftest.py").write_text("import os\nos._exit(3)\n")
    book = Book.opened(place / "suite.jsonl")
    run_share([f"{FILE}::test_right", f"{FILE}::test_last"], place / "share_0", book, Setting(place))
    assert [outcome.kind for outcome in book.outcomes.values()] == ["died"]


def test_a_journal_whose_process_was_cut_short() -> None:
    begun: list[dict[str, Any]] = [{"chosen": ["a", "b"]}, {"begins": "a"}]
    passed = {"test": "a", "outcome": "passed", "words": "", "seconds": 1.0}
    assert outcomes_of(begun, -11, "done") == {"a": Outcome("died", "the process was ended by SIGSEGV")}
    assert outcomes_of(begun, 3, "done") == {"a": Outcome("died", "the process ended with status 3")}
    assert outcomes_of(begun, -9, "over") == {}
    assert outcomes_of([*begun, passed], 0, "done") == {"a": Outcome("passed", "", 1.0)}
    lost = outcomes_of([*begun, passed, {"lost": "a", "words": "gone"}], LOST, "done")
    assert lost == {"a": Outcome("lost the GPU", "gone (every call of CUDA since)", 1.0)}


def test_what_takes_long_comes_last_and_alone() -> None:
    many = [f"tests/x/test_many.py::test_{number}" for number in range(suite.SHARE + 2)]
    slow, few = ["tests/x/test_resnet.py::a", "tests/x/test_resnet.py::b"], ["tests/x/test_few.py::test_one"]
    assert shares([*slow, *many, *few]) == [many[: suite.SHARE], [*many[suite.SHARE :], *few], slow[:1], slow[1:]]


def test_a_sample_is_the_same_on_each_machine_and_in_any_order() -> None:
    names = [f"tests/x/test_many.py::test_{number}" for number in range(1000)]
    chosen = sample(names)
    assert len(chosen) == suite.SAMPLE and chosen == [name for name in names if name in chosen]
    assert set(sample(names[::-1])) == set(chosen) and chosen[:2] != names[:2]
    assert len(set(sample([*names, "tests/x/test_new.py::test_new"])) - set(chosen)) <= 1


def test_a_book_whose_last_line_was_cut_short_is_read(tmp_path: Path) -> None:
    line = json.dumps({"test": "a", "kind": "passed", "words": "", "seconds": 1.0})
    (tmp_path / "earlier.jsonl").write_text(f"{line}\n{line[:20]}")
    assert Book.opened(tmp_path / "suite.jsonl", tmp_path / "earlier.jsonl").outcomes == {"a": Outcome("passed", "", 1.0)}


@pytest.mark.usefixtures("emulated_device")
def test_a_device_that_answers_lacks_nothing() -> None:
    from tests.gpu_check.recorder import what_the_gpu_lacks

    assert what_the_gpu_lacks() == ""
