"""Cotangents of a branch that `where` does not choose: they are zero, and stay zero.

The rule of `where` passes 0 to this branch. The slope of `sqrt` at 0 is infinite, and 0 times infinity is NaN.
So elementwise rules keep this 0.

Exact: NaN becomes 0 if the cotangent is 0. All other numbers are those of the rule, also in second derivatives. All
other cotangents are unchanged, so that programs without `where` do not change.

Not covered are ops that combine elements (`matmul`, `softmax`, `prod`, norms): their rules add products, one of which
may be NaN. Loops, calls and branches between the `where` and an op are not covered either.
"""

from __future__ import annotations

import math
from typing import Any

from staged.ir.declaration import Declaration, prims
from staged.ir.nodes import Op, Value
from staged.ir.trips import constant_of
from staged.ops.array import Array
from staged.ops.choice import select, zeros_of
from staged.ops.composite import Composite


def is_elementwise(declared: Declaration | Any) -> bool:
    """Test whether each element of a cotangent depends on one element of the result's cotangent."""
    return declared.kind == "elementwise" or (isinstance(declared, Composite) and declared.is_diagonal)


def passes_zeros(declared: Declaration | Any) -> bool:
    """Test whether zeros of a cotangent remain zeros, or terms of sums, in the cotangents of the operands."""
    return is_elementwise(declared) or declared.by_parts or declared.is_move


def is_source(declared: Declaration | Any) -> bool:
    """Test whether the op chooses between branches."""
    return declared is prims.SELECT


def has_slope(op: Op, cotangent: Value, given: Value) -> bool:
    """Test whether the rule of `op` computes `given` from the `cotangent` and from numbers of the primal.

    Exact: a constant times 0 is 0, and the condition of a `select` is not a factor.
    """
    primal, after = {*op.operands, *op.results}, [given]
    while after:
        value = after.pop()
        if value is cotangent:
            continue
        if value in primal:
            number = constant_of(value.behind(prims.BROADCAST_TO, prims.CAST))
            if not number or not math.isfinite(number):
                return True
        elif value.producer is not None:
            after += value.producer.operands[value.producer.declared is prims.SELECT :]
    return False


def kept(cotangent: Array, given: Array) -> Array:
    """The cotangent `given` of an operand: 0, not NaN, if the `cotangent` of the result is 0."""
    return select((cotangent == 0) & (given != given), zeros_of(given), given)
