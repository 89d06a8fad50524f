"""The C functions that call LAPACK, one matrix of a batch at a time.

Its functions have Fortran's names and conventions, which every LAPACK offers: a `_` behind the name, all arguments by
address, matrices by columns, and behind the others the lengths of texts. A matrix by columns is the turned one by rows.
Complex matrices are arrays of floats with a last axis of 2; LAPACK's complex numbers are such pairs, too.
The workspace has the size that LAPACK's documentation states, and is the thread's own, in the program's arena.

Tested by `tests/runtime/test_lapack.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from staged.code.kernel_text import KernelText
from staged.code.support.library import Snippet
from staged.code.writer import Writer, safe_comment
from staged.ir.machine import Blas
from staged.ir.nodes import Op, Value
from staged.ir.types import DType, bound, f32

ROW_MAJOR, LEFT, UPPER, LOWER, PLAIN, NON_UNIT = 101, 141, 121, 122, 111, 131
"""CBLAS's enumerations."""
BLOCK = 32
"""Columns that QR and SVD take at a time: a size of workspace."""
GRAIN = 10_000.0
"""Nanoseconds of work that a thread takes at once, at least."""


@dataclass(frozen=True, slots=True)
class Text:
    """The parts in which the functions differ."""

    operands: Sequence[str]
    results: Sequence[str]
    comment: str
    body: Callable[[Writer, Call], None]
    """Writes the statements for one `item`."""
    sizes: Mapping[str, int]
    """Integers that LAPACK reads, by name."""
    nanoseconds: float
    """Of one item of real numbers, at a modest rate."""
    scratch: int = 0
    """Bytes of workspace."""
    may_alias: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """The library's functions for one element type, as they are called and declared."""

    blas: Blas
    dtype: DType
    is_complex: bool
    declared: dict[str, Snippet]

    @property
    def c_type(self) -> str:
        return self.dtype.c_name

    @property
    def zero(self) -> str:
        return "0.0f" if self.dtype is f32 else "0.0"

    def function(self, name: str, parameters: str) -> str:
        """The name of a function whose element type's letter replaces `?`; declares its parameters.

        `T` in them is the element type; complex numbers are pairs of it.
        """
        letter = ("sd", "cz")[self.is_complex][self.dtype is not f32]
        own = self.blas.function(name.replace("?", letter))
        text = f"void {own}({parameters.replace('T ', self.c_type + ' ')});"
        w = Writer()
        w.line("#ifdef __cplusplus")
        w.line('extern "C"')
        w.line("#endif")
        w.statement(text)
        self.declared[own] = Snippet(f"lapack_{own}", str(w))
        return own

    def fortran(self, name: str, parameters: str, texts: int = 0) -> str:
        """The name of a function of LAPACK; `texts` is how many of its parameters are texts, of one letter each."""
        lengths = "".join(f", size_t length_{number}" for number in range(1, texts + 1))
        return self.function(f"?{name}_", parameters + lengths)


def emit_lapack(op: Op, name: str, blas: Blas) -> KernelText:
    """The C function for a `library` op of the native back end."""
    text = _TEXTS[op.attrs["call"]](op)
    dtype = op.operands[0].tensor.dtype
    call = Call(blas, dtype, _is_complex(op), {})
    items = prod(_extents(op)[:-2])
    inputs = [(f"const {v.tensor.dtype.c_name} *", n) for v, n in zip(op.operands, text.operands, strict=True)]
    outputs = [(f"{v.tensor.dtype.c_name} *", n) for v, n in zip(op.results, text.results, strict=True)]
    scratch = [("unsigned char *", "scratch")] if text.scratch else []
    nanoseconds = text.nanoseconds * _parts(op) ** 2
    parameters = [*inputs, *outputs, *scratch, ("int64_t ", "begin"), ("int64_t ", "end")]
    w = Writer()
    with w.block(f"static void {name}({', '.join(type + parameter for type, parameter in parameters)})"):
        sizes = ", ".join(f"{size} = {number}" for size, number in text.sizes.items())
        w.line(f"const int {sizes};")
        with w.block("for (int64_t item = begin; item < end; ++item)"):
            text.body(w, call)
    where = [f"{op.where.short}  {op.where.text}"] if op.where is not None else []
    batch = "".join(f"{extent}, " for extent in _extents(op)[:-2])
    shape = ", ".join(str(extent) for extent in _extents(op)[-2:])
    library = "BLAS" if op.attrs["call"] == "trsm" else "LAPACK"
    kind = " complex numbers" if call.is_complex else ""
    comments = [*where, f"{text.comment} of ({batch}{shape}){kind}, by {library}"]
    above = "".join(f"// {safe_comment(comment)}\n" for comment in comments)
    return KernelText(
        name,
        above + str(w),
        tuple(parameters),
        items,
        scratch_bytes=text.scratch,
        chunk=max(1, min(items // 2, int(GRAIN / nanoseconds))) if items > 1 else 0,
        may_alias=text.may_alias,
        support=tuple(call.declared.values()),
        link=blas.link if op.attrs["call"] == "trsm" else (*blas.lapack, *blas.link),
        shape=str(w).replace(f"static void {name}(", "static void call(", 1),
    )


def _is_complex(op: Op) -> bool:
    return bool(op.attrs.get("is_complex"))


def _parts(op: Op) -> int:
    """The floats of an element."""
    return 2 if _is_complex(op) else 1


def _twice(op: Op) -> str:
    """The head of an index of elements, as one of floats."""
    return "2 * " if _is_complex(op) else ""


def _shape(op: Op, value: Value) -> list[int]:
    """The extents of an operand or a result in elements."""
    extents = [bound(extent) for extent in value.tensor.shape]
    return extents[:-1] if _is_complex(op) else extents


def _extents(op: Op) -> list[int]:
    return _shape(op, op.operands[0])


def _bytes(op: Op, elements: int, reals: int = 0, integers: int = 0) -> int:
    return (_parts(op) * elements + reals) * op.operands[0].tensor.dtype.size + 4 * integers


def _write_copy(w: Writer, target: str, source: str, count: str, c_type: str, in_place: bool = True) -> None:
    """A copy; `in_place`: the memory plan may have put both in one place."""
    copy = f"memcpy({target}, {source}, sizeof({c_type}) * {count});"
    if not in_place:
        w.line(copy)
        return
    with w.block(f"if ({target} != {source})"):
        w.line(copy)


# ---- Cholesky factors, triangular systems -----------------------------------------------------------


def _cholesky(op: Op) -> Text:
    n, twice = _extents(op)[-1], _twice(op)
    size = _parts(op) * n * n

    def body(w: Writer, call: Call) -> None:
        x = call.c_type
        function = call.fortran("potrf", "const char *uplo, const int *n, T *a, const int *lda, int *info", 1)
        w.line(f"const {x} *const x = a + item * {size};")
        w.line(f"{x} *const l = factor + item * {size};")
        with w.block("for (int64_t i = 0; i < n; ++i)"):
            if call.is_complex:
                w.line("// Up to the real part of the diagonal.")
            with w.block(f"for (int64_t j = 0; j < {twice}n; ++j)"):
                w.line(f"l[{twice}i * n + j] = j <= {twice}i ? x[{twice}i * n + j] : {call.zero};")
        w.line("int info = 0;")
        w.line(f'{function}("U", &n, l, &n, &info, 1);')
        w.line("// Not positive definite: NaN from there on, which the check of the diagonal finds.")
        with w.block("for (int64_t i = info > 0 ? info - 1 : n; i < n; ++i)"):
            first, last = ("2 * (info - 1)", "2 * i + 1") if call.is_complex else ("info - 1", "i")
            with w.block(f"for (int64_t j = {first}; j <= {last}; ++j)"):
                w.line(f"l[{twice}i * n + j] = NAN;")

    comment = "Cholesky factors (the lower triangle by rows is the upper one by columns)"
    return Text(["a"], ["factor"], comment, body, {"n": n}, n**3 / 30.0, may_alias=((0, 0),))


def _solve_triangular(op: Op) -> Text:
    n, columns = _extents(op)[-1], _shape(op, op.operands[1])[-1]
    size, parts = _parts(op) * n * columns, _parts(op)
    side = UPPER if op.attrs["upper"] else LOWER

    def body(w: Writer, call: Call) -> None:
        one, alpha = "1.0f" if call.dtype is f32 else "1.0", "T alpha"
        if call.is_complex:
            w.line(f"const {call.c_type} one[2] = {{{one}, {call.zero}}};")
            one, alpha = "one", "const T *alpha"
        function = call.function(
            "cblas_?trsm",
            f"int order, int side, int uplo, int transpose, int diagonal, int m, int n, {alpha}, const T *a, int lda, "
            "T *b, int ldb",
        )
        w.line(f"const {call.c_type} *const y = b + item * {size};")
        w.line(f"{call.c_type} *const x = found + item * {size};")
        _write_copy(w, "x", "y", str(size), call.c_type)
        w.statement(
            f"{function}({ROW_MAJOR}, {LEFT}, {side}, {PLAIN}, {NON_UNIT}, n, columns, {one}, "
            f"a + item * {parts * n * n}, n, x, columns);"
        )

    word = "upper" if op.attrs["upper"] else "lower"
    sizes = {"n": n, "columns": columns}
    comment = f"Systems of {word} triangular matrices"
    return Text(["a", "b"], ["found"], comment, body, sizes, n * n * columns / 20.0, may_alias=((0, 1),))


# ---- LU and QR factors ------------------------------------------------------------------------------


def _lu(op: Op) -> Text:
    n = _extents(op)[-1]
    size = _parts(op) * n * n

    def body(w: Writer, call: Call) -> None:
        parameters = "const int *m, const int *n, T *a, const int *lda, int *pivots, int *info"
        function = call.fortran("getrf", parameters)
        w.line(f"const {call.c_type} *const columns = a + item * {size};")
        w.line(f"{call.c_type} *const x = factors + item * {size};")
        w.line("int64_t *const row = order + item * n;")
        w.line("int *const places = (int *)(void *)scratch;")
        w.line("int info;  // of a singular matrix: its factors have a 0 on the diagonal")
        _write_copy(w, "x", "columns", str(size), call.c_type)
        w.line(f"{function}(&n, &n, x, &n, places, &info);")
        with w.block("for (int64_t i = 0; i < n; ++i)"):
            w.line("row[i] = i;")
        with w.block("for (int64_t i = 0; i < n; ++i)"):
            w.line("// Counted from 1. Some libraries name no row at all where a column has NaN.")
            w.line("const int64_t place = places[i] > i && places[i] <= n ? places[i] - 1 : i;")
            w.line("const int64_t other = row[place];")
            w.line("row[place] = row[i];")
            w.line("row[i] = other;")
            w.line("pivots[item * n + i] = place;")

    comment = "LU factors (matrices and factors by columns)"
    sizes, work = {"n": n}, n**3 / 15.0
    return Text(["a"], ["factors", "order", "pivots"], comment, body, sizes, work, _bytes(op, 0, integers=n), ((0, 0),))


def _qr(op: Op) -> Text:
    n, m = _extents(op)[-2:]
    width, height = (_shape(op, result)[-2] for result in op.results)
    lwork, parts, twice = BLOCK * max(width, n), _parts(op), _twice(op)

    def body(w: Writer, call: Call) -> None:
        shared = "T *a, const int *lda, const T *tau, T *work, const int *lwork, int *info"
        factor = call.fortran("geqrf", f"const int *m, const int *n, {shared.replace('const T *tau', 'T *tau')}")
        join = call.fortran(
            "ungqr" if call.is_complex else "orgqr", f"const int *m, const int *n, const int *k, {shared}"
        )
        w.line(f"const {call.c_type} *const columns = a + item * {parts * n * m};")
        w.line(f"{call.c_type} *const x = q + item * {parts * width * m};")
        w.line(f"{call.c_type} *const tau = ({call.c_type} *)(void *)scratch;")
        w.line(f"{call.c_type} *const work = tau + {twice}n;")
        w.line("int info;  // always 0: these sizes are right")
        _write_copy(w, "x", "columns", str(parts * n * m), call.c_type, in_place=width == n)
        w.line(f"{factor}(&m, &n, x, &m, tau, work, &lwork, &info);")
        with w.block(f"for (int64_t i = 0; i < {height}; ++i)"):
            with w.block("for (int64_t j = 0; j < n; ++j)"):
                if call.is_complex:
                    w.line(f"const int64_t from = 2 * (j * m + i), to = 2 * ((item * {height} + i) * n + j);")
                    w.line(f"r[to] = i <= j ? x[from] : {call.zero};")
                    w.line(f"r[to + 1] = i < j ? x[from + 1] : {call.zero};  // the diagonal is real")
                else:
                    w.line(f"r[(item * {height} + i) * n + j] = i <= j ? x[j * m + i] : {call.zero};")
        w.line(f"{join}(&m, &width, &n, x, &m, tau, work, &lwork, &info);")

    comment = "QR factors (matrices and q by columns)"
    sizes = {"m": m, "n": n, "width": width, "lwork": lwork}
    may_alias = ((0, 0),) if width == n else ()
    work = m * n * width / 5.0
    return Text(["a"], ["q", "r"], comment, body, sizes, work, _bytes(op, n + lwork), may_alias)


# ---- eigenvalues and singular values ----------------------------------------------------------------


def _eigh(op: Op) -> Text:
    n, with_vectors, is_complex = _extents(op)[-1], len(op.results) == 2, _is_complex(op)
    if is_complex:
        lwork, liwork = (2 * n + n * n, 3 + 5 * n) if with_vectors else (n + BLOCK * n, 1)
        lrwork = 1 + 5 * n + 2 * n * n if with_vectors else n
    else:
        lwork, liwork = (1 + 6 * n + 2 * n * n, 3 + 5 * n) if with_vectors else (2 * n + 1 + BLOCK * n, 1)
        lrwork = 0
    own = 0 if with_vectors else n * n
    twice, size = _twice(op), _parts(op) * n * n

    def body(w: Writer, call: Call) -> None:
        declared = "T *rwork, const int *lrwork, " if is_complex else ""
        parameters = (
            "const char *jobz, const char *uplo, const int *n, T *a, const int *lda, T *w, T *work, "
            f"const int *lwork, {declared}int *iwork, const int *liwork, int *info"
        )
        function = call.fortran(op.attrs["call"], parameters, 2)
        x = call.c_type
        matrix = "hermitian" if is_complex else "symmetric"
        w.line(f"const {x} *const {matrix} = a + item * {size};")
        if with_vectors:
            w.line(f"{x} *const x = vectors + item * {size};")
            w.line(f"{x} *const work = ({x} *)(void *)scratch;")
        else:
            w.line(f"{x} *const x = ({x} *)(void *)scratch;")
            w.line(f"{x} *const work = x + {size};")
        _write_integers(w, call, "lrwork")
        w.line("int info = 1, is_finite = 1;  // with NaN or infinity the iteration might not end")
        with w.block("for (int64_t i = 0; i < n; ++i)"):
            with w.block(f"for (int64_t j = 0; j <= {twice}i; ++j)"):
                w.line(f"x[{twice}i * n + j] = {matrix}[{twice}i * n + j];")
                w.line(f"is_finite &= isfinite(x[{twice}i * n + j]) != 0;")
            if is_complex:
                w.line(f"x[2 * (i * n + i) + 1] = {call.zero};  // the diagonal is real")
        with w.block("if (is_finite)"):
            jobs, reals = '"V"' if with_vectors else '"N"', "reals, &lrwork, " if is_complex else ""
            w.statement(
                f'{function}({jobs}, "U", &n, x, &n, values + item * n, work, &lwork, {reals}integers, &liwork, &info, '
                "1, 1);"
            )
        with w.block("for (int64_t i = 0; info != 0 && i < n; ++i)"):
            w.line("values[item * n + i] = NAN;")
            if with_vectors:
                with w.block(f"for (int64_t j = 0; j < {twice}n; ++j)"):
                    w.line(f"x[{twice}i * n + j] = NAN;")

    rows = "as rows, conjugated" if is_complex else "as rows"
    comment = f"Eigenvalues and eigenvectors ({rows})" if with_vectors else "Eigenvalues"
    results = ["values", "vectors"][: len(op.results)]
    sizes = {"n": n, "lwork": lwork} | ({"lrwork": lrwork} if is_complex else {}) | {"liwork": liwork}
    scratch = _bytes(op, own + lwork, lrwork, liwork)
    may_alias = ((1, 0),) if with_vectors else ()
    return Text(["a"], results, comment, body, sizes, n**3 / 1.5, scratch, may_alias)


def _write_integers(w: Writer, call: Call, lrwork: str) -> None:
    """The workspace of integers behind `work`; of complex functions behind that of `lrwork` real numbers."""
    if not call.is_complex:
        w.line("int *const integers = (int *)(void *)(work + lwork);")
        return
    w.line(f"{call.c_type} *const reals = work + 2 * lwork;")
    w.line(f"int *const integers = (int *)(void *)(reals + {lrwork});")


def _svd(op: Op) -> Text:
    m, n = _extents(op)[-2:]
    with_vectors, is_complex, parts = len(op.results) == 3, _is_complex(op), _parts(op)
    lwork = ((1 if is_complex else 4) * n * n if with_vectors else 0) + 10 * n + m + BLOCK * (m + n)
    lrwork = 0
    if is_complex:
        lrwork = max(5 * n * n + 5 * n, 2 * m * n + 2 * n * n + n) if with_vectors else 7 * n

    def body(w: Writer, call: Call) -> None:
        reals = "T *rwork, " if is_complex else ""
        parameters = (
            "const char *jobz, const int *m, const int *n, T *a, const int *lda, T *s, T *u, const int *ldu, "
            f"T *vt, const int *ldvt, T *work, const int *lwork, {reals}int *iwork, int *info"
        )
        function = call.fortran("gesdd", parameters, 1)
        x = call.c_type
        w.line(f"{x} *const x = ({x} *)(void *)scratch;")
        w.line(f"{x} *const work = x + {parts * m * n};")
        _write_integers(w, call, str(lrwork))
        w.line("int info = 1, is_finite = 1;  // with NaN or infinity the iteration might not end")
        with w.block(f"for (int64_t i = 0; i < {_twice(op)}m * n; ++i)"):
            w.line(f"x[i] = a[item * {parts * m * n} + i];")
            w.line("is_finite &= isfinite(x[i]) != 0;")
        with w.block("if (is_finite)"):
            u, vh = f"u + item * {parts * m * n}", f"vh + item * {parts * n * n}"
            head = f'"S", &n, &m, x, &n, values + item * n, {vh}, &n, {u}'
            if not with_vectors:
                head = '"N", &n, &m, x, &n, values + item * n, x, &n, x'
            w.statement(f"{function}({head}, &n, work, &lwork, {'reals, ' if is_complex else ''}integers, &info, 1);")
        with w.block("if (info != 0)"):
            found = ["values"] if not with_vectors else ["u", "values", "vh"]
            counts = [n] if not with_vectors else [parts * m * n, n, parts * n * n]
            for result, count in zip(found, counts, strict=True):
                with w.block(f"for (int64_t i = 0; i < {count}; ++i)"):
                    w.line(f"{result}[item * {count} + i] = NAN;")

    comment = f"Singular values{' and vectors' if with_vectors else ''} (by columns, the matrices are the turned ones)"
    results = ["u", "values", "vh"] if with_vectors else ["values"]
    sizes = {"m": m, "n": n, "lwork": lwork}
    scratch = _bytes(op, m * n + lwork, lrwork, 8 * n)
    return Text(["a"], results, comment, body, sizes, float(m * n * n), scratch)


_TEXTS: Mapping[str, Callable[[Op], Text]] = {
    "geqrf": _qr,
    "gesdd": _svd,
    "getrf": _lu,
    "heevd": _eigh,
    "potrf": _cholesky,
    "syevd": _eigh,
    "trsm": _solve_triangular,
}
"""By the attr `call` of a `library` op: the function of LAPACK, or of BLAS, that does most of the work."""
