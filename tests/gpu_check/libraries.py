"""Ask NVIDIA's libraries and run nothing: `libraries.json`.

The file has cuDNN's description of the device, the algorithms that cublasLt offers for the products of programs (8 candidates
with waves and workspace), and cuDNN's engines and v7 lists for their convolutions and attentions. `devices/<name>/libraries.json`
keeps the file of a real card: with its description, cuDNN answers on any machine (`tests/cudnn_without_gpu`).
`python -m tests.gpu_check.libraries` writes `asked.json`, the graphs and products of the networks of the part `times`.

    ask(PATH, QUESTIONS, PRODUCTS, libraries)               of the device of this machine
    ask(PATH, QUESTIONS, PRODUCTS, libraries, DESCRIPTION)  of a described device: cublasLt, which needs a device, tells its status
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from staged.errors import StagedError
from staged.runtime.compiler import find_compiler
from tests import cuda_wheels
from tests.cudnn_without_gpu import devices, report
from tests.cudnn_without_gpu.asking import Libraries, OracleError, run_tool
from tests.cudnn_without_gpu.questions import Question, from_json, questions_of, to_json
from tests.gpu_check.report import Result
from tests.gpu_check.setting import Setting
from tests.gpu_check.timing import steps

CAPABILITY = (9, 0)
"""Of the device that a rehearsal asks about."""
TYPES = (("f32", "f32"), ("f32", "tf32"), ("bf16", "f32"))
"""Of the matrices, and of the arithmetic."""
EPILOGUES = ("NONE", "BIAS", "RELU_BIAS", "GELU_BIAS")


@dataclass(frozen=True, order=True)
class Product:
    """A product as cublasLt has it, by columns: (n, k) @ (k, m), of which a letter T says it is stored transposed."""

    n: int
    m: int
    k: int
    left: str
    right: str


_PLAIN = re.compile(
    r"cublasSgemm\w*\(gpu->cublas,\s+CUBLAS_OP_(\w),\s+CUBLAS_OP_(\w),\s+(\d+),\s+(\d+),\s+(\d+),", re.ASCII
)
_WITH_EPILOGUE = re.compile(r"cublasLtMatmulDesc_t product_(\d+)x(\d+)x(\d+)_([NT])([NT])_\w+;")


def products_of(source: str) -> set[Product]:
    """The f32 products of a program's text, by cuBLAS and by cublasLt, without those of a size that the program computes."""
    found = {Product(int(n), int(m), int(k), left, right) for left, right, n, m, k in _PLAIN.findall(source)}
    return found | {Product(int(n), int(m), int(k), left, right) for n, m, k, left, right in _WITH_EPILOGUE.findall(source)}


def lines_of(products: Iterable[Product]) -> list[str]:
    """The lines that `libraries.c` reads: each product with each type and each epilogue."""
    return [
        f"{p.n} {p.m} {p.k} {p.left} {p.right} {matrices} {arithmetic} {epilogue}"
        for p in sorted(products)
        for matrices, arithmetic in TYPES
        for epilogue in EPILOGUES
    ]


def build(folder: Path, libraries: Libraries) -> Path:
    """The program of `libraries.c`. Raises OracleError with the compiler's message."""
    system = [word for header in libraries.headers for word in ("-isystem", str(header))]
    source = str(Path(__file__).with_suffix(".c"))
    files = [str(libraries.cudnn), str(libraries.cublas_lt), "-Wl,--allow-shlib-undefined"]
    run_tool([*find_compiler().command, "-std=c11", "-O1", *system, source, "-o", "libraries", *files], folder)
    return folder / "libraries"


def lines_from(program: Path, what: str, given: str, libraries: Libraries) -> list[dict[str, Any]]:
    """The lines of JSON that the program prints. A call that failed is one of them."""
    environment = libraries.environment(program.parent)
    done = subprocess.run([str(program), what], input=given, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 4):
        raise OracleError(f"libraries.c ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(
    path: Path,
    questions: Iterable[Question],
    products: Iterable[Product],
    libraries: Libraries,
    description: dict[str, Any] | None = None,
    until: float = math.inf,
) -> dict[str, Any]:
    """Write the answers about these graphs and products to `path` while they arrive, and return them.

    Questions that are not answered at the time `until` are counted as `left_out`. Raises OracleError if the device of this
    machine cannot be described.
    """
    content: dict[str, Any] = {"source": devices.FROM_HANDLE if description is None else "a description"}

    def write() -> None:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), libraries)
        # First what does not depend on the description.
        content["products"] = lines_from(program, "products", "\n".join(lines_of(products)), libraries)
        write()
        if description is None:
            (description,) = lines_from(program, "device", "", libraries)
            if "status" in description:
                raise OracleError("cuDNN does not describe the device: {function}: {status}".format(**description))
        content["device"] = description
        write()
    content |= {"graphs": [], "failures": [], "left_out": 0}
    groups = report.groups(questions)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = {pool.submit(report.answers, group, description, libraries): group for group in groups}
        try:
            for task in as_completed(tasks, timeout=None if until == math.inf else max(0.0, until - time.monotonic())):
                group = tasks.pop(task)
                try:
                    said = task.result()
                    content["graphs"] += [{**to_json(question), **said[question]} for question in group]
                except (OracleError, StagedError) as failure:  # the other groups have answers still
                    content["failures"].append(str(failure))
                write()
        except TimeoutError:
            pool.shutdown(wait=False, cancel_futures=True)
    content["left_out"] = sum(map(len, tasks.values()))
    write()
    return content


Asked = tuple[set[Question], set[Product]]
ASKED = Path(__file__).parent / "asked.json"
"""The graphs and products of the networks: to stage these on the device's machine would use half of the part's time."""


def asked_by(name: str, precision: str, small: bool = False) -> Asked:
    """The graphs and products of a network of the part `times`."""
    import staged as st

    network = steps.NETWORKS[name]
    with mock.patch.object(st, "to", lambda array, device: array):  # no device is needed to stage the program
        function, data = steps.ours(network, precision, small)
    source = function.stage(*data, 3).source
    return questions_of(source), products_of(source)


def asked() -> Asked:
    """Those of all networks, from the file."""
    content = json.loads(ASKED.read_text(encoding="utf-8"))
    return set(map(from_json, content["graphs"])), {Product(*each) for each in content["products"]}


def main() -> None:
    """Write the file: stage all networks."""
    tasks = [(name, precision) for name in steps.NETWORKS for precision in ("f32", "bf16")]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(asked_by, *zip(*tasks, strict=True)))
    questions: set[Question] = set().union(*(each for each, _ in found))
    products: set[Product] = set().union(*(each for _, each in found))
    lines = [json.dumps(to_json(each)) for each in sorted(questions, key=repr)]
    rows = [json.dumps(list(vars(each).values())) for each in sorted(products)]
    parts = [f' "{name}": [\n  ' + ",\n  ".join(each) + "\n ]" for name, each in (("graphs", lines), ("products", rows))]
    ASKED.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    print(f"{len(questions)} graphs and {len(products)} products: {ASKED.name}")


def run(setting: Setting) -> Result:
    """The part `libraries`. A rehearsal asks about a device that is described, by NVIDIA's wheels if they are installed."""
    description = None
    if setting.rehearsed:
        if cuda_wheels.why_none():
            return Result("refused", cuda_wheels.why_none())
        description, libraries = devices.descriptions()[CAPABILITY][1], Libraries.of_wheels()
    else:
        libraries = Libraries.of_this_machine()
    until = time.monotonic() + setting.left()
    content = ask(setting.folder / "libraries.json", *asked(), libraries, description, until)
    answered = sum("candidates" in each for each in content["products"])
    without = [each for each in content["graphs"] if not each.get("plan", True)]
    summary = f"{len(content['graphs'])} graphs of cuDNN, {len(without)} without a plan; {answered} products of cublasLt"
    details = [*content["failures"], *(f"no plan: {json.dumps(each)}" for each in without)]
    return Result("failed" if content["failures"] else "passed", summary, details, unfinished=content["left_out"] > 0)


if __name__ == "__main__":
    main()
