"""Memory-bound kernels for the speed part: one op on a large array, repeated in a loop on the device.

What a turn takes is the slope between a short and a long loop, so that copies to and from the device and the call itself
do not count. PyTorch is timed in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend

ROWS, COLUMNS = 8192, 8192
FEW, MANY = 10, 60


@dataclass(frozen=True)
class Kernel:
    """`body` in our words and in PyTorch's, and how many bytes it has to read and write."""

    name: str
    body: Callable[[Any], Any]
    torch: Callable[[Any, Any], Any]
    bytes: int


BOTH_WAYS = 2 * ROWS * COLUMNS * 4

KERNELS = (
    Kernel("elementwise", lambda x: st.tanh(x * 1.5 + 0.1), lambda torch, x: torch.tanh(x * 1.5 + 0.1), BOTH_WAYS),
    Kernel("softmax", lambda x: st.softmax(x, axis=1), lambda torch, x: torch.softmax(x, 1), BOTH_WAYS),
    Kernel(
        "layer norm",
        lambda x: (x - st.mean(x, axis=1, keepdims=True)) / st.sqrt(st.var(x, axis=1, keepdims=True) + 1e-5),
        lambda torch, x: torch.nn.functional.layer_norm(x, (COLUMNS,)),
        BOTH_WAYS,
    ),
    Kernel(
        "row sums",
        lambda x: x - st.sum(x * x, axis=1, keepdims=True) * 1e-6,
        lambda torch, x: x - torch.sum(x * x, 1, keepdim=True) * 1e-6,
        BOTH_WAYS,
    ),
    Kernel("transpose", lambda x: x.T * 1.0001, lambda torch, x: (x.T * 1.0001).contiguous(), BOTH_WAYS),
)


def array() -> Any:
    return np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)


def repeated(kernel: Kernel) -> Any:
    """The staged function that does a kernel's body `n` times."""

    def repeat(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                x = kernel.body(x)
            total = st.sum(x)
        return total

    return st.function(repeat)


def seconds_per_turn(kernel: Kernel) -> float:
    """Seconds that one turn of a kernel takes on the device."""
    function, x = repeated(kernel), array()
    function(x, FEW)  # staged, compiled and loaded
    return _slope(lambda turns: function(x, turns))


def torch_seconds(kernel: Kernel, compiled: bool) -> float | None:
    """The same in PyTorch, eager or compiled; None without PyTorch on this GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    body = lambda x: kernel.torch(torch, x)  # noqa: E731
    if compiled:
        body = torch.compile(body)
    start = torch.from_numpy(array()).cuda()

    def run(turns: int) -> None:
        x = start
        for _ in range(turns):
            x = body(x)
        torch.cuda.synchronize()

    run(FEW)
    return _slope(run)


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a copy from the device to itself, as the CUDA runtime does it."""
    from staged.runtime.cuda.interface import current_runtime
    from staged.runtime.guard import ffi

    runtime = current_runtime()
    size = 1 << 30
    places = [ffi.new("void **"), ffi.new("void **")]
    for place in places:
        assert runtime.function("cudaMalloc", "int (*)(void **, size_t)")(place, size) == 0
    copy = runtime.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")
    wait = runtime.function("cudaDeviceSynchronize", "int (*)(void)")

    def run(turns: int) -> None:
        for _ in range(turns):
            assert copy(places[1][0], places[0][0], size, 3, ffi.NULL) == 0  # cudaMemcpyDeviceToDevice
        assert wait() == 0

    run(FEW)
    seconds = _slope(run)
    for place in places:
        runtime.function("cudaFree", "int (*)(void *)")(place[0])
    return 2 * size / seconds


def _slope(run: Callable[[int], object]) -> float:
    """Seconds per turn: the best of five long loops less the best of five short ones."""

    def best(turns: int) -> float:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            run(turns)
            times.append(time.perf_counter() - begin)
        return min(times)

    return (best(MANY) - best(FEW)) / (MANY - FEW)
