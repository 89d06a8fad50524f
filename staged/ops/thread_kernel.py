"""The op behind `st.gpu_func`: a launch of a kernel that the user wrote for one thread.

Operands are the kernel's parameters in their order, results the new values of the arrays that it writes. It is not in
the table of primitives: its code is in its attributes, and no rule applies to it. `thread_interpreter.py` defines its
meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from staged.errors import GradientError
from staged.ir.declaration import declare
from staged.ir.nodes import FAIL, PURE, Attrs, Effect
from staged.ir.types import TensorType, Type
from staged.ops.primitive import Primitive
from staged.source import Position

if TYPE_CHECKING:
    from staged.ir.thread_kernel import ThreadKernel

Size3 = tuple[int, int, int]


def _infer(*operands: Type, kernel: ThreadKernel, grid: Size3) -> tuple[Type, ...]:
    types = []
    for number in kernel.written:
        type = operands[number]
        assert isinstance(type, TensorType)
        types.append(TensorType(type.dtype, type.shape))
    return tuple(types)


def _reference(*operands: Any, kernel: ThreadKernel, grid: Size3) -> Any:
    from staged.ops.thread_interpreter import run_kernel

    made = run_kernel(kernel, grid, operands)
    return tuple(made) if len(made) != 1 else made[0]


def _effects(operands: Sequence[Type], attrs: Attrs) -> tuple[Effect, ...]:
    kernel: ThreadKernel = attrs["kernel"]
    return FAIL if kernel.can_fail else PURE


LAUNCH = declare(
    Primitive(
        name="gpu_func",
        kind="launch",
        infer=_infer,
        reference=_reference,
        effects=_effects,
        is_opaque=True,
        why_not_differentiable="it is a kernel, and nobody has said how",
    )
)
"""A launch. It may stop the program where an index may be out of range."""


def no_derivative(name: str, where: Position | None) -> GradientError:
    """The error for a derivative through a kernel that has none."""
    return GradientError(
        f"cannot differentiate through `{name}`: it is a kernel, and nobody has said how",
        where=where,
        hint=f"say it with `{name}.defvjp(forward, backward)`, or put `st.stop_gradient(...)` around its operands",
    )
