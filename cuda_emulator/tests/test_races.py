"""Races between the threads of a kernel, found by the thread sanitizer, whatever order they run in."""

from __future__ import annotations

import pytest
from emulated_drivers import Driver, driver


@pytest.fixture(scope="module")
def races() -> Driver:
    """Runs a case of cuda_races.cu under the race detector."""
    return driver("cuda_races", races=True)


@pytest.mark.parametrize(
    "kernel", ["transpose", "tree_sum", "warp_sum", "warp_shared", "atomic_sum", "last_block", "dynamic_reverse"]
)
def test_a_correct_kernel_has_no_race(races: Driver, kernel: str) -> None:
    done = races(kernel)
    assert done.returncode == 0, done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr
    assert "error cudaSuccess\nviolations 0\n" in done.stdout


@pytest.mark.parametrize(
    ("kernel", "where"),
    [
        ("no_barrier", "no_barrier::tile"),
        ("no_last_barrier", "no_last_barrier::parts"),
        ("same_value", "same_value::factor"),
        ("halves", "halves::row"),
        ("between_blocks", "in between_blocks"),
        ("plain_sum", "in plain_sum"),
    ],
)
def test_a_race_is_found_and_placed(races: Driver, kernel: str, where: str) -> None:
    done = races(kernel)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
    assert where in done.stderr or f"{kernel} " in done.stderr
    assert "cuda_races.cu:" in done.stderr
