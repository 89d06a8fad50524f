"""Mapped programs without a compiler: traced, all transforms fulfilled, run by the interpreter; against eager mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.nodes import Function, walk_ops
from staged.ir.verifier import verify
from staged.pipeline import PASSES
from staged.testing import compare_trees
from tests.frontend.harness import interpret

UNTIL = "inline composites"


def fulfilled(function: Function) -> Function:
    """The program after the passes that leave primitives, control flow and calls."""
    for name, run in PASSES:
        function = run(function)
        verify(function, name)
        if name == UNTIL:
            return function
    raise AssertionError(f"there is no pass called {UNTIL}")


def agrees(f: Callable[..., Any], *args: Any, rtol: float = 1e-12, atol: float | None = None) -> Any:
    """Check that the program gives what eager mode gives, where `vmap` is a loop over rows; returns that."""
    with st.eager():
        expected = st.function(f)(*args)
    traced = trace(f, args)
    traced = replace(traced, function=fulfilled(traced.function))
    compare_trees(interpret(traced), expected, rtol=rtol, atol=atol)
    return expected


def ops_of(f: Callable[..., Any], *args: Any) -> list[str]:
    """The names of the ops of the program, in order."""
    return [op.name for op in walk_ops(fulfilled(trace(f, args).function).block)]
