"""A program of a seed: several pieces, and the function that calls them all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tests.fuzz.cells.asking import is_taken
from tests.fuzz.cells.draw import NotACell
from tests.fuzz.cells.memory import PLACES
from tests.fuzz.cells.piece import Cell, Piece, cells, module_of, piece_of
from tests.fuzz.cells.scenes import SCENES
from tests.fuzz.cells.training_scene import training

CANDIDATES = 21
"""The number of cells that a program goes through: about half of them are none, as no dtype is taken by all functions."""
PIECES = 12
"""The number of calls that are checked together afterwards."""

_STRIDE = 7919
"""Prime, so that seeds one after the other meet all cells, and a program's cells have little in common."""


@dataclass
class Program:
    """Pieces that are compiled together."""

    seed: int
    pieces: list[Piece]
    skipped: list[Cell] = field(default_factory=list)
    """Cells of which there is no call: a function of matrices has no scalars."""
    names: list[str] = field(default_factory=list)
    module: Any = None
    """The loaded text, where it has been loaded."""

    def __post_init__(self) -> None:
        # A single piece is the program itself: its returns are the program's.
        alone = len(self.pieces) == 1 and self.pieces[0].arrays
        self.names = ["everything"] if alone else [f"piece{number}" for number in range(len(self.pieces))]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The arguments, in the order of the parameters of `everything`."""
        return [array for piece in self.pieces for array in piece.arrays.values()]

    def source(self) -> str:
        """The module's text."""
        parts, calls, parameters = [], [], []
        for number, (name, piece) in enumerate(zip(self.names, self.pieces, strict=True)):
            parts.append(piece.renamed(name))
            given = [f"p{number}_{argument}" for argument in piece.arrays]
            parameters += given
            calls.append(f"{name}({', '.join(given)})")
        body = "\n\n".join(parts)
        if self.names == ["everything"]:
            return module_of(self.pieces, body)
        body += f"\n\ndef everything({', '.join(parameters)}):\n    return ({', '.join(calls)},)\n"
        return module_of(self.pieces, body)


@cache
def all_cells() -> list[Cell]:
    return cells()


def program_of(seed: int) -> Program:
    """The program of a seed. Even seeds are calls, which meet every cell in turn; odd ones scenes."""
    chance = random.Random(f"cells {seed}")
    if seed % 2:
        return _scenes(seed, chance)
    known = all_cells()
    program = Program(seed, [])
    for number in range(CANDIDATES):
        cell = known[((seed // 2 * CANDIDATES + number) * _STRIDE) % len(known)]
        piece = drawn(cell, chance) if is_taken(cell[0], cell[1]) else None
        if piece is None:
            program.skipped.append(cell)
        else:
            program.pieces.append(piece)
    return Program(seed, program.pieces, program.skipped)


_ATTEMPTS = 32


def drawn(cell: Cell, chance: random.Random) -> Piece | None:
    """A call for this cell, or None where a few attempts find none."""
    for _ in range(_ATTEMPTS):
        try:
            return piece_of(cell, chance)
        except NotACell:
            continue
    return None


def _scenes(seed: int, chance: random.Random) -> Program:
    """Four scenes, or one that is the whole program."""
    # What becomes of places is decided for a whole program: one scene of them at a time.
    count, kinds = chance.choice(((1, PLACES), (1, PLACES), (5, SCENES), (4, (*SCENES, *PLACES, training))))
    pieces: list[Piece] = []
    while len(pieces) < count:
        try:
            pieces.append(chance.choice(kinds)(chance))
        except NotACell:
            continue
    return Program(seed, pieces)
