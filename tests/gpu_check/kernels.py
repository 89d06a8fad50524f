"""Memory-bound kernels: one op on a large array that is on the device, repeated in a loop there.

What an iteration takes is the slope between a short and a long loop, so that the call itself does not count. PyTorch is timed in
the same way, and a copy on the device, whose bandwidth is what such kernels can have at best. Each kernel has a process of
its own, in which all of that is measured: what goes wrong there is one line of the table.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from tests.gpu_check.processes import run_within
from tests.gpu_check.report import Result, State
from tests.gpu_check.setting import ROOT, Setting


@dataclass(frozen=True)
class Size:
    """Elements of the array, bytes of a copy, and iterations of the two loops."""

    rows: int
    columns: int
    copied: int
    few: int
    many: int

    @property
    def bytes(self) -> int:
        """The bytes that a kernel reads and writes at least: each element once."""
        return 2 * self.rows * self.columns * 4


FULL = Size(8192, 8192, 1 << 30, 10, 110)
SMALL = Size(64, 64, 1 << 16, 1, 3)
"""For a rehearsal."""
LIMIT, SHORTEST = 120.0, 20.0
"""Seconds for one kernel, PyTorch's compiling included; it is not begun with fewer."""
OVER = "not begun: the part's time was over"
ANSWER = "figures: "


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


@cache
def array(size: Size) -> Any:
    """The array that is worked on, and never written."""
    return np.random.default_rng(1).standard_normal((size.rows, size.columns), np.float32)


def seconds_per_iteration(kernel: Kernel, size: Size) -> float:
    """Seconds that one iteration of a kernel takes on the device."""

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
    """Seconds per iteration: the best of seven long loops less the best of seven short ones."""

    def best(turns: int) -> float:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            run(turns)
            times.append(time.perf_counter() - begin)
        return min(times)

    return max(best(size.many) - best(size.few), 1e-9) / (size.many - size.few)


@dataclass(frozen=True)
class Figures:
    """Of one kernel: seconds of an iteration, ours and PyTorch's, or why there are none, and bytes per second of a copy."""

    ours: float
    copied: float
    eager: float | str
    compiled: float | str


def figures_of(kernel: Kernel, size: Size) -> Figures:
    """Measures everything about a kernel, in this process."""
    copied = copy_bandwidth(size)
    ours = statistics.median(seconds_per_iteration(kernel, size) for _ in range(3))
    return Figures(ours, copied, *(torch_seconds(kernel, compiled, size) for compiled in (False, True)))


def measured(kernel: Kernel, setting: Setting) -> Figures | str:
    """The same in a process of its own; why there is nothing."""
    limit = None if setting.rehearsed else min(LIMIT, setting.left())
    if limit is not None and limit < SHORTEST:
        return OVER
    command = [sys.executable, "-m", "tests.gpu_check.kernels", kernel.name, *(["small"] if setting.rehearsed else [])]
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(setting.folder / "cache" / "inductor")}
    try:
        done = run_within(command, limit, ROOT, {**os.environ, **kept})
    except subprocess.TimeoutExpired:
        return f"not done after {limit:.0f} s"
    lines = done.stdout.strip().splitlines() or [f"exit status {done.returncode}"]
    try:
        return Figures(**json.loads(lines[-1].removeprefix(ANSWER)))
    except (ValueError, TypeError):
        return f"exit status {done.returncode}: {lines[-1][:200]}"


def speed(setting: Setting) -> Result:
    """Memory-bound kernels against a copy on the device, and against PyTorch in the same run."""
    return result_of([measured(kernel, setting) for kernel in KERNELS], SMALL if setting.rehearsed else FULL)


def result_of(found: Sequence[Figures | str], size: Size) -> Result:
    """The table of all kernels. It fails where one of ours did not run."""
    rows = [["kernel", "staged", "share of a copy's bandwidth", "PyTorch eager", "PyTorch compiled"]]
    copied: list[float] = []
    shares: list[str] = []
    failures: list[str] = []
    for kernel, figures in zip(KERNELS, found, strict=True):
        if isinstance(figures, str):
            rows.append([kernel.name, figures, "", "", ""])
            failures += [kernel.name] if figures != OVER else []
            continue
        copied.append(figures.copied)
        share = size.bytes / figures.ours / figures.copied
        shares.append(f"{kernel.name} {share:.0%}")
        ratios = [
            seconds if isinstance(seconds, str) else f"{seconds * 1e6:.1f} us ({seconds / figures.ours:.2f} x ours)"
            for seconds in (figures.eager, figures.compiled)
        ]
        rows.append([kernel.name, f"{figures.ours * 1e6:.1f} us", f"{share:.0%}", *ratios])
    summary = f"{size.rows} x {size.columns} f32"
    if copied:
        summary += (
            f"; a copy on the device moves {statistics.median(copied) / 1e12:.2f} TB/s, read and written; of that "
        )
        summary += ", ".join(shares)
    summary += f"; look at {', '.join(failures)}" if failures else ""
    state: State = "failed" if failures or not copied else "passed"
    return Result(state, summary, table=rows, unfinished=OVER in found)


def main() -> None:
    """`python -m tests.gpu_check.kernels NAME [small]`: the figures of one kernel as the last line."""
    name, *rest = sys.argv[1:]
    (kernel,) = (each for each in KERNELS if each.name == name)
    print(f"\n{ANSWER}{json.dumps(asdict(figures_of(kernel, SMALL if rest else FULL)))}", flush=True)


if __name__ == "__main__":
    main()
