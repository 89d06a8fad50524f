"""Which cells (function, dtype, kind of shape, transform) the programs of a run drew, and which they never did."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from staged.errors import StagedError
from tests.fuzz.cells.check import eagerly
from tests.fuzz.cells.piece import Cell
from tests.fuzz.cells.programs import Program, all_cells, drawn

_ATTEMPTS = 6


class Record:
    """What one worker drew: lines of JSON in a file, merged at the end."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file: TextIO = (folder / f"cells.{name}.jsonl").open("a")

    def enter(self, program: Program, refused: dict[object, str]) -> None:
        """The cells and keywords of a program that was checked."""
        met = [piece for piece in program.pieces if piece.cell and piece.cell not in refused]
        words = sorted({f"{piece.cell[0]}.{keyword}" for piece in met if piece.cell for keyword in piece.keywords})
        scenes = [piece.label for piece in program.pieces if not piece.cell]
        self.file.write(
            json.dumps({"cells": [piece.cell for piece in met], "keywords": words, "scenes": scenes}) + "\n"
        )
        self.file.flush()


def merged(folder: Path) -> tuple[set[Cell], set[str], Counter[str]]:
    """The cells, keywords and scenes that all workers drew."""
    cells: set[Cell] = set()
    keywords: set[str] = set()
    scenes: Counter[str] = Counter()
    for path in sorted(folder.glob("cells.*.jsonl")):
        for line in path.read_text().splitlines():
            found = json.loads(line)
            cells |= {tuple(cell) for cell in found["cells"]}
            keywords |= set(found["keywords"])
            scenes.update(found["scenes"])
    return cells, keywords, scenes


def is_refused(cell: Cell) -> str:
    """Why there is no such cell, by asking the type rules in eager mode: '' where there is one."""
    chance = random.Random(f"ask {cell}")
    words = "no such shape"
    for _ in range(_ATTEMPTS):
        piece = drawn(cell, chance)
        if piece is None:
            return words
        try:
            eagerly(piece, piece.text)
        except StagedError as error:
            words = f"{type(error).__name__}: {error.message}"
        else:
            return ""
    return words


def report(cells: set[Cell], keywords: set[str], scenes: Counter[str]) -> tuple[str, list[Cell]]:
    """The report's text, and the cells that should have been drawn and never were."""
    every = all_cells()
    asked = {cell: is_refused(cell) for cell in every if cell not in cells}
    empty = [cell for cell, words in asked.items() if not words]
    lines = [
        f"{len(every)} cells (function, dtype, kind of shape, transform): {len(cells)} drawn, "
        f"{len(asked) - len(empty)} refused by a type rule, {len(empty)} never drawn"
    ]
    lines += [f"  never drawn: {' '.join(cell)}" for cell in empty[:40]]
    lines.append(
        f"{len(keywords)} keywords of functions drawn; never: {', '.join(sorted(undrawn(keywords))) or 'none'}"
    )
    lines.append("scenes: " + ", ".join(f"{name} {count}" for name, count in scenes.most_common()))
    return "\n".join(lines), empty


def refusals(cells: Iterable[Cell]) -> Counter[str]:
    """The reasons why cells are refused, for reading: 'function dtype: reason'."""
    counted: Counter[str] = Counter()
    for cell in cells:
        words = is_refused(cell)
        if words:
            counted[f"{cell[0]} {cell[1]} {cell[3]}: {words[:90]}"] += 1
    return counted


POSITIONAL = frozenset(
    "x a b arrays shape condition dtype fill_value start stop num weight min max indices updates key value size update n_rows "
    "num_classes pad_width repetitions repeats shift source destination axis1 axis2 dim mean var num_groups kernel_size output_size "
    "state w_ih w_hh logits labels log_probs target targets prediction probabilities input_lengths target_lengths "
    "indices_or_sections p training alpha".split()
)
"""Parameters that are written by position where they are written."""


def undrawn(keywords: set[str]) -> set[str]:
    """The keywords in signatures of public functions that were never written."""
    import inspect

    import staged as st

    return {
        f"{name}.{keyword}"
        for name in st.ops.__all__
        for keyword, parameter in inspect.signature(getattr(st, name)).parameters.items()
        if keyword not in POSITIONAL
        and parameter.kind is not parameter.VAR_POSITIONAL
        and f"{name}.{keyword}" not in keywords
    }
