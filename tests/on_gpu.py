"""Tests of the emulated device, run on a GPU: `pytest --on-gpu`.

Values, errors and texts are compared as ever. What only the emulated device knows (copies, allocations, what is alive) is
not there to be compared: it is whatever a test wants it to be, so that all else of the test has its say.
"""

from __future__ import annotations

import re
from typing import Any

import pytest


class Unknown:
    """A number, or several, that nobody counted: it agrees with everything."""

    def __getattr__(self, name: str) -> Any:
        if name == "__slots__":
            pytest.skip("only the emulated device can list what it counts")
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def _itself(self, *_: Any) -> Any:
        return self

    def _agrees(self, *_: Any) -> bool:
        return True

    __call__ = __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _itself
    __floordiv__ = __rshift__ = __lshift__ = _itself
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = _agrees
    __hash__ = object.__hash__

    def __iter__(self) -> Any:
        pytest.skip("only the emulated device can list what it has")


class UncountedDevice:
    """The stand-in for the emulated device where the programs of a test run on a GPU."""

    def configure(self, words: str = "") -> None:
        """A GPU orders its work as it likes: a test that runs a program again for it sees whether the numbers stay.

        Skips a test that needs more devices than the machine has, a small device, or libraries without algorithms.
        """
        if "no-" in words:
            pytest.skip("only the emulated device can be without algorithms and engines")
        if "memory=" in words:
            pytest.skip("only the emulated device can be made small")
        if devices := re.search(r"devices=(\d+)", words):
            from staged.runtime.cuda.devices import gpu_count

            count, _ = gpu_count()
            if int(devices[1]) > count:
                pytest.skip(f"needs {devices[1]} GPUs, and there {'is' if count == 1 else 'are'} {count}")

    def set_thread_order(self, order: str, seed: int = 0) -> None:
        """The same."""

    def counts(self) -> Any:
        """Nobody counts."""
        return Unknown()

    live_objects = objects = counts

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"only the emulated device has `{name}`")
