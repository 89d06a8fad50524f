"""Ten thousand steps on the device: nothing is allocated after the first, and the memory of the host stays as it is."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, nn, optim, with_backend

pytestmark = pytest.mark.usefixtures("device")
STEPS, CALLS = 10_000, 1_000
ROWS, FEATURES, HIDDEN, CLASSES = 6, 5, 8, 3
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(ROWS, FEATURES)).astype("f4")
LABELS = RANDOM.integers(0, CLASSES, ROWS)


class Heap(ctypes.Structure):
    """The state of glibc's heap: `struct mallinfo2`, whose fields count bytes or blocks."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def heap_bytes() -> int:
    """Bytes that the process holds from `malloc` now."""
    gc.collect()
    libc = ctypes.CDLL("libc.so.6")
    try:
        ask = libc.mallinfo2
    except AttributeError:
        pytest.skip("this C library has no mallinfo2 (glibc 2.33)")
    ask.restype = Heap
    heap = ask()
    return int(heap.uordblks + heap.hblkhd)


def resident_bytes() -> int:
    """Memory of this process that is in use, as the kernel counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Small(nn.Module):
    def __init__(self) -> None:
        self.fc1, self.fc2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.fc2(st.relu(self.fc1(x)))


def training(backend: Any) -> Any:
    """Steps of Adam on one batch, in a loop of the program; gives the last loss."""

    @st.function
    def train(x: Any, labels: Any, steps: Any) -> Any:
        st.seed(4)
        with with_backend(backend, x, labels):
            model = Small()
            opt = optim.Adam(model.parameters(), lr=1e-3)
            last = st.zeros(())
            for _ in st.range(steps):
                loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), labels), wrt=model)(x)
                opt.step(grads)
                last = loss
        return last

    return train


def test_ten_thousand_steps_allocate_nothing(device: Emulator) -> None:
    program = training(GPU).stage(X, LABELS, STEPS)
    wanted = training(CPU)(X, LABELS, STEPS)
    gc.collect()
    empty = device.counts()
    program(X, LABELS, 100)
    opened, heap, resident = device.counts(), heap_bytes(), resident_bytes()
    loss = program(X, LABELS, STEPS)
    closing = device.counts()
    seen = closing - opened
    assert seen.launches > STEPS
    assert (seen.allocations, seen.descriptors_created) == (0, 0)
    # What it has there is what was planned, and the library's workspace.
    assert (opened - empty).live_bytes == (closing - empty).live_bytes
    assert (closing - empty).live_bytes >= program.memory.arena
    assert seen.live_allocations == 0
    assert abs(heap_bytes() - heap) < 10 * STEPS  # an allocation in each step would be at least 16 bytes
    assert resident_bytes() - resident < 1 << 20
    np.testing.assert_allclose(loss, wanted, rtol=1e-3)
    assert loss < 0.1


def test_a_thousand_calls_from_python_allocate_nothing(device: Emulator) -> None:
    model = Small()
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @st.function
    def step(x: Any, labels: Any) -> Any:
        with with_backend(GPU, x, labels):
            loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), labels), wrt=model)(x)
            opt.step(grads)
        return loss

    program = step.stage(X, LABELS)
    losses = [float(program(X, LABELS)) for _ in range(20)]
    gc.collect()  # arrays of earlier tests
    opened, heap, resident = device.counts(), heap_bytes(), resident_bytes()
    for _ in range(CALLS):
        loss = program(X, LABELS)
    seen = device.counts() - opened
    assert (seen.allocations, seen.descriptors_created, seen.live_allocations, seen.live_bytes) == (0, 0, 0, 0)
    # The batch there; the loss, and whether a label was out of range, back.
    assert (seen.copies_to_device, seen.copies_to_host) == (2 * CALLS, 2 * CALLS)
    assert abs(heap_bytes() - heap) < 1 << 16
    assert resident_bytes() - resident < 1 << 20
    assert loss < 0.5 * losses[0]
