"""Files that are saved anew after they were imported: the functions staged later are those that Python has."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import staged as st
from staged.errors import ShapeError
from staged.frontend.calls.convert import syntax_of
from staged.testing import load_snippet

FIRST = '''"""Main."""
import staged as st
from a_helper import scaled


@st.function
def program(x):
    return scaled(x) + 1.0


@st.function
def wrong(x):
    return x @ x
'''
HELPER = '''def scaled(x):
    return x * 2.0
'''
X = np.ones(3, np.float32)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Two modules in a folder, imported; their files may change."""
    (tmp_path / "a_main.py").write_text(FIRST)
    (tmp_path / "a_helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("a_main")
    for name in ("a_main", "a_helper"):
        sys.modules.pop(name, None)


def file_of(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


def test_function_is_staged_as_it_was_imported(imported: ModuleType) -> None:
    file = file_of(imported)
    file.write_text("# A line more.\n" + FIRST.replace("+ 1.0", "+ 100.0"))
    (file.parent / "a_helper.py").write_text("\n\n" + HELPER.replace("2.0", "300.0"))
    np.testing.assert_array_equal(imported.program(X), 3.0 * X)


def test_change_that_moves_no_line_is_not_taken(imported: ModuleType) -> None:
    file_of(imported).write_text(FIRST.replace("+ 1.0", "+ 100.0"))
    np.testing.assert_array_equal(imported.program(X), 3.0 * X)


def test_broken_or_removed_file_does_not_matter(imported: ModuleType) -> None:
    file_of(imported).write_text("def program(x:\n")
    np.testing.assert_array_equal(imported.program(X), 3.0 * X)
    file_of(imported).unlink()
    np.testing.assert_array_equal(imported.program(X[:2]), 3.0 * X[:2])


def test_error_shows_the_line_that_was_imported(imported: ModuleType) -> None:
    file_of(imported).write_text("\n\n\n" + FIRST.replace("x @ x", "x"))
    with pytest.raises(ShapeError) as caught:
        imported.wrong(np.ones((2, 3), np.float32))
    assert "return x @ x" in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.line == 13


def test_module_imported_again_is_staged_as_it_is_now(imported: ModuleType) -> None:
    old = imported.program
    file_of(imported).write_text("# A line more.\n" + FIRST.replace("+ 1.0", "+ 10.0"))
    np.testing.assert_array_equal(importlib.reload(imported).program(X), 12.0 * X)
    np.testing.assert_array_equal(old(X[:1]), 3.0 * X[:1])


def test_equal_code_in_two_files_has_its_own_positions(tmp_path: Path) -> None:
    places = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "same.py"
        file.write_text("def f(x):\n    return x @ x\n")
        names: dict[str, object] = {"__name__": "same"}
        exec(compile(file.read_text(), str(file), "exec"), names)
        with pytest.raises(ShapeError) as caught:
            st.function(names["f"]).stage(np.ones((2, 3), np.float32))  # type: ignore[call-overload]
        assert caught.value.where is not None
        places.append(caught.value.where.file)
    assert places == [str(tmp_path / "one" / "same.py"), str(tmp_path / "two" / "same.py")]


def test_text_of_a_recursive_program_does_not_depend_on_who_stages_it() -> None:
    @st.function
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    first = factorial.stage(5).source
    second = st.function(factorial.__wrapped__).stage(5).source  # a stranger's line
    assert first == second
    assert "stranger" not in second


def test_threads_parse_one_after_another() -> None:
    """Python 3.11 counts the depth of a tree that it makes for all threads together, and fails where two make one at a time."""
    long = "def f(x):\n" + "    x = x + (x * 2.0 - (x, x)[0])\n" * 300 + "    return x\n"
    functions = [load_snippet(f"{long}# {name}\n").f for name in ("first", "second")]
    inside = [threading.Event(), threading.Event()]
    first_is_done = threading.Event()
    failed: list[BaseException] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        """The collector runs while a tree is made; a thread that waits here lets others go on."""
        if threading.current_thread() is threads[0] and not inside[0].is_set():
            inside[0].set()
            inside[1].wait(0.1)  # the other does not come so far
        elif threading.current_thread() is threads[1] and not inside[1].is_set():
            inside[1].set()
            first_is_done.wait(60)

    def parse(number: int) -> None:
        try:
            if number:
                inside[0].wait(60)
            syntax_of(functions[number])
        except BaseException as error:
            failed.append(error)
        if not number:
            first_is_done.set()

    threads = [threading.Thread(target=parse, args=(number,)) for number in range(2)]
    usual = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(50)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(collecting)
    assert inside[0].is_set()
    assert inside[1].is_set()
    assert not failed


@pytest.mark.parametrize("is_installed", [True, False])
def test_package_in_a_folder_of_pip_target_is_not_converted(is_installed: bool, tmp_path: Path) -> None:
    """`pip install --target FOLDER` leaves a record beside each package; without it the folder is the user's."""
    (tmp_path / "halves.py").write_text("def half(x):\n    return x / 2\n")
    if is_installed:
        (tmp_path / "halves-1.0.dist-info").mkdir()
    code = "import halves\nfrom staged.source import is_installed\nprint(is_installed(halves.__file__))"
    folders = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": folders}, capture_output=True, text=True)
    assert done.stdout.strip() == str(is_installed), done.stderr
