"""Names for the ends of loops that a kernel computes from its dimensions, before its loops.

    const int64_t y_end = (H + 3) / 4 - 1 > 0 ? (H + 3) / 4 - 1 : 0;

Tested by `tests/kernels/test_dimensions.py`.
"""

from __future__ import annotations

from staged.code.expr import Group
from staged.code.nest.lowering import Lowering
from staged.code.tree import Declare
from staged.ir.loops import Loop, Nest, Tile, walk
from staged.ir.sizes import Extent, Extreme, Quotient, terms_of


def name_ends(low: Lowering, nest: Nest) -> list[Declare]:
    """Name the ends of loops that are extremes, or sums and products of extremes; returns the declarations."""
    declared: list[Declare] = []
    for s in walk(nest.body) if nest.counts else ():
        if isinstance(s, Loop | Tile) and _has_extreme(s.axis.size) and s.axis.size not in low.named:
            value = low.size(s.axis.size)
            end = low.variable(f"{s.axis.word or s.axis.name}_end", low.index_type)
            low.named[s.axis.size] = end
            declared.append(Declare(end, value.operand if isinstance(value, Group) else value))
    return declared


def _has_extreme(size: Extent) -> bool:
    parts = (part for monomial in terms_of(size) for part in monomial)
    return any(isinstance(part, Extreme) or (isinstance(part, Quotient) and _has_extreme(part.size)) for part in parts)
