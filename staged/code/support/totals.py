"""One number from several vectors of running totals.

Tested by `tests/backends/support/test_totals.py`.
"""

from __future__ import annotations

from staged.code.expr import literal
from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.support.lanes import HALVES, lanes_snippet, reduce_snippet
from staged.code.support.library import Snippet, headers
from staged.code.support.math import function_snippet
from staged.code.support.vectors import INLINE
from staged.ir.declaration import Declaration, reductions
from staged.ir.loops import identity
from staged.ir.types import DType, f32, f64

MOST_VECTORS = 4


def _snippet(op: Declaration, combine: str, dtype: DType, vectors: int, lanes: int = 0) -> Snippet:
    """The function for vectors of the machine, or for those of so many `lanes`, one lane after another."""
    type = f"{dtype}x{lanes}" if lanes else f"{dtype}v"
    one, pairwise = reduce_snippet(op.name, type), function_snippet(combine, type)
    name, noun = reduce_snippet(op.name, type, vectors), op.noun or op.name
    pairs = "of pairs, then of pairs of pairs, then of lanes" if vectors > 1 else "lane by lane"
    lines = [
        f"// The {noun} of {vectors} vector{'s' * (vectors > 1)}: {pairs}.",
        f"{INLINE}{dtype.c_name} {name}({type} *x) {{",
    ]
    is_sign = combine in ARITHMETIC
    while vectors > 1:
        keep = (vectors + 1) // 2
        for n in range(vectors - keep):
            a, b = f"x[{n}]", f"x[{n + keep}]"
            lines.append(f"    {a} {ARITHMETIC[combine]}= {b};" if is_sign else f"    {a} = {pairwise}({b}, {a});")
        vectors = keep
    if lanes:
        start = literal(identity(op, dtype).value, dtype)
        taken = (
            f"{ARITHMETIC[combine]}= x[0][lane]"
            if is_sign
            else f"= {function_snippet(combine, dtype.name)}(x[0][lane], y)"
        )
        lines += [f"    {dtype.c_name} y = {start};", f"    for (int lane = 0; lane < {lanes}; ++lane) {{"]
        lines += [f"        y {taken};", "    }", "    return y;", "}", ""]
        needs = (lanes_snippet(dtype.name, lanes),) if is_sign else (pairwise, function_snippet(combine, dtype.name))
        return Snippet(name, "\n".join(lines), needs, headers("math"))
    needs = (one,) if is_sign else (one, pairwise)
    return Snippet(name, "\n".join([*lines, f"    return {one}(x);", "}", ""]), needs)


_COMBINED = [
    (op, op.combine.name, vectors)
    for op in reductions()
    if op.vector != "never" and op.combine is not None and op.combine.name in {**ARITHMETIC, **EXTREMES}
    for vectors in ((1, MOST_VECTORS) if op.is_extreme else range(1, MOST_VECTORS + 1))
]
"""Schedules use one vector for the extremes of short rows."""
SNIPPETS = (
    *(
        _snippet(op, combine, dtype, vectors)
        for dtype in (f32, f64)
        for op, combine, vectors in _COMBINED
        if vectors > 1
    ),
    *(_snippet(op, combine, f32, vectors, lanes) for lanes in HALVES for op, combine, vectors in _COMBINED),
)
