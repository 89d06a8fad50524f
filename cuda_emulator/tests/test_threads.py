"""Threads that meet on the emulated device: barriers, warps, shared memory, atomics; and what goes wrong with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from emulated_drivers import FAULT, Driver, driver

from cuda_emulator import FOLDER, find_compiler

ORDERS = ["forward", "reverse", "shuffled seed=1", "shuffled seed=2"]


@pytest.fixture(scope="module")
def threads() -> Driver:
    """Runs a case of cuda_threads.cu."""
    return driver("cuda_threads")


def numbers(line: str) -> list[float]:
    return [float(word) for word in line.split()]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", ["block_sum", "warp_sum"])
def test_sums_of_blocks(threads: Driver, kernel: str, order: str) -> None:
    expected = [float(sum(range(128 * block, 128 * block + 128))) for block in range(3)]
    assert numbers(threads.lines(kernel, order)[0]) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_what_lanes_tell_one_another(threads: Driver, order: str) -> None:
    third, seventh = (numbers(line) for line in threads.lines("lanes", order)[:2])
    ballot = int("0001" * 8, 2)
    assert third == [5, 2, 5, 3, ballot, 3, 2, 3]  # up: nobody three below lane 2
    assert seventh == [5, 3, 6, 7, ballot, 3, 2, 3]  # down within eight lanes: nobody three above lane 6


@pytest.mark.parametrize("order", ORDERS)
def test_halves_of_a_warp_meet_apart(threads: Driver, order: str) -> None:
    expected = [lane ^ 1 if lane < 16 else lane ^ 2 for lane in range(32)]
    assert numbers(threads.lines("half_warps", order)[0]) == expected


def test_dynamic_shared_memory(threads: Driver) -> None:
    assert numbers(threads.lines("dynamic", "shuffled")[0]) == list(range(63, -1, -1))


@pytest.mark.parametrize("order", ORDERS)
def test_the_block_that_comes_last_knows_it(threads: Driver, order: str) -> None:
    assert [numbers(line) for line in threads.lines("last_block", order)[:2]] == [[55], [55]]


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(threads: Driver, order: str) -> None:
    whole, total, first = (numbers(line) for line in threads.lines("atomics", order)[:3])
    assert whole == [sum(range(256)), 255, -255, 255]
    assert total == [128] and first == [7]


def test_a_missing_barrier_shows_as_nan(threads: Driver) -> None:
    for order in ORDERS:
        assert "nan" in threads.lines("no_barrier", order)[0]


def test_a_write_before_others_have_read_shows_as_a_wrong_number(threads: Driver) -> None:
    expected = [-((i + 1) % 64) for i in range(64)]
    assert all(numbers(threads.lines("write_after_read", order)[0]) != expected for order in ORDERS)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("some_return", r"a barrier that not all threads reach: thread ("),
        ("two_barriers", "a barrier that not all threads reach: thread (0,0,0) waits at another, line "),
        ("absent_lane", "a shuffle reads lane 20, which takes no part: mask ffffffff, of which 000fffff came"),
        ("mask_without_caller", "a warp operation whose mask 0000ffff leaves out the lane that calls it"),
        ("warp_deadlock", "a warp operation waits for ever: its mask is ffffffff, of which 0000ffff came"),
        ("trapped", "thread (3,0,0), line "),
    ],
)
def test_threads_that_cannot_go_on_stop_the_kernel(threads: Driver, case: str, words: str) -> None:
    done = threads(case)
    assert done.returncode == 0, done.stderr
    assert "error cudaErrorLaunchFailure\nviolations 1\n" in done.stdout
    assert f"kernel {case}, block (0,0,0), thread (" in done.stderr
    assert words in done.stderr


def test_after_a_kernel_was_stopped_the_device_is_lost_to_the_process(threads: Driver) -> None:
    done = threads("after_a_deadlock")
    assert "cudaErrorLaunchFailure " * 5 in done.stdout
    assert "8128 24512 40896" in done.stdout  # as it is set up anew
    assert "error cudaSuccess\nviolations 1\n" in done.stdout


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("shared_past_end", "indexed outside of an array"),
        ("misaligned", "touched a misaligned vector"),
        ("much_local_memory", "needs more local memory than a thread's stack has here"),
    ],
)
def test_an_access_outside_ends_the_process_and_names_the_thread(threads: Driver, case: str, words: str) -> None:
    done = threads(case)
    assert done.returncode == FAULT
    assert words in done.stderr
    thread = 31 if case == "shared_past_end" else 0
    assert f"in kernel {case}, block (0,0,0), thread ({thread},0,0)" in done.stderr


def test_dynamic_shared_memory_has_the_limit_of_a_gpu(threads: Driver) -> None:
    assert "error cudaErrorInvalidConfiguration" in threads("much_shared_memory").stdout
    assert "error cudaSuccess" in threads("much_shared_memory_allowed").stdout


def test_shared_arrays_of_one_kernel_have_the_limit_of_a_gpu(threads: Driver) -> None:
    """The other kernels of the program, which have shared arrays too, do not count."""
    done = threads("much_static_shared")
    assert "error cudaErrorInvalidConfiguration\nviolations 1\n" in done.stdout
    assert "kernel much_static_shared has 52000 bytes in shared arrays" in done.stderr


@pytest.mark.parametrize("flags", [[], ["-DSTAGED_EMULATOR_UCONTEXT"]], ids=["own switch", "ucontext"])
def test_fibers_keep_what_is_theirs(tmp_path: Path, flags: list[str]) -> None:
    source = Path(__file__).parent / "cuda_fibers.cpp"
    command = [*find_compiler()[0], "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{FOLDER}", *flags]
    subprocess.run([*command, str(source), "-o", str(tmp_path / "fibers")], check=True)
    done = subprocess.run([str(tmp_path / "fibers")], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == "0: 499500\n1: 499500\n2: 499501\ndone\n"
