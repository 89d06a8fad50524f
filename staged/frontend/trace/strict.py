"""Strict regions refuse arrays that they do not name: `with_backend(GPU, x, strict=True)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from staged.errors import StagingError
from staged.frontend.trace.lifetimes import OfBody
from staged.ir.nodes import Value
from staged.ir.types import Device
from staged.ops.array import Array, StagedArray
from staged.source import Position


class Inputs(Protocol):
    """The part of a trace that a region needs: the arrays of Python that are inputs of the program, and the position of
    a new op.
    """

    @property
    def hidden(self) -> Mapping[int, tuple[Any, Value]]: ...

    def locate(self) -> Position | None: ...


class Strict:
    """The arrays that a region names; a strict one takes no other array and no other Variable from outside.

    Numbers reach a device by value and constants are made there, so neither needs a name.
    """

    def __init__(self, device: Device, named: list[Any]) -> None:
        self.device = device
        self.ids = {id(leaf) for leaf in named}
        self.values = {leaf.value for leaf in named if isinstance(leaf, StagedArray)}
        self.named = named  # kept alive, so that ids stay unique

    def check(self, trace: Inputs, operand: Array) -> None:
        """Raise where an op of the region uses a foreign array."""
        if isinstance(operand, StagedArray) and not self.has(trace, operand):
            name = operand.value.hint if operand.value.hint and self.outside(trace, operand) is None else ""
            raise self.refusal(trace, f"`{name}`" if name else "an array", operand.type, name or "x")

    def has(self, trace: Inputs, operand: StagedArray) -> bool:
        """Return whether an operand is on the region's device: made there, named by the region,
        a number or a constant."""
        if operand.device == self.device or not operand.shape:
            return True
        if operand.value in self.values or _is_constant(operand.value):
            return True
        array = self.outside(trace, operand)
        return array is not None and id(array) in self.ids

    def outside(self, trace: Inputs, operand: StagedArray) -> object:
        """The array of Python that an operand is, if it is one."""
        return next((array for array, hidden in trace.hidden.values() if hidden is operand.value), None)

    def check_variable(self, trace: Inputs, variable: Any, device: Device) -> None:
        """Raise where the region reads or writes a Variable from outside."""
        if variable.shape and id(variable) not in self.ids and device != self.device:
            raise self.refusal(trace, f"the Variable `{variable.name}`", variable.type, variable.name)

    def refusal(self, trace: Inputs, what: str, type: Any, name: str) -> StagingError:
        """The error for a use of something foreign."""
        device = str(self.device).upper()
        return StagingError(
            f"{what} ({type}) is used in a strict region of `{device}` that does not name it",
            where=trace.locate(),
            hint=f"name it, `with_backend({device}, {name}, strict=True)`, or move it: `st.to({name}, {device})`",
        )


@dataclass(frozen=True)
class Named(OfBody):
    """The arrays that the regions around name, as far as these are on one device with the innermost."""

    inputs: Strict | None = None


def _is_constant(value: Value) -> bool:
    op = value.producer
    if op is None:
        return False
    return (op.declared.kind == "source" or op.declared.is_move) and all(map(_is_constant, op.operands))
