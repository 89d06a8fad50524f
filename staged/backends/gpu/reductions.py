"""The device functions by which threads that share an item bring their totals together: their names, and the memory
that they need.
"""

from __future__ import annotations

from typing import Literal

from staged.ir.declaration import Declaration
from staged.ir.types import DType

TeamKind = Literal["warp", "block", "column"]


def parts_of(team: TeamKind, threads: int, warp: int) -> int:
    """Elements of shared memory that one call needs, for teams in blocks of so many threads,
    in warps of so many lanes."""
    return {"warp": 0, "block": threads // warp, "column": threads}[team]


def reduction_name(team: str, op: Declaration, dtype: DType) -> str:
    """The name of the function (without `st_`) for a reduction of numbers of this dtype."""
    return f"{team}_{op.name}_{dtype}"
