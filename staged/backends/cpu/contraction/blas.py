"""Matrix products by a BLAS that the user links: one call for each matrix, and what happens to its elements behind it.

Tested by `tests/runtime/test_blas.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from staged.backends.cpu.contraction.items import over_items
from staged.backends.cpu.contraction.operands import batch_terms
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec
from staged.backends.cpu.contraction.text import added
from staged.backends.cpu.contraction.vectors import vector_of
from staged.code.expr import Cast, Expr, Infix, Name
from staged.code.support.library import Snippet
from staged.code.writer import Writer
from staged.ir.machine import Blas, Machine
from staged.ir.sizes import Extent, largest
from staged.ir.types import DType, f32, f64

LEAST = 10_000
"""Multiply-adds from which on a call pays."""
LARGEST = 2**31 - 1
Form = tuple[int, int | str]
"""Whether a matrix lies transposed in memory, as CBLAS says it, and the distance of its rows, or columns."""
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
    rank, matrices = len(spec.batch), spec.matrices
    m, n, k, ldc = map(str, (spec.m, spec.n, spec.k, spec.n))
    rows, columns = m, n
    if matrices is None:
        forms: tuple[Form, Form] = (
            _form(spec.a_strides[rank:], spec.m, spec.k),
            _form(spec.b_strides[rank:], spec.k, spec.n),
        )
    else:
        rows, columns, _ = (str(_number(extent, spec)) for extent in matrices.matrix)
        m, n, k = (_integer(extent, spec) for extent in matrices.matrix)
        (turned_a, turned_b), ldc = matrices.turned, _distance(matrices.n, spec)
        forms = (
            (_TRANSPOSED, _distance(matrices.m, spec)) if turned_a else (_PLAIN, _distance(matrices.k, spec)),
            (_TRANSPOSED, _distance(matrices.k, spec)) if turned_b else (_PLAIN, ldc),
        )
    (a, lda), (b, ldb) = forms

    def matrix(name: str, strides: tuple[int, ...], *axes: int) -> str:
        """The matrix number `batch` of an operand, of so many elements."""
        if matrices is None:
            return added(name, *batch_terms(spec.batch, strides))
        size = prod(matrices.matrix[axis] for axis in axes)
        return name if matrices.batch == 1 else f"{name} + {Infix('*', Name('batch'), _number(size, spec))}"

    def emit_item() -> None:
        if items > 1 or spec.epilogue is not None:
            t.line(f"const int64_t batch = {'item' if items > 1 else '0'};")
        left = matrix(spec.operand_names[0], spec.a_strides, 0, 2)
        right = matrix(spec.operand_names[1], spec.b_strides, 2, 1)
        target = matrix(spec.result_name, spec.c_strides, 0, 1) if spec.epilogue is None else "scratch"
        t.statement(
            f"{function}({_ROW_MAJOR}, {a}, {b}, {m}, {n}, {k}, {one}, {left}, {lda}, {right}, {ldb}, {zero}, "
            f"{target}, {ldc});"
        )
        if spec.epilogue is not None:
            names = spec.epilogue.passed
            t.statement(f"{spec.epilogue.function}(batch, 0, 0, {rows}, {columns}, scratch, {columns}{names});")

    batch = "".join(f"{extent}, " for extent in spec.batch)
    notes = [f"({batch}{spec.m}, {spec.k}) @ ({batch}{spec.k}, {spec.n}), {spec.dtype}, by BLAS"]
    found = 0 if matrices is None else matrices.batch
    kernel = over_items(spec, vector, t, notes, emit_item, items, scratch, found)
    return replace(kernel, support=(*kernel.support, _declared(function, spec.dtype)), link=blas.link)


def _form(strides: tuple[int, ...], rows: int, columns: int) -> Form:
    """The form of a matrix."""
    row, column = strides
    if column == 1 or columns == 1:
        return _PLAIN, max(row, columns)
    assert row == 1 or rows == 1, f"no matrix of rows or columns: {strides}"
    return _TRANSPOSED, max(column, rows)


def _number(extent: Extent, spec: MatmulSpec) -> Expr:
    return spec.number(extent, {name: Name(name) for name in spec.sizes})


def _integer(extent: Extent, spec: MatmulSpec) -> str:
    """A size as an argument of CBLAS."""
    return str(extent) if isinstance(extent, int) else str(Cast("int", _number(extent, spec)))


def _distance(extent: Extent, spec: MatmulSpec) -> str:
    """The distance of rows with so many elements, at least 1 for CBLAS."""
    return _integer(largest(extent, 1), spec)


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
