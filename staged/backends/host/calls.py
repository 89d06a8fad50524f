"""Calls of the program's functions, and how a function gives its results back.

Tested by `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from staged.backends.host.body import NOTHING, OK, BodyEmitter
from staged.code.expr import Expr, Name, Prefix, call, literal
from staged.code.tree import Jump
from staged.ir.nodes import End, Function, Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import FrameType, TensorType
from staged.ir.views import Call


@dataclass(frozen=True)
class Signature:
    """A function of the program as C sees it.

    It takes the program's `state` (`m`, its buffers, where it has any), `host`, the parameters, and a pointer for each
    result; a result that is made `in_place` of an argument has no pointer of its own. It returns ST_OK or the kind of
    error that `host` describes.
    """

    name: str
    function: Function
    params: tuple[tuple[str, str], ...]
    """(C type, name) of each parameter."""
    results: tuple[tuple[str, str], ...]
    """(C type, name) of the pointer for each result; the parameter's where it is made in place."""
    in_place: Mapping[int, int]
    """By result, the parameter that it shares its memory with."""
    recursive: bool
    state: tuple[tuple[str, str], ...]
    """(C type, name) of what every function of the program takes, and passes on."""

    def declared(self) -> list[tuple[str, str]]:
        """All C parameters, in order."""
        own = [result for index, result in enumerate(self.results) if index not in self.in_place]
        return [*self.state, ("st_host *", "host"), *self.params, *own]


class Calls:
    """Emits calls of the program's functions, whose `signatures` it is given, and returns."""

    def __init__(self, body: BodyEmitter, signatures: Mapping[str, Signature]) -> None:
        self.body = body
        self.signatures = signatures

    def emit_call(self, op: Op) -> None:
        """`if (f(m, host, arguments, results) != ST_OK) return`, with what is made in place brought there before."""
        callee = self.signatures[Call(op).function]
        self.body.where(op.where)
        places: list[Expr] = []
        for result, value in enumerate(op.results):
            if is_tensor(value):
                places.append(self.body.pointer(value))
                if result in callee.in_place:
                    argument = self.body.pointer(op.operands[callee.in_place[result]])
                    if argument != places[-1]:
                        self.body.copy(places[-1], argument, value.tensor)
            else:
                self.declare_scalar_result(value)
                places.append(Prefix("&", self.body.scalars[value]))
        in_place = {param: result for result, param in callee.in_place.items()}
        arguments = [
            places[in_place[number]] if number in in_place else self.body.operand(operand)
            for number, operand in enumerate(op.operands)
        ]
        own = [place for result, place in enumerate(places) if result not in callee.in_place]
        state = [Name(name) for _, name in callee.state]
        self.body.try_(call(callee.name, *state, "host", *arguments, *own), aligns=True)

    def declare_scalar_result(self, value: Value) -> None:
        """A C variable for a number that a call gives."""
        # A call that fails leaves before it has a result, and compilers see that.
        begun: Expr = Name("NULL") if isinstance(value.type, FrameType) else NOTHING
        if isinstance(value.type, TensorType):
            begun = literal(0, value.type.dtype)
        self.body.scalars[value] = self.body.changing(value.hint, self.body.c_type(value), begun)

    def emit_return(self, end: End) -> None:
        """Every result to its place, unless it is there, then leave."""
        late, kept = [], self.body.plan.returned.values()
        for index, value in enumerate(end.operands):
            temporary = self.body.plan.staging.get((end, index))
            if temporary is not None:
                self.body.copy(self.body.field(temporary), self.body.pointer(value), value.tensor)
                late.append((index, temporary, value.tensor))
        for index, value in enumerate(end.operands):
            target = self.body.results[index]
            if (end, index) in self.body.plan.staging or index in kept:
                continue
            if not is_tensor(value):
                self.body.assign(Prefix("*", target), self.body.scalar(value))
            elif self.body.pointer(value) != target:
                self.body.copy(target, self.body.pointer(value), value.tensor)
        for index, temporary, type in late:
            self.body.copy(self.body.results[index], self.body.field(temporary), type)
        if self.body.mark is not None:
            self.body.release_store(self.body.mark)
        self.body.before_return(end)
        self.body.code.add(Jump("return", value=OK))
