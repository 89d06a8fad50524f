"""One number from several vectors of running totals.

Tested by `tests/backends/support/test_totals.py`.
"""

from __future__ import annotations

from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.support.lanes import reduce_snippet
from staged.code.support.library import Snippet
from staged.code.support.math import function_snippet
from staged.ir.declaration import Declaration, reductions
from staged.ir.types import DType, f32, f64

MOST_VECTORS = 4


def _snippet(op: Declaration, combine: str, dtype: DType, vectors: int) -> Snippet:
    type, one = f"{dtype}v", reduce_snippet(op.name, dtype.name)
    name, pairwise = reduce_snippet(op.name, dtype.name, vectors), function_snippet(combine, type)
    lines = [
        f"// The {op.noun or op.name} of {vectors} vectors: of pairs, then of pairs of pairs, then of lanes.",
        f"static inline __attribute__((always_inline)) {dtype.c_name} {name}({type} *x) {{",
    ]
    while vectors > 1:
        keep = (vectors + 1) // 2
        for n in range(vectors - keep):
            a, b = f"x[{n}]", f"x[{n + keep}]"
            is_sign = combine in ARITHMETIC
            lines.append(f"    {a} {ARITHMETIC[combine]}= {b};" if is_sign else f"    {pairwise}(&{a}, &{b}, &{a});")
        vectors = keep
    text = "\n".join([*lines, f"    return {one}(x);", "}", ""])
    return Snippet(name, text, (one,) if combine in ARITHMETIC else (one, pairwise))


SNIPPETS = tuple(
    _snippet(op, op.combine.name, dtype, vectors)
    for dtype in (f32, f64)
    for op in reductions()
    if op.vector != "never" and op.combine is not None and op.combine.name in {**ARITHMETIC, **EXTREMES}
    for vectors in range(2, MOST_VECTORS + 1)
)
