"""Blocks of attention: their number and size, and the elements of leading axes that they read.

Tested by `tests/ops/test_attention.py` and `tests/dynamic_sizes/test_cases.py`.
"""

from __future__ import annotations

from typing import Any

from staged.ir.sizes import Dim, Extent, Size, bounds_of, largest, product
from staged.ir.types import ExtentT, Shape
from staged.ops.choice import where
from staged.ops.context import bind
from staged.ops.dimension import dim_op, size_number

BLOCKS = (192, 512)
"""The most queries and keys of a block: their scores stay in a core's cache, and their products fill its registers."""
CAUSAL_BLOCKS = (192, 256)
"""The same with `causal`: of shorter blocks fewer scores are computed that no query sees."""
UNDIVIDED = 384
"""Up to this bound, a size that the program finds is one block: equal blocks would need padding."""


def parted(extent: ExtentT, most: int, step: int, draws: bool = False) -> tuple[ExtentT, ExtentT]:
    """The number of blocks, and their size: a multiple of `step` if there are several.

    Blocks of a size that the program finds are those of the static program if there are several or they draw numbers.
    """
    undivided = max(most, UNDIVIDED) if isinstance(extent, Size) and not draws else most
    if bounds_of(extent)[1] <= undivided:
        return 1, extent
    count = -(-extent // most)
    if isinstance(extent, Size):
        return count, _equal_block(extent, count, most, step)
    return count, -(-extent // (count * step)) * step


def _equal_block(extent: Size, count: Extent, most: int, step: int) -> Extent:
    """The size of equal blocks, which is a dimension: no normal form has a quotient by a size."""
    name = "".join(each if each.isalnum() else f"_{ord(each):x}_" for each in str(extent))
    dim = Dim(f"block_of_{most}_{name}", most)
    size, blocks = size_number(extent), size_number(largest(count, 1))
    bind(dim_op, [where(blocks > 1, -(-size // (blocks * step)) * step, size)], dim=dim, most=most)
    return largest(dim, 1)


def index_of(own: Shape, all_: Shape, n: Any) -> Any:
    """The index in an array with leading axes `own` of element `n` of leading axes `all_`, which has operators."""
    own = (1,) * (len(all_) - len(own)) + own
    if own == all_:
        return n
    total: Any = 0
    stride, own_stride = product(all_), product(own)
    for position, (extent, own_extent) in enumerate(zip(all_, own, strict=True)):
        stride, own_stride = stride // extent, own_stride // own_extent
        if own_extent == 1:
            continue
        at = n if stride == 1 else n // stride
        if position:
            at = at % extent
        if own_extent != extent:
            at = at // (extent // own_extent)
        total = total + (at if own_stride == 1 else at * own_stride)
    return total
