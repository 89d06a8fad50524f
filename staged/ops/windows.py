"""Slices with staged bounds: `x[i:i + 4]` has a size that is known while staging, wherever it starts.

The bounds are read as linear forms of the values they were computed from (`2 * i + 3`). If the forms differ by a
constant, or by a size, that is the width. A nonlinear term (`i // 2`) equals another if the same op
has the same operands: `x[i // 2 * 2 : i // 2 * 2 + 2]` computes its start twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.ir.declaration import Declaration, prims
from staged.ir.nodes import Value
from staged.ir.sizes import Extent, Size
from staged.ir.trips import size_of
from staged.ir.types import i64
from staged.ops.array import Array, StagedArray

_Repeated = tuple[Declaration, tuple[frozenset[Any], ...]]
"""An op and the forms of its operands."""
_Form = dict[Value | _Repeated | None, int]
"""Coefficients by value; that of None is the constant."""


def width_of(start: Any, stop: Any) -> Extent | None:
    """`stop - start` for integer bounds of which one is staged; None where it is neither known while staging nor a
    dimension.
    """
    if not isinstance(start, StagedArray) and not isinstance(stop, StagedArray):
        # Eager mode, where any two bounds have a known difference: refuse at least what no program can have.
        return int(stop) - int(start) if isinstance(start, Array) and isinstance(stop, Array) else None
    left, right = _form(start), _form(stop)
    if left is None or right is None:
        return None
    width: Extent = 0
    for value, times in _sum(right, left, -1).items():
        size = 1 if value is None else size_of(value) if isinstance(value, Value) else None
        if size is None:
            return None
        width = width + size * times
    return width


def _form(bound: Any) -> _Form | None:
    if isinstance(bound, int | np.integer):
        return {None: int(bound)}
    return _form_of(bound.value) if isinstance(bound, StagedArray) else None


def _form_of(value: Value) -> _Form:
    op = value.producer
    itself: _Form = {value: 1}
    if op is None:
        return itself
    if op.declared is prims.CONSTANT and isinstance(op.attrs["value"], int):
        return {None: op.attrs["value"]}
    if op.declared is prims.CAST and value.tensor.dtype is i64 and op.operands[0].tensor.dtype.is_integer:
        return _form_of(op.operands[0])
    if value.tensor.dtype is not i64:
        return itself
    if isinstance(size_of(value), Size):
        return itself
    # Exact: integers to an integer without effects on the value, so that equal operands give equal results.
    if op.declared in (prims.FLOOR_DIVIDE, prims.REMAINDER, prims.MINIMUM, prims.MAXIMUM):
        return {(op.declared, tuple(frozenset(_form_of(operand).items()) for operand in op.operands)): 1}
    if op.declared not in (prims.ADD, prims.SUBTRACT, prims.MULTIPLY, prims.NEGATIVE):
        return itself
    forms = [_form_of(operand) for operand in op.operands]
    if op.declared is prims.NEGATIVE:
        return _sum({}, forms[0], -1)
    left, right = forms
    if op.declared is prims.MULTIPLY:
        if not set(left) - {None}:
            left, right = right, left
        return itself if set(right) - {None} else _sum({}, left, right.get(None, 0))
    return _sum(left, right, 1 if op.declared is prims.ADD else -1)


def _sum(a: _Form, b: _Form, factor: int) -> _Form:
    """`a + factor * b`, without the values that cancel."""
    total = dict(a)
    for value, coefficient in b.items():
        total[value] = total.get(value, 0) + factor * coefficient
    return {value: coefficient for value, coefficient in total.items() if coefficient}
