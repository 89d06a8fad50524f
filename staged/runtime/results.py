"""Memory for the arrays that calls return: the blocks of large ones are reused."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from staged.errors import SMALLER, ProgramMemoryError

Array = np.ndarray[Any, Any]

WORTH_KEEPING = 1 << 20
"""In bytes: smaller blocks are allocated as quickly; larger ones return to the system, and every page would fault
again.
"""
_BLOCKS_KEPT = 3
_PAGE = 4096
_REFERENCES_OF_IDLE = 3  # the list's, the loop variable's, the argument of getrefcount


class Results:
    """Memory for results: a large block is reused once no array refers to it.

    An array keeps its block alive as its `base`, and so do views of it, so a block's reference count tells. A thread
    that looks at a block holds it meanwhile, so two never take the same one.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, list[Array]] = {}

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array that shares memory with no other live one; its elements are undefined."""
        size = dtype.itemsize * math.prod(shape)
        if size < WORTH_KEEPING:
            return np.empty(shape, dtype)
        blocks = self._blocks.setdefault(size, [])
        for block in blocks:
            if sys.getrefcount(block) == _REFERENCES_OF_IDLE:
                return _placed(block, shape, dtype)
        try:
            block = np.empty(size + _PAGE, np.uint8)
        except MemoryError:
            raise ProgramMemoryError(f"the system does not have {size:,} bytes for a result", hint=SMALLER) from None
        if len(blocks) < _BLOCKS_KEPT:
            blocks.append(block)
        return _placed(block, shape, dtype)


def _placed(block: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array in the block that starts in the middle of a page.

    Large inputs start at the beginning of one; a store and a load that agree in the low bits of their addresses wait
    for each other (4K aliasing), which cost a row-wise softmax a third of its time.
    """
    address = block.__array_interface__["data"][0]
    return np.ndarray(shape, dtype, buffer=block, offset=(_PAGE // 2 - address) % _PAGE)
