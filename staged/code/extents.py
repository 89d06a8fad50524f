"""Sizes as expressions of C.

Tested by `tests/code/test_extents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, isinf
from types import MappingProxyType

from staged.code.expr import Conditional, Expr, Group, Infix, Literal, scaled
from staged.ir.sizes import Dim, Extent, Extreme, Polynomial, Quotient, bounds_of, exact_quotient

Term = tuple[bool, Expr]
"""A term of a sum: True if it is subtracted, and a product."""


NamedSizes = Mapping[Extent, Expr]
"""The variables that hold sizes other than dimensions."""
_NONE: NamedSizes = MappingProxyType({})


def size_expr(extent: Extent, dim: Callable[[Dim], Expr], named: NamedSizes = _NONE) -> Expr:
    """A size in terms of the variables that hold the dimensions, and of those in `named`."""
    if extent in named:
        return named[extent]
    match extent:
        case Dim():
            return dim(extent)
        case Quotient(size, divisor):
            below = -min(bounds_of(size)[0], 0.0)
            whole = 0 if isinf(below) else ceil(below / divisor)  # C rounds to zero
            quotient = Infix("/", size_expr(size + whole * divisor, dim, named), Literal(str(divisor)))
            return Infix("-", quotient, Literal(str(whole))) if whole else quotient
        case Extreme(name, sizes):
            least, *others = (size_expr(size, dim, named) for size in sizes)
            for other in others:
                least = Group(Conditional(Infix("<" if name == "min" else ">", least, other), least, other))
            return least
        case Polynomial(terms):
            if (factors := named_factor(extent, named)) is not None:
                factor, rest = factors
                return Infix("*", named[factor], size_expr(rest, dim, named))
            return total_of([_product(monomial, factor, dim, named) for monomial, factor in terms])
    return Literal(str(extent))


def named_factor(size: Extent, named: NamedSizes) -> tuple[Extent, Extent] | None:
    """A size in `named` that divides a sum or a product, and the quotient."""
    if isinstance(size, Polynomial) and sum(len(monomial) or 1 for monomial, _ in size.terms) > 1:
        for factor in named:
            if (rest := exact_quotient(size, factor)) is not None:
                return factor, rest
    return None


def times(index: Expr, stride: Extent, dim: Callable[[Dim], Expr]) -> Term:
    """`index * stride`. The bounds of the stride decide its sign."""
    if isinstance(stride, int):
        return (True, scaled(index, -stride)) if stride < -1 else (False, scaled(index, stride))
    is_negative = bounds_of(stride)[1] <= 0
    return is_negative, Infix("*", index, size_expr(-stride if is_negative else stride, dim))


def total_of(terms: list[Term]) -> Expr:
    """`a + b - 1`; `0` for no terms."""
    ordered = sorted(terms, key=lambda term: term[0]) if terms and terms[0][0] else terms
    total: Expr | None = None
    for is_negative, term in ordered:
        if total is None:
            total = Infix("-", Literal("0"), term) if is_negative else term
        else:
            total = Infix("-" if is_negative else "+", total, term)
    return total or Literal("0")


def _product(monomial: tuple[Extent, ...], factor: int, dim: Callable[[Dim], Expr], named: NamedSizes) -> Term:
    factors = [size_expr(size, dim, named) for size in monomial]
    if abs(factor) != 1 or not factors:
        factors.append(Literal(str(abs(factor))))
    product = factors[0]
    for each in factors[1:]:
        product = Infix("*", product, each)
    return factor < 0, product
