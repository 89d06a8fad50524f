"""The cost of ranks: steps, messages, memory and overlap of data-parallel training.

python -m benchmarks.ranks                  all parts but the slow one; prints their figures
python -m benchmarks.ranks --parts step     one part
python -m benchmarks.ranks --slow --write   all parts; rewrites the table in docs/benchmarks.md

Needs the extra `mpi`. A step of 2 ranks is compared with a step of one rank on half of the batch plus an `MPI_Allreduce` of the
same bytes, by turns in one job; a figure is the median of paired ratios. Messages are counted between the program and MPI. The
network of the part `overlap` is simulated (`network.c`): its bandwidth is that of a link in bytes per second.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from benchmarks.__main__ import ROOT, environment
from benchmarks.machine import describe
from benchmarks.report import write_into
from staged import nn, optim

BEGIN, END = "<!-- ranks: begin (written by `python -m benchmarks.ranks`) -->", "<!-- ranks: end -->"
TIME_LIMIT = 900
SPEEDS = {"12 GB/s": 12e9, "6 GB/s": 6e9, "3 GB/s": 3e9}
"""The simulated links of the part `overlap`."""
PAIRS = 5


# ---- what a rank runs ---------------------------------------------------------------------------


def mlp_step(model: nn.Module, optimizer: Any, shared: bool) -> Callable[..., Any]:
    """A step of training; with `shared` over all ranks."""

    def loss_of(x: Any, y: Any) -> Any:
        loss = st.cross_entropy(model(x), y)
        return st.all_reduce(loss, "mean") if shared else loss

    @st.function
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if shared:
            x, y = st.shard(x), st.shard(y)
        loss, grads = st.value_and_grad(lambda: loss_of(x, y), wrt=model)()
        optimizer.step(grads)
        return loss

    return step


def timed(comm: Any, work: Callable[[], object]) -> float:
    """The seconds of the slowest rank."""
    comm.Barrier()
    begin = time.perf_counter()
    work()
    taken = np.array(time.perf_counter() - begin)
    from mpi4py import MPI

    comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
    return float(taken)


def by_turns(comm: Any, works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The times of works that run one after another, `rounds` times after 20 rounds that do not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    gc.disable()
    for number in range(20 + rounds):
        for name, work in works.items():
            seconds = timed(comm, work)
            if number >= 20:
                found[name].append(seconds)
    return found


def mlp() -> tuple[nn.Module, Any]:
    """The network of the parts `step` and `messages`, and its optimiser."""
    st.seed(0)
    model = nn.Sequential(nn.Linear(784, 128, dtype=st.f64), nn.Tanh(), nn.Linear(128, 10, dtype=st.f64))
    return model, optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def step_part(comm: Any) -> dict[str, Any]:
    """A step of 2 ranks, beside a step on half of the batch and a raw message."""
    batch = 64
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(batch, 784)), rng.integers(0, 10, batch)
    half = slice(0, batch // comm.size)
    works: dict[str, Callable[[], object]] = {}
    for name, shared, rows in (("together", True, slice(None)), ("alone", False, half)):
        model, optimizer = mlp()
        step = mlp_step(model, optimizer, shared)
        given = x[rows].copy(), y[rows].copy()
        works[name] = lambda step=step, model=model, optimizer=optimizer, given=given: step(model, optimizer, *given)
    count = sum(parameter.numpy().size for parameter in model.parameters())
    sent, received = np.ones(count), np.empty(count)
    works["message"] = lambda: comm.Allreduce(sent, received)
    found = by_turns(comm, works, 400)
    sums = [a + b for a, b in zip(found["alone"], found["message"], strict=True)]
    ratio = statistics.median(a / b for a, b in zip(found["together"], sums, strict=True))
    return {"ratio": ratio, **{f"{name} ms": 1e3 * statistics.median(times) for name, times in found.items()}}


def overlap_part(comm: Any) -> dict[str, Any]:
    """The time of a step with and without messages, after and during the backward pass."""
    sizes = [784, 512, 512, 512, 512, 10]
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(256, 784)).astype(np.float32), rng.normal(size=(256, 10)).astype(np.float32)

    def make(shared: bool) -> Callable[[], object]:
        st.seed(0)
        weights = [st.Variable((0.05 * rng.normal(size=size)).astype(np.float32)) for size in zip(sizes, sizes[1:])]  # noqa: B905

        @st.function
        def step(weights: Any, x: Any, y: Any) -> Any:
            if shared:
                x, y = st.shard(x), st.shard(y)

            def loss_of() -> Any:
                h = x
                for w in weights[:-1]:
                    h = st.relu(h @ w)
                loss = st.mean((h @ weights[-1] - y) ** 2)
                return st.all_reduce(loss, "mean") if shared else loss

            loss, grads = st.value_and_grad(loss_of, wrt=weights)()
            for w, grad in zip(weights, grads, strict=True):
                w.value = w.value - 0.02 * grad
            return loss

        half = slice(0, 256 if shared else 256 // comm.size)
        given = x[half].copy(), y[half].copy()
        return lambda: step(weights, *given)

    found = by_turns(comm, {"together": make(True), "alone": make(False)}, 100)
    return {name: 1e3 * statistics.median(times) for name, times in found.items()}


def messages_part(comm: Any) -> dict[str, Any]:
    """The messages of one step of the MLP, and the memory of its program."""
    model, optimizer = mlp()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 784)), rng.integers(0, 10, 64)
    return counted(mlp_step(model, optimizer, True), model, optimizer, x, y)


def gpt2_part(comm: Any) -> dict[str, Any]:
    """The messages of one step of GPT-2 with 124 million parameters."""
    from examples.gpt2.model import GPT2, SIZES

    st.seed(0)
    model = GPT2(SIZES["124M"])
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    tokens = np.random.default_rng(0).integers(0, 50257, (2, 17))

    @st.function
    def step(model: Any, optimizer: Any, tokens: Any) -> Any:
        rows = st.shard(tokens)

        def loss_of() -> Any:
            scores = model(rows[:, :-1])
            return st.all_reduce(st.cross_entropy(scores.view(-1, scores.shape[-1]), rows[:, 1:].reshape(-1)), "mean")

        loss, grads = st.value_and_grad(loss_of, wrt=model)()
        optimizer.step(grads)
        return loss

    return counted(step, model, optimizer, tokens)


def counted(step: Any, *given: Any) -> dict[str, Any]:
    """The messages of a call of a step, and the bytes of its working memory."""
    import ctypes

    counts = ctypes.CDLL(None)
    step(*given)
    before = counts.network_messages()
    step(*given)
    messages = counts.network_messages() - before
    return {"messages": messages, "arena bytes": step.stage(*given).report().arena_bytes}


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "step": step_part,
    "messages": messages_part,
    "overlap": overlap_part,
    "gpt2": gpt2_part,
}
SLOW = ("gpt2",)


def worker(part: str) -> None:
    """Run a part on this rank; rank 0 prints its figures."""
    from mpi4py import MPI

    figures = PARTS[part](MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(figures), flush=True)


# ---- jobs ---------------------------------------------------------------------------------------


def job(part: str, cache: str, ranks: int = 2, **variables: str) -> dict[str, Any]:
    """The figures of a part, from a job of its own."""
    library = network(Path(cache))
    command = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "benchmarks.ranks", "--worker", part]
    environment_ = environment(1, cache) | {"LD_PRELOAD": str(library), **variables}
    run = subprocess.run(command, cwd=ROOT, env=environment_, capture_output=True, text=True, timeout=TIME_LIMIT)
    if run.returncode:
        raise SystemExit(f"{part} failed:\n{run.stdout}{run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def network(folder: Path) -> Path:
    """The library between program and MPI that counts messages and simulates a network."""
    library = folder / "network.so"
    if not library.exists():
        source = Path(__file__).with_name("network.c")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mpicc", "-shared", "-fPIC", "-O2", str(source), "-o", str(library), "-lm"], check=True)
    return library


def overlap(cache: str) -> list[str]:
    """A table row for each simulated network: the exposed time of messages, after and during the backward pass."""
    rows = []
    for label, width in SPEEDS.items():
        simulated = {"SIM_RANKS": "64", "SIM_ALPHA": "2e-6", "SIM_BANDWIDTH": str(width), "STAGED_BUCKET_BYTES": "1100000"}
        ratios, after, during = [], [], []
        for _ in range(PAIRS):
            late = job("overlap", cache, **simulated)
            early = job("overlap", cache, STAGED_OVERLAP="1", **simulated)
            exposed = [each["together"] - each["alone"] for each in (late, early)]
            ratios.append(exposed[1] / exposed[0])
            after.append(late["together"])
            during.append(early["together"])
        middle = statistics.median
        rows.append(f"| {label} | {middle(after):.2f} | {middle(during):.2f} | {middle(ratios):.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="the parts to measure (default: all but the slow one)")
    parser.add_argument("--slow", action="store_true", help="also GPT-2 with 124 million parameters")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/benchmarks.md")
    parser.add_argument("--worker", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    parts: Sequence[str] = options.parts or [part for part in PARTS if options.slow or part not in SLOW]
    words = ", ".join(f"{key} {value}" for key, value in describe(sys.executable).items())
    lines = [f"Measured on {datetime.date.today().isoformat()} ({words}).", ""]
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        if "step" in parts:
            found = job("step", cache)
            lines += [
                "| MLP 784-128-10, f64, batch 64 | ms |",
                "|---|---|",
                f"| step of 2 ranks | {found['together ms']:.3f} |",
                f"| step of one rank, batch 32, both ranks at once | {found['alone ms']:.3f} |",
                f"| `MPI_Allreduce` of the same bytes | {found['message ms']:.3f} |",
                f"| ratio of the first to the sum of the others | {found['ratio']:.2f} |",
                "",
            ]
        for part, name in (("messages", "MLP"), ("gpt2", "GPT-2 124M")):
            if part in parts:
                found = job(part, cache)
                messages = "1 message" if found["messages"] == 1 else f"{found['messages']} messages"
                lines += [f"{name}: {messages} a step, {found['arena bytes']:,} bytes of working memory.", ""]
        if "overlap" in parts:
            head = "| link | step, messages after the backward pass, ms | during it, ms | exposed time, ratio |"
            lines += [head, "|---|---|---|---|", *overlap(cache), ""]
    print("\n".join(lines))
    if options.write:
        write_into(ROOT / "docs" / "benchmarks.md", "\n".join(lines), BEGIN, END)


if __name__ == "__main__":
    os.environ.setdefault("STAGED_NUM_THREADS", "1")
    main()
