"""The collector of garbage runs rarely while a program is staged, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

import staged as st
from staged import pipeline
from staged.base.garbage import rare_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_collections_are_rare_while_a_program_is_built(
    monkeypatch: pytest.MonkeyPatch, thresholds: tuple[int, int, int]
) -> None:
    seen = []
    monkeypatch.setattr(
        pipeline, "PASSES", (("look", lambda function: seen.append(gc.get_threshold()) or function), *pipeline.PASSES)
    )
    assert st.function(lambda x: x + 1.0).stage(1.0).source
    assert seen[0][0] > 100 * thresholds[0] and seen[0][1:] == thresholds[1:]
    assert gc.get_threshold() == thresholds


def test_the_last_thread_resets_the_threshold(thresholds: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stays() -> None:
        with rare_collections():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=stays)
    other.start()
    inside.wait(60)
    with pytest.raises(ValueError, match="any"), rare_collections():
        raise ValueError("any")
    assert gc.get_threshold() != thresholds
    leave.set()
    other.join()
    assert gc.get_threshold() == thresholds


def test_a_collector_that_is_off_stays_off(thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(0, *thresholds[1:])
    with rare_collections():
        assert gc.get_threshold() == (0, *thresholds[1:])
    assert gc.get_threshold() == (0, *thresholds[1:])
