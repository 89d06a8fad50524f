"""Each wrong program is refused with its message, its file and line, and what to do."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import staged as st
from staged.errors import CompilerError, DataError, StagedError
from tests.errors.said import words_of
from tests.errors.wrong import FAILING, WRONG, Wrong

HEADER = '"""A wrong program."""\n\nimport staged as st\n'


def load(wrong: Wrong, folder: Path) -> tuple[ModuleType, Path]:
    file = folder / "program.py"
    file.write_text(HEADER + textwrap.dedent(wrong.body).lstrip("\n"))
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, file


def marked_line(file: Path) -> tuple[int, str]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.endswith("# !"):
            return number, line
    raise AssertionError("no line is marked")


def check(wrong: Wrong, error: StagedError, file: Path) -> None:
    assert wrong.message in error.message
    assert wrong.hint in (error.hint or ""), error.hint
    if wrong.options == "no line":
        return
    number, line = marked_line(file)
    assert error.where is not None, "the error names no line"
    assert (error.where.file, error.where.line) == (str(file), number), f"it names {error.where}"
    shown = str(error)
    assert f"program.py, line {number}, in " in shown
    assert line.strip() in shown
    assert "^" in shown
    if wrong.hint:
        assert "To fix: " in shown


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_program_is_refused_while_staging(wrong: Wrong, tmp_path: Path) -> None:
    module, file = load(wrong, tmp_path)
    if wrong.options == "leak":
        module.x_outside = wrong.args[0]
    with pytest.raises(wrong.error) as caught:
        st.function(module.f).stage(*wrong.args)
    assert isinstance(caught.value, StagedError)
    check(wrong, caught.value, file)


@pytest.mark.parametrize("wrong", FAILING, ids=lambda wrong: wrong.name)
def test_failing_program_stops_with_the_python_line(wrong: Wrong, tmp_path: Path) -> None:
    module, file = load(wrong, tmp_path)
    number, line = marked_line(file)
    function = st.function(module.f)
    with pytest.raises(wrong.error) as caught:
        function(*wrong.args)
    shown = str(caught.value)
    assert wrong.message in words_of(caught.value)
    assert f"line {number}" in shown
    assert line.replace("# !", "").strip() in shown
    with st.eager(), pytest.raises(wrong.error) as eagerly:
        function(*wrong.args)
    assert wrong.message in words_of(eagerly.value)
    assert f"line {number}" in str(eagerly.value)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STAGED_CC", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "cache"))
    body = "\n        def f(x):\n            return x * 2.0 + 17.25\n"
    module, _ = load(Wrong("", body, (), CompilerError, "", ""), tmp_path)
    with pytest.raises(CompilerError, match="no-such-compiler"):
        st.function(module.f)(2.0)


def test_unreadable_data_file(tmp_path: Path) -> None:
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"not an IDX file")
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        st.data.mnist(tmp_path)
