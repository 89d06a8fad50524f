"""The words of NVIDIA's tools on programs, and the parts that run them, with stand-ins for the tools."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu_check import sanitizers
from tests.gpu_check.examples import EXAMPLES, attend, mnist, packs, reductions, scatter
from tests.gpu_check.sanitizers import OVER, Built, Run, reports_of, result_of, run, sanitized
from tests.gpu_check.setting import MARGIN, Setting


@pytest.mark.parametrize(("function", "arguments"), EXAMPLES, ids=[function.__name__ for function, _ in EXAMPLES])
def test_what_the_sanitizers_run_can_be_exported(
    function: object, arguments: dict[str, object], tmp_path: Path
) -> None:
    files = function.stage(*arguments.values()).export(tmp_path)  # type: ignore[attr-defined]
    assert {path.name for path in files} >= {"Makefile", "main.c"}
    inputs = (tmp_path / "main.c").read_text() + next(tmp_path.glob("*_arrays.h")).read_text()
    assert all(f'"{name}"' in inputs for name in arguments)


KINDS = {
    "elementwise with packs": (packs, "an item is 4 neighbours along j, read and written at once"),
    "a reduction by a warp": (reductions, "st_device_warp_sum_f32"),
    "a reduction by a block": (reductions, "st_device_block_sum"),
    "sums of columns": (reductions, "st_device_column_sum_f32"),
    "a scatter by search": (scatter, "__ballot_sync"),
    "attention": (attend, "// attention of 40 queries and 40 keys"),
    "the gradient of attention": (attend, "// attention: gradients by 40 keys and values"),
    "a graph of a training step": (mnist, "cudaStreamBeginCapture"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_programs_have_each_kind_of_kernel(kind: str) -> None:
    function, words = KINDS[kind]
    arguments = next(arguments for each, arguments in EXAMPLES if each is function)
    assert words in function.stage(*arguments.values()).source


# ---- what the tool says ---------------------------------------------------------------------------

MEMCHECK = """\
========= COMPUTE-SANITIZER
loss 0.25
========= Invalid __global__ write of size 4 bytes
=========     at softmax_y_kernel+0x90 in y.cu:31
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
========= Error: Race reported between Write access at softmax_y_kernel+0x90 in y.cu:31
=========     and Read access at softmax_y_kernel+0x120 in y.cu:35 [1088 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def tool_that_says(words: str, status: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The outcome of a program about which the tool says this."""
    done = subprocess.CompletedProcess([], status, words, "")
    right = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(sanitizers, "run_within", lambda command, *_: right if command[0] == "./y" else done)
    return sanitized(Built("y", ("./y",), Path(), ("softmax_y_kernel", "z_kernel"), ()), "memcheck", Setting(Path()))[0]


def test_reports_about_our_kernels_are_told_from_those_about_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tool_that_says(MEMCHECK, 9, monkeypatch)
    assert (len(run.ours), run.others, run.failure, run.refusal) == (1, 1, "", "")
    assert run.ours[0].splitlines()[:2] == ["Invalid __global__ write of size 4 bytes", "at softmax_y_kernel+0x90 in y.cu:31"]
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
    jobs = [("memcheck", Built(name, (), Path(), ("k",), ())) for name in ("a", "b")]
    clean, refused = Run([], 3, 1.0), Run([], 0, 1.0, refusal="Device not supported")
    assert result_of(jobs, [clean, clean]).state == "passed"
    assert result_of(jobs, [clean, refused]).summary == "1 of 2 runs, nothing found"
    assert result_of(jobs, [refused, refused]).state == "refused"
    found = result_of(jobs, [clean, Run(["race\nat k"], 0, 1.0)])
    assert found.state == "failed" and found.summary.endswith("look at memcheck b") and found.details == ["race\nat k"]
    assert result_of(jobs, [clean, Run([], 0, 1.0, failure="not built: no")]).state == "failed"
    late = result_of(jobs, [clean, Run([], 0, 1.0, refusal=OVER)])
    assert (late.state, late.unfinished) == ("passed", True)


# ---- the whole part, with stand-ins for the tools --------------------------------------------------

NVCC = """\
#!/bin/sh
case "$*" in *--dryrun*) echo '#$ TOP=/nowhere/bin/..' >&2; exit 0 ;; esac
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && made=$2
    case "$1" in *.cu) text=$1 ;; -arch=sm_90) right=1 ;; esac
    shift
done
[ "$right" ] || { echo "no machine code for the GPU" >&2; exit 1; }
grep -q softmax "$text" && [ -n "$NVCC_REFUSES" ] && { echo "softmax.cu(3): error: no" >&2; exit 1; }
printf '#!/bin/sh\\necho "it ran with $*"\\nexit ${PROGRAM_STATUS:-0}\\n' > "$made"
chmod +x "$made"
"""
TOOL = """\
#!/bin/sh
# compute-sanitizer, as NVIDIA's manual describes it: its own lines begin with =========, and it ends as the program does,
# unless that ends well and something was found.
echo "$@" >> "$SAID_TO_TOOL"
while [ $# -gt 0 ]; do
    case "$1" in
        --tool) tool=$2; shift 2 ;;
        --report-api-errors | --port | --launch-timeout) shift 2 ;;
        --error-exitcode) found=$2; shift 2 ;;
        --*) echo "========= Error: Unknown option $1"; exit 1 ;;
        *) break ;;
    esac
done
echo "========= COMPUTE-SANITIZER"
case "$TOOL_DOES" in
    refuses)
        echo "========= Error: Device not supported"
        echo "cudaMalloc: unknown error" >&2
        exit 2 ;;
    does_not_connect)
        echo "========= Error: No attachable process found. compute-sanitizer timed-out."
        echo "========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion."
        exit 1 ;;
    hangs) exec sleep 60 ;;
    breaks) exit 5 ;;
esac
"$@"
status=$?
if [ "$TOOL_DOES" = finds ] && [ "$1" = ./softmax ]; then
    if [ "$tool" = memcheck ]; then
        echo "========= Invalid __global__ write of size 4 bytes"
        echo "=========     at softmax_y_kernel+0x90 in softmax.cu:31"
        echo "========= ERROR SUMMARY: 1 error"
    else
        echo "========= Error: Race reported between Write access at softmax_y_kernel+0x90 in softmax.cu:31"
        echo "=========     and Read access at softmax_y_kernel+0x120 in softmax.cu:35 [32 hazards]"
        echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
    fi
    [ $status = 0 ] && status=$found
else
    [ "$tool" = memcheck ] && echo "========= ERROR SUMMARY: 0 errors"
    [ "$tool" = memcheck ] || echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
fi
exit $status
"""


X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins on the PATH, for two programs; gives the file with what the sanitizer was called with."""
    from tests.backends.cublas_cudnn import programs

    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (("nvcc", NVCC), ("compute-sanitizer", TOOL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SAID_TO_TOOL", str(tmp_path / "said"))
    monkeypatch.setattr("tests.gpu_check.setting.PREPARED", tmp_path / "prepared")
    monkeypatch.setattr(sanitizers, "capability", lambda: (9, 0))
    monkeypatch.setattr(sanitizers.toolkit, "load_libraries", lambda names: [Path("/nowhere/libcudart.so.13")])
    monkeypatch.setattr(sanitizers, "EXAMPLES", ((programs.double, {"x": X}), (programs.softmax, {"x": X})))
    return tmp_path / "said"


def test_the_part_builds_its_programs_and_runs_them_under_both_tools(tools: Path, tmp_path: Path) -> None:
    result = run(Setting(tmp_path, limit=120.0))
    assert (result.state, result.summary) == ("passed", "4 of 4 runs, nothing found")
    found = [(name, tool) for tool in ("memcheck", "racecheck") for name in ("double_", "softmax")]
    assert [row[:5] for row in result.table[1:]] == [[*each, "1", "0", "0"] for each in found]
    called = tools.read_text().splitlines()
    assert sorted(line.split()[1] for line in called) == ["memcheck"] * 2 + ["racecheck"] * 2
    assert len({line.split()[line.split().index("--port") + 1] for line in called}) == 2
    assert all(line.endswith("--x x.npy") for line in called)
    text = (tmp_path / "sanitizer.txt").read_text()
    assert text.count("==== memcheck ") == 2 and "==== racecheck softmax: 0 reports about our kernels" in text


def test_a_finding_is_told_with_its_kernel(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_DOES", "finds")
    result = run(Setting(tmp_path, limit=120.0))
    assert result.state == "failed" and result.summary == "4 of 4 runs; look at memcheck softmax, racecheck softmax"
    assert len(result.details) == 2 and all("softmax_y_kernel+0x90 in softmax.cu:31" in each for each in result.details)
    assert "Race reported between Write access at softmax_y_kernel" in (tmp_path / "sanitizer.txt").read_text()


@pytest.mark.parametrize(
    ("does", "words"),
    [("refuses", "Error: Device not supported"), ("does_not_connect", "Error: No attachable process found")],
)
def test_what_the_tool_does_not_do_here_is_a_refusal(
    does: str, words: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_DOES", does)
    result = run(Setting(tmp_path, limit=120.0))
    assert result.state == "refused" and result.summary.startswith(words)


FAILURES: dict[str, tuple[dict[str, str], Callable[[Any], bool]]] = {
    "fails": (
        {"PROGRAM_STATUS": "7", "TOOL_DOES": "refuses"},
        lambda row: row[3] == "without the tool it ends with status 7: it ran with --x x.npy",
    ),
    "fails under the tool alone": ({"TOOL_DOES": "breaks"}, lambda row: row[3].startswith("exit status 5: ")),
    "is not built": (
        {"NVCC_REFUSES": "1"},
        lambda row: row[0] != "softmax" or ("not built: " in row[3] and "softmax.cu(3): error: no" in row[3]),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_program_that_fails_is_a_failure(
    name: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, is_told = FAILURES[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    result = run(Setting(tmp_path, limit=120.0))
    assert result.state == "failed" and all(is_told(row) for row in result.table[1:3])


def test_a_tool_that_hangs_is_ended_at_the_limit(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_DOES", "hangs")
    programs = sanitizers.built_programs(Setting(tmp_path))
    assert sanitized(programs[0], "memcheck", Setting(tmp_path, limit=MARGIN + 1.0))[0].refusal == OVER


def test_without_the_tools_the_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(Setting(tmp_path)).state == "refused"
