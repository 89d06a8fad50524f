"""Tests of the emulated device, run on a GPU: `pytest --on-gpu`.

Values, errors and texts are compared as ever. What only the emulated device knows (copies, allocations, what is alive) is
not there to be compared, so a test that asks for it is skipped from there on.
"""

from __future__ import annotations

from typing import Any

import pytest


class UncountedDevice:
    """What stands in for the emulated device where the programs of a test run on a GPU."""

    def configure(self, words: str = "") -> None:
        """A GPU orders its work as it likes: a test that runs a program again for it sees whether the numbers stay."""

    def set_thread_order(self, order: str, seed: int = 0) -> None:
        """The same."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"only the emulated device has `{name}`")
