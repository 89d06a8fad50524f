"""The grid and the block of a launch.

Tested by `tests/frontend/gpu_func/test_refusals.py`.
"""

from __future__ import annotations

import operator
from typing import Any

from staged.errors import StagedValueError, StagingError
from staged.frontend.gpu_func.ranges import MOST_BLOCK, MOST_GRID, MOST_THREADS
from staged.ir.thread_kernel import AXES
from staged.ops.array import StagedArray
from staged.source import here

Size3 = tuple[int, int, int]


def launch_size(name: str, grid: Any, block: Any, hint: str) -> tuple[Size3, Size3]:
    """The grid and the block of a launch of the kernel `name`, along x, y and z; `hint` says how they are given.

    Raises: StagedValueError for sizes that only the program knows; StagingError for others than one to three numbers,
    and for a launch that exceeds every GPU's limits.
    """
    blocks, threads = _size(grid, "grid", name, hint), _size(block, "block", name, hint)
    count = threads[0] * threads[1] * threads[2]
    if count > MOST_THREADS or any(size > most for size, most in zip(threads, MOST_BLOCK, strict=True)) or not count:
        raise StagingError(
            f"`{name}` asks for blocks of {size_text(threads)} threads",
            where=here(),
            hint=f"a block has 1 to {MOST_THREADS} threads, {size_text(MOST_BLOCK)} at most along each axis",
        )
    for axis, size, most in zip(AXES, blocks, MOST_GRID, strict=True):
        if size > most:
            raise StagingError(
                f"`{name}` asks for {size:,} blocks along {axis}",
                where=here(),
                hint=f"a grid has {most:,} at most there: let each thread take several elements",
            )
    return blocks, threads


def size_text(size: tuple[int, ...]) -> str:
    """A size for people."""
    return " x ".join(map(str, size))


def _size(given: Any, what: str, name: str, hint: str) -> Size3:
    """A size along x, y and z."""
    sizes = given if isinstance(given, tuple) else (given,)
    if any(isinstance(size, StagedArray) for size in sizes):
        raise StagedValueError(f"the {what} of `{name}` is known only when the program runs", where=here(), hint=hint)
    try:
        numbers = [operator.index(size) for size in sizes]
    except TypeError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or any(isinstance(size, bool) for size in sizes) or any(n < 0 for n in numbers):
        raise StagingError(f"the {what} of `{name}` is {given!r}", where=here(), hint=hint)
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z
