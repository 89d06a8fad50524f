"""Helpers for tests of staged code: comparing eager mode with compiled programs, checking gradients, running snippets.

from staged.testing import assert_backends_agree, check_grads, run_snippet

assert_backends_agree(f, x, 3)     # eager, C at -O0 and at -O3: results, printed text, errors, Variables
check_grads(f, (x,), order=2)      # against directional central differences in f64 (see `gradient_check.py`)
"""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import linecache
import math
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from staged.call.api import StagedFunction, function
from staged.eager_mode.context import eager
from staged.eager_mode.gradient_check import check_grads
from staged.errors import StagedError
from staged.frontend.values import trees
from staged.frontend.values.generator import numbers_again
from staged.frontend.values.variable import Variable
from staged.ir.types import dtype_of
from staged.ops.array import Array

__all__ = [
    "CapturedPrints",
    "Outcome",
    "assert_backends_agree",
    "captured_prints",
    "check_golden",
    "check_grads",
    "compare_trees",
    "load_snippet",
    "run_everywhere",
    "run_snippet",
]


def __dir__() -> list[str]:
    return __all__


# ---- printed text -------------------------------------------------------------------------------


class CapturedPrints:
    """The text printed inside a `captured_prints()`."""

    def __init__(self) -> None:
        self._stream = io.StringIO()

    @property
    def text(self) -> str:
        """All of it so far."""
        return self._stream.getvalue()

    @property
    def lines(self) -> list[str]:
        """The lines so far, without their ends."""
        return self.text.splitlines()


@contextlib.contextmanager
def captured_prints() -> Iterator[CapturedPrints]:
    """Collect what Python and generated programs print to standard output inside the `with`."""
    captured = CapturedPrints()
    with contextlib.redirect_stdout(captured._stream):
        yield captured


# ---- eager against compiled ---------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of one run: its result or error, the printed text, and the values of Variables afterwards."""

    backend: str
    result: Any
    error: Exception | None
    text: str
    variables: list[np.ndarray[Any, Any]]


_BUILTIN_ERRORS = (
    AssertionError,
    IndexError,
    ZeroDivisionError,
    FloatingPointError,
    OverflowError,
    RecursionError,
    MemoryError,
    TypeError,
    ValueError,
    RuntimeError,
)
_RTOL = {"f32": 2e-5, "f64": 1e-12}
_COLUMNS = re.compile(r" +")
_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*)(?:\.\d+)?(?:e[-+]?\d+)?")


def run_everywhere(
    f: Callable[..., Any],
    *args: Any,
    variables: Sequence[Variable] = (),
    levels: Sequence[str] = ("0", "3"),
    **kwargs: Any,
) -> list[Outcome]:
    """Run `f` in eager mode, then compiled at each optimisation level, each time from the same state.

    `variables` are the outside Variables that f writes: they are put back between the runs, as is the default
    generator. f is a staged function or a plain one. Errors while staging are raised, since no run is then possible.
    """
    staged = f if isinstance(f, StagedFunction) else function(f)
    before = [variable.numpy() for variable in variables]

    def run(backend: str) -> Outcome:
        for variable, value in zip(variables, before, strict=True):
            variable.value = value
        result, error = None, None
        with captured_prints() as captured, numbers_again():
            try:
                result = staged(*args, **kwargs)
            except Exception as caught:
                error = caught
        return Outcome(backend, result, error, captured.text, [variable.numpy() for variable in variables])

    with eager():
        outcomes = [run("eager")]
    options = staged.options
    try:
        for level in levels:
            staged.options = replace(options, optimise=level)  # type: ignore[arg-type]
            # Staged here, so that what cannot be staged or compiled raises instead of counting as the run's error.
            staged.stage(*args, **kwargs).compile()
            outcomes.append(run(f"C -O{level}"))
    finally:
        staged.options = options
    for variable, value in zip(variables, before, strict=True):
        variable.value = value
    return outcomes


def assert_backends_agree(
    f: Callable[..., Any],
    *args: Any,
    rtol: float | None = None,
    atol: float | None = None,
    variables: Sequence[Variable] = (),
    levels: Sequence[str] = ("0", "3"),
    **kwargs: Any,
) -> Any:
    """Check that eager mode and the compiled programs agree on `f(*args, **kwargs)`; returns the eager result.

    It compares the trees of results (structure, dtypes, shapes, values), the printed text, the Variables in
    `variables`, and errors (kind and message). Integers and bools must agree exactly, floats within `rtol` (default:
    2e-5 for f32, 1e-12 for f64) and `atol` (default: rtol times the largest magnitude of the array), also where they
    are printed. Raises AssertionError with the first difference, and in the end the error that all agree on.
    """
    reference, *others = run_everywhere(f, *args, variables=variables, levels=levels, **kwargs)
    for other in others:
        where = f"{other.backend} and eager mode differ"
        _compare_errors(other, reference, where)
        _compare_texts(other.text, reference.text, where, rtol)
        if reference.error is None:
            compare_trees(other.result, reference.result, rtol, atol, where)
        for index, (have, want) in enumerate(zip(other.variables, reference.variables, strict=True)):
            name = variables[index].name or f"Variable {index}"
            _compare_leaf(have, want, rtol, atol, f"{where} at {name}")
    if reference.error is not None:
        raise reference.error
    return reference.result


def compare_trees(
    have: Any, want: Any, rtol: float | None = None, atol: float | None = None, where: str = "results differ"
) -> None:
    """Check that two trees of arrays and numbers agree; raises AssertionError naming the leaf."""
    have_leaves, have_spec = trees.flatten(have)
    want_leaves, want_spec = trees.flatten(want)
    assert have_spec == want_spec, f"{where}: structure {have_spec} instead of {want_spec}"
    for path, left, right in zip(trees.paths(want_spec, "result"), have_leaves, want_leaves, strict=True):
        _compare_leaf(left, right, rtol, atol, f"{where} at {path}")


def _compare_leaf(have: Any, want: Any, rtol: float | None, atol: float | None, where: str) -> None:
    if not isinstance(want, bool | int | float | np.ndarray | np.generic | Array):
        assert type(have) is type(want) and have == want, f"{where}: {have!r} instead of {want!r}"
        return
    left, right = np.asarray(have), np.asarray(want)
    assert left.dtype == right.dtype, f"{where}: dtype {left.dtype} instead of {right.dtype}"
    assert left.shape == right.shape, f"{where}: shape {left.shape} instead of {right.shape}"
    dtype = dtype_of(right.dtype)
    if dtype is None or not dtype.is_inexact:
        np.testing.assert_array_equal(left, right, err_msg=where)
        return
    rtol = _RTOL[dtype.part.name] if rtol is None else rtol
    finite = np.abs(right[np.isfinite(right)])
    largest = float(finite.max()) if finite.size else 0.0
    atol = rtol * largest if atol is None else atol
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=where)


def _compare_errors(have: Outcome, want: Outcome, where: str) -> None:
    if have.error is None and want.error is None:
        return
    pair = f"{where}: {_describe(have.error)} instead of {_describe(want.error)}"
    if have.error is None or want.error is None:
        raise AssertionError(pair) from (have.error or want.error)
    assert _kind(have.error) is _kind(want.error), pair
    assert _NUMBER.sub("#", _message(have.error)) == _NUMBER.sub("#", _message(want.error)), pair


def _kind(error: Exception) -> type:
    return next((kind for kind in _BUILTIN_ERRORS if isinstance(error, kind)), type(error))


def _message(error: Exception) -> str:
    return error.message if isinstance(error, StagedError) else str(error)


def _describe(error: Exception | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {_message(error)}"


def _compare_texts(have: str, want: str, where: str, rtol: float | None) -> None:
    """Equal text, up to the rounding of numbers with a fraction."""
    if have == want:
        return
    both = f"{where} in the printed text:\n{have}\ninstead of:\n{want}"
    if _NUMBER.findall(have) == _NUMBER.findall(want):
        raise AssertionError(both)
    # A digit more or less also moves the columns of an array.
    have_rest, want_rest = (_COLUMNS.sub(" ", _NUMBER.sub(" #", text)) for text in (have, want))
    assert have_rest == want_rest, both
    for left, right in zip(_NUMBER.findall(have), _NUMBER.findall(want), strict=True):
        if left != right:
            assert re.search(r"[.e]", left + right), both
            numbers = [float(text.replace(",", "").replace("_", "")) for text in (left, right)]
            # The last printed digit may be rounded the other way.
            digits = max(len(part.partition(".")[2].partition("e")[0]) for part in (left, right))
            margin = 1.01 * 10.0**-digits if "e" not in left + right else 0.0
            assert math.isclose(*numbers, rel_tol=2e-5 if rtol is None else rtol, abs_tol=margin), both


# ---- golden text -------------------------------------------------------------------------------


def check_golden(text: str, path: str | Path, update: bool = False) -> None:
    """Check that `text` equals the file `path`; with `update` (pytest's `--update-golden`) write the file instead.

    Raises: AssertionError if the file is missing or differs; the actual text is then left beside it, as
    `<file>.actual`.
    """
    path = Path(path)
    actual = path.with_name(path.name + ".actual")
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        actual.unlink(missing_ok=True)
        return
    if not path.exists():
        raise AssertionError(f"no golden file {path}; write it with: pytest --update-golden")
    if text != path.read_text(encoding="utf-8"):
        actual.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; the actual text is beside it (.actual)"
    actual.unlink(missing_ok=True)


# ---- snippets -----------------------------------------------------------------------------------

_folder: Path | None = None
_numbers = itertools.count()


def load_snippet(text: str, name: str = "snippet") -> ModuleType:
    """A module made of source text, in a file of its own so that its functions can be staged.

    The text may be indented as a whole; `st` and `np` are bound in it. The file is removed when the process ends.
    """
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="staged-snippets-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    path = _folder / f"{name}_{next(_numbers)}.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    module.__dict__.update(st=sys.modules["staged"], np=np)
    linecache.checkcache(str(path))
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


def run_snippet(text: str, *args: Any, **kwargs: Any) -> Any:
    """Call the last function that a source text defines, staged if it is not yet; returns its result."""
    module = load_snippet(text)
    defined = [
        value
        for value in vars(module).values()
        if isinstance(value, StagedFunction)
        or (isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__)
    ]
    if not defined:
        raise ValueError("the snippet defines no function")
    last = defined[-1]
    return (last if isinstance(last, StagedFunction) else function(last))(*args, **kwargs)
