"""The ops behind `st.custom_op`: a call of a C function of the user's, and of its form for a device of CUDA. Its
declaration is in its attributes.

Like a kernel of `st.gpu_func` they are not in the table of primitives: no rule of another op applies to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from staged.errors import GradientError, located
from staged.ir.declaration import declare
from staged.ir.nodes import FAIL, IO, PURE, Attrs, Effect
from staged.ir.types import DType, TensorType, Type
from staged.ops.primitive import Primitive
from staged.source import Position, here

Size3 = tuple[int, int, int]
Operand = tuple[DType, int]
"""The dtype and the number of axes of an argument or a result; one without axes is a number."""


@dataclass(frozen=True)
class CudaForm:
    """The form of a function for a device of CUDA: a kernel, or a function of a library that works on a stream."""

    source: str
    """The text that defines the kernel; empty for a function of a library."""
    library: str

    def name(self, function: str) -> str:
        """The name that the user gives it: another one than the C function's, which may be in the same text."""
        return f"{function}_kernel" if self.source else f"{function}_cuda"


@dataclass(frozen=True, eq=False)
class CFunction:
    """A C function with the types of its arguments and results."""

    name: str
    arguments: tuple[Operand, ...]
    results: tuple[Operand, ...]
    shapes: Callable[..., Any]
    """The shapes of the results, for those of the arguments."""
    source: str
    """Its definition; empty for one of a library, and where it has a form for a device alone."""
    library: str
    has_effects: bool
    run: Callable[..., Any]
    """The function on arrays of NumPy's."""
    batched: Callable[..., Any] | None
    """The results for arguments that have a leading axis each; None: one element after another."""
    cuda: CudaForm | None = None
    serial: int = field(default_factory=count().__next__)

    def __str__(self) -> str:
        return f"{self.name} {self.serial}"

    @property
    def parameters(self) -> str:
        """The types of its parameters in C: an array is an address and the size of each axis, a number itself; then
        the addresses of the results.
        """
        given = [
            ", ".join([f"const {dtype.c_name} *", *["int64_t"] * axes]) if axes else dtype.c_name
            for dtype, axes in self.arguments
        ]
        return ", ".join([*given, *(f"{dtype.c_name} *" for dtype, _ in self.results)])

    def types(self, arguments: Sequence[Type]) -> tuple[TensorType, ...]:
        """The types of the results."""
        with located(here()):
            shapes = self.shapes(*(argument.shape for argument in arguments if isinstance(argument, TensorType)))
        return tuple(TensorType(dtype, tuple(shape)) for (dtype, _), shape in zip(self.results, shapes, strict=True))


def _reference(*operands: Any, function: CFunction, **launch: Any) -> Any:
    return function.run(*operands)


def _launched_types(
    *operands: Type, function: CFunction, grid: Size3 | None, block: Size3 | None
) -> tuple[TensorType, ...]:
    """Numbers that a device computes are arrays of one element."""
    return tuple(replace(type, shape=type.shape or (1,)) for type in function.types(operands))


def _launch_effects(operands: Sequence[Type], attrs: Attrs) -> tuple[Effect, ...]:
    return FAIL if attrs["function"].cuda.library else PURE


CUSTOM_OP = declare(
    Primitive(
        name="custom_op",
        kind="launch",
        takes_halves=True,
        infer=lambda *operands, function: function.types(operands),
        reference=_reference,
        effects=lambda operands, attrs: (*IO, *FAIL) if attrs["function"].has_effects else FAIL,
        why_not_differentiable="it is a C function, and nobody has said how",
    )
)
"""A call. It stops the program where the function returns another number than 0."""

CUSTOM_LAUNCH = declare(
    Primitive(
        name="custom_launch",
        kind="launch",
        takes_halves=True,
        takes_host_numbers=True,
        is_opaque=True,
        infer=_launched_types,
        reference=_reference,
        effects=_launch_effects,
        why_not_differentiable=CUSTOM_OP.why_not_differentiable,
    )
)
"""A call of the form for a device: a launch in `grid` blocks of `block` threads, or a function that stops the program
as the one of the host does (it has neither).
"""
CALLS = (CUSTOM_OP, CUSTOM_LAUNCH)


def no_derivative_of(name: str, where: Position | None) -> GradientError:
    """The error for a derivative through a C function that has none."""
    return GradientError(
        f"cannot differentiate through `{name}`: it is a C function, and nobody has said how",
        where=where,
        hint="give it one: `st.custom_op(..., vjp=...)`, or put `st.stop_gradient(...)` around its operands",
    )
