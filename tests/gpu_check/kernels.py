"""Memory-bound kernels: one op on a large array that is on the device, repeated in a loop there.

What a turn takes is the slope between a short and a long loop, so that the call itself does not count. PyTorch is timed in
the same way, and a copy on the device, whose bandwidth is what such kernels can have at best.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from tests.gpu_check.report import Result
from tests.gpu_check.setting import Setting


@dataclass(frozen=True)
class Size:
    """Elements of the array, bytes of a copy, and turns of the two loops."""

    rows: int
    columns: int
    copied: int
    few: int
    many: int

    @property
    def bytes(self) -> int:
        """What a kernel reads and writes at least: each element once."""
        return 2 * self.rows * self.columns * 4


FULL = Size(8192, 8192, 1 << 30, 10, 110)
SMALL = Size(64, 64, 1 << 16, 1, 3)
"""For a rehearsal."""


@dataclass(frozen=True)
class Kernel:
    """`body` in our words and in PyTorch's; it reads and writes an array of the same size."""

    name: str
    body: Callable[[Any], Any]
    torch: Callable[[Any, Any], Any]


KERNELS = (
    Kernel("elementwise", lambda x: st.tanh(x * 1.5 + 0.1), lambda torch, x: torch.tanh(x * 1.5 + 0.1)),
    Kernel("softmax", lambda x: st.softmax(x, axis=1), lambda torch, x: torch.softmax(x, 1)),
    Kernel(
        "layer norm",
        lambda x: (x - st.mean(x, axis=1, keepdims=True)) / st.sqrt(st.var(x, axis=1, keepdims=True) + 1e-5),
        lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:]),
    ),
    Kernel(
        "row sums",
        lambda x: x - st.sum(x * x, axis=1, keepdims=True) * 1e-6,
        lambda torch, x: x - torch.sum(x * x, 1, keepdim=True) * 1e-6,
    ),
    Kernel("transpose", lambda x: x.T * 1.0001, lambda torch, x: (x.T * 1.0001).contiguous()),
)


def array(size: Size) -> Any:
    return np.random.default_rng(1).normal(size=(size.rows, size.columns)).astype(np.float32)


def seconds_per_turn(kernel: Kernel, size: Size) -> float:
    """Seconds that one turn of a kernel takes on the device."""

    @st.function
    def repeat(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                x = kernel.body(x)
            total = st.sum(x)
        return total

    x = st.to(array(size), GPU)
    program = repeat.stage(x, 1)
    program(x, size.few)  # compiled and loaded
    return _slope(lambda turns: program(x, turns), size)


def torch_seconds(kernel: Kernel, compiled: bool, size: Size) -> float | str:
    """The same in PyTorch, eager or compiled; why there is none, without PyTorch on this GPU or where it fails."""
    try:
        import torch

        if not torch.cuda.is_available():
            return "PyTorch has no GPU here"
        body = lambda x: kernel.torch(torch, x)  # noqa: E731
        if compiled:
            torch._dynamo.reset()
            body = torch.compile(body)
        start = torch.from_numpy(array(size)).cuda()

        def run(turns: int) -> None:
            x = start
            for _ in range(turns):
                x = body(x)
            torch.cuda.synchronize()

        with torch.no_grad():
            run(size.few)
            return _slope(run, size)
    except Exception as failure:  # a peer that fails is a line of the table, not the end of it
        return f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0]}"[:200]


def copy_bandwidth(size: Size) -> float:
    """Bytes per second, read and written, of a copy from the device to itself, as the CUDA runtime does it."""
    from staged.runtime.cuda.interface import current_runtime
    from staged.runtime.guard import ffi

    runtime = current_runtime()
    places = [ffi.new("void **"), ffi.new("void **")]
    for place in places:
        assert runtime.function("cudaMalloc", "int (*)(void **, size_t)")(place, size.copied) == 0
    copy = runtime.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")
    wait = runtime.function("cudaDeviceSynchronize", "int (*)(void)")

    def run(turns: int) -> None:
        for _ in range(turns):
            assert copy(places[1][0], places[0][0], size.copied, 3, ffi.NULL) == 0  # cudaMemcpyDeviceToDevice
        assert wait() == 0

    run(size.few)
    seconds = _slope(run, size)
    for place in places:
        assert runtime.function("cudaFree", "int (*)(void *)")(place[0]) == 0
    return 2 * size.copied / seconds


def _slope(run: Callable[[int], object], size: Size) -> float:
    """Seconds per turn: the best of seven long loops less the best of seven short ones."""

    def best(turns: int) -> float:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            run(turns)
            times.append(time.perf_counter() - begin)
        return min(times)

    return max(best(size.many) - best(size.few), 1e-9) / (size.many - size.few)


def speed(setting: Setting) -> Result:
    """Memory-bound kernels against a copy on the device, and against PyTorch in the same run."""
    size = SMALL if setting.rehearsed else FULL
    copy = copy_bandwidth(size)
    rows = [["kernel", "staged", "share of a copy's bandwidth", "PyTorch eager", "PyTorch compiled"]]
    for kernel in KERNELS:
        ours = statistics.median(seconds_per_turn(kernel, size) for _ in range(3))
        theirs = [torch_seconds(kernel, compiled, size) for compiled in (False, True)]
        ratios = [
            seconds if isinstance(seconds, str) else f"{seconds * 1e6:.1f} us ({seconds / ours:.2f} x ours)"
            for seconds in theirs
        ]
        rows.append([kernel.name, f"{ours * 1e6:.1f} us", f"{size.bytes / ours / copy:.0%}", *ratios])
    summary = f"{size.rows} x {size.columns} f32; a copy on the device moves {copy / 1e12:.2f} TB/s, read and written"
    return Result("passed", summary, table=rows)
