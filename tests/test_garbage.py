"""The collector of garbage runs rarely while a program is staged, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

import staged as st
from staged import pipeline
from staged.base import garbage
from staged.base.garbage import RareCollections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_kept", 0)
    gc.unfreeze()  # the plugin of the tests freezes its objects
    yield
    gc.freeze()


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


def test_collections_are_rare_while_a_function_is_traced(thresholds: tuple[int, int, int]) -> None:
    seen = []

    def look(x: st.Array) -> st.Array:
        seen.append(gc.get_threshold()[0])
        return x

    st.function(look).stage(1.0)
    assert seen[0] > 100 * thresholds[0] and gc.get_threshold() == thresholds


def collections_after(new: int) -> list[int]:
    """The generations that are collected when staging with so many new objects ends."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.extend([info["generation"]] if phase == "start" else [])

    with RareCollections():
        kept = [[] for _ in range(new)]
        gc.callbacks.append(note)
    kept += [[] for _ in range(100)]
    gc.callbacks.remove(note)
    return seen


@pytest.mark.usefixtures("nothing_kept")
def test_new_objects_are_not_traversed_when_staging_ends() -> None:
    assert collections_after(10_000) == []


@pytest.mark.usefixtures("nothing_kept")
def test_garbage_of_many_programs_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_limit", 15_000)
    assert [collections_after(10_000) for _ in range(3)] == [[], [2], []]
    assert garbage._limit >= garbage._OBJECTS


@pytest.mark.usefixtures("nothing_kept")
def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    with RareCollections():
        kept = [[] for _ in range(1000)]
    assert kept and gc.get_freeze_count() > 0


def test_the_last_thread_resets_the_threshold(thresholds: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stays() -> None:
        with RareCollections():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=stays)
    other.start()
    inside.wait(60)
    with pytest.raises(ValueError, match="any"), RareCollections():
        raise ValueError("any")
    assert gc.get_threshold() != thresholds
    leave.set()
    other.join()
    assert gc.get_threshold() == thresholds


def test_a_collector_that_is_off_stays_off(thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(0, *thresholds[1:])
    with RareCollections():
        assert gc.get_threshold() == (0, *thresholds[1:])
    assert gc.get_threshold() == (0, *thresholds[1:])
