"""Copies that transpose: a loop over vectors that reads along the loop around it.

    for k < 100: for s < 48: panel[48*k + s] = b[100*s + k]     ->     blocks of 16 x 16, through registers

Tested by `tests/kernels/test_products.py`.
"""

from __future__ import annotations

from staged.backends.c_family.code.tree import Do
from staged.backends.c_family.code.types import INDEX
from staged.backends.c_family.contraction.vectors import (
    SHUFFLE,
    Vector,
    index_type,
    transpose_function,
    transpose_support,
)
from staged.backends.c_family.expr import Call, Conditional, Expr, Infix, Literal, address
from staged.backends.c_family.nest.lowering import ZERO, Lowering
from staged.backends.c_family.support.library import Snippet
from staged.backends.c_family.support.vectors import vector_snippet
from staged.ir.loops import Load, Loop, Store
from staged.ir.schedule import Schedule


def is_transposition(loop: Loop, schedule: Schedule) -> bool:
    """Return whether a loop and the one over vectors in it copy an array transposed, in whole blocks."""
    if len(loop.body) != 1 or not isinstance(inner := loop.body[0], Loop) or inner not in schedule.vectorised:
        return False
    match inner.body:
        case (Load() as load, Store() as store) if store.value is load.target and not load.guards:
            across, along = inner.axis, loop.axis
            lanes = schedule.lanes
            return (
                load.index.stride(along) == store.index.stride(across) == 1
                and load.index.stride(across) > 1
                and along.dim is None
                and along.extent >= lanes
                and across.extent % lanes == 0
                and load.array.dtype.size == schedule.item_bytes
            )
    return False


class Transposes:
    """Lowers copies that transpose."""

    def __init__(self, low: Lowering) -> None:
        self.low = low
        self.support: dict[Snippet, None] = {}

    def copy(self, loop: Loop) -> None:
        """The blocks of a copy. The last one of a row starts early enough to end with it: it writes some a second
        time.
        """
        low, lanes = self.low, self.low.schedule.lanes
        (inner,) = loop.body
        assert isinstance(inner, Loop)
        load, store = inner.body
        assert isinstance(load, Load) and isinstance(store, Store)
        vector = Vector(load.array.dtype, lanes)
        low.need(vector_snippet(vector.dtype.name), vector_snippet(index_type(vector)))
        self.support |= {SHUFFLE: None, transpose_support(vector): None}
        extent, step = loop.axis.extent, Literal(str(lanes))
        s = low.scoped(inner.axis)
        with low.loop(s, ZERO, Literal(str(inner.axis.extent)), step):
            k = low.scoped(loop.axis)
            with low.loop(k, ZERO, Literal(str(extent)), step):
                if extent % lanes:
                    last = Literal(str(extent - lanes))
                    first: Expr = Conditional(Infix("<", k, last), k, last)
                    low.axes[loop.axis] = low.constant("first", INDEX, first)
                source, target = (address(*low.place(each.array, each.index)) for each in (load, store))
                strides = (
                    Literal(str(number))
                    for number in (load.index.stride(inner.axis), lanes, store.index.stride(loop.axis))
                )
                stride, rows, apart = strides
                low.code.add(Do(Call(transpose_function(vector), (source, stride, rows, target, apart))))
            low.leave(k)
        low.leave(s)
