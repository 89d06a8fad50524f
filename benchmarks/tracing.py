"""The cost of tracing: calls of Python functions and processor time of a call that traces again to a program it had before.

python benchmarks/tracing.py                        the table, of the package that is imported
python benchmarks/tracing.py --against ../before    beside another checkout, in turns: processes of each, one after another

Calls are counted by the profiler (functions of Python and of C) and do not depend on the machine. Times are processor time, the
least of several rounds. `arguments` sorts the arguments, `conversion` makes converted functions of the user's, `trace` runs them,
`guards` makes the check of later calls, `key` finds the program among those of the function, `build` is the passes and the text
(of a program that is known: nothing), `run` is the program itself.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim

PHASES = {
    "arguments": ("staged.call.api", "flatten_arguments"),
    "conversion": ("staged.frontend.calls.call", "as_converted"),
    "trace": ("staged.call.api", "trace"),
    "guards": ("staged.call.api", "entry_for"),
    "key": ("staged.call.api", "StagedFunction._program"),
    "build": ("staged.call.program", "build"),
    "run": ("staged.call.program", "Program.run"),
}
"""The functions that the phases are, as names of modules that `staged` has loaded: they are ours, and not for users."""
rng = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def classes(count: int, *shape: int) -> Any:
    return rng.integers(0, count, shape).astype(np.int32)


# ---- the rows -----------------------------------------------------------------------------------


def add_one() -> Any:
    @st.function
    def function(x: Any) -> Any:
        return x + 1.0

    return function, (floats(10),)


def training_step(model: Any, optimizer: Any) -> Any:
    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimizer.step(grads)
        return loss

    return step


def mlp() -> Any:
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return training_step(model, optim.SGD(model.parameters(), lr=0.05)), (floats(1, 784), classes(10, 1))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: Any) -> Any:
        x = st.relu(st.max_pool2d(self.conv1(x), 2))
        x = st.relu(st.max_pool2d(self.conv2(x), 2))
        return self.fc2(st.relu(self.fc1(x.reshape(x.shape[0], -1))))


def cnn() -> Any:
    model = Cnn()
    return training_step(model, optim.SGD(model.parameters(), lr=0.05)), (floats(4, 1, 28, 28), classes(10, 4))


class CharLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(26, 26), nn.LSTMCell(26, 50), nn.Linear(50, 26)

    def forward(self, text: Any) -> Any:
        h, c = st.zeros((text.shape[1], 50)), st.zeros((text.shape[1], 50))
        total = 0.0
        for t in st.range(20):
            h, c = self.cell(self.embedding(text[t]), (h, c))
            total += st.cross_entropy(self.out(h), text[t + 1])
        return total / 20


def char_lstm() -> Any:
    model = CharLstm()
    optimizer = optim.Adagrad(model.parameters(), lr=0.1)

    @st.function
    def step(text: Any) -> Any:
        loss, grads = st.value_and_grad(model, wrt=model)(text)
        optimizer.step(optim.clip_grad_value(grads, 5.0))
        return loss

    return step, (classes(26, 21, 4),)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)
        self.fc1, self.fc2 = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Any) -> Any:
        B, T, C = x.shape
        y = self.qkv(self.norm1(x)).reshape(B, T, 3, 4, C // 4)
        q, k, v = (y[:, :, i].permute(0, 2, 1, 3) for i in range(3))
        scores = q @ k.transpose(2, 3) / 4.0
        seen = st.arange(T)[:, None] >= st.arange(T)[None, :]
        weights = st.softmax(st.where(seen, scores, -1e9), axis=-1)
        x = x + self.proj((weights @ v).permute(0, 2, 1, 3).reshape(B, T, C))
        return x + self.fc2(st.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, 64), nn.Embedding(16, 64)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 65)

    def forward(self, x: Any) -> Any:
        h = self.tokens(x) + self.places(st.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).reshape(-1, 65)


def transformer(blocks: int) -> Any:
    model = Transformer(blocks)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y.reshape(-1)), wrt=model)()
        optimizer.step(grads)
        return loss

    return step, (classes(65, 2, 16), classes(65, 2, 16))


ROWS: dict[str, Callable[[], Any]] = {
    "x + 1": add_one,
    "MLP step": mlp,
    "CNN step": cnn,
    "char-LSTM step": char_lstm,
    "transformer step, 1 block": lambda: transformer(1),
    "transformer step, 4 blocks": lambda: transformer(4),
}


# ---- the measure --------------------------------------------------------------------------------


def again(function: Any, args: tuple[Any, ...]) -> None:
    """A call that traces, to a program that is there."""
    if hasattr(function, "_kept"):  # a checkout without guards traces anyway
        function._kept.entries = function._kept.entries[:1]
        for entry in function._kept.entries:
            entry.check = lambda args, kwargs, owner: None  # as if a guard had failed
        function._kept.traces.clear()
    function(*args)


def phase(module: str, path: str) -> tuple[Any, str] | None:
    """The owner of a function, and its name there; None in a checkout that has it not."""
    owner: Any = sys.modules.get(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each, None)
    return (owner, name) if hasattr(owner, name) else None


class Phases:
    """Processor time of each phase without those inside it, by wrapping what the phases are."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys([*PHASES, "rest"], 0.0)
        self.open = ["rest"]
        self.since = time.process_time()

    def switch(self) -> None:
        now = time.process_time()
        self.spent[self.open[-1]] += now - self.since
        self.since = now

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self.open.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self.open.pop()

        return run

    def measure(self, run: Callable[[], object]) -> dict[str, float]:
        there = {name: found for name, place in PHASES.items() if (found := phase(*place)) is not None}
        saved = {name: getattr(owner, attribute) for name, (owner, attribute) in there.items()}
        for name, (owner, attribute) in there.items():
            setattr(owner, attribute, self.wrapped(name, saved[name]))
        try:
            self.spent = dict.fromkeys(self.spent, 0.0)
            self.since = time.process_time()
            run()
            self.switch()
        finally:
            for name, (owner, attribute) in there.items():
                setattr(owner, attribute, saved[name])
        return self.spent


def measure(rows: list[str], rounds: int) -> dict[str, Any]:
    """Calls, milliseconds and the split of them, by row."""
    found = {}
    for row in rows:
        function, args = ROWS[row]()
        for _ in range(3):
            again(function, args)
        profile = cProfile.Profile()
        profile.enable()
        again(function, args)
        profile.disable()
        counted: Any = pstats.Stats(profile)
        times, splits = [], []
        gc.collect()
        for _ in range(rounds):
            start = time.process_time()
            again(function, args)
            times.append(time.process_time() - start)
        for _ in range(rounds):
            spent = Phases().measure(lambda function=function, args=args: again(function, args))
            splits.append((sum(spent.values()), spent))
        split = min(splits, key=lambda pair: pair[0])[1]
        found[row] = {
            "calls": counted.total_calls,
            "ms": 1e3 * min(times),
            "split": {name: 1e3 * seconds for name, seconds in split.items()},
        }
    return found


def in_process(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One run of this script with the package of a checkout."""
    command = [sys.executable, __file__, "--json", "--rounds", str(options.rounds), "--rows", *options.rows]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {row: min((run[row] for run in runs), key=lambda cell: cell["ms"]) for row in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--pairs", type=int, default=3, help="processes of each checkout")
    parser.add_argument("--json", action="store_true", help="the figures alone")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measure(options.rows, options.rounds)))
        return
    if options.against is None:
        ours = measure(options.rows, options.rounds)
    else:
        runs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        root = Path(st.__file__).parent.parent
        for _ in range(options.pairs):
            runs.append((in_process(options.against.resolve(), options), in_process(root, options)))
        before, ours = best([run[0] for run in runs]), best([run[1] for run in runs])
        print("| row | calls before | now | | ms before | now | |\n| --- | --: | --: | --: | --: | --: | --: |")
        for row, cell in ours.items():
            old = before[row]
            print(
                f"| {row} | {old['calls']:,} | {cell['calls']:,} | {cell['calls'] / old['calls']:.2f} "
                f"| {old['ms']:.2f} | {cell['ms']:.2f} | {cell['ms'] / old['ms']:.2f} |"
            )
        print()
    names = [*PHASES, "rest"]
    print(f"| row | calls | ms | {' | '.join(names)} |\n| --- |{' --: |' * (2 + len(names))}")
    for row, cell in ours.items():
        parts = " | ".join(f"{cell['split'][name]:.2f}" for name in names)
        print(f"| {row} | {cell['calls']:,} | {cell['ms']:.2f} | {parts} |")


if __name__ == "__main__":
    main()
