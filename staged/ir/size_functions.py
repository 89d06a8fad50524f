"""Functions of sizes: elements of slices, other names and sizes for dimensions.

Tested by `tests/ir/test_sizes.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from staged.ir.sizes import Dim, Extent, Extreme, Polynomial, Quotient, bounds_of, dims_in, largest, smallest, terms_of

_NAME = re.compile(r"[A-Za-z_]\w*")


def as_text(extent: Extent, names: Mapping[str, str]) -> str:
    """A size as Python, with other names for dimensions."""
    return renamed(str(extent), names)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """An expression in Python with other names for dimensions."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


def of_user(extent: Extent) -> Extent:
    """The size in terms of dimensions of the user."""
    return substitute(extent, {dim: dim.origin for dim in dims_in(extent) if dim.origin is not None})


def text_of_user(text: str, dims: Iterable[Dim]) -> str:
    """A text with dimensions of the user in place of those of relations."""
    return renamed(text, {str(dim): f"({dim.origin})" for dim in dims if dim.origin is not None})


def slice_count(start: Extent, stop: Extent, step: int) -> Extent:
    """The number of elements that a slice reads."""
    length, step = (stop - start, step) if step > 0 else (start - stop, -step)
    count = -(-length // step)
    return count if bounds_of(count)[0] >= 0 else largest(count, 0)


def last_index(size: Extent) -> Extent:
    """The last of so many indices, if there is any."""
    if isinstance(size, Extreme) and size.name == "max" and 0 in size.sizes and len(size.sizes) == 2:
        (size,) = (each for each in size.sizes if each != 0)
    return size - 1


def substitute(extent: Extent, new: Mapping[Dim, Extent]) -> Extent:
    """The size with other sizes for dimensions."""
    match extent:
        case Dim():
            return new.get(extent, extent)
        case Quotient(size, divisor):
            return substitute(size, new) // divisor
        case Extreme(name, sizes):
            return (smallest if name == "min" else largest)(*(substitute(size, new) for size in sizes))
        case Polynomial(terms):
            total: Extent = 0
            for monomial, coefficient in terms:
                product: Extent = coefficient
                for size in monomial:
                    product = product * substitute(size, new)
                total = total + product
            return total
    return extent


def linear(extent: Extent) -> tuple[Dim, int, int] | None:
    """N, a and b of a size `a * N + b`; None for other sizes."""
    terms = terms_of(extent)
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, factor),) = terms.items()
    dim = monomial[0]
    return (dim, factor, offset) if len(monomial) == 1 and isinstance(dim, Dim) else None


def parsed(tree: ast.expr, dim: Callable[[str], Extent]) -> Extent:
    """An expression in Python over names of dimensions. Raises: ValueError or KeyError for another expression."""
    match tree:
        case ast.Name(id=name):
            return dim(name)
        case ast.Constant(value=int() as number) if type(number) is int:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -parsed(operand, dim)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](parsed(left, dim), parsed(right, dim))
        case ast.Call(func=ast.Name(id=name), args=args):
            return {"min": smallest, "max": largest}[name](*(parsed(arg, dim) for arg in args))
    raise ValueError


_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Extent]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
