"""The cells (function, dtype, kind of shape, transform) that the programs of a run drew, and those that they never did."""

from __future__ import annotations

import ast
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from staged.errors import StagedError
from tests.fuzz.cells.asking import eagerly, is_taken
from tests.fuzz.cells.piece import Cell, Piece
from tests.fuzz.cells.programs import PIECES, Program, all_cells, drawn
from tests.rows import ROWS

_ATTEMPTS = 6


class Record:
    """The draws of one worker: lines of JSON in a file, merged at the end."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file: TextIO = (folder / f"cells.{name}.jsonl").open("a")

    def enter(self, program: Program, refused: dict[object, str]) -> None:
        """The cells and keywords of a program that was checked."""
        met = [piece for piece in program.pieces if piece.cell and piece.cell not in refused]
        words = sorted({f"{piece.cell[0]}.{keyword}" for piece in met if piece.cell for keyword in keywords_of(piece)})
        scenes = [piece.label for piece in program.pieces if not piece.cell]
        self.file.write(
            json.dumps({"cells": [piece.cell for piece in met], "keywords": words, "scenes": scenes}) + "\n"
        )
        self.file.flush()


def keywords_of(piece: Piece) -> set[str]:
    """The keywords that a piece gives its function, by name or by place."""
    assert piece.cell
    calls = [node for node in ast.walk(ast.parse(piece.text)) if isinstance(node, ast.Call)]
    own = [call for call in calls if ast.unparse(call.func) == f"st.{piece.cell[0]}"]
    return piece.keywords | {keyword.arg for call in own for keyword in call.keywords if keyword.arg}


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


def asked(cell: Cell) -> tuple[Piece | None, str]:
    """A call of this cell that the type rules take, or None and why there is none: by asking them in eager mode."""
    chance = random.Random(f"ask {cell}")
    words = "no such shape"
    for _ in range(_ATTEMPTS):
        piece = drawn(cell, chance)
        if piece is None:
            return None, words
        try:
            eagerly(piece, piece.text)
        except StagedError as error:
            words = f"{type(error).__name__}: {error.message}"
        else:
            return piece, ""
    return None, words


def remaining(cells: set[Cell], check: Callable[[Program], object]) -> tuple[list[Cell], Counter[str]]:
    """Draw and check the cells that a run has not met: those that fail or have no call, and for the others why there are none."""
    failed: list[Cell] = []
    reasons: Counter[str] = Counter()
    waiting: list[Piece] = []
    for cell in all_cells():
        if cell in cells:
            continue
        if cell[0] not in ROWS:
            failed.append(cell)
            continue
        if not is_taken(cell[0], cell[1]):
            reasons[f"{cell[0]} takes no {cell[1]}"] += 1
            continue
        piece, words = asked(cell)
        if piece is None:
            reasons[f"{cell[0]} {cell[1]} {cell[3]}: {words[:90]}"] += 1
        else:
            waiting.append(piece)
    for start in range(0, len(waiting), PIECES):
        several = waiting[start : start + PIECES]
        try:
            check(Program(start, several))
        except AssertionError as error:
            print(error)
            failed += [piece.cell for piece in several if piece.cell]
        else:
            cells |= {piece.cell for piece in several if piece.cell}
    return failed, reasons


def report(cells: set[Cell], keywords: set[str], scenes: Counter[str], check: Callable[[Program], object]) -> tuple[str, int]:
    """The report's text, and how many cells are empty. What the seeds did not meet is drawn now: no cell stays empty."""
    before = len(cells)
    failed, reasons = remaining(cells, check)
    every, refused = len(all_cells()), sum(reasons.values())
    untaken = sum(count for words, count in reasons.items() if ":" not in words)
    lines = [
        f"{every} cells (function, dtype, kind of shape, transform): {before} drawn by the seeds, {len(cells) - before} afterwards, "
        f"{untaken} of dtypes that their function does not take, {refused - untaken} that have no such shape or derivative, or are "
        f"refused, {every - len(cells) - refused} empty"
    ]
    lines += [f"  empty: {' '.join(cell)}" for cell in failed[:40]]
    lines.append(f"{len(keywords)} keywords of functions drawn; never: {', '.join(sorted(undrawn(keywords))) or 'none'}")
    lines.append("scenes: " + ", ".join(f"{name} {count}" for name, count in scenes.most_common()))
    return "\n".join(lines), len(failed)


POSITIONAL = frozenset(
    "x a b arrays shape axes condition dtype fill_value start stop num weight min max indices updates key value size update n_rows "
    "num_classes pad_width repetitions repeats shift source destination axis1 axis2 dim mean var num_groups kernel_size output_size "
    "state w_ih w_hh logits labels log_probs target targets prediction probabilities input_lengths target_lengths "
    "indices_or_sections p training alpha v x1 x2 anchor positive negative".split()
)
"""Parameters that are written by position where they are written."""
ELSEWHERE = frozenset({
    "softmax.dtype", "log_softmax.dtype", "softmin.dtype", "softplus.beta", "softplus.threshold", "mean.dtype", "round.decimals",
    "cov.fweights", "cov.aweights", "searchsorted.out_int32", "bucketize.out_int32",
})  # fmt: skip
"""Keywords that torch's own samples check instead (tests/torch_samples), with their derivatives."""


def undrawn(keywords: set[str]) -> set[str]:
    """The keywords in signatures of public functions that were never written."""
    import inspect

    import staged as st

    return {
        f"{name}.{keyword}"
        for name in st.library.__all__
        for keyword, parameter in inspect.signature(getattr(st, name)).parameters.items()
        if keyword not in POSITIONAL
        and keyword not in ("device", "copy", "shard")  # they change nothing on one rank; tests/ranks has `shard`
        and f"{name}.{keyword}" not in ELSEWHERE
        and parameter.kind is not parameter.VAR_POSITIONAL
        and f"{name}.{keyword}" not in keywords
    }
