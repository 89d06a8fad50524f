"""The runner of the GPU check, with parts that need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from tests.gpu_check import __main__ as runner
from tests.gpu_check import kernels, sanitizers
from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import REHEARSAL, Result, device_name, page
from tests.gpu_check.sanitizers import SANITIZED, Built, Run, reports_of, result_of, sanitized
from tests.gpu_check.setting import Setting
from tests.gpu_check.training import result_of as result_of_training

MACHINE = Result(
    "passed", "NVIDIA H200", table=[["what", "which"], ["GPU", "NVIDIA H200 (compute capability 9.0, 151 GB)"]]
)


def test_the_page_has_every_part_also_those_that_were_not_run() -> None:
    refused = Result("refused", "Device not supported | here", details=["its words"])
    text = page({"machine": MACHINE, "memcheck": refused}, {name: part.what for name, part in PARTS.items()})
    assert "| machine | passed | NVIDIA H200 | 0 s |" in text
    assert "| memcheck | refused | Device not supported \\| here | 0 s |" in text
    assert "| kernels | not run |  |" in text
    assert "## memcheck" in text and "its words" in text and "## kernels" not in text
    assert REHEARSAL not in text and REHEARSAL in page({"machine": MACHINE}, {}, rehearsed=True)
    assert device_name({"machine": MACHINE}) == "nvidia-h200"


def test_parts_with_a_result_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(name: str, setting: Setting, limit: float) -> Result:
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
    monkeypatch.setattr(sys, "argv", [*words, "--parts", "kernels"])
    assert runner.main() == 0
    assert ran == [*PARTS, "kernels"]
    assert "| memcheck | refused | done |" in target.read_text()


def test_a_part_that_fails_makes_the_check_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run", lambda name, *_: MACHINE if name == "machine" else Result("failed", "wrong"))
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
    assert runner.main() == 1


def part_that_says(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of parts run this instead."""
    start = subprocess.Popen

    def other(command: list[str], **more: Any) -> Any:
        return start([sys.executable, "-c", code], **more)

    monkeypatch.setattr(subprocess, "Popen", other)


def test_a_part_that_crashes_is_a_failure_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part_that_says("import os, sys; sys.stderr.write('it was me\\n'); sys.stderr.flush(); os.abort()", monkeypatch)
    result = runner.run("first", Setting(tmp_path))
    assert result.state == "failed" and "-6" in result.summary and result.details == ["it was me"]


def test_a_part_that_hangs_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the part has started holds its end of the pipe: who waits for that alone waits for a minute."""
    code = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    part_that_says(code, monkeypatch)
    begin = time.monotonic()
    result = runner.run("first", Setting(tmp_path), limit=2.0)
    assert result.state == "failed" and result.summary == "not done after 2 s" and result.details == ["begun"]
    assert time.monotonic() - begin < 30


def test_without_a_gpu_the_first_part_says_so_and_nothing_is_written(tmp_path: Path) -> None:
    from staged.runtime.cuda.devices import gpu_count

    if gpu_count()[0]:
        pytest.skip("this machine has a GPU")
    command = [sys.executable, "-m", "tests.gpu_check", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 1
    assert "failed after" in done.stderr and ": no GPU: " in done.stderr
    assert json.loads((tmp_path / "machine.json").read_text())["state"] == "failed"
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("kernel", kernels.KERNELS, ids=[kernel.name for kernel in kernels.KERNELS])
def test_what_is_timed_computes_the_same_in_pytorch(kernel: kernels.Kernel) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(2).normal(size=(6, 6)).astype(np.float32)
    with st.eager():
        ours = np.asarray(kernel.body(x))
    np.testing.assert_allclose(ours, kernel.torch(torch, torch.from_numpy(x)).numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.usefixtures("emulated_device")
def test_kernels_are_timed_on_the_device() -> None:
    assert kernels.copy_bandwidth(kernels.SMALL) > 0
    assert kernels.seconds_per_turn(kernels.KERNELS[0], kernels.SMALL) > 0


@pytest.mark.parametrize(("function", "arguments"), SANITIZED, ids=[function.__name__ for function, _ in SANITIZED])
def test_what_the_sanitizers_run_can_be_exported(
    function: object, arguments: dict[str, object], tmp_path: Path
) -> None:
    files = function.stage(*arguments.values()).export(tmp_path)  # type: ignore[attr-defined]
    assert {path.name for path in files} >= {"Makefile", "main.c"}
    main = (tmp_path / "main.c").read_text()
    assert all(f'"{name}"' in main for name in arguments)


# ---- what tools say -------------------------------------------------------------------------------

MEMCHECK = """\
========= COMPUTE-SANITIZER
loss 0.25
========= Invalid __global__ write of size 4 bytes
=========     at y_kernel+0x90 in y.cu:31
=========     by thread (0,0,0) in block (0,0,0)
=========         Host Frame: main [0x1234] in y
=========
========= Invalid __global__ read of size 4 bytes
=========     at cudnn::ops::some_kernel<float>(float *)+0x70
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at y_kernel+0x90 in y.cu:31
=========     and Read access at y_kernel+0x120 in y.cu:35 [1088 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def tool_that_says(words: str, status: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What becomes of a program about which the tool says this."""
    done = subprocess.CompletedProcess([], status, words, "")
    monkeypatch.setattr(sanitizers, "run_within", lambda *_: done)
    return sanitized(Built("y", ("./y",), Path(), ("y_kernel", "z_kernel"), ()), "memcheck", Setting(Path()))


def test_reports_about_our_kernels_are_told_from_those_about_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tool_that_says(MEMCHECK, 9, monkeypatch)
    assert (len(run.ours), run.others, run.failure, run.refusal) == (1, 1, "", "")
    assert run.ours[0].splitlines()[:2] == ["Invalid __global__ write of size 4 bytes", "at y_kernel+0x90 in y.cu:31"]
    assert len(reports_of(RACECHECK.splitlines())) == 1
    run = tool_that_says(RACECHECK, 9, monkeypatch)
    assert len(run.ours) == 1 and "1088 hazards" in run.ours[0]


def test_a_refusal_is_the_machines_and_a_crash_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = tool_that_says("========= COMPUTE-SANITIZER\n========= Error: Device not supported\n", 1, monkeypatch)
    assert refused.refusal == "Error: Device not supported" and not refused.failure
    crashed = tool_that_says("train.py, line 3: no\n========= ERROR SUMMARY: 0 errors\n", 1, monkeypatch)
    assert crashed.failure.startswith("exit status 1: train.py, line 3: no") and not crashed.refusal
    clean = tool_that_says("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 0, monkeypatch)
    assert clean == Run([], 0, clean.seconds)


def test_what_was_found_makes_a_part_fail_and_what_was_refused_does_not() -> None:
    built = [Built(name, (), Path(), ("k",), ()) for name in ("a", "b")]
    clean, refused = Run([], 3, 1.0), Run([], 0, 1.0, refusal="Device not supported")
    assert result_of("memcheck", built, [clean, clean]).state == "passed"
    assert result_of("memcheck", built, [clean, refused]).summary == "1 of 2 programs ran, nothing found"
    assert result_of("memcheck", built, [refused, refused]).state == "refused"
    found = result_of("memcheck", built, [clean, Run(["race\nat k"], 0, 1.0)])
    assert found.state == "failed" and found.summary.endswith("look at b") and found.details == ["race\nat k"]
    assert result_of("memcheck", built, [clean, Run([], 0, 1.0, failure="not built: no")]).state == "failed"


def cell(framework: str, seconds: float, **more: Any) -> dict[str, Any]:
    timing = {"median": seconds, "minimum": seconds, "spread": 0.0, "foreign_cores": 0.0}
    return {"framework": framework, "timing": timing, "cold_s": 3.0, "digest": [1.0, 1.0]} | more


def test_training_is_compared_with_each_framework() -> None:
    peers = [cell("torch-eager", 2e-3), {"framework": "torch-compile", "failed": "no compiler"}]
    result = result_of_training([cell("staged", 1e-3), *peers])
    assert result.state == "passed"
    assert result.summary == "1.00 ms a step; torch-eager takes 2.00 times as long"
    assert result.table[3][1] == "no compiler"
    wrong = result_of_training([cell("staged", 1e-3, wrong=True), *peers])
    assert wrong.state == "failed" and wrong.summary == "a loss that is not PyTorch's"
    failed = result_of_training([{"framework": "staged", "failed": "no", "said": ["why", "no"]}, *peers])
    assert failed.state == "failed" and failed.details == ["why", "no"]
