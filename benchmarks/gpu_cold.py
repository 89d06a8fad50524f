"""The time that a program with a GPU region takes from its first line to its first step. Needs NVRTC and no GPU.

python -m benchmarks.gpu_cold                       the rows below, from an empty cache and from a full one
python -m benchmarks.gpu_cold --rows cnn_mnist --write   and rewrite the table in docs/benchmarks.md

With an empty cache: staging (trace, derivatives, fusion, text), NVRTC for an sm_90, the C compiler on the host part. With a
full one: staging, which finds text and machine code, and the first step on the emulated device. The emulated device itself
is compiled before, as it is once per machine. Each figure comes from a process of its own, in seconds by the clock and
in seconds of processor time, its own and its compilers', which other work on the machine does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.report import write_into
from benchmarks.rows import LEARNING_RATE, ROWS, parameters, training_data

ROOT = Path(__file__).parent.parent
GPU_ROWS = ("mlp_mnist", "cnn_mnist")
ARCHITECTURE = "sm_90"
HOST_FLAGS = "-std=c11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared -DHOST_ONLY".split()
BEGIN, END = "<!-- gpu_cold: begin (written by `python -m benchmarks.gpu_cold`) -->", "<!-- gpu_cold: end -->"
HEADS = {
    "import": "import", "staging": "staging", "nvrtc": "NVRTC", "host": "C compiler", "cold": "together",
    "cached": "cached: staging", "first": "cached: load, first step", "warm": "cached, together",
}  # fmt: skip


class Clock:
    """Seconds by the clock and of processor time, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of `work`."""
        start, used = time.perf_counter(), processor_seconds()
        made = work()
        self.seconds[name] = time.perf_counter() - start, processor_seconds() - used
        return made


def processor_seconds() -> float:
    """The processor time of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def stage(row_name: str) -> tuple[Any, tuple[Any, ...]]:
    """The program of a training step in a region, and the batch that it takes."""
    import staged as st
    from benchmarks.frameworks.ours import MODELS

    row = ROWS[row_name]
    model = MODELS[row_name]()
    model.load_state_dict(parameters(row))
    optimizer = st.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    images, labels = training_data(row)
    batch = images[0], labels[0]

    @st.function
    def step(x: Any, y: Any) -> Any:
        with st.with_backend(st.GPU, x, y):
            loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), y), wrt=model)(x)
            optimizer.step(grads)
        return loss

    return step.stage(*batch), batch


def with_text(program: Any) -> Any:
    """The program, when its text is there; with a full cache nobody needs to ask for it."""
    assert "__global__" in program.source
    return program


def compile_kernels(program: Any) -> bytes:
    """Machine code of the kernels, by NVRTC with the options that `staged` gives it."""
    from cuda.bindings import nvrtc

    def checked(function: Callable[..., Any], *arguments: Any) -> Any:
        error, *results = function(*arguments)
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise SystemExit(f"{function.__name__}: {error.name}")
        return results[0] if results else None

    options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17", b"--ptxas-options=-v"]
    made = checked(nvrtc.nvrtcCreateProgram, program.source.encode(), b"step.cu", 0, [], [])
    checked(nvrtc.nvrtcCompileProgram, made, len(options), options)
    code = bytes(checked(nvrtc.nvrtcGetCUBINSize, made))
    checked(nvrtc.nvrtcGetCUBIN, made, code)
    return code


def compile_host(folder: Path) -> None:
    """The host part as it is compiled for a GPU, but against the emulated device's headers, and not linked to libraries."""
    command = [os.environ.get("CC", "cc"), *HOST_FLAGS, "-I", "emulated_device/include", "-x", "c", "step.cu"]
    subprocess.run([*command, "-o", "step.so"], cwd=folder, check=True)


def measure_cold(row: str) -> dict[str, tuple[float, float]]:
    """With an empty cache: staging, NVRTC, the C compiler."""
    clock = Clock()
    program = clock.time("staging", lambda: with_text(stage(row)[0]))
    clock.time("nvrtc", lambda: compile_kernels(program))
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as folder:
        program.export(folder)
        clock.time("host", lambda: compile_host(Path(folder)))
    return clock.seconds


def measure_cached(row: str) -> dict[str, tuple[float, float]]:
    """With whatever is in the cache: staging, then loading and the first step on the emulated device."""
    clock = Clock()
    program, batch = clock.time("cached", lambda: stage(row))
    clock.time("first", lambda: float(program(*batch)))
    return clock.seconds


def measured(row: str, how: str, cache: str) -> dict[str, tuple[float, float]]:
    """The seconds that one process measures, by name."""
    environment = {**os.environ, "STAGED_CACHE_DIR": cache, "STAGED_CUDA": "emulate"}
    command = [sys.executable, "-m", "benchmarks.gpu_cold", "--measure", how, "--rows", row]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{row}, {how}:\n{done.stderr}")
    return {name: tuple(pair) for name, pair in json.loads(done.stdout.splitlines()[-1]).items()}


def figures_of(row: str) -> dict[str, tuple[float, float]]:
    """All of a row. Of three processes that find everything in the cache the quickest counts."""
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        found = measured(row, "cold", cache)
        measured(row, "cached", cache)
        again = [measured(row, "cached", cache) for _ in range(3)]
    found |= {name: min(run[name] for run in again) for name in ("import", "cached", "first")}
    sums = {"cold": ("staging", "nvrtc", "host"), "warm": ("cached", "first")}
    return found | {name: _sum(*(found[part] for part in parts)) for name, parts in sums.items()}


def _sum(*pairs: tuple[float, float]) -> tuple[float, float]:
    return sum(wall for wall, _ in pairs), sum(used for _, used in pairs)


def table(rows: dict[str, dict[str, tuple[float, float]]]) -> list[str]:
    """Seconds by the clock, and of processor time in brackets."""
    lines = [f"| row | {' | '.join(HEADS.values())} |", "|---|" + "---|" * len(HEADS)]
    for row, found in rows.items():
        cells = [f"{found[name][0]:.2f} s ({found[name][1]:.2f})" for name in HEADS]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_cold", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=GPU_ROWS, default=list(GPU_ROWS), metavar="ROW")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/benchmarks.md")
    parser.add_argument("--measure", choices=("cold", "cached"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        clock = Clock()
        clock.time("import", lambda: __import__("staged"))
        how = {"cold": measure_cold, "cached": measure_cached}[options.measure]
        print(json.dumps(clock.seconds | how(options.rows[0])))
        return
    lines = table({row: figures_of(row) for row in options.rows})
    print("\n".join(lines))
    if options.write:
        words = ", ".join(
            f"{key} {value}" for key, value in describe(sys.executable).items() if key not in ("torch", "jax")
        )
        write_into(ROOT / "docs" / "benchmarks.md", "\n".join([f"Measured on {words}.", "", *lines, ""]), BEGIN, END)


if __name__ == "__main__":
    main()
