"""Tracebacks end at the user's line, with one frame of ours at most; what the user's code raises keeps its frames."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.base.tracebacks import trims_traceback
from staged.errors import ShapeError

X = np.ones((2, 3), np.float32)
OURS = str(Path(st.__file__).parent)


def product(a):
    if st.sum(a) > 0.0:
        for _ in st.range(3):
            a = a @ a
    return a


@st.function
def wrong_shape(x):
    y = product(x)
    return y


@st.function
def wrong_key(x):
    table = {"a": 1.0}
    if st.sum(x) > 0.0:
        x = x * table["b"]
    return x


@st.function
def wrong_keyword(x):
    return st.sum(x, bogus=3)


@st.function
def wrong_attribute(x):
    return x.no_such_thing


@st.function
def wrong_index(x, i):
    return x[i]


def squared(w):
    return st.sum(w @ w)


def frames(call: Callable[[], Any]) -> tuple[list[str], list[str], BaseException]:
    """The functions of this file and of ours in the traceback of `call`, innermost last, and the error."""
    try:
        call()
    except Exception as error:
        shown = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.name not in ("frames", "<lambda>")
        ]
        ours = [frame.name for frame in shown if frame.filename.startswith(OURS)]
        return [frame.name for frame in shown if frame.filename == __file__], ours, error
    raise AssertionError("no error")


@pytest.mark.parametrize(
    ("call", "users", "last"),
    [
        (lambda: wrong_shape(X), ["wrong_shape", "product"], "a = a @ a"),
        (lambda: wrong_shape.stage(X), ["wrong_shape", "product"], "a = a @ a"),
        (lambda: wrong_key(X), ["wrong_key"], 'x = x * table["b"]'),
        (lambda: wrong_keyword(X), ["wrong_keyword"], "return st.sum(x, bogus=3)"),
        (lambda: wrong_attribute(X), ["wrong_attribute"], "return x.no_such_thing"),
        (lambda: st.grad(squared)(X), ["squared"], "return st.sum(w @ w)"),
        (lambda: st.vjp(squared, X), ["squared"], "return st.sum(w @ w)"),
    ],
    ids=["shape", "stage", "key", "keyword", "attribute", "grad", "vjp"],
)
def test_traceback_ends_at_the_users_line(call, users, last) -> None:
    shown, ours, error = frames(call)
    assert shown == users
    assert ours in (["entry"], ["__call__"])  # of a transform, and of a staged function
    assert traceback.extract_tb(error.__traceback__)[-1].line == last


@st.function
def mapped(x):
    return (lambda y: y @ y)(x)


class Model:
    def forward(self, x):
        def inner(y):
            while st.sum(y) > 0.0:
                y = y @ y
            return y

        return inner(x)


@st.function
def with_class(x):
    class Local:
        def squared(self, y):
            if st.sum(y) > 0.0:
                y = y @ y
            return y

    return Local().squared(x)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (wrong_shape, ["wrong_shape", "product"]),
        (mapped, ["mapped", "mapped.<locals>.<lambda>"]),
        (st.function(Model().forward), ["Model.forward", "Model.forward.<locals>.inner"]),
        (with_class, ["with_class", "with_class.<locals>.Local.squared"]),
    ],
    ids=["function", "lambda", "method", "class"],
)
def test_frames_have_the_qualified_names_of_the_user(function, names) -> None:
    """As IPython and profilers show them, also with all frames."""
    with pytest.raises(ShapeError) as caught:
        function(X)
    shown, link = [], caught.value.__traceback__
    while link is not None:
        code, link = link.tb_frame.f_code, link.tb_next
        shown += [code.co_qualname] * (code.co_filename == __file__)
    assert shown[1:] == names


def test_an_error_in_a_notebook_cites_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython has a name for the file of a cell; its `Compiler.format_code_name` returns the number."""
    text = "@st.function\ndef bad(x):\n    return x @ x\n"
    file = "/tmp/ipykernel_17285/4058144547.py"
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(keepends=True), file))
    names: dict[str, Any] = {"st": st}
    exec(compile(text, file, "exec"), names)

    def cited() -> str:
        with pytest.raises(ShapeError) as caught:
            names["bad"](X)
        return str(caught.value).splitlines()[1]

    module = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert cited() == f"  {file}, line 3, in bad"  # IPython is loaded, and does not run
    cells = {file: ("Cell", "In[10]")}
    module.get_ipython = lambda: SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))  # type: ignore[attr-defined]
    assert cited() == "  Cell In[10], line 3, in bad"
    with pytest.raises(ShapeError, match=r"test_tracebacks\.py, line \d+, in product"):
        wrong_shape(X)  # of a file
    program = names["bad"].stage(np.ones((2, 2), np.float32))
    assert "Cell" not in program.source and "4058144547.py" in program.source  # equal in the next session


def test_eager_mode_shows_the_same() -> None:
    with st.eager():
        shown, ours, _ = frames(lambda: wrong_shape(X))
    assert (shown, ours) == (["wrong_shape", "product"], ["__call__"])


def test_error_of_a_running_program_ends_at_the_call() -> None:
    shown, ours, error = frames(lambda: wrong_index(X, 5))
    assert (shown, ours) == ([], ["__call__"])
    assert isinstance(error, IndexError)


def test_missing_argument_ends_at_the_call() -> None:
    shown, ours, error = frames(lambda: wrong_shape())
    assert (shown, ours) == ([], ["__call__"])
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "__call__"


def test_what_was_tried_before_is_not_shown() -> None:
    _, _, error = frames(lambda: wrong_shape(X))
    assert "During handling" not in "".join(traceback.format_exception(error))


def test_all_frames_are_shown_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_TRACEBACK", "full")
    shown, ours, error = frames(lambda: wrong_shape(X))
    assert len(ours) > 5
    assert isinstance(error, ShapeError)
    assert "product" in shown


INNER = ["entry", "entry", "outer", "broken"]


@pytest.mark.parametrize(("folder", "kept"), [("passes", INNER), ("code", INNER), ("nn", ["entry"])])
def test_fault_of_ours_keeps_its_frames(folder: str, kept: list[str]) -> None:
    """Only a fault of ours raises a KeyError below the passes; layers raise it for a wrong name."""
    text = "def outer(call):\n    call(broken)\n\n\ndef broken():\n    raise KeyError('planted')\n"
    names: dict[str, Any] = {}
    exec(compile(text, str(Path(OURS) / folder / "planted.py"), "exec"), names)
    _, ours, _ = frames(lambda: trims_traceback(names["outer"])(lambda broken: broken()))
    assert ours == kept


def test_fault_of_ours_without_a_line_of_the_users_keeps_its_frames() -> None:
    names: dict[str, Any] = {}
    exec(
        compile("def broken():\n    raise TypeError('planted')\n", str(Path(OURS) / "nn" / "planted.py"), "exec"), names
    )
    _, ours, _ = frames(trims_traceback(names["broken"]))
    assert ours == ["entry", "entry", "broken"]
