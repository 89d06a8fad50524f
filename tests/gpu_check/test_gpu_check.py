"""The runner of the GPU check, with parts that need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import __main__ as runner
from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import REHEARSAL, Result, device_name, page
from tests.gpu_check.setting import Setting

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
    result = runner.run("first", Setting(tmp_path), 60.0)
    assert result.state == "failed" and "-6" in result.summary and result.details == ["it was me"]


def test_a_part_that_hangs_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the part has started holds its end of the pipe: who waits for that alone waits for a minute."""
    code = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    part_that_says(code, monkeypatch)
    begin = time.monotonic()
    result = runner.run("first", Setting(tmp_path), limit=2.0)
    assert result.state == "failed" and result.summary == "not done after 2 s" and result.details == ["begun"]
    assert time.monotonic() - begin < 30


def test_a_result_counts_although_the_process_ends_badly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's libraries may fail while they are unloaded, and print what they like."""
    answer = tmp_path / "first.answer.json"
    said = json.dumps({"state": "passed", "summary": "right"})
    code = f"import os; open({str(answer)!r}, 'w').write({said!r}); print('what it likes', flush=True); os.abort()"
    part_that_says(code, monkeypatch)
    result = runner.run("first", Setting(tmp_path), 60.0)
    assert (result.state, result.summary) == ("passed", "right")


def test_within_a_time_what_does_not_fit_is_left_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, float]] = []

    def run(name: str, setting: Setting, limit: float) -> Result:
        ran.append((name, limit))
        monkeypatch.setattr(runner, "SHORTEST", 1e9 if name == "first" else 45)  # as if that had taken all the time
        return MACHINE if name == "machine" else Result("passed", "done", unfinished=name == "first" and len(ran) < 4)

    monkeypatch.setattr(runner, "run", run)
    words = ["gpu_check", "--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--within", "300"]
    monkeypatch.setattr(sys, "argv", words)
    assert runner.main() == 1
    assert [name for name, _ in ran] == ["machine", "first"] and all(limit <= 300 for _, limit in ran)
    assert "| first | passed, unfinished | done |" in (tmp_path / "page.md").read_text()
    ran.clear()
    monkeypatch.setattr(runner, "SHORTEST", 45)
    assert runner.main() == 1  # `first` goes on first, and takes all the time again
    assert [name for name, _ in ran] == ["first"]


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
