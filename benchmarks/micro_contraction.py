"""Times the generated matrix product and convolution kernels alone, on one thread, beside NumPy's BLAS.

    python -m benchmarks.micro_contraction [matmul] [conv] [nests] [portable | x86-64-v3 | x86-64-v4]

Each kernel runs in a C loop; the best and the median of several rounds are printed. NumPy runs on one thread too. `nests` compares the
template of a product with its loop nest under the schedule that is guessed to be the best, in turns, and their bits.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctypes
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from staged.backends.cpu.contraction.conv2d import emit_conv2d
from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, MatmulSpec
from staged.backends.cpu.nest.kernel import kernel_of
from staged.code.dialect import C
from staged.code.support.library import render
from staged.code.support.vectors import width_snippet
from staged.ir.declaration import prims
from staged.ir.machine import MACHINES, X86_64_V4, Machine
from staged.ir.nodes import Op, Value
from staged.ir.products import product_nest
from staged.ir.types import DType, TensorType, f32, row_major
from staged.kernels.candidates import candidates
from staged.kernels.products import LONGEST_SUM

# tuned for this processor, as programs called from Python are
FLAGS = "-std=c11 -O2 -mtune=native -ffp-contract=off -fno-math-errno -fno-trapping-math -shared -fPIC".split()


class Timed:
    """A kernel compiled with a loop around it."""

    def __init__(self, text: ContractionKernel, dtype: DType, machine: Machine) -> None:
        scalar = dtype.c_name
        lines, support = render({*text.snippets, width_snippet(machine.vector_bytes)})
        source = "\n".join(
            [
                "#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>",
                *lines,
                support,
                *(snippet.text for snippet in text.support),
                *(table.text for table in text.tables),
                text.text,
                f"void entry(const {scalar} *a, const {scalar} *b, {scalar} *c, {scalar} *scratch, long times) {{",
                "    (void)scratch;",
                "    for (long i = 0; i < times; ++i) {",
                f"        {text.call({'begin': '0', 'end': str(text.work_items), 'scratch': '(void *)scratch'})};",
                "    }\n}",
            ]
        )
        folder = Path(tempfile.mkdtemp())
        file = folder / "kernel.c"
        file.write_text(source)
        start = time.perf_counter()
        march = [f"-march={machine.march}"] if machine.march else []
        subprocess.run(["gcc", *FLAGS, *march, str(file), "-o", str(folder / "kernel.so")], check=True)
        self.compile_seconds = time.perf_counter() - start
        self.entry = ctypes.CDLL(str(folder / "kernel.so")).entry
        self.workspace = aligned(text.scratch_bytes)

    def run(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, times: int = 1) -> None:
        arrays = (a, b, c, self.workspace)
        self.entry(*(ctypes.c_void_p(x.ctypes.data) for x in arrays), ctypes.c_long(times))


def aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 128, np.uint8)
    shift = -memory.ctypes.data % 64
    return memory[shift : shift + size + 64]


def measure(run: object, multiply_adds: int) -> tuple[float, float]:
    """(best, median) seconds of one call; `run(times)` repeats it."""
    assert callable(run)
    times = max(1, int(2e8 / max(1, 2 * multiply_adds)))
    run(times)
    samples = []
    for _ in range(9):
        start = time.perf_counter()
        run(times)
        samples.append((time.perf_counter() - start) / times)
    return min(samples), median(samples)


def random_aligned(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType = f32) -> np.ndarray:
    size = int(np.prod(shape)) * dtype.size
    array = aligned(size)[:size].view(dtype.numpy).reshape(shape)
    array[...] = rng.standard_normal(shape)
    return array


MATMULS = [
    (64, 64, 64), (256, 256, 256), (1024, 1024, 1024), (64, 784, 256), (64, 256, 128), (784, 64, 256), (64, 128, 10), (128, 64, 10),
    (64, 10, 128), (100, 320, 50), (320, 100, 50), (20, 50, 200), (100, 50, 320), (512, 512, 512), (1, 256, 256),
    (1, 4096, 4096), (4096, 4096, 1), (4, 1024, 1024), (512, 8192, 256),
]  # fmt: skip


def matmuls(shapes: list[tuple[int, int, int]], machine: Machine) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in shapes:
        for transposes in ("NN", "TN", "NT", "TT"):
            a_shape = (m, k) if transposes[0] == "N" else (k, m)
            b_shape = (k, n) if transposes[1] == "N" else (n, k)
            a, b, c = (random_aligned(rng, shape) for shape in (a_shape, b_shape, (m, n)))
            a_view, b_view = a if transposes[0] == "N" else a.T, b if transposes[1] == "N" else b.T
            strides = [
                row_major(*s) if flag == "N" else row_major(*s)[::-1]
                for s, flag in zip((a_shape, b_shape), transposes, strict=True)
            ]
            spec = MatmulSpec("product", m, n, k, f32, (), strides[0], strides[1], row_major(m, n))
            timed = Timed(emit_matmul(spec, machine), f32, machine)

            def ours(times: int, timed: Timed = timed, a: np.ndarray = a, b: np.ndarray = b, c: np.ndarray = c) -> None:
                timed.run(a, b, c, times)

            def theirs(times: int, a: np.ndarray = a_view, b: np.ndarray = b_view, c: np.ndarray = c) -> None:
                for _ in range(times):
                    np.matmul(a, b, out=c)

            best, middle = measure(ours, m * n * k)
            np.testing.assert_allclose(c, a_view @ b_view, rtol=1e-3, atol=1e-3)
            blas, _ = measure(theirs, m * n * k)
            flops = 2e-9 * m * n * k
            print(
                f"({m}, {k}) @ ({k}, {n}) {transposes}  {best * 1e6:9.1f} us (median {middle * 1e6:9.1f})  {flops / best:6.1f} GFLOP/s"
                f"   NumPy {blas * 1e6:9.1f} us {flops / blas:6.1f}   ratio {best / blas:5.2f}   gcc {timed.compile_seconds:.2f} s",
                flush=True,
            )


def nests(shapes: list[tuple[int, int, int]], machine: Machine) -> None:
    """Products as nests beside their templates, in processor time: others may use the machine."""
    rng = np.random.default_rng(0)
    for m, k, n in (shape for shape in shapes if 1 < shape[0] and shape[1] <= LONGEST_SUM and 1 < shape[2]):
        for transposes in TRANSPOSES:
            (a_shape, a_strides), (b_shape, b_strides) = (
                (shape, row_major(*shape)) if flag == "N" else (shape[::-1], row_major(*shape[::-1])[::-1])
                for flag, shape in zip(transposes, ((m, k), (k, n)), strict=True)
            )
            a, b, c, other = (random_aligned(rng, shape) for shape in (a_shape, b_shape, (m, n), (m, n)))
            spec = MatmulSpec("product", m, n, k, f32, (), a_strides, b_strides, row_major(m, n))
            operands = [Value(TensorType(f32, shape)) for shape in (a_shape, b_shape)]
            attrs = {f"transpose_{side}": flag == "T" for side, flag in zip("ab", transposes, strict=True)}
            op = Op(prims.MATMUL, operands, [TensorType(f32, (m, n))], attrs=attrs)
            nest, way = next(candidates(product_nest(op, "product"), machine))
            text = kernel_of(nest, way, "product", [], machine, lambda where: 0, C)
            kernel = ContractionKernel(
                text.name, text.text, text.parameters, text.items, "", text.scratch_bytes, text.snippets - {"memcpy"},
                text.support,
            )
            template, ours = Timed(emit_matmul(spec, machine), f32, machine), Timed(kernel, f32, machine)
            times, best = max(1, int(1e8 / (2 * m * n * k))), [math.inf, math.inf]
            for _ in range(15):
                for which, (timed, result) in enumerate(((template, c), (ours, other))):
                    start = time.thread_time()
                    timed.run(a, b, result, times)
                    best[which] = min(best[which], (time.thread_time() - start) / times)
            bits = "same bits" if c.tobytes() == other.tobytes() else "OTHER BITS"
            flops = [2e-9 * m * n * k / seconds for seconds in best]
            print(
                f"({m}, {k}) @ ({k}, {n}) {transposes}  template {flops[0]:6.1f}  nest {flops[1]:6.1f} GFLOP/s   "
                f"ratio {best[1] / best[0]:5.3f}   {bits}",
                flush=True,
            )


TRANSPOSES = ("NN", "TN", "NT")
ALL = ("forward", "backward_input", "backward_weight")
CONVOLUTIONS = [
    ("first of cnn_mnist", Conv2dSpec("conv", 100, 1, 28, 28, 10, 5, 5), ("forward", "backward_weight")),
    ("second of cnn_mnist", Conv2dSpec("conv", 100, 10, 12, 12, 20, 5, 5), ALL),
    ("64 channels 56 x 56", Conv2dSpec("conv", 16, 64, 56, 56, 64, 3, 3, padding=(1, 1)), ALL),
    ("1 sample", Conv2dSpec("conv", 1, 64, 56, 56, 64, 3, 3, padding=(1, 1)), ALL),
    ("512 channels 7 x 7", Conv2dSpec("conv", 4, 512, 7, 7, 512, 3, 3, padding=(1, 1)), ALL),
    ("1 x 1, 256 channels", Conv2dSpec("conv", 4, 256, 14, 14, 256, 1, 1), ALL),
    ("strided", Conv2dSpec("conv", 4, 64, 56, 56, 128, 3, 3, (2, 2), (1, 1)), ALL),
    ("rgb 7 x 7", Conv2dSpec("conv", 1, 3, 224, 224, 64, 7, 7, (2, 2), (3, 3)), ("forward", "backward_weight")),
]  # fmt: skip


def convolutions(machine: Machine) -> None:
    rng = np.random.default_rng(0)
    for name, shape, kinds in CONVOLUTIONS:
        total = 0.0
        for kind in kinds:
            spec = replace(shape, kind=kind)
            x, weight, y = (
                random_aligned(rng, s)
                for s in (
                    (spec.n, spec.c, spec.h, spec.w),
                    (spec.oc, spec.c // spec.groups, spec.kh, spec.kw),
                    (spec.n, spec.oc, spec.out_h, spec.out_w),
                )
            )
            a, b, c = {"forward": (x, weight, y), "backward_input": (y, weight, x), "backward_weight": (x, y, weight)}[
                kind
            ]
            text = emit_conv2d(spec, machine)
            timed = Timed(text, f32, machine)

            def ours(times: int, timed: Timed = timed, a: np.ndarray = a, b: np.ndarray = b, c: np.ndarray = c) -> None:
                timed.run(a, b, c, times)

            best, middle = measure(ours, spec.multiply_adds)
            total += best
            print(
                f"{name:22} {kind:16} {best * 1e3:8.3f} ms (median {middle * 1e3:8.3f}) {2e-9 * spec.multiply_adds / best:6.1f} GFLOP/s"
                f"   scratch {text.scratch_bytes >> 10} KB, gcc {timed.compile_seconds:.2f} s",
                flush=True,
            )
        print(f"{name:22} together {total * 1e3:12.3f} ms", flush=True)


def main() -> None:
    wanted = sys.argv[1:]
    machine = next((MACHINES[name] for name in wanted if name in MACHINES), X86_64_V4)
    if "nests" in wanted:
        nests(MATMULS, machine)
    if "matmul" in wanted or not {"conv", "nests"} & {*wanted}:
        matmuls(MATMULS, machine)
    if "conv" in wanted:
        convolutions(machine)


if __name__ == "__main__":
    main()
