"""The emulated device finds what a GPU program may do wrong: each mistake is made once, on purpose."""

from __future__ import annotations

import re

import pytest
from cuda_emulator.device import ffi
from emulated_drivers import FAULT, Driver, driver

import cuda_emulator
from cuda_emulator import INCLUDE, DeviceCounts


@pytest.fixture(scope="module")
def run() -> Driver:
    """Runs the driver with the name of a mistake."""
    return driver("cuda_misuse")


def test_a_correct_launch_has_no_violation(run: Driver) -> None:
    done = run("nothing")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == "1 1\nerror cudaSuccess\nviolations 0 live 1\n"


def test_fresh_memory_is_nan(run: Driver) -> None:
    assert run("fresh").stdout.startswith("1\n")


def test_an_allocation_of_nothing_is_no_address(run: Driver) -> None:
    assert run("no_bytes").stdout.startswith("1\nerror cudaSuccess\nviolations 0")


@pytest.mark.parametrize("what", ["host_read", "read_after_launch"])
def test_host_code_cannot_read_device_memory(run: Driver, what: str) -> None:
    done = run(what)
    assert done.returncode == FAULT
    assert "host code touched the device address" in done.stderr
    assert "12 bytes from the start of allocation 1 (256 bytes, live)" in done.stderr


def test_a_kernel_that_writes_past_the_page_is_named_with_its_thread(run: Driver) -> None:
    done = run("kernel_past_page")
    assert done.returncode == FAULT
    assert "a kernel touched the device address" in done.stderr
    assert "in kernel fill, block (0,0,0), thread (64,0,0)" in done.stderr


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("direction", "cudaErrorInvalidMemcpyDirection", "cudaMemcpyDeviceToHost, but the target is on the device"),
        ("copy_past_end", "cudaErrorInvalidValue", "(260 bytes) is not inside a live device allocation"),
        ("double_free", "cudaErrorInvalidValue", "allocation 1 was freed before"),
        ("free_middle", "cudaErrorInvalidValue", "is not the start of an allocation"),
        ("freed_argument", "cudaErrorIllegalAddress", "argument 0 of kernel fill"),
        ("host_argument", "cudaErrorIllegalAddress", "argument 0 of kernel fill"),
        ("dead_stream", "cudaErrorInvalidResourceHandle", "is not a live stream"),
        ("much_given", "cudaErrorInvalidValue", "kernel takes_much has parameters of 32769 bytes"),
        ("kernel_into_slack", "cudaSuccess", "allocation 2 (240 bytes) was written 4 bytes past its end"),
    ],
)
def test_misuse_is_said_and_refused(run: Driver, what: str, error: str, words: str) -> None:
    done = run(what)
    assert done.returncode == 0
    assert f"error {error}\nviolations 1" in done.stdout
    assert words in done.stderr


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("block_too_large", "cudaErrorInvalidConfiguration"),
        ("no_blocks", "cudaErrorInvalidConfiguration"),
        ("out_of_memory", "cudaErrorMemoryAllocation"),
    ],
)
def test_limits_answer_as_a_gpu_does(run: Driver, what: str, error: str) -> None:
    assert f"error {error}\nviolations 0" in run(what).stdout


def test_threads_run_in_the_order_that_was_asked_for(run: Driver) -> None:
    backwards = [int(word) for word in run("reverse").stdout.split()[:32]]
    assert backwards == list(range(31, -1, -1))
    shuffled = [int(word) for word in run("shuffled").stdout.split()[:32]]
    assert sorted(shuffled) == list(range(32)) and shuffled not in (sorted(shuffled), backwards)


def test_counts_have_the_same_fields_in_c_and_python() -> None:
    header = (INCLUDE / "emulator_api.h").read_text()
    struct = header[header.index("typedef struct emulator_counts {") : header.index("} emulator_counts;")]
    assert re.findall(r"int64_t (\w+);", struct) == list(DeviceCounts.__slots__)


def test_python_sees_what_is_live() -> None:
    device = cuda_emulator.device()
    before, counts = set(device.live_objects()), device.counts()
    place = ffi.new("void **")
    assert device.function("cudaMalloc", "int (*)(void **, size_t)")(place, 100) == 0
    (made,) = set(device.live_objects()) - before
    assert re.fullmatch(r"allocation \d+: 100 bytes on device 0", made)
    assert (device.counts() - counts).live_bytes == 100
    assert device.function("cudaFree", "int (*)(void *)")(place[0]) == 0
    assert set(device.live_objects()) == before
    assert (device.counts() - counts).live_bytes == 0
