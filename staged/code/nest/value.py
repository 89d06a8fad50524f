"""The representation of a nest's local in code.

Tested by `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.code.expr import Expr, Literal
from staged.ir.types import DType


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of a `dtype`: one number, or a vector of as many `lanes`; a vector of bools is a mask."""

    expr: Expr
    dtype: DType
    lanes: int = 1

    @property
    def is_vector(self) -> bool:
        """Return whether its lanes may differ."""
        return self.lanes > 1


def is_zero(expr: Expr) -> bool:
    """Return whether an expression is the literal 0 of some type."""
    return isinstance(expr, Literal) and expr.text in ("0", "0.0", "0.0f")
