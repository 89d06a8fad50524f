"""The step of the probes: each fault that is planted is reported, and the process that has it takes no other check along."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu_check import probes
from tests.gpu_check.probes import arithmetic, book, epilogues, memory, networks
from tests.gpu_check.probes.book import Book, compared, leaves_of, library_calls
from tests.gpu_check.setting import MARGIN, Setting

FAULTY = "tests.gpu_check.faulty_probes"
pytestmark = pytest.mark.usefixtures("emulated_device")


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr("tests.gpu_check.setting.PREPARED", tmp_path / "prepared")
    return Setting(tmp_path, rehearsed=True)


def checks_of(line: dict[str, Any]) -> dict[str, bool]:
    return {check["what"]: check["ok"] for check in line["checks"]}


def test_fifteen_probes_are_found() -> None:
    assert len(probes.PROBES) == 15
    for place in probes.PROBES.values():
        module, _, function = place.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function)), place


def test_a_probe_continues_after_the_check_in_which_its_process_died(setting: Setting) -> None:
    line = probes.probe("dies", f"{FAULTY}:dies", setting)
    assert line["state"] == "failed" and checks_of(line) == {"check 0": True, "check 1": False, "check 2": True}
    words = line["checks"][1]["words"]
    assert words.startswith("the process was ended by SIGSEGV") and "the last line before the end" in line["first_output"]


def test_a_wrong_result_is_reported_with_its_place_and_its_source(setting: Setting) -> None:
    line = probes.probe("wrong", f"{FAULTY}:is_wrong", setting)
    assert line["state"] == "failed"
    assert checks_of(line) == {"right": True, "wrong": False, "no graph": False, "raises": False}
    wrong = line["checks"][1]
    assert wrong["worst"] == {"result": 0, "at": [3], "found": 6.0, "expected": 6.5}
    assert wrong["error"] == pytest.approx(0.05) and wrong["wrong"] == 1 and wrong["same_bits"]
    assert line["checks"][2]["words"] == "the program does not capture a CUDA graph"
    assert line["checks"][3]["words"].startswith("ValueError: planted")
    assert list(line["sources"]) == ["01_program.cu", "02_program.cu"]
    assert "__global__" in line["sources"]["01_program.cu"] and line["seed"] == book.SEED


def test_a_probe_continues_after_a_check_that_hangs(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PROCESS", 3.0)
    line = probes.probe("hangs", f"{FAULTY}:hangs", setting)
    assert line["state"] == "failed" and checks_of(line) == {"endless": False, "short": True}
    assert line["checks"][0]["words"] == "the process was ended: its time was over"
    monkeypatch.setattr(probes, "LIMIT", 2.0)
    assert probes.probe("hangs", f"{FAULTY}:hangs", setting)["state"] == "hung"
    late = Setting(setting.folder, rehearsed=True, limit=MARGIN)
    assert probes.probe("hangs", f"{FAULTY}:hangs", late)["state"] == "not begun"


def test_a_line_with_large_logs_and_sources_is_cut(setting: Setting) -> None:
    line = probes.probe("logs", f"{FAULTY}:logs", setting)
    assert line["state"] == "failed" and len(json.dumps(line)) < probes.LINE
    for name in ("cudnn.log", "cublaslt.log"):
        assert line[name].startswith("begin.") and line[name].endswith(".end") and len(line[name]) < 50_000
    assert "characters ..." in line["sources"]["00_large.cu"]
    assert 15 * probes.LINE < 16 << 20


def test_a_device_without_memory_is_a_failure_of_the_probe(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGED_CUDA_EMULATOR", "memory=600K")  # room for the arrays, not for cuBLAS's workspace
    monkeypatch.setattr(probes, "PROBES", {"nan": probes.PROBES["nan"], "skips": f"{FAULTY}:skips"})
    result = probes.run(setting)
    monkeypatch.delenv("STAGED_CUDA_EMULATOR")  # which the emulated device of this process would read at the test's end
    assert result.state == "failed" and result.summary == "1 failed, 1 skipped"
    assert any("bias and relu: ProgramMemoryError" in line or "out of memory" in line for line in result.details)
    lines = {line["probe"]: line for line in map(json.loads, (setting.folder / probes.FILE).read_text().splitlines())}
    assert lines["skips"]["state"] == "skipped" and lines["skips"]["words"] == "nothing to be found here"
    assert not checks_of(lines["nan"])["bias and relu"] and checks_of(lines["nan"])["maxima and relu"]


def test_probes_that_passed_before_are_left_out(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = setting.folder / "earlier"
    earlier.mkdir()
    lines = [{"probe": name, "state": state} for name, state in (("a", "passed"), ("b", "died"), ("c", "skipped"))]
    (earlier / probes.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"probe": "d", ')
    assert probes.passed_before(earlier) == {"a"} and probes.passed_before(None) == set()
    monkeypatch.setattr(probes, "PROBES", {"a": "nowhere:a", "load": f"{FAULTY}:skips"})
    result = probes.run(Setting(setting.folder, rehearsed=True, earlier=earlier))
    assert [row[0] for row in result.table[1:]] == ["load"]


def test_epilogues_that_lose_a_nan_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epilogues.of_nan(Book(tmp_path))
    entries = [entry for entry in probes.entries_of(tmp_path / "journal.jsonl") if "what" in entry]
    keeps = {entry["what"].rpartition(" ")[2]: entry["keeps_nan"] for entry in entries}
    assert keeps == {name: "RELU" not in name for name in epilogues.EPILOGUES}
    assert all(entry["ok"] for entry in entries)
    # Of other epilogues a lost NaN is a failure, and so is a number that is wrong.
    monkeypatch.setattr(epilogues, "epilogue", lambda name, a, b, bias: np.nan_to_num(epilogues.plain(name, a, b, bias)))
    epilogues.of_nan(Book(tmp_path / "lost"))
    entries = [entry for entry in probes.entries_of(tmp_path / "lost" / "journal.jsonl") if "what" in entry]
    assert [entry["ok"] for entry in entries] == ["RELU" in name for name in epilogues.EPILOGUES]


def test_the_probe_of_pytorch_runs_with_tensors_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    """No machine here has PyTorch for a GPU: its tensors stay on the host, where programs copy them from."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    for name in ("Stream", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *of: nullcontext())
    monkeypatch.setattr(nullcontext, "wait_stream", lambda *of: None, raising=False)
    memory.dlpack(Book(tmp_path, small=True))
    entries = [entry for entry in probes.entries_of(tmp_path / "journal.jsonl") if "what" in entry]
    assert len(entries) == 8 and all(entry["ok"] for entry in entries), entries
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor + 1)
    memory.dlpack(Book(tmp_path / "wrong", small=True))
    entries = [entry for entry in probes.entries_of(tmp_path / "wrong" / "journal.jsonl") if "what" in entry]
    assert not any(entry["ok"] for entry in entries), entries


# ---- comparing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected", "is_right"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([100.0, 1.0], [100.0, 1.05], True),  # of the largest number
        ([1.0, 1.0], [1.0, 1.05], False),
        ([], [], True),
        ([1.0], [[1.0]], False),
    ],
)
def test_results_are_compared(found: Any, expected: Any, is_right: bool) -> None:
    entry = compared(leaves_of(np.array(found)), leaves_of(np.array(expected)), 1e-3)
    assert entry["ok"] is is_right
    json.dumps(entry, allow_nan=False)


def test_programs_of_probes_call_what_the_probes_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe whose program no longer calls the library would pass and show nothing."""
    seen: list[str] = []
    monkeypatch.setattr(book.programs, "note", lambda artifact: seen.extend(library_calls(artifact.source)))
    for probe in (arithmetic.bias_gradients, networks.lstm, networks.ctc, networks.batch_norm, networks.attention):
        probe(Book(tmp_path / "probe", small=True, prepares=True))
    needed = {"CUBLASLT_EPILOGUE_BGRADA", "CUBLASLT_EPILOGUE_BGRADB", "cudnnCTCLoss_v8", "cudnnRNNBackwardData_v8", "run_plan"}
    assert needed <= set(seen)
