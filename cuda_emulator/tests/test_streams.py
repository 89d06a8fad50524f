"""Streams of the emulated device, eager and lazy; events, host functions, pinned memory, several devices."""

from __future__ import annotations

import pytest
from emulated_drivers import FAULT, Driver, driver

from cuda_emulator import device

SEEDS = [f"lazy seed={seed}" for seed in range(4)]


@pytest.fixture(scope="module")
def streams() -> Driver:
    """Runs a case of cuda_streams.cu."""
    return driver("cuda_streams")


RIGHT = ["with_event", "waited_source", "null_stream_waits"]
WRONG = ["without_event", "early_source", "null_stream_does_not_wait"]


@pytest.mark.parametrize("words", ["", *SEEDS])
@pytest.mark.parametrize("case", RIGHT)
def test_what_is_waited_for_is_always_right(streams: Driver, case: str, words: str) -> None:
    assert streams.lines(case, words)[0] == "20 of 20"


@pytest.mark.parametrize("case", WRONG)
def test_a_missing_wait_is_right_where_streams_are_eager_and_wrong_where_they_are_lazy(
    streams: Driver, case: str
) -> None:
    assert streams.lines(case)[0] == "20 of 20"
    right = [int(streams.lines(case, words)[0].split()[0]) for words in SEEDS]
    assert all(count < 20 for count in right)


def test_a_result_that_is_read_too_early_is_the_old_one(streams: Driver) -> None:
    assert streams.lines("waited_result", SEEDS[0])[0] == "2"
    assert streams.lines("early_result")[0] == "2"
    assert streams.lines("early_result", SEEDS[0])[0] == "-1"


def test_host_functions_run_in_the_streams_turn(streams: Driver) -> None:
    assert streams.lines("host_functions", SEEDS[0])[0] == "0 3 123"


def test_a_host_function_may_not_touch_the_device(streams: Driver) -> None:
    done = streams("host_function_touches")
    assert done.returncode == FAULT
    assert "host code touched the device address" in done.stderr


def test_events_say_when_they_are_reached(streams: Driver) -> None:
    assert streams.lines("events", SEEDS[0])[0] == "cudaErrorNotReady 1 cudaSuccess 1 cudaSuccess"
    assert streams.lines("events")[0] == "cudaSuccess 0 cudaSuccess 1 cudaSuccess"


@pytest.mark.parametrize("words", ["", *SEEDS])
def test_a_destroyed_stream_ends_its_work(streams: Driver, words: str) -> None:
    assert streams.lines("destroyed_with_work", words)[0] == "1 "


def test_kernels_may_use_pinned_memory_which_begins_as_nan(streams: Driver) -> None:
    assert streams.lines("pinned_argument")[0] == "3 1"


@pytest.mark.parametrize("words", ["", *SEEDS])
def test_memory_that_a_stream_gives_and_takes(streams: Driver, words: str) -> None:
    assert streams.lines("ordered_free", words) == ["error cudaSuccess", "violations 0"]


@pytest.mark.parametrize(
    ("case", "words", "error", "said"),
    [
        ("host_function_calls", "", "cudaSuccess", "cudaDeviceSynchronize: called by a function of cudaLaunchHostFunc"),
        ("dead_event", "", "cudaErrorInvalidResourceHandle", "is not a live event: it was destroyed"),
        ("event_without_time", "", "cudaErrorInvalidResourceHandle", "was made without a time"),
        ("pinned_twice", "", "cudaErrorInvalidValue", "is not live memory of cudaMallocHost"),
        ("use_after_ordered_free", "lazy", "cudaErrorIllegalAddress", "argument 0 of kernel add"),
        ("freed_before_it_ran", "lazy", "cudaErrorIllegalAddress", "argument 0 of kernel read_row"),
        (
            "memory_of_another_device",
            "devices=2",
            "cudaErrorIllegalAddress",
            "is on device 0, which device 1 cannot reach",
        ),
        (
            "stream_of_another_device",
            "devices=2",
            "cudaErrorInvalidResourceHandle",
            "in a stream of device 0 while device 1",
        ),
        (
            "memset_of_another_device",
            "devices=2",
            "cudaErrorInvalidResourceHandle",
            "in a stream of device 0 while device 1",
        ),
        (
            "event_of_another_device",
            "devices=2",
            "cudaErrorInvalidResourceHandle",
            "of device 0, the stream of device 1",
        ),
        ("peer_copy", "devices=2", "cudaErrorInvalidValue", "is on device 1, not on device 0"),
    ],
)
def test_misuse_is_said_and_refused(streams: Driver, case: str, words: str, error: str, said: str) -> None:
    done = streams(case, words)
    assert done.returncode == 0, done.stderr
    assert f"error {error}\nviolations 1\n" in done.stdout
    assert said in done.stderr


def test_devices_are_as_many_as_were_asked_for(streams: Driver) -> None:
    assert streams.lines("devices")[0] == "1 0 cudaErrorInvalidDevice"
    assert streams.lines("devices", "devices=3")[0] == "3 2 cudaErrorInvalidDevice"


@pytest.mark.parametrize("words", ["devices=2", "devices=2 lazy"])
def test_copies_between_devices(streams: Driver, words: str) -> None:
    assert streams("peer_copy", words).stdout.splitlines()[:2] == ["4 ", "1"]
    assert streams.lines("peer_access", words)[0] == "4 "


def test_the_devices_memory_has_a_limit(streams: Driver) -> None:
    assert streams.lines("memory_limit", "memory=1M")[:2] == ["424 1024", "error cudaErrorMemoryAllocation"]


def test_what_was_not_given_back_is_listed(streams: Driver) -> None:
    assert sorted(streams.lines("leaks")[2:]) == [
        "allocation 1: 100 bytes on device 0",
        "event 1 on device 0",
        "pinned host memory 1: 256 bytes",
        "stream 1 on device 0",
    ]


def test_words_that_mean_nothing_leave_no_device(streams: Driver) -> None:
    done = streams("nothing", "lazy sedd=3")
    assert "error cudaErrorNoDevice" in done.stdout
    assert "STAGED_CUDA_EMULATOR: `sedd=3` means nothing" in done.stderr


def test_python_refuses_words_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="`lasy` means nothing"):
        device().configure("lasy")
