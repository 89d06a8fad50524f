"""What differs between languages of kernels, as data: how a thread finds its place, what threads do together, maths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from staged.backends.c_family.code.dialect import Dialect
from staged.backends.c_family.expr import Call, Expr, Name, Words
from staged.backends.c_family.scalars import Need, spell
from staged.ir.types import DType

NOWHERE = Name("")
LAUNCH_WORDS = frozenset("gpu grid block blocks values copied cleared".split())
"""What the host functions that start kernels have beside the kernels' parameters, which have the same names there."""


class DeviceWords(Words):
    """Functions of the device are called `st_device_...` (names of the user never begin with `st_`)."""

    def function(self, text: str) -> str:
        return f"st_device_{text.removeprefix('st_')}" if text.startswith("st_") else text


@dataclass(frozen=True)
class GpuDialect(Dialect):
    """A language of kernels. A row that says nothing is for what schedules do not ask of its devices."""

    words: Words = field(default_factory=DeviceWords)
    thread: Expr = NOWHERE
    """The number of a thread in its block."""
    block: Expr = NOWHERE
    """The number of its block."""
    block_size: Expr = NOWHERE
    """How many threads a block has."""
    add_atomically: str = ""
    """The function that adds a number to what an address holds, one thread after the other."""
    ballot: tuple[str, tuple[Expr, ...]] = ("", ())
    """The function that gives a bit for each lane of a warp, whether a condition holds there; what it takes before the condition."""
    lowest_bit: str = ""
    """The function that gives the number of the lowest bit that is set, from 1."""
    maths: Mapping[tuple[str, DType], str] = field(default_factory=dict)
    """The language's own functions, by op and dtype; ops that have none are the support library's."""
    reserved: frozenset[str] = frozenset()
    """Names that mean something in kernels, or in what surrounds them."""

    def spell(
        self, name: str, dtypes: Sequence[DType], result: DType, operands: Sequence[Expr], attrs: Mapping[str, Any], need: Need
    ) -> Expr:
        """An elementwise op on numbers in a kernel."""
        function = self.maths.get((name, dtypes[0] if dtypes else result))
        if function is not None:
            return Call(function, tuple(operands))
        return spell(name, dtypes, result, operands, attrs, need)

    def lanes_where(self, condition: Expr) -> Expr:
        """A bit for each lane of a warp, whether the condition holds there."""
        function, before = self.ballot
        return Call(function, (*before, condition))
