"""The text of calls of cuSOLVER for factors of matrices, and of cuBLAS for triangular systems: one matrix of a batch
after the other.

    for (int item = 0; item < 4; ++item) {
        CUSOLVER_CHECK(site, cusolverDnSgetrf(gpu->cusolver, 32, 32, factors + (int64_t)item * 1024, 32, workspace,
                       pivots + item * 32, info + item));
    }

No graph has a call of cuSOLVER: it is not known which of its functions may be captured.

Tested by `tests/backends/cublas_cudnn/test_factors.py` and `tests/backends/cublas_cudnn/test_cusolver.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from staged.backends.cublas_cudnn.library import cublas
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.cusolver import handle_part, size_part, workspace_part
from staged.backends.cublas_cudnn.library.factors import GEQRF, GESVD, GETRF, LASWP, ORGQR, POTRF, SYEVD, TRSM
from staged.code.expr import literal
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.types import DType, bound, f32

UPPER, LOWER = "CUBLAS_FILL_MODE_UPPER", "CUBLAS_FILL_MODE_LOWER"


@dataclass(frozen=True, slots=True)
class Batch:
    """The matrices of a call: how many, and the rows and columns of each, in memory by rows."""

    items: int
    rows: int
    columns: int
    dtype: DType

    @staticmethod
    def of(op: Op) -> Batch:
        """The matrices of the first operand."""
        type = op.operands[0].tensor
        *batch, rows, columns = (bound(extent) for extent in type.shape)
        return Batch(prod(batch), rows, columns, type.dtype)

    def routine(self, library: str, name: str) -> str:
        """A function of `library` for elements of this type."""
        return f"{library}{'S' if self.dtype is f32 else 'D'}{name}"

    def at(self, array: str, elements: int) -> str:
        """The address of an item's part of an array, which has so many elements for each."""
        if self.items == 1:
            return array
        return f"{array} + item" if elements == 1 else f"{array} + (int64_t)item * {elements}"

    def write(self, w: Writer, macro: str, head: str, arguments: Sequence[str]) -> None:
        """A call for each item."""
        if self.items == 1:
            write_call(w, macro, head, arguments)
            return
        with w.block(f"for (int item = 0; item < {self.items}; ++item)"):
            write_call(w, macro, head, arguments)


Arguments = Sequence[str]


def _solver_call(
    op: Op,
    name: str,
    site: int,
    routine: str,
    comment: str,
    names: tuple[Sequence[str], Sequence[str]],
    arguments: Callable[[Batch], Arguments],
    size: tuple[str, Arguments] | None = None,
    replaces: int = 0,
) -> LibraryCall:
    """The call of a function of cuSOLVER, in the place of the first operand.

    `names`: of operands and results; `size`: the sizes that its workspace depends on, for the name of the field, and
    the arguments that ask for it; `replaces`: the result that begins as the operand.
    """
    batch = Batch.of(op)
    full = batch.routine("cusolverDn", routine)
    parts = [handle_part(site, op.attrs["deterministic"])]
    if size is not None:
        field = _size_field(op, routine, size[0])
        parts += [size_part(site, field, full, size[1], batch.dtype), workspace_part(site)]

    def body(w: Writer) -> None:
        if size is not None:
            c_type = batch.dtype.c_name
            w.line(f"{c_type} *const workspace = ({c_type} *)gpu->cusolver_workspace;")
        batch.write(w, "CUSOLVER_CHECK", f"{full}(gpu->cusolver", arguments(batch))

    return whole_call(
        op,
        name,
        *names,
        [f"{comment} of {op.operands[0].tensor.shape}, by {full}"],
        body,
        parts,
        ((replaces, 0),),
        can_be_captured=False,
    )


def _size_field(op: Op, routine: str, sizes: str) -> str:
    """The field with the size of a function's workspace, which depends on these sizes."""
    return f"{routine}_{op.operands[0].tensor.dtype}_{sizes}"


# ---- Cholesky factors, triangular systems -----------------------------------------------------------


def emit_cholesky(op: Op, name: str, site: int) -> LibraryCall:
    """The call for Cholesky factors."""
    n = str(bound(op.operands[0].tensor.shape[-1]))

    def arguments(batch: Batch) -> Arguments:
        matrix = batch.at("factor", batch.rows * batch.columns)
        size = f"gpu->{_size_field(op, 'potrf', n)}"
        return [UPPER, n, matrix, n, "workspace", size, batch.at("info", 1)]

    comment = "Cholesky factors (the lower triangle by rows is the upper one by columns)"
    names = ["a"], ["factor", "info"]
    return _solver_call(op, name, site, "potrf", comment, names, arguments, (n, [UPPER, n, "NULL", n]))


def emit_triangular(op: Op, name: str, site: int) -> LibraryCall:
    """The call for triangular systems: a x = b is x' a' = b' by columns, of the other triangle."""
    batch, options = Batch.of(op), DeviceOptions(tf32=bool(op.attrs["tf32"]))
    n, columns = batch.rows, bound(op.operands[1].tensor.shape[-1])
    routine = batch.routine("cublas", "trsm")

    def body(w: Writer) -> None:
        w.line(f"const {batch.dtype.c_name} alpha = {literal(1.0, batch.dtype)};")
        arguments = [
            "CUBLAS_SIDE_RIGHT", LOWER if op.attrs["upper"] else UPPER, "CUBLAS_OP_N", "CUBLAS_DIAG_NON_UNIT",
            str(columns), str(n), "&alpha", batch.at("a", n * n), str(n), batch.at("x", n * columns), str(columns),
        ]  # fmt: skip
        batch.write(w, "CUBLAS_CHECK", f"{routine}(gpu->cublas", arguments)

    word, shape = "upper" if op.attrs["upper"] else "lower", op.operands[0].tensor.shape
    comment = f"Systems of {word} triangular matrices {shape}, by {routine}: x' a' = b' by columns"
    parts = [cublas.workspace_part(site), cublas.handle_part(site, options)]
    return whole_call(op, name, ["a", "b"], ["x"], [comment], body, parts, ((0, 1),))


# ---- LU and QR factors ------------------------------------------------------------------------------


def emit_lu(op: Op, name: str, site: int) -> LibraryCall:
    """The call for LU factors and the rows that were exchanged."""
    n = str(bound(op.operands[0].tensor.shape[-1]))

    def arguments(batch: Batch) -> Arguments:
        matrix, pivots = batch.at("factors", batch.rows * batch.columns), batch.at("pivots", batch.columns)
        return [n, n, matrix, n, "workspace", pivots, batch.at("info", 1)]

    names = ["a"], ["factors", "pivots", "info"]
    comment = "LU factors (matrices and factors by columns)"
    return _solver_call(op, name, site, "getrf", comment, names, arguments, (n, [n, n, "NULL", n]))


def emit_order(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the order of rows after exchanges: each batch of numbers of rows is a matrix of one column."""
    type = op.operands[0].tensor
    *extents, n = (bound(extent) for extent in type.shape)
    batch = Batch(prod(extents), n, 1, type.dtype)
    routine = batch.routine("cusolverDn", "laswp")

    def body(w: Writer) -> None:
        arguments = ["1", batch.at("order", n), str(n), "1", str(n), batch.at("pivots", n), "1"]
        batch.write(w, "CUSOLVER_CHECK", f"{routine}(gpu->cusolver", arguments)

    comment = f"The rows {type.shape} in the order that exchanges leave, by {routine}"
    names, parts = (["numbers", "pivots"], ["order"]), [handle_part(site, op.attrs["deterministic"])]
    return whole_call(op, name, *names, [comment], body, parts, ((0, 0),), can_be_captured=False)


def emit_reflections(op: Op, name: str, site: int) -> LibraryCall:
    """The call for QR factors, of which q is left as reflections below the diagonal."""
    n, m = (bound(extent) for extent in op.operands[0].tensor.shape[-2:])
    sizes = [str(m), str(n)]

    def arguments(batch: Batch) -> Arguments:
        size = f"gpu->{_size_field(op, 'geqrf', f'{m}_{n}')}"
        matrix, scales = batch.at("reflected", m * n), batch.at("scales", n)
        return [*sizes, matrix, str(m), scales, "workspace", size, batch.at("info", 1)]

    names = ["a"], ["reflected", "scales", "info"]
    comment = "QR factors (matrices by columns), q as reflections,"
    return _solver_call(op, name, site, "geqrf", comment, names, arguments, (f"{m}_{n}", [*sizes, "NULL", str(m)]))


def emit_q(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the product of reflections."""
    width, m = (bound(extent) for extent in op.operands[0].tensor.shape[-2:])
    count = bound(op.operands[1].tensor.shape[-1])
    sizes = [str(m), str(width), str(count)]

    def arguments(batch: Batch) -> Arguments:
        size = f"gpu->{_size_field(op, 'orgqr', '_'.join(sizes))}"
        matrix, scales = batch.at("q", width * m), batch.at("scales", count)
        return [*sizes, matrix, str(m), scales, "workspace", size, batch.at("info", 1)]

    names = ["reflections", "scales"], ["q", "info"]
    asked = ("_".join(sizes), [*sizes, "NULL", str(m), "NULL"])
    return _solver_call(op, name, site, "orgqr", "Factors q (by columns)", names, arguments, asked)


# ---- eigenvalues and singular values ----------------------------------------------------------------


def emit_eigenvalues(op: Op, name: str, site: int) -> LibraryCall:
    """The call for eigenvalues of symmetric matrices, in ascending order, and for eigenvectors if they are used."""
    n, with_vectors = str(bound(op.operands[0].tensor.shape[-1])), bool(op.attrs["with_vectors"])
    mode = f"CUSOLVER_EIG_MODE_{'VECTOR' if with_vectors else 'NOVECTOR'}"
    word = "vectors" if with_vectors else "spoilt"
    sizes = f"{n}_{'vectors' if with_vectors else 'values'}"

    def arguments(batch: Batch) -> Arguments:
        matrix, values = batch.at(word, batch.rows * batch.columns), batch.at("values", batch.rows)
        size = f"gpu->{_size_field(op, 'syevd', sizes)}"
        return [mode, UPPER, n, matrix, n, values, "workspace", size, batch.at("info", 1)]

    comment = f"Eigenvalues{' and eigenvectors (as rows)' if with_vectors else ''}"
    names = ["a"], ["values", word, "info"]
    asked = (sizes, [mode, UPPER, n, "NULL", n, "NULL"])
    return _solver_call(op, name, site, "syevd", comment, names, arguments, asked, replaces=1)


def emit_singular(op: Op, name: str, site: int) -> LibraryCall:
    """The call for singular values, in descending order, and for singular vectors if they are used."""
    n, m = (bound(extent) for extent in op.operands[0].tensor.shape[-2:])
    with_vectors = len(op.results) == 5

    def arguments(batch: Batch) -> Arguments:
        job = "'S'" if with_vectors else "'N'"
        u, v = (batch.at("u", m * n), batch.at("v", n * n)) if with_vectors else ("NULL", "NULL")
        size = f"gpu->{_size_field(op, 'gesvd', f'{m}_{n}')}"
        return [
            job, job, str(m), str(n), batch.at("spoilt", m * n), str(m), batch.at("values", n), u, str(m), v, str(n),
            "workspace", size, "NULL", batch.at("info", 1),
        ]  # fmt: skip

    comment = f"Singular values{' and vectors' if with_vectors else ''} (matrices by columns)"
    names = ["a"], ["values", "spoilt", *(("u", "v") if with_vectors else ()), "info"]
    asked = (f"{m}_{n}", [str(m), str(n)])
    return _solver_call(op, name, site, "gesvd", comment, names, arguments, asked, replaces=1)


EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {
    GEQRF: emit_reflections,
    GESVD: emit_singular,
    GETRF: emit_lu,
    LASWP: emit_order,
    ORGQR: emit_q,
    POTRF: emit_cholesky,
    SYEVD: emit_eigenvalues,
    TRSM: emit_triangular,
}
