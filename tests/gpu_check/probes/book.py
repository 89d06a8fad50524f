"""The record of a probe: each check runs a staged function twice and compares it with eager mode in f64.

A check is written to the journal when it begins and when it ends. So if the process dies, the journal names the check in
which it died, and the probe continues after that check in another process.

    {"begins": "bias and relu", "number": 2}
    {"what": "bias and relu", "ok": true, "error": 1e-07, "same_bits": true, ...}
    {"ends": true}
"""

from __future__ import annotations

import json
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from staged.errors import StagedError
from tests.gpu_check import programs
from tests.gpu_check.recorder import LOST, what_the_gpu_lacks

SEED = 20240
EXACT = 0.0


class Skipped(Exception):
    """The machine lacks something that a probe needs."""


@dataclass
class Book:
    """The checks of one probe. `small`: sizes for a rehearsal. `prepares`: note the programs for the device, run nothing.

    Checks with a number up to `past` have a result from an earlier process.
    """

    folder: Path
    small: bool = False
    prepares: bool = False
    past: int = -1
    number: int = -1
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = os.open(self.folder / "journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, **entry: Any) -> None:
        """Append a line, in one call of the operating system."""
        os.write(self.file, (json.dumps(entry) + "\n").encode())

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray[Any, Any]:
        """Normally distributed numbers, the same in every run."""
        return (scale * self.random.standard_normal(shape)).astype(dtype)

    @contextmanager
    def attempt(self, what: str) -> Iterator[dict[str, Any] | None]:
        """An entry for a check to fill; None if an earlier process has a result. An exception is a failure."""
        self.number += 1
        if self.number <= self.past:
            yield None
            return
        self.note(begins=what, number=self.number)
        entry: dict[str, Any] = {"what": what, "ok": True}
        begin = time.monotonic()
        try:
            yield entry
        except Skipped:
            raise
        except (Exception, KeyboardInterrupt) as failure:
            entry |= {"ok": False, "words": words_of(failure)}
        self.note(**entry, seconds=round(time.monotonic() - begin, 3))
        if not entry["ok"] and not self.prepares and (lost := what_the_gpu_lacks()):
            self.note(lost=lost)
            os._exit(LOST)

    def check(
        self,
        what: str,
        function: Any,
        *arguments: Any,
        tolerance: float,
        expected: Any = None,
        repeats: bool = True,
        captures: bool = False,
    ) -> None:
        """Run `function` twice and compare the results with `expected`, by default those of eager mode in f64.

        With `repeats` both runs must have the same bits. With `captures` the program must contain a CUDA graph.
        """
        with self.attempt(what) as entry:
            if entry is None:
                return
            program = self.staged(function, *arguments)
            if self.prepares:
                return
            runs = [leaves_of(function(*arguments)) for _ in range(2)]
            entry["same_bits"] = [x.tobytes() for x in runs[0]] == [x.tobytes() for x in runs[1]]
            if expected is None:
                with st.eager():
                    expected = function(*in_f64(arguments))
            entry |= compared(runs[0], leaves_of(expected), tolerance)
            entry["calls"] = library_calls(program.source)
            entry["notes"] = [str(note)[:300] for note in program.notes]
            entry["ok"] = entry["ok"] and (entry["same_bits"] or not repeats)
            if captures and "cudaStreamBeginCapture" not in program.source:
                entry |= {"ok": False, "words": "the program does not capture a CUDA graph"}

    def same(self, found: Any, expected: Any, tolerance: float) -> dict[str, Any]:
        """The entry of a comparison of two results."""
        return compared(leaves_of(found), leaves_of(expected), tolerance)

    def staged(self, function: Any, *arguments: Any) -> Any:
        """The program of these arguments. Its source is written to the folder; a preparation notes it."""
        program = function.stage(*arguments)
        path = self.folder / f"{self.number:02d}_{program.name}.cu"
        path.write_text(program.source)
        if self.prepares:
            programs.note(program._artifact)
        return program


def on_device(function: Callable[..., Any], **options: Any) -> Any:
    """`function`, staged, in a GPU region that names its arguments; the same source on every machine."""

    def inside(*arguments: Any) -> Any:
        with with_backend(GPU, *arguments, **options):
            result = function(*arguments)
        return result

    inside.__name__ = function.__name__ if function.__name__.isidentifier() else "program"
    return st.function(target="portable")(inside)


def words_of(failure: BaseException) -> str:
    """An exception, with its position in the probes if it is not an error of `staged`."""
    words = f"{type(failure).__name__}: {failure}"
    if not isinstance(failure, StagedError):
        words += "\n" + "".join(traceback.format_tb(failure.__traceback__)[-3:])
    return words[:4000]


def library_calls(source: str) -> list[str]:
    """The functions of NVIDIA's libraries that compute, and the epilogues of cublasLt, in a program."""
    calls = re.findall(r"_CHECK\(\w+, (cu(?:blas|blasLt|dnn|solverDn)[A-Z]\w+)\(", source)
    kept = [call for call in calls if not re.search(r"Create|Destroy|Set|Get|Desc|Attribute|Init", call)]
    return sorted({*kept, *re.findall(r"CUBLASLT_EPILOGUE_\w+", source), *re.findall(r"\b(run_plan)\(", source)})


# ---- comparing --------------------------------------------------------------------------------------


def leaves_of(result: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves_of(part)]
    return [np.ascontiguousarray(np.asarray(result))]


def in_f64(value: Any) -> Any:
    """The same arguments, floats as f64: each float of 16 or 32 bits is one of 64 bits exactly."""
    if isinstance(value, (tuple, list)):
        return type(value)(in_f64(part) for part in value)
    if isinstance(value, dict):
        return {key: in_f64(part) for key, part in value.items()}
    if hasattr(value, "host_copy"):
        value = value.host_copy
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        return value.astype(np.float64)
    return value


def compared(found: list[Any], expected: list[Any], tolerance: float) -> dict[str, Any]:
    """The largest error of all arrays, relative to the largest number of each, and the element that has it."""
    if [x.shape for x in found] != [x.shape for x in expected]:
        shapes = f"{[x.shape for x in found]} in place of {[x.shape for x in expected]}"
        return {"ok": False, "words": f"results of shapes {shapes}"}
    entry: dict[str, Any] = {"ok": True, "error": 0.0, "tolerance": tolerance, "shapes": [list(x.shape) for x in found]}
    entry["value"] = [_plain(x) for x in found[0].ravel()[:4]] if found else []
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        with np.errstate(invalid="ignore"):
            difference = np.where(one == other, 0.0, np.abs(one - other))
        difference[np.isnan(one) & np.isnan(other)] = 0.0
        difference[np.isnan(difference)] = np.inf
        if not difference.size:
            continue
        largest = max(1.0, float(np.abs(other[np.isfinite(other)]).max(initial=0.0)))
        error = float(difference.max()) / largest
        if error >= entry["error"]:
            at = np.unravel_index(int(difference.argmax()), difference.shape)
            entry["worst"] = {
                "result": number, "at": list(map(int, at)), "found": _plain(one[at]), "expected": _plain(other[at]),
            }  # fmt: skip
            entry["error"] = error
        if not error <= tolerance:
            entry["ok"] = False
            entry["wrong"] = entry.get("wrong", 0) + int((difference > tolerance * largest).sum())
    entry["error"] = _plain(entry["error"])
    return entry


def _plain(x: Any) -> Any:
    """A number for JSON, which has neither NaN nor infinity."""
    x = float(x)
    return x if np.isfinite(x) else str(x)
