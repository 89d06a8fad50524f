"""The facts that the runtime finds out about this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from staged.errors import StagedError
from staged.runtime import machine
from staged.runtime.machine import cpu_signature, default_threads, native_machine


def test_the_native_machine_is_plausible():
    found = native_machine()
    assert found.march == "native"
    assert found.vector_bytes in (16, 32, 64)
    assert found.vector_registers in (16, 32)
    assert 8 << 10 <= found.l1 < found.l2 <= 64 << 20
    assert 1 <= found.cores <= (os.cpu_count() or 1) or "STAGED_NUM_THREADS" in os.environ


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse2", (16, 16, False)),
        ("avx avx2 fma", (32, 16, True)),
        ("avx avx2", (16, 16, False)),
        ("avx2 fma avx512f avx512vl avx512dq avx512bw", (64, 32, True)),
        ("avx2 fma avx512f", (32, 16, True)),  # a first-generation one, whose short vectors lack these registers
    ],
)
def test_vectors_follow_the_features(monkeypatch, flags, expected):
    monkeypatch.setattr(machine, "_cpuinfo", lambda: f"processor : 0\nflags\t\t: {flags}\n\nprocessor : 1\n")
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    native_machine.cache_clear()
    try:
        found = native_machine()
    finally:
        native_machine.cache_clear()
    assert (found.vector_bytes, found.vector_registers, found.fma) == expected


def test_the_number_of_threads_can_be_set(monkeypatch):
    monkeypatch.setenv("STAGED_NUM_THREADS", "7")
    assert default_threads() == 7
    for wrong in ("0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv("STAGED_NUM_THREADS", wrong)
        with pytest.raises(StagedError, match="STAGED_NUM_THREADS is"):
            default_threads()
    monkeypatch.delenv("STAGED_NUM_THREADS")
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


def test_threads_respect_the_affinity(monkeypatch):
    monkeypatch.delenv("STAGED_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert default_threads() == 1


def test_threads_respect_the_quota_of_the_control_group(monkeypatch):
    monkeypatch.delenv("STAGED_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(1000, 1016)))
    monkeypatch.setattr(Path, "read_text", lambda path, **_: "250000 100000" if path.name == "cpu.max" else str(path))
    assert default_threads() == 3


def test_the_signature_depends_on_the_cpu(monkeypatch):
    before = cpu_signature()
    monkeypatch.setattr(machine, "_cpuinfo", lambda: "model name : another\nflags : fpu\n")
    cpu_signature.cache_clear()
    try:
        assert cpu_signature() != before
    finally:
        cpu_signature.cache_clear()
