"""Programs of cells on the emulated device: regions around the pieces, against eager mode, in an order of work drawn by the seed."""

from __future__ import annotations

import contextlib
import gc
import random
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from cuda_emulator import DeviceCounts
from staged.runtime import cuda
from staged.runtime.options import CompileOptions
from staged.testing import load_snippet
from tests.fuzz.cells.check import difference, in_eager_mode, named, with_all_variables
from tests.fuzz.cells.piece import module_of
from tests.fuzz.cells.programs import Program
from tests.fuzz.check import Failure, failing_at
from tests.fuzz.late import NONE, Late, late_operands, packs_of_few
from tests.listed_copies import check_copies

UNOPTIMISED = CompileOptions("0", (), ("-g0", "-w"))
ORDERS = ("eager forward", "lazy reverse", "lazy shuffled")


CUDA, OPENCL = "st.with_backend(st.GPU)", 'st.with_backend(st.GPU, using="opencl")'
"""Regions of each back end."""


def source_on_device(program: Program, region: str = CUDA, late: Late = NONE) -> str:
    """The module's text, with one region around all pieces or one around each, or none.

    Pieces with late slices are called by a recursive function of the program now and then: its parameters are slices.
    """
    chance = random.Random(f"regions {program.seed}")
    parts, calls, parameters = [], [], []
    for number, piece in enumerate(program.pieces):
        name = f"piece{number}"
        parts.append(piece.renamed(name))
        given = [f"p{number}_{argument}" for argument in piece.arrays]
        parameters += given
        texts = [late.text(each) for each in given]
        # A Variable that a recursive function creates is an error. A generator has Variables.
        creates = any(word in piece.text for word in ("Variable", "Generator", "st.nn."))
        is_recursive = piece.transform == "plain" and not creates
        if late.views.keys() & set(given) and is_recursive and chance.random() < 0.3:
            names = ", ".join(piece.arrays)
            parts.append(
                f"@st.function\ndef again{number}({names}, turns):\n"
                f"    return {name}({names}) if turns <= 0 else again{number}({names}, turns - 1)\n"
            )
            calls.append(f"r{number} = again{number}({', '.join(texts)}, turns)")
        else:
            calls.append(f"r{number} = {name}({', '.join(texts)})")
    inside = "\n".join(calls)
    if not region:
        body = inside
    elif chance.random() < 0.6:
        body = f"with {region}:\n" + textwrap.indent(inside, "    ")
    else:
        body = "\n".join(f"with {region}:\n    {call}" for call in calls)
    results = ", ".join(f"r{number}" for number in range(len(calls)))
    parameters += ["turns"] * (late is not NONE)
    text = "\n\n".join(parts)
    text += f"\n\ndef everything({', '.join(parameters)}):\n{textwrap.indent(body, '    ')}\n    return ({results},)\n"
    return module_of(program.pieces, text)


def check_cells_on_device(program: Program, refused: dict[Any, str] | None = None, is_late: bool | None = None) -> int:
    """Raise Failure unless the emulated device gives eager mode's answers, without misuse; gives how many pieces were compared.

    Some programs have late slices among their operands (`late.py`): those of every other seed, unless `is_late` says.
    """
    accepted, expected = in_eager_mode(program, {} if refused is None else refused)
    if not accepted.pieces:
        return 0
    device = cuda.emulator()
    gc.collect()
    gc.freeze()  # what programs leave behind is much: the collection below looks at this program's objects alone
    order = ORDERS[program.seed // 4 % len(ORDERS)]
    device.configure(f"{order} seed={program.seed}" if "shuffled" in order else order)
    before = device.counts()
    try:
        if program.seed // 2 % 2 if is_late is None else is_late:
            with packs_of_few():
                _compared(accepted, expected, True)
        else:
            _compared(accepted, expected, False)
    finally:
        device.configure()
    gc.collect()
    left = device.counts() - before
    if left.violations:
        raise Failure("the emulated device found a misuse", device.last_violation())
    if any(piece.variables for piece in accepted.pieces):
        return len(accepted.pieces)  # Variables of the module keep their place on the device
    alive = [name for name in DeviceCounts.__slots__ if name.startswith("live_") and getattr(left, name)]
    if alive:
        raise Failure(f"alive after the program: {', '.join(alive)}", "\n".join(device.live_objects()))
    return len(accepted.pieces)


@dataclass(frozen=True)
class LateForm:
    """A program with late slices."""

    program: Program
    late: Late
    is_called: bool
    """Whether plain Python calls it in a region, to which other libraries lend arrays."""
    count: int
    """The number of times that a recursive function calls itself."""

    def source(self, region: str) -> str:
        """The module's text."""
        return source_on_device(self.program, "" if self.is_called else region, self.late)

    def given(self) -> list[Any]:
        """The arguments."""
        return [*(self.late.given(name, array) for name, array in arrays_of(self.program).items()), self.count]


def late_form(program: Program) -> LateForm:
    """The form of a program, by its seed."""
    chance = random.Random(f"late {program.seed}")
    is_called = chance.random() < 0.5
    return LateForm(program, late_operands(chance, arrays_of(program), is_called), is_called, chance.randrange(3))


def arrays_of(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments by the names of the parameters of `everything`."""
    return {f"p{number}_{name}": array for number, piece in enumerate(program.pieces) for name, array in piece.arrays.items()}


def run_in_region(program: Program, region: str, is_late: bool = False) -> Any:
    """The result of each piece; without a region it is the compiled program's."""
    form = late_form(program) if is_late else None
    module = load_snippet(form.source(region) if form else source_on_device(program, region), "cells")
    staged = st.function(module.everything)
    staged.options = UNOPTIMISED
    given = form.given() if form else [array.copy() for array in program.arrays()]
    is_called = form is not None and form.is_called
    around = st.with_backend(st.GPU) if is_called else contextlib.nullcontext()
    with np.errstate(all="ignore"), around:
        return with_all_variables(program, module, lambda: _run(staged, given, not is_called))


def _run(staged: Any, arguments: list[Any], lists_all: bool) -> Any:
    """The result. Raises AssertionError for other copies than the program lists."""
    program = staged.stage(*arguments)
    if program._artifact.language != "cuda" or not lists_all:
        return staged(*arguments)
    before = cuda.emulator().counts()
    found = program(*arguments)
    check_copies(program, cuda.emulator().counts() - before, is_first=True)
    return found


def _compared(program: Program, expected: list[Any], is_late: bool) -> None:
    try:
        found = run_in_region(program, CUDA, is_late)
    except Exception as error:
        for piece, wanted in zip(program.pieces, expected, strict=True):
            if len(program.pieces) == 1:
                raise named(piece, failing_at("on the device", error)) from error
            _compared(Program(program.seed, [piece]), [wanted], is_late)
        raise failing_at("on the device, all together", error) from error
    for piece, have, want in zip(program.pieces, found, expected, strict=True):
        words = difference(have, want, piece, slack=4.0)
        if words:
            raise Failure(
                f"{piece.label}: the device is not eager mode",
                f"{piece.label}: the device is not eager mode: {words}\n{piece.text}",
            )
