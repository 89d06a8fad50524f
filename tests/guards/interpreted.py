"""Programs that the reference interpreter runs: traces, guards and calls are the real ones, and nothing is compiled.

Guards are about what a trace reads; a C compiler in each test of them would make a thousand too dear.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from staged.call.program import Program
from staged.call.runnable import Loaded
from staged.ir.nodes import Function
from staged.pipeline import PASSES
from tests.ir_interpreter import Interpreter

_FULFIL = [run for name, run in PASSES if name in ("normalize exits", "fulfil transforms")]


class Interpreted:
    """Stands for a loaded program."""

    def __init__(self, function: Function) -> None:
        for run in _FULFIL:
            function = run(function)
        self.function = function
        self.outer = [ref for ref in function.variables if ref.outer]
        parameters = [SimpleNamespace(role="input", device="cpu") for _ in function.params]
        parameters += [
            SimpleNamespace(role="variable", device="cpu", written=True, label=ref.name) for ref in self.outer
        ]
        self.artifact = SimpleNamespace(parameters=parameters, departs=False)

    def short(self, kinds: Any, otherwise: Any, as_array: Any = None, is_single: bool = False, known: Any = ()) -> None:
        """There is no short way."""

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        count = len(self.function.params)
        held = dict(zip(self.outer, values[count:], strict=True))
        state = {ref: np.array(place) for ref, place in held.items()}
        found = Interpreter(state).run(self.function, *values[:count])
        for ref, place in held.items():
            place[...] = state[ref]
        return tuple(np.array(value) for value in found)


def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs interpreted for the rest of a test; two with the same key are one, as they are when compiled."""

    def native(program: Program) -> Interpreted:
        known = program._loaded
        if program.key not in known:
            known[program.key] = Loaded(Interpreted(program._traced.function), program.key)  # type: ignore[arg-type]
        return known[program.key].native  # type: ignore[return-value]

    monkeypatch.setattr(Program, "_native", property(native))
