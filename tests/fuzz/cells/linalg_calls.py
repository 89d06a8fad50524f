"""Calls of `st.linalg`, and of `st.special` where it has more than `st`.

Matrices are well away from singular ones, and factors that are not unique are multiplied again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.cells.calls import CALLS
from tests.fuzz.cells.draw import COMPLEX, Draw, NotACell

Text = Callable[[Draw], str]


def _call(name: str) -> Callable[[Text], Text]:
    def enter(function: Text) -> Text:
        CALLS[f"linalg.{name}"] = function
        return function

    return enter


def _extent(d: Draw) -> int:
    if d.kind == "scalar" or d.kind == "block" and d.smooth:
        raise NotACell
    return {"empty": 0, "one": 1, "vector": d.pick(15, 17), "odd": d.pick(2, 3, 5), "block": 33}[d.kind]


def _any(d: Draw, rows: int, columns: int) -> str:
    lead = d.pick((), (), (2,), (2, 3)) if d.kind != "block" else ()
    return d.new((*lead, rows, columns), values="unit")


def _adjoint(d: Draw, x: str) -> str:
    """The text of the transpose, conjugated where numbers are complex."""
    return f"st.conj(st.matrix_transpose({x}))" if d.dtype in COMPLEX else f"st.matrix_transpose({x})"


def _square(d: Draw) -> tuple[str, int]:
    """A matrix whose diagonal outweighs the rest."""
    n = _extent(d)
    return f"({_any(d, n, n)} + {2 * n + 1} * st.eye({n}))", n


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


for _name, _made in {"det": _square, "inv": _square, "eigvalsh": _symmetric, "slogdet": _square}.items():
    CALLS[f"linalg.{_name}"] = lambda d, name=_name, made=_made: f"st.linalg.{name}({made(d)[0]})"
for _name in ("pinv", "svdvals", "cond", "matrix_rank"):
    CALLS[f"linalg.{_name}"] = lambda d, name=_name: f"st.linalg.{name}({_tall(d)})"
for _name in ("expm", "matrix_exp"):
    CALLS[f"linalg.{_name}"] = lambda d, name=_name: f"st.linalg.{name}({_any(d, n := _extent(d), n)})"


@_call("cholesky")
def _(d: Draw) -> str:
    a, _ = _symmetric(d)
    return f"st.linalg.cholesky({a}{d.keyword('upper', True, False)})"


@_call("solve")
def _(d: Draw) -> str:
    a, n = _square(d)
    return f"st.linalg.solve({a}, {d.new((n, d.pick(1, 3)), values='unit')})"


@_call("solve_triangular")
def _(d: Draw) -> str:
    a, n = _square(d)
    upper = d.pick(True, False)
    d.keywords |= {"upper", "left"}
    left = d.pick(True, False)
    b = d.new((n, 3) if left else (3, n), values="unit")
    half = f"st.{'triu' if upper else 'tril'}({a})"
    return f"st.linalg.solve_triangular({half}, {b}, upper={upper}, left={left})"


@_call("lu")
def _(d: Draw) -> str:
    d.lines.append(f"p, l, u = st.linalg.lu({_square(d)[0]})")
    return "p @ (l @ u)"


@_call("lu_factor")
def _(d: Draw) -> str:
    d.lines.append(f"both, swaps = st.linalg.lu_factor({_square(d)[0]})")
    return "st.triu(both)"


@_call("qr")
def _(d: Draw) -> str:
    if d.likely(25):
        d.keywords.add("mode")
        return f"st.abs(st.linalg.qr({_tall(d)}, mode='r'))"
    mode = d.keyword("mode", "'reduced'", "'complete'") if not d.smooth else ""
    d.lines.append(f"q, r = st.linalg.qr({_tall(d)}{mode})")
    return d.pick("q @ r", "st.abs(r)")


@_call("eigh")
def _(d: Draw) -> str:
    a, _ = _symmetric(d)
    d.lines.append(f"w, v = st.linalg.eigh({a}{d.keyword('UPLO', repr('L'), repr('U'))})")
    return d.pick(f"(v * st.expand_dims(w * w, -2)) @ {_adjoint(d, 'v')}", "st.abs(v)", "w")


@_call("svd")
def _(d: Draw) -> str:
    if d.likely(25):
        d.keywords.add("compute_uv")
        return f"st.linalg.svd({_tall(d)}, compute_uv=False)"
    d.keywords.add("full_matrices")
    d.lines.append(f"u, s, vh = st.linalg.svd({_tall(d)}, full_matrices=False)")
    return d.pick("(u * st.expand_dims(s, -2)) @ vh", "s")


@_call("lstsq")
def _(d: Draw) -> str:
    a = _tall(d)
    rows = d.shape_of(d.main)[-2]
    if len(d.shape_of(d.main)) > 2:
        raise NotACell
    return f"st.linalg.lstsq({a}, {d.new((rows, 2), values='unit')})[0]"


@_call("matrix_power")
def _(d: Draw) -> str:
    n = _extent(d)
    if n > 9:
        raise NotACell
    return f"st.linalg.matrix_power({_any(d, n, n)} + 2 * st.eye({n}), {d.pick(0, 1, 2, 3, -1)})"


@_call("multi_dot")
def _(d: Draw) -> str:
    a, b, c, e = (_extent(d) for _ in range(4))
    return f"st.linalg.multi_dot([{', '.join(d.new(shape, values='unit') for shape in ((a, b), (b, c), (c, e)))}])"


@_call("norm")
def _(d: Draw) -> str:
    x = _tall(d)
    return f"st.linalg.norm({x}{d.keyword('ord', repr('fro'), 1, repr('nuc'))}, axis=(-2, -1){d.keyword('keepdims', True)})"


@_call("matrix_norm")
def _(d: Draw) -> str:
    x = _tall(d)
    return f"st.linalg.matrix_norm({x}{d.keyword('ord', repr('fro'), 1, 2, repr('nuc'))}{d.keyword('keepdims', True)})"


@_call("vector_norm")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    rest = d.keyword("ord", 1, 2, 3) + d.keyword("keepdims", True)
    return f"st.linalg.vector_norm({d.new(shape, values='nonzero')}{d.axis(len(shape))}{rest})"


@_call("outer")
def _(d: Draw) -> str:
    return f"st.linalg.outer({d.new((d.extent(),), values='unit')}, {d.new((3,), values='unit')})"


for _name in ("diagonal", "trace"):
    CALLS[f"linalg.{_name}"] = lambda d, name=_name: (
        f"st.linalg.{name}({_any(d, n := _extent(d), n)}{d.keyword('offset', -1, 0, 1)})"
    )

# ---- special functions ----------------------------------------------------------------------------

_VALUES = {"entr": "positive", "ndtri": "prob"}
for _name in ("entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri"):
    CALLS[f"special.{_name}"] = lambda d, name=_name: (
        f"st.special.{name}({d.new(d.shape(ranks=(0, 1, 2)), values=_VALUES.get(name, 'unit'))})"
    )
for _name in ("betaln", "xlog1py"):
    CALLS[f"special.{_name}"] = lambda d, name=_name: (
        f"st.special.{name}({d.new(shape := d.shape(ranks=(0, 1, 2)), values='positive')}, {d.new(shape, values='positive')})"
    )
