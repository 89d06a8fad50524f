"""The call of a function that is differentiated by all its arguments: what `jvp` and `vjp` start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staged.frontend.calls.call import call
from staged.frontend.trace.context import TraceContext
from staged.frontend.transforms.leaves import Outputs, Primals, split_aux
from staged.frontend.transforms.recording import Recording, record
from staged.ops.array import Array
from staged.source import Position


@dataclass
class PrimalCall:
    """`f` at `given`; with `has_aux` it returns a pair of result and aux."""

    f: Callable[..., Any]
    name: str
    given: Primals
    has_aux: bool
    where: Position | None

    def record(self, trace: TraceContext) -> tuple[Recording, Outputs, Outputs]:
        """The call traced, its result and its aux; it yields the arrays of the one,
        then what is staged of the other."""
        made: list[Outputs] = []

        def run(params: list[Any]) -> list[Any]:
            out, aux = self._returned(params)
            made.extend([Outputs(out), Outputs(aux, staged_only=True)])
            return [*made[0].arrays, *made[1].arrays]

        primals = [trace.value_of(array) for array in self.given.arrays]
        recording = record(trace, self.name, primals, run, self.where)
        outputs, aux = made
        return recording, outputs, aux

    def run(self, transform: Callable[..., Any], *further: Any) -> tuple[Outputs, Any, Any]:
        """The call in eager mode: its result, then what `transform(f, primals, *further)` gives, then aux."""
        made: list[Any] = []

        def run(*arrays: Array) -> list[Array]:
            out, aux = self._returned(arrays)
            made.extend([Outputs(out), aux])
            returned: list[Array] = made[0].arrays
            return returned

        given = transform(run, self.given.arrays, *further)
        outputs, aux = made
        return outputs, given, aux

    def answer(self, result: Any, derivative: Any, aux: Any) -> tuple[Any, ...]:
        """The user's result."""
        return (result, derivative, aux) if self.has_aux else (result, derivative)

    def _returned(self, arrays: Sequence[Any]) -> tuple[Any, Any]:
        return split_aux(self.name, call(self.f, *self.given.rebuild(arrays)), self.has_aux, self.where)
