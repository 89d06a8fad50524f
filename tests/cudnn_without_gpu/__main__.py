"""Write the report `docs/results/cudnn_without_gpu.json`.

    python -m tests.cudnn_without_gpu                       # ask again all that the report lists
    python -m tests.cudnn_without_gpu --networks            # the same, and the graphs of the GPU check's networks
    python -m tests.cudnn_without_gpu --record tests/nn     # run these tests first, and add the graphs of their programs
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import cuda_wheels
from tests.cudnn_without_gpu import report
from tests.cudnn_without_gpu.questions import Question, from_json
from tests.gpu_check.libraries import asked


def recorded(words: list[str]) -> set[Question]:
    """The graphs of the programs of these tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graphs"
        path.touch()
        plugin = ["-p", "tests.cudnn_without_gpu.recorder", "--graphs", str(path)]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", *plugin, *words]
        if subprocess.run(command).returncode not in (0, 1):
            raise SystemExit("pytest did not run the tests")
        return {from_json(json.loads(line)) for line in path.read_text().splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cudnn_without_gpu", description="Write the report of the oracle.")
    parser.add_argument("--record", nargs=argparse.REMAINDER, default=None, help="tests whose graphs are added first")
    parser.add_argument("--networks", action="store_true", help="add the graphs of the networks of `make gpu-check`")
    options = parser.parse_args()
    if cuda_wheels.why_none():
        raise SystemExit(cuda_wheels.why_none())
    questions = set(report.listed())
    if options.record is not None:
        questions |= recorded(options.record)
    if options.networks:
        questions |= asked()[0]
    begun = time.monotonic()
    report.write(questions)
    print(f"{len(questions)} graphs asked in {time.monotonic() - begun:.0f} s: {report.PATH.name}")


if __name__ == "__main__":
    main()
