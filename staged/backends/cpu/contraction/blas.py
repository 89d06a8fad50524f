"""Matrix products by a BLAS that the user links: one call for each matrix, and what happens to its elements behind it.

Tested by `tests/runtime/test_blas.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from staged.backends.cpu.contraction.items import over_items
from staged.backends.cpu.contraction.operands import batch_items, batch_terms
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec
from staged.backends.cpu.contraction.text import added
from staged.backends.cpu.contraction.vectors import vector_of
from staged.code.support.library import Snippet
from staged.code.writer import Writer
from staged.ir.machine import Blas, Machine
from staged.ir.types import DType, f32, f64

LEAST = 10_000
"""Multiply-adds from which on a call pays."""
LARGEST = 2**31 - 1
_LETTERS = {f32: "s", f64: "d"}
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112  # the numbers of CBLAS's enumerations


def goes_to_blas(spec: MatmulSpec) -> bool:
    """Return whether the library computes a product: a large one whose sizes its integers hold."""
    fits = max(spec.m, spec.n, spec.k) <= LARGEST
    return spec.dtype in _LETTERS and fits and spec.multiply_adds >= LEAST


def emit_blas(spec: MatmulSpec, machine: Machine, blas: Blas) -> ContractionKernel:
    """The C text of a product by a library. Numerics: the order of the sums is the library's."""
    t, vector = Writer(), vector_of(machine, spec.dtype)
    function = blas.function(f"cblas_{_LETTERS[spec.dtype]}gemm")
    items = prod(spec.batch)
    scratch = spec.m * spec.n if spec.epilogue is not None else 0
    one, zero = ("1.0f", "0.0f") if spec.dtype is f32 else ("1.0", "0.0")
    m, k = ("(int)count" if spec.counted == side else str(size) for side, size in (("m", spec.m), ("k", spec.k)))
    rank = len(spec.batch)
    a, lda = _form(spec.a_strides[rank:], spec.m, spec.k)
    b, ldb = _form(spec.b_strides[rank:], spec.k, spec.n)

    def emit_item() -> None:
        if items > 1 or spec.epilogue is not None:
            t.line(f"const int64_t batch = {'item' if items > 1 else '0'};")
        left, right = (
            added(name, *batch_terms(spec.batch, strides))
            for name, strides in zip(spec.operand_names, (spec.a_strides, spec.b_strides), strict=True)
        )
        target = (
            added(spec.result_name, *batch_terms(spec.batch, spec.c_strides)) if spec.epilogue is None else "scratch"
        )
        t.statement(
            f"{function}({_ROW_MAJOR}, {a}, {b}, {m}, {spec.n}, {k}, {one}, {left}, {lda}, {right}, {ldb}, {zero}, "
            f"{target}, {spec.n});"
        )
        if spec.epilogue is not None:
            rows = "count" if spec.counted == "m" else str(spec.m)
            names = spec.epilogue.passed
            t.statement(f"{spec.epilogue.function}(batch, 0, 0, {rows}, {spec.n}, scratch, {spec.n}{names});")

    batch = "".join(f"{extent}, " for extent in spec.batch)
    notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), {spec.dtype}, by BLAS"]
    kernel = over_items(spec, vector, t, notes, emit_item, items, scratch, batch_items(spec, items))
    return replace(kernel, support=(*kernel.support, _declared(function, spec.dtype)), link=blas.link)


def _form(strides: tuple[int, ...], rows: int, columns: int) -> tuple[int, int]:
    """(whether a matrix lies transposed in memory, as CBLAS says it; the distance of its rows, or columns)."""
    row, column = strides
    if column == 1 or columns == 1:
        return _PLAIN, max(row, columns)
    assert row == 1 or rows == 1, f"no matrix of rows or columns: {strides}"
    return _TRANSPOSED, max(column, rows)


def _declared(function: str, dtype: DType) -> Snippet:
    """The declaration of a function of CBLAS, whose enumerations are ints."""
    x = dtype.c_name
    return Snippet(
        f"blas_{function}",
        f"""\
#ifdef __cplusplus
extern "C"
#endif
void {function}(int order, int transpose_a, int transpose_b, int m, int n, int k, {x} alpha, const {x} *a, int lda,
        const {x} *b, int ldb, {x} beta, {x} *c, int ldc);
""",
    )
