"""Calls of what sorts."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import Draw, NotACell


def _row(d: Draw) -> tuple[str, tuple[int, ...]]:
    shape = d.shape(ranks=(1, 2, 3))
    return d.new(shape, values="unit" if d.smooth else "any"), shape


@call("sort")
def _(d: Draw) -> str:
    x, shape = _row(d)
    rest = d.keyword("descending", True, False) + d.keyword("stable", True, percent=20)
    if d.likely(30):
        d.keywords.add("axis")
        return f"st.sort({x}, dim={d.pick(*range(-len(shape), len(shape)))}{rest})[0]"
    return f"st.sort({x}{d.axis(len(shape), several=False)}{rest})"


@call("argsort")
def _(d: Draw) -> str:
    x, shape = _row(d)
    rest = d.keyword("descending", True, False) + d.keyword("stable", True, percent=20)
    return f"st.argsort({x}{d.axis(len(shape), several=False)}{rest})"


@call("msort")
def _(d: Draw) -> str:
    return f"st.msort({_row(d)[0]})"


@call("topk")
def _(d: Draw) -> str:
    x, shape = _row(d)
    d.keywords |= {"k", "axis"}
    axis = d.pick(*range(-len(shape), len(shape)))
    rest = d.keyword("largest", True, False) + d.keyword("sorted", True, percent=20)
    return f"st.topk({x}, {d.pick(0, 1, shape[axis], shape[axis] // 2) if shape[axis] else 0}, axis={axis}{rest})"


@call("kthvalue")
def _(d: Draw) -> str:
    x, shape = _row(d)
    d.keywords |= {"k", "axis"}
    axis = d.pick(*range(-len(shape), len(shape)))
    if not shape[axis]:
        return f"st.msort({x})"
    return f"st.kthvalue({x}, {d.pick(1, shape[axis])}, axis={axis}{d.keyword('keepdims', True)})"


def _spread(name: str) -> Call:
    def text(d: Draw) -> str:
        if d.dtype == "bool":
            raise NotACell
        shape = d.shape(ranks=(0, 1, 2, 3))
        if 0 in shape:
            raise NotACell
        x = d.new(shape, values="unit" if d.smooth else "small")
        share = ""
        if not name.endswith("median"):
            d.keywords.add("q")
            share = f", {d.pick('0.3', '0.5', '1.0', '[0.0, 0.25, 0.9]')}"
            if "percent" in name:
                share = f", {d.pick('30.0', '50', '[0.0, 25.0, 90.0]')}"
        rest = "" if name.endswith("median") else d.keyword("method", "'linear'", "'lower'", "'hazen'", "'nearest'")
        return f"st.{name}({x}{share}{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)}{rest})"

    return text


for _name in "median nanmedian quantile nanquantile percentile nanpercentile".split():
    CALLS[_name] = _spread(_name)


@call("mode")
def _(d: Draw) -> str:
    x, shape = _row(d)
    if 0 in shape:
        raise NotACell
    return f"st.mode({x}{d.axis(len(shape), several=False, none=False)}{d.keyword('keepdims', True)})"


@call("lexsort")
def _(d: Draw) -> str:
    d.keywords |= {"keys"}
    shape = d.shape(ranks=(1, 2))
    keys = ", ".join(d.new(shape, values="small") for _ in range(d.pick(1, 2, 3)))
    return f"st.lexsort(({keys},){d.axis(len(shape), several=False, none=False)})"


def _distinct(name: str) -> Call:
    def text(d: Draw) -> str:
        d.keywords.add("size")
        x = d.new(shape := d.shape(ranks=(1, 2)), values="unit" if d.smooth else "small")
        fill = ", fill_value=0" if 0 in shape else d.keyword("fill_value", 0)
        if fill:
            d.keywords.add("fill_value")
        rest = ""
        if name == "unique":
            more = ("return_index", "return_inverse", "return_counts")
            rest = "".join(d.keyword(word, True, percent=30) for word in more) + d.keyword("equal_nan", True, False)
        return f"st.{name}({x}{rest}, size={d.pick(1, 3, 12)}{fill})"

    return text


for _name in "unique unique_values unique_counts unique_inverse unique_all".split():
    CALLS[_name] = _distinct(_name)
