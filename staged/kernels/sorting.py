"""Nests of sorting: a call of a support function for each row.

Tested by `tests/ops/test_sorting.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2

from staged.errors import UnsupportedError
from staged.ir.loops import Address, Affine, ArrayRef, Axis, CallSupport, Constant, Nest
from staged.ir.sizes import product
from staged.ir.types import bool_, bound, i64
from staged.kernels.kinds import shape_of
from staged.kernels.parts import Parts, loops, without

MOST = 1 << 30
"""Elements of a row up to which their places are `int` on every device."""
LONG_ROW = 512
"""Elements of a row from which on the digits of its keys are of 11 bits, otherwise of 8."""


def sorting(name: str, p: Parts) -> Nest:
    """Each row by itself: the places of its elements in their order, the elements, or both."""
    shape, kept = p.shapes[0], shape_of(p.op.results[0])[-1]
    rows, n = product(shape[:-1]), shape[-1]
    if bound(n) > MOST:
        raise UnsupportedError(
            f"a row of more than {MOST} elements cannot be sorted, got {p.op.operands[0].type}",
            where=p.op.where,
            hint="sort shorter pieces",
        )
    if rows * kept == 0:
        return p.nest(name, [], False)
    row = Axis("i", rows)
    room = bound(n)
    for place, (number, value) in enumerate(zip(p.result_numbers, p.results, strict=True)):
        if not value.hint:
            p.outputs[place] = replace(p.outputs[place], name=("sorted", "order")[number])
    found = dict(zip(p.result_numbers, p.outputs, strict=True))
    values, order = (Address(found[number], Affine.of(row, kept)) if number in found else None for number in (0, 1))
    dtype = p.array(0).dtype
    workspace = ArrayRef("workspace", i64, workspace_words(dtype.size, room), "scratch")
    snippet = f"sort_{dtype}" if order else f"sort_values_{dtype}"
    arguments = (
        values,
        *((order,) if order else ()),
        Address(p.array(0), Affine.of(row, n)),
        CallSupport.size(n),
        CallSupport.size(kept),
        Constant(p.op.attrs["descending"], bool_),
        workspace,
    )
    call = CallSupport(f"st_{snippet}", snippet, arguments, nanoseconds=2.0 * room * (1 + log2(room + 1)))
    body = loops([row], [call]) if rows != 1 else without([call], row)
    return replace(p.nest(name, body, rows != 1), scratch=(workspace,))


def workspace_words(element_bytes: int, n: int) -> int:
    """The workspace of a row in words of 8 bytes: its records twice, and the counts of each digit of their keys."""
    key_bytes = max(element_bytes, 4)
    digit = 8 if n < LONG_ROW else 11
    digits = -(-8 * key_bytes // digit)
    return 2 * n * key_bytes // 4 + (digits << digit) // 2
