"""The table of the public functions' test facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import FUNCTIONS
from tests.rows.torch_calls import OfTorch

Call = Callable[[Draw], str]


@dataclass(frozen=True)
class Row:
    """The test facts of one public function."""

    draw: Call
    """Returns the source code of a call with drawn arguments."""
    reading: Callable[..., Any]
    """The function once more, in NumPy and Python: it shares no code with `staged`."""
    special: Sequence[tuple[Any, float]] = ()
    """Operands, or several in a tuple, with the exact value."""
    torch: str | OfTorch = ""
    """PyTorch's function, if its gradient is compared: the name in `torch`, or how it is called with our arguments."""


ROWS: dict[str, Row] = {}
"""The row of each public function: `exp`, `linalg.det`, `nn.Linear`."""


def row(name: str, draw: Call, reading: Any = None, **more: Any) -> Any:
    """Enter a row. Without a reading, returns a decorator that enters the decorated function as the reading."""

    def enter(reading: Any) -> Any:
        assert name not in ROWS, f"{name} has two rows"
        ROWS[name] = Row(draw, reading, **more)
        FUNCTIONS[name] = reading
        return reading

    return enter if reading is None else enter(reading)
