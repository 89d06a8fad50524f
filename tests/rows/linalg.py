"""Rows of `st.linalg`. The readings are NumPy's, which is LAPACK.

Matrices are well away from singular ones. Factors that are not unique are multiplied again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import COMPLEX, Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, bare, part_of, plain, squared, together, widest_of
from tests.rows.table import Call, row


def _rounded(x: Any, dtype: Any) -> Plain:
    array = np.asarray(x)
    wanted = {"f": part_of(dtype), "c": dtype}
    return Plain(array.astype(wanted.get(array.dtype.kind, array.dtype)))


def _extent(d: Draw) -> int:
    if d.kind == "scalar" or d.kind == "block" and d.smooth:
        raise NotACell
    return {"empty": 0, "one": 1, "vector": d.pick(15, 17), "odd": d.pick(2, 3, 5), "block": 33}[d.kind]


def _any(d: Draw, rows: int, columns: int) -> str:
    lead = d.pick((), (), (2,), (2, 3)) if d.kind != "block" else ()
    return d.new((*lead, rows, columns), values="unit")


def _square(d: Draw) -> tuple[str, int]:
    """A matrix whose diagonal outweighs the rest."""
    n = _extent(d)
    return f"({_any(d, n, n)} + {2 * n + 1} * st.eye({n}))", n


def _adjoint(d: Draw, x: str) -> str:
    """The text of the transpose, conjugated where numbers are complex."""
    return f"st.conj(st.matrix_transpose({x}))" if d.dtype in COMPLEX else f"st.matrix_transpose({x})"


def _symmetric(d: Draw) -> tuple[str, int]:
    """A symmetric matrix with eigenvalues well apart, all above 0."""
    n = _extent(d)
    if n > 9:
        raise NotACell
    x = _any(d, n, n)
    return f"({x} + {_adjoint(d, x)} + st.diag(st.arange(1.0, {n + 1.0}) * {4 * n}))", n


def _tall(d: Draw) -> str:
    """A matrix of full rank with more rows than columns."""
    n = _extent(d)
    if n > 9:
        raise NotACell
    rows = n + d.pick(0, 1, 2)
    return f"({_any(d, rows, n)} + {2 * n + 1} * st.eye({rows}, {n}))"


def _expm(x: Any) -> Any:
    """By the series of a matrix that is halved ten times, squared as often."""
    small, total = x / 1024.0, np.zeros_like(x) + np.eye(x.shape[-1])
    term = total
    for k in range(1, 20):
        term = term @ small / k
        total = total + term
    for _ in range(10):
        total = total @ total
    return total


def _read(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reading of a function of matrices, computed in f64 and rounded to the operands' float."""

    def reading(*operands: Any, **keywords: Any) -> Any:
        arrays, _ = together(*operands, floats=True)
        dtype = arrays[0].dtype
        found = function(*(widest_of(array) for array in arrays), **{k: bare(v) for k, v in keywords.items()})
        if isinstance(found, tuple):
            return tuple(_rounded(part, dtype) for part in found)
        return _rounded(found, dtype)

    return reading


def _of(made: Callable[[Draw], Any]) -> Call:
    """A call with one matrix."""

    def text(d: Draw) -> str:
        found = made(d)
        return f"st.{d.name}({found if isinstance(found, str) else found[0]})"

    return text


def _singular(x: Any) -> Any:
    return np.linalg.svd(x, compute_uv=False)


def _exponent(d: Draw) -> str:
    n = _extent(d)
    return _any(d, n, n)


row("linalg.det", _of(_square), _read(np.linalg.det))
row("linalg.inv", _of(_square), _read(np.linalg.inv))
row("linalg.slogdet", _of(_square), _read(lambda a: tuple(np.linalg.slogdet(a))))
row("linalg.eigvalsh", _of(_symmetric), _read(np.linalg.eigvalsh))
row("linalg.pinv", _of(_tall), _read(np.linalg.pinv))
row("linalg.svdvals", _of(_tall), _read(_singular))
row("linalg.cond", _of(_tall), _read(lambda x: (s := _singular(x))[..., 0] / s[..., -1]))
row("linalg.matrix_rank", _of(_tall), _read(np.linalg.matrix_rank))
row("linalg.expm", _of(_exponent), _read(_expm))
row("linalg.matrix_exp", _of(_exponent), _read(_expm))


def _cholesky(a: Any, upper: bool = False) -> Any:
    found = np.linalg.cholesky(a)
    return np.conj(np.swapaxes(found, -1, -2)) if upper else found


def draw(d: Draw) -> str:
    a, _ = _symmetric(d)
    return f"st.linalg.cholesky({a}{d.keyword('upper', True, False)})"


row("linalg.cholesky", draw, _read(_cholesky))


def _solve(a: Any, b: Any) -> Any:
    b = np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))
    return np.linalg.solve(np.broadcast_to(a, (*b.shape[:-2], *a.shape[-2:])), b)


def draw(d: Draw) -> str:
    a, n = _square(d)
    return f"st.linalg.solve({a}, {d.new((n, d.pick(1, 3)), values='unit')})"


row("linalg.solve", draw, _read(_solve))


def _solve_triangular(a: Any, b: Any, upper: bool, left: bool = True) -> Any:
    half = np.triu(a) if upper else np.tril(a)
    return _solve(half, b) if left else np.swapaxes(_solve(np.swapaxes(half, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)


def draw(d: Draw) -> str:
    a, n = _square(d)
    upper = d.pick(True, False)
    d.keywords |= {"upper", "left"}
    left = d.pick(True, False)
    b = d.new((n, 3) if left else (3, n), values="unit")
    half = f"st.{'triu' if upper else 'tril'}({a})"
    return f"st.linalg.solve_triangular({half}, {b}, upper={upper}, left={left})"


row("linalg.solve_triangular", draw, _read(_solve_triangular))


def _by_rows(x: Any) -> tuple[Any, Any, Any]:
    """Gauss elimination with the largest pivot of each column: permutation, lower and upper factor of one matrix."""
    u, n = x.copy(), x.shape[-1]
    p, low = np.eye(n), np.zeros((n, n), x.dtype)
    for k in range(n):
        best = k + int(np.argmax(np.abs(u[k:, k])))
        for array in (u, p, low):
            array[[k, best]] = array[[best, k]]
        factors = u[k + 1 :, k] / u[k, k]
        low[k + 1 :, k] = factors
        u[k + 1 :] -= np.outer(factors, u[k])
    return p.T, low + np.eye(n), np.triu(u)


def _lu(x: Any) -> tuple[Any, ...]:
    if not x.size:
        return x, x, x
    parts = zip(*(_by_rows(matrix) for matrix in x.reshape(-1, *x.shape[-2:])), strict=True)
    return tuple(np.reshape(np.stack(part), x.shape) for part in parts)


def draw(d: Draw) -> str:
    d.lines.append(f"p, l, u = st.linalg.lu({_square(d)[0]})")
    return "p @ (l @ u)"


row("linalg.lu", draw, _read(_lu))


def draw(d: Draw) -> str:
    d.lines.append(f"both, swaps = st.linalg.lu_factor({_square(d)[0]})")
    return "st.triu(both)"


row("linalg.lu_factor", draw, _read(lambda a: (np.tril(_lu(a)[1], -1) + _lu(a)[2], np.zeros(a.shape[:-1]))))


def draw(d: Draw) -> str:
    if d.likely(25):
        d.keywords.add("mode")
        return f"st.abs(st.linalg.qr({_tall(d)}, mode='r'))"
    mode = d.keyword("mode", "'reduced'", "'complete'") if not d.smooth else ""
    d.lines.append(f"q, r = st.linalg.qr({_tall(d)}{mode})")
    return d.pick("q @ r", "st.abs(r)")


row("linalg.qr", draw, _read(lambda a, mode="reduced": np.linalg.qr(a, mode)))


def draw(d: Draw) -> str:
    a, _ = _symmetric(d)
    d.lines.append(f"w, v = st.linalg.eigh({a}{d.keyword('UPLO', repr('L'), repr('U'))})")
    return d.pick(f"(v * st.expand_dims(w * w, -2)) @ {_adjoint(d, 'v')}", "st.abs(v)", "w")


row("linalg.eigh", draw, _read(lambda a, UPLO="L": tuple(np.linalg.eigh(a, UPLO))))


def draw(d: Draw) -> str:
    if d.likely(25):
        d.keywords.add("compute_uv")
        return f"st.linalg.svd({_tall(d)}, compute_uv=False)"
    d.keywords.add("full_matrices")
    d.lines.append(f"u, s, vh = st.linalg.svd({_tall(d)}, full_matrices=False)")
    return d.pick("(u * st.expand_dims(s, -2)) @ vh", "s")


row(
    "linalg.svd",
    draw,
    _read(lambda a, full_matrices=True, compute_uv=True: np.linalg.svd(a, full_matrices, compute_uv)),
)


def draw(d: Draw) -> str:
    a = _tall(d)
    rows = d.shape_of(d.main)[-2]
    if len(d.shape_of(d.main)) > 2:
        raise NotACell
    return f"st.linalg.lstsq({a}, {d.new((rows, 2), values='unit')})[0]"


row("linalg.lstsq", draw, _read(lambda a, b: (np.linalg.lstsq(a, b, rcond=None)[0],)))


def draw(d: Draw) -> str:
    n = _extent(d)
    if n > 9:
        raise NotACell
    return f"st.linalg.matrix_power({_any(d, n, n)} + 2 * st.eye({n}), {d.pick(0, 1, 2, 3, -1)})"


row("linalg.matrix_power", draw, lambda a, n: _read(lambda x: np.linalg.matrix_power(x, n))(a))


def draw(d: Draw) -> str:
    a, b, c, e = (_extent(d) for _ in range(4))
    return f"st.linalg.multi_dot([{', '.join(d.new(shape, values='unit') for shape in ((a, b), (b, c), (c, e)))}])"


row("linalg.multi_dot", draw, lambda arrays: functools.reduce(FUNCTIONS["matmul"], arrays))


def _matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    if ord == 1:
        found = np.max(np.sum(np.abs(x), -2), -1) if x.size else np.zeros(x.shape[:-2])
    elif ord == "fro" or ord is None:
        found = np.sqrt(np.sum(squared(x), (-2, -1)))
    else:
        sizes = np.linalg.svd(x, compute_uv=False)
        found = np.sum(sizes, -1) if ord == "nuc" else np.max(sizes, -1, initial=0.0)
    return found[..., None, None] if keepdims else found


def draw(d: Draw) -> str:
    x = _tall(d)
    return f"st.linalg.norm({x}{d.keyword('ord', repr('fro'), 1, repr('nuc'))}, axis=(-2, -1){d.keyword('keepdims', True)})"


row("linalg.norm", draw, _read(_matrix_norm))


def draw(d: Draw) -> str:
    x = _tall(d)
    return f"st.linalg.matrix_norm({x}{d.keyword('ord', repr('fro'), 1, 2, repr('nuc'))}{d.keyword('keepdims', True)})"


row("linalg.matrix_norm", draw, _read(_matrix_norm))


def _vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(np.abs(x) ** ord, axis=None if axis is None else axis, keepdims=keepdims) ** (1.0 / ord)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    rest = d.keyword("ord", 1, 2, 3) + d.keyword("keepdims", True)
    return f"st.linalg.vector_norm({d.new(shape, values='nonzero')}{d.axis(len(shape))}{rest})"


row("linalg.vector_norm", draw, _read(_vector_norm))

# ---- of integers too, in their own dtype ----------------------------------------------------------


def draw(d: Draw) -> str:
    return f"st.linalg.outer({d.new((d.extent(),), values='unit')}, {d.new((3,), values='unit')})"


row("linalg.outer", draw, lambda x, y: FUNCTIONS["outer"](x, y))


def draw(d: Draw) -> str:
    n = _extent(d)
    return f"st.{d.name}({_any(d, n, n)}{d.keyword('offset', -1, 0, 1)})"


row("linalg.diagonal", draw, lambda x, offset=0: Plain(np.diagonal(plain(x).a, offset, -2, -1)))
row("linalg.trace", draw, lambda x, offset=0: Plain(np.trace(plain(x).a, offset, -2, -1)))
