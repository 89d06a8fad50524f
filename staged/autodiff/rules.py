"""Applying the derivative rules that ops declare: in the words of the refusal where there is none, in the types of the
IR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.structure import COMPOSITE
from staged.ops.array import Array
from staged.ops.composite import COMPOSITES, Composite
from staged.ops.context import bind
from staged.ops.custom import CALLS, no_derivative_of
from staged.ops.primitive import Primitive
from staged.ops.record import RecordContext
from staged.ops.thread_kernel import LAUNCH, no_derivative
from staged.source import Position


class RuleContext(RecordContext):
    """Records the ops of rules. The primal has made every check that they could repeat (an index in range).

    Exact: a rule computes with the operands and results of the primal, which has stopped where one of them does not
    pass; rules compute no integer quotients of their own.
    """

    def __init__(self, builder: Builder, locate: Callable[[], Position | None]) -> None:
        super().__init__(builder, locate=locate, checks=False)

    def fitted(self, given: Array, like: Value, rule: str) -> Value:
        """The result of a rule in the type of the value that it belongs to: Python numbers in rules may strengthen a
        weak type.

        Exact: shapes are equal, which is asserted; a dtype differs only where a weak f64 has met f32.
        """
        wanted = like.tensor
        if given.type != wanted:
            assert given.shape == wanted.shape, f"{rule} gives {given.type} for {wanted}"
            given = bind(prims.CAST, [given], dtype=wanted.dtype, weak=wanted.weak)
        return self.value_of(given)


def declared_of(op: Op) -> tuple[str, Primitive | Composite | None, dict[str, Any]]:
    """The declaration with the derivative of a primitive or composite: its name, itself, and the attributes of its
    rules.
    """
    if op.declared is not COMPOSITE:
        return op.name, op.declared if isinstance(op.declared, Primitive) else None, dict(op.attrs)
    attrs = {key: value for key, value in op.attrs.items() if key != "name"}
    return op.attrs["name"], COMPOSITES.get(op.attrs["name"]), attrs


def refusal(op: Op, name: str, declared: object) -> GradientError:
    """The error for an op that has no derivative."""
    if op.declared in CALLS:
        return no_derivative_of(op.attrs["function"].name, op.where)
    if op.declared is LAUNCH:
        return no_derivative(op.attrs["kernel"].name, op.where)
    why = getattr(declared, "why_not_differentiable", "") or "no derivative is declared for it"
    return GradientError(
        f"cannot differentiate through `{name}`: {why}",
        where=op.where,
        hint="put `st.stop_gradient(...)` around its operand if no gradient should flow through it",
    )


def closed_over(name: str, where: Position | None) -> GradientError:
    """The error for a `custom_vjp` that reads what is differentiated past its arguments."""
    return GradientError(
        f"`{name}`, a `custom_vjp`, reads a value that is being differentiated and is not among its arguments",
        where=where,
        hint="pass it as an argument, so that its cotangent has a place, or put `st.stop_gradient(...)` around it",
    )


def no_forward(name: str, where: Position | None) -> GradientError:
    """The error for forward mode through a `custom_vjp`."""
    return GradientError(
        f"forward mode through `{name}`: `custom_vjp` gives a reverse derivative, there is no forward one",
        where=where,
        hint="use reverse mode (`st.grad`, `st.vjp`, `st.jacrev`) through this function",
    )
