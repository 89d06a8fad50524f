"""Helpers of the front end's tests: the IR of a function, its answers traced, converted and as plain Python, and tables
of sample programs that are run in plain Python, in eager mode, at -O3 and at -O0 under sanitizers, and differentiated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.calls.arguments import flatten_arguments
from staged.frontend.calls.convert import converted
from staged.frontend.trace_function import TracedFunction, trace
from staged.frontend.values import trees
from staged.frontend.values.generator import numbers_again
from staged.ir.printer import print_function
from staged.ops.array import Array
from staged.testing import (
    Outcome,
    _compare_errors,
    _compare_texts,
    _kind,
    captured_prints,
    compare_trees,
    run_everywhere,
)
from tests.ir_interpreter import Interpreter
from tests.sanitized import run_sanitized


def ir(function: Callable[..., Any], *args: Any, static: tuple[str, ...] = (), **kwargs: Any) -> str:
    """The traced IR as text."""
    return print_function(trace(function, args, kwargs, static).function)


def ops(text: str) -> list[str]:
    """The names of the ops in printed IR, in order."""
    names = []
    for line in text.splitlines():
        call = line.split(" = ", 1)[-1].strip()
        name = call.split("(", 1)[0]
        if name.isidentifier() and name not in ("func", "yield"):
            names.append(name)
    return names


def interpret(traced: TracedFunction) -> Any:
    """The answer of the program, by the reference interpreter."""
    values = [argument.value for argument in traced.arguments]
    outer = {
        ref: np.asarray(variable)
        for ref, variable in zip((r for r in traced.function.variables if r.outer), traced.variables, strict=True)
    }
    interpreter = Interpreter(dict(outer))
    result = traced.rebuild(interpreter.run(traced.function, *values, *traced.hidden))
    for ref, variable in zip(outer, traced.variables, strict=True):
        if variable.part:  # random numbers go on
            variable.buffer()[...] = interpreter.variables[ref]
    return result


def agree(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The program, the converted function and plain Python give the same; returns plain Python's answer."""
    with numbers_again():
        expected = function(*args, **kwargs)
    with numbers_again():
        interpreted = interpret(trace(function, args, kwargs))
    for how, got in (("traced", interpreted), ("converted", converted(function)(*args, **kwargs))):
        leaves, spec = trees.flatten(got)
        wanted, wanted_spec = trees.flatten(expected)
        assert spec == wanted_spec, f"{how}: {spec}, not {wanted_spec}"
        for leaf, want in zip(leaves, wanted, strict=True):
            if want is None or isinstance(want, str):
                assert leaf == want, f"{how}: {leaf!r}, not {want!r}"
            else:
                np.testing.assert_allclose(np.asarray(leaf), np.asarray(want), rtol=1e-5, err_msg=how)
    return expected


# ---- sample programs: plain Python, eager, -O3, and -O0 with sanitizers ------------------------------


@dataclass(frozen=True)
class Case:
    """A sample program: a function, the arguments of each run, and which of them its gradient is checked for.

    `meaning` is what it means in plain Python and NumPy, where that is not the function itself. `static` names static
    arguments, `variables` are outside Variables that the function uses. A run in which plain Python raises must raise
    alike everywhere.
    """

    function: Callable[..., Any]
    runs: Sequence[tuple[Any, ...]]
    wrt: tuple[int, ...] = ()
    meaning: Callable[..., Any] | None = None
    static: tuple[str, ...] = ()
    variables: Sequence[st.Variable] = ()
    rtol: float = 1e-5

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def plain(self) -> Callable[..., Any]:
        return self.meaning or self.function


def each(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Parametrizes a test over a table: `@each(CASES) def test_programs(case): check_program(case)`."""
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return pytest.mark.parametrize("case", cases, ids=names)


def differentiated(cases: Sequence[Case]) -> list[Case]:
    """The cases whose gradients are checked."""
    return [case for case in cases if case.wrt]


def checks_of(cases: Sequence[Case]) -> tuple[Callable[[Case], None], Callable[[Case], None]]:
    """The two tests of a table, for its module to name: `test_programs, test_gradients = checks_of(CASES)`."""

    @each(cases)
    def test_programs(case: Case) -> None:
        check_program(case)

    @each(differentiated(cases))
    def test_gradients(case: Case) -> None:
        check_gradient(case)

    return test_programs, test_gradients


def check_program(case: Case) -> None:
    """Plain Python, eager mode, the program at -O3 and at -O0 under sanitizers agree on every run of the case."""
    staged = st.function(case.function, static=case.static)
    for args in case.runs:
        plain = _plain_outcome(case, args)
        # `run_everywhere` puts the Variables back.
        eager, *others = run_everywhere(staged, *args, variables=case.variables, levels=("3",))
        others.append(_sanitized_outcome(staged, args, case))
        _compare_with_plain(eager, plain, case)
        for other in others:
            where = f"{other.backend} and eager mode differ at {_shown(args)}"
            _compare_errors(other, eager, where)
            _compare_texts(other.text, eager.text, where, case.rtol)
            if eager.error is None:
                compare_trees(other.result, _as_in_program(eager.result, other.result), case.rtol, None, where)
            for have, want in zip(other.variables, eager.variables, strict=True):
                compare_trees(have, want, case.rtol, None, where)


def check_gradient(case: Case, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The gradient, compiled (-O0 under sanitizers) and in eager mode, is that of central differences in plain Python.

    Float arguments in `case.wrt` are taken at f64. What is differentiated is a fixed combination of all float results.
    Runs in which plain Python raises are left out; some run must remain.
    """
    gradient = st.function(gradient_of(case.function, case.wrt), static=case.static)
    checked = 0
    for args in case.runs:
        points = [
            np.asarray(arg, np.float64) if index in case.wrt and isinstance(arg, np.ndarray) else arg
            for index, arg in enumerate(args)
        ]
        if _plain_outcome(case, points).error is not None:
            continue
        want = differences(numbers_again()(lambda *values: combined(case.plain(*values))), points, case.wrt)
        with st.eager(), numbers_again():
            in_eager = gradient(*points)
        compiled = _sanitized_outcome(gradient, tuple(points), case)
        if compiled.error is not None:
            raise compiled.error
        for how, have in (("eager mode", in_eager), ("the program", compiled.result)):
            for index, ours, theirs in zip(case.wrt, have, want, strict=True):
                where = f"{how}, argument {index}, at {_shown(args)}"
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=rtol, atol=atol, err_msg=where)
        checked += 1
    assert checked, "no run whose gradient could be checked"


def check_refusal(
    program: Callable[..., Any], args: Sequence[Any], error: type[st.StagedError], message: str, hint: str
) -> None:
    """Staging the program raises `error`, with words of its message and hint, and names a place in the program's file."""
    with pytest.raises(error) as caught:
        st.function(program).stage(*args)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.where is not None
    assert caught.value.where.file == program.__code__.co_filename


def gradient_of(function: Callable[..., Any], wrt: tuple[int, ...]) -> Callable[..., Any]:
    """The gradient of a fixed combination of the float results, as a function to be staged."""

    def gradient(*args: Any) -> Any:
        return st.grad(lambda *values: combined(function(*values)), argnums=wrt)(*args)

    gradient.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # `static` names its arguments
    gradient.__name__ = f"{function.__name__}_gradient"
    return gradient


def combined(result: Any) -> Any:
    """A fixed combination of the float leaves of `result`, in which no two elements weigh the same."""
    total = 0.0
    for number, leaf in enumerate(trees.flatten(result)[0]):
        if is_float(leaf):
            shape = tuple(getattr(leaf, "shape", ()))
            weights = np.cos(number + 1.0 + 0.7 * np.arange(np.prod(shape, dtype=int))).reshape(shape)
            total = total + st.sum(leaf * st.asarray(weights))
    return total


def is_float(leaf: Any) -> bool:
    """Whether a leaf is a floating-point number or array."""
    if isinstance(leaf, Array):
        return leaf.dtype.is_float
    return isinstance(leaf, float) or (isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind == "f")


def differences(
    function: Callable[..., Any], points: Sequence[Any], wrt: tuple[int, ...], eps: float = 1e-5
) -> list[np.ndarray[Any, Any]]:
    """Central differences of a scalar function of plain Python, in f64."""
    out = []
    for index in wrt:
        base = np.asarray(points[index], np.float64)
        slope = np.zeros_like(base)
        for where in np.ndindex(base.shape):
            values = []
            for step in (eps, -eps):
                moved = base.copy()
                moved[where] += step
                value = moved if isinstance(points[index], np.ndarray) else float(moved)
                arguments = [value if number == index else _copy(point) for number, point in enumerate(points)]
                with np.errstate(all="ignore"), captured_prints():
                    values.append(float(np.asarray(function(*arguments))))
            slope[where] = (values[0] - values[1]) / (2 * eps)
        out.append(slope)
    return out


def _as_in_program(eager: Any, program: Any) -> Any:
    """The eager result, its Python numbers in the program's dtypes: numbers of several paths have one type there."""
    leaves, spec = trees.flatten(eager)
    others, other_spec = trees.flatten(program)
    if spec != other_spec:
        return eager
    out = []
    for leaf, other in zip(leaves, others, strict=True):
        if isinstance(leaf, int | float) and not isinstance(leaf, np.generic):
            leaf = other.dtype.type(leaf) if isinstance(other, np.ndarray | np.generic) else type(other)(leaf)
        out.append(leaf)
    return trees.unflatten(spec, out)


def _copy(value: Any) -> Any:
    return trees.map_leaves(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, value)


def _shown(args: Sequence[Any]) -> str:
    return ", ".join(np.array2string(arg, threshold=8) if isinstance(arg, np.ndarray) else repr(arg) for arg in args)


@numbers_again()
def _plain_outcome(case: Case, args: Sequence[Any]) -> Outcome:
    before = [variable.numpy() for variable in case.variables]
    result, error = None, None
    with captured_prints() as printed, np.errstate(all="ignore"):
        try:
            result = case.plain(*_copy(tuple(args)))
        except Exception as caught:
            error = caught
    after = [variable.numpy() for variable in case.variables]
    for variable, value in zip(case.variables, before, strict=True):
        variable.value = value
    return Outcome("plain Python", result, error, printed.text, after)


@numbers_again()
def _sanitized_outcome(staged: Any, args: tuple[Any, ...], case: Case) -> Outcome:
    program = staged.stage(*args)
    traced = program._traced
    given = flatten_arguments(staged.__wrapped__, args, {}, case.static).staged
    values = [argument.value for argument in given]
    buffers = [variable.numpy() for variable in traced.variables]
    (outcome,) = run_sanitized(program._artifact, [([*values, *traced.hidden], buffers)])
    result = None
    if outcome.error is None:
        weak = program.runnable.weak or [False] * len(outcome.results)
        result = traced.rebuild(
            [leaf.item() if is_number else leaf for leaf, is_number in zip(outcome.results, weak, strict=True)]
        )
    after = {id(variable): value for variable, value in zip(traced.variables, outcome.variables, strict=True)}
    kept = [after.get(id(variable), variable.numpy()) for variable in case.variables]
    return Outcome("C -O0 with sanitizers", result, outcome.error, outcome.text, kept)


def _compare_with_plain(have: Outcome, want: Outcome, case: Case) -> None:
    where = "eager mode and plain Python differ"
    if have.error is None and want.error is None:
        leaves, spec = trees.flatten(have.result)
        wanted, wanted_spec = trees.flatten(want.result)
        assert spec == wanted_spec, f"{where}: structure {spec} instead of {wanted_spec}"
        for leaf, value in zip(leaves, wanted, strict=True):
            if value is None or isinstance(value, str):
                assert leaf == value, f"{where}: {leaf!r} instead of {value!r}"
            else:
                np.testing.assert_allclose(
                    np.asarray(leaf), np.asarray(value), rtol=case.rtol, atol=1e-6, err_msg=where
                )
    elif have.error is None or want.error is None or _kind(have.error) is not _kind(want.error):
        raise AssertionError(f"{where}: {have.error!r} instead of {want.error!r}") from (have.error or want.error)
    _compare_texts(have.text, want.text, where, case.rtol)
    for ours, theirs in zip(have.variables, want.variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=case.rtol, err_msg=where)
