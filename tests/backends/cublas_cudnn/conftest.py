"""The emulated device, for tests of programs with kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from staged.runtime import cuda


@pytest.fixture
def emulated_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[cuda.Emulator]:
    """The emulated device; a test that misuses it fails."""
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    emulator = cuda.emulator()
    before = emulator.counts()
    yield emulator
    emulator.set_thread_order("forward")
    assert (emulator.counts() - before).violations == 0, emulator.last_violation()
