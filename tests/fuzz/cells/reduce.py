"""Making a failing program of cells small: the piece that fails alone, then its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.cells.piece import Piece
from tests.fuzz.cells.programs import Program
from tests.fuzz.reduce import failure_key, reduce_text

Check = Callable[[Program], object]


def reduce_program(program: Program, check: Check, seconds: float) -> tuple[Program, str]:
    """The smallest program found with the same failure, and the key of that failure ('' where it does not come again)."""
    key = failure_key(program, check)
    if not key:
        return program, ""
    for piece in program.pieces:
        alone = Program(program.seed, [piece])
        if failure_key(alone, check) == key:
            program = alone
            break
    if len(program.pieces) > 1:
        return program, key
    (piece,) = program.pieces

    def fails(text: str) -> bool:
        return failure_key(Program(program.seed, [_with(piece, text)]), check) == key

    if not piece.other and fails(piece.text):
        piece = _with(piece, reduce_text(piece.text, fails, seconds))
    return Program(program.seed, [piece]), key


def _with(piece: Piece, text: str) -> Piece:
    return replace(piece, text=text)


def reproduction(program: Program, gpu: bool = False) -> str:
    """A script that runs the check again."""
    (piece,) = program.pieces[:1]
    if len(program.pieces) > 1 or piece.other or any(array.size > 80 for array in piece.arrays.values()):
        check = "check_cells_on_device" if gpu else "check_program"
        module = "device" if gpu else "check"
        return (
            f"# {piece.text.replace(chr(10), chr(10) + '# ')}\n"
            f"from tests.fuzz.cells.{module} import {check}\nfrom tests.fuzz.cells.programs import program_of\n\n"
            f"{check}(program_of({program.seed}))\n"
        )
    arrays = "".join(f"    {name}={_literal(array)},\n" for name, array in piece.arrays.items())
    return (
        "import numpy as np\n\nimport staged as st\nfrom staged.testing import load_snippet\nfrom tests.fuzz import plain\n\n"
        f"TEXT = '''\\\n{piece.module(piece.text)}'''\n\nARRAYS = dict(\n{arrays})\n"
        "print('NumPy', plain.results(plain.load(TEXT)['piece'], ARRAYS.values()))\n"
        "f = st.function(load_snippet(TEXT, 'cell').piece)\n"
        "with st.eager():\n    print('eager', f(*ARRAYS.values()))\n"
        "print('compiled', f(*ARRAYS.values()))\n"
    )


def _literal(array: np.ndarray[Any, Any]) -> str:
    text = repr(array.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({text}, {array.dtype.name!r})" + (f".reshape({array.shape!r})" if not array.size else "")
