"""Rows of products of arrays: of floats in f64, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain, together, wide
from tests.rows.readings import f64, product
from tests.rows.table import row


def _sides(d: Draw) -> tuple[int, int, int]:
    if d.kind == "block":
        return d.pick((33, 35, 37), (5, 70, 67), (65, 3, 33), (1, 130, 9))
    sides = [d.pick(2, 3, 4) for _ in range(3)]
    if d.kind == "one":
        return (1, 1, 1)
    sides[d.chance.randrange(3)] = d.extent()
    return tuple(sides)  # type: ignore[return-value]


def draw(d: Draw) -> str:
    m, k, n = _sides(d)
    first = d.pick((m, k), (m, k), (k,), (2, m, k), (1, 2, m, k))
    second = d.pick((k, n), (k, n), (k,), (2, k, n))
    if d.both and d.likely(30):
        first = second = (k,) if d.likely(50) else (k, k)
    a, b = d.new(first, values="small"), d.new(second, values="small")
    wide = "f64" if d.dtype[1:] in ("32", "64") else d.pick("i32", "i64")
    return d.pick(f"({a} @ {b})", f"st.matmul({a}, {b})", f"st.matmul({a}, {b}, dtype=st.{wide})")


@row("matmul", draw, torch="matmul")
def matmul(a: Any, b: Any, *, dtype: Any = None) -> Plain:
    astype = FUNCTIONS["astype"]
    return product(np.matmul, *((a, b) if dtype is None else (astype(a, dtype), astype(b, dtype))))


def draw(d: Draw) -> str:
    if d.kind == "scalar":
        return f"st.dot({d.new((), values='small')}, {d.new((), values='small')})"
    m, k, n = _sides(d)
    first, second = d.pick(((k,), (k,)), ((m, k), (k,)), ((m, k), (k, n)), ((k,), (k, n)))
    return f"st.dot({d.new(first, values='small')}, {d.new(second, values='small')})"


@row("dot", draw)
def dot(a: Any, b: Any) -> Plain:
    return product(np.dot, a, b)


def draw(d: Draw) -> str:
    x = d.new((d.extent() if d.kind != "block" else 67,), values="small")
    return f"st.outer({x}, {d.new((5,), values='small')})"


row("outer", draw, lambda a, b: product(np.multiply.outer, a, b), torch="outer")


def draw(d: Draw) -> str:
    n = {"one": 1, "block": 67}.get(d.kind, 7)
    if d.kind in ("scalar", "empty"):
        raise NotACell
    x, y = d.new((n,), values="small"), d.new((d.pick(1, 4, 9),), values="small")
    return f"st.{d.name}({x}, {y}{d.keyword('mode', repr('full'), repr('same'), repr('valid'))})"


row("convolve", draw, lambda a, v, mode="full": product(lambda x, y: np.convolve(x, y, mode), a, v))
row("correlate", draw, lambda a, v, mode="valid": product(lambda x, y: np.correlate(x, y, mode), a, v))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    return f"st.vecdot({d.new(shape, values='small')}, {d.new(shape, values='small')}{d.axis(len(shape), several=False, none=False)})"


@row("vecdot", draw, torch=lambda torch: lambda a, b, axis=-1: torch.linalg.vecdot(a, b, dim=axis))
def vecdot(a: Any, b: Any, axis: int = -1) -> Plain:
    return product(lambda x, y: np.sum(np.conj(x) * y, axis=axis, dtype=x.dtype), a, b)


def draw(d: Draw) -> str:
    m, k, n = _sides(d)
    form_ = d.chance.randrange(4)
    d.keywords.add("axes")
    first, second, axes = [
        ((m, k), (k, n), "1"),
        ((m, k), (m, k), "2"),
        ((m, k), (n, k), "([1], [1])"),
        ((2, k, m), (m, 2, n), "([2, 0], [0, 1])"),
    ][form_]
    return f"st.tensordot({d.new(first, values='small')}, {d.new(second, values='small')}, axes={axes})"


@row("tensordot", draw, torch="tensordot")
def tensordot(a: Any, b: Any, axes: Any = 2) -> Plain:
    return product(lambda x, y: np.tensordot(x, y, axes), a, b)


row(
    "inner",
    lambda d: f"st.inner({d.new(shape := d.shape(ranks=(1, 2)), values='small')}, {d.new(shape, values='small')})",
    lambda a, b: product(np.inner, a, b),
)
row(
    "vdot",
    lambda d: f"st.vdot({d.new(shape := d.shape(ranks=(1, 2)), values='small')}, {d.new(shape, values='small')})",
    lambda a, b: product(np.vdot, a, b),
)
row(
    "kron",
    lambda d: (
        f"st.kron({d.new(d.pick((2, 3), (3,), (1, 4)), values='small')}, {d.new(d.pick((2,), (2, 2)), values='small')})"
    ),
    lambda a, b: product(np.kron, a, b),
)


@row(
    "cross",
    lambda d: (
        f"st.cross({d.new((*(shape := d.shape(ranks=(0, 1))), 3), values='small')}, {d.new((*shape, 3), values='small')}"
        f"{d.keyword('axis', -1, len(shape))})"
    ),
)
def cross(a: Any, b: Any, axis: int = -1) -> Plain:
    return product(lambda x, y: np.cross(x, y, axis=axis), a, b)


row(
    "mv",
    lambda d: f"st.mv({d.new((3, n := d.extent()), values='small')}, {d.new((n,), values='small')})",
    lambda a, b: product(np.matmul, a, b),
)


@row(
    "addmm",
    lambda d: (
        f"st.addmm({d.new((3, 4), values='small')}, {d.new((3, n := d.extent()), values='small')}, "
        f"{d.new((n, 4), values='small')}{d.keyword('beta', 0, 1, 2)}{d.keyword('alpha', 1, 2)})"
    ),
)
def addmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["matmul"](a, b) * alpha


@row(
    "addr",
    lambda d: (
        f"st.addr({d.new((3, n := d.extent()), values='small')}, {d.new((3,), values='small')}, {d.new((n,), values='small')}"
        f"{d.keyword('beta', 0, 1, 2)})"
    ),
)
def addr(x: Any, a: Any, b: Any, beta: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["outer"](a, b)


@row(
    "addbmm",
    lambda d: (
        f"st.addbmm({d.new((3, 4), values='small')}, {d.new((2, 3, n := d.extent()), values='small')}, "
        f"{d.new((2, n, 4), values='small')}{d.keyword('beta', 0, 1, 2)}{d.keyword('alpha', 1, 2)})"
    ),
)
def addbmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["einsum"]("kij,kjl->il", a, b) * alpha


def draw(d: Draw) -> str:
    n = d.extent()
    text, *shapes = d.pick(
        ("ij,jk", (2, n), (n, 3)), ("...i,...i->...", (2, n), (1, n)), ("bij,bkj->bik", (2, 3, n), (2, 4, n)),
        ("ij,jk,kl->il", (2, n), (n, 3), (3, 2)), ("ii->i", (3, 3)), ("ij->j", (n, 3)), ("i,j", (n,), (3,)),
    )  # fmt: skip
    d.keywords.add("subscripts")
    how = d.keyword("optimize", True, False, repr("greedy"), percent=30)
    return f"st.einsum({text!r}, {', '.join(d.new(shape, values='small') for shape in shapes)}{how})"


@row("einsum", draw)
def einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Plain:
    arrays, _ = together(*operands)
    dtype = arrays[0].dtype
    inner = np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype
    return Plain(np.array(np.einsum(subscripts, *(x.astype(inner) for x in arrays), optimize=optimize)).astype(dtype))


def draw(d: Draw) -> str:
    n = min(d.extent(), 67)
    a, b, w = d.new((n, 3), values="small"), d.new((n, 2), values="small"), d.new((4, 3, 2), values="small")
    d.keywords.add("bias")
    return f"st.bilinear({a}, {b}, {w}{', ' + d.new((4,), values='small') if d.likely(40) else ''})"


@row("bilinear", draw)
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Plain:
    dtype = wide(x1)[1]
    y = np.einsum("...i,oij,...j->...o", f64(x1), f64(weight), f64(x2))
    return Plain((y if bias is None else y + f64(bias)).astype(dtype))
