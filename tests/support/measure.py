"""Functions through every dtype, transform and back end: what runs there and gives eager mode's answer.

The calls are the fuzzer's, one for each dtype and transform, on the first kind of shape that the type rules take. The calls of
several functions are one program on each back end. Where that is refused, its halves are tried, down to the call to blame.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from staged.cli.support import BACKENDS, TRANSFORMS, TRIED, Row
from staged.errors import StagedError
from tests.fuzz.cells.asking import eagerly
from tests.fuzz.cells.check import against_other_readings, difference
from tests.fuzz.cells.device import CUDA, OPENCL, run_in_region
from tests.fuzz.cells.piece import Piece
from tests.fuzz.cells.programs import Program, drawn
from tests.fuzz.check import Failure, failing_at

KINDS = ("odd", "vector", "one", "block", "scalar")
"""The kinds of shape of calls, the first choice first."""
ATTEMPTS = 4
REFUSALS = 12
"""The number of refused calls after which a dtype or a transform counts as refused: some keywords are refused alone."""
CELLS = {"value": "plain", "vmap": "vmap", "reverse": "grad", "forward": "jvp", "second": "twice"}
"""The fuzzer's name of each transform."""
REGIONS = {"C": "", "CUDA": CUDA, "OpenCL": OPENCL}
assert BACKENDS == ("eager", *REGIONS)
assert tuple(CELLS) == TRANSFORMS
SLACK = 4.0
"""Other orders of sums than eager mode's are allowed this much more than the same order."""

Key = tuple[str, str, str]
"""(function, transform, dtype)."""


@dataclass
class Measured:
    """Rows, and what is wrong: calls that give another answer than they should."""

    rows: dict[str, Row]
    faults: list[str] = field(default_factory=list)


def call_of(name: str, dtype: str, transform: str) -> tuple[Piece | None, Any, str]:
    """A call that eager mode takes, with its result, or None and why there is none. Raises Failure where eager mode fails."""
    words, refusals = "", 0
    for kind in KINDS:
        for number in range(ATTEMPTS):
            chance = random.Random(f"support {name} {dtype} {transform} {kind} {number}")
            piece = drawn((name, dtype, kind, CELLS[transform]), chance)
            if piece is None:
                break
            try:
                found = eagerly(piece, piece.text)
            except StagedError as error:
                words, refusals = words or error.message, refusals + 1
                if refusals == REFUSALS:
                    return None, None, words
            except Exception as error:
                raise failing_at(f"{piece.label}: eager mode", error) from error
            else:
                return piece, found, ""
    return None, None, words


def measured(names: Iterable[str], backends: Iterable[str] = tuple(REGIONS)) -> Measured:
    """The rows of functions."""
    result = Measured({name: Row(name, {}, {}) for name in names})
    calls: dict[Key, tuple[Piece, Any]] = {}
    for name, row in result.rows.items():
        for transform, dtypes in TRIED["eager"].items():
            for dtype in dtypes:
                if transform != "value" and dtype not in row.dtypes("eager", "value"):
                    continue
                try:
                    piece, found, words = call_of(name, dtype, transform)
                    if piece is not None:
                        against_other_readings(piece, found)
                except Failure as failure:
                    result.faults.append(str(failure))
                    continue
                if piece is not None:
                    calls[name, transform, dtype] = piece, found
                    row.enter("eager", transform, dtype)
                elif words:
                    row.why.setdefault(transform, words)
    for backend in backends:
        tried = {key: call for key, call in calls.items() if key[2] in TRIED[backend][key[1]]}
        for (name, transform, dtype), words in refusals_of(tried, REGIONS[backend]).items():
            row = result.rows[name]
            if words is None:
                row.enter(backend, transform, dtype)
            elif isinstance(words, Failure):
                result.faults.append(f"{backend}: {words}")
            else:
                row.why.setdefault(f"{transform} {backend}", words)
    return result


def refusals_of(calls: Mapping[Key, tuple[Piece, Any]], region: str) -> dict[Key, str | Failure | None]:
    """For each call None where a back end gives eager mode's answer, else the words of its refusal or what is wrong."""
    if not calls:
        return {}
    try:
        found = run_in_region(Program(0, [piece for piece, _ in calls.values()]), region)
    except Exception as error:
        if len(calls) > 1:
            items = list(calls.items())
            middle = len(items) // 2
            return refusals_of(dict(items[:middle]), region) | refusals_of(dict(items[middle:]), region)
        ((key, (piece, _)),) = calls.items()
        return {key: error.message if isinstance(error, StagedError) else failing_at(piece.label, error)}
    return {
        key: wrong(piece, difference(have, wanted, piece, SLACK))
        for (key, (piece, wanted)), have in zip(calls.items(), found, strict=True)
    }


def wrong(piece: Piece, words: str) -> Failure | None:
    """The failure that a difference is."""
    return Failure(piece.label, f"{piece.label}: {words}\n{piece.text}") if words else None
