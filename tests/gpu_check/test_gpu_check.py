"""The runner of the GPU check, with parts that need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import staged as st
from tests.gpu_check import __main__ as runner
from tests.gpu_check import kernels
from tests.gpu_check.parts import PARTS, SANITIZED
from tests.gpu_check.report import Result, device_name, page

MACHINE = Result(
    "passed", "NVIDIA H200", table=[["what", "which"], ["GPU", "NVIDIA H200 (compute capability 9.0, 151 GB)"]]
)


def test_the_page_has_every_part_also_those_that_were_not_run() -> None:
    refused = Result("refused", "Device not supported | here", details=["its words"])
    text = page({"machine": MACHINE, "memcheck": refused}, {name: part.what for name, part in PARTS.items()})
    assert "| machine | passed | NVIDIA H200 |" in text
    assert "| memcheck | refused | Device not supported \\| here |" in text
    assert "| speed | not run |  |" in text
    assert "## memcheck" in text and "its words" in text and "## speed" not in text
    assert device_name({"machine": MACHINE}) == "nvidia-h200"


def test_parts_with_a_result_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(name: str, folder: Path) -> Result:
        ran.append(name)
        return MACHINE if name == "machine" else Result("refused" if name == "memcheck" else "passed", "done")

    monkeypatch.setattr(runner, "run", run)
    results, target = tmp_path / "results", tmp_path / "page.md"
    words = ["gpu_check", "--results", str(results), "--page", str(target)]
    monkeypatch.setattr(sys, "argv", [*words, "--parts", "machine", "first"])
    assert runner.main() == 0
    monkeypatch.setattr(sys, "argv", words)
    assert runner.main() == 0
    assert ran == list(PARTS)
    monkeypatch.setattr(sys, "argv", [*words, "--parts", "speed"])
    assert runner.main() == 0
    assert ran == [*PARTS, "speed"]
    assert "| memcheck | refused | done |" in target.read_text()


def test_a_part_that_fails_makes_the_check_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run", lambda name, folder: MACHINE if name == "machine" else Result("failed", "wrong"))
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
    assert runner.main() == 1


def test_a_part_that_crashes_is_a_failure_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], -11, "", "Segmentation fault\n")

    monkeypatch.setattr(subprocess, "run", crash)
    result = runner.run("first", tmp_path)
    assert result.state == "failed" and "-11" in result.summary and result.details == ["Segmentation fault"]


def test_without_a_gpu_the_first_part_says_so_and_nothing_is_written(tmp_path: Path) -> None:
    from staged.runtime.cuda.devices import gpu_count

    if gpu_count()[0]:
        pytest.skip("this machine has a GPU")
    command = [sys.executable, "-m", "tests.gpu_check", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 1
    assert "failed: no GPU" in done.stderr
    assert json.loads((tmp_path / "machine.json").read_text())["state"] == "failed"
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("kernel", kernels.KERNELS, ids=[kernel.name for kernel in kernels.KERNELS])
def test_what_is_timed_computes_the_same_in_pytorch(kernel: kernels.Kernel) -> None:
    torch = pytest.importorskip("torch")
    x = (
        np.random.default_rng(2)
        .normal(size=(6, kernels.COLUMNS if kernel.name == "layer norm" else 6))
        .astype(np.float32)
    )
    with st.eager():
        ours = np.asarray(kernel.body(x))
    np.testing.assert_allclose(ours, kernel.torch(torch, torch.from_numpy(x)).numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("function", "arguments"), SANITIZED, ids=[function.__name__ for function, _ in SANITIZED])
def test_what_the_sanitizers_run_can_be_exported(
    function: object, arguments: dict[str, object], tmp_path: Path
) -> None:
    files = function.stage(*arguments.values()).export(tmp_path)  # type: ignore[attr-defined]
    assert {path.name for path in files} >= {"Makefile", "main.c"}
    main = (tmp_path / "main.c").read_text()
    assert all(f'"{name}"' in main for name in arguments)
