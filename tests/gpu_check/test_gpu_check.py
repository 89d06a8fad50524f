"""The runner of the GPU check, with parts that need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import __main__ as runner
from tests.gpu_check import machine
from tests.gpu_check.parts import PARTS
from tests.gpu_check.report import Result, device_name, page, printed
from tests.gpu_check.setting import Setting

MACHINE = Result(
    "passed", "NVIDIA H200", table=[["what", "which"], ["GPU", "NVIDIA H200 (compute capability 9.0, 151 GB)"]]
)
OFFERED = 535
"""Seconds of one command."""


def test_the_limits_of_the_parts_fit_into_one_command() -> None:
    assert sum(part.limit for part in PARTS.values()) + runner.PACKING <= OFFERED
    assert len({part.file for part in PARTS.values()} | {runner.RESULTS, "log.txt"}) <= runner.MOST_FILES


def test_the_page_has_every_part_also_those_that_were_not_run() -> None:
    refused = Result("refused", "Device not supported | here", details=["its words"])
    text = page({"machine": MACHINE, "sanitizer": refused}, {name: part.what for name, part in PARTS.items()})
    assert "| machine | passed | NVIDIA H200 | 0 s |" in text
    assert "| sanitizer | refused | Device not supported \\| here | 0 s |" in text
    assert "| times | not run |  |" in text
    assert "## sanitizer" in text and "its words" in text and "## times" not in text
    assert device_name("NVIDIA H200 (compute capability 9.0, 151 GB)") == "nvidia-h200"


def test_the_printed_summary_has_at_most_ten_thousand_characters() -> None:
    longest = Result("failed", "w" * 5000, details=["x" * 5000] * 100)
    lines = [line for name in PARTS for line in printed(name, longest)]
    assert sum(len(line) + 1 for line in lines) < 9500
    assert printed("suite", longest)[-1] == "  and 92 more lines"


def ran_with(words: list[str], outcomes: dict[str, Result], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """(status of the command, the parts that it ran); a part without an outcome passes."""
    ran: list[str] = []

    def run(name: str, setting: Setting, limit: float) -> Result:
        ran.append(name)
        return outcomes.get(name, MACHINE if name == "machine" else Result("passed", "done"))

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(sys, "argv", ["gpu_check", *words])
    return runner.main(), ran


def test_a_second_command_runs_again_what_failed_or_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    outcomes = {
        "probes": Result("failed", "wrong"),
        "sanitizer": Result("refused", "no"),
        "suite": Result("passed", "1 passed, 2 not run", unfinished=True),
    }
    assert ran_with(["--out", first], outcomes, monkeypatch) == (1, list(PARTS))
    assert ran_with(["--out", second, "--again", first], {}, monkeypatch) == (0, ["machine", "probes", "suite"])
    assert ran_with(["--out", second, "--parts", "suite", "first"], {}, monkeypatch) == (0, ["first", "suite"])


def test_without_a_device_no_other_part_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = {"machine": Result("failed", "no GPU")}
    assert ran_with(["--out", str(tmp_path)], none, monkeypatch) == (1, ["machine"])


def test_facts_that_need_too_much_time_do_not_end_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = {"machine": Result("failed", "not finished after 15 s", unfinished=True)}
    assert ran_with(["--out", str(tmp_path)], late, monkeypatch) == (1, list(PARTS))


def test_a_part_for_which_no_time_is_left_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran_with(["--out", str(tmp_path), "--within", "5"], {}, monkeypatch) == (1, [])
    results = runner.read(tmp_path)
    assert results["machine"].unfinished and results["machine"].summary == "not run: no time was left"


def test_facts_of_a_run_are_kept_by_the_name_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "DEVICES", tmp_path / "devices")
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    results = tmp_path / "results"
    assert ran_with(["--out", str(results)], {"times": Result("failed", "slow")}, monkeypatch)[0] == 1
    assert ran_with(["--keep", str(results)], {}, monkeypatch) == (1, [])
    (results / "facts.json").write_text('{"device": "NVIDIA H200"}\n')
    assert ran_with(["--keep", str(results)], {}, monkeypatch) == (0, [])
    assert (tmp_path / "devices" / "nvidia-h200" / "facts.json").read_text() == '{"device": "NVIDIA H200"}\n'
    assert "| times | failed | slow |" in (tmp_path / "docs" / "results" / "gpu-nvidia-h200.md").read_text()


def test_facts_of_all_devices_can_be_read() -> None:
    """A device that ran the check has a folder with its facts. Folders without them describe a device by hand."""
    for path in sorted(runner.DEVICES.glob("*/facts.json")):
        facts = machine.facts_of(path.parent)
        assert facts["attributes"]["cudaDevAttrMultiProcessorCount"] > 0 and not facts["rehearsed"], path


@pytest.mark.usefixtures("emulated_device")
def test_facts_are_written_by_the_part_and_read_again(setting: Setting) -> None:
    assert machine.run(replace(setting, rehearsed=True)).state == "passed"
    facts = machine.facts_of(setting.folder)
    assert facts["rehearsed"] and facts["attributes"] and facts["versions"]["numpy"]
    (setting.folder / "facts.json").write_text('{"device": "a GPU"}')
    with pytest.raises(KeyError, match="versions"):
        machine.facts_of(setting.folder)


def test_a_file_that_is_too_large_to_come_back_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_BYTES", 10)
    for number in range(9):
        (tmp_path / f"{number}.json").write_text("1234567890" if number else "123456789012")
    assert runner.pack(tmp_path) == ["too many files: 8.json", "0.json had 12 bytes; the rest is cut off"]
    assert (tmp_path / "0.json").read_text() == "1234567890"


# ---- a part's process ---------------------------------------------------------------------------


def part_that_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of parts run this code instead."""
    start = subprocess.Popen

    def other(command: list[str], **more: Any) -> Any:
        return start([sys.executable, "-c", code], **more)

    monkeypatch.setattr(subprocess, "Popen", other)


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr("tests.gpu_check.setting.PREPARED", tmp_path / "prepared")
    monkeypatch.setattr("tests.gpu_check.setting.REHEARSAL", tmp_path / "prepared")
    return Setting(tmp_path)


def test_a_part_that_crashes_is_a_failure_with_its_words(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    part_that_runs("import os, sys; sys.stderr.write('it was me\\n'); sys.stderr.flush(); os.abort()", monkeypatch)
    result = runner.run("first", setting, 60.0)
    assert result.state == "failed" and "-6" in result.summary and result.details == ["it was me"]


def test_a_part_that_hangs_ends_with_all_that_it_started(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the part has started holds its end of the pipe: who waits for that alone waits for a minute."""
    part_that_runs("import subprocess; print('begun', flush=True); subprocess.run(['sleep', '60'])", monkeypatch)
    begin = time.monotonic()
    result = runner.run("first", setting, limit=2.0)
    assert (result.state, result.summary, result.details) == ("failed", "not finished after 2 s", ["begun"])
    assert result.unfinished and time.monotonic() - begin < 30


def test_a_result_counts_although_the_process_ends_badly(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's libraries may fail while they are unloaded, and print what they like."""
    answer = runner.answer_of("first", setting)
    words = json.dumps({"state": "passed", "summary": "right"})
    code = f"import os; open({str(answer)!r}, 'w').write({words!r}); print('what it likes', flush=True); os.abort()"
    part_that_runs(code, monkeypatch)
    result = runner.run("first", setting, 60.0)
    assert (result.state, result.summary) == ("passed", "right")


def test_without_a_gpu_the_first_part_fails_with_the_reason(tmp_path: Path) -> None:
    from staged.runtime.cuda.devices import gpu_count

    if gpu_count()[0]:
        pytest.skip("this machine has a GPU")
    command = [sys.executable, "-m", "tests.gpu_check", "--out", str(tmp_path), "--parts", "machine"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("machine: failed after") and ": no GPU: " in done.stdout
    assert list(runner.read(tmp_path)) == ["machine"]
