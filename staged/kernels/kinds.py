"""Properties of ops for the kernel stage: how they move through indices, and their cost.

Tested by `tests/kernels/test_declarations.py`.
"""

from __future__ import annotations

from math import prod

from staged.errors import UnsupportedError
from staged.ir.loops import ArrayRef, ArrayRole
from staged.ir.nodes import Op, Value
from staged.ir.types import Dim, Shape, TensorType, bound


def is_scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def shape_of(value: Value) -> Shape:
    """The shape of what a kernel works on; an UnsupportedError where another axis than the first is symbolic."""
    shape = value.tensor.shape
    if any(isinstance(extent, Dim) for extent in shape[1:]):
        raise UnsupportedError(
            f"a dimension whose size is known when the program runs is the first axis of an array, got {value.type}",
            where=value.producer.where if value.producer else None,
            hint="put that axis first, or give the others sizes that are known while staging",
        )
    if shape and isinstance(shape[0], Dim) and shape[0].max is None:
        raise UnsupportedError(
            f"dimension {shape[0]} of {value.type} has no value and no bound",
            where=value.producer.where if value.producer else None,
            hint='give it both: `n = st.dim("N", n, max=64)`',
        )
    return shape


def extents(value: Value) -> tuple[int, ...]:
    """The room that memory has along each axis: the shape, with the bound of a symbolic dimension."""
    return tuple(bound(extent) for extent in shape_of(value))


def dim_of(value: Value) -> Dim | None:
    """The symbolic dimension of a value's first axis."""
    shape = shape_of(value)
    return shape[0] if shape and isinstance(shape[0], Dim) else None


def array_of(name: str, value: Value, role: ArrayRole) -> ArrayRef:
    """A value as an array of a loop nest."""
    return ArrayRef(name, value.tensor.dtype, prod(extents(value)), role, dim_of(value))


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
