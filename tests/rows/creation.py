"""Rows of functions that create arrays. A call adds an operand, so that its result depends on an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import Plain, Precision, bare, dtype_of, plain, strong
from tests.rows.draws import number, typed
from tests.rows.shapes import _sizes
from tests.rows.table import Call, row


def _made(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    d.keywords.add("dtype")
    x = d.new(shape)
    value = f", {number(d)}" if d.name == "full" else ""
    made = f"st.{d.name}({shape!r}{value}{typed(d)})"
    return f"st.where({x} == {x}, {made}, {x})" if d.likely(50) else f"({made}, {x})"


@row("full", _made)
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Plain:
    value = strong(plain(fill_value)) if dtype is None else plain(fill_value)
    return Plain(np.full(_sizes(shape), value.a, dtype_of(dtype) if dtype is not None else value.dtype))


@row("zeros", _made)
def zeros(shape: Any, dtype: Any = np.float32) -> Plain:
    return Plain(np.zeros(_sizes(shape), dtype_of(dtype)))


@row("ones", _made)
def ones(shape: Any, dtype: Any = np.float32) -> Plain:
    return Plain(np.ones(_sizes(shape), dtype_of(dtype)))


row("empty", _made, zeros)


def _alike(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)))
    value = f", {number(d)}" if d.name == "full_like" else ""
    return f"st.{d.name}({x}{value}{d.keyword('dtype', 'st.i32', 'st.f64', percent=20) if not value else ''})"


@row("full_like", _alike)
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Plain:
    like = plain(x)
    return Plain(np.full(like.shape, bare(fill_value), like.dtype if dtype is None else dtype_of(dtype)))


@row("zeros_like", _alike)
def zeros_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 0, dtype)


@row("ones_like", _alike)
def ones_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 1, dtype)


@row("empty_like", _alike)
def empty_like(x: Any, dtype: Any = None) -> Plain:
    return full_like(x, 0, dtype)


def draw(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)))
    numbers = ", ".join(number(d) for _ in range(3))
    return d.pick(f"st.asarray({x})", f"st.asarray([{x}, {x}])", f"(st.asarray([{numbers}]{typed(d)}), {x})")


@row("asarray", draw)
def asarray(x: Any, dtype: Any = None) -> Plain:
    if dtype is not None and isinstance(x, list | tuple) and not any(isinstance(item, Plain) for item in x):
        return Plain(np.asarray(bare(x), dtype_of(dtype)))
    return Plain(strong(plain(x)).a if dtype is None else plain(x).a.astype(dtype_of(dtype)))


def draw(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    extent = d.extent()
    # What counts beyond its dtype has no single answer.
    if d.dtype in ("u8", "i8") and extent > 50:
        extent = 50
    d.keywords |= {"step", "dtype"}
    x = d.new((extent,))
    first = d.pick(
        f"{extent}",
        f"1, {extent + 1}",
        f"0, {2 * extent}, 2" if d.dtype not in ("u8", "i8") else f"{extent}",
        f"{extent}, 0, -1",
    )
    return f"(st.arange({first}{typed(d)}), {x})"


@row("arange", draw)
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Plain:
    first, last = (0, start) if stop is None else (start, stop)
    wanted = dtype_of(dtype) if dtype is not None else None
    if wanted is None:
        wanted = np.dtype(np.int64) if all(isinstance(x, int) for x in (first, last, step)) else Precision.single
    return Plain(np.arange(first, last, step).astype(wanted))


def draw(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"dtype", "endpoint"}
    extent = d.extent()
    ends = d.pick("0, 1", "-1.0, 2.5", "3, 3")
    return f"(st.linspace({ends}, {extent}{typed(d)}{d.keyword('endpoint', True, False)}), {d.new((extent,))})"


@row("linspace", draw)
def linspace(start: float, stop: float, num: int, dtype: Any = np.float32, endpoint: bool = True) -> Plain:
    return Plain(np.linspace(start, stop, num, endpoint=endpoint).astype(dtype_of(dtype)))


def _spaced(*ends: str) -> Call:
    def text(d: Draw) -> str:
        if not d.is_float:
            raise NotACell
        d.keywords |= {"dtype", "endpoint", "num", *(["base"] if d.name == "logspace" else [])}
        extent = d.extent()
        base = d.keyword("base", 2.0, 10.0) if d.name == "logspace" else ""
        dtype = ", dtype=st.f64" if d.dtype == "f64" else ""
        return f"(st.{d.name}({d.pick(*ends)}, {extent}{base}{dtype}{d.keyword('endpoint', True, False)}), {d.new((extent,))})"

    return text


def _numpys(function: Callable[..., Any]) -> Callable[..., Plain]:
    return lambda *args, dtype=np.float32, **options: Plain(function(*args, **options).astype(dtype_of(dtype)))


row("logspace", _spaced("0, 1", "-2, 0.5", "3, 3"), _numpys(np.logspace))
row("geomspace", _spaced("1, 8", "-4, -0.5", "3, 3"), _numpys(np.geomspace))


def draw(d: Draw) -> str:
    extent = min(d.extent(), 40)
    d.keywords |= {"n_cols", "k", "dtype"}
    return f"(st.eye({extent}{d.keyword('n_cols', 3, 1, extent)}{d.keyword('k', 0, 1, -1, -2)}{typed(d)}), {d.new((extent,))})"


@row("eye", draw)
def eye(n_rows: int, n_cols: Any = None, k: int = 0, dtype: Any = np.float32) -> Plain:
    return Plain(np.eye(n_rows, n_cols, k, dtype_of(dtype)))


def draw(d: Draw) -> str:
    dtype = d.keyword("dtype", "st.f32", "st.i64", "st.bool_", "st.f64")
    return f"st.one_hot({d.new(d.shape(ranks=(0, 1, 2)), values='below 4')}, {d.pick(4, 3, 1)}{dtype})"


@row("one_hot", draw)
def one_hot(indices: Any, num_classes: int, dtype: Any = np.float32) -> Plain:
    return Plain((plain(indices).a[..., None] == np.arange(num_classes)).astype(dtype_of(dtype)))
