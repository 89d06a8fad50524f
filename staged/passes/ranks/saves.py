"""Files that several ranks write.

Rank 0 writes a file of replicated arrays. If an array is gathered for the file alone, it is not gathered: each rank
writes its piece.

Tested by `tests/ranks/test_checkpoints.py`.
"""

from __future__ import annotations

import math
from collections import Counter

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op, Value, walk_blocks
from staged.ir.rewrite import Copier
from staged.ir.structure import SAVE
from staged.passes.dead_code import eliminate_dead_code


def save_pieces(function: Function) -> Function:
    """Let each rank write its piece of an array instead of gathering the array, if nothing else uses the array."""
    if not any(op.declared is SAVE for block in walk_blocks(function.block) for op in block.ops):
        return function
    alive = eliminate_dead_code(function)  # else a dead op would use an array
    copier = _Pieces(alive)
    return alive.with_block(copier.block(alive.block)) if copier.pieces else function


class _Pieces(Copier):
    def __init__(self, function: Function) -> None:
        super().__init__(Builder())
        blocks = list(walk_blocks(function.block))
        self.counts = Counter(
            value
            for block in blocks
            for row in (*(op.operands for op in block.ops), block.end.operands)
            for value in row
        )
        self.pieces: dict[Op, dict[int, Value]] = {}
        """By `save`, for the numbers of its arrays the pieces."""
        self.unneeded: set[Op] = set()
        """Each `all_gather` of them, and the ops that use its result."""
        for block in blocks:
            home = set(block.ops)
            for op in block.ops:
                if op.declared is SAVE and op.attrs.get("by") == "first":
                    found = self.gathers(op, home)
                    if found:
                        self.pieces[op] = found

    def gathers(self, save: Op, home: set[Op]) -> dict[int, Value]:
        arrays = save.operands[len(save.operands) - len(save.attrs["arrays"]) :]
        found = {}
        for number, value in enumerate(arrays):
            piece = self.piece_of(value, home)
            if piece is not None:
                found[number] = piece
        return found

    def piece_of(self, value: Value, home: set[Op]) -> Value | None:
        """The piece of a saved array that consists of the first elements, in the order of memory, of all pieces."""
        count = math.prod(value.tensor.shape)
        passed = []
        while self.counts[value] == 1 and (op := value.producer) is not None and op in home:
            passed.append(op)
            if op.declared is prims.ALL_GATHER:
                (piece,) = op.operands
                size = math.prod(piece.tensor.shape)
                is_known = isinstance(count, int) and isinstance(size, int) and bool(piece.tensor.shape)
                if not is_known or size != -(-count // op.attrs["ranks"]):
                    return None
                self.unneeded.update(passed)
                return piece
            is_first = op.declared is prims.SLICE and len(value.tensor.shape) == 1 and op.attrs["start"] == (0,)
            if op.declared is not prims.RESHAPE and not (is_first and op.attrs["step"] == (1,)):
                return None
            value = op.operands[0]
        return None

    def op(self, op: Op) -> None:
        if op in self.unneeded:
            return
        if op not in self.pieces:
            super().op(op)
            return
        first = len(op.operands) - len(op.attrs["arrays"])
        operands = list(op.operands)
        for number, piece in self.pieces[op].items():
            operands[first + number] = piece
        shapes = tuple((number, op.operands[first + number].tensor.shape) for number in self.pieces[op])
        super().op(op.replace(operands=operands, attrs={**op.attrs, "by": "each", "pieces": shapes}))
