"""Properties of ops for the kernel stage: how they move through indices, and their cost.

Tested by `tests/kernels/test_declarations.py`.
"""

from __future__ import annotations

from math import isinf

from staged.errors import UnsupportedError
from staged.ir.loops import ArrayRef, ArrayRole
from staged.ir.nodes import Op, Value
from staged.ir.sizes import bounds_of, product
from staged.ir.types import Shape, TensorType, bound


def is_scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def shape_of(value: Value) -> Shape:
    """The shape of what a kernel works on. Raises: UnsupportedError for a dimension without a bound."""
    shape = value.tensor.shape
    for extent in shape:
        if isinf(bounds_of(extent)[1]):
            raise UnsupportedError(
                f"dimension {extent} of {value.type} has no value and no bound",
                where=value.producer.where if value.producer else None,
                hint='give it both: `n = st.dim("N", n, max=64)`',
            )
    return shape


def extents(value: Value) -> tuple[int, ...]:
    """The shape, with the bounds of sizes that are known when the program runs."""
    return tuple(bound(extent) for extent in shape_of(value))


def array_of(name: str, value: Value, role: ArrayRole) -> ArrayRef:
    """A value as an array of a loop nest."""
    return ArrayRef(name, value.tensor.dtype, product(shape_of(value)), role)


def is_elementwise(op: Op) -> bool:
    """Return whether an op computes each element of its result from the elements at the same place."""
    declared = op.declared
    return declared.kind in ("elementwise", "random") and not declared.is_move


def is_inlined(op: Op) -> bool:
    """Return whether every kernel that reads the result has a copy of the op: it moves elements, or makes them from
    nothing.
    """
    return op.declared.is_move or op.declared.kind == "source"


def may_fail(op: Op) -> bool:
    return any(effect.kind == "fail" for effect in op.effects)
