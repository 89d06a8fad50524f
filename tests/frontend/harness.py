"""What the front end's tests share: the IR of a function, and its answers traced, converted and as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staged.frontend import trees
from staged.frontend.convert import converted
from staged.frontend.trace import TracedFunction, trace
from staged.ir.printer import print_function
from tests.ir_interpreter import Interpreter


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
    interpreter = Interpreter(outer)
    return traced.rebuild(interpreter.run(traced.function, *values, *traced.hidden))


def agree(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The program, the converted function and plain Python give the same; returns plain Python's answer."""
    expected = function(*args, **kwargs)
    for how, got in (
        ("traced", interpret(trace(function, args, kwargs))),
        ("converted", converted(function)(*args, **kwargs)),
    ):
        leaves, spec = trees.flatten(got)
        wanted, wanted_spec = trees.flatten(expected)
        assert spec == wanted_spec, f"{how}: {spec}, not {wanted_spec}"
        for leaf, want in zip(leaves, wanted, strict=True):
            if want is None or isinstance(want, str):
                assert leaf == want, f"{how}: {leaf!r}, not {want!r}"
            else:
                np.testing.assert_allclose(np.asarray(leaf), np.asarray(want), rtol=1e-5, err_msg=how)
    return expected
