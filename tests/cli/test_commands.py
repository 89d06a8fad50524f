"""The commands as a user types them: what they print, what they say when something is wrong, and JSON for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")
from click.testing import CliRunner, Result

import staged as st
from staged import system
from staged.cli import doctor
from staged.cli.commands import cli

ROOT = Path(__file__).parent.parent.parent
PROGRAM = '''\
import numpy as np
import staged as st


@st.function
def dot(x, y):
    return st.sum(x * y)


@st.function(static=("name",))
def count(n, name="turn"):
    total = 0
    for i in st.range(n):
        total += i
        print(f"{name} {i}")
    return {"total": total, "zeros": st.zeros(3), "ratio": 1.0 / total, "many": st.arange(30)}


@st.function
def first(x, i):
    return x[i]


not_staged = 3
'''


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Python file in the working folder; modules that a command loads from there do not outlive the test."""
    path = tmp_path / "some_program.py"
    path.write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield path.name
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def staged(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def succeeds(*words: str) -> Result:
    done = staged(*words)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done


def refused(*words: str) -> str:
    """The words of the error that a command ends with."""
    done = staged(*words)
    assert isinstance(done.exception, st.StagedError), f"{done.output}\n{done.exception!r}"
    return str(done.exception)


# ---- run ----------------------------------------------------------------------------------------


def test_run_prints_what_the_program_prints_and_the_results(file: str) -> None:
    done = succeeds("run", f"{file}:count", "3", "name=step")
    lines = done.stdout.splitlines()
    assert lines[:3] == ["step 0", "step 1", "step 2"]
    assert "total: 3" in lines
    assert "zeros: [0. 0. 0.]" in lines
    assert "many: int64 (30,), from 0 to 29" in lines


def test_run_as_json_keeps_standard_output_for_the_result(file: str) -> None:
    done = succeeds("run", f"{file}:count", "3", "--json")
    result = json.loads(done.stdout)
    assert result["total"] == 3 and result["zeros"] == [0.0, 0.0, 0.0]
    assert done.stderr.splitlines() == ["turn 0", "turn 1", "turn 2"]


def test_run_as_json_is_json_where_a_result_is_not_finite(file: str) -> None:
    np.save("x.npy", np.array([1.0, np.nan, -np.inf]))
    Path(file).write_text("import staged as st\n@st.function\ndef same(x):\n    return x + 0.0\n")
    assert json.loads(succeeds("run", file, "x.npy", "--json").stdout) == [1.0, "nan", "-inf"]


def test_run_reads_arrays_from_files_and_makes_them_from_types(file: str) -> None:
    np.save("x.npy", np.arange(3, dtype=np.float32))
    assert succeeds("run", f"{file}:dot", "x.npy", "x.npy").stdout == "5.0\n"
    assert succeeds("run", f"{file}:dot", "f32[3]", "x.npy").stdout == "0.0\n"


def test_run_of_a_module_with_the_name_of_one_that_is_loaded_leaves_that_alone(file: str) -> None:
    Path(file).rename("json.py")
    assert succeeds("run", "json.py:dot", "2.0", "3.0").stdout == "6.0\n"
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.py",), "there is no file nothing.py"),
        (("nothing.py:dot",), "there is no file nothing.py"),
        (("{file}",), "has 3 staged functions, name one"),
        (("{file}:absent",), "has no staged function `absent`"),
        (("{file}:not_staged",), "one of {file}:count, {file}:dot, {file}:first"),
        (("notes.txt:f",), "notes.txt is no Python file"),
        (("{file}:dot", "1.0"), "missing a required argument: 'y'"),
        (("{file}:dot", "1.0"), "it is dot(x, y)"),
        (("{file}:dot", "1", "2", "3"), "too many positional arguments"),
        (("{file}:dot", "1", "z=2"), "`dot` has no argument `z`"),
        (("{file}:dot", "absent.npy", "2"), "cannot read absent.npy"),
        (("{file}:dot", "notes.npy", "2"), "cannot read notes.npy"),
        (("{file}:dot", "f32[3]", "f32[4]"), "(3,) and (4,)"),
        (("{file}:first", "f32[3]", "7"), "{file}, line 21, in first"),
    ],
)
def test_run_says_what_is_wrong(file: str, words: tuple[str, ...], message: str) -> None:
    Path("notes.txt").write_text("notes")
    Path("notes.npy").write_text("notes")
    assert message.format(file=file) in refused("run", *(word.format(file=file) for word in words))


def test_file_without_staged_function_says_how_to_make_one(file: str) -> None:
    Path(file).write_text("x = 1\n")
    assert "decorate a function with `@staged.function`" in refused("run", file)


# ---- show ---------------------------------------------------------------------------------------


def test_show_puts_the_c_beside_the_python_it_came_from(file: str) -> None:
    rows = [row.split(" | ", 1) for row in succeeds("show", f"{file}:dot", "f32[8]", "f32[8]").stdout.splitlines()]
    beside = [left for left, right in rows if f"{file}:7" in right]
    assert beside and all("return st.sum(x * y)" in left for left in beside)


@pytest.mark.parametrize(("only", "words"), [("c", "int dot(const dot_args"), ("ir", "multiply"), ("memory", "peak")])
def test_show_one_part(file: str, only: str, words: str) -> None:
    assert words in succeeds("show", f"{file}:dot", "f32[8]", "f32[8]", "--only", only).stdout


def test_show_as_json(file: str) -> None:
    shown = json.loads(succeeds("show", f"{file}:dot", "f32[8]", "f32[8]", "--json").stdout)
    assert shown["name"] == "dot" and shown["kernels"] == 1
    assert shown["lines"] == len(shown["source"].splitlines())


# ---- export -------------------------------------------------------------------------------------


def test_export_writes_a_folder(file: str) -> None:
    files = json.loads(succeeds("export", f"{file}:dot", "f32[8]", "f32[8]", "--out", "made", "--json").stdout)
    assert {"dot.c", "dot.h", "main.c", "Makefile"} <= {Path(name).name for name in files}
    assert all(Path(name).is_file() for name in files)
    assert "build with `make -C made`" in succeeds("export", f"{file}:dot", "1.0", "2.0", "--out", "made").stdout


def test_export_for_an_unknown_machine_names_those_that_are_known(file: str) -> None:
    words = ("export", f"{file}:dot", "1.0", "2.0", "--out", "made", "--target", "pdp11")
    assert "one of native, c99, portable" in refused(*words)
    assert not Path("made").exists()


def test_export_into_a_place_that_cannot_be_a_folder(file: str) -> None:
    Path("taken").write_text("")
    assert "is a file" in staged("export", f"{file}:dot", "1.0", "2.0", "--out", "taken").output
    done = staged("export", f"{file}:dot", "1.0", "2.0", "--out", "taken/below")
    assert done.exit_code == 1 and "cannot write taken/below" in done.output


# ---- doctor and cache ---------------------------------------------------------------------------


def test_doctor_reports_what_is_there_and_what_to_do_about_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A separate cache: in the shared one other tests add programs between the two looks. The first look at OpenCL adds one, too.
    system.opencl()
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "cache"))
    findings = {finding["name"]: finding for finding in json.loads(succeeds("doctor", "--json").stdout)}
    names = {"C compiler", "vector width", "threads", "program cache", "CUDA wheels", "nvcc", "GPU", "emulated device", "OpenCL"}
    assert names <= set(findings)
    assert findings["C compiler"]["detail"] == system.compiler()
    assert all(finding["found"] or finding["remedy"] for finding in findings.values())
    text = succeeds("doctor").stdout
    assert all(finding["detail"] in text and finding["remedy"] in text for finding in findings.values())


def test_doctor_goes_on_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CC", "no-such-compiler")
    findings = {finding["name"]: finding for finding in json.loads(succeeds("doctor", "--json").stdout)}
    assert not findings["C compiler"]["found"] and "no-such-compiler" in findings["C compiler"]["detail"]


def test_doctor_reads_the_gpu_from_the_drivers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "gpus", lambda: ([], "the wheels are not there"))
    folder = tmp_path / "gpus" / "0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA Example 100\nIRQ: 1\n")
    found = doctor._gpu(tmp_path)
    assert found.detail == "NVIDIA Example 100; but the wheels are not there" and found.remedy
    assert not doctor._gpu(tmp_path / "absent").found
    monkeypatch.setattr(system, "gpus", lambda: (["Example 100 (compute capability 9.0, 80 GB)"], ""))
    assert doctor._gpu(tmp_path) == doctor.Finding("GPU", True, "Example 100 (compute capability 9.0, 80 GB)")


def test_doctor_names_what_the_emulated_device_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CXX", "no-such-compiler")
    finding = doctor._emulated_device()
    assert not finding.found and "no-such-compiler" in finding.detail and "g++" in finding.remedy
    monkeypatch.delenv("STAGED_CXX")
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    assert doctor._emulated_device().detail.startswith("in use")
    monkeypatch.setitem(sys.modules, "cuda_emulator.device", None)
    finding = doctor._emulated_device()
    assert not finding.found and finding.remedy.startswith("pip install . ./cuda_emulator")


def test_doctor_names_the_opencl_device_or_its_compilers_message(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor._opencl()
    assert found.detail.startswith(system.opencl()[0])
    monkeypatch.setattr(system, "opencl", lambda: ("PoCL", "clBuildProgram: error -11\nunknown target CPU 'generic'\n"))
    found = doctor._opencl()
    assert not found.found and "PoCL 3.1 or newer" in found.remedy
    assert found.detail == "PoCL builds no kernel: clBuildProgram: error -11 unknown target CPU 'generic'"
    monkeypatch.setattr(system, "opencl", lambda: ("", "OpenCL is not installed"))
    assert not doctor._opencl().found and ".[opencl]" in doctor._opencl().remedy


def test_cache_is_shown_and_cleared(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "cache"))
    assert json.loads(succeeds("cache", "--json").stdout)["programs"] == 0
    succeeds("run", f"{file}:dot", "2.0", "3.0")
    before = json.loads(succeeds("cache", "--json").stdout)
    assert before["programs"] > 0 and before["bytes"] > 0
    assert f"{tmp_path / 'cache'}: {before['programs']} programs" in succeeds("cache").stdout
    cleared = json.loads(succeeds("cache", "--clear", "--json").stdout)
    assert cleared["removed"] == before["programs"] and cleared["programs"] == 0


# ---- the command itself -------------------------------------------------------------------------


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "staged", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_command_in_a_process_of_its_own(file: str, tmp_path: Path) -> None:
    done = command("run", f"{file}:dot", "2.0", "3.5", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7.0\n", "")


def test_error_in_a_process_of_its_own_is_words_without_a_traceback(file: str, tmp_path: Path) -> None:
    done = command("run", f"{file}:first", "f32[3]", "7", folder=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("staged.ProgramIndexError: ") and "Traceback" not in done.stderr
    assert command("run", folder=tmp_path).returncode == 2


@pytest.mark.parametrize("name", ["run", "show", "export", "doctor", "cache"])
def test_help_has_an_example(name: str) -> None:
    assert f"Example: staged {name}" in " ".join(succeeds(name, "--help").stdout.split())


# ---- explain ------------------------------------------------------------------------------------


def test_explain_is_a_command_and_a_module(file: str) -> None:
    text = succeeds("explain", f"{file}:dot", "f32[8]", "f32[8]").stdout
    assert "## Traced" in text and "## Kernels" in text
    command = [sys.executable, "-m", "staged.explain", f"{file}:dot", "f32[8]", "f32[8]"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == text
