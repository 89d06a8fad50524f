"""Array functions."""

from staged.ops import contraction, elementwise, index, promote, reduction, shape, source  # noqa: F401
from staged.ops.array import METHODS

globals().update(METHODS)
__all__ = sorted(METHODS)
