"""Terms of C sums and products, without what adds nothing."""

from __future__ import annotations


def times(factor: int, expression: str) -> str:
    """`factor * expression` in C: a number where both are, without the factor 1 and without a zero product."""
    if factor == 0:
        return "0"
    if expression.isdigit():
        return str(factor * int(expression))
    return expression if factor == 1 else f"{expression} * {factor}"


def added(*terms: str) -> str:
    """A C sum without zero terms."""
    kept = [term for term in terms if term != "0"]
    return " + ".join(kept) or "0"
