"""C expressions for counts of elements.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from staged.code.expr import Cast, Expr, Group, Infix, Literal


def signed(count: Expr) -> Expr:
    """A count of type size_t as one of type int64_t."""
    return count if isinstance(count, Literal) else Cast("int64_t", Group(count))


def without_cast(count: Expr) -> Expr:
    """A count as a signed integer."""
    match count:
        case Cast(_, size):
            return size
        case Infix(op, Cast(_, size), row):
            return Infix(op, size, row)
    return count


def literal_int(expression: Expr) -> int | None:
    text = str(expression)
    try:
        return int(text)
    except ValueError:
        return None
