"""The text of a kernel on the device, and what the host must know to launch it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.geometry import Launch
from staged.code.expr import Expr, Prefix, Variable
from staged.code.kernel_text import KernelText
from staged.code.printer import print_function
from staged.code.tree import Declare, Function, Parameter
from staged.code.types import Space, pointer
from staged.code.uses import mentioned, with_parts


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """All of one parameter of a kernel from another, before it starts, unless they are one buffer; None: zeros."""

    target: Expr
    source: Expr | None
    size: Expr


@dataclass(frozen=True, slots=True)
class GpuKernel(KernelText):
    """A kernel on the device, and its launch."""

    code: Function | None = field(default=None, compare=False)
    """The tree that the text was printed from."""
    launch: Launch | None = None
    """None for a kernel of the user's: each of its launches says how many threads it has."""
    copies: tuple[WholeCopy, ...] = ()
    workspace_bytes: int = 0
    """Memory that its threads share out among them; it then takes it as `scratch`."""
    zeroes: bool = False
    """True if it only fills its result with zeros, as the host's call for it does at an address that the host knows."""
    aligned: frozenset[int] = frozenset()
    """The numbers of the operands, then results, whose addresses must be multiples of `alignment.ALIGNED`."""

    @property
    def how(self) -> str:
        return "" if self.launch is None else str(self.launch)

    def can_read(self, positions: Collection[int]) -> bool:
        """Return whether it has such a form: the host must know the grid, and the addresses and sizes of arrays that it
        copies before the launch.
        """
        if self.code is None or self.launch is None:
            return False
        given = {self.code.parameters[position].variable for position in positions}
        sizes = [copy.size for copy in self.copies] + ([] if self.launch.grid is None else [self.launch.grid])
        known = {copy.target for copy in self.copies} | {copy.source for copy in self.copies} | {*with_parts(sizes)}
        return given.isdisjoint(known)

    def reading(self, positions: Collection[int], name: str, dialect: GpuDialect) -> GpuKernel:
        """The same kernel, called `name`, with the arguments at `positions` found where an address of the device
        points.

            y_kernel(const float *x, float factor)  ->  y_of_turn_kernel(const float *x, const float *factor_at)
        """
        assert self.code is not None and self.can_read(positions)
        parameters = list(self.code.parameters)
        taken = {v.text for v in (*mentioned(self.code.body), *(parameter.variable for parameter in parameters))}
        reads = []
        for position in sorted(positions):
            variable = parameters[position].variable
            place = f"{variable.text}_at"
            while place in taken:
                place += "_"
            at = Variable(place, pointer(variable.type, Space.GLOBAL, is_const=True))
            parameters[position] = Parameter(at)
            reads.append(Declare(variable, Prefix("*", at)))
        code = replace(self.code, name=name, parameters=tuple(parameters), body=(*reads, *self.code.body))
        given = tuple((p.variable.type.before_name, p.variable.text) for p in parameters[: len(self.parameters)])
        return replace(self, name=name, text=print_function(code, dialect), parameters=given, code=code, zeroes=False)
