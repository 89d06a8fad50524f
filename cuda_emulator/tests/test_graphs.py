"""Graphs of the emulated device: streams captured, joined, replayed; calls that a capture cannot take."""

from __future__ import annotations

import pytest
from emulated_drivers import Driver, driver

WORDS = ["", "lazy seed=1", "lazy seed=2", "lazy shuffled seed=3"]
CLEAN = ["error cudaSuccess", "violations 0"]


@pytest.fixture(scope="module")
def graphs() -> Driver:
    """Runs a case of cuda_graphs.cu."""
    return driver("cuda_graphs")


@pytest.mark.parametrize("words", WORDS)
def test_a_replay_does_what_was_captured_in_order_each_time(graphs: Driver, words: str) -> None:
    # y = (y + 1) * z; z = y
    assert graphs.lines("replay", words) == ["3 nodes", "1 1 ", "42 42 ", "3 graphs 6 launches", *CLEAN]


@pytest.mark.parametrize("words", WORDS)
def test_arguments_are_those_of_the_capture(graphs: Driver, words: str) -> None:
    assert graphs.lines("frozen_argument", words) == ["1 nodes", "4 ", *CLEAN]


@pytest.mark.parametrize("words", WORDS)
def test_a_second_stream_forks_and_joins(graphs: Driver, words: str) -> None:
    assert graphs.lines("fork_and_join", words) == ["2 nodes", "24 ", *CLEAN]  # 1 * 2 * 3 * 4


def test_a_wait_that_is_missing_inside_shows_in_replays_of_lazy_streams(graphs: Driver) -> None:
    assert graphs.lines("no_wait_inside")[1] == "10 of 10"
    assert all(graphs.lines("no_wait_inside", f"lazy seed={seed}")[1] != "10 of 10" for seed in range(3))


INVALID = "cudaErrorStreamCaptureInvalidated"


@pytest.mark.parametrize(
    ("case", "error", "what"),
    [
        ("capture_malloc", "cudaErrorStreamCaptureUnsupported", "cudaMalloc"),
        ("capture_copy", "cudaErrorStreamCaptureUnsupported", "cudaMemcpy"),
        ("capture_synchronize", "cudaErrorStreamCaptureUnsupported", "cudaStreamSynchronize"),
        ("capture_device_synchronize", "cudaErrorStreamCaptureUnsupported", "cudaDeviceSynchronize"),
        ("capture_event_query", "cudaErrorCapturedEvent", "cudaEventQuery"),
        ("capture_outside_event", "cudaErrorStreamCaptureIsolation", "cudaStreamWaitEvent"),
        ("capture_graph", "cudaErrorStreamCaptureUnsupported", "cudaStreamDestroy"),
    ],
)
def test_calls_that_a_capture_cannot_take_spoil_it(graphs: Driver, case: str, error: str, what: str) -> None:
    done = graphs(case)
    assert done.stdout.startswith(f"{INVALID}\nerror {error}\nviolations 1\n")
    assert f"{what}: not while a stream is captured" in done.stderr


def test_other_streams_go_on_during_a_capture(graphs: Driver) -> None:
    assert graphs.lines("other_stream_goes_on")[:3] == ["cudaSuccess", *CLEAN]


@pytest.mark.parametrize(
    ("case", "error", "said"),
    [
        (
            "unjoined",
            "cudaErrorStreamCaptureUnjoined",
            "work of another stream was captured that this one does not wait for",
        ),
        ("null_stream_beside_blocking", "cudaErrorStreamCaptureImplicit", "add: not while a stream is captured"),
        ("end_without_begin", "cudaErrorStreamCaptureUnmatched", "no capture began in this stream"),
        ("null_stream", "cudaErrorStreamCaptureUnsupported", "the null stream cannot be captured"),
        ("destroyed_twice", "cudaErrorInvalidValue", "is not a live executable graph: it was destroyed"),
        ("freed_before_replay", "cudaErrorIllegalAddress", "argument 0 of kernel add"),
    ],
)
def test_misuse_is_said_and_refused(graphs: Driver, case: str, error: str, said: str) -> None:
    done = graphs(case)
    assert done.returncode == 0, done.stderr
    assert f"error {error}\nviolations 1\n" in done.stdout
    assert said in done.stderr


def test_a_graph_that_was_not_destroyed_is_listed(graphs: Driver) -> None:
    assert "graph 1" in graphs("leak").stdout.splitlines()
