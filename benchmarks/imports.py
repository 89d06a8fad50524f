"""The processor time of `import staged`, and of the first trained step of a program that is in the cache.

python -m benchmarks.imports           20 runs of each row, one row after another in each round; prints the medians
python -m benchmarks.imports --write   and rewrites the table in docs/benchmarks.md

Each run is a new process that finds bytecode. A row states what it adds to the row that it follows, in processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.report import write_into

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- imports: begin (written by `python -m benchmarks.imports`) -->", "<!-- imports: end -->"
REQUIRED = "import ml_dtypes, numpy, optree, platformdirs"
"""The packages that `import staged` needs; cffi is loaded at the first compilation."""
FIRST_STEP = """
from staged import nn, optim
from benchmarks.frameworks.ours_models import Cnn
model = Cnn()
model.load_state_dict(parameters(row))
optimizer = optim.SGD(model.parameters(), lr=LEARNING_RATE)

@st.function
def train(images, labels):
    loss, grads = st.value_and_grad(lambda x, y: st.cross_entropy(model(x), y), wrt=model)(images, labels)
    optimizer.step(grads)
    return loss

train(images[0], labels[0])
"""
DATA = """
from benchmarks.rows import LEARNING_RATE, ROWS, data_of, parameters
row = ROWS["cnn_mnist"]
images, labels = data_of(row)
"""
CASES = {
    "numpy": ("", "import numpy"),
    "required packages": ("", REQUIRED),
    "`import staged`, after the required packages": (REQUIRED, "import staged"),
    "MNIST CNN: import to the first step, after NumPy": (DATA, f"import staged as st\n{FIRST_STEP}"),
    "torch": ("", "import torch"),
    "jax": ("", "import jax"),
}
"""By row: what runs before the clock starts, and what is measured."""


def seconds(before: str, measured: str, cache: str) -> float | None:
    """Return the processor time of `measured` in a process of its own; None if a module is not installed."""
    code = f"{before}\nimport time\nstart = time.process_time()\n{measured}\nprint(time.process_time() - start)\n"
    environment = {**os.environ, "STAGED_CACHE_DIR": f"{cache}/programs", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=cache) as script:
        script.write(code)
        script.flush()
        command = [sys.executable, script.name]
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


def medians(rounds: int) -> dict[str, float]:
    """Return the median of each row. The rows alternate, and the first round only fills the caches."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
        for number in range(rounds + 1):
            for name, case in CASES.items():
                taken = seconds(*case, cache)
                if number and taken is not None:
                    found.setdefault(name, []).append(taken)
    return {name: statistics.median(each) for name, each in found.items()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/benchmarks.md")
    options = parser.parse_args()
    found = medians(options.rounds)
    lines = ["| row | processor time |", "|---|---|", *(f"| {name} | {found[name]:.3f} s |" for name in found)]
    print("\n".join(lines))
    if options.write:
        machine = ", ".join(f"{key} {value}" for key, value in describe(sys.executable).items())
        text = f"Measured on {machine}; medians of {options.rounds} runs."
        write_into(ROOT / "docs" / "benchmarks.md", "\n".join([text, "", *lines, ""]), BEGIN, END)


if __name__ == "__main__":
    main()
